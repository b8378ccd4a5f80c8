"""Search the vocabulary at a token, and the text."""

from __future__ import annotations

from inspector.widgets.actions import Action, dialog_table, leaves, picking, taking

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
