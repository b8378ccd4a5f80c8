"""What is decoded when it is first looked at: 50,000 steps have a million candidates, a screen shows twenty.

A waiting object is of a class like its own, with the same slots; it holds where its values are, and becomes an
instance of its own class when one of them is asked for. From then on it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from engine.records import Candidate, Distribution, KVReading, Memory, PromptToken
from engine.trace_shapes import columns


class Source(Protocol):
    """The end of a line, which is decoded later."""

    def take(self, cls: type, place: int) -> Any:
        """What stands in a place. It never raises, since it is called while a screen draws."""


@dataclass(slots=True, eq=False)
class Held:
    """Stands in a slot whose value waits."""

    source: Source
    cls: type
    place: int


_FILL: dict[type, Callable[[Any], None]] = {}
"""What turns an instance of a waiting class into one that waits for less."""


def settle(value: Any) -> None:
    """Decode all that waits in an object itself."""
    while (fill := _FILL.get(type(value))) is not None:
        fill(value)


def _slots(cls: type) -> list[Any]:
    """What gets and sets each field of an instance, frozen or not."""
    return [getattr(cls, column.name) for column in columns(cls)]


def _become(value: Any, cls: type) -> None:
    object.__setattr__(value, "__class__", cls)


def _whole(cls: type) -> type:
    """A class like `cls` whose instances hold `Held` in their first slot, and nothing else."""
    first, *others = _slots(cls)

    def fill(self: Any) -> None:
        held = first.__get__(self)
        made = held.source.take(held.cls, held.place)
        for slot in (*others, first):
            slot.__set__(self, slot.__get__(made))
        _become(self, type(made))

    def missing(self: Any, name: str) -> Any:
        fill(self)
        return getattr(self, name)

    def get(self: Any) -> Any:
        fill(self)
        return first.__get__(self)

    return _like(cls, fill, {columns(cls)[0].name: property(get, first.__set__), "__getattr__": missing})


def _without_candidates(cls: type) -> type:
    """A class like `cls` whose instances have `Held` in the place of their candidates."""
    slot: Any = cls.candidates  # type: ignore[attr-defined]

    def fill(self: Any) -> None:
        held = slot.__get__(self)
        if type(held) is Held:
            slot.__set__(self, held.source.take(held.cls, held.place))
        _become(self, cls)

    def get(self: Any) -> Any:
        fill(self)
        return slot.__get__(self)

    return _like(cls, fill, {"candidates": property(get, slot.__set__)})


def _like(cls: type, fill: Callable[[Any], None], members: dict[str, Any]) -> type:
    """A class with the name, the fields and the comparison of another one."""

    def same(self: Any, other: object) -> Any:
        settle(self)
        settle(other)
        return cls.__eq__(self, other)  # type: ignore[call-arg]

    def hashed(self: Any) -> int:
        settle(self)
        return hash(self)

    made = type(cls.__name__, (cls,), {"__slots__": (), "__eq__": same, "__hash__": hashed, **members})
    _FILL[made] = fill
    return made


WITHOUT_CANDIDATES: dict[type, type] = {cls: _without_candidates(cls) for cls in (Distribution, PromptToken)}
_WHOLE: dict[type, type] = {cls: _whole(cls) for cls in (Distribution, KVReading, Memory)}
_FIRST: dict[type, Callable[[Any, Any], None]] = {cls: _slots(cls)[0].__set__ for cls in _WHOLE}


def waiting(source: Source, cls: type, place: int) -> Any:
    """A distribution, KV reading or memory that is decoded when one of its fields is asked for."""
    made: Any = object.__new__(_WHOLE[cls])
    _FIRST[cls](made, Held(source, cls, place))
    return made


def waiting_candidates(source: Source, place: int) -> Any:
    """Stands for candidates in the row of a class of `WITHOUT_CANDIDATES`."""
    return Held(source, Candidate, place)
