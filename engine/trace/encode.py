"""From records to the lines of a trace: each class a row of its fields, as its definition has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from engine.errors import TraceError
from engine.records import Candidate, Distribution, KVGroup, KVReading, PromptToken
from engine.trace import candidates, layers
from engine.trace.bounds import excess, too_long
from engine.trace.entry import END, MAGIC, VERSION, Entry, Fields, Unknown
from engine.trace.forms import Write, writer
from engine.trace.lazy import PRESENT
from engine.trace.lines import sealed
from engine.trace.shapes import CLASSES, KINDS, FieldColumn, Kept, columns

FIELDS: Fields = {name: [column.name for column in columns(cls)] for name, cls in CLASSES.items()}
"""Of this version."""
REFERRED = (Distribution, PromptToken)
"""What a later line refers to by its node rather than telling it again."""
PARTS = (Distribution, KVReading)
"""What stands at the end of its line, so that it need not be read before it is looked at."""
_dump = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


class Encoder:
    """Writes one trace. It remembers what was told, so that each line must be written, in order.

    Args:
        program: Name and version of what writes.
        ends: Whether `end` will be called.
    """

    def __init__(self, program: str, ends: bool = False) -> None:
        self._program, self._ends = program, ends
        self.size = self.lines = 0
        """Of the trace so far, in bytes and in lines."""
        self._rows: dict[type, Write] = {}
        self._told: dict[tuple[type, int], Any] = {}
        self._parts: list[Any] = []
        self._columns: list[Any] = []
        """What stands at the end of the line that is being written: parts, and candidates."""
        self._more: Mapping[int, Mapping[str, Any]] = {}
        self._fields: Fields = {}
        """Those of the header that the next line stands under."""

    def header(self, fields: Fields = FIELDS) -> bytes:
        """A header line; nothing after it refers to anything before it."""
        self._fields = fields
        self._told.clear()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        head = {
            MAGIC: VERSION,
            "program": self._program,
            "created": now,
            "ends": self._ends,
            "fields": fields,
        }
        line = sealed(_bytes(_dump(head)[:-1]))
        self.size, self.lines = self.size + len(line), self.lines + 1
        return line

    def end(self) -> bytes:
        """The last line of a file that is written whole."""
        return sealed(_bytes(_dump({END: self.lines})[:-1]))

    def entry(self, entry: Entry) -> bytes:
        """The line of an entry, after a header line where it needs another.

        Raises:
            TraceError: It holds a number that is none, or would make a trace that is too long to be read.
        """
        fields = entry.value.fields if isinstance(entry.value, Unknown) else FIELDS
        before = self.header(fields) if fields != self._fields else b""
        try:
            line = sealed(_bytes(self._line(entry)))
        except ValueError as error:
            kind = type(entry.value).__name__
            raise TraceError(
                f"{kind} can't be written to a trace: {error}.",
                "Begin another session; if this comes back, please report it.",
            ) from error
        self._bound(type(entry.value).__name__, line)
        return before + line

    def _bound(self, kind: str, line: bytes) -> None:
        """Count a line, and refuse it where it would make a trace that can't be read."""
        self.size, self.lines = self.size + len(line), self.lines + 1
        if too_much := excess(line):
            raise TraceError(f"{kind} can't be saved: its line {too_much}.", "Record fewer candidates.")
        if too_much := too_long(self.size, self.lines):
            raise TraceError(f"The session {too_much}.", "Begin another one.")

    def _line(self, entry: Entry) -> str:
        """The line's JSON without its last brace."""
        at, self._parts, self._columns = round(entry.at, 3), [], []
        if isinstance(entry.value, Unknown):
            return _dump({**entry.value.content, "at": at})[:-1]
        self._more = {id(owner): names for owner, names in entry.more}
        kind = type(entry.value)
        content = {kind.__name__: self._row(kind)(entry.value), "at": at, **self._more.get(id(None), {})}
        rest = {"parts": self._parts, "candidates": self._columns}
        ends = {name: values for name, values in rest.items() if values}
        # What this version doesn't know must not wait to be found: such a line is read at once, from front to end.
        return _dump({**ends, **content} if entry.more else {**content, **ends})[:-1]

    # ---- rows -------------------------------------------------------------------------------

    def _row(self, cls: type) -> Write:
        if cls not in self._rows:
            self._rows[cls] = self._made(cls)
        return self._rows[cls]

    def _made(self, cls: type) -> Write:
        """What makes a row of an instance: fields as JSON has them are taken as they are."""
        found = columns(cls)
        get = attrgetter(*(column.name for column in found))
        writes = [
            (place, write)
            for place, column in enumerate(found)
            if (write := self._column(cls, column)) is not None
        ]
        single = len(found) == 1

        def row(value: Any) -> Any:
            made = [get(value)] if single else list(get(value))
            for place, write in writes:
                made[place] = write(made[place])
            if self._more and (more := self._more.get(id(value))):
                made.append(more)
            return made

        made = self._part(cls, row) if cls in PARTS else row
        return self._referring(cls, made) if cls in REFERRED else made

    def _part(self, cls: type, row: Write) -> Write:
        """The place of a row among the line's parts; with the fields that are wanted before it is read."""
        names = PRESENT.get(cls, ())

        def place(value: Any) -> list[Any]:
            self._parts.append(row(value))
            return [len(self._parts) - 1, *(getattr(value, name) for name in names)]

        return place

    def _referring(self, cls: type, row: Write) -> Write:
        """A node's number in the place of what was told of it already."""

        def refer(value: Any) -> Any:
            told = self._told.get((cls, value.node))
            if told is value or told == value:
                return value.node
            self._told[cls, value.node] = value
            return row(value)

        return refer

    def _column(self, cls: type, column: FieldColumn) -> Write | None:
        """What turns a field's value into JSON, None where it is JSON already."""
        if (cls, column.name) == (KVGroup, "layers"):
            return layers.write
        return writer(column.hint, column.endless, self._own)

    def _own(self, hint: Any) -> Write | None:
        """What writes the types that a trace has a form of its own for."""
        if hint == tuple[Candidate, ...]:
            return self._candidates
        return self._row(hint) if hint in CLASSES.values() else None

    def _candidates(self, found: tuple[Candidate, ...]) -> int | None:
        """Put candidates at the end of the line; their place there stands for them. None for none."""
        if not found:
            return None
        made = candidates.write(found)
        if more := self._more.get(id(found)):
            made["more"] = more
        self._columns.append(made)
        return len(self._columns) - 1


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # only what an unknown kind holds can have halves of surrogate pairs
        return json.dumps(json.loads(text + "}"), separators=(",", ":"))[:-1].encode()


def kept(value: Any) -> Kept:
    """A value that has a line of its own.

    Raises:
        TypeError: It has none.
    """
    if not any(isinstance(value, cls) for cls in KINDS.values()):
        raise TypeError(f"{type(value).__name__} has no place in a trace")
    return value  # type: ignore[no-any-return]
