"""Frozen classes are what `dataclass(frozen=True, slots=True)` makes, and write no method before the first instance."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from dataclasses import (
    FrozenInstanceError,
    asdict,
    astuple,
    dataclass,
    field,
    fields,
    is_dataclass,
    replace,
)
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import frozen as module
from engine.frozen import frozen, slotted


def both(make: Callable[[Any], type]) -> tuple[type, type]:
    """One class made by each decorator."""
    return make(frozen), make(dataclass(frozen=True, slots=True))


def point(decorator: Any) -> type:
    @decorator
    class Point:
        """A point."""

        KIND: ClassVar[str] = "point"
        x: int
        y: float = 0.5
        name: str = field(default="", compare=False)
        tags: list[str] = field(default_factory=list, hash=False)
        hidden: int = field(default=3, repr=False)
        made: int = field(init=False, default=7)
        last: int = field(default=1, kw_only=True, metadata={"traced": False})

    return Point


def checked(decorator: Any) -> type:
    @decorator
    class Checked:
        """Refuses negative values, and works out another field."""

        value: int
        double: int = field(init=False)

        def __post_init__(self) -> None:
            if self.value < 0:
                raise ValueError("negative")
            object.__setattr__(self, "double", 2 * self.value)

    return Checked


def derived(decorator: Any) -> type:
    @decorator
    class Base:
        """A base."""

        x: int = 1

        def said(self) -> str:
            return f"{self.x}"

    @decorator
    class Derived(Base):
        """Derived."""

        y: int = 2

    return Derived


def own(decorator: Any) -> type:
    @decorator
    class Own:
        """Has methods of its own."""

        x: int = 1

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    return Own


values = st.fixed_dictionaries(
    {"x": st.integers()},
    optional={
        "y": st.floats(allow_nan=False),
        "name": st.text(max_size=3),
        "tags": st.lists(st.text(max_size=2), max_size=2),
        "hidden": st.integers(0, 2),
        "last": st.integers(0, 2),
    },
)


@given(values, values)
def test_instances_are_those_of_a_dataclass(first: dict[str, Any], second: dict[str, Any]) -> None:
    (one, other), (plain, plain_other) = ([cls(**first), cls(**second)] for cls in both(point))
    assert repr(one).split(".")[-1] == repr(plain).split(".")[-1]
    assert (one == other) is (plain == plain_other)
    assert (one == one, one == plain, one != other) == (True, False, plain != plain_other)
    assert hash(one) == hash(plain)
    assert asdict(one) == asdict(plain)
    assert astuple(one) == astuple(plain)
    assert asdict(replace(one, x=4, last=9)) == asdict(replace(plain, x=4, last=9))
    assert copy.copy(one) == one
    assert copy.deepcopy([one])[0] is one  # nothing in it changes


@pytest.mark.parametrize("make", [point, checked, derived, own])
def test_a_class_tells_of_itself_what_a_dataclass_does(make: Callable[[Any], type]) -> None:
    one, plain = both(make)
    names = ("name", "type", "default", "init", "repr", "compare", "hash", "kw_only")
    told = [
        [(dict(each.metadata), *(getattr(each, name) for name in names)) for each in fields(cls)]
        for cls in (one, plain)
    ]
    assert told[0] == told[1]
    assert is_dataclass(one)
    assert one.__match_args__ == plain.__match_args__  # type: ignore[attr-defined]
    assert one.__slots__ == plain.__slots__  # type: ignore[attr-defined]
    assert one.__doc__ == plain.__doc__
    assert not hasattr(one.__new__(one), "__dict__")


def test_a_match_takes_it_apart() -> None:
    made = point(frozen)
    match made(3, 4.0):
        case made(x, y):
            assert (x, y) == (3, 4.0)
        case _:
            pytest.fail("it has no places")


@pytest.mark.parametrize("given", [(), (1, 2, 3, 4, 5, 6, 7)])
def test_wrong_arguments_are_refused_in_the_same_words(given: tuple[int, ...]) -> None:
    told = []
    for cls in both(point):
        for _ in range(2):  # the first time it is compiled
            with pytest.raises(TypeError) as refused:
                cls(*given)
            told.append(str(refused.value).split(".")[-1])
    assert len(set(told)) == 1


def test_what_follows_the_fields_runs() -> None:
    made = checked(frozen)
    assert made(4).double == 8
    with pytest.raises(ValueError, match="negative"):
        made(-1)
    with pytest.raises(ValueError, match="negative"):
        checked(frozen)(-1)


def test_nothing_of_it_can_be_changed() -> None:
    made = point(frozen)(1)
    for change in (
        lambda: setattr(made, "x", 2),
        lambda: setattr(made, "other", 2),
        lambda: delattr(made, "x"),
    ):
        with pytest.raises(FrozenInstanceError, match="cannot"):
            change()
    assert made.x == 1


def test_a_derived_class_has_the_fields_of_both() -> None:
    made = derived(frozen)
    assert repr(made(3, 4)).endswith("Derived(x=3, y=4)")
    assert made(3, 4).said() == "3"
    base = made.__mro__[1]
    assert base(5) == base(5) != made(5)
    assert (made(5), made(5)) == (made(5, 2), made(x=5))


def test_a_base_that_is_used_first_leaves_the_derived_class_its_own() -> None:
    made = derived(frozen)
    assert made.__mro__[1](9).x == 9
    assert made(1, 2).y == 2


def test_its_own_methods_stay() -> None:
    made = own(frozen)
    assert (repr(made()), made(1) == made(2), hash(made())) == ("mine", True, 5)


@pytest.mark.parametrize("use", [repr, hash, lambda one: one == one, copy.copy])
def test_a_method_can_be_the_first_that_is_needed(use: Callable[[Any], object]) -> None:
    """As of an instance that was read from a pickle."""
    made = point(frozen)
    bare = made.__new__(made)
    bare.__setstate__([1, 2.0, "", (), 3, 7, 5])
    assert use(bare) is not None
    assert bare == made(1, 2.0, "", (), 3, last=5)


def test_nothing_is_compiled_before_the_first_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setitem(
        module._MAKERS, "__init__", lambda cls: written.append(cls.__name__) or module._init(cls)
    )
    made, plain = point(frozen), point(slotted)
    fields(made), fields(plain)
    assert written == []
    made(1), made(2), hash(made(3)), repr(made(4))
    plain(1), plain(2)
    assert written == ["Point", "Point"]


def test_two_threads_may_make_the_first_at_once() -> None:
    for _ in range(20):
        made = point(frozen)
        start, found = threading.Barrier(4), []

        def use(made: type = made, start: threading.Barrier = start, found: list[Any] = found) -> None:
            start.wait()
            found.append(made(1))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [made(1)] * 4


@pytest.mark.parametrize("decorator", [frozen, slotted])
def test_a_plain_subclass_may_call_the_method_of_its_base(decorator: Any) -> None:
    base = point(decorator)

    class Named(base):  # type: ignore[misc, valid-type]
        def __init__(self, x: int) -> None:
            super().__init__(x, name="own")

    assert (Named(2).x, Named(3).name) == (2, "own")


def test_nothing_of_a_class_is_looked_up_before_it_is_asked_for() -> None:
    made = point(frozen)
    waits = vars(made)["__dataclass_fields__"]
    assert not isinstance(waits, dict)
    assert [each.name for each in fields(made)][:2] == ["x", "y"]
    assert isinstance(vars(made)["__dataclass_fields__"], dict)
    assert made.__match_args__ == ("x", "y", "name", "tags", "hidden")


@frozen
class Pickled:
    """One that a module has, as pickle needs it."""

    x: int
    parts: tuple[int, ...] = ()


def test_it_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pickled(3, (1, 2)))) == Pickled(3, (1, 2))


# ---- those that can be changed ------------------------------------------------------------------


@slotted
class Slots:
    """A list that grows."""

    size: int
    parts: list[int] = field(default_factory=list)
    last: int = field(default=0, compare=False, kw_only=True)


def test_a_slotted_class_is_what_a_dataclass_with_slots_is() -> None:
    plain = dataclass(slots=True)(type("Slots", (), dict(vars(Changed))))
    for cls in (Slots, plain):
        one, other = cls(1, [2], last=3), cls(1)
        assert one != other
        other.parts.append(2)
        assert one == other
        one.size = 4
        assert repr(one).split(".")[-1] == "Slots(size=4, parts=[2], last=3)"
        assert cls.__hash__ is None
        assert (cls.__slots__, cls.__match_args__) == (("size", "parts", "last"), ("size", "parts"))
        assert replace(one, size=5) == cls(5, [2])
        with pytest.raises(AttributeError):
            one.other = 1
    assert pickle.loads(pickle.dumps(Slots(3, [1]))) == Slots(3, [1])


class Changed:
    """The same fields."""

    size: int
    parts: list[int] = field(default_factory=list)
    last: int = field(default=0, compare=False, kw_only=True)
