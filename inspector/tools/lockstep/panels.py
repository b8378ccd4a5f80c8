"""What the lockstep draws: the text coloured by how far two models are apart, their candidates, and their two ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from engine.protocol import Candidate, LockstepSpan, WaysParted
from inspector.display import pad, token_label, token_text, truncate, unfinished, visible
from inspector.scales import percent
from inspector.state.session_tree import Item
from inspector.tools.lockstep.measures import Colouring
from inspector.widgets.canvas import Canvas, Row, centred, colourful, is_dark
from inspector.widgets.charts import bar
from inspector.widgets.inks import panel_css
from inspector.widgets.token_styles import heat_style, swatches
from inspector.widgets.wrap import TextPiece, Wrap

WORD = re.compile(r"\s*\S+|\s+")
NARROW = 24
"""Cells from which on a list has room for the ranks of the other model."""
FLIP = "≠"
"""Under a token before which the two have different top tokens."""


class LockstepText(Canvas):
    """The path, each token in the colour of a measure, its number under it."""

    DEFAULT_CSS = panel_css("LockstepText")

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._items: Sequence[Item] = ()
        self._spans: Sequence[LockstepSpan | None] = ()
        self._measure: Colouring | None = None
        self._slot = 0
        self._instead: tuple[str, str] | None = None

    def put(
        self,
        titles: tuple[str, str],
        items: Sequence[Item],
        spans: Sequence[LockstepSpan | None],
        measure: Colouring,
        slot: int,
        instead: tuple[str, str] | None = None,
    ) -> None:
        """Show a path.

        Args:
            titles: At the top and at the bottom of the frame; printable.
            items: Its tokens.
            spans: What is known of each.
            measure: What they are coloured by.
            slot: Of the cursor; one past the end is the token to come.
            instead: What is said in the place of the text; None for the text.
        """
        self._items, self._spans, self._measure, self._slot = items, spans, measure, slot
        self._instead = instead
        top, bottom = map(Content, titles)
        if instead is None:
            top += Content(" from ") + swatches(measure.steps, is_dark(self.app), colourful(self.app))
        self.title(top, bottom)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if self._instead is not None or self._measure is None:
            reason, advice = self._instead or ("", "")
            return centred([(reason, self.rich_style), (advice, self.ink("muted"))], width, height)
        numbered = height >= 2
        wrap = Wrap(width - 1, numbered)
        for slot, item in enumerate(self._items):
            parts = item.text.split("\n")
            texts = list(map(visible, parts)) if len(parts) > 1 else [
                token_text(item.text, item.raw, unfinished(item.raw))
            ]  # fmt: skip
            wrap.append(texts, "", truncate(self._number(slot), width - 2) if numbered else "")
        lines, room = wrap.lines, max(1, height // (2 if numbered else 1))
        last = len(lines) - 1
        at = wrap.line_of[self._slot] if self._slot < len(wrap.line_of) else last
        top = max(0, min(at - room // 2, last + 1 - room))
        rows: list[Row] = []
        for line in lines[top : top + room]:
            rows.append([part for piece in line.pieces for part in self._piece(piece)])
            if numbered:
                rows.append([self._under(piece) for piece in line.pieces])
        if self._slot >= len(self._items) and rows and top + room > last:
            rows[-2 if numbered else -1].append(Segment(" ", self.ink("cursor")))
        return rows

    def _span(self, slot: int) -> LockstepSpan | None:
        return self._spans[slot] if slot < len(self._spans) else None

    def _number(self, slot: int) -> str:
        """The measure of a token, at the last one of its span; and whether the top token differs."""
        span = self._span(slot)
        if self._measure is None or span is None or span.node != self._items[slot].node:
            return ""
        return self._measure.written(span) + (FLIP if span.same_top is False else "")

    def _piece(self, piece: TextPiece) -> list[Segment]:
        assert self._measure is not None
        blank = " " * (piece.blank + piece.edge)
        if piece.slot == self._slot:
            return [Segment(piece.text, self.ink("cursor")), Segment(blank, self.rich_style)]
        step = self._measure.step(self._span(piece.slot))
        style = self.rich_style + heat_style(step, is_dark(self.app), colourful(self.app))
        core = piece.text.lstrip(" ")
        return [
            Segment(piece.text[: len(piece.text) - len(core)], self.rich_style),
            Segment(core, style),
            Segment(blank, self.rich_style),
        ]

    def _under(self, piece: TextPiece) -> Segment:
        return Segment(
            pad(piece.under, piece.cells), self.ink("accent" if piece.slot == self._slot else "muted")
        )


class LockstepSide(Canvas):
    """One model's candidates at the cursor, or its own way from there."""

    DEFAULT_CSS = panel_css("LockstepSide")

    def __init__(self, second: bool, id: str | None = None) -> None:
        super().__init__(id=id)
        self._second = second
        self._candidates: Sequence[Candidate] = ()
        self._ranks: dict[int, int] = {}
        self._taken: int | None = None
        self._ways: WaysParted | None = None
        self._why = ""

    def put(
        self,
        titles: tuple[str, str],
        candidates: Sequence[Candidate],
        others: Sequence[Candidate],
        taken: int | None,
        why: str,
    ) -> None:
        """Show candidates.

        Args:
            titles: At the top and at the bottom of the frame; printable.
            candidates: This model's.
            others: The other model's, whose ranks are told.
            taken: Id of the token that was taken; None for none.
            why: Why there are none, as a sentence.
        """
        self._candidates, self._taken, self._ways, self._why = candidates, taken, None, why
        self._ranks = {each.id: each.rank for each in others}
        self.title(*map(Content, titles))
        self.redraw()

    def put_ways(self, titles: tuple[str, str], ways: WaysParted) -> None:
        """Show this model's own way."""
        self._ways = ways
        self.title(*map(Content, titles))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if self._ways is not None:
            return self._way(self._ways, width)
        if not self._candidates:
            return centred([(self._why, self.ink("muted"))], width, height)
        return [self._head(width), *(self._row(each, width) for each in self._candidates)]

    def _columns(self, width: int) -> tuple[int, int]:
        """Cells of the label and of the bar."""
        label = max(6, min(20, width - (18 if width >= NARROW else 11)))
        return label, max(0, min(16, width - label - 18))

    def _head(self, width: int) -> Row:
        label, cells = self._columns(width)
        other = "in P" if self._second else "in Q"
        text = f"  {pad('token', label)}{'p':>7}  "
        text += f"{pad('', cells)} {other:>6}" if width >= NARROW else ""
        return [Segment(text, self.ink("muted"))]

    def _row(self, candidate: Candidate, width: int) -> Row:
        label, cells = self._columns(width)
        rank = self._ranks.get(candidate.id)
        apart = rank is not None and rank != candidate.rank
        name = truncate(token_label(candidate.text, candidate.raw), label - 1)
        share = min(1.0, max(0.0, candidate.prob))
        taken = candidate.id == self._taken
        row = [
            Segment("▶ " if taken else "  ", self.ink("accent")),
            Segment(pad(name, label), self.ink("strong") if taken else self.rich_style),
            Segment(f"{percent(share):>7}  ", self.rich_style),
            Segment(bar(share, cells) if cells else "", self.data(share)),
        ]
        if width >= NARROW:
            there = "–" if rank is None else f"#{rank}"
            row.append(Segment(f" {there:>6}", self.ink("warn" if apart else "muted")))
        return row

    def _way(self, ways: WaysParted, width: int) -> list[Row]:
        """The text of this model's way, what both have in plain ink."""
        wrap = Wrap(width - 1)
        parts = [
            (word, each.same)
            for each in ways.parts
            for word in WORD.findall(each.other_text if self._second else each.text)
        ]
        for word, _ in parts:  # so that lines break between words
            wrap.append([visible(line) for line in word.split("\n")])
        styles = self.rich_style, self.ink("accent") + Style(underline=True)
        return [
            [
                Segment("".join(piece.text for piece in pieces), styles[not parts[slot][1]])
                for slot, pieces in groupby(line.pieces, key=lambda piece: piece.slot)
            ]
            for line in wrap.lines
        ]
