"""Draws the rows of the text: the gutter, the tokens in their styles, and what stands after the last one."""

from __future__ import annotations

from collections.abc import Mapping

from rich.segment import Segment
from rich.style import Style

from engine.protocol import PromptToken
from inspector import scales
from inspector.display import visible
from inspector.main.panels.text_lines import TextLines
from inspector.main.panels.token_views import OFF
from inspector.state.mark_words import BRANCHES
from inspector.state.roles import role_slots
from inspector.state.timeline import Timeline
from inspector.state.trial import other
from inspector.widgets.canvas import Row, centred, why_empty
from inspector.widgets.token_styles import TokenStyles
from inspector.widgets.wrap import WrappedLine

INKS = ("muted", "faint", "special", "cursor", "accent", "warn", "row")
"""Of the named inks, those that the text is drawn with; `base` is the panel's own style."""


class TextRows:
    """Draws single rows, for one metric and one theme.

    Args:
        inks: `base` and those of `INKS`.
        metric: The heat.
        dark: Whether the theme is dark.
        colourful: Whether the terminal has colours for a scale.
    """

    def __init__(self, inks: Mapping[str, Style], metric: scales.Metric, dark: bool, colourful: bool) -> None:
        self._inks = inks
        self._styles = TokenStyles(inks, metric, dark, colourful)
        self._roles_of: tuple[Timeline, int] | None = None
        self._roles: dict[int, str] = {}
        """Of the path that `_roles_of` has, by the slot at which a message begins."""

    def notice(self, timeline: Timeline | None, width: int, height: int) -> list[Row]:
        """All rows where there is no text: why, and what to do."""
        failure = timeline.load_failure if timeline else None
        texts = list(why_empty(timeline, "The text appears here, token by token."))
        if failure is not None:
            texts = [visible(failure.message), visible(failure.hint)]
        inks = self._inks["base"], self._inks["muted"]
        return centred(list(zip(texts, inks, strict=True)), width, height)

    def row(self, y: int, lines: TextLines, timeline: Timeline) -> Row:
        """One row of the text.

        Args:
            y: Which, from 0.
            lines: Where the tokens lie.
            timeline: What they are.
        """
        row: Row = []
        if (line := lines.line(y)) is not None:
            lower = lines.is_lower(y)
            row = self._gutter(line, timeline)
            row += self._under(line, timeline) if lower else self._tokens(line, timeline, lines.view != OFF)
        if lines.ends(y):
            row.append(self._caret(timeline))
        if tail := lines.tail_at(y):
            row.append(Segment(tail, self._inks["muted"]))
        return row

    def _gutter(self, line: WrappedLine, timeline: Timeline) -> Row:
        pieces, items = line.pieces, timeline.items
        role = self._role(line, timeline)
        if role:
            return [Segment(role[:1].upper() + " ", self._inks["accent"])]
        prompt = pieces and pieces[0].slot < len(items) and isinstance(items[pieces[0].slot], PromptToken)
        return [Segment("▎ " if prompt else "  ", self._inks["faint"])]

    def _role(self, line: WrappedLine, timeline: Timeline) -> str:
        """The role of the message that begins in a line; of several the last."""
        generation = self._roles_of[1] if self._roles_of and self._roles_of[0] is timeline else -1
        if generation != timeline.generation:
            self._roles_of, self._roles = (timeline, timeline.generation), role_slots(timeline)
        return next((self._roles[p.slot] for p in reversed(line.pieces) if p.slot in self._roles), "")

    def _tokens(self, line: WrappedLine, timeline: Timeline, bordered: bool) -> Row:
        done = timeline.held
        draw = self._styles.bordered if bordered else self._styles.segments
        row: Row = []
        for piece in line.pieces:
            if piece.slot >= len(timeline.items):
                break  # the path became shorter while the panel was hidden: `on_show` lays it out
            item = timeline.items[piece.slot]
            differs = other(timeline.trial, item) is not None
            row += draw(piece, item, piece.slot == timeline.slot, piece.slot >= done, differs)
        return row

    def _under(self, line: WrappedLine, timeline: Timeline) -> Row:
        return [
            part for piece in line.pieces for part in self._styles.under(piece, piece.slot == timeline.slot)
        ]

    def _caret(self, timeline: Timeline) -> Segment:
        link = Style.from_meta({"slot": len(timeline.items)})
        ink = self._inks["cursor" if timeline.following else "faint"]
        goes_on = timeline.tree.children.get(timeline.tip)
        return Segment(BRANCHES if goes_on else " " if timeline.following else "▁", ink + link)


def marked(row: Row, span: tuple[int, int] | None, style: Style) -> Row:
    """A row with the characters of a mouse selection in its style."""
    if span is None:
        return row
    start, end = span[0], (sum(len(s.text) for s in row) if span[1] < 0 else span[1])
    marked: Row = []
    at = 0
    for segment in row:
        text, own = segment.text, segment.style or Style()
        low, high = max(0, start - at), max(0, end - at)
        for part, chosen in ((text[:low], False), (text[low:high], True), (text[max(low, high) :], False)):
            if part:
                marked.append(Segment(part, own + style if chosen else own))
        at += len(text)
    return marked
