"""Every kind of record and command made from its types alone, and a session whose records belong together."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from hypothesis import strategies as st
from msgspec import inspect as types
from msgspec.structs import replace

from engine.errors import SettingsError
from engine.protocol import RECORDS, Candidate, Candidates, Marked, Step
from engine.recording import Entry, Kept
from engine.recording.file import FrameWriter
from engine.setting import Setting, SettingsStruct, check, settings_of
from engine.settings import LoadSettings, Settings
from tests.inspector import fakes

KINDS: dict[str, type] = {**RECORDS, "Settings": Settings, "LoadSettings": LoadSettings}
"""The classes of values that an entry may have, by the names that they have in a file."""
TEXTS = st.text(max_size=6) | st.sampled_from(["🦊" * 1000, "\0\x1b[31m\r\n\u2028", "e\u0301"])
BYTES = st.binary(max_size=5) | st.sampled_from([b"\xff\xfe", b"\xe2\x82", b"\xed\xa0\x80"])
REGEXES = st.sampled_from(["a", "[0-9]+", "x{2}", "é|b"])


def _of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type as msgspec describes it."""
    match kind:
        case types.StructType():
            return st.deferred(lambda: made(kind.cls))
        case types.UnionType():
            return st.one_of(*map(_of, kind.types))
        case types.VarTupleType():
            most = 3 if kind.max_length is None else min(3, kind.max_length)
            return st.lists(_of(kind.item_type), min_size=kind.min_length or 0, max_size=most).map(tuple)
        case types.TupleType():
            return st.tuples(*map(_of, kind.item_types))
        case types.LiteralType():
            return st.sampled_from(kind.values)
        case types.CustomType(cls=cls) if cls is Candidates:
            return st.lists(made(Candidate), max_size=3).map(Candidates)
        case types.IntType():
            step = kind.multiple_of or 1
            low = -(-(-(2**63) if kind.ge is None else kind.ge) // step)
            high, small = (2**64 - 1 if kind.le is None else kind.le) // step, max(low, -4)
            return (st.integers(small, min(high, small + 8)) | st.integers(low, high)).map(lambda n: n * step)
        case types.FloatType(ge=None, gt=None):
            return st.floats() | st.floats(width=32)
        case types.FloatType():
            least, above = (kind.ge, False) if kind.gt is None else (kind.gt, True)
            return st.floats(least, kind.le, exclude_min=above)
        case types.StrType():
            shortest = kind.min_length or 0
            return TEXTS.filter(lambda text: shortest <= len(text) <= (kind.max_length or len(text)))
        case types.BytesType():
            return BYTES
        case types.BoolType():
            return st.booleans()
        case types.NoneType():
            return st.none()
    raise TypeError(f"nothing is made of {kind}")


def _setting(setting: Setting, kind: Any) -> st.SearchStrategy[Any]:
    """Values of a setting, within its bounds."""
    if setting.choices:
        found: st.SearchStrategy[Any] = st.sampled_from(list(setting.choices.values()))
    elif setting.kind == "texts":
        found = st.lists(st.text(min_size=1, max_size=5), max_size=2).map(tuple)
    elif setting.kind == "biases":
        found = st.lists(st.tuples(st.integers(0, 9999), st.floats(-100, 100)), max_size=2).map(tuple)
    elif setting.form == "regex":
        found = REGEXES
    else:
        found = _of(kind)
    found = st.just(setting.default) | found
    return found.filter(lambda value: _in_range(setting.check, value))


def _in_range(check: Any, value: Any) -> bool:
    try:
        check(value)
    except SettingsError:
        return False
    return True


@cache
def made(cls: type) -> st.SearchStrategy[Any]:
    """Instances of the class of a record, of a command or of a value inside one; of settings those in range."""
    info = types.type_info(cls)
    assert isinstance(info, types.StructType)
    checked = issubclass(cls, SettingsStruct)
    settings = {each.name: each for each in settings_of(cls)} if checked else {}
    found = {
        field.name: _setting(settings[field.name], field.type) if field.name in settings else _of(field.type)
        for field in info.fields
    }
    instances = st.builds(cls, **found)
    return instances.filter(lambda each: _in_range(check, each)) if checked else instances


ANY = st.sampled_from(sorted(KINDS)).flatmap(lambda name: made(KINDS[name]))
"""Any value of an entry."""


def session(steps: int = 12) -> list[Kept]:
    """Load, prompt, steps, a branch, a move, marks, settings and an end, as the engine and the screen tell them."""
    fake = fakes.Session()
    fake.load(fingerprint="00ff")
    fake.open()
    fake.steps(steps)
    fork = next(record.node for record in fake.records[-3:] if isinstance(record, Step))
    fake.choose(fork, fake.tips[fork].candidates[1].id)
    fake.steps(3)
    fake.move(fork)
    fake.step()
    fake.finish()
    before: list[Kept] = [LoadSettings(), Settings(temp=0.8, top_p=0.95, stop=("\n",))]
    after: list[Kept] = [Marked(fork, "other", True, note="two\nlines"), replace(Settings(), seed=2**64 - 1)]
    return [*before, *fake.records, *after]


def entries() -> list[Entry]:
    """A session's entries, a tenth of a second apart."""
    return [Entry(value, round(place / 10, 3)) for place, value in enumerate(session())]


def frames(given: Iterable[Entry]) -> list[bytes]:
    """The frames of a running session's file, its header first."""
    writer = FrameWriter("test 1")
    return [writer.header(), *map(writer.entry, given)]
