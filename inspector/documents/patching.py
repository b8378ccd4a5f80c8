"""Activation patching: the places that restore most, which tokens face each other, and means over pairs of texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import (
    ActivationsPatched,
    Facing,
    PairPatched,
    PairsPatched,
    PatchColumn,
    PatchKind,
    PlaceShares,
)
from engine.tree import common_prefix
from inspector.blocks.blocks import (
    Block,
    Cell,
    Column,
    Shaded,
    Table,
    TableRow,
    Text,
    Tone,
    number,
    sentence,
    sentences,
)
from inspector.blocks.heat_map import SHARES
from inspector.blocks.page import elements, page_table
from inspector.display import quoted, token_label, token_text, truncate, visible
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.keys import with_keys
from inspector.scales import count, counted, decimal, signed
from inspector.state.inside import Answers
from inspector.state.patching import alignment_words
from inspector.state.session_tree import Item

NAMES: dict[PatchKind, str] = {
    "layer": "whole layers",
    "attention": "attentions",
    "mlp": "MLPs",
}
"""The parts whose activations can be put in, in the order in which a key goes through them."""
STRONGEST = 12
"""Places in a table."""
PAIR = 60
"""Cells of the text of a pair."""
MOST_OF_THE_WAY = 0.5
"""The share from which a number is bold in the map on a page."""
MAPPED = 1500
"""Maximum cells of a map on a page; instead of a larger map, only the strongest places are listed."""
ALIGNING = (
    "{patching.earlier_layer} {patching.later_layer} choose a token of this text, {patching.position_before} "
    "{patching.next_position} let it face the one before or the next of the source, {patching.unface} none. "
    "{patching.facing} uses it."
)


def difference(path: Sequence[Item], other: Sequence[Item]) -> str:
    """The text of another path, from two tokens before the first that differs; printable."""
    parted = common_prefix((item.node for item in path), (item.node for item in other))
    begin = max(0, parted - 2)
    text = "".join(token_text(item.text, item.raw) for item in other[begin:])
    return f"{'…' if begin else ''}{text}"


# ---- one path -----------------------------------------------------------------------------------


def patched(read: ActivationsPatched) -> Iterator[Block]:
    """The places that restore most of the difference."""
    cells = [
        (share, layer, column)
        for place, layer in enumerate(read.layers)
        for column, share in zip(read.columns, read.shares.row(place), strict=False)
        if math.isfinite(share)
    ]
    listed = sorted(cells, key=lambda cell: -abs(cell[0]))[:STRONGEST]
    token, other = (quoted(token_label(text)) for text in (read.text, read.other_text))
    differences = f"{signed(read.difference)} here, {signed(read.source_difference)} in the source"
    yield from sentences([
        f"Logit of {token} minus {other}: {differences}. Restored: the share of that difference; 1 is all of it.",
        f"The largest {len(listed)} of {count(len(cells))} places:", alignment_words(read),
    ], "")  # fmt: skip
    columns = Column("layer"), number("position"), Column("here"), Column("source"), number("restored")
    yield Table(columns, [_place(*cell) for cell in listed])


def _place(share: float, layer: int, column: PatchColumn) -> TableRow:
    texts = token_label(column.text), token_label(column.source_text)
    return TableRow((f"L{layer + 1}", f"token {column.position + 1}", *texts, signed(share)))


def alignment(path: Sequence[Item], source: Sequence[Item], faced: Facing, chosen: int) -> Iterator[Block]:
    """A row for each token of a path with its partner in the source, and for each token of the source without one.

    Args:
        path: The path that is patched.
        source: The path that the activations are from.
        faced: The alignment.
        chosen: Index of the token of the path whose partner is changed.
    """
    partners, rows, at, done = dict(faced), list[TableRow](), 0, 0
    for place, item in enumerate(path):
        partner = partners.get(place)
        if partner is not None:
            rows += [TableRow(("", _placed(source, left)), "faint") for left in range(done, partner)]
            done = partner + 1
        at = len(rows) if place == chosen else at
        replaced = partner is not None and item.id != source[partner].id
        theirs = _placed(source, partner) if partner is not None else "faces none"
        tone: Tone = "warn" if replaced else "faint" if partner is None else ""
        rows.append(TableRow((_placed(path, place), theirs), tone))
    rows += [TableRow(("", _placed(source, left)), "faint") for left in range(done, len(source))]
    yield sentence(with_keys(ALIGNING), tone="muted")
    yield Table((Column("this text"), Column("source")), rows, at, least=1)


def _placed(items: Sequence[Item], place: int) -> str:
    """A token with its place, counted from 1."""
    return f"{place + 1:>4} {token_label(items[place].text, items[place].raw)}"


# ---- pairs of texts -----------------------------------------------------------------------------


def over_pairs(read: PairsPatched) -> Iterator[Block]:
    """The mean share by layer and class of positions, then the pairs."""
    done = sum(not each.failure for each in read.pairs)
    yield sentence(
        f"{count(done)} of {count(len(read.pairs))} pairs: mean share of the difference restored ± its standard "
        "deviation over the pairs. Changed: where the tokens differ, the last of them by itself. After: the same "
        "tokens after them.",
        tone="muted",
    )
    heads = (number(f"{each.place} ({each.pairs})", short=each.place) for each in read.places)
    rows = [
        TableRow((f"L{layer + 1}", *(_mean(each, place) for each in read.places)))
        for place, layer in reversed(list(enumerate(read.layers)))
    ]
    yield Table((Column("layer", short=" "), *heads), rows, whole=True)
    columns = Column("text", priority=1), Column("source", priority=1), Column("logits")
    yield Table(columns, [*map(_pair, read.pairs)], whole=True)


def _mean(each: PlaceShares, place: int) -> Cell:
    mean, spread = decimal(each.means[place]), decimal(each.spreads[place])
    return Shaded(f"{mean} ± {spread}", SHARES.step(each.means[place]), f"{mean}±{spread}")


def _pair(each: PairPatched) -> TableRow:
    texts = (truncate(visible(text), PAIR) for text in (each.pair.text, each.pair.source))
    less = f"{quoted(token_label(each.token))} minus {quoted(token_label(each.other))}"
    logits = f"{less}: {signed(each.difference)} here, {signed(each.source_difference)} in the source"
    return TableRow((*texts, visible(each.failure) or logits), "bad" if each.failure else "")


# ---- on a page ----------------------------------------------------------------------------------


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    tree, places, answers = of.timeline.tree, Counter[int](), of.timeline.of(Answers)
    for read in answers.found(ActivationsPatched):
        node, source = read.node, read.source
        if node not in tree.nodes or source not in tree.nodes or not read.columns:
            continue
        heading = f"With {NAMES[read.part]} put in from “{difference(tree.path(node), tree.path(source))}”"
        whole = [_map(read)] if len(read.layers) * len(read.columns) <= MAPPED else []
        make = partial(elements, [*patched(read)], read.facts, *whole)
        yield Exhibit(f"patched-{places[node]}", heading, make, node)
        places[node] += 1

    for pairs in answers.found(PairsPatched):
        done = sum(not each.failure for each in pairs.pairs)
        heading = f"With {NAMES[pairs.part]} put in, over {counted(done, 'pair')} of texts"
        yield Exhibit(f"pairs-{pairs.part}", heading, partial(elements, [*over_pairs(pairs)], pairs.facts))


def _map(read: ActivationsPatched) -> Element:
    """A row for each layer, the last one on top; a column for each position."""
    columns = Column(), *(Column(token_label(column.text)) for column in read.columns)
    rows = [
        TableRow((f"L{layer + 1}", *map(_cell, read.shares.row(place))))
        for place, layer in reversed(list(enumerate(read.layers)))
    ]
    return page_table(Table(columns, rows), "plain lens")


def _cell(share: float) -> Text:
    shown = signed(share) if math.isfinite(share) else ""
    return Text(shown, "strong" if share >= MOST_OF_THE_WAY else "")


PATCHED_PART = ExportPart("patching", _exhibits)
