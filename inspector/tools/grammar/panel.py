"""What a grammar expects at the token that is looked at: the beginnings that it allows, its mass, and the end."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from engine.grammar_settings import Grammar
from engine.protocol import ExpectedBeginning, GrammarExpected, GrammarReading
from inspector import scales
from inspector.display import pad, truncate, visible
from inspector.keys import key_for
from inspector.state.grammar import sentences, share, warning
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import Canvas, Row, centred, why_empty, wrapped
from inspector.widgets.charts import bar
from inspector.widgets.inks import panel_css

_WORDS, _COUNT, _SHARE, _BAR = 22, 8, 11, 24


class GrammarPanel(Canvas, can_focus=True):
    """The grammar where the person looks."""

    DEFAULT_CSS = panel_css("GrammarPanel")

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._grammar: Grammar | None = None
        self._expected: GrammarExpected | None = None

    def tell(self, timeline: Timeline, grammar: Grammar | None, expected: GrammarExpected | None) -> None:
        """Show a grammar at the selected slot.

        Args:
            timeline: What is known.
            grammar: In force there; None without one.
            expected: What it expects there; None while that isn't known.
        """
        self._grammar, self._expected = grammar, expected
        self.show(timeline)

    def draw(self, width: int, height: int) -> list[Row]:
        timeline = self.timeline
        named = f"Grammar · {visible(self._grammar.summary)}" if self._grammar else "Grammar"
        self.title(Content(truncate(named, max(1, width - 2))))
        if timeline is None or timeline.distribution is None:
            reason, advice = why_empty(timeline, "What a grammar allows appears here.")
            if timeline is not None and timeline.items:
                reason, advice = "This token was given by the prompt.", "Press end for the token to come."
            return centred([(reason, self.rich_style), (advice, self.ink("muted"))], width, height)
        reading = timeline.distribution.grammar
        if self._grammar is None or reading is None:
            return centred(self._nothing(timeline), width, height)
        rows = self._told(reading, width)
        return [*rows, *self._beginnings(width, height - len(rows))]

    def _nothing(self, timeline: Timeline) -> list[tuple[str, Style]]:
        reason = (
            "No grammar holds here." if self._grammar is None else "The grammar begins behind this token."
        )
        advice = (
            f"Press {key_for('grammar')} to give one: digits, a date, JSON."
            if self._grammar is None
            else "Press → or end."
        )
        advice = "None was recorded." if timeline.recorded and self._grammar is None else advice
        return [(reason, self.rich_style), (advice, self.ink("muted"))]

    def _told(self, reading: GrammarReading, width: int) -> list[Row]:
        warned, told = warning(reading), sentences(reading)
        lines = wrapped(f"! {warned}", width) if warned else []
        rows: list[Row] = [[Segment(line, self.ink("warn"))] for line in lines]
        rest = " ".join(sentence for sentence in told if sentence != warned)
        return [*rows, *([Segment(line)] for line in wrapped(rest, width))]

    def _beginnings(self, width: int, room: int) -> list[Row]:
        expected = self._expected.expected if self._expected is not None else ()
        if not expected or room < 2:
            return []
        cells = max(0, min(_BAR, width - _WORDS - _COUNT - _SHARE - 2))
        head = pad("expects", _WORDS) + pad("tokens", _COUNT, right=True) + pad("model", _SHARE, right=True)
        rows: list[Row] = [[Segment(head, self.ink("muted"))]]
        return rows + [self._beginning(each, cells) for each in expected[: room - 1]]

    def _beginning(self, each: ExpectedBeginning, cells: int) -> Row:
        mass = "" if each.mass is None else share(each.mass)
        row = [
            Segment(pad(visible(each.words), _WORDS), self.ink("strong")),
            Segment(pad(scales.count(each.tokens), _COUNT, right=True)),
            Segment(pad(mass, _SHARE, right=True)),
        ]
        if each.mass is None or not cells:
            return row
        return [
            *row,
            Segment("  "),
            Segment(bar(min(1.0, each.mass), cells), self.ink("track") + self.data()),
        ]
