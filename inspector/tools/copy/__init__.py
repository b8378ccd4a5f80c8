"""Putting a token, a text or a path on the terminal's clipboard."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from inspector.widgets.actions import dialog_table, leaves, picking, taking


class Copyable(Struct, frozen=True):
    """One thing that can be copied."""

    key: str
    """The letter that takes it."""
    name: str
    """As a sentence calls it: `the token`."""
    preview: str
    """Its beginning, printable."""
    text: Callable[[], str]
    complete: bool = False
    """True if it says what the tokens were made with."""


COPY_KEYS = dialog_table(
    "While something is copied",
    *picking("Go through what can be copied.", "choose"),
    taking("Copy it to the terminal's clipboard.", "copy", written="`⏎`, or the letter before it"),
    leaves("Leave."),
)
