"""The panel of a server's reply: the comparison as a whole, and the tokens around the cursor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from inspector.display import pad, token_label, truncate
from inspector.keys import key_for
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import PanelCanvas, Row, centred, fact_rows

if TYPE_CHECKING:  # imported when there is a reply
    from inspector.served.replies import ServedReply
    from inspector.served.rescoring import Rescored, ServedStep

_TOKEN, _FIGURE = 20, 9
"""Cells of a token at most, and of a figure."""
_INKS = {"equal": "muted", "rounding": "warn", "differs": "bad", "drawn": "muted"}
_SIGNS = {"equal": "=", "rounding": "≈", "differs": "≠", "drawn": "·"}
_LEAST_ROWS = 5
"""Of the table, however long the facts above it are."""


class ServedPanel(PanelCanvas, can_focus=True):
    """A server's reply, beside what is computed here."""

    NAME = "Recorded reply"

    def __init__(self) -> None:
        super().__init__()
        self._where = self._why = ""
        self._result: Rescored | None = None
        self._facts: list[tuple[str, str]] = []
        """Of the result, as names and sentences; with the next two, made once: a reply may be long."""
        self._places: dict[int, int] = {}
        """Of the served tokens, by node."""
        self._figures = False
        """True if the server named logprobs."""

    def reads(self, timeline: Timeline) -> tuple[object, ...]:
        """The place in the path, and what is known of the reply."""
        return timeline.tip, timeline.slot, self._where, self._why, self._result

    def show_served(
        self,
        timeline: Timeline,
        where: str = "",
        why: str = "",
        reply: ServedReply | None = None,
        result: Rescored | None = None,
    ) -> None:
        """Show a reply.

        Args:
            timeline: Its cursor is in the middle of the table.
            where: Name of the request, printable; empty for none.
            why: The reason that there is no result yet, printable.
            reply: The reply.
            result: What came of computing it again.
        """
        if result is not None and result is not self._result:
            self._facts = list(_facts(result, reply))
            self._places = {each.step.node: place for place, each in enumerate(result.steps)}
            self._figures = any(each.served is not None for each in result.steps)
        self._where, self._why, self._result = where, why, result
        self.show(timeline)

    def draw(self, width: int, height: int) -> list[Row]:
        muted, base = self.ink("muted"), self.ink("base")
        self.title(Content(self.NAME), Content(self._where) if self._where else None)
        if not self._where:
            advice = f"{key_for('requests')} opens one: a HAR file of mitmdump, or a request's body."
            return centred((("No request of a server is open.", base), (advice, muted)), width, height)
        if self._result is None:
            return centred(((self._why or "The prompt is read first.", muted),), width, height)
        rows = fact_rows(self._facts, width, muted, base)[: max(1, height - _LEAST_ROWS - 2)]
        return [*rows, [], *self._table(self._result, width, height - len(rows) - 1)]

    def _table(self, result: Rescored, width: int, height: int) -> list[Row]:
        """The tokens around the cursor; around the last one if the cursor is elsewhere."""
        room, last = height - 1, len(result.steps) - 1
        if last < 0 or room < 1:
            return []
        cells = max(6, min(_TOKEN, width - 8 - 2 * _FIGURE * self._figures - 16))
        head = pad("", 6) + pad("token", cells + 2)
        if self._figures:
            head += pad("server", _FIGURE, right=True) + pad("here", _FIGURE, right=True)
        selected = self.timeline.selected if self.timeline is not None else None
        at = self._places.get(selected.node, last) if selected is not None else last
        top = max(0, min(at - room // 2, len(result.steps) - room))
        rows = [
            self._row(each, place, place == at, cells)
            for place, each in enumerate(result.steps[top : top + room], top)
        ]
        return [[Segment(head, self.ink("muted"))], *rows]

    def _row(self, each: ServedStep, place: int, here: bool, cells: int) -> Row:
        from inspector.served.rescoring import VERDICTS

        ink, base = self.ink(_INKS[each.verdict]), self.ink("row" if here else "base")
        label = pad(truncate(token_label(each.step.text, each.step.raw), cells), cells + 2)
        row: Row = [
            Segment(f"{place + 1:>4} ", self.ink("muted")),
            Segment(f"{_SIGNS[each.verdict]} ", ink),
            Segment(label, base),
        ]
        for value in (each.served, each.computed) if self._figures else ():
            figure = "" if value is None else f"{value:.3f}"
            row.append(Segment(pad(figure, _FIGURE, right=True), base))
        said = ""
        if each.verdict in ("rounding", "differs"):
            said = VERDICTS[each.verdict]
        elif each.named is not None:
            said = f"named {token_label(each.named.decode('utf-8', 'replace'), each.named)}"
        return [*row, Segment(f"  {said}", ink if said else Style())]


def _facts(result: Rescored, reply: ServedReply | None) -> Iterator[tuple[str, str]]:
    """The facts of the comparison, as names and sentences."""
    from inspector.served.listing import verdict_words
    from inspector.served.rescoring import SOURCES

    tokens = len(result.steps)
    if result.source is not None:
        yield "here", f"{tokens:,} tokens, {verdict_words(result)}"
        yield "known by", SOURCES[result.source]
    if result.misnamed:
        yield "named", f"{result.misnamed:,} of {tokens:,} tokens wrongly by the reply's logprobs"
    if (largest := result.largest) is not None:
        yield "logprobs", f"within {largest:.3f} nats of the server's, after its penalties and biases"
    served = reply.prompt_tokens if reply is not None else None
    if served is not None:
        same = "as many as" if served == result.prompt_tokens else f"{served:,}"
        yield "prompt", f"{result.prompt_tokens:,} tokens, {same} at the server"
    if not result.same_text:
        yield "text", "the served text differs from that of these tokens"
    yield from (("note", each) for each in result.notes)
