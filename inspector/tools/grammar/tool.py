"""A grammar as a tool: what opens its dialog, and the panel that shows what it expects at a token."""

from __future__ import annotations

from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from engine.grammar_settings import Grammar
from engine.protocol import ExpectedBeginning, GrammarExpected, GrammarReading, ReadGrammar
from inspector import scales
from inspector.display import pad, truncate, visible
from inspector.keys import key_for
from inspector.main.tool import Host, PanelSpec, Tool, ToolActions
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.state.grammar import sentences, share, warning
from inspector.state.timeline import Timeline
from inspector.tools.grammar import GRAMMAR_KEYS, GrammarChosen, GrammarPlace
from inspector.widgets.actions import Action, Needs
from inspector.widgets.canvas import PanelCanvas, Row, centred, why_empty, wrapped
from inspector.widgets.charts import bar


class GrammarActions(ToolActions):
    """Sets what the text must match, and shows what that leaves."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._lookup = Latest(host.controller.client)
        self._asked: tuple[int, Grammar, int] | None = None
        """Node, grammar and model of the question that was asked last."""
        self._expected: GrammarExpected | None = None
        self._open = False

    # ---- keys -------------------------------------------------------------------------------

    def open(self) -> None:
        """Ask for a grammar."""
        from inspector.tools.grammar.dialog import GrammarDialog

        timeline, settings = self.timeline, self.controller.setup.settings
        self._open, self._asked = True, None
        begun = any(slot < timeline.slot for slot in timeline.completion_slots[:1])
        place = GrammarPlace(timeline.before, timeline.slot, begun)
        self.host.open(GrammarDialog(settings.grammar, self._lookup, place), self._left)
        self.host.answer()

    def _left(self, chosen: GrammarChosen | None) -> None:
        self._open = False
        setup = self.controller.setup
        if chosen is None or chosen.grammar == setup.settings.grammar:
            return
        setup.apply(replace(setup.settings, grammar=chosen.grammar))
        if chosen.grammar is None:
            self.host.answer("The grammar is off: all tokens are allowed from here on")
        else:
            self.host.answer(
                f"The text must match {visible(chosen.grammar.summary)}. "
                f"{key_for('grammar_expects')} shows what it expects"
            )

    # ---- the panel --------------------------------------------------------------------------

    def show(self) -> None:
        """Show the panel, where it is on screen, and ask what it lacks."""
        if GRAMMAR.id not in self.host.shown:
            return
        timeline, used = self.timeline, self.controller.queries.used(self.timeline)
        grammar = used.grammar if used is not None else None
        if grammar is not None and not self._open:
            self._ask(timeline.before, grammar)
        known = self._expected if self._expected and self._expected.node == timeline.before else None
        self.host.panel(GrammarPanel).tell(timeline, grammar, known)

    def _ask(self, node: int, grammar: Grammar) -> None:
        timeline = self.timeline
        reading = timeline.distribution.grammar if timeline.distribution is not None else None
        question = (node, grammar, timeline.generation)
        if reading is None or reading.state in ("left", "ended") or question == self._asked:
            return
        self._asked, self._expected = question, None
        self._lookup.ask(ReadGrammar(node, grammar), self._answered)

    def _answered(self, request: Request[ReadGrammar]) -> None:
        self._expected = request.reply(GrammarExpected)
        self.host.changed()


# ---- the panel ----------------------------------------------------------------------------------

_WORDS, _COUNT, _SHARE, _BAR = 22, 8, 11, 24


class GrammarPanel(PanelCanvas, can_focus=True):
    """The grammar where the person looks."""

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
                reason, advice = "This token is part of the prompt.", "Press end for the token to come."
            return centred([(reason, self.rich_style), (advice, self.ink("muted"))], width, height)
        reading = timeline.distribution.grammar
        if self._grammar is None or reading is None:
            return centred(self._nothing(timeline), width, height)
        rows = self._sentences(reading, width)
        return [*rows, *self._beginnings(width, height - len(rows))]

    def _nothing(self, timeline: Timeline) -> list[tuple[str, Style]]:
        reason = (
            "No grammar applies here." if self._grammar is None else "The grammar begins after this token."
        )
        advice = (
            f"Press {key_for('grammar')} to give one: digits, a date, JSON."
            if self._grammar is None
            else "Press → or end."
        )
        advice = "None was recorded." if timeline.recorded and self._grammar is None else advice
        return [(reason, self.rich_style), (advice, self.ink("muted"))]

    def _sentences(self, reading: GrammarReading, width: int) -> list[Row]:
        warned = warning(reading)
        lines = wrapped(f"! {warned}", width) if warned else []
        rows: list[Row] = [[Segment(line, self.ink("warn"))] for line in lines]
        rest = " ".join(sentence for sentence in sentences(reading) if sentence != warned)
        return [*rows, *([Segment(line)] for line in wrapped(rest, width))]

    def _beginnings(self, width: int, room: int) -> list[Row]:
        expected = self._expected.expected if self._expected is not None else ()
        if not expected or room < 2:
            return []
        cells = max(0, min(_BAR, width - _WORDS - _COUNT - _SHARE - 2))
        head = pad("expects", _WORDS) + pad("tokens", _COUNT, right=True) + pad("model", _SHARE, right=True)
        rows: list[Row] = [[Segment(head, self.ink("muted"))]]
        if len(expected) < room:
            return rows + [self._beginning(each, cells) for each in expected]
        shown, left = expected[: room - 2], expected[room - 2 :]
        masses = [each.mass for each in left if each.mass is not None]
        rest = ExpectedBeginning(
            f"{scales.count(len(left))} others",
            sum(each.tokens for each in left),
            sum(masses) if masses else None,
        )
        return rows + [self._beginning(each, cells) for each in (*shown, rest)]

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


# ---- keys ---------------------------------------------------------------------------------------

GRAMMAR = Tool(
    "grammar",
    "Grammar",
    GrammarActions,
    actions=(
        Action("grammar", "Grammar",
            "Make the text match a regular expression, a JSON schema, a grammar or one of several texts; again to "
            "change or remove it.", GrammarActions.open, Needs.ENGINE,
            synonyms="json, json schema, regex, regular expression, structured output, constrained decoding, "
            "constrained generation, lark", view="constrain…"),
        Action("grammar_expects", "What the grammar expects",
            "Show which tokens the grammar allows here, how probable the model finds them, and whether the text may "
            "end. "
            "Esc goes back.", lambda own: own.host.go_to("grammar"), Needs.DISTRIBUTION, looks=True,
            synonyms="allowed tokens, token mask, grammar mask", view="grammar"),
    ),
    owners=(GRAMMAR_KEYS,),
    panel=PanelSpec(GrammarPanel, "Grammar", "Grammar"),
)  # fmt: skip
