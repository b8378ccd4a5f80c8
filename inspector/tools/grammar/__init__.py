"""A grammar that the text must match, and what it expects at each token."""

from __future__ import annotations

from msgspec import Struct

from engine.grammar_settings import Grammar
from inspector.widgets.actions import Action, dialog_table, note


class GrammarChosen(Struct, frozen=True):
    """The result of the dialog."""

    grammar: Grammar | None
    """None to take it off."""


class GrammarPlace(Struct, frozen=True):
    """The place where a grammar would begin, and where it is tried."""

    node: int
    here: int
    """Tokens of the path before the place that is looked at."""
    begun: bool = False
    """True if the answer has tokens before that place: a new grammar begins behind them."""


GRAMMAR_KEYS = dialog_table(
    "While a grammar is typed",
    note("tab", hint="next field", worth=5),
    note("left right", hint="choose", worth=4),
    Action("grammar.take_off", "Take off", "Generate without a grammar.", lambda own: own.take_off(), hint="take off",
           worth=6, priority=True),
    told=False,
)  # fmt: skip
