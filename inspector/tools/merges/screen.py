"""The screen of a tokenizer taken apart: a word's ladder, and two tokenizers over the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import getters
from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget

from engine.protocol import Failure, TakenApart, WordApart
from inspector.display import pad, quoted, truncate, truncate_middle, visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
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
from inspector.tools.merges.control import MERGES_SCREEN, NAME_KEYS, MergesControl, View
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import PanelCanvas, Row, centred, wrapped
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeInput

TITLES: dict[View, str] = {"ladder": "Tokenizer", "beside": "Two tokenizers"}
RANK = 9
"""Cells of the first column."""
ROOMY = 12
"""Rows from which on there is room for what a view means."""


class MergesPanel(PanelCanvas):
    """Draws one of the views.

    Args:
        control: What is looked at.
    """

    DEFAULT_CSS = "MergesPanel { height: 1fr; }"

    def __init__(self, control: MergesControl) -> None:
        super().__init__(id="merges-panel")
        self.control = control
        self.view: View = "ladder"

    def draw(self, width: int, height: int) -> list[Row]:
        return (self._ladder if self.view == "ladder" else self._beside)(width, height)

    def _note(self, *lines: str) -> list[Row]:
        width, height = self.size
        texts = [each for line in lines for each in (wrapped(line, max(8, width - 2)) or [""])]
        return centred([(text, self.ink("muted")) for text in texts], width, height)

    def _refused(self, failure: Failure) -> list[Row]:
        return self._note(visible(failure.message), visible(failure.hint))

    def _muted(self, text: str, width: int) -> list[Row]:
        return [[Segment(line, self.ink("muted"))] for line in wrapped(text, width)]

    # ---- the ladder of a word ---------------------------------------------------------------

    def _ladder(self, width: int, height: int) -> list[Row]:
        place = self.control.place
        if place is None:
            return self._note("There is no token yet.")
        found = self.control.ladder(place)
        if isinstance(found, Failure):
            return self._refused(found)
        if found is None:
            return self._note("Taking the word apart")
        if not found.words:
            return self._note("The tokenizer makes no token of this.")
        word = found.words[0]
        below = self._below(found, word, place, width) if height >= ROOMY else []
        below = below[: max(0, height - 8)]
        room = max(1, height - 2 - len(below))
        last = rungs(word) - 1
        at = self.control.at(word)
        top = max(0, min(at - room // 2, last + 1 - room))
        rows: list[Row] = [
            [Segment(f"{pad(head(found.algorithm), RANK, right=True)}  pieces", self.ink("muted"))]
        ]
        rows += [self._rung(word, each, each == at, width) for each in range(top, min(last + 1, top + room))]
        return [*rows, *below]

    def _rung(self, word: WordApart, place: int, here: bool, width: int) -> Row:
        made = rung(word, place)
        base = self.ink("row") if here else self.rich_style
        row: Row = [Segment(f"{'›' if here else ' '}{pad(made.of, RANK - 1, right=True)}  ", base)]
        return [*row, *self._pieces(made, base, width - RANK - 2)]

    def _pieces(self, made: Rung, base: Style, width: int) -> Iterator[Segment]:
        """The pieces of a rung, in sight the one that is new."""
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
            yield Segment("…", self.ink("muted"))
            width -= 1
        left = sum(cell_len(name) + 1 for name in names[begin:]) - 1
        for place, name in enumerate(names[begin:], begin):
            fits = left <= width
            shown = truncate(name, max(0, width - (not fits)))
            yield Segment(shown, base + self.ink("accent") if place == made.new else base)
            left -= cell_len(name) + 1
            width -= cell_len(shown) + 1
            if place + 1 < len(names):
                yield Segment(BORDER if fits or width >= LEAST else "…", self.ink("muted"))
            if not fits and width < LEAST:
                return

    def _below(self, taken: TakenApart, word: WordApart, place: Around, width: int) -> list[Row]:
        """What the rung that is looked at says, and whether the text has the same tokens."""
        rows: list[Row] = [[], *self._says(taken, word, self.control.at(word), width)]
        written = [place.tokens[slot - place.first].raw for slot in place.own(word)]
        if tuple(written) != word.pieces() and b"".join(word.symbols) in b"".join(written):
            own = BORDER.join(labels(written))
            rows += self._muted(f"The text has it as {own}, which the tokenizer would not cut so.", width)
        if unknown(taken, word):
            rows += self._muted("For some of it there is no piece: that is the unknown token.", width)
        return [*rows, [], *self._muted(f"{ABOUT[taken.algorithm]}", width)]

    def _says(self, taken: TakenApart, word: WordApart, at: int, width: int) -> list[Row]:
        made = rung(word, at)
        pieces = len(made.pieces)
        if word.added:
            said = "A token beside the vocabulary: it is cut out of the text before all others."
        elif taken.algorithm == "bpe" and made.new is not None and isinstance(made.value, int):
            before = rung(word, at - 1).pieces
            left, right = labels(before[made.new : made.new + 2])[:2]
            of = f"rank {made.value:,} of {taken.merges:,}"
            said = f"{left} + {right} = {labels(made.pieces)[made.new]}, {of}: {_counted(pieces)}."
        elif taken.algorithm == "unigram":
            said = (
                "The most probable way: the tokens."
                if not at
                else f"The {at + 1}. best way, which is not taken."
            )
        elif taken.algorithm == "wordpiece":
            said = f"{quoted(labels(made.pieces)[at])} is the longest piece that the rest begins with."
        elif pieces == 1:
            said = "One piece: nothing is to be merged."
        else:
            stay = ", and no pair of them is in the list: they stay" if rungs(word) == 1 else ""
            said = f"{pieces:,} pieces to begin with{stay}."
        return [[Segment(line, self.ink("accent"))] for line in wrapped(said, width)]

    # ---- two tokenizers ---------------------------------------------------------------------

    def _beside(self, width: int, height: int) -> list[Row]:
        if not self.control.other:
            return self._note(
                f"{key_for('merges.open')} names a second tokenizer: a model, or a tokenizer.json.",
                "Both then cut the text around the token that is looked at.",
            )
        both = self.control.both
        for each in both:
            if isinstance(each, Failure):
                return self._refused(each)
        first, second = both
        if not (isinstance(first, TakenApart) and isinstance(second, TakenApart)):
            return self._note("Cutting the text twice")
        rows: list[Row] = []
        for name, taken, ink in (("this model", first, "primary"), (second.name, second, "warn")):
            words = truncate_middle(visible(name), max(8, width // 3))
            rows.append([Segment(truncate(f"{words}: {summed(taken)}", width), self.ink(ink))])
        rows.append([])
        pairs = [*faced(columns(first, second), width)]
        room = max(1, (height - len(rows)) // 3)
        self.control.top = max(0, min(self.control.top, len(pairs) - room))
        for above, under in pairs[self.control.top : self.control.top + room]:
            rows += [[Segment(truncate(above, width), self.ink("primary"))],
                     [Segment(truncate(under, width), self.ink("warn"))], []]  # fmt: skip
        return rows


ABOUT = {
    "bpe": "Of all neighbouring pairs the one with the lowest rank is merged; then again, until no pair is in the "
    "list. Ranks are the order in which training found them: the most frequent first.",
    "unigram": "Each piece has a probability of its own. The way to cut the word whose product is largest is taken; "
    "the next best ones are below it.",
    "wordpiece": "From the left the longest piece of the vocabulary is cut off, then that of the rest.",
}


LEAST = 2
"""Cells in which a piece is begun: one of it, and the sign that it is cut off."""


def _counted(pieces: int) -> str:
    return f"{pieces:,} piece" + "s" * (pieces != 1)


class MergesScreen(ToolScreen[None]):
    """Goes from word to word and from merge to merge.

    Args:
        host: The main screen.
        control: What is looked at.
    """

    TOOL: ClassVar[str] = "merges"
    ACTIONS: ClassVar[ActionTable] = MERGES_SCREEN
    AUTO_FOCUS = ""

    panel = getters.query_one("#merges-panel", MergesPanel)

    def __init__(self, host: Host, control: MergesControl) -> None:
        super().__init__(host)
        self.control = control

    def body(self) -> ComposeResult:
        yield MergesPanel(self.control)

    # ---- showing ----------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """The one on show."""
        return self.panel.view

    def show(self) -> None:
        """Show everything, now."""
        self.panel.title(Content(TITLES[self.view]), Content(self._subtitle()))
        self.panel.redraw()
        self.write()

    def _subtitle(self) -> str:
        control = self.control
        if self.view == "beside":
            return truncate_middle(visible(control.other), max(8, self.area.width // 2))
        place = control.place
        found = control.ladder(place) if place is not None else None
        if not isinstance(found, TakenApart) or not found.words:
            return ""
        word = found.words[0]
        label = truncate(word_label(word), max(8, self.area.width // 3))
        return (
            f"{label} · {count(len(word.ids))} token{'s' * (len(word.ids) != 1)} · {NAMES[found.algorithm]}"
        )

    def situation(self) -> str:
        """A line on what is shown, and the keys for it."""
        turn = key_for("merges.turn")
        if self.view == "ladder":
            return f"↑ ↓ go through the merges, ← → from word to word; {turn} for two tokenizers"
        return f"{key_for('merges.open')} names another, ↑ ↓ scroll; {turn} for the ladder"

    # ---- keys -------------------------------------------------------------------------------

    @property
    def steps(self) -> str:
        """The effect of up and down, in a word."""
        return "merge" if self.view == "ladder" else "line"

    @property
    def sides(self) -> str:
        """The effect of left and right, in a word."""
        return "word" if self.view == "ladder" else ""

    @property
    def opens(self) -> str:
        """What can be named."""
        return "tokenizer" if self.view == "beside" else ""

    def climb(self, by: int) -> None:
        """Look at the rung before, or at the next one; scroll the two tokenizers."""
        if self.view == "ladder":
            self.control.climb(by)
        else:
            self.control.top = max(0, self.control.top + by)

    def go(self, by: int) -> None:
        """Look at the word before, or at the next one."""
        self.control.go(by)

    def turn(self) -> None:
        """Show the next view."""
        self.panel.view = "beside" if self.view == "ladder" else "ladder"
        self.control.top = 0

    def open(self) -> None:
        """Name the second tokenizer."""
        self.panel.view = "beside"
        self.host.open(NameDialog(self.control.other), self._named)

    def _named(self, name: str | None) -> None:
        if name is None:
            return
        self.control.top = 0
        self.control.other = name
        self.changed()


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
