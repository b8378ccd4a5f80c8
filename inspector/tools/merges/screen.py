"""The screen of a tokenizer taken apart: a word's ladder, and two tokenizers over the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.widget import Widget

from engine.protocol import Failure, TakenApart, WordApart
from inspector.display import pad, quoted, truncate, truncate_middle, visible
from inspector.keys import key_for
from inspector.main.view import View
from inspector.scales import count
from inspector.state.merges import (
    BORDER,
    NAMES,
    Around,
    Rung,
    columns,
    faced,
    head,
    labels,
    rung,
    rungs,
    summed,
    unknown,
    word_label,
)
from inspector.tools.merges.control import MERGES_SCREEN, NAME_KEYS, MergesActions
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, DrawnPanel, Row, centred, wrapped
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeInput

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

RANK = 9
"""Cells of the first column."""
ROOMY = 12
"""Rows from which on there is room for the meaning of a rung."""
LEAST = 2
"""Cells in which a piece is begun: one of it, and the sign that it is cut off."""
ABOUT = {
    "bpe": "Of all neighbouring pairs the one with the lowest rank is merged; then again, until no pair is in the "
    "list. Ranks are the order in which training found them: the most frequent first.",
    "unigram": "Each piece has a probability of its own. The way to cut the word whose product is largest is taken; "
    "the next best ones are below it.",
    "wordpiece": "From the left the longest piece of the vocabulary is cut off, then that of the rest.",
}


class MergesScreen(View[None]):
    """Goes from word to word and from merge to merge.

    Args:
        host: The main screen.
        control: Has the words.
    """

    TOOL: ClassVar[str] = "merges"
    ACTIONS: ClassVar[ActionTable] = MERGES_SCREEN

    def __init__(self, host: MainScreen, control: MergesActions) -> None:
        super().__init__(host)
        self.control = control
        self.beside = False
        """True for two tokenizers over the text, False for the ladder of a word."""

    def body(self) -> ComposeResult:
        yield DrawnPanel(id="merges-panel")

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        panel, control = self.query_one("#merges-panel", DrawnPanel), self.control
        if self.beside:
            name = truncate_middle(visible(control.other), max(8, self.area.width // 2))
            panel.put("Two tokenizers", self._two, name)
        else:
            found = control.ladder(control.place) if control.place is not None else None
            subtitle = ""
            if isinstance(found, TakenApart) and found.words:
                word = found.words[0]
                label = truncate(word_label(word), max(8, self.area.width // 3))
                tokens = f"{count(len(word.ids))} token{'s' * (len(word.ids) != 1)}"
                subtitle = f"{label} · {tokens} · {NAMES[found.algorithm]}"
            panel.put("Tokenizer", self._ladder, subtitle)
        self.write()

    def situation(self) -> str:
        """A line on what is shown, and the keys for it."""
        turn = key_for("merges.turn")
        if self.beside:
            return f"{key_for('merges.open')} names another, ↑ ↓ scroll; {turn} for the ladder"
        return f"↑ ↓ go through the merges, ← → from word to word; {turn} for two tokenizers"

    def _ladder(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The ladder of a word."""
        place = self.control.place
        if place is None:
            return _noted(on, width, height, "There is no token yet.")
        found = self.control.ladder(place)
        if isinstance(found, Failure):
            return _noted(on, width, height, visible(found.message), visible(found.hint))
        if found is None:
            return _noted(on, width, height, "Taking the word apart")
        if not found.words:
            return _noted(on, width, height, "The tokenizer makes no token of this.")
        word = found.words[0]
        at, last = self.control.at(word), rungs(word) - 1
        below = _below(on, found, place, at, width) if height >= ROOMY else []
        below = below[: max(0, height - 8)]
        room = max(1, height - 2 - len(below))
        top = max(0, min(at - room // 2, last + 1 - room))
        rows: list[Row] = [
            [Segment(f"{pad(head(found.algorithm), RANK, right=True)}  pieces", on.ink("muted"))]
        ]
        for each in range(top, min(last + 1, top + room)):
            made, base = rung(word, each), on.ink("row") if each == at else on.rich_style
            begin = f"{'›' if each == at else ' '}{pad(made.of, RANK - 1, right=True)}  "
            rows.append([Segment(begin, base), *pieces_in(on, made, base, width - RANK - 2)])
        return [*rows, *below]

    def _two(self, on: Canvas, width: int, height: int) -> list[Row]:
        """Two tokenizers over the text."""
        control = self.control
        if not control.other:
            names = f"{key_for('merges.open')} names a second tokenizer: a model, or a tokenizer.json."
            return _noted(
                on, width, height, names, "Both then cut the text around the token that is looked at."
            )
        first, second = control.both
        for each in (first, second):
            if isinstance(each, Failure):
                return _noted(on, width, height, visible(each.message), visible(each.hint))
        if not (isinstance(first, TakenApart) and isinstance(second, TakenApart)):
            return _noted(on, width, height, "Cutting the text twice")
        inks = on.ink("primary"), on.ink("warn")
        rows: list[Row] = []
        for name, taken, ink in zip(("this model", second.name), (first, second), inks, strict=True):
            words = truncate_middle(visible(name), max(8, width // 3))
            rows.append([Segment(truncate(f"{words}: {summed(taken)}", width), ink)])
        rows.append([])
        pairs = [*faced(columns(first, second), width)]
        room = max(1, (height - len(rows)) // 3)
        control.top = max(0, min(control.top, len(pairs) - room))
        for pair in pairs[control.top : control.top + room]:
            rows += [[Segment(truncate(text, width), ink)] for text, ink in zip(pair, inks, strict=True)]
            rows.append([])
        return rows

    # ---- keys -------------------------------------------------------------------------------

    def climb(self, by: int) -> None:
        """Look at the previous rung or the next one; scroll the two tokenizers."""
        if self.beside:
            self.control.top = max(0, self.control.top + by)
        else:
            self.control.climb(by)

    def turn(self) -> None:
        """Show the next view."""
        self.beside = not self.beside
        self.control.top = 0

    def open(self) -> None:
        """Name the second tokenizer."""
        self.beside = True
        self.host.open(NameDialog(self.control.other), self._named)

    def _named(self, name: str | None) -> None:
        if name is None:
            return
        self.control.top = 0
        self.control.other = name
        self.changed()


def _noted(on: Canvas, width: int, height: int, *lines: str) -> list[Row]:
    """Sentences in the middle of the panel, at its edges a cell free."""
    texts = [each for line in lines for each in (wrapped(line, max(8, width - 2)) or [""])]
    return centred([(text, on.ink("muted")) for text in texts], width, height)


def pieces_in(on: Canvas, made: Rung, base: Style, width: int) -> Iterator[Segment]:
    """The pieces of a rung, in sight the one that is new.

    Args:
        on: Has the inks.
        made: The rung.
        base: Of all pieces.
        width: Cells that there are.
    """
    names = labels(made.pieces)
    begin = 0
    if made.new is not None:
        ends = [*accumulate(cell_len(name) + 1 for name in names)]
        ends[-1] -= 1  # no border after the last one
        while (
            begin < made.new
            and ends[min(made.new, len(ends) - 1)] - (ends[begin - 1] if begin else 0) > width
        ):
            begin += 1
    if begin:
        yield Segment("…", on.ink("muted"))
        width -= 1
    left = sum(cell_len(name) + 1 for name in names[begin:]) - 1
    for place, name in enumerate(names[begin:], begin):
        fits = left <= width
        shown = truncate(name, max(0, width - (not fits)))
        yield Segment(shown, base + on.ink("accent") if place == made.new else base)
        left -= cell_len(name) + 1
        width -= cell_len(shown) + 1
        if place + 1 < len(names):
            yield Segment(BORDER if fits or width >= LEAST else "…", on.ink("muted"))
        if not fits and width < LEAST:
            return


def _below(on: Canvas, taken: TakenApart, place: Around, at: int, width: int) -> list[Row]:
    """The meaning of the rung that is looked at, and whether the text has the same tokens."""
    word, notes = taken.words[0], []
    written = [place.tokens[slot - place.first].raw for slot in place.own(word)]
    if tuple(written) != word.pieces() and b"".join(word.symbols) in b"".join(written):
        notes.append(
            f"The text has it as {BORDER.join(labels(written))}, which the tokenizer would not cut so."
        )
    if unknown(taken, word):
        notes.append("For some of it there is no piece: that is the unknown token.")
    lines = [line for note in notes for line in wrapped(note, width)]
    about = wrapped(ABOUT[taken.algorithm], width)
    muted = on.ink("muted")
    return [
        [],
        *([Segment(line, on.ink("accent"))] for line in wrapped(_said(taken, word, at), width)),
        *([Segment(line, muted)] for line in lines),
        [],
        *([Segment(line, muted)] for line in about),
    ]


def _said(taken: TakenApart, word: WordApart, at: int) -> str:
    """The meaning of a rung, in a sentence."""
    made = rung(word, at)
    pieces = len(made.pieces)
    if word.added:
        return "A token beside the vocabulary: it is cut out of the text before all others."
    if taken.algorithm == "bpe" and made.new is not None and isinstance(made.value, int):
        before = rung(word, at - 1).pieces
        left, right = labels(before[made.new : made.new + 2])[:2]
        of = f"rank {made.value:,} of {taken.merges:,}"
        counted = f"{pieces:,} piece{'s' * (pieces != 1)}"
        return f"{left} + {right} = {labels(made.pieces)[made.new]}, {of}: {counted}."
    if taken.algorithm == "unigram":
        return f"The {at + 1}. best way, which is not taken." if at else "The most probable way: the tokens."
    if taken.algorithm == "wordpiece":
        return f"{quoted(labels(made.pieces)[at])} is the longest piece that the rest begins with."
    if pieces == 1:
        return "One piece: nothing is to be merged."
    stay = ", and no pair of them is in the list: they stay" if rungs(word) == 1 else ""
    return f"{pieces:,} pieces to begin with{stay}."


class NameDialog(Dialog[str]):
    """Asks for a tokenizer's name.

    Args:
        name: The initial value of the field.
    """

    ACTIONS: ClassVar[ActionTable] = NAME_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("given",)
    HEADING: ClassVar[str] = "Which one"
    APPLY: ClassVar[str] = "Take it"

    def __init__(self, name: str) -> None:
        super().__init__()
        self.given = name

    def body(self) -> Iterable[Widget]:
        yield SafeInput("", id="merges-name")
        yield Remark("pocket, a model's directory, a hub id, or a tokenizer.json.")

    def begin(self) -> None:
        """Begin in the field, at its end."""
        super().begin()
        field = self.query_one("#merges-name", SafeInput)
        field.value = self.given
        field.cursor_position = len(self.given)
        self.set_focus(field)

    def apply(self) -> None:
        """Take what was typed."""
        self.dismiss(self.query_one("#merges-name", SafeInput).value.strip())
