"""Text of one's own, put into the path."""

from __future__ import annotations

from inspector.display import quoted, token_label, truncate
from inspector.state.session_tree import Item
from inspector.widgets.actions import applies, dialog_table, leaves, note

LABEL = 20
"""Cells of a token's text in a sentence at most."""


def label_of(item: Item) -> str:
    """A token, as a sentence names it."""
    return quoted(truncate(token_label(item.text, item.raw), LABEL))


OWN_TEXT_KEYS = dialog_table(
    "While a text of your own is typed",
    applies("Insert it.", written="`⏎` or `{dialog.apply}`"),
    note("enter", hint="insert", worth=6),
    note("ctrl+n", "Begin a new line.", "new line", 5),
    leaves("Leave; your text is kept."),
)
