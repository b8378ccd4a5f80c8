"""A grammar that the text must match, and the panel that shows what it expects at a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from engine.grammar_settings import Grammar
from engine.protocol import ExpectedBeginning, GrammarExpected, ReadGrammar
from inspector.display import truncate, visible
from inspector.documents.grammar import beginnings, sentences, warning
from inspector.keys import key_for
from inspector.main.tool import Host, ToolActions
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.widgets.canvas import PanelCanvas, Row, paragraph, why_empty


class GrammarActions(ToolActions):
    """Sets the grammar that the text must match, and shows what it allows."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._lookup = Latest(host.controller.client)
        self._asked: tuple[int, Grammar, int] | None = None
        """Node, grammar and model of the question that was asked last."""
        self._expected: GrammarExpected | None = None
        self._was_on = False
        self.awake = True

    @property
    def on(self) -> bool:
        """True if a grammar is in force, or was at the selected token."""
        distribution = self.timeline.distribution
        here = distribution is not None and distribution.grammar is not None
        return here or self.controller.setup.settings.grammar is not None

    # ---- keys -------------------------------------------------------------------------------

    def open(self) -> None:
        from inspector.views.grammar_dialog import GrammarDialog

        grammar = self.controller.setup.settings.grammar
        self.host.open(GrammarDialog(grammar, Latest(self.controller.client), self.timeline), self._left)
        self.host.answer()

    def _left(self, chosen: Grammar | Literal["off"] | None) -> None:
        setup = self.controller.setup
        grammar = None if chosen == "off" else chosen
        if chosen is None or grammar == setup.settings.grammar:
            return
        setup.apply(replace(setup.settings, grammar=grammar))
        if grammar is None:
            self.host.answer("The grammar is off: all tokens are allowed from here on")
        else:
            shows = f"{key_for('next_view').capitalize()} shows what it allows"
            self.host.answer(f"The output must match {visible(grammar.summary)}. {shows}")

    # ---- the panel --------------------------------------------------------------------------

    def show(self) -> None:
        """Show the panel, if it is on screen, and ask for what it lacks; it is offered while a grammar is on."""
        if self.on != self._was_on:
            self._was_on = self.on
            self.host.changed()
        if "grammar" not in self.host.shown:
            return
        timeline, used = self.timeline, self.controller.queries.used(self.timeline)
        grammar, node = used.grammar if used is not None else None, timeline.before
        reading = timeline.distribution.grammar if timeline.distribution is not None else None
        if grammar is not None and reading is not None:
            question = (node, grammar, timeline.generation)
            if reading.state not in ("left", "ended") and question != self._asked:
                self._asked, self._expected = question, None
                self._lookup.ask(ReadGrammar(node, grammar), self._answered)
        panel, known = self.host.panel(GrammarPanel), self._expected
        panel.grammar, panel.expected = grammar, known.expected if known and known.node == node else ()
        panel.show(timeline)

    def _answered(self, request: Request[ReadGrammar]) -> None:
        self._expected = request.reply(GrammarExpected)
        self.host.changed()


# ---- the panel ----------------------------------------------------------------------------------


class GrammarPanel(PanelCanvas, can_focus=True):
    """The grammar at the selected token."""

    grammar: Grammar | None = None
    """The grammar in force there; None if there is none."""
    expected: Sequence[ExpectedBeginning] = ()
    """The texts that it expects there; empty while they aren't known."""

    def draw(self, width: int, height: int) -> list[Row]:
        timeline, grammar = self.timeline, self.grammar
        named = f"Grammar · {visible(grammar.summary)}" if grammar else "Grammar"
        self.title(truncate(named, max(1, width - 2)))
        distribution = timeline.distribution if timeline is not None else None
        reading = distribution.grammar if distribution is not None else None
        if grammar is not None and reading is not None:
            warned = warning(reading)
            rest = " ".join(sentence for sentence in sentences(reading) if sentence != warned)
            rows = paragraph(self.ink("warn"), width, *([f"! {warned}"] if warned else []))
            rows += paragraph(None, width, rest)
            return [*rows, *beginnings(self.expected, self, width, height - len(rows))]
        if distribution is None:
            reason, advice = why_empty(timeline, "What a grammar allows appears here.")
            if timeline is not None and timeline.items:
                reason, advice = "This token is part of the prompt.", "Press end for the next token."
        elif grammar is not None:
            reason, advice = "The grammar begins after this token.", "Press → or end."
        else:
            reason, advice = "No grammar applies here.", "None was recorded."
            if timeline is not None and not timeline.recorded:
                advice = f"Press {key_for('grammar')} to give one: digits, a date, JSON."
        return self.centred((reason, advice), width, height)
