"""Requests of a server, opened as sessions."""

from __future__ import annotations

from inspector.widgets.actions import dialog_table, picking, taking

REQUESTS_KEYS = dialog_table(
    "In the list of requests",
    *picking("Choose a request.", "choose"),
    taking("Read the named file, or open the chosen request.", "open"),
)
