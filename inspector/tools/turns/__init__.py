"""The next message of a conversation, behind the answer of the model."""

from __future__ import annotations

from inspector.widgets.actions import applies, dialog_table, leaves, note

TURN_KEYS = dialog_table(
    "While the next message is typed",
    applies("Send it.", written="`⏎` or `{dialog.apply}`"),
    note("enter", hint="send", worth=6),
    note("ctrl+n", "Begin a new line.", "new line", 5),
    leaves("Leave; your text is kept."),
)
