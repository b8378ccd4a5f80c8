"""Beams and hypotheses as a list, best first: figures, state, and where their texts differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.message import Message

from engine.frozen import frozen
from inspector.display import pad
from inspector.tools.beams.entries import BeamEntry, passing
from inspector.tools.beams.excerpt import excerpt, pieces
from inspector.tools.beams.phrases import number, state_phrase
from inspector.widgets.canvas import Canvas, Row, centred
from inspector.widgets.charts import bar
from inspector.widgets.inks import panel_css

_MARK, _BAR = 2, 6


@frozen
class _Columns:
    """Cells of each column; 0 for one that there is no room for."""

    place: int
    score: int
    bar: int
    logprob: int
    tokens: int
    standing: int
    short: bool = False
    """Whether the state is given in one or two words."""


_WIDE = _Columns(4, 9, _BAR + 2, 10, 8, 32)
_NORMAL = _Columns(4, 9, 0, 10, 0, 24)
_NARROW = _Columns(3, 8, 0, 0, 0, 10)


def _fitting(width: int) -> _Columns:
    return _WIDE if width >= 100 else _NORMAL if width >= 70 else _NARROW


class BeamTable(Canvas):
    """What is listed after a step, with a cursor."""

    DEFAULT_CSS = panel_css("BeamTable")

    class BeamClicked(Message):
        """A beam was clicked."""

        def __init__(self, node: int) -> None:
            self.node = node
            super().__init__()

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.entries: Sequence[BeamEntry] = ()
        self.place = 0
        self._passing: Counter[int] = Counter()
        self._best = 0.0
        self._top = 0
        self._empty: Sequence[str] = ()

    def put(self, entries: Sequence[BeamEntry], place: int, title: str, note: str) -> None:
        """Show what is listed.

        Args:
            entries: Best first.
            place: Of the one under the cursor.
            title: Of the panel; printable, as is the note at its foot.
            note: How many there are of each kind.
        """
        self.entries, self.place = entries, place
        self._passing = passing(entries)
        self._best = max((entry.last.score for entry in entries), default=0.0)
        self.title(Content(title), Content(note) if note else None)
        self.redraw()

    def explain(self, words: Sequence[str]) -> None:
        """Show why there is nothing, what is to come and what to do; printable, the first in bold."""
        self.entries, self._empty = (), words
        self.title(Content("Beams"))
        self.redraw()

    # ---- drawing ----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> list[Row]:
        if not self.entries:
            inks = ["strong", *("muted" for _ in self._empty[1:])]
            return centred(
                [(text, self.ink(ink)) for text, ink in zip(self._empty, inks, strict=False)], width, height
            )
        columns = self._columns(width)
        rows = max(1, height - 1)
        self._top = max(0, min(self._top, self.place, len(self.entries) - rows), self.place - rows + 1)
        seen = self.entries[self._top : self._top + rows]
        return [self._head(columns), *(self._row(entry, columns, width) for entry in seen)]

    def _columns(self, width: int) -> _Columns:
        """Those that fit, the words no wider than they must be."""
        columns = _fitting(width)
        words = max(cell_len(state_phrase(entry, columns is _NARROW)) for entry in self.entries)
        return replace(columns, standing=min(max(columns.standing, 6), words + 2), short=columns is _NARROW)

    def _head(self, columns: _Columns) -> Row:
        names = ("", "#", "score", "", "logprob", "tokens")
        cells = (_MARK, columns.place, columns.score, columns.bar, columns.logprob, columns.tokens)
        words = "".join(pad(name, room, right=True) for name, room in zip(names, cells, strict=True) if room)
        return [Segment(words + "  " + pad("", columns.standing) + "text", self.ink("muted"))]

    def _row(self, entry: BeamEntry, columns: _Columns, width: int) -> Row:
        chosen, out = entry is self.entries[self.place], entry.kind == "fell"
        row = [Segment("▶ " if chosen else "  ", self.ink("accent"))]
        row += self._figures(entry, columns)
        words = state_phrase(entry, columns.short)
        style = self.ink("faint" if out else "good" if entry.kind == "finished" else "muted")
        row.append(Segment(f"  {pad(words, columns.standing - 2)}  ", style))
        row += self._text(entry, width - _cells(row))
        if not chosen:
            return row
        rest = Segment(" " * (width - _cells(row)))
        ground = Style(bgcolor=self.ink("row").bgcolor)
        return list(Segment.apply_style([*row, rest], post_style=ground))

    def _figures(self, entry: BeamEntry, columns: _Columns) -> Iterator[Segment]:
        out = self.ink("faint") if entry.kind == "fell" else Style()
        yield Segment(pad(self._numbered(entry), columns.place, right=True), out or self.ink("strong"))
        yield Segment(pad(number(entry.last.score, 4), columns.score, right=True), out)
        if columns.bar:
            ink = out or (self.ink("good") if entry.greedy else self.ink("primary"))
            yield Segment("  " + bar(likelihood(entry, self._best), _BAR), ink)
        if columns.logprob:
            yield Segment(pad(number(entry.last.total), columns.logprob, right=True), out)
        if columns.tokens:
            yield Segment(pad(str(entry.length), columns.tokens, right=True), out)

    def _numbered(self, entry: BeamEntry) -> str:
        """Its place; a hypothesis is marked while it is below live beams, which have their own places."""
        if entry.place is None:
            return "✗" if entry.kind == "fell" else "·"
        mixed = entry.kind == "finished" and self.entries[0].kind == "live"
        return f"■{entry.place}" if mixed else str(entry.place)

    def _text(self, entry: BeamEntry, room: int) -> Iterator[Segment]:
        out = entry.kind == "fell"
        for text, own in excerpt(pieces(entry, self._passing), room):
            yield Segment(text, self.ink("faint" if out else "strong" if own else "muted"))

    # ---- the mouse --------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Point at the beam that was clicked."""
        place = event.get_content_offset_capture(self).y - 1 + self._top
        if 0 <= place < len(self.entries) and event.get_content_offset_capture(self).y > 0:
            self.post_message(self.BeamClicked(self.entries[place].node))


def _cells(row: Row) -> int:
    return sum(segment.cell_length for segment in row)


def likelihood(entry: BeamEntry, best: float) -> float:
    """The probability of a beam, set against one as long with the best score there is: 0 to 1.

    Of beams of one length it is the ratio of their probabilities; of others those of a lower score have less.
    """
    total, score = entry.last.total, entry.last.score
    if score == 0:
        return 1.0
    return math.exp(min(0.0, total - best * total / score))
