"""Every kind of record and command made from its definition alone; and a session that hangs together."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from engine.protocol import Endless, Marked, Packed, Record, Runs, Signed
from engine.settings import FIELDS, LoadSettings, Settings
from engine.trace import Entry
from engine.trace.schema import KINDS, columns, items, optional, words
from engine.trace.values import INT_LIMIT
from tests.inspector import fakes

INTS = st.integers(0, 4) | st.integers(-1, INT_LIMIT - 1)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=6)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
FLOAT32 = st.floats(allow_nan=False, width=32)


def _of(hint: Any) -> st.SearchStrategy[Any]:
    hint, may_lack = optional(hint)
    found = _inner(hint)
    return st.none() | found if may_lack else found


def _inner(hint: Any) -> st.SearchStrategy[Any]:
    if hint == Runs:
        return st.lists(st.integers(0, 999), max_size=5).map(tuple)
    if (allowed := words(hint)) is not None:
        return st.sampled_from(allowed)
    if (parts := items(hint)) is not None:
        if parts[-1] is ...:
            return st.lists(_of(parts[0]), max_size=3).map(tuple)
        return st.tuples(*map(_of, parts))
    if is_dataclass(hint):
        return made(hint)
    return {
        int: INTS,
        Signed: INTS | st.integers(1 - INT_LIMIT, -1),
        float: FLOATS,
        Endless: FLOATS | FLOAT32 | st.sampled_from([float("inf"), float("-inf")]),
        str: TEXTS,
        bytes: st.binary(max_size=5),
        Packed: st.binary(max_size=5),
        bool: st.booleans(),
    }[hint]


def _setting(field: Any) -> st.SearchStrategy[Any]:
    match field.kind:
        case "float" if field.least > field.low:
            return st.just(float(field.low)) | st.floats(field.least, min(field.high, 100))
        case "float":
            return st.floats(max(field.low, -100), min(field.high, 100), exclude_min=field.low_open)
        case "int":
            return st.integers(int(field.low), int(field.high))
        case "texts":
            return st.lists(st.text(min_size=1, max_size=5), max_size=2).map(tuple)
        case "biases":
            return st.lists(st.tuples(st.integers(0, 9999), st.floats(-100, 100)), max_size=2).map(tuple)
    return st.sampled_from(list(field.choices.values()))


@cache
def made(cls: type, transient: bool = False) -> st.SearchStrategy[Any]:
    """Instances of the class of a record or command, or of one inside it; `transient` as in `columns`."""
    if cls is Settings:
        return st.builds(Settings, **{field.name: _setting(field) for field in FIELDS})
    if cls is LoadSettings:
        return st.builds(
            LoadSettings, model=TEXTS, kv_bits=st.sampled_from((None, 4, 8)), float32_scales=st.none()
        )
    return st.builds(cls, **{column.name: _of(column.hint) for column in columns(cls, transient)})


ANY = st.sampled_from(sorted(KINDS)).flatmap(lambda name: made(KINDS[name]))
"""Any record or settings."""


def session(steps: int = 12) -> list[Record | Settings | LoadSettings]:
    """Load, prompt, steps, a fork, a move, marks, settings and an end, as the engine and the screen tell them."""
    fake = fakes.Session()
    fake.load(fingerprint="00ff")
    fake.open()
    fake.steps(steps)
    fork = fake.records[-3].node  # type: ignore[union-attr]
    fake.choose(fork, fake.tips[fork].candidates[1].id)
    fake.steps(3)
    fake.move(fork)
    fake.step()
    fake.finish()
    before: list[Record | Settings | LoadSettings] = [
        LoadSettings(),
        Settings(temp=0.8, top_p=0.95, stop=("\n",)),
    ]
    after = [Marked(fork, "other", True, note="two\nlines"), replace(Settings(), seed=2**64 - 1)]
    return [*before, *fake.records, *after]


def entries(records: list[Any] | None = None) -> list[Entry]:
    """A session's records, a tenth of a second apart."""
    return [Entry(value, round(place / 10, 3)) for place, value in enumerate(records or session())]
