"""The dialog that constrains the output: what is wrong with a grammar, and what it allows, are shown as it is typed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar, Literal

from textual import on
from textual.containers import HorizontalGroup
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Label, TextArea

from engine.errors import SettingsError
from engine.grammar_settings import Grammar, GrammarKind
from engine.protocol import ExpectedBeginning, GrammarExpected, ReadGrammar
from engine.setting import check
from inspector import scales
from inspector.display import visible
from inspector.documents.grammar import EXAMPLES, allows, beginnings
from inspector.session.client import Request
from inspector.session.requests import Latest, failure_words
from inspector.state.timeline import Timeline
from inspector.widgets.actions import NEW_LINE, Action, ActionTable, dialog_table, note
from inspector.widgets.canvas import Canvas
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeTextArea

GRAMMAR_KEYS = dialog_table(
    "While a grammar is typed",
    note("tab", hint="next field", worth=5),
    NEW_LINE,
    note("left right", hint="choose", worth=4),
    note("enter", hint="apply", worth=8),
    Action("grammar.take_off", "Remove", "Generate without a grammar.", lambda own: own.take_off(), hint="remove",
           worth=6, priority=True),
    told=False,
)  # fmt: skip
LABELS: dict[GrammarKind, str] = {
    "regex": "regex", "json-schema": "JSON schema", "choices": "one of", "lark": "Lark", "gbnf": "GBNF",
}  # fmt: skip
HELP: dict[GrammarKind, str] = {
    "regex": "A regular expression in Rust's syntax that the whole answer matches; no look-around, no backreferences.",
    "json-schema": "A JSON schema: the answer is JSON that is valid under it; of a format only the form is checked.",
    "choices": "Texts, one a line (ctrl+j begins one): the answer is one of them.",
    "lark": 'A grammar in Lark: start: "yes" | "no".',
    "gbnf": 'A grammar in GBNF, as llama.cpp reads it: root ::= "yes" | "no".',
}
PAUSE = 0.3
"""Seconds without a key press until what was typed is tried: each trial starts a process."""


class GrammarDialog(Dialog[Grammar | Literal["off"]]):
    """Asks for a grammar; returns the grammar, or `off` to remove it.

    Args:
        grammar: The grammar in force; None if there is none.
        lookup: Asks the engine whether the typed grammar is valid, and what it expects.
        timeline: Provides the selected slot, where the grammar is tried. It begins there or after the prompt.
    """

    ACTIONS: ClassVar[ActionTable] = GRAMMAR_KEYS
    HEADING: ClassVar[str] = "Constrain the output"
    APPLY: ClassVar[str] = "Apply"
    EXTRA = (("grammar.take_off", "Remove", "take-off"),)
    FIRST: ClassVar[str] = "#grammar-text"

    def __init__(self, grammar: Grammar | None, lookup: Latest, timeline: Timeline) -> None:
        super().__init__()
        self._grammar, self._lookup, self._node = grammar, lookup, timeline.before
        first = next(iter(timeline.completion_slots), timeline.slot)
        self._begins = grammar.begin is not None if grammar is not None else first < timeline.slot
        """True if the grammar begins at a token of the path: a new one does if the answer began before the slot."""
        held = grammar.begin if grammar is not None else None
        self._here = timeline.slot if held is None else held
        """Tokens of the path before that place."""
        self._timer: Timer | None = None
        self._wrong: Grammar | None = None
        """The last grammar that was refused."""

    def body(self) -> Iterable[Widget]:
        kind, text = (self._grammar.kind, self._grammar.text) if self._grammar else ("regex", "")
        begins = ("after the prompt", f"at token {self._here + 1}")
        for label, widget in (
            ("kind", Choice([*LABELS.values()], [*LABELS].index(kind), id="grammar-kind")),
            ("begins", Choice(begins, int(self._begins), id="grammar-begin")),
            ("example", Choice(["none", *(name for name, _, _ in EXAMPLES)], id="grammar-example")),
        ):
            with HorizontalGroup(classes="grammar-row"):
                yield Label(label, classes="field-label", markup=False)
                yield widget
        yield SafeTextArea(text, id="grammar-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(id="grammar-remark")
        yield Canvas(id="grammar-allowed")

    def begin(self) -> None:
        """Begin in the text."""
        super().begin()
        area = self.query_one("#grammar-text", SafeTextArea)
        area.move_cursor(area.document.end)
        self.query_one("#take-off", Button).disabled = self._grammar is None
        self._changed()

    def let_go(self) -> None:
        self._lookup.drop()

    # ---- fields -----------------------------------------------------------------------------

    @property
    def typed(self) -> Grammar:
        """The grammar in the fields."""
        kind = [*LABELS][self.query_one("#grammar-kind", Choice).chosen]
        begin = self._here if self.query_one("#grammar-begin", Choice).chosen else None
        return Grammar(kind, self.query_one("#grammar-text", SafeTextArea).text, begin)

    @on(Choice.Changed, "#grammar-example")
    def _example(self) -> None:
        if place := self.query_one("#grammar-example", Choice).chosen:
            _, kind, text = EXAMPLES[place - 1]
            self.query_one("#grammar-kind", Choice).chosen = [*LABELS].index(kind)
            self.query_one("#grammar-text", SafeTextArea).load_text(text)

    @on(TextArea.Changed, "#grammar-text")
    @on(Choice.Changed, "#grammar-kind, #grammar-begin")
    def _changed(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        typed = self.typed
        empty = not typed.text.strip()
        self.query_one("#apply", Button).disabled = empty
        self._lookup.drop()
        self._allow(())
        if empty:
            self.say(f"{HELP[typed.kind]} ← → on the examples fill in one.")
            return
        self.say("trying …")
        self._timer = self.set_timer(PAUSE, self._ask)

    def _ask(self) -> None:
        typed = self.typed
        try:
            check(typed)
        except SettingsError as error:
            self._refuse(typed, f"{error.message} {error.hint}")
        else:
            self._lookup.ask(ReadGrammar(self._node, typed), self._answered)

    def _answered(self, request: Request[ReadGrammar]) -> None:
        if (failure := request.failure) is not None:
            self._refuse(self.typed, failure_words(failure))
        elif (answer := request.reply(GrammarExpected)) is not None:
            self._wrong = None
            self.say(usable_sentence(answer))
            self._allow(answer.expected)

    def _allow(self, expected: Sequence[ExpectedBeginning]) -> None:
        """Show the tokens that the grammar in the fields allows at the selected place."""
        self.query_one("#grammar-allowed", Canvas).paint(partial(beginnings, expected))

    def _refuse(self, grammar: Grammar, why: str) -> None:
        self._wrong = grammar
        self.query_one("#apply", Button).disabled = True
        self.say(why, wrong=True)

    # ---- leaving ----------------------------------------------------------------------------

    def apply(self) -> None:
        """Apply the typed grammar, unless it was refused."""
        typed = self.typed
        if typed.text.strip() and typed != self._wrong:
            self.dismiss(typed)

    def take_off(self) -> None:
        """Generate without a grammar."""
        self.dismiss("off" if self._grammar is not None else None)


def usable_sentence(answer: GrammarExpected) -> str:
    """A sentence on what a valid grammar would allow; printable."""
    reading = answer.reading
    if reading is None or not reading.allowed:
        return "Valid."
    if not 0 < len(answer.expected) < 3:
        return f"Valid. {allows(reading)}"
    forced = ", ".join(visible(each.words) for each in answer.expected)
    them = "it" if reading.allowed == 1 else "them"
    return f"Valid. Allowed next: {forced} (the model gives {them} {scales.share(reading.mass)})."
