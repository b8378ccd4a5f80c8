"""Searching as a tool: a key for what could stand at a token, the vocabulary, and one for the text that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspector.main.tool import Host, Tool, ToolActions
from inspector.widgets.actions import Action, Needs, dialog_table, leaves, picking, taking

if TYPE_CHECKING:
    from inspector.tools.find.dialog import TextPlace


class FindActions(ToolActions):
    """Searches the vocabulary at the selected token, and the text."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._query = ""
        """The last query."""
        self._in_text = ("", False)
        """The last one in the text, and whether it was for all branches."""

    def open(self) -> None:
        """Ask for a part of a token, and take what is found."""
        from inspector.tools.find.dialog import FindDialog

        self.controller.client.pause()
        self.host.open(FindDialog(self._query, self.controller), self._left)
        self.host.answer()

    def _left(self, search: tuple[str, int | None, bool] | None) -> None:
        if search is None:
            return
        query, chosen, in_text = search
        if in_text:
            self._in_text = (query, self._in_text[1])
            self.find_in_text()
        else:
            self._query = query
            self.host.answer("" if chosen is None else self.controller.navigation.choose(chosen))

    def find_in_text(self) -> None:
        """Ask for a text, and show where it stands."""
        from inspector.tools.find.dialog import TextSearchDialog

        self.host.open(TextSearchDialog(*self._in_text, lambda: self.timeline, self._look), self._found)
        self.host.answer()

    def _look(self, slot: int | None) -> None:
        self.timeline.select(slot)
        self.host.changed()

    def _found(self, search: tuple[str, bool, TextPlace | None] | None) -> None:
        if search is None:
            return
        query, everywhere, place = search
        self._in_text = (query, everywhere)
        if place is not None and place.last in self.timeline.tree.branches:
            self.controller.navigation.go_to(place.first, place.last)
            self.host.answer()


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
FIND = Tool(
    "find",
    "Find a token",
    FindActions,
    actions=(
        Action("find", "Find a token",
            "Search the vocabulary at the selected token, by a part of the text, id or bytes, and take a token that "
            "is found; {find_in_text} finds in the text.", FindActions.open, Needs.DISTRIBUTION,
            hint="token", worth=3, place=60,
            synonyms="search vocabulary, search token, find token id, look up a token", view="find…"),
        Action("find_in_text", "Find in the text",
            "Find a text, an id or bytes among the tokens of this path or of all branches; {find} searches the "
            "vocabulary.", FindActions.find_in_text, Needs.DISTRIBUTION, looks=True,
            synonyms="find text, search text, search in the output"),
    ),
    owners=(FIND_KEYS, TEXT_KEYS),
)  # fmt: skip
