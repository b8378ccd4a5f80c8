"""Draws a document as rows of segments, on a panel or with plain styles for a terminal or a file.

If there is little room, tables get shorter and lose columns, then the blocks of the lowest priority are left out. If
the rest still doesn't fit, the page scrolls.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from inspector.blocks.blocks import (
    KEEP,
    Bar,
    Beside,
    Block,
    Cell,
    Column,
    Dot,
    Drawn,
    Facts,
    Form,
    Sentence,
    Shaded,
    Strip,
    Table,
    TableRow,
    Text,
    in_words,
    plain,
)
from inspector.blocks.shades import Inks, Shades
from inspector.display import first_fitting, pad, truncate
from inspector.widgets.charts import AXIS, Spread, bar, bar_texts, in_sight, spread
from inspector.widgets.rows import Row, fact_rows, heat_style, wrapped

LEAST_DRAWING, LEAST_TEXT = 4, 8
"""Minimum cells of columns of drawings and of texts."""
LEAST_MAIN = 14
"""Minimum lines of the main document if the brief one is below it."""
READABLE = 104
"""Maximum cells of a line of sentences."""
ENDLESS = 1_000_000
"""Lines of a terminal that scrolls."""
CURSOR = "▶ "
"""The mark of the selected row."""
DOT, BAND, ZERO = "●", "░", "┊"


class PlainInks:
    """One style for everything: for a file, or a terminal without colors."""

    rich_style = Style()
    colorful, dark = False, True

    def ink(self, name: str) -> Style:
        """The same style for each name."""
        return self.rich_style

    def data(self, level: float = 0.5) -> Style:
        """The same style for each level."""
        return self.rich_style


def plain_lines(blocks: Iterable[Block], width: int = 120, fit: bool = False) -> Iterator[str]:
    """A document as lines of text.

    Args:
        blocks: The blocks from the top.
        width: Cells of a line.
        fit: Whether tables lose columns to fit; otherwise they have all columns, as for a file or a pipe.
    """
    painter = Painter(PlainInks())
    for block in blocks:
        cells = width
        if isinstance(block, Table):
            block = in_words(block)
        if isinstance(block, Table) and not fit:
            cells = max(width, _cells([each._replace(cells=each.whole) for each in _needs(block, 0)]))
        for row in painter.draw([block], cells, ENDLESS):
            yield "".join(part.text for part in row).rstrip()


def part_shown(width: int, *parts: tuple[str, Sequence[int], int]) -> str:
    """The part of a list that is shown: `Shown: layers 30 to 56 of 94`; empty if all of it is.

    Args:
        width: Cells available.
        parts: For each list a noun in the plural, the indices that are shown, and the total.
    """
    texts, short = [], []
    for noun, shown, total in parts:
        if shown and len(shown) < total:
            first, last = min(shown) + 1, max(shown) + 1
            texts.append(f"{noun} {first} to {last} of {total}")
            short.append(f"{noun[0]}{first}-{last}/{total}")
    if not texts:
        return ""
    long = f"Shown: {', '.join(texts)}"
    return first_fitting(width, long, long.replace(" to ", "-"), truncate(f"Shown: {' '.join(short)}", width))


# ---- documents ----------------------------------------------------------------------------------


class Painter:
    """Draws documents in the styles of a panel, or without styles."""

    def __init__(self, on: Inks) -> None:
        self.on, self.shades = on, Shades(on)

    def draw(self, blocks: Iterable[Block], width: int, height: int) -> list[Row]:
        """The rows of some blocks, one below the other.

        Args:
            blocks: The blocks from the top.
            width: Maximum cells of a row.
            height: Lines available; there are more rows if blocks that are never left out need them.
        """
        needs = [(block, *self._lines(block, width)) for block in blocks]
        if sum(most for _, _, most in needs) > height:
            needs = [each for each in needs if each[0].priority]
        while sum(least for _, least, _ in needs) > height:
            lowest = min(needs, key=lambda each: each[0].priority)
            if lowest[0].priority >= KEEP:
                break
            needs.remove(lowest)
        sizes, mosts = [least for _, least, _ in needs], [most for _, _, most in needs]
        spare = height - sum(sizes)
        for place, (block, least, most) in enumerate(needs):
            if isinstance(block, Drawn):
                mosts[place] += block.roomy
                if spare < 0:  # all of it is scrolled: no need for a small drawing
                    sizes[place] = max(least, min(most, height // 2))
            elif isinstance(block, Table) and block.at is not None:
                sizes[place] = min(least, height)  # the selected row is in sight
        if sum(mosts) <= height:
            sizes, spare = mosts, height - sum(mosts)
        while spare > 0 and (growing := [place for place, size in enumerate(sizes) if size < mosts[place]]):
            for place in growing[:spare]:
                sizes[place], spare = sizes[place] + 1, spare - 1
        rows: list[Row] = []
        for (block, _, _), size in zip(needs, sizes, strict=True):
            if isinstance(block, Beside):
                size, spare = size + max(0, spare), 0
            rows += self._block(block, width, size)
        return rows

    def _lines(self, block: Block, width: int) -> tuple[int, int]:
        """Minimum and maximum lines of a block."""
        match block:
            case Table():
                rows, others = len(block.rows), block.headed + (block.foot is not None)
                least = rows if block.whole else min(rows, block.least)
                rest = block.rest is not None and (least < rows or block.rest(range(rows)) is not None)
                return least + others + rest, rows + others + rest
            case Sentence() | Facts():
                lines = len(self._block(block, width, 0))
                return lines, lines
            case Drawn():
                return block.lines
            case Beside(main=main, side=side, brief=brief):
                if width >= block.least:
                    both = self._all(main, width), self._all(side, width)
                    return max(each[0] for each in both), max(each[1] for each in both)
                return self._all((*main, *(brief or side)), width)
        return 0, 0

    def _all(self, blocks: Sequence[Block], width: int) -> tuple[int, int]:
        pairs = [self._lines(each, width) for each in blocks]
        return sum(least for least, _ in pairs), sum(most for _, most in pairs)

    def _block(self, block: Block, width: int, height: int) -> list[Row]:
        match block:
            case Sentence():
                return self._sentence(block, width)
            case Table():
                return self._table(block, width, height)
            case Facts(facts=facts) if facts:
                name = self.on.ink("muted")
                return [[], *fact_rows(facts, min(width, READABLE), name, self.on.rich_style)]
            case Drawn():
                return block.draw(self, width, height)
            case Beside():
                return self._beside(block, width, height)
        return []

    def _beside(self, block: Beside, width: int, height: int) -> list[Row]:
        if width >= block.least:
            cells = max(block.cells[0], min(block.cells[1], int(width * block.share)))
            main = self.draw(block.main, width - cells - 2, height)
            side = self.draw(block.side, cells, height)
            pairs = zip_longest(main, side, fillvalue=list[Segment]())
            return [[*_filled(left, width - cells), *right] for left, right in pairs]
        if not block.brief:
            return self.draw((*block.main, *block.side), width, height)
        brief = self.draw(block.brief, width, ENDLESS)
        if height > len(brief) + LEAST_MAIN:
            return [*brief, [], *self.draw(block.main, width, height - len(brief) - 1)]
        return [*self.draw(block.main, width, max(height, LEAST_MAIN)), [], *brief]

    def _sentence(self, block: Sentence, width: int) -> list[Row]:
        form, lines = _fitting(block, width)
        if isinstance(form, str) or lines != plain(form).split("\n"):
            return [[Segment(line, self._tone(block.tone))] for line in lines]
        rows: list[Row] = [[]]
        for piece in form:
            if piece == "\n":
                rows.append([])
            else:
                text, tone = (piece, "") if isinstance(piece, str) else (piece.text, piece.tone)
                rows[-1].append(Segment(text, self._tone(tone or block.tone)))
        return rows

    def _tone(self, tone: str) -> Style:
        return self.on.ink(tone) if tone else self.on.rich_style

    # ---- tables ---------------------------------------------------------------------------------

    def _table(self, table: Table, width: int, height: int) -> list[Row]:
        columns, count, at, mark = _fitted(table, width), len(table.rows), table.at or 0, _mark(table)
        under = [*(each._replace(cells=each.cells + mark) for each in columns[:1]), *columns[1:]]
        below = [self._row(under, table.foot, width)] if table.foot is not None else []
        room = max(1, height - table.headed - len(below))
        if table.rest is not None and (count > room or table.rest(range(count)) is not None):
            room = max(1, room - 1)
        seen: Collection[int] = in_sight(count, room, at)
        if table.keep:
            seen = sorted(table.keep[:room])
        if table.rest is not None and (rest := table.rest(seen)) is not None:
            below.insert(0, self._row(under, rest, width))
        rows: list[Row] = []
        if table.headed:
            cut = table.at is not None and len(seen) < count
            part = f"{min(seen) + 1}-{max(seen) + 1} of {count}" if cut else ""
            rows.append(self._head(table, columns, part))
        for place in seen:
            cursor = CURSOR if place == table.at else " " * mark
            rows.append(self._row(columns, table.rows[place], width, cursor))
        return [*rows, *below]

    def _head(self, table: Table, columns: Sequence[Fitted], part: str) -> Row:
        """The names of the columns; the range of rows on show replaces the first name, or the first two."""
        first, muted = columns[0], self.on.ink("muted")
        long = cell_len(part) > first.cells and len(columns) > 1
        cells = first.cells + (2 + columns[1].cells if long else 0)
        name = pad(part or first.head, cells, first.column.align == "right" and not long)
        row = [Segment(" " * _mark(table) + name, muted)]
        for each in columns[2 if long else 1 :]:
            row.append(Segment("  "))
            if isinstance(each.scale, Spread):
                left, right = each.scale.left, each.scale.right
                below = first_fitting(left, *(f"{end} ◂" for end in each.column.ends[0]), "◂", "")
                above = first_fitting(right, *(f"▸ {end}" for end in each.column.ends[1]), "▸", "")
                row += self._around_axis(pad(below, left, True), pad(above, right))
            else:
                row.append(Segment(pad(each.head, each.cells, each.column.align == "right"), muted))
        return row

    def _row(self, columns: Sequence[Fitted], row: TableRow, width: int, cursor: str = "") -> Row:
        made: Row = [Segment(cursor, self.on.ink("accent"))] if cursor else []
        for number, each in enumerate(each for each in columns if each.place < len(row.cells)):
            cell = row.cells[each.place]
            if number:
                made.append(Segment("  "))
            if isinstance(cell, Sentence):
                room = width - Segment.get_line_length(made)
                form = next((form for form in cell.forms if cell_len(plain(form)) <= room), "")
                made += self._sentence(Sentence((form,), cell.tone), room)[0]
                break
            made += self._cell(cell, each, self._tone(each.column.tone or row.tone))
        if cursor != CURSOR:
            return made
        ground, own = Style(bgcolor=self.on.ink("row").bgcolor), (None, self.on.rich_style.bgcolor)
        return [
            Segment(text, (style or Style()) + (ground if style is None or style.bgcolor in own else Style()))
            for text, style, _ in _filled(made, width)
        ]

    def _cell(self, cell: Cell, fitted: Fitted, style: Style) -> Row:
        column, cells, scale = fitted.column, fitted.cells, fitted.scale
        match cell:
            case Bar() if isinstance(scale, Spread):
                return self._around_axis(*bar_texts(cell.value, cell.thin, scale))
            case Bar() if isinstance(scale, float):
                share = cell.value / scale if scale else 0.0
                return [Segment(bar(share, cells), self.on.data(share if column.top else 0.5))]
            case Dot() if isinstance(scale, DotScale):
                return scale.drawn(self.on, cells, cell)
            case Strip():
                return self.shades.strip(cell.shares(), cells)
            case Text(gutter=gutter) if gutter:
                branch = Segment(gutter, self.on.ink("primary"))
                text = Text(cell.text, cell.tone, cell.short)
                return [branch, *self._cell(text, fitted._replace(cells=cells - cell_len(gutter)), style)]
            case Text(tone=tone) if tone:
                style = self.on.ink(tone)
            case Shaded(step=step):
                style = self.on.rich_style + heat_style(step, self.on.dark, self.on.colorful, signed=True)
        return [Segment(pad(_text(cell, fitted.short), cells, column.align == "right"), style)]

    def _around_axis(self, left: str, right: str) -> Row:
        return [
            Segment(left, self.on.ink("warn")),
            Segment(AXIS, self.on.ink("muted")),
            Segment(right, self.on.ink("primary")),
        ]


# ---- the columns that there is room for ---------------------------------------------------------


class DotScale(NamedTuple):
    """The scale of a column of dots, from the smallest number to the largest."""

    low: float
    high: float

    def drawn(self, on: Inks, cells: int, dot: Dot) -> Row:
        """A value as a dot on its band; in another style if it is outside the band."""
        first, last, zero = self._at(dot.low, cells), self._at(dot.high, cells), self._at(0.0, cells)
        banded = not math.isnan(dot.low)
        beyond = banded and not dot.low <= dot.value <= dot.high
        drawn = [Segment(BAND if banded and first <= at <= last else ZERO if at == zero else " ", on.ink("faint"))
                 for at in range(cells)]  # fmt: skip
        if math.isfinite(dot.value):
            drawn[self._at(dot.value, cells)] = Segment(DOT, on.ink("accent" if beyond else "base"))
        return drawn

    def _at(self, value: float, cells: int) -> int:
        span = self.high - self.low
        if not span or math.isnan(value):
            return 0
        return round(max(0.0, min(1.0, (value - self.low) / span)) * (cells - 1))


class Fitted(NamedTuple):
    """A column that is shown.

    Args:
        place: Its index.
        column: The column.
        cells: Its width.
        head: Its name.
        scale: The scale of its drawings; for bars without an axis, the value of a full bar; None for texts.
        short: 1 for a short name, 2 for short cells as well.
        whole: The width at which no text is cut.
    """

    place: int
    column: Column
    cells: int
    head: str
    scale: Spread | DotScale | float | None = None
    short: int = 0
    whole: int = 0


def _mark(table: Table) -> int:
    return len(CURSOR) if table.at is not None else 0


def _fitted(table: Table, width: int) -> list[Fitted]:
    """The columns that fit, with their cells. To save cells, first names get short, then columns of priority 1 are left
    out, then cells get short, then other columns of low priority are left out, then drawings shrink, then texts. Spare
    cells bring back columns that fit, then go to texts that were cut, then to drawings."""
    room = width - _mark(table)
    for short in (0, 1, 2):
        every = [*_needs(table, short)]
        left = [*every]
        while _cells(left) > room:
            lowest = min(left, key=lambda each: each.column.priority)
            if lowest.column.priority >= (1, 2, KEEP)[short]:
                break
            left.remove(lowest)
        if _cells(left) <= room:
            break
    for each in sorted(every, key=lambda each: -each.column.priority):
        if each not in left and _cells([*left, each]) <= room:
            left = [one for one in every if one in left or one is each]
    sizes = {each.place: each.cells for each in left}
    drawings = [each for each in left if each.column.cells[1]]
    texts = [each for each in left if not each.column.cells[1] and each.column.align == "left"]
    spare = room - sum(sizes.values()) - 2 * len(left) + 2
    for group, least in ((drawings, LEAST_DRAWING), (texts, LEAST_TEXT)):
        for _ in range(max(0, -spare)):
            widest = max(group, key=lambda each: sizes[each.place], default=None)
            if widest is None or sizes[widest.place] <= least:
                break
            sizes[widest.place], spare = sizes[widest.place] - 1, spare + 1
    grows = [(each.place, each.whole, 1) for each in left]
    grows += [(each.place, each.column.cells[1], len(drawings) - n) for n, each in enumerate(drawings)]
    for place, most, among in grows:
        more = max(0, min(spare // among, most - sizes[place]))
        sizes[place], spare = sizes[place] + more, spare - more
    return [
        each._replace(cells=sizes[each.place], scale=_scale(table, each.place, sizes[each.place]))
        for each in left
    ]


def _needs(table: Table, short: int) -> Iterator[Fitted]:
    """All columns with their minimum cells."""
    cut = len(table.rows) > table.least
    below = (table.foot, table.rest(range(table.least)) if cut and table.rest is not None else None)
    for place, column in enumerate(table.columns):
        cells = whole = column.cells[0]
        head = column.short if short and column.short else column.head
        if not column.cells[1]:
            rows = (*table.rows, *filter(None, below))
            texts = {_text(row.cells[place], short) for row in rows if place < len(row.cells)}
            whole = max(map(_width, (head, *texts)))
            cells = min(whole, column.least or whole)
        yield Fitted(place, column, cells, head, short=short, whole=whole)


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _cells(columns: Sequence[Fitted]) -> int:
    """The cells of some columns with the gaps between them, and the ease of drawings beside a column of priority 1."""
    eased = any(each.column.priority == 1 for each in columns)
    return sum(max(each.cells, each.column.ease if eased else 0) for each in columns) + 2 * len(columns) - 2


def _text(cell: Cell, short: int) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Text | Shaded):
        gutter = cell.gutter if isinstance(cell, Text) else ""
        return gutter + (cell.short if short == 2 and cell.short else cell.text)
    return ""


def _scale(table: Table, place: int, cells: int) -> Spread | DotScale | float | None:
    """The scale of the drawings of a column; None for texts and strips."""
    column = table.columns[place]
    if column.top is not None:
        return float(column.top)
    first = table.rows[0].cells[place : place + 1] if table.rows else ()
    if not first or isinstance(first[0], Strip | Text | Shaded) or (isinstance(first[0], str) and first[0]):
        return None
    drawn = [row.cells[place] for row in table.rows if place < len(row.cells)] if column.cells[1] else []
    if dots := [cell for cell in drawn if isinstance(cell, Dot)]:
        values = [value for dot in dots for value in (dot.value, dot.low, dot.high) if math.isfinite(value)]
        return DotScale(min([0.0, *values]), max([0.0, *values]))
    bars = [cell.value for cell in drawn if isinstance(cell, Bar)]
    if column.ends:
        return spread(bars, cells, [2 + min(map(cell_len, side), default=-2) for side in column.ends])
    return float(max(bars)) if bars else None


# ---- sentences ----------------------------------------------------------------------------------


def _fitting(block: Sentence, width: int) -> tuple[Form, list[str]]:
    """The first form that fits, or the last, and its lines; blanks are kept in a line that fits."""
    for form in block.forms:
        lines: list[str] = []
        for line in plain(form).split("\n"):
            lines += [line] if cell_len(line) <= width else wrapped(line, width)
        if len(lines) <= block.lines and (block.lines > 1 or lines == [plain(form)]):
            break
    return form, lines


def _filled(row: Row, width: int) -> Row:
    """A row filled up to `width` cells."""
    return [*row, Segment(" " * max(0, width - Segment.get_line_length(row)))]
