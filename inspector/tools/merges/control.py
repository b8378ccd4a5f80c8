"""What is looked at of a tokenizer taken apart and asked of the engine, the training of one's own, and the keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from engine.errors import EngineError
from engine.protocol import Failure, TakeApart, TakenApart, WordApart
from engine.settings import LoadSettings
from inspector.main.tool import Host
from inspector.session.requests import Replies
from inspector.state.merges import Around, MergesSeen, around, final, rungs
from inspector.widgets.actions import Action, back, both, dialog_table, leaves, screen_table
from inspector.widgets.actions import applies as applied

if TYPE_CHECKING:
    from engine.merges.trained import TrainedSize, TrainedTokenizer

View = Literal["ladder", "beside", "trained"]
VIEWS: tuple[View, ...] = ("ladder", "beside", "trained")
WIDE = 250
"""Tokens before and after the one that is looked at whose text two tokenizers cut."""
SHOWN = 4_000
"""Characters of the training text that are shown cut at most."""


class MergesControl:
    """The words on show, and the answers on them.

    Args:
        host: The main screen.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        client = host.controller.client
        self._ladders = Replies(client, TakenApart, lambda reply: reply.node)
        self._mine = Replies(client, TakenApart, lambda reply: reply.node)
        self._theirs = Replies(client, TakenApart, lambda reply: reply.node)
        self.other = ""
        """The second tokenizer, as a person named it."""
        self.rung: int | None = None
        """Of the ladder, from 0; None for the one with the tokens."""
        self.top = 0
        """First line of what is scrolled."""
        self.trained: TrainedTokenizer | None = None
        self.fault = ""
        """Why nothing could be trained; not printable."""
        self.source = ""
        """The file that it is trained on; empty for the session's text."""
        self._size = 0
        """Its place among the sizes; that of the last where it is none of them."""
        self._turns = 0
        """Trainings that were begun."""
        self._shown: tuple[TrainedTokenizer, tuple[WordApart, ...]] | None = None

    # ---- the ladder of a word ---------------------------------------------------------------

    @property
    def place(self) -> Around | None:
        """The text around the token that is looked at."""
        timeline = self.host.controller.timeline
        return around(timeline.items, timeline.slot)

    def ladder(self, place: Around) -> TakenApart | Failure | None:
        """The word of a token, taken apart, or why it isn't; None while it is on its way, which this asks for."""
        timeline = self.host.controller.timeline
        slot = min(timeline.slot, len(timeline.items) - 1)
        node = timeline.items[slot].node
        recorded = timeline.of(MergesSeen).ladders.get(node) if timeline.recorded else None
        asked = TakeApart(place.text, None, place.begin, place.end, node)
        return recorded or _asked(self._ladders, asked)

    def word(self, place: Around) -> WordApart | None:
        """The word of a token; None while it isn't known."""
        found = self.ladder(place)
        return found.words[0] if isinstance(found, TakenApart) and found.words else None

    def at(self, word: WordApart) -> int:
        """The rung that is looked at."""
        return final(word) if self.rung is None else min(self.rung, rungs(word) - 1)

    def climb(self, by: int) -> None:
        """Look at the rung before, or at the next one."""
        place = self.place
        word = self.word(place) if place is not None else None
        if word is not None:
            self.rung = max(0, min(rungs(word) - 1, self.at(word) + by))

    def go(self, by: int) -> None:
        """Look at the word before, or at the next one."""
        timeline, place = self.host.controller.timeline, self.place
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
        """The text around the token by the session's tokenizer and by the second one; None for what is on its way."""
        timeline = self.host.controller.timeline
        place = around(timeline.items, timeline.slot, WIDE, WIDE)
        if place is None or not self.other:
            return None, None
        theirs = TakeApart(place.text, LoadSettings(model=self.other))
        return _asked(self._mine, TakeApart(place.text)), _asked(self._theirs, theirs)

    # ---- one of one's own -------------------------------------------------------------------

    @property
    def size(self) -> TrainedSize | None:
        """The vocabulary that is looked at."""
        return self.trained.sizes[min(self._size, len(self.trained.sizes) - 1)] if self.trained else None

    def resize(self, by: int) -> None:
        """Look at a smaller vocabulary, or at a larger one."""
        if self.trained is not None:
            last = len(self.trained.sizes) - 1
            self._size = max(0, min(last, min(last, self._size) + by))

    def train(self, then: Callable[[], object]) -> None:
        """Train on the file that was named, or on the session's text; what is being trained no longer matters.

        Args:
            then: Called once it is trained, or can't be.
        """
        items, source = [*self.host.controller.timeline.items], self.source
        self._turns += 1
        turn = self._turns
        self.fault, self.trained, self._shown = "", None, None

        def work() -> TrainedTokenizer | EngineError:
            from engine.merges.trained import MOST, TrainedTokenizer

            try:
                text = _read(source) if source else ""
                if not source:
                    said = b"".join(item.raw for item in items if not item.special)
                    text = said.decode("utf-8", "replace")
                return TrainedTokenizer(text[:MOST])
            except EngineError as error:
                return error

        def trained(made: TrainedTokenizer | EngineError) -> None:
            if turn == self._turns:
                self._take(made)
                then()

        self.host.in_background(work, trained)

    def _take(self, made: TrainedTokenizer | EngineError) -> None:
        if isinstance(made, EngineError):
            self.fault = str(made)
            return
        self.trained = made
        self._size = next(
            (place for place, size in enumerate(made.sizes) if size.vocabulary >= 512), len(made.sizes)
        )

    @property
    def shown_words(self) -> tuple[WordApart, ...]:
        """The words of the training text's beginning, as the largest vocabulary cuts them."""
        if self.trained is None:
            return ()
        if self._shown is None or self._shown[0] is not self.trained:
            self._shown = self.trained, self.trained.apart.take(self.trained.text[:SHOWN]).words
        return self._shown[1]


def _asked(replies: Replies[TakenApart], question: TakeApart) -> TakenApart | Failure | None:
    """What was answered to a question, or why it wasn't; else it is asked."""
    if (known := replies.get(question) or replies.failure(question)) is None:
        replies.want(question, question)
    return known


def _read(source: str) -> str:
    from inspector.texts import decoded, read_text_file

    raw = read_text_file(source, "text", "Check the path's spelling.", "Give a regular file.")
    return decoded(raw, source)


# ---- keys ---------------------------------------------------------------------------------------

MERGES_SCREEN = screen_table(
    "In the tokenizer",
    *both(("merges.above", "merges.below"), ("Previous merge", "Next merge"),
          "Go to the previous or the next merge; with two tokenizers, or one of your own, scroll the "
          "lines.", lambda own, by: own.climb(by), hint=lambda own: own.steps, worth=8),
    *both(("merges.word_before", "merges.next_word"), ("Previous word", "Next word"),
          "Look at the previous or the next word; with a tokenizer of your own, make its vocabulary smaller or "
          "larger.", lambda own, by: own.go(by), hint=lambda own: own.sides, worth=8),
    Action("merges.turn", "Next view", "Show the ladder of a word, two tokenizers over the text, or a tokenizer that "
           "is trained now.", lambda own: own.turn(), hint="view", worth=7),
    Action("merges.open", "Another", "Name the second tokenizer, a model or a tokenizer.json; or a text to train on.",
           lambda own: own.open(), hint=lambda own: own.opens, worth=7),
    back("merges.leave", "Go back."),
    text="The library's own normalizer and pre-tokenizer cut the text into words. In BPE the pair of the lowest rank "
    "is merged first, again and again; a unigram model takes the most probable of all ways to cut a word, WordPiece "
    "the longest piece from the left. Each word's tokens are checked against the tokenizer's own. A tokenizer that is "
    "trained here is byte-level BPE: training adds the most frequent pair, so that a smaller vocabulary is "
    "the beginning of a larger one.",
)  # fmt: skip
NAME_KEYS = dialog_table("In the name of a tokenizer or a text", applied(), leaves(), told=False)
