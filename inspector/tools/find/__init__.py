"""Search the vocabulary at a token."""

from __future__ import annotations

from msgspec import Struct

from engine.settings import Settings
from inspector.widgets.actions import Action, dialog_table, leaves, picking, taking


class FindPlace(Struct, frozen=True):
    """The place of a search in the vocabulary."""

    node: int
    """The tokens would follow it."""
    name: str
    """As the title calls it; printable."""
    taken: int | None
    """Id of the token there, or of the one that a step would take."""
    settings: Settings | None = None
    """With which it was, or will be, picked, where they are known."""
    reroll: int = 0
    """How often its draw was repeated."""


class VocabularySearch(Struct, frozen=True):
    """A search in the vocabulary, and the choice that it ended with."""

    query: str
    chosen: int | None
    """Token id, None where the dialog was left."""
    in_text: bool = False
    """True if it was left to look for the same in the text."""


class TextPlace(Struct, frozen=True):
    """One place where a text stands, on the path or on another branch."""

    first: int
    """Node of its first token."""
    last: int
    """Node of its last one: its branch is that of the place."""
    on_path: bool


class TextSearch(Struct, frozen=True):
    """A search in the text, and the choice that it ended with."""

    query: str = ""
    everywhere: bool = False
    chosen: TextPlace | None = None
    """None where the dialog was left."""


FIND_KEYS = dialog_table(
    "While a token is searched",
    *picking("Go through what was found, the most probable first.", "match", 6),
    taking("Take it, as a second click on it does."),
    Action("find.recall", "Compute logits", "Compute logits that were not kept, such as those inside a prompt.",
           lambda own: own.recall(), hint="compute logits", worth=4, priority=True),
    Action("find.in_text", "In the text instead", "Search the text for the same instead.", lambda own: own.in_text(),
           hint="in the text instead", worth=3, priority=True),
    leaves("Leave; your text is kept."),
)  # fmt: skip
TEXT_KEYS = dialog_table(
    "While a text is found",
    *picking("Go through the places; the text shows those of the path at once.", "place", 6),
    taking("Stay there; for a place on another branch the KV cache moves.", "go there", 7),
    Action("find.scope", "All branches", "Search all branches, or only this path.", lambda own: own.change_scope(),
           hint="path or all", worth=4, priority=True),
    leaves("Go back to where you were."),
)  # fmt: skip
