"""The next message of a conversation, behind the answer of the model."""

from __future__ import annotations

from msgspec import Struct

from inspector.widgets.actions import applies, dialog_table, leaves, note


class Typed(Struct, frozen=True):
    """A typed message, and whether it is to be sent."""

    text: str
    submitted: bool


TURN_KEYS = dialog_table(
    "While the next message is typed",
    applies("Send it.", written="`⏎` or `{dialog.apply}`"),
    note("enter", hint="send", worth=6),
    note("ctrl+n", "Begin a new line.", "new line", 5),
    leaves("Leave; your text is kept."),
)
