"""The connection to an engine elsewhere as a tool: the key that shows how it stands."""

from __future__ import annotations

from inspector.main.tool import Tool, ToolActions
from inspector.tools.connection import CONNECTION_KEYS
from inspector.widgets.actions import Action

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
    actions=(
        Action("connection", "Engine",
            "Show the connection to an engine elsewhere: reconnect now, or give it up.",
            ConnectionActions.open,
            synonyms="remote, server, connect, remote engine, network, reconnect"),
    ),
    owners=(CONNECTION_KEYS,),
)  # fmt: skip
