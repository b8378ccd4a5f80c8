"""From records to the lines of a trace: an instance is a row of its fields, in the order of its class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from engine.errors import TraceError
from engine.protocol import Candidate, Runs
from engine.trace import candidates
from engine.trace.lines import END, MAGIC, VERSION, Entry, Fields, Unknown, sealed, split
from engine.trace.schema import (
    CANDIDATES,
    PARTS,
    REFERRED,
    classes,
    columns,
    field_names,
    writer,
)
from engine.trace.values import Write, built, excess, too_long, write_runs

_dump = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


class Encoder:
    """Encodes one trace. It refers to earlier lines, so that all its lines must be written, in order.

    Args:
        program: Name and version of the writing program.
        ends: Whether `end` will be called.
    """

    def __init__(self, program: str, ends: bool = False) -> None:
        self._program, self._ends = program, ends
        self.size = self.lines = self.built = 0
        """Of the trace so far: bytes, lines, and bytes of memory that a reader takes."""
        self._rows: dict[type, Write] = {}
        self._written: dict[type, dict[int, Any]] = {}
        """The records that were written last, by class and node: later lines refer to them."""
        self._parts: list[Any] = []
        self._columns: list[Any] = []
        """The end of the current line: parts, and candidates."""
        self._more: Mapping[int, Mapping[str, Any]] = {}
        self._fields: Fields = {}
        """Those of the latest header."""

    def header(self, fields: Fields | None = None) -> bytes:
        """A header line; nothing after it refers to anything before it.

        Args:
            fields: Those of each class; None for this version's.
        """
        self._fields = fields = field_names() if fields is None else fields
        self._written.clear()
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
            TraceError: It holds a number that JSON can't have, or would make the trace too long to be read.
        """
        fields = entry.value.fields if isinstance(entry.value, Unknown) else field_names()
        before = self.header(fields) if fields != self._fields else b""
        try:
            line = sealed(_bytes(self._line(entry)))
        except ValueError as error:
            kind = type(entry.value).__name__
            raise TraceError(
                f"{kind} can't be written to a trace: {error}.",
                "Begin another session; if this comes back, please report it.",
            ) from error
        waits = not entry.more and not isinstance(entry.value, Unknown)
        self._bound(type(entry.value).__name__, line, split(line)[0] if waits else line)
        return before + line

    def _bound(self, kind: str, line: bytes, at_once: bytes) -> None:
        """Count a line, and refuse it where it would make a trace that can't be read.

        Args:
            kind: Of the line.
            line: With its end.
            at_once: What of it a reader builds at once.
        """
        self.size, self.lines, self.built = self.size + len(line), self.lines + 1, self.built + built(at_once)
        if too_much := excess(line):
            raise TraceError(f"{kind} can't be saved: its line {too_much}.", "Record fewer candidates.")
        if too_much := too_long(self.size, self.lines, self.built):
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
        # Fields that this version doesn't know can't be deferred: such a line is read at once, from front to end.
        return _dump({**ends, **content} if entry.more else {**content, **ends})[:-1]

    # ---- rows -------------------------------------------------------------------------------

    def _row(self, cls: type) -> Write:
        if cls not in self._rows:
            self._rows[cls] = self._build_row(cls)
        return self._rows[cls]

    def _build_row(self, cls: type) -> Write:
        """The function from an instance to a row: fields that are JSON already are not converted."""
        fields = columns(cls)
        get = attrgetter(*(column.name for column in fields))
        writes = [
            (place, write)
            for place, column in enumerate(fields)
            if (write := writer(column.hint, self._own)) is not None
        ]
        single = len(fields) == 1

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
        """Write the place of a row among the line's parts, with the fields that are needed before it is decoded."""
        names = PARTS[cls]

        def place(value: Any) -> list[Any]:
            self._parts.append(row(value))
            return [len(self._parts) - 1, *(getattr(value, name) for name in names)]

        return place

    def _referring(self, cls: type, row: Write) -> Write:
        """Write the node's number instead of an instance that an earlier line has."""

        def refer(value: Any) -> Any:
            written = self._written.setdefault(cls, {})
            before = written.get(value.node)
            if before is value or before == value:
                return value.node
            written[value.node] = value
            return row(value)

        return refer

    def _own(self, hint: Any) -> Write | None:
        """The writer of a type for which traces have a special form, else None."""
        if hint == CANDIDATES:
            return self._candidates
        if hint == Runs:
            return write_runs
        return self._row(hint) if hint in classes().values() else None

    def _candidates(self, values: tuple[Candidate, ...]) -> int | None:
        """Put candidates at the end of the line; returns their place there, None for no candidates."""
        if not values:
            return None
        written = candidates.write(values)
        if more := self._more.get(id(values)):
            written["more"] = more
        self._columns.append(written)
        return len(self._columns) - 1


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # only the content of an unknown kind can have halves of surrogate pairs
        return json.dumps(json.loads(text + "}"), separators=(",", ":"))[:-1].encode()
