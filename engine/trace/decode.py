"""From the lines of a trace to entries: every value is checked, and what isn't needed at once is decoded later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import TraceError
from engine.protocol import Candidate
from engine.trace.bounds import too_deep
from engine.trace.entry import Entry, Header, Unknown
from engine.trace.fields import FieldRows, in_range
from engine.trace.lines import Rest, first, split, unsealed, whole
from engine.trace.shapes import KINDS, Misfit, blank, field_names
from engine.trace.values import brief, read_float, read_list

ENDS = ("parts", "candidates")


class Decoder:
    """Reads the lines under one header.

    Args:
        header: The header.
        report: Receives the errors of parts that are decoded later: those of lines with a right checksum and wrong
            content.
        spend: Told what is about to be built; raises `TraceError` where that is too much.
    """

    def __init__(
        self,
        header: Header,
        report: Callable[[TraceError], None],
        spend: Callable[[bytes], None] = lambda content: None,
    ) -> None:
        self._fields = header.fields
        self._report, self._spend = report, spend
        self._rows = FieldRows(header.fields)
        self._later = FieldRows(header.fields)
        """Decodes the deferred parts, at any time: `_rows` may be at another line then."""
        self._may_wait = all(
            set(header.fields.get(name, ())) <= set(own) for name, own in field_names().items()
        )
        """Fields that this version doesn't know must be collected when the line is read."""

    def entry(self, line: bytes, number: int) -> Entry:
        """The entry of a line.

        Args:
            line: Its bytes.
            number: Its place in the file, from 1.

        Raises:
            Misfit: Its content is wrong.
        """
        content = self._parsed(line, number)
        at = read_float(content.pop("at", 0.0))
        if at < 0:
            raise Misfit(f"must not have a time below 0, as {at} is")
        kinds = [name for name in content if name[:1].isupper()]
        if len(kinds) != 1:
            raise Misfit(f"must be of one kind, not {', '.join(map(brief, kinds)) or 'of none'}")
        cls = KINDS.get(kinds[0])
        if cls is None:
            if too_deep(content):
                raise Misfit("is nested too deep")
            return Entry(Unknown(kinds[0], content | self._rows.rest.all(), self._fields), at)
        return self._entry(cls, content, at)

    def forget(self) -> None:
        """Drop everything that later lines could refer to: there are none."""
        self._rows.forget()

    def _entry(self, cls: type, content: dict[str, Any], at: float) -> Entry:
        more = self._rows.more = []
        value = self._rows.row(cls)(content.pop(cls.__name__))
        in_range(value)
        if content:
            more.append((None, content))
        if more and too_deep([names for _, names in more]):
            raise Misfit("is nested too deep")
        return Entry(value, at, tuple(more))

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        """The line's JSON, with its end deferred where that is possible."""
        unread, sealed = unsealed(line)
        parsed = self._split(unread, number) if sealed and self._may_wait else None
        if parsed is None:
            self._spend(unread)
            parsed = whole(unread)
            parts, candidates = (list(read_list(parsed.pop(name, []))) for name in ENDS)
            self._rows.rest = Rest(number, parts, candidates, self._decode_deferred)
        return parsed

    def _split(self, content: bytes, number: int) -> dict[str, Any] | None:
        """A line's JSON without its end; None where the end is in another place, or the kind isn't known."""
        self._spend(first(content))
        try:
            head, parts, candidates = split(content)
        except Misfit:
            return None
        if KINDS.keys().isdisjoint(head) or not head.keys().isdisjoint(ENDS):
            return None
        self._rows.rest = Rest(number, parts, candidates, self._decode_deferred)
        return head

    def _decode_deferred(self, rest: Rest, cls: type, place: int) -> Any:
        """A deferred part at the end of a line; a blank one, and a report, where it doesn't fit."""
        self._later.rest, self._later.more = rest, []
        try:
            return self._later.take(cls, place)
        except Misfit as error:
            message = f"Line {rest.line} {error}."
            self._report(TraceError(message, "What it should tell is left out.", rest.line))
            return () if cls is Candidate else blank(cls)
