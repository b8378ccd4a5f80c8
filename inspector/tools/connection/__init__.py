"""The connection to an engine elsewhere: how it stands, tried again, given up."""

from __future__ import annotations

from inspector.widgets.actions import Action, dialog_table

CONNECTION_KEYS = dialog_table(
    "With an engine elsewhere",
    Action("connection.try_now", "Try now", "Reconnect now instead of after the wait.",
           lambda own: own.try_now(), hint="try now", worth=6, written="`{connection}` then `{connection.try_now}`"),
    Action("connection.give_up", "Give up",
           "Give up: the session becomes a replay, and `{go_live}` continues it with a new engine.",
           lambda own: own.give_up(), hint="give up", worth=6, written="`{connection}` then `{connection.give_up}`"),
)  # fmt: skip
