"""Checks and converts the arguments of the Python interface, in the caller's thread.

The types of a public function are written once, as the annotations of its parameters. NumPy's numbers become Python's,
and a value of a wrong type is refused with a sentence before anything has changed.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import os
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from types import GenericAlias, NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from engine.errors import EngineError, SettingsError
from engine.setting import Setting

Given = ParamSpec("Given")
Returned = TypeVar("Returned")
LARGEST = 2**64
"""Upper bound of the size of whole numbers: a seed has 64 bits."""
LONGEST = 2**20
"""Maximum number of elements of a list: no vocabulary has as many tokens."""


class ArgumentError(EngineError):
    """An argument has a wrong type."""


class _Misfit(Exception):
    """A value doesn't have the expected type.

    Args:
        value: The value, or the element of it that doesn't.
    """

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


def checked(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Convert the arguments of a function to the annotated types of its parameters.

    Arguments without an annotation, or annotated with `Any`, are left unchanged. The returned function raises an
    `ArgumentError` if an argument has a wrong type.
    """
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        """Evaluated by the first call, since they may name classes that are defined later in the module."""
        annotations = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
        found = get_type_hints(SimpleNamespace(__annotations__=annotations), function.__globals__)
        for each in signature.parameters.values():
            if each.kind is inspect.Parameter.VAR_POSITIONAL:
                found[each.name] = GenericAlias(tuple, (found[each.name], ...))
        return found

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # an argument is missing or unknown: Python's own message names it
            return function(*args, **kwargs)
        for name, value in bound.arguments.items():
            if (hint := hints().get(name, Any)) is Any:
                continue
            try:
                bound.arguments[name] = _taken(hint, value)
            except _Misfit as misfit:
                raise ArgumentError(
                    f"{function.__name__}({name}=...) must be {_words(hint)}, not {_found(value, misfit)}.",
                    f"help(mlx_inspector.{function.__qualname__}) says what it takes.",
                ) from None
        return function(*bound.args, **bound.kwargs)

    return call


def settings_of(kind: type, declared: Mapping[str, Setting], given: Mapping[str, object]) -> dict[str, Any]:
    """The values of settings, converted to their types.

    Args:
        kind: The class of the settings.
        declared: The declarations of its fields by name, for those that have one.
        given: Values by name.

    Raises:
        SettingsError: There is no such setting, or its value has a wrong type.
    """
    hints, values = _hints(kind), {}
    known = sorted(each.name for each in fields(kind))
    for name, value in given.items():
        if name not in known:
            near = [each for each in known if name.startswith(each)] or get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
            raise SettingsError(name, f"Unknown setting “{name}”.", hint)
        value = str(value) if isinstance(value, Path) else value  # `adapter_path` and others are texts
        try:
            values[name] = _taken(hints[name], value)
        except _Misfit as misfit:
            field = declared.get(name)
            ranged = field is not None and (field.choices or field.kind in ("int", "float"))
            label, must_be = (field.label, field.bounds) if field and ranged else (name, _words(hints[name]))
            raise SettingsError(name, f"{label} must be {must_be}, not {_found(value, misfit)}.") from None
    return values


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


# ---- one value -----------------------------------------------------------------------------------


def _taken(hint: Any, value: object) -> Any:
    """A value converted to the type of a hint.

    Raises:
        _Misfit: It has a wrong type.
    """
    value, origin, parts = _plain(value), get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, UnionType):
        return _one_of(parts, value)
    if origin in (tuple, Sequence):
        return _elements(parts, value)
    if origin is dict and isinstance(value, Mapping):
        return {_taken(parts[0], key): _taken(parts[1], each) for key, each in value.items()}
    if isinstance(value, str) and (hint is str or (origin is Literal and value in parts)):
        return str.__str__(value)
    if hint in (int, float, Path):
        with suppress(Exception):  # an object's own code may raise anything
            return _converted(hint, value)
    elif isinstance(hint, type) and origin is None and isinstance(value, hint):
        if not issubclass(hint, Struct):
            return value
        hints = _hints(hint)
        return hint(
            **{each.name: _taken(hints[each.name], getattr(value, each.name)) for each in fields(hint)}
        )
    raise _Misfit(value)


def _converted(hint: type, value: Any) -> int | float | str | Path:
    """A value converted to a number or a path.

    Raises:
        Exception: The value has a wrong type.
    """
    if hint is Path:
        path = os.fspath(value)
        if b"\0" in os.fsencode(path):
            raise ValueError
        return str.__str__(value) if isinstance(value, str) else Path(path)
    number = int(operator.index(value)) if hint is int else float(value)
    if isinstance(value, bool | str | bytes | bytearray) or not math.isfinite(number):
        raise ValueError
    if hint is int and not -LARGEST < number < LARGEST:
        raise ValueError
    return number


def _plain(value: object) -> object:
    """A Python number for a scalar array of NumPy, MLX or the like; other values are returned unchanged."""
    with suppress(Exception):
        if value.shape == ():  # type: ignore[attr-defined]
            return value.item()  # type: ignore[attr-defined]
    return value


def _one_of(kinds: Sequence[Any], value: object) -> Any:
    misfits = []
    for each in kinds:
        if each is str and Path in kinds:  # a path may be a text
            continue
        try:
            return _taken(each, value)
        except _Misfit as misfit:
            misfits += [misfit.value] if each is not NoneType else []
    raise _Misfit(misfits[0] if len(misfits) == 1 else value)


def _elements(kinds: tuple[Any, ...], value: object) -> tuple[Any, ...]:
    """The converted elements of a list: of any length if `kinds` is (kind,) or (kind, ...), else one for each kind."""
    any_length = len(kinds) == 1 or kinds[1] is ...
    if any_length and kinds[0] is str and isinstance(value, str):
        return (str.__str__(value),)
    if any_length and get_origin(kinds[0]) is tuple and isinstance(value, Mapping):
        value = tuple(value.items())  # pairs may be given as a dict
    with suppress(Exception):  # an array of NumPy or MLX
        value = value.tolist()  # type: ignore[attr-defined]
    unordered = () if any_length else (Set,)
    # a `Run` isn't a collection: iterating over it would wait for its steps
    if not isinstance(value, Collection) or isinstance(value, (str, bytes, bytearray, Mapping, *unordered)):
        raise _Misfit(value)
    items = list(islice(value, LONGEST + 1))
    if len(items) > LONGEST or (not any_length and len(items) != len(kinds)):
        raise _Misfit(value)
    return tuple(map(_taken, [kinds[0]] * len(items) if any_length else kinds, items))


# ---- in words ------------------------------------------------------------------------------------

_NAMES: Mapping[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
    bool: ("True or False", "True and False"),
    Path: ("a path", "paths"),
    NoneType: ("None", "None"),
    Any: ("anything", "anything"),
}
"""Words for one value, and for several."""


def _words(hint: Any, several: bool = False) -> str:
    """The type of a hint, for a sentence: `a list of whole numbers`."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _NAMES:
        return _NAMES[hint][several]
    if origin in (Union, UnionType):
        return _listed([_words(each, several) for each in parts if not (each is str and Path in parts)])
    if origin is Literal:
        return _listed(list(map(repr, parts)))
    if origin is dict:
        return f"{'dicts' if several else 'a dict'} of {_words(parts[1], True)}"
    if origin in (tuple, Sequence) and (len(parts) == 1 or parts[1] is ...):
        return f"{'lists' if several else 'a list'} of {_words(parts[0], True)}"
    if origin is tuple:
        alike = f"{len(parts)} {_words(parts[0], True)}"
        each = alike if len({*parts}) == 1 else " and ".join(map(_words, parts))
        return f"{'tuples' if several else 'a tuple'} of {each}"
    # a Struct is one of the engine's classes, not of this interface
    name = hint.__name__ + (f" of {hint.__module__}" if issubclass(hint, Struct) else "")
    return name if several else f"a {name}"


def _listed(words: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _found(value: object, misfit: _Misfit) -> str:
    """The given value, for the end of a sentence."""
    whole = misfit.value is value or _plain(value) is not value
    return _shown(misfit.value) if whole else f"{_shown(value)} with {_shown(misfit.value)} in it"


def _shown(value: object) -> str:
    """A value for a message; an object only by its type, since its text may be long or wait for the engine."""
    if isinstance(value, int) and not -LARGEST < value < LARGEST:
        return "one that large"
    if value is None or type(value) in (bool, int, float, str, bytes):
        shown = repr(value)
        return shown if len(shown) <= 60 else f"{shown[:57]}..."
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"
