"""A grammar that the text must match, and what it expects at each token."""

from __future__ import annotations

from inspector.widgets.actions import Action, dialog_table, note

GRAMMAR_KEYS = dialog_table(
    "While a grammar is typed",
    note("tab", hint="next field", worth=5),
    note("left right", hint="choose", worth=4),
    Action("grammar.take_off", "Take off", "Generate without a grammar.", lambda own: own.take_off(), hint="take off",
           worth=6, priority=True),
    told=False,
)  # fmt: skip
