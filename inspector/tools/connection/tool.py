"""The connection to an engine elsewhere as a tool: the key that shows how it stands."""

from __future__ import annotations

from inspector.keys import KEYS, key_for
from inspector.main.tool import SET_UP, HelpSection, Key, Tool, ToolActions

HERE = "The engine runs in this program. inspector --connect ADDRESS uses one elsewhere"


class ConnectionActions(ToolActions):
    """Shows how it stands with the engine."""

    def open(self) -> None:
        """Show it, and what can be done about it."""
        from inspector.tools.connection.dialog import ConnectionDialog

        connection = self.controller.connection
        if connection is None:
            self.host.answer(HERE)
        else:
            self.host.open(ConnectionDialog(connection))


CONNECTION = Tool(
    "connection",
    "Engine",
    ConnectionActions,
    keys=(
        Key("connection", *KEYS["connection"], "Engine", SET_UP,
            "Show how it stands with an engine elsewhere: try a lost connection again now, or give it up.",
            ConnectionActions.open),
    ),
    help=(
        HelpSection(
            "With an engine elsewhere",
            (
                (f"`{key_for('connection')}` then `t`", "Try a lost connection now, rather than in some seconds."),
                (f"`{key_for('connection')}` then `x`",
                 f"Give it up: the session goes on as a replay, `{key_for('go_live')}` begins with a fresh engine."),
            ),
        ),
    ),
)  # fmt: skip
