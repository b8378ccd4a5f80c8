"""Searching as a tool: a key for what could stand at a token, the vocabulary, and one for the text that is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.frozen import frozen
from engine.protocol import Recall, Recalled, Step
from inspector.main.tool import Host, Tool, ToolActions
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.widgets.actions import Action, Needs, dialog_table, leaves, picking, taking


@frozen
class FindPlace:
    """The place of a search in the vocabulary."""

    node: int
    """The tokens would follow it."""
    name: str
    """As the title calls it; printable."""
    taken: int | None
    """Id of the token there, or of the one that a step would take."""


@frozen
class VocabularySearch:
    """A search in the vocabulary, and the choice that it ended with."""

    query: str
    chosen: int | None
    """Token id, None where the dialog was left."""
    in_text: bool = False
    """True if it was left to look for the same in the text."""


@frozen
class TextPlace:
    """One place where a text stands, on the path or on another branch."""

    first: int
    """Node of its first token."""
    last: int
    """Node of its last one: its branch is that of the place."""
    on_path: bool


@frozen
class TextSearch:
    """A search in the text, and the choice that it ended with."""

    query: str = ""
    everywhere: bool = False
    chosen: TextPlace | None = None
    """None where the dialog was left."""


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
        return FindPlace(timeline.before, name, timeline.taken)

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
