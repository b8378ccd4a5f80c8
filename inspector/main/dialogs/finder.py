"""The finder: one field, and under it what is found by the words in it, where it lives and which keys lead there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Event
from typing import ClassVar

from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import on, work
from textual.widget import Widget
from textual.widgets import Input

from inspector.display import pad, quoted, truncate, truncate_words, visible
from inspector.main.finder import Findable, Index, asked, matched
from inspector.widgets.actions import ActionTable, applies, leaves, picking, taking
from inspector.widgets.canvas import Row
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import SafeInput
from inspector.widgets.lists import PickDialog, PickList

EXAMPLES = "attention, temperature, memory, save"
"""Words to type, for those whose own finds nothing."""
BATCH = 50
"""Things that are read from the disk before they are shown."""
LABEL, WHERE, KEYS = 27, 21, 9
"""Cells of the columns, with the gap before each but the first."""
LEAST = 24
"""Cells of the sentence: with less it is left out."""


class FinderDialog(PickDialog[Findable]):
    """Asks for a word; returns what is to be done.

    Args:
        index: What can be found.
        first: The same, in the order in which it is offered before anything was typed.
        on_disk: Reads what is found on the disk; called in a thread, once something was typed.
        possible: Whether a thing can be done now.
        typed: What the field begins with.
    """

    ACTIONS: ClassVar[ActionTable] = ActionTable("In the finder", (
        *picking("Go through what was found.", "choose", 5), taking("Do it.", "do it", 7),
        replace(applies(), hint=""), leaves(),
    ), told=False)  # fmt: skip
    KEPT: ClassVar[tuple[str, ...]] = ("_index", "_first", "_on_disk", "_possible", "_begins")
    HEADING: ClassVar[str] = "Find anything"
    APPLY: ClassVar[str] = "Do it"

    def __init__(
        self,
        index: Index,
        first: Sequence[Findable],
        on_disk: Callable[[], Iterator[Findable]] = lambda: iter(()),
        possible: Callable[[Findable], bool] = lambda thing: True,
        typed: str = "",
    ) -> None:
        super().__init__()
        self._index, self._first, self._on_disk, self._possible = index, first, on_disk, possible
        self._begins = typed
        self._stop: Event | None = None
        """Set to end the thread that reads; None before it began."""

    def body(self) -> Iterable[Widget]:
        yield SafeInput("", "a word or two: what you want to see, change or open", id="finder-query")
        yield FoundList(id="finder-list")
        yield Remark(id="finder-remark")

    def begin(self) -> None:
        """Begin in the field."""
        super().begin()
        self._stop = None
        field = self.query_one("#finder-query", SafeInput)
        self.set_focus(field)
        with self.prevent(Input.Changed):
            field.value = self._begins
        self._look()

    def let_go(self) -> None:
        """Have the thread that reads end."""
        if self._stop is not None:
            self._stop.set()

    # ---- finding ----------------------------------------------------------------------------

    @property
    def typed(self) -> str:
        """The text in the field."""
        return self.query_one("#finder-query", SafeInput).value

    @on(Input.Changed, "#finder-query")
    def _typed(self) -> None:
        self._look()

    def _look(self, stay: bool = False) -> None:
        """Show what is found.

        Args:
            stay: Whether the same row stays highlighted, where it was chosen and is still there.
        """
        typed, picks = self.typed, self.query_one("#finder-list", FoundList)
        words = asked(typed)
        found = self._index.search(typed) if words else self._first
        before = picks.chosen if stay and picks.highlighted else None
        at = next((place for place, each in enumerate(found) if each is before), 0)
        picks.put(found, words, self._possible, at)
        if words and self._stop is None:
            self._stop = Event()
            self._read(self._index, self._stop)

    @work(thread=True)
    def _read(self, index: Index, stop: Event) -> None:
        """Read what is on the disk, and show it as it is found."""
        batch: list[Findable] = []
        for each in self._on_disk():
            if stop.is_set():
                return
            batch.append(each)
            if len(batch) == BATCH:
                self.from_thread(self._more, index, batch)
                batch = []
        if batch and not stop.is_set():
            self.from_thread(self._more, index, batch)

    def _more(self, index: Index, things: Sequence[Findable]) -> None:
        """Take in what was read, unless this was left and is shown again."""
        if index is self._index:
            index.add(things)
            self._look(stay=True)

    # ---- telling ----------------------------------------------------------------------------

    @on(PickList.RowHighlighted)
    def _tell(self) -> None:
        """The sentence about the highlighted row, or what to type where there is none."""
        chosen = self.query_one("#finder-list", FoundList).chosen
        text = chosen.help if chosen is not None else self._nothing()
        self.query_one("#finder-remark", Remark).say(text, wrong=chosen is None)

    def _nothing(self) -> str:
        """Advice if nothing is found; printable."""
        unknown = self._index.unknown(self.typed)
        similar = self._index.similar(unknown[0])
        advice = f"Did you mean {' or '.join(similar)}?" if similar else f"Type another word: {EXAMPLES}."
        return f"Nothing is called {quoted(visible(truncate(unknown[0], 30)))}. {advice}"

    def apply(self) -> None:
        """Do what is highlighted."""
        if (chosen := self.query_one("#finder-list", FoundList).chosen) is not None:
            self.dismiss(chosen)


class FoundList(PickList):
    """The list of what was found, with one highlighted."""

    _found: Sequence[Findable] = ()
    _typed: Sequence[str] = ()
    _possible: Callable[[Findable], bool]

    @property
    def chosen(self) -> Findable | None:
        """The highlighted one; None if nothing was found."""
        return self._found[self.highlighted] if self.highlighted < len(self._found) else None

    def put(
        self, found: Sequence[Findable], typed: Sequence[str], possible: Callable[[Findable], bool], at: int
    ) -> None:
        """Show what was found.

        Args:
            found: The best first.
            typed: The words that were typed, which are marked in the labels.
            possible: Whether a thing can be done now; what can't is grey.
            at: Place of the one that is highlighted.
        """
        self._found, self._typed, self._possible = found, typed, possible
        self.lay(len(found), at)

    @staticmethod
    def _columns(width: int) -> tuple[int, int, int]:
        """Cells of the label, of the sentence and of the place, whose gaps are theirs."""
        where = WHERE if width >= 2 * LABEL + KEYS else 0
        rest = width - where - KEYS
        help = rest - LABEL if rest - LABEL >= LEAST else 0
        return rest - help, help, where

    def head(self, width: int) -> Row:
        label, help, where = self._columns(width - 1)
        does, lives = pad("what it does" if help else "", help), pad("where" if where else "", where)
        text = f" {pad('name', label)}{does}{lives}{pad('keys', KEYS, right=True)}"
        return [Segment(text, self.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        thing = self._found[place]
        label, help, where = self._columns(width)
        ink = self.rich_style if self._possible(thing) else self.ink("faint")
        quiet = ink if place == self.highlighted else self.ink("muted")
        does = [Segment(pad(truncate_words(visible(thing.help), help - 2), help), quiet)] if help else []
        lives = [Segment(pad(truncate(visible(thing.where), where - 2), where), quiet)] if where else []
        keys = Segment(pad(thing.keys, KEYS, right=True), self.ink("accent"))
        name = truncate(visible(thing.label), label - 2)
        marked = ink + Style(underline=True)  # what was typed of the name
        pieces = [Segment(piece, marked if typed else ink) for piece, typed in matched(name, self._typed)]
        return [*pieces, Segment(" " * (label - cell_len(name)), ink), *does, *lives, keys]
