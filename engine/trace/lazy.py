"""Lazy decoding: 50,000 steps have a million candidates, a screen shows twenty.

A waiting object has a subclass of its own class, with the same slots; it holds the place of its values, and becomes an
instance of its own class when one of them is read. From then on it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Protocol

from engine.protocol import Candidate, Distribution, KVReading, PromptToken
from engine.trace.shapes import columns


class Source(Protocol):
    """The end of a line, which is decoded later."""

    def take(self, cls: type, place: int) -> Any:
        """The value in a place. It never raises, since it is called while a screen draws."""


@dataclass(slots=True, eq=False)
class Held:
    """The value of a slot that is decoded later."""

    source: Source
    cls: type
    place: int


_LOCK = RLock()
"""One thread at a time turns a waiting object into another: a trace may be saved while a screen draws it."""
_FILL: dict[type, Callable[[Any], None]] = {}
"""By waiting class, the function that decodes an instance in place, at least in part."""


def settle(value: Any) -> None:
    """Decode all waiting fields of an object."""
    while type(value) in _FILL:
        _fill(value)


def _fill(value: Any) -> None:
    with _LOCK:
        decode = _FILL.get(type(value))
        if decode is not None:
            decode(value)


def _slots(cls: type) -> list[Any]:
    """The slot descriptors of a class, which get and set fields even of frozen instances."""
    return [getattr(cls, column.name) for column in columns(cls)]


def _become(value: Any, cls: type) -> None:
    object.__setattr__(value, "__class__", cls)


def _whole(cls: type) -> type:
    """A class like `cls` whose instances hold `Held` in one slot, and in others at most the fields of `PRESENT`."""
    hidden = _HIDDEN[cls]
    slot: Any = getattr(cls, hidden)

    def decode(self: Any) -> None:
        held = slot.__get__(self)
        made = held.source.take(held.cls, held.place)
        for field in _slots(cls):
            field.__set__(self, field.__get__(made))
        _become(self, type(made))

    def missing(self: Any, name: str) -> Any:
        _fill(self)
        return getattr(self, name)

    def get(self: Any) -> Any:
        _fill(self)
        return getattr(self, hidden)

    return _like(cls, decode, {hidden: property(get, slot.__set__), "__getattr__": missing})


def _without_candidates(cls: type) -> type:
    """A class like `cls` whose instances have `Held` instead of their candidates."""
    slot: Any = cls.candidates  # type: ignore[attr-defined]

    def decode(self: Any) -> None:
        held = slot.__get__(self)
        if type(held) is Held:
            slot.__set__(self, held.source.take(held.cls, held.place))
        _become(self, cls)

    def get(self: Any) -> Any:
        _fill(self)
        return slot.__get__(self)

    return _like(cls, decode, {"candidates": property(get, slot.__set__)})


def _like(cls: type, decode: Callable[[Any], None], members: dict[str, Any]) -> type:
    """A class with the name, the fields and the comparison of another one."""

    def same(self: Any, other: object) -> Any:
        settle(self)
        settle(other)
        return cls.__eq__(self, other)  # type: ignore[call-arg]

    def hashed(self: Any) -> int:
        settle(self)
        return hash(self)

    made = type(cls.__name__, (cls,), {"__slots__": (), "__eq__": same, "__hash__": hashed, **members})
    _FILL[made] = decode
    return made


WITHOUT_CANDIDATES: dict[type, type] = {cls: _without_candidates(cls) for cls in (Distribution, PromptToken)}
_HIDDEN = {Distribution: "candidates", KVReading: "groups"}
"""The field of each class whose slot holds `Held`."""
PRESENT: dict[type, tuple[str, ...]] = {Distribution: ("node", "entropy_bits", "picked", "reroll")}
"""Fields that are known before the rest is decoded: those that every step needs at once."""
_MAKE = {
    cls: (
        _whole(cls),
        getattr(cls, hidden).__set__,
        [getattr(cls, name).__set__ for name in PRESENT.get(cls, ())],
    )
    for cls, hidden in _HIDDEN.items()
}


def waiting(source: Source, cls: type, place: int, present: Sequence[Any] = ()) -> Any:
    """A distribution or KV reading that is decoded when one of its fields is read.

    Args:
        source: Where it waits.
        cls: Its class.
        place: Its place there.
        present: Values of the fields in `PRESENT`.
    """
    lazy, hide, put = _MAKE[cls]
    made: Any = object.__new__(lazy)
    hide(made, Held(source, cls, place))
    for set_field, value in zip(put, present, strict=True):
        set_field(made, value)
    return made


def waiting_candidates(source: Source, place: int) -> Any:
    """The value that replaces candidates in the row of a class of `WITHOUT_CANDIDATES`."""
    return Held(source, Candidate, place)
