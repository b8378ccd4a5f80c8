"""The parts of an export about what was switched off or put in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import ActivationsPatched, HeadsSwept, Intervened, PairsPatched, PatchKind, SweptUnit
from engine.tree import common_prefix
from inspector.blocks.blocks import sentence
from inspector.blocks.elements import element
from inspector.blocks.page import elements
from inspector.display import token_label, token_text
from inspector.documents.interventions import candidates, heading, over_pairs, patched, strongest
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.scales import KL_BITS, bits, percent, signed
from inspector.state.inside import Answers
from inspector.state.session_tree import Item

NAMES: dict[PatchKind, str] = {
    "layer": "whole layers",
    "attention": "attentions",
    "mlp": "MLPs",
}
"""The parts whose activations can be put in, in the order in which a key goes through them."""
_PARTS = {"attention": "attention", "recurrence": "recurrence", "mlp": "MLP", "layer": "layer"}
"""The columns of a sweep's map after those of the heads."""
_CELL, _GAP = 10, 4
"""The side of a cell of that map with the space after it, and the space before the parts, in its own unit."""
_ROOMY = 24
"""Rows or columns of it up to which each has its name."""
_UNITS = 20_000
"""Units of a sweep at most: no model of today has more."""
_TITLED = 600
"""Cells of a map up to which each says its figures when it is pointed at."""
MOST_OF_THE_WAY = 0.5
"""Shares from here on are bold in the map of what was put in."""
MAPPED = 1500
"""Cells of a map of what was put in, at most: a larger one has its strongest places alone."""


def _switched(of: Exported) -> Iterator[Exhibit]:
    answers = of.timeline.of(Answers)
    for swept in answers.found(HeadsSwept):
        title = "What each part is worth: switched off alone"
        title += " in the whole context" * (swept.scope == "context")
        kind = "sweep" if swept.scope == "token" else "sweep-context"
        yield Exhibit(kind, title, partial(_sweep, swept), swept.node, swept.token)
    places: Counter[int] = Counter()
    for tried in answers.found(Intervened):
        make = partial(elements, [*candidates(tried)], tried.facts)
        yield Exhibit(f"tried-{places[tried.node]}", heading(tried), make, tried.node)
        places[tried.node] += 1


def _sweep(swept: HeadsSwept) -> Iterator[Element]:
    """The map of every unit switched off alone, and the strongest of them."""
    units = [each for each in swept.units[:_UNITS] if math.isfinite(each.kl_bits)]
    if not units:
        return
    edges = enumerate(KL_BITS, 1)
    legend = (element("span", element("i", f"≥{edge:g}"), class_=f"t h{step}") for step, edge in edges)
    says = "A row a layer, the last one on top; a column a head, then the layer's parts. KL: how far all " \
           "probabilities move."  # fmt: skip
    named = element("p", "KL in bits ", *legend, class_="legend")
    yield from elements((sentence(says), *strongest(swept)), swept.facts, _map(units), named)


def _map(units: Sequence[SweptUnit]) -> Element:
    """A cell for each unit that there is: layers and columns that a file made up take no room."""
    layers = sorted({each.intervention.layer for each in units}, reverse=True)
    heads = sorted({each.intervention.head for each in units if each.intervention.head is not None})
    kinds = [kind for kind in _PARTS if any(each.intervention.kind == kind for each in units)]
    font = 6.5 * max(1.0, len(heads) / _ROOMY)
    left, top = 4 * font, 6 * font
    wide = max(_CELL, round(1.3 * font))  # a part's column has room for its name
    across: dict[tuple[str, int | None], float]
    across = {("head", head): left + place * _CELL for place, head in enumerate(heads)}
    begin = left + len(heads) * _CELL + _GAP * bool(heads)
    across |= {(kind, None): begin + place * wide for place, kind in enumerate(kinds)}
    down = {layer: top + place * _CELL for place, layer in enumerate(layers)}
    placed = [
        (unit, across[column], down[unit.intervention.layer], _CELL if column[1] is not None else wide)
        for unit in units
        if (column := (unit.intervention.kind, unit.intervention.head)) in across
    ]
    shapes = _cells(placed)
    shapes += [
        element("text", f"L{layer + 1}", x=left - 4, y=down[layer] + _CELL - 2, text_anchor="end")
        for layer in _named_ones(layers)
    ]
    for kind, head in [("head", head) for head in _named_ones(heads)] + [(kind, None) for kind in kinds]:
        name = f"h{head + 1}" if head is not None else _PARTS[kind]
        x, y = across[kind, head] + 7, top - 3
        shapes.append(element("text", name, x=x, y=y, transform=f"rotate(-60 {x} {y})"))
    width, height = round(max(across.values()) + wide + 3 * font), round(top + len(layers) * _CELL)
    return element(
        "svg", *shapes, viewBox=f"0 0 {width} {height}", width=round(1.7 * width), class_="map", role="img",
        font_size=round(font, 1), aria_label="KL of each unit switched off alone; the strongest are listed below",
    )  # fmt: skip


def _named_ones(numbers: Sequence[int]) -> Sequence[int]:
    """The rows or columns that have room for their names."""
    return numbers if len(numbers) <= _ROOMY else [each for each in numbers if not each or not (each + 1) % 8]


def _cells(placed: Sequence[tuple[SweptUnit, float, float, int]]) -> list[Element]:
    """Each cell with its figures; of a large map a path for each colour, without words: 15 bytes a cell, not 150."""
    side, paths = _CELL - 1, [""] * (len(KL_BITS) + 1)
    shapes = []
    for unit, x, y, width in placed:
        step = sum(unit.kl_bits >= edge for edge in KL_BITS)
        paths[step] += f"M{x:g} {y:g}h{width - 1}v{side}h-{width - 1}z"
        if len(placed) <= _TITLED:
            said = (
                f"{unit.intervention.label}: KL {bits(unit.kl_bits)} bits, logit {signed(unit.logit_change)}"
            )
            place = {"x": x, "y": y, "width": width - 1, "height": side, "rx": 1.5}
            shapes.append(element("rect", element("title", said), class_=f"cell heat{step}", **place))
    drawn = [element("path", class_=f"cell heat{step}", d=path) for step, path in enumerate(paths) if path]
    return shapes or drawn


# ---- put in from another path -------------------------------------------------------------------


def _patched(of: Exported) -> Iterator[Exhibit]:
    tree, places, answers = of.timeline.tree, Counter[int](), of.timeline.of(Answers)
    for read in answers.found(ActivationsPatched):
        node, source = read.node, read.source
        if node not in tree.nodes or source not in tree.nodes or not read.columns:
            continue
        heading = f"With {NAMES[read.part]} put in from “{difference(tree.path(node), tree.path(source))}”"
        yield Exhibit(f"patched-{places[node]}", heading, partial(_patches, read), node)
        places[node] += 1

    for pairs in answers.found(PairsPatched):
        done = sum(not each.failure for each in pairs.pairs)
        heading = f"With {NAMES[pairs.part]} put in, over {done} pair{'s' * (done != 1)} of texts"
        yield Exhibit(f"pairs-{pairs.part}", heading, partial(elements, [*over_pairs(pairs)], pairs.facts))


def difference(path: Sequence[Item], other: Sequence[Item]) -> str:
    """The tokens of another path from a little before it parts; printable."""
    parted = common_prefix((item.node for item in path), (item.node for item in other))
    begin = max(0, parted - 2)
    text = "".join(token_text(item.text, item.raw) for item in other[begin:])
    return f"{'…' if begin else ''}{text}"


def _patches(read: ActivationsPatched) -> Iterator[Element]:
    """The map of all places, if it isn't too large, and the strongest of them."""
    whole = [_patch_map(read)] if len(read.layers) * len(read.columns) <= MAPPED else []
    yield from elements(patched(read), read.facts, *whole)


def _patch_map(read: ActivationsPatched) -> Element:
    """A row for each layer, the last one on top; a column for each position."""
    names = (element("th", token_label(column.text), scope="col") for column in read.columns)
    lines = [
        element("tr", element("th", f"L{layer + 1}", scope="row"), *map(_patch_cell, read.shares.row(place)))
        for place, layer in reversed(list(enumerate(read.layers)))
    ]
    head = element("thead", element("tr", element("td"), *names))
    return element("div", element("table", head, element("tbody", *lines)), class_="lens")


def _patch_cell(share: float) -> Element:
    shown = percent(share) if math.isfinite(share) else ""
    return element("td", shown, class_="leads" if share >= MOST_OF_THE_WAY else None)


SWITCHED_PART = ExportPart("switched off", _switched)
PATCHED_PART = ExportPart("patching", _patched)
