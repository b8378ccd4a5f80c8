"""Searching as a tool: a key for what could stand at a token, the vocabulary, and one for the text that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspector.main.tool import Tool, ToolActions
from inspector.tools.find import FIND_KEYS, TEXT_KEYS
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen
    from inspector.tools.find.dialog import TextPlace


class FindActions(ToolActions):
    """Searches the vocabulary at the selected token, and the text."""

    def __init__(self, host: MainScreen) -> None:
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
