"""A grammar as a tool: the dialog that sets it, and the panel that shows what it expects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.grammar_settings import Grammar
from engine.protocol import GrammarExpected, ReadGrammar
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.arrangement import Place
from inspector.main.tool import LOOK, SET_UP, Host, PanelSpec, Tool, ToolActions
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.tools.grammar.panel import GrammarPanel
from inspector.widgets.actions import Action, Needs, dialog_table, note

if TYPE_CHECKING:
    from inspector.tools.grammar.dialog import GrammarChosen


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
        from inspector.tools.grammar.dialog import GrammarDialog, GrammarPlace

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


GRAMMAR_KEYS = dialog_table(
    "While a grammar is typed",
    note("tab", hint="next field", worth=5),
    note("left right", hint="choose", worth=4),
    Action("grammar.take_off", "Take off", "Generate without a grammar.", lambda own: own.take_off(), hint="take off",
           worth=6, priority=True),
    told=False,
)  # fmt: skip
GRAMMAR = Tool(
    "grammar",
    "Grammar",
    GrammarActions,
    actions=(
        Action("grammar", "Grammar",
            "Have the text match a regular expression, a JSON schema, a grammar or one of some texts; again to change "
            "it or take it off.", GrammarActions.open, Needs.ENGINE, group=SET_UP,
            synonyms="json schema regex constrained structured output constraint"),
        Action("grammar_expects", "What the grammar expects",
            "Show what the grammar allows at this token, what the model thinks of that, and whether the text may end. "
            "Again, or esc, to go back.", lambda own: own.host.toggle("grammar"), Needs.DISTRIBUTION, group=LOOK,
            synonyms="json schema regex constrained allowed"),
    ),
    owners=(GRAMMAR_KEYS,),
    panel=PanelSpec(GrammarPanel, Place.BELOW, "Grammar", "Grammar", "the grammar"),
)  # fmt: skip
