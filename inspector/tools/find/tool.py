"""Searching as a tool: a key for what could stand at a token, the vocabulary, and one for the text that is there."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from engine.protocol import Recall, Recalled, Step
from inspector.main.tool import Host, Tool, ToolActions
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.tools.find import FIND_KEYS, TEXT_KEYS, FindPlace, TextSearch, VocabularySearch
from inspector.widgets.actions import Action, Needs


class FindActions(ToolActions):
    """Searches the vocabulary at the token that is looked at, and the text."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._lookup = Latest(host.controller.client)
        self._query = ""
        """The last query."""
        self._in_text = TextSearch()
        """The last search in the text."""

    def open(self) -> None:
        """Ask for a part of a token, and take what is found."""
        from inspector.tools.find.dialog import FindDialog

        self.controller.client.pause()
        facts = self.timeline.facts
        vocabulary = facts.vocabulary if facts else 0
        dialog = FindDialog(self._query, self._lookup, self._place, vocabulary, self._recall)
        self.host.open(dialog, self._left)
        self.host.answer()

    def _place(self) -> FindPlace:
        timeline = self.timeline
        item = timeline.selected
        name = "the token to come"
        if isinstance(item, Step):
            name = f"step {item.index + 1}"
        elif item is not None:
            name = f"prompt token {timeline.slot + 1}"
        reroll = timeline.distribution.reroll if timeline.distribution is not None else 0
        return FindPlace(
            timeline.before, name, timeline.taken, self.controller.queries.used(timeline), reroll
        )

    def _recall(self, node: int, then: Callable[[], None]) -> None:
        """Have logits computed again, and call `then` where they were."""

        def recalled(request: Request[Recall]) -> None:
            if request.reply(Recalled) is not None:
                then()

        self.controller.client.do(Recall((node,)), recalled)

    def _left(self, search: VocabularySearch | None) -> None:
        if search is not None and search.in_text:
            self._in_text = replace(self._in_text, query=search.query)
            self.find_in_text()
        elif search is not None:
            self._query = search.query
            chosen = search.chosen
            self.host.answer("" if chosen is None else self.controller.navigation.choose(chosen))

    def find_in_text(self) -> None:
        """Ask for a text, and show where it stands."""
        from inspector.tools.find.text_dialog import TextSearchDialog

        self.host.open(TextSearchDialog(self._in_text, lambda: self.timeline, self._look), self._found)
        self.host.answer()

    def _look(self, slot: int | None) -> None:
        self.timeline.select(slot)
        self.host.changed()

    def _found(self, search: TextSearch | None) -> None:
        if search is None:
            return
        self._in_text = replace(search, chosen=None)
        place = search.chosen
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
