"""Heads by layers, or by their scores: for each a small map of where it looks over the path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rich.segment import Segment

from engine.protocol import AttentionLayer, AttentionRead, HeadScore
from inspector.main.inside.screen import part_shown
from inspector.scales import bits, percent
from inspector.tools.attention.shades import Shades
from inspector.tools.attention.weights import (
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

Thing = TypeVar("Thing")
LABEL = 4
"""Cells of a layer's name."""
LEAST, MOST = 3, 12
"""Cells of a map."""
TALL = 3
"""Lines of a map at most."""
WHAT = "Each strip is the text up to this token: where a head looks."


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
    widest = max(layers, key=lambda layer: layer.heads)
    heads: Sequence[int] = columns(widest)
    cells = max(LEAST, min(MOST, (width - LABEL - 1) // len(heads) - 1))
    fitting = max(1, (width - LABEL - 1) // (cells + 1))
    every, heads = heads, _around(heads, fitting, heads.index(chosen.head) if chosen.head in heads else 0)
    legend = map_legend(on, shades, width)
    place = next((at for at, layer in enumerate(layers) if layer.layer == chosen.layer), 0)
    room = max(1, height - 1 - len(legend))
    said = part_shown(
        width,
        ("layers", [each.layer for each in _around(layers, room - 1, place)], len(layers)),
        ("heads", [head for head in heads if head >= 0], sum(head >= 0 for head in every)),
    )
    if said and room > 2:
        room -= 1
        legend = [[Segment(said, on.ink("warn"))], *legend[1:]]
    header: Row = [Segment(" " * LABEL, on.rich_style)]
    for head in heads:
        name = NAMES.get(head) or f"h{head + 1}"
        ink = on.ink("strong" if head == chosen.head else "muted")
        header.append(Segment(f" {name:<{cells}.{cells}}", ink))
    rows, tall = [header], max(1, min(TALL, room // len(layers)))
    for layer in _around(layers, room, place):
        row = _layer(layer, heads, chosen, read.tokens, cells, on, shades)
        rows += [row, *[[Segment(" " * LABEL, on.rich_style), *row[1:]]] * (tall - 1)]
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
    row: Row = [Segment(f"{f'L{layer.layer + 1}':<{LABEL}}", on.ink("strong" if here else "muted"))]
    own = columns(layer)
    for place, head in enumerate(heads):
        marked = here and head == chosen.head
        before = here and place > 0 and heads[place - 1] == chosen.head
        row.append(Segment("▐" if marked else "▌" if before else " ", on.ink("accent")))
        if head in own:
            row += shades.strip(stretches(weights_of(layer, head, tokens), shades.fit(cells)), cells)
        else:
            row.append(Segment(" " * cells, on.rich_style))
    if here and heads[-1] == chosen.head:
        row.append(Segment("▌", on.ink("accent")))
    return row


def ranking(
    read: AttentionRead,
    scores: Sequence[HeadScore],
    order: int,
    chosen: Head,
    on: Canvas,
    width: int,
    height: int,
) -> list[Row]:
    """The heads by a score, the highest first, each with its map of this token.

    Args:
        read: Has their weights.
        scores: Of the heads.
        order: Place in `ORDERS`, not the first.
        chosen: Is marked.
        on: Has the inks.
        width: Cells.
        height: Lines, the legend's included.
    """
    shades = Shades(on)
    best = ranked(scores, order)
    about: list[Row] = [[Segment(line, on.ink("muted"))] for line in wrapped(ORDERS[order].meaning, width)]
    if best and score(best[0], order) is None:
        nothing = "No token of this text occurs again: there is nothing to score."
        about += [[Segment(line, on.ink("warn"))] for line in wrapped(nothing, width)]
    legend = map_legend(on, shades, width)
    place = next((at for at, each in enumerate(best) if (each.layer, each.head) == chosen), 0)
    room = max(1, height - len(about) - len(legend))
    top = max((score(each, order) or 0.0 for each in best), default=0.0)
    cells = max(LEAST, min(24, width - 31))
    layers = {layer.layer: layer for layer in read.layers}
    shown = _around(best, room - 1, place) if len(best) > room > 2 else best
    if said := part_shown(
        width, ("ranks", [best.index(shown[0]), best.index(shown[-1])] if shown else [], len(best))
    ):
        room -= 1
        about.append([Segment(said, on.ink("warn"))])
    rows: list[Row] = []
    for each in _around(best, room, place):
        head, value = Head(each.layer, each.head), score(each, order)
        here = head == chosen
        row: Row = [Segment(f"{'▸' if here else ' '} {head.name:<8}", on.ink("accent" if here else "muted"))]
        if (layer := layers.get(head.layer)) is not None and head.head < layer.heads:
            weights = weights_of(layer, head.head, read.tokens)
            row += shades.strip(stretches(weights, shades.fit(cells)), cells)
        number = "" if value is None else bits(value) if order == len(ORDERS) - 1 else percent(value)
        row.append(Segment(f"{number:>9} ", on.ink("strong") if here else on.rich_style))
        row.append(Segment(bar((value or 0.0) / top if top else 0.0, 10), on.data(0.5)))
        rows.append(row)
    return [*about, *rows, *legend]


def map_legend(on: Canvas, shades: Shades, width: int) -> list[Row]:
    """What maps and colours mean."""
    return [[], *([Segment(line, on.ink("muted"))] for line in wrapped(WHAT, width)), shades.legend(width)]


def _around(things: Sequence[Thing], room: int, place: int) -> Sequence[Thing]:
    """As many neighbours as there is room for, one of them in the middle where it can be."""
    first = max(0, min(place - room // 2, len(things) - room))
    return things[first : first + room]
