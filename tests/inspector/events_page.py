"""The page of events, `inspector/help/events.md`, made from the types: what lines of JSON and recordings have.

`python -m tests.inspector.events_page` writes it anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct, inspect

from engine.protocol import RECORDS, Candidate, Candidates
from engine.recording.file import End, Header, LoadSettingsUsed, SettingsUsed
from inspector.cli.doctor import DoctorReport
from inspector.cli.writers.diff import DiffSummary
from inspector.cli.writers.generation import GenerationSummary
from inspector.cli.writers.json_lines import CheckFailed, FlagNotes
from inspector.cli.writers.sequences import BatchSummary
from inspector.cli.writers.tokens import ScoreSummary, TokenCounts
from inspector.served.listing import CheckedReply, ListedRequest

PAGE = Path("inspector/help/events.md")
OF_LINES = (
    FlagNotes, CheckFailed, GenerationSummary, BatchSummary, ScoreSummary, TokenCounts, DiffSummary, DoctorReport,
    ListedRequest, CheckedReply,
)  # fmt: skip
"""What `--jsonl` writes beside records and settings."""
PARTS: tuple[tuple[str, str, Sequence[type[Struct]]], ...] = (
    ("Of `--jsonl` alone", "Notes and figures, most of them in the last line.", OF_LINES),
    ("Of recordings alone", "The frames around all others.", (Header, End)),
    ("Of both: settings", "Each is in force from there on.", (LoadSettingsUsed, SettingsUsed)),
    ("Of both: records", "What the engine reports, and what you write onto the tree.", [*RECORDS.values()]),
)
BEGIN = """# Events

The events in the lines of [`--jsonl`](command-line.md) and in [recordings](recording-format.md): name, purpose and
fields of each, made from the program's own types. An event is an object whose field `event` is its name. Names such as
Candidate are those of the objects that the last section lists; *nothing* is `null`. In JSON, bytes are base64, and a
number that is infinite or not a number is `null`. Fields may be added in later versions: read them by name.
"""


def current() -> str:
    """The page as the types have it now."""
    return BEGIN + "\n".join(["", *_sections()])


def _sections() -> Iterator[str]:
    inside: dict[type[Any], None] = {}
    for title, about, kinds in PARTS:
        yield from (f"## {title}", "", about, "")
        for kind in kinds:
            yield from _entry(kind, _tag(kind))
            _collect(kind, inside)
    yield from ("## Objects inside events", "")
    for kind in sorted(inside, key=lambda each: each.__name__):
        yield from _entry(kind, kind.__name__)


def _entry(kind: type[Any], name: str) -> Iterator[str]:
    told = " ".join((kind.__doc__ or "").split())
    first = re.split(r"(?<=[.])\s", told)[0]
    runs = groupby(_fields(kind), key=lambda field: words(field.type))
    fields = "; ".join(f"{', '.join(f'`{each.encode_name}`' for each in run)}: {said}" for said, run in runs)
    yield from (f"**{name}.** {first}", "", f"{fields}." if fields else "It has no fields.", "")


def _fields(kind: type[Any]) -> tuple[inspect.Field, ...]:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return found.fields


def _tag(kind: type[Any]) -> str:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return str(found.tag)


def words(kind: inspect.Type) -> str:
    """A type in plain words: `list of whole numbers`."""
    match kind:
        case inspect.UnionType():
            named = [words(each) for each in kind.types if not isinstance(each, inspect.NoneType)]
            return " or ".join([*named, *(["nothing"] if kind.includes_none else [])])
        case inspect.LiteralType():
            return "one of " + ", ".join(f"`{each}`" for each in kind.values)
        case inspect.VarTupleType() | inspect.ListType() | inspect.CollectionType():
            return f"list of {_many(kind.item_type)}"
        case inspect.TupleType():
            return f"list of {' and '.join(words(each) for each in kind.item_types)}"
        case inspect.DictType():
            return f"object of {_many(kind.value_type)} by name"
        case inspect.StructType():
            return kind.cls.__name__
        case inspect.CustomType():
            assert kind.cls is Candidates
            return "list of Candidate"
        case _:
            return NAMES[type(kind)]


NAMES: dict[type[inspect.Type], str] = {
    inspect.IntType: "whole number", inspect.FloatType: "number", inspect.StrType: "text",
    inspect.BytesType: "bytes", inspect.BoolType: "true or false",
}  # fmt: skip


def _many(kind: inspect.Type) -> str:
    plural = {"whole number": "whole numbers", "number": "numbers", "text": "texts"}
    found = words(kind)
    return plural.get(found, f"({found})" if " or " in found or " and " in found else found)


def _collect(kind: type[Any], inside: dict[type[Any], None]) -> None:
    """The objects in the fields of an event, and in theirs."""
    for part in _parts(field.type for field in _fields(kind)):
        found = Candidate if isinstance(part, inspect.CustomType) else getattr(part, "cls", None)
        if found is not None and found not in inside and found.__name__ not in RECORDS:
            inside[found] = None
            _collect(found, inside)


def _parts(kinds: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    for kind in kinds:
        match kind:
            case inspect.UnionType():
                yield from _parts(kind.types)
            case inspect.VarTupleType() | inspect.ListType() | inspect.CollectionType():
                yield from _parts([kind.item_type])
            case inspect.TupleType():
                yield from _parts(kind.item_types)
            case inspect.DictType():
                yield from _parts([kind.value_type])
            case inspect.StructType() | inspect.CustomType():
                yield kind


if __name__ == "__main__":
    PAGE.write_text(current(), encoding="utf-8")
