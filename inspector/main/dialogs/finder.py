"""The finder: a field for words, and under it the things that were found, with their places and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
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
"""Words to suggest if nothing was found."""
BATCH = 50
"""Number of things that are read from the disk before they are shown."""
LABEL, WHERE, KEYS = 27, 21, 9
"""Cells of the columns, with the gap before each but the first."""
LEAST = 24
"""Minimum cells of the sentence: with fewer, it is left out."""


class FinderDialog(PickDialog[Findable]):
    """Asks for words; returns the chosen thing.

    Args:
        index: The things that can be found.
        first: The same things, in the order in which they are offered before anything was typed.
        on_disk: Reads further things from the disk; called in a thread, once something was typed.
        possible: Whether a thing can be done now.
        typed: Initial text of the field.
    """

    ACTIONS: ClassVar[ActionTable] = ActionTable("In the finder", (
        *picking("Go through what was found.", "choose", 5), taking("Do it.", "do it", 7),
        replace(applies(), hint=""), leaves(),
    ), told=False)  # fmt: skip
    KEPT: ClassVar[tuple[str, ...]] = ("_index", "_first", "_on_disk", "_possible", "_begins")
    HEADING: ClassVar[str] = "Find anything"
    APPLY: ClassVar[str] = "Do it"
    FIRST: ClassVar[str] = "#finder-query"

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
        """Set to stop the thread that reads from the disk; None before it has started."""
        self._words: Sequence[str] = ()
        """The words that were typed, which are marked in the labels."""

    def body(self) -> Iterable[Widget]:
        yield SafeInput("", "a word or two: what you want to see, change or open", id="finder-query")
        yield PickList(id="finder-list")
        yield Remark(id="finder-remark")

    def begin(self) -> None:
        """Fill the field, and search."""
        super().begin()
        self._stop = None
        with self.prevent(Input.Changed):
            self.query_one("#finder-query", SafeInput).value = self._begins
        self._look()

    def let_go(self) -> None:
        """Stop the thread that reads from the disk."""
        if self._stop is not None:
            self._stop.set()

    # ---- finding ----------------------------------------------------------------------------

    @on(Input.Changed, "#finder-query")
    def _typed(self) -> None:
        self._look()

    def _look(self, stay: bool = False) -> None:
        """Search for the typed words, and show what is found, the best first.

        Args:
            stay: Whether to keep the highlighted row, unless it is the first one.
        """
        self._words = asked(self.typed)
        found = self._index.search(self.typed) if self._words else self._first
        before = self.picked if stay and self.picks.highlighted else None
        self.put(found, next((place for place, each in enumerate(found) if each is before), 0))
        if self._words and self._stop is None:
            self._stop = Event()
            self._read(self._index, self._stop)

    @work(thread=True)
    def _read(self, index: Index, stop: Event) -> None:
        """Read things from the disk, and show them in batches."""
        things = self._on_disk()
        while not stop.is_set() and (batch := list(islice(things, BATCH))):
            self.from_thread(self._more, index, batch)

    def _more(self, index: Index, things: Sequence[Findable]) -> None:
        """Add things that were read, unless the dialog was opened again meanwhile."""
        if index is self._index:
            index.add(things)
            self._look(stay=True)

    @on(PickList.RowHighlighted)
    def _explain(self) -> None:
        """Show the sentence about the highlighted row, or what to type if nothing is found."""
        chosen, remark = self.picked, self.query_one("#finder-remark", Remark)
        if chosen is not None:
            remark.say(chosen.help)
            return
        if not (words := self._index.unknown(self.typed)):
            return  # the rows for the newest text are not there yet
        unknown = words[0]
        similar = self._index.similar(unknown)
        advice = f"Did you mean {' or '.join(similar)}?" if similar else f"Type another word: {EXAMPLES}."
        remark.say(f"Nothing is called {quoted(visible(truncate(unknown, 30)))}. {advice}", wrong=True)

    # ---- drawing ----------------------------------------------------------------------------

    @staticmethod
    def _columns(width: int) -> tuple[int, int, int]:
        """Cells of the label, of the sentence and of the place, with the gaps after them."""
        where = WHERE if width >= 2 * LABEL + KEYS else 0
        rest = width - where - KEYS
        help = rest - LABEL if rest - LABEL >= LEAST else 0
        return rest - help, help, where

    def head(self, width: int) -> Row:
        label, help, where = self._columns(width - 1)
        does, lives = pad("what it does" if help else "", help), pad("where" if where else "", where)
        text = f" {pad('name', label)}{does}{lives}{pad('keys', KEYS, right=True)}"
        return [Segment(text, self.picks.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        thing, picks = self.choices[place], self.picks
        label, help, where = self._columns(width)
        ink = picks.rich_style if self._possible(thing) else picks.ink("faint")
        quiet = ink if place == picks.highlighted else picks.ink("muted")
        does = [Segment(pad(truncate_words(visible(thing.help), help - 2), help), quiet)] if help else []
        lives = [Segment(pad(truncate(visible(thing.where), where - 2), where), quiet)] if where else []
        keys = Segment(pad(thing.keys, KEYS, right=True), picks.ink("accent"))
        name = truncate(visible(thing.label), label - 2)
        marked = ink + Style(underline=True)  # the part of the name that was typed
        pieces = [Segment(piece, marked if typed else ink) for piece, typed in matched(name, self._words)]
        return [*pieces, Segment(" " * (label - cell_len(name)), ink), *does, *lives, keys]
