"""The search as a tool: the key that looks tokens up in the vocabulary and takes what is found."""

from __future__ import annotations

from typing import cast

from engine.commands import FindTokens, Recall
from engine.records import Recalled, Record, Step, TokensFound
from inspector.main.tool import BRANCH, HelpSection, Hint, Host, Key, Needs, Tool, ToolActions
from inspector.session.lookup import Lookup
from inspector.tools.find.dialog import FindDialog, FindPlace, VocabularySearch


class FindActions(ToolActions):
    """Searches the vocabulary at the token that is looked at."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._lookup = Lookup(FindTokens, TokensFound, host.controller.client)
        self._query = ""
        """What was looked for last."""
        self._dialog: FindDialog | None = None
        host.controller.client.listeners.append(self._receive)

    def open(self) -> None:
        """Ask for a part of a token, and take what is found."""
        self.controller.client.pause()
        facts = self.timeline.facts
        vocabulary = facts.vocabulary if facts else 0
        dialog = FindDialog(self._query, self._lookup, self._place, vocabulary, self._recall)
        self._dialog = cast(FindDialog, self.host.open(dialog, self._left))
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

    def _recall(self, node: int) -> None:
        self.controller.client.do(Recall((node,)))

    def _left(self, search: VocabularySearch | None) -> None:
        self._dialog = None
        if search is not None:
            self._query = search.query
            chosen = search.chosen
            self.host.answer("" if chosen is None else self.controller.navigation.choose(chosen))

    def _receive(self, record: Record) -> None:
        if isinstance(record, Recalled) and self._dialog is not None:
            self._dialog.recalled()


FIND = Tool(
    "find",
    "Find a token",
    FindActions,
    keys=(
        Key("find", "slash", "/", "Find a token", BRANCH,
            "Search the vocabulary at the token that is looked at, by a part of the text, id or bytes, and take what "
            "is found.", FindActions.open, Needs.DISTRIBUTION),
    ),
    hints=(Hint(6, ("find",), "find", 3),),
    help=(
        HelpSection(
            "While a token is searched",
            (
                ("`↑` `↓` `pgup` `pgdn`", "Go through what was found, the most probable first."),
                ("`⏎`", "Take it, as a second click on it does."),
                ("`ctrl+r`", "Compute logits that are not kept, as those inside a prompt are not."),
                ("`esc`", "Leave; what was typed is remembered."),
            ),
        ),
    ),
)  # fmt: skip
