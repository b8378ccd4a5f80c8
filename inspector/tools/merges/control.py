"""The words of a tokenizer taken apart that are on show, the questions to the engine, and the keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.protocol import Failure, TakeApart, TakenApart, WordApart
from engine.settings import LoadSettings
from inspector.main.tool import ToolActions
from inspector.session.requests import Replies
from inspector.state.merges import Around, around, final, rungs
from inspector.widgets.actions import Action, back, both, dialog_table, leaves, screen_table
from inspector.widgets.actions import applies as applied

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

WIDE = 250
"""Tokens before and after the one that is looked at whose text two tokenizers cut."""


class MergesActions(ToolActions):
    """The words on show, and the answers on them."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        client = self.controller.client
        self._ladders, self._mine, self._theirs = (Replies(client, TakenApart) for _ in range(3))
        self.other = ""
        """The second tokenizer, as it was typed."""
        self.rung: int | None = None
        """The rung of the ladder that is looked at, from 0; None for the one with the tokens."""
        self.top = 0
        """First line of what is scrolled."""

    # ---- the ladder of a word ---------------------------------------------------------------

    @property
    def place(self) -> Around | None:
        """The text around the token that is looked at."""
        return around(self.timeline.items, self.timeline.slot)

    def ladder(self, place: Around) -> TakenApart | Failure | None:
        """Return the word of a token, taken apart, or its failure; None until it is there, which this asks for."""
        timeline = self.timeline
        slot = min(timeline.slot, len(timeline.items) - 1)
        node = timeline.items[slot].node
        recorded = self._ladders.get(node) if timeline.recorded else None
        asked = TakeApart(place.text, None, place.begin, place.end, node)
        return recorded or _asked(self._ladders, asked)

    def word(self, place: Around) -> WordApart | None:
        """Return the word of a token; None until it is known."""
        found = self.ladder(place)
        return found.words[0] if isinstance(found, TakenApart) and found.words else None

    def at(self, word: WordApart) -> int:
        """Return the rung that is looked at."""
        return final(word) if self.rung is None else min(self.rung, rungs(word) - 1)

    def climb(self, by: int) -> None:
        """Look at the rung before, or at the next one."""
        place = self.place
        word = self.word(place) if place is not None else None
        if word is not None:
            self.rung = max(0, min(rungs(word) - 1, self.at(word) + by))

    def go(self, by: int) -> None:
        """Look at the word before, or at the next one."""
        timeline, place = self.timeline, self.place
        if place is None:
            return
        word = self.word(place)
        slots = place.own(word) if word is not None else ()
        slot = min(timeline.slot, len(timeline.items) - 1)
        to = slot + by if not slots else (slots[-1] + 1 if by > 0 else slots[0] - 1)
        timeline.select(max(0, min(len(timeline.items) - 1, to)))
        self.rung = None
        self.host.changed()

    # ---- two tokenizers over one text -------------------------------------------------------

    @property
    def both(self) -> tuple[TakenApart | Failure | None, TakenApart | Failure | None]:
        """The text around the token by the session's tokenizer and by the second one; None until each is there."""
        place = around(self.timeline.items, self.timeline.slot, WIDE, WIDE)
        if place is None or not self.other:
            return None, None
        theirs = TakeApart(place.text, LoadSettings(model=self.other))
        return _asked(self._mine, TakeApart(place.text)), _asked(self._theirs, theirs)


def _asked(replies: Replies[TakenApart], question: TakeApart) -> TakenApart | Failure | None:
    """Return the answer to a question, or its failure; ask it if there is neither."""
    if (known := replies.get(question) or replies.failure(question)) is None:
        replies.want(question, question)
    return known


# ---- keys ---------------------------------------------------------------------------------------


def _by_view(ladder: str, beside: str) -> Callable[[Any], str]:
    """A word for the line of keys in each of the two views."""
    return lambda own: beside if own.beside else ladder


MERGES_SCREEN = screen_table(
    "In the tokenizer",
    *both(("merges.above", "merges.below"), ("Previous merge", "Next merge"),
          "Go to the previous or the next merge; with two tokenizers scroll the lines.",
          lambda own, by: own.climb(by), hint=_by_view("merge", "line"), worth=8),
    *both(("merges.word_before", "merges.next_word"), ("Previous word", "Next word"),
          "Look at the previous or the next word.", lambda own, by: own.control.go(by),
          hint=_by_view("word", ""), worth=8),
    Action("merges.turn", "Next view", "Show the ladder of a word, or two tokenizers over the text.",
           lambda own: own.turn(), hint="view", worth=7),
    Action("merges.open", "Another", "Name the second tokenizer, a model or a tokenizer.json.",
           lambda own: own.open(), hint=_by_view("", "tokenizer"), worth=7),
    back("merges.leave", "Go back."),
    text="The library's own normalizer and pre-tokenizer cut the text into words. In BPE the pair of the lowest rank "
    "is merged first, again and again; a unigram model takes the most probable of all ways to cut a word, WordPiece "
    "the longest piece from the left. Each word's tokens are checked against the tokenizer's own.",
)  # fmt: skip
NAME_KEYS = dialog_table("In the name of a tokenizer", applied(), leaves(), told=False)
