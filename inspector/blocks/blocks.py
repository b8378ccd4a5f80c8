"""The blocks of a document: sentences, tables, facts and drawings. No block knows a width, a color or Textual.

Every text in them is printable, except for facts, which the painters make printable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

Tone = Literal["", "muted", "faint", "strong", "accent", "primary", "warn", "bad", "good"]
KEEP = 5
"""The priority of blocks that are never left out: if there is no room, the page scrolls."""


# ---- sentences ----------------------------------------------------------------------------------


class Text(Struct, frozen=True):
    """A text with its own tone.

    Args:
        text: The full text.
        tone: Its style.
        short: Shown instead if the columns of a table don't fit otherwise; empty for the same text.
        gutter: A mark or the branch of a tree before it, in another tone; a page leaves it out.
    """

    text: str
    tone: Tone = ""
    short: str = ""
    gutter: str = ""


Form = str | tuple[str | Text, ...]
"""A sentence, or its pieces. `\\n` in it begins a new line."""


class BlockBase(Struct, frozen=True, kw_only=True):
    """The base of all blocks.

    Args:
        priority: If there is no room for all blocks, those of the lowest priority are left out first.
    """

    priority: int = KEEP


class Sentence(BlockBase, frozen=True):
    """The first of several forms of a sentence that fits.

    Args:
        forms: The longest first. If none fits, the last takes as many lines as it needs.
        tone: Its style.
        lines: The lines that a form must fit on.
    """

    forms: tuple[Form, ...]
    tone: Tone = ""
    lines: int = 1


def sentence(*forms: Form, tone: Tone = "", lines: int = 1, priority: int = KEEP) -> Sentence:
    """A sentence of these forms; see `Sentence`."""
    return Sentence(forms, tone, lines, priority=priority)


def sentences(texts: Iterable[str], tone: Tone = "muted", priority: int = KEEP) -> Iterator[Sentence]:
    """A sentence for each text that isn't empty."""
    return (Sentence((text,), tone, priority=priority) for text in texts if text)


def plain(form: Form) -> str:
    """The text of a form."""
    return form if isinstance(form, str) else "".join(p if isinstance(p, str) else p.text for p in form)


GAP = sentence("", priority=0)
"""A blank line."""


# ---- tables -------------------------------------------------------------------------------------


class Bar(Struct, frozen=True):
    """A number as a bar from zero; a thin one for a share of the row above."""

    value: float
    thin: bool = False


class Dot(Struct, frozen=True):
    """A number as a dot on the scale of its column.

    Args:
        value: The number.
        low: The lower end of the band that the dot is drawn on; NaN for no band.
        high: The upper end.
        text: The band in words, shown if nothing is drawn.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    text: str = ""


class Shaded(Struct, frozen=True):
    """A text on the color of a step, from -5 to 5; shown as `short` if the columns don't fit otherwise."""

    text: str
    step: int
    short: str = ""


class Strip(Struct, frozen=True):
    """Shares of a text as a strip of colors; they are read when it is drawn."""

    shares: Callable[[], Sequence[float]]


Cell = str | Text | Shaded | Bar | Dot | Strip | Sentence
"""A cell of a table. A sentence takes the rest of its row."""


class Column(Struct, frozen=True):
    """A column of a table.

    Args:
        head: Its name.
        align: The side at which its texts are aligned.
        tone: The style of its texts.
        priority: If there is no room for all columns, those of the lowest priority are left out first; those of
            priority 1 even before cells get short or drawings get less than their `ease`.
        short: Shown instead of `head` if the columns don't fit otherwise.
        cells: Minimum and maximum cells of a column of drawings; texts take as many as they need. If all columns have
            `cells`, and those of bars `top`, only the rows in sight are made.
        ease: Cells that a drawing needs beside columns of priority 1, which are left out if it would have fewer.
        ends: The meaning of bars below and above zero, the longest form first; empty if bars begin at the left.
        top: The value of a full bar; None for the largest of the column.
        least: Cells that its texts may be cut to before other columns are left out; 0 to not cut them.
    """

    head: str = ""
    align: Literal["left", "right"] = "left"
    tone: Tone = ""
    priority: int = KEEP
    short: str = ""
    cells: tuple[int, int] = (0, 0)
    ease: int = 0
    ends: tuple[tuple[str, ...], ...] = ()
    top: float | None = None
    least: int = 0


class TableRow(Struct, frozen=True):
    """A row of a table."""

    cells: tuple[Cell, ...]
    tone: Tone = ""


class Rows(Sequence[TableRow]):
    """Rows that are made when they are drawn: for a large model there are thousands, and only a few are in sight.

    Args:
        of: The items that the rows are about.
        make: Makes the row of an item.
    """

    def __init__(self, of: Sequence[Any], make: Callable[[Any], TableRow]) -> None:
        self._of, self._make = of, make

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, place: Any) -> Any:
        return self._make(self._of[place])


class Table(BlockBase, frozen=True):
    """Rows under the names of their columns.

    Args:
        columns: The columns from the left.
        rows: The rows from the top.
        at: The index of the selected row; None for none.
        foot: The last row, which is always shown.
        rest: Makes a row about the rows that are not shown, from the indices of those that are; None for no such row.
        keep: The indices of rows in the order in which they are kept; empty for the order of the rows.
        least: Minimum number of rows that are shown.
        whole: Whether all rows are drawn, so that the page scrolls to them.
        curve: What the dots are a function of, to draw them as a curve on a page; empty for no curve.
    """

    columns: tuple[Column, ...]
    rows: Sequence[TableRow]
    at: int | None = None
    foot: TableRow | None = None
    rest: Callable[[Collection[int]], TableRow | None] | None = None
    keep: Sequence[int] = ()
    least: int = 3
    whole: bool = False
    curve: str = ""

    @property
    def headed(self) -> bool:
        """True if any column has a name."""
        return any(column.head or any(column.ends) for column in self.columns)


def number(head: str, priority: int = KEEP, tone: Tone = "", short: str = "") -> Column:
    """A column of numbers, aligned at the right."""
    return Column(head, "right", tone, priority, short)


# ---- other blocks -------------------------------------------------------------------------------

Fact = tuple[str, str]


class Facts(BlockBase, frozen=True):
    """Names, each with a sentence, below a blank line."""

    facts: tuple[Fact, ...]


class HeatText(BlockBase, frozen=True):
    """A text with pieces colored by value: each has a share from -1 to 1, and words about it.

    Only pages draw it: on the screen, the text above a view shows the shares.
    """

    pieces: tuple[tuple[str, float, str], ...]


class Drawn(BlockBase, frozen=True):
    """Rows that no other block can draw; a page leaves them out.

    Args:
        draw: Makes the rows from the painter, the cells of a row and the number of lines.
        lines: Minimum and maximum number of lines.
        roomy: Further lines that it takes if no other block needs them.
    """

    draw: Callable[[Any, int, int], list[Any]]
    lines: tuple[int, int]
    roomy: int = 0


class Beside(BlockBase, frozen=True):
    """Two documents side by side, or one below the other if there are too few cells.

    Args:
        main: The left document, or the upper one.
        side: The other document.
        least: Cells from which they are side by side.
        cells: Minimum and maximum cells of the side.
        share: The side's share of all cells, within these limits.
        brief: Shown instead of the side if it is not beside the main document: above it if there is room for both.
    """

    main: Sequence[Block]
    side: Sequence[Block]
    least: int
    cells: tuple[int, int]
    brief: Sequence[Block] = ()
    share: float = 0.4


Block = Sentence | Table | Facts | HeatText | Drawn | Beside


# ---- where nothing is drawn ---------------------------------------------------------------------


def words(cell: Cell) -> str:
    """A cell as text."""
    match cell:
        case str():
            return cell
        case Text() | Shaded() | Dot():
            return cell.text
        case Bar():
            return f"{cell.value:g}"
        case Sentence():
            return plain(cell.forms[0])
    return ""


def flat(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks, with those side by side one after the other."""
    for block in blocks:
        if isinstance(block, Beside):
            yield from flat((*block.main, *block.side))
        else:
            yield block


def in_words(table: Table) -> Table:
    """A table with words instead of dots, and without columns of drawings that have no words."""
    first = table.rows[0].cells if table.rows else ()
    drawn = {place for place, cell in enumerate(first) if isinstance(cell, Dot | Strip)}
    kept = [place for place in range(len(table.columns)) if place not in drawn or words(first[place])]
    columns = [
        Column(each.head, each.align, each.tone) if place in drawn else each
        for place, each in enumerate(table.columns)
    ]

    def row(of: TableRow) -> TableRow:
        cells = (words(cell) if isinstance(cell, Dot) else cell for cell in of.cells)
        return TableRow(tuple(cell for place, cell in enumerate(cells) if place in kept), of.tone)

    every = [*table.rows]
    if table.rest is not None and (rest := table.rest(range(len(every)))) is not None:
        every.append(rest)
    foot = row(table.foot) if table.foot is not None else None
    return Table(tuple(columns[place] for place in kept), [*map(row, every)], foot=foot, curve=table.curve)
