"""From the lines of a trace to entries: each value is checked, and what isn't needed at once is decoded later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import TraceError
from engine.records import Candidate
from engine.trace.encode import FIELDS
from engine.trace.entry import Entry, Header, Unknown
from engine.trace.fields import FieldRows, in_range
from engine.trace.lines import Rest, split, unsealed, whole
from engine.trace.shapes import KINDS, Misfit, blank
from engine.trace.values import brief, read_float, read_list

ENDS = ("parts", "candidates")


class Decoder:
    """Reads the lines that stand under one header.

    Args:
        header: The header.
        report: Is told where what was left for later turns out not to fit; only a line whose checksum is right, and
            that yet isn't what it should be, can be so.
    """

    def __init__(self, header: Header, report: Callable[[TraceError], None]) -> None:
        self._fields = header.fields
        self._report = report
        self._rows = FieldRows(header.fields)
        self._later = FieldRows(header.fields)
        """Read what waited, at any time: the others may be at another line then."""
        self._may_wait = all(set(header.fields.get(name, ())) <= set(own) for name, own in FIELDS.items())
        """What this version doesn't know must be found when the line is read."""

    def entry(self, line: bytes, number: int) -> Entry:
        """What a line holds.

        Args:
            line: Its bytes.
            number: Its place in the file, from 1.

        Raises:
            Misfit: It isn't what it should be.
        """
        found = self._parsed(line, number)
        at = read_float(found.pop("at", 0.0))
        if at < 0:
            raise Misfit(f"must not have a time below 0, as {at} is")
        kinds = [name for name in found if name[:1].isupper()]
        if len(kinds) != 1:
            raise Misfit(f"must be of one kind, not {', '.join(map(brief, kinds)) or 'of none'}")
        cls = KINDS.get(kinds[0])
        if cls is None:
            return Entry(Unknown(kinds[0], found | self._rows.rest.all(), self._fields), at)
        return self._entry(cls, found, at)

    def forget(self) -> None:
        """No more lines come: let go of what they might have referred to."""
        self._rows.forget()

    def _entry(self, cls: type, found: dict[str, Any], at: float) -> Entry:
        more = self._rows.more = []
        value = self._rows.row(cls)(found.pop(cls.__name__))
        in_range(value)
        if found:
            more.append((None, found))
        return Entry(value, at, tuple(more))

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        """The line's JSON, its end left for later where nothing speaks against it."""
        content, sealed = unsealed(line)
        found = self._begun(content, number) if sealed and self._may_wait else None
        if found is None:
            found = whole(content)
            parts, candidates = (list(read_list(found.pop(name, []))) for name in ENDS)
            self._rows.rest = Rest(number, parts, candidates, self._waited)
        return found

    def _begun(self, content: bytes, number: int) -> dict[str, Any] | None:
        """A line's JSON without its end; None where that stands elsewhere, or the kind isn't known."""
        try:
            found, parts, candidates = split(content)
        except Misfit:
            return None
        if KINDS.keys().isdisjoint(found) or not found.keys().isdisjoint(ENDS):
            return None
        self._rows.rest = Rest(number, parts, candidates, self._waited)
        return found

    def _waited(self, rest: Rest, cls: type, place: int) -> Any:
        """What waited at the end of a line; nothing, and a report, where it doesn't fit."""
        self._later.rest, self._later.more = rest, []
        try:
            return self._later.taken(cls, place)
        except Misfit as error:
            message = f"Line {rest.line} {error}."
            self._report(TraceError(message, "What it should tell is left out.", rest.line))
            return () if cls is Candidate else blank(cls)
