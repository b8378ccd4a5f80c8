"""The work of a tokenizer: the ladder of a word's merges, and two tokenizers over one text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult

from engine.protocol import Failure, TakeApart, TakenApart, WordApart
from engine.settings import LoadSettings
from inspector.display import pad, quoted, truncate, truncate_middle, visible
from inspector.keys import key_for
from inspector.main.dialogs.field import FieldDialog
from inspector.main.tool import Host
from inspector.main.view import View
from inspector.scales import counted
from inspector.session.requests import Replies
from inspector.state.merges import (
    BORDER,
    NAMES,
    Around,
    Rung,
    around,
    columns,
    faced,
    final,
    head,
    labels,
    rung,
    rungs,
    summed,
    unknown,
    word_label,
)
from inspector.widgets.actions import Action, ActionTable, back, both, dialog_table, screen_table
from inspector.widgets.canvas import Canvas, DrawnPanel, Row, centred, paragraph, wrapped
from inspector.widgets.charts import in_sight

WIDE = 250
"""Tokens before and after the selected one whose text is given to two tokenizers."""
RANK = 9
"""Cells of the first column."""
ROOMY = 12
"""Rows from which there is room for the meaning of a rung."""
NAMED = "pocket, a model's directory, a hub id, or a tokenizer.json."
ABOUT = {
    "bpe": "Of all neighbouring pairs the one with the lowest rank is merged; then again, until no pair is in the "
    "list. Ranks are the order in which training found them: the most frequent first.",
    "unigram": "Each piece has a probability of its own. The way to cut the word whose product is largest is taken; "
    "the next best ones are below it.",
    "wordpiece": "From the left the longest piece of the vocabulary is cut off, then that of the rest.",
}


def _by_view(ladder: str, beside: str) -> Callable[[Any], str]:
    """A word for the line of keys in each of the two views."""
    return lambda own: beside if own.beside else ladder


MERGES_KEYS = screen_table(
    "In merges",
    *both(("merges.above", "merges.below"), ("Previous merge", "Next merge"),
          "Go to the previous or the next merge; with two tokenizers scroll the lines.",
          lambda own, by: own.climb(by), hint=_by_view("merge", "line"), worth=8),
    *both(("merges.word_before", "merges.next_word"), ("Previous word", "Next word"),
          "Look at the previous or the next word.", lambda own, by: own.go(by),
          hint=_by_view("word", ""), worth=8),
    Action("merges.turn", "Next view", "Show the ladder of a word, or two tokenizers over the text.",
           lambda own: own.turn(), hint="view", worth=7),
    Action("merges.open", "Another", "Name the second tokenizer, a model or a tokenizer.json.",
           lambda own: own.name_other(), hint=_by_view("", "tokenizer"), worth=7),
    back("merges.leave", "Go back."),
    text="The library's own normalizer and pre-tokenizer cut the text into words. In BPE the pair of the lowest rank "
    "is merged first, again and again; a unigram model takes the most probable of all ways to cut a word, WordPiece "
    "the longest piece from the left. Each word's tokens are checked against the tokenizer's own.",
)  # fmt: skip


class MergesView(View):
    """Goes from word to word and from merge to merge."""

    TOOL: ClassVar[str] = "merges"
    ACTIONS: ClassVar[ActionTable] = MERGES_KEYS

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        client = self.controller.client
        self._ladders, self._mine, self._theirs = (Replies(client, TakenApart) for _ in range(3))
        self._other = ""
        """The second tokenizer, as it was typed."""
        self._rung: int | None = None
        """The selected rung of the ladder, from 0; None for the one with the tokens."""
        self._top = 0
        """The first pair of lines that is shown."""
        self.beside = False
        """True for two tokenizers over the text, False for the ladder of a word."""

    def body(self) -> ComposeResult:
        yield DrawnPanel(id="merges-panel")

    # ---- asking -----------------------------------------------------------------------------

    @property
    def place(self) -> Around | None:
        """The text around the selected token."""
        return around(self.timeline.items, self.timeline.slot)

    @property
    def slot(self) -> int:
        """The selected slot, or that of the last token."""
        return min(self.timeline.slot, len(self.timeline.items) - 1)

    def taken(self) -> TakenApart | Failure | None:
        """The trace of the selected token's word, or the failure; asks for it and returns None if there is neither."""
        if (place := self.place) is None:
            return None
        node = self.timeline.items[self.slot].node
        recorded = self._ladders.get(node) if self.timeline.recorded else None
        question = TakeApart(place.text, None, place.begin, place.end, node)
        return recorded or _asked(self._ladders, question)

    @property
    def word(self) -> WordApart | None:
        """The word of the selected token; None until it is known."""
        found = self.taken()
        return found.words[0] if isinstance(found, TakenApart) and found.words else None

    def at(self, word: WordApart) -> int:
        """The selected rung."""
        return final(word) if self._rung is None else min(self._rung, rungs(word) - 1)

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        panel = self.query_one("#merges-panel", DrawnPanel)
        if self.beside:
            name = truncate_middle(visible(self._other), max(8, self.area.width // 2))
            panel.put("Two tokenizers", self._two, name)
        else:
            found, subtitle = self.taken(), ""
            if isinstance(found, TakenApart) and found.words:
                word = found.words[0]
                label = truncate(word_label(word), max(8, self.area.width // 3))
                tokens = counted(len(word.ids), "token")
                subtitle = f"{label} · {tokens} · {NAMES[found.algorithm]}"
            panel.put("Merges", self._ladder, subtitle)
        self.write()

    def situation(self) -> str:
        """The keys for what is shown."""
        turn = key_for("merges.turn")
        if self.beside and not self._other:
            return f"{key_for('merges.open')} names the second one: a model, or a tokenizer.json"
        if self.place is None and not self.beside:
            return f"No token yet: {key_for('prompt')} writes a prompt"
        if self.beside:
            return f"{key_for('merges.open')} names another, ↑ ↓ scroll; {turn} for the ladder"
        return f"↑ ↓ go through the merges, ← → from word to word; {turn} for two tokenizers"

    def _ladder(self, on: Canvas, width: int, height: int) -> list[Row]:
        if (place := self.place) is None:
            return self.empty(
                on, width, height, "The merges that made the selected token from its characters."
            )
        found = self.taken()
        if isinstance(found, Failure):
            return _noted(on, width, height, visible(found.message), visible(found.hint))
        if found is None:
            return _noted(on, width, height, "Taking the word apart")
        if not found.words:
            return _noted(on, width, height, "The tokenizer makes no token of this.")
        word = found.words[0]
        at = self.at(word)
        below = _below(on, found, place, at, width)[: max(0, height - 8)] if height >= ROOMY else []
        room = max(1, height - 2 - len(below))
        rows: list[Row] = [
            [Segment(f"{pad(head(found.algorithm), RANK, right=True)}  pieces", on.ink("muted"))]
        ]
        for each in in_sight(rungs(word), room, at):
            made, base = rung(word, each), on.ink("row") if each == at else on.rich_style
            begin = f"{'›' if each == at else ' '}{pad(made.of, RANK - 1, right=True)}  "
            rows.append([Segment(begin, base), *pieces_in(on, made, base, width - RANK - 2)])
        return [*rows, *below]

    def _two(self, on: Canvas, width: int, height: int) -> list[Row]:
        if not self._other:
            return self.empty(on, width, height, "How two tokenizers cut the text around the selected token.")
        cut: list[TakenApart] = []
        place = around(self.timeline.items, self.timeline.slot, WIDE, WIDE)
        for replies, load in ((self._mine, None), (self._theirs, LoadSettings(model=self._other))):
            found = _asked(replies, TakeApart(place.text, load)) if place is not None else None
            if isinstance(found, Failure):
                return _noted(on, width, height, visible(found.message), visible(found.hint))
            cut += [found] if found is not None else []
        if len(cut) < 2:
            return _noted(on, width, height, "Cutting the text twice")
        inks = on.ink("primary"), on.ink("warn")
        rows: list[Row] = []
        for name, taken, ink in zip(("this model", cut[1].name), cut, inks, strict=True):
            words = truncate_middle(visible(name), max(8, width // 3))
            rows.append([Segment(truncate(f"{words}: {summed(taken)}", width), ink)])
        rows.append([])
        pairs = [*faced(columns(*cut), width)]
        room = max(1, (height - len(rows)) // 3)
        self._top = max(0, min(self._top, len(pairs) - room))
        for pair in pairs[self._top : self._top + room]:
            rows += [[Segment(truncate(text, width), ink)] for text, ink in zip(pair, inks, strict=True)]
            rows.append([])
        return rows

    # ---- keys -------------------------------------------------------------------------------

    def climb(self, by: int) -> None:
        """Select the previous rung or the next one; scroll the two tokenizers."""
        if self.beside:
            self._top = max(0, self._top + by)
        elif (word := self.word) is not None:
            self._rung = max(0, min(rungs(word) - 1, self.at(word) + by))

    def go(self, by: int) -> None:
        """Look at the previous or the next word."""
        if (place := self.place) is None:
            return
        word = self.word
        slots = (place.own(word) if word is not None else ()) or (self.slot,)
        to = slots[-1] + 1 if by > 0 else slots[0] - 1
        self.timeline.select(max(0, min(len(self.timeline.items) - 1, to)))
        self._rung = None
        self.host.changed()

    def turn(self) -> None:
        self.beside = not self.beside
        self._top = 0

    def name_other(self) -> None:
        self.beside = True
        self.host.open(NameDialog(self._other, "", NAMED), self._named)

    def _named(self, name: str | None) -> None:
        if name is not None:
            self._top, self._other = 0, name
            self.changed()


def _asked(replies: Replies[TakenApart], question: TakeApart) -> TakenApart | Failure | None:
    """The answer to a question, or its failure; asks it if there is neither."""
    if (known := replies.get(question) or replies.failure(question)) is None:
        replies.want(question, question)
    return known


def _noted(on: Canvas, width: int, height: int, *lines: str) -> list[Row]:
    """Sentences in the middle of the panel, with a free cell at each edge."""
    texts = [each for line in lines for each in wrapped(line, width - 2)]
    return centred([(text, on.ink("muted")) for text in texts], width, height)


def pieces_in(on: Canvas, made: Rung, base: Style, width: int) -> Iterator[Segment]:
    """The pieces of a rung, without the first ones if the new piece would be out of sight; the row is cut at the edge.

    Args:
        on: Provides the inks.
        made: The rung.
        base: The style of all pieces.
        width: Cells in sight.
    """
    names, begin, muted = labels(made.pieces), 0, on.ink("muted")
    if made.new is not None:
        upto = names[: made.new + 1]
        room = sum(cell_len(name) + 1 for name in upto) - (upto == names)  # no border after the last one
        while begin < made.new and room > width:
            room -= cell_len(names[begin]) + 1
            begin += 1
    if begin:
        yield Segment("…", muted)
    for place, name in enumerate(names[begin : begin + width], begin):  # each takes a cell at least
        if place > begin:
            yield Segment(BORDER, muted)
        yield Segment(name, base + on.ink("accent") if place == made.new else base)


def _below(on: Canvas, taken: TakenApart, place: Around, at: int, width: int) -> list[Row]:
    """The meaning of the selected rung, and whether the text has the same tokens."""
    word, notes = taken.words[0], []
    written = [place.tokens[slot - place.first].raw for slot in place.own(word)]
    if tuple(written) != word.pieces() and b"".join(word.symbols) in b"".join(written):
        notes.append(
            f"The text has it as {BORDER.join(labels(written))}, which the tokenizer would not cut so."
        )
    if unknown(taken, word):
        notes.append("For some of it there is no piece: that is the unknown token.")
    return [
        [],
        *paragraph(on.ink("accent"), width, _meaning(taken, word, at)),
        *paragraph(on.ink("muted"), width, *notes),
        [],
        *paragraph(on.ink("muted"), width, ABOUT[taken.algorithm]),
    ]


def _meaning(taken: TakenApart, word: WordApart, at: int) -> str:
    """The meaning of a rung, in a sentence."""
    made = rung(word, at)
    pieces = len(made.pieces)
    if word.added:
        return "A token beside the vocabulary: it is cut out of the text before all others."
    if taken.algorithm == "bpe" and made.new is not None and isinstance(made.value, int):
        before = rung(word, at - 1).pieces
        left, right = labels(before[made.new : made.new + 2])[:2]
        of = f"rank {made.value:,} of {taken.merges:,}: {counted(pieces, 'piece')}"
        return f"{left} + {right} = {labels(made.pieces)[made.new]}, {of}."
    if taken.algorithm == "unigram":
        return f"The {at + 1}. best way, which is not taken." if at else "The most probable way: the tokens."
    if taken.algorithm == "wordpiece":
        return f"{quoted(labels(made.pieces)[at])} is the longest piece that the rest begins with."
    if pieces == 1:
        return "One piece: nothing is to be merged."
    stay = ", and no pair of them is in the list: they stay" if rungs(word) == 1 else ""
    return f"{pieces:,} pieces to begin with{stay}."


class NameDialog(FieldDialog[str]):
    """Asks for a tokenizer's name."""

    ACTIONS: ClassVar[ActionTable] = dialog_table("In the name of a tokenizer", told=False)
    HEADING: ClassVar[str] = "Second tokenizer"
    APPLY: ClassVar[str] = "Compare"
    FIELD: ClassVar[str] = "merges-name"

    def apply(self) -> None:
        self.dismiss(self.typed)
