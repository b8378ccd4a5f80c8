"""The connection to an engine elsewhere as a tool: the key that shows how it stands."""

from __future__ import annotations

from inspector.main.tool import Tool, ToolActions
from inspector.widgets.actions import Action, dialog_table

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


CONNECTION_KEYS = dialog_table(
    "With an engine elsewhere",
    Action("connection.try_now", "Try now", "Reconnect now instead of after the wait.",
           lambda own: own.try_now(), hint="try now", worth=6, written="`{connection}` then `{connection.try_now}`"),
    Action("connection.give_up", "Give up",
           "Give up: the session becomes a replay, and `{go_live}` continues it with a new engine.",
           lambda own: own.give_up(), hint="give up", worth=6, written="`{connection}` then `{connection.give_up}`"),
)  # fmt: skip
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
