"""Weights of attention as colours: a strip for each head, by layer or by score, and the triangle of one head."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeVar

from rich.segment import Segment
from rich.style import Style

from engine.protocol import AttentionLayer, AttentionRead, HeadsScored, TriangleRead
from inspector.blocks.shades import Shades
from inspector.display import pad, token_label
from inspector.main.inside.screen import part_shown
from inspector.scales import bits, percent
from inspector.state.heads import ROLES, found_words, measured_on
from inspector.state.session_tree import Item
from inspector.tools.attention.control import (
    NAMES,
    ORDERS,
    Head,
    columns,
    ranked,
    score,
    stretches,
    weights_of,
)
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.charts import bar


def said(text: str, style: Style, width: int) -> list[Row]:
    """A text in as many rows as it needs."""
    return [[Segment(line, style)] for line in wrapped(text, width)]


# ---- all heads ----------------------------------------------------------------------------------

Thing = TypeVar("Thing")
LAYER = 4
"""Cells of a layer's name."""
FOUND_LINES = 12
"""Lines of a ranking from which on it says which heads are named by it."""
LEAST, MOST = 3, 12
"""Cells of a map."""
TALL = 3
"""Lines of a map at most."""
STRIP_MEANING = "Each strip is the text up to this token: where a head looks."


def head_maps(read: AttentionRead, chosen: Head, on: Canvas, width: int, height: int) -> list[Row]:
    """A row for each layer, the last one on top, and a column for each head, then their mean and maximum.

    Args:
        read: With a layer at least.
        chosen: Is marked; what is shown is around it, where there is no room for all.
        on: Has the inks.
        width: Cells.
        height: Lines, the legend's included.
    """
    shades, layers = Shades(on), list(reversed(read.layers))
    widest = max(layers, key=attrgetter("heads"))
    heads: Sequence[int] = columns(widest)
    cells = max(LEAST, min(MOST, (width - LAYER - 1) // len(heads) - 1))
    fitting = max(1, (width - LAYER - 1) // (cells + 1))
    heads = _around(heads, fitting, heads.index(chosen.head) if chosen.head in heads else 0)
    legend = [[], *said(STRIP_MEANING, on.ink("muted"), width), shades.legend(width)]
    numbers = [layer.layer for layer in layers]
    place = numbers.index(chosen.layer) if chosen.layer in numbers else 0
    room = max(1, height - 1 - len(legend))
    part = part_shown(
        width,
        ("layers", _around(numbers, room - 1, place), len(layers)),
        ("heads", sorted(set(heads).intersection(range(widest.heads))), widest.heads),
    )
    if part and room > 2:
        room -= 1
        legend = [[Segment(part, on.ink("warn"))], *legend[1:]]
    header: Row = [Segment(" " * LAYER, on.rich_style)]
    for head in heads:
        name = NAMES.get(head) or f"h{head + 1}"
        ink = on.ink("strong" if head == chosen.head else "muted")
        header.append(Segment(f" {name:<{cells}.{cells}}", ink))
    rows, tall = [header], max(1, min(TALL, room // len(layers)))
    for layer in _around(layers, room, place):
        row = _layer(layer, heads, chosen, read.tokens, cells, on, shades)
        rows += [row, *[[Segment(" " * LAYER, on.rich_style), *row[1:]]] * (tall - 1)]
    return [*rows, *legend]


def _layer(
    layer: AttentionLayer,
    heads: Sequence[int],
    chosen: Head,
    tokens: int,
    cells: int,
    on: Canvas,
    shades: Shades,
) -> Row:
    here = layer.layer == chosen.layer
    row: Row = [Segment(f"{f'L{layer.layer + 1}':<{LAYER}}", on.ink("strong" if here else "muted"))]
    own = columns(layer)
    for place, head in enumerate(heads):
        marked = here and head == chosen.head
        before = here and place > 0 and heads[place - 1] == chosen.head
        row.append(Segment("▐" if marked else "▌" if before else " ", on.ink("accent")))
        if head in own:
            weights = weights_of(layer, head, tokens)
            row += shades.strip(stretches(weights, shades.in_a_cell * cells), cells)
        else:
            row.append(Segment(" " * cells, on.rich_style))
    if here and heads[-1] == chosen.head:
        row.append(Segment("▌", on.ink("accent")))
    return row


def ranking(
    read: AttentionRead,
    scored: HeadsScored,
    order: int,
    chosen: Head,
    on: Canvas,
    width: int,
    height: int,
) -> list[Row]:
    """The heads by a score, the highest first, each with its map of this token.

    Args:
        read: Has their weights.
        scored: The scores of the heads.
        order: Place in `ORDERS`, not the first.
        chosen: Is marked.
        on: Has the inks.
        width: Cells.
        height: Lines, the legend's included.
    """
    shades = Shades(on)
    best = ranked(scored.heads, order)
    meaning = f"{ORDERS[order].meaning[:1].upper()}{ORDERS[order].meaning[1:]}; over {measured_on(scored)}."
    about = said(meaning, on.ink("muted"), width)
    if height >= FOUND_LINES and order <= len(ROLES):
        about += said(found_words(scored)[order - 1], on.ink("strong"), width)
    if best and score(best[0], order) is None:
        nothing = "No token of this text occurs again: there is nothing to score."
        about += said(nothing, on.ink("warn"), width)
    legend = [[], *said(STRIP_MEANING, on.ink("muted"), width), shades.legend(width)]
    place = next((at for at, each in enumerate(best) if (each.layer, each.head) == chosen), 0)
    room = max(1, height - len(about) - len(legend))
    top = max((score(each, order) or 0.0 for each in best), default=0.0)
    cells = max(LEAST, min(24, width - 31))
    layers = {layer.layer: layer for layer in read.layers}
    shown = _around(best, room - 1, place) if len(best) > room > 2 else best
    if part := part_shown(
        width, ("ranks", [best.index(shown[0]), best.index(shown[-1])] if shown else [], len(best))
    ):
        room -= 1
        about.append([Segment(part, on.ink("warn"))])
    rows: list[Row] = []
    for each in _around(best, room, place):
        head, value = Head(each.layer, each.head), score(each, order)
        here = head == chosen
        row: Row = [Segment(f"{'▸' if here else ' '} {head.name:<8}", on.ink("accent" if here else "muted"))]
        if (layer := layers.get(head.layer)) is not None and head.head < layer.heads:
            weights = weights_of(layer, head.head, read.tokens)
            row += shades.strip(stretches(weights, shades.in_a_cell * cells), cells)
        number = "" if value is None else bits(value) if order == len(ORDERS) - 1 else percent(value)
        row.append(Segment(f"{number:>9} ", on.ink("strong") if here else on.rich_style))
        row.append(Segment(bar((value or 0.0) / top if top else 0.0, 10), on.data(0.5)))
        rows.append(row)
    return [*about, *rows, *legend]


def _around(things: Sequence[Thing], room: int, place: int) -> Sequence[Thing]:
    """The neighbours that there is room for, one of them in the middle where it can be."""
    first = max(0, min(place - room // 2, len(things) - room))
    return things[first : first + room]


# ---- all tokens of one head ---------------------------------------------------------------------

AXIS = 6
"""Cells of a row's number."""
LEGEND_LINES = 8
"""Lines from which on the legend is always on show."""
TOKEN = 10
"""Cells of a row's token, where there is room for a row each."""
TRIANGLE_MEANING = "A row looks at the columns; empty is later: hidden by the causal mask{}."


class Triangle:
    """The triangle of a head: a row for each token that looks, a column for each that is looked at.

    Args:
        read: The weights.
        items: The path's tokens, as many at least.
        cursor: The token that is looked at, from 0.
        on: Has the inks.
        squeezed: Whether all of it is to be seen: a cell is then several tokens, with the largest of their weights.
    """

    def __init__(
        self, read: TriangleRead, items: Sequence[Item], cursor: int, on: Canvas, squeezed: bool = False
    ) -> None:
        self._read, self._items, self._on = read, items, on
        self._cursor = min(cursor, read.tokens - 1)
        self._squeezed = squeezed
        self._shades = Shades(on)
        self._by = 1
        """Tokens of a row and of a column."""
        self.fits = True
        """True if there was room for all tokens, each in a row and a column of its own."""

    def rows(self, width: int, height: int) -> list[Row]:
        """The part around the cursor that there is room for, or all of it."""
        tokens, legend = self._read.tokens, self._legend(width)
        # Where it is low, the page scrolls to the legend.
        room = max(1, height - 1 - (len(legend) if height >= LEGEND_LINES else 0))
        roomy = tokens <= room and TOKEN + AXIS + 2 * tokens <= width
        dense = self._shades.colorful and not roomy
        across, left = (2, AXIS + TOKEN) if roomy else (1, AXIS)
        fitting = max(1, (width - left) // across), room * (2 if dense else 1)
        self.fits = tokens <= min(fitting)
        self._by = -(-tokens // min(fitting)) if self._squeezed else 1
        count = -(-tokens // self._by)
        shown, down = (min(count, most) for most in fitting)
        first = max(0, min(self._cursor // self._by - down // 2, count - down))
        columns = range(max(0, first + down - shown), max(0, first + down - shown) + shown)
        if dense:
            drawn = [self._dense(top, columns) for top in range(first, first + down, 2)]
        else:
            drawn = [self._row(row, columns, across, roomy) for row in range(first, first + down)]
        return [self._axis(columns, left, across), *drawn, *self._legend(width)]

    def _axis(self, columns: range, left: int, across: int) -> Row:
        """The numbers of some columns, from 1."""
        text, end = "", len(columns) * across
        for column in columns:
            cells, number = (column - columns.start) * across, str(column * self._by + 1)
            fifth = column == 0 or (column + (self._by == 1)) % 5 == 0
            if fifth and len(text) <= cells and (cells + len(number) <= end or not text):
                text = f"{text:<{cells}}{number} "
        return [Segment(" " * left + text, self._on.ink("muted"))]

    def _row(self, row: int, columns: range, across: int, labelled: bool) -> Row:
        weights, here = self._seen(row), row == self._cursor // self._by
        label = ""
        if labelled:
            item = self._items[row]
            label = pad(token_label(item.text, item.raw), TOKEN - 1, right=True) + " "
        cells = [self._shades.whole(_at(weights, column), across) for column in columns]
        return [self._number(row, here, label), *cells]

    def _dense(self, top: int, columns: range) -> Row:
        upper, lower = self._seen(top), self._seen(top + 1)
        here = self._cursor // self._by in (top, top + 1)
        cells = [self._shades.halves(_at(upper, column), _at(lower, column)) for column in columns]
        return [self._number(top, here), *cells]

    def _number(self, row: int, here: bool, label: str = "") -> Segment:
        """A row's number, or the token's that is looked at."""
        number = self._cursor if here else row * self._by
        text = f"{label}{number + 1:>{AXIS - 2}}{'▸' if here else ' '} "
        return Segment(text, self._on.ink("accent" if here else "muted"))

    def _seen(self, row: int) -> list[float | None]:
        """A row's weights; None for what a window or a mask hides."""
        tokens = range(row * self._by, min((row + 1) * self._by, self._read.tokens))
        rows = [self._read.row(token) for token in tokens]
        if self._by == 1:
            return [weight or None for weight in rows[0]] if rows else []
        ends = range(0, len(rows[-1]) if rows else 0, self._by)
        return [
            max(max(each[first : first + self._by], default=0.0) for each in rows) or None for first in ends
        ]

    def _legend(self, width: int) -> list[Row]:
        """The meaning of rows, columns and colours: on one line where it is wide enough."""
        hidden = 0.0 in self._read.row(self._read.tokens - 1)
        what, scale = (
            TRIANGLE_MEANING.format(", or by a window" if hidden else ""),
            self._shades.legend(width),
        )
        if self._by > 1:
            what += f" A cell is {self._by} × {self._by} tokens, the largest of their weights."
        muted = self._on.ink("muted")
        narrow = self._shades.legend(0)
        if len(what) + 2 + sum(part.cell_length for part in narrow) <= width:
            return [[Segment(what + " ", muted), *narrow]]
        return [*said(what, muted, width), scale]


def _at(weights: Sequence[float | None], column: int) -> float | None:
    return weights[column] if column < len(weights) else None
