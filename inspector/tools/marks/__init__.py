"""The marks of a session: the way from one to the next, and a list of them all."""

from __future__ import annotations

from msgspec import Struct

from inspector.widgets.actions import dialog_table, leaves, picking, taking


class MarkedPlace(Struct, frozen=True):
    """One token with a mark. Texts are printable."""

    node: int
    signs: str
    """Bookmark, note, caption and branches, a sign each."""
    position: int
    """Place in the context, from 1."""
    before: str
    token: str
    after: str
    branch: str
    """The name of its branch or how that begins; empty on the current path."""
    written: str
    """The name, note or caption that was written there."""


MARKS_KEYS = dialog_table(
    "In the list of marks",
    *picking("Go through them: those of the path first, then those of other branches.", "mark"),
    taking("Go there, as a second click on it does; on another branch the KV cache moves.", "go there"),
    leaves("Leave."),
)
