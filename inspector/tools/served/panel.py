"""The panel of a server's reply: what it came to, and its tokens around the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from inspector.display import pad, token_label, truncate
from inspector.keys import key_for
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import PanelCanvas, Row, centred, fact_rows

if TYPE_CHECKING:  # the first screen needs none of it
    from inspector.served.replies import ServedReply
    from inspector.served.rescoring import Rescored, ServedStep

_TOKEN, _FIGURE = 20, 9
"""Cells of a token at most, and of a figure."""
_INKS = {"equal": "muted", "rounding": "warn", "differs": "bad", "drawn": "muted"}
_SIGNS = {"equal": "=", "rounding": "≈", "differs": "≠", "drawn": "·"}
_LEAST_ROWS = 5
"""Of the table, whatever there is to say above it."""


class ServedView(Struct, frozen=True):
    """The contents of the panel."""

    where: str
    """Which request it is, printable; empty for none."""
    why: str
    """Why there is no result yet, printable."""
    reply: ServedReply | None
    result: Rescored | None


class ServedPanel(PanelCanvas, can_focus=True):
    """A server's reply, beside what is computed here."""

    NAME = "Recorded reply"

    def __init__(self) -> None:
        super().__init__()
        self._view = ServedView("", "", None, None)
        self._told: list[tuple[str, str]] = []
        """What is said above the table; with the next two, of the result that is shown: a reply may be long."""
        self._places: dict[int, int] = {}
        """Of the served tokens, by node."""
        self._figures = False
        """True if the server named logprobs."""

    def reads(self, timeline: Timeline) -> tuple[object, ...]:
        """The place in the path, and what is known of the reply."""
        return timeline.tip, timeline.slot, self._view

    def show_served(self, timeline: Timeline, view: ServedView) -> None:
        """Show a reply.

        Args:
            timeline: Its cursor is in the middle of the table.
            view: What is known.
        """
        if view.result is not None and view.result is not self._view.result:
            steps = view.result.steps
            self._told = self._facts(view.result, view.reply)
            self._places = {each.step.node: place for place, each in enumerate(steps)}
            self._figures = any(each.served is not None for each in steps)
        self._view = view
        self.show(timeline)

    def draw(self, width: int, height: int) -> list[Row]:
        view, muted = self._view, self.ink("muted")
        self.title(Content(self.NAME), Content(view.where) if view.where else None)
        if not view.where:
            texts = (
                ("No request of a server is open.", self.ink("base")),
                (f"{key_for('requests')} opens one: a HAR file of mitmdump, or a request's body.", muted),
            )
            return centred(texts, width, height)
        if view.result is None:
            return centred(((view.why or "The prompt is read first.", muted),), width, height)
        rows = fact_rows(self._told, width, muted, self.ink("base"))
        rows = rows[: max(1, height - _LEAST_ROWS - 2)]
        return [*rows, [], *self._table(view.result, width, height - len(rows) - 1)]

    def _facts(self, result: Rescored, reply: ServedReply | None) -> list[tuple[str, str]]:
        """The facts of the comparison, as names and sentences."""
        from inspector.served.listing import verdict_words
        from inspector.served.rescoring import SOURCES

        facts = []
        if result.source is not None:
            facts.append(("here", f"{len(result.steps):,} tokens, {verdict_words(result)}"))
            facts.append(("known by", SOURCES[result.source]))
        if result.misnamed:
            facts.append(
                (
                    "named",
                    f"{result.misnamed:,} of {len(result.steps):,} tokens wrongly by the reply's logprobs",
                )
            )
        if (largest := result.largest) is not None:
            facts.append(
                ("logprobs", f"within {largest:.3f} nats of the server's, after its penalties and biases")
            )
        served = reply.prompt_tokens if reply is not None else None
        if served is not None:
            same = "as many as" if served == result.prompt_tokens else f"{served:,}"
            facts.append(("prompt", f"{result.prompt_tokens:,} tokens, {same} at the server"))
        if not result.same_text:
            facts.append(("text", "the served text differs from that of these tokens"))
        return [*facts, *(("note", each) for each in result.notes)]

    def _table(self, result: Rescored, width: int, height: int) -> list[Row]:
        """The tokens around the cursor."""
        if not result.steps or height < 2:
            return []
        figures = self._figures
        cells = max(6, min(_TOKEN, width - 8 - 2 * _FIGURE * figures - 16))
        head = pad("", 6) + pad("token", cells + 2)
        head += pad("server", _FIGURE, right=True) + pad("here", _FIGURE, right=True) if figures else ""
        room = height - 1
        at = self._at(result)
        top = max(0, min(at - room // 2, len(result.steps) - room))
        shown = result.steps[top : top + room]
        rows = [self._row(each, top + n, at, cells, figures, width) for n, each in enumerate(shown)]
        return [[Segment(head, self.ink("muted"))], *rows]

    def _at(self, result: Rescored) -> int:
        """The place of the token at the cursor among the served ones; the last one where the cursor is elsewhere."""
        selected = self.timeline.selected if self.timeline is not None else None
        last = len(result.steps) - 1
        return self._places.get(selected.node, last) if selected is not None else last

    def _row(self, each: ServedStep, place: int, at: int, cells: int, figures: bool, width: int) -> Row:
        from inspector.served.rescoring import VERDICTS

        ink = self.ink(_INKS[each.verdict])
        base = self.ink("row") if place == at else self.ink("base")
        label = pad(truncate(token_label(each.step.text, each.step.raw), cells), cells + 2)
        row: Row = [
            Segment(f"{place + 1:>4} ", self.ink("muted")),
            Segment(f"{_SIGNS[each.verdict]} ", ink),
            Segment(label, base),
        ]
        if figures:
            row += [
                Segment(pad(_figure(value), _FIGURE, right=True), base)
                for value in (each.served, each.computed)
            ]
        said = (
            ""
            if each.named is None
            else f"named {token_label(each.named.decode('utf-8', 'replace'), each.named)}"
        )
        if each.verdict in ("rounding", "differs"):
            said = VERDICTS[each.verdict]
        return [*row, Segment(f"  {said}", ink if said else Style())]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
