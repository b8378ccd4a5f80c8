"""Breakpoints, and the places on a path that are worth a look."""

from __future__ import annotations

from inspector.widgets.actions import Action, dialog_table, fields, taking

BREAKPOINT_KEYS = dialog_table(
    "Among the breakpoints",
    *fields(),
    taking(),
    Action("breakpoints.clear", "Clear all", "Turn every breakpoint off.", lambda own: own.clear_all(),
           hint="clear all", worth=4, priority=True),
    told=False,
)  # fmt: skip
