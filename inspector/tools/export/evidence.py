"""What was looked at inside the model, as elements of the page: they stand in it for print and where no script runs.

With scripts the panel shows those of the chosen token, copied from here. Everything foreign in them is printable text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from engine.protocol import (
    AttentionRead,
    AttributionRead,
    CaptureFacts,
    HeadsSwept,
    Intervened,
    LensRead,
    SweptUnit,
)
from inspector.display import quoted, token_label
from inspector.scales import KL_BITS, bits, count, percent
from inspector.state.contributions import ContributionRow, head_rows, part_rows
from inspector.state.inside import Looks, checks_words, interventions_words
from inspector.state.session_tree import Item
from inspector.tools.export.element import element, row
from inspector.tools.export.recording import Recording

MOST = 24
"""Writers that have a bar: the largest, where a model has more."""
STRONGEST = 8
"""Heads, and units that were switched off, that are listed."""
_PARTS = {"attention": "attention", "recurrence": "recurrence", "mlp": "MLP", "layer": "layer"}
"""The columns of a sweep's map after those of the heads."""
_CELL, _GAP = 10, 4
"""Of that map, in its own unit: side of a cell with the space after it, and the space before the parts."""
_ROOMY = 24
"""Rows or columns of it up to which each has its name."""
_UNITS = 20_000
"""Of a sweep: no model of today has more."""
_TITLED = 600
"""Cells of a map up to which each says its figures when it is pointed at."""
Look = tuple[str, Element | None]
"""A heading, and what stands under it."""


def evidence(recording: Recording, places: Mapping[int, int]) -> list[Element]:
    """An article for each token whose forward was looked at, in the order of the tree's tokens.

    Args:
        recording: Whose views they are.
        places: Row of each node.
    """
    seen = recording.timeline.of(Looks)
    nodes = {
        *seen.attention,
        *seen.lens,
        *seen.contributions,
        *seen.sweeps,
        *(node for node, _, _ in seen.tried),
    }
    return [
        _article(recording, places, node)
        for node in sorted(nodes & places.keys(), key=lambda each: places[each])
    ]


def _article(recording: Recording, places: Mapping[int, int], node: int) -> Element:
    """All that was looked at where one token went through the model."""
    timeline = recording.timeline
    item, children = timeline.tree.nodes[node], timeline.tree.children.get(node, [])
    path = {each.node for each in recording.items}
    taken = next((child for child in children if child in path), children[0] if children else None)
    followed = f"What came after {_named(item)}"
    followed += f": {_named(timeline.tree.nodes[taken])}" if taken is not None else ""
    sections = [
        element("section", element("h4", heading), body, class_="look", data_kind=kind)
        for kind, (heading, body) in _looks(recording, places, node)
        if body is not None
    ]
    return element("article", element("h3", followed), *sections, class_="looked", data_row=places[node])


def _named(item: Item) -> str:
    return quoted(token_label(item.text, item.raw))


def _looks(recording: Recording, places: Mapping[int, int], node: int) -> Iterator[tuple[str, Look]]:
    """The views of one token, each with the name of its kind."""
    timeline = recording.timeline
    seen = timeline.of(Looks)
    if (read := seen.attention.get(node)) is not None:
        yield "attention", ("Where the model looked", attention(read, timeline.tree.path(node)))
    if (lens := seen.lens.get(node)) is not None:
        yield "lens", ("What each layer would predict", lens_table(lens, recording, places))
    if (parts := seen.contributions.get(node)) is not None:
        yield "contributions", contributions(parts)
    if (swept := seen.sweeps.get(node)) is not None:
        yield "sweep", sweep(swept)
    for place, tried in enumerate(each for (at, _, _), each in seen.tried.items() if at == node):
        yield f"tried-{place}", effect(tried)


def _hint(*texts: str) -> Element:
    return element("p", " ".join(filter(None, texts)), class_="hint")


def _checked(facts: CaptureFacts) -> str:
    return f"Checked: {checks_words(facts)}." if facts.checks else ""


def _signed(value: float) -> str:
    """Logits with their sign and a true minus; nothing is neither."""
    text = f"{value:+.2f}".replace("-", "−")
    return text if any(digit in text for digit in "123456789") else text[1:]


# ---- attention and lens -------------------------------------------------------------------------


def attention(read: AttentionRead, path: Sequence[Item]) -> Element:
    """The strongest weights that are not on the first token, which many heads look at where they look at nothing."""
    found = sorted(
        (
            (weight, layer.layer, head, place)
            for layer in read.layers
            for head in range(layer.heads)
            for place, weight in enumerate(layer.over(head, read.tokens))
            if 0 < place < len(path)
        ),
        reverse=True,
    )
    rows = [
        row(
            f"L{layer + 1} h{head + 1}",
            _label(path[place].text, path[place].raw),
            f"token {place + 1}",
            percent(weight),
        )
        for weight, layer, head, place in found[:STRONGEST]
    ]
    table = _table(("head", "looks at", "", "weight"), rows)
    told = (
        "The strongest weights, the first token aside. Where a head looks does not tell what it does with it."
    )
    return element("div", table, _hint(told, _checked(read.facts)))


def lens_table(read: LensRead, recording: Recording, places: Mapping[int, int]) -> Element | None:
    """A column for each position, a row for each layer, the last one on top."""
    depth = max((len(column.cells) for column in read.columns), default=0)
    if not depth:
        return None
    nodes = recording.timeline.tree.nodes
    heads = [nodes[column.node].text if column.node in places else "" for column in read.columns]
    rows = []
    for layer in reversed(range(depth)):
        cells = []
        for column in read.columns:
            cell = column.cells[layer] if layer < len(column.cells) else None
            if cell is None or not cell.top:
                cells.append(element("td"))
                continue
            leads = "leads" if cell.final_rank == 1 else None
            label = token_label(cell.top[0].text)
            cells.append(element("td", label, class_=leads, title=f"{label} {percent(cell.top[0].prob)}"))
        rows.append(element("tr", element("th", str(layer) if layer else "emb", scope="row"), *cells))
    names = (element("th", token_label(text) if text else "", scope="col") for text in heads)
    table = element("table", element("thead", element("tr", element("td"), *names)), element("tbody", *rows))
    told = (
        "Bold: the layer ranks first what the last layer does. Early layers were not trained to be read so."
    )
    return element("div", element("div", table, class_="lens"), _hint(told, _checked(read.facts)))


# ---- contributions ------------------------------------------------------------------------------


def contributions(read: AttributionRead) -> Look:
    """A bar for each writer around zero, in the order in which they write, and what they sum to."""
    names = [quoted(token_label(each.text)) for each in read.tokens]
    what = f"Why {names[0]} rather than {names[1]}" if len(names) > 1 else f"What made {names[0]}"
    parts = [part for part in part_rows(read) if math.isfinite(part.value)]
    if not parts:
        return what, None
    kept = sorted(sorted(parts, key=lambda part: -abs(part.value))[:MOST], key=lambda part: part.part)
    others = math.fsum(part.value for part in parts if part not in kept)
    low, high = min(0.0, *(part.value for part in kept)), max(0.0, *(part.value for part in kept))
    rows = [_writer(part, low, high) for part in kept]
    if len(parts) > len(kept):
        rows.append(row(f"{count(len(parts) - len(kept))} others", "", _signed(others), class_="others"))
    logit = "the logit before the softcap" if read.softcap else "the logit"
    rows.append(row("sum", "", _signed(read.total), class_="taken"))
    unit = f"logits of {names[0]} less those of {names[1]}" if len(names) > 1 else f"logits of {names[0]}"
    told = (
        f"In {unit}; the model's own {logit.removeprefix('the ')} is {_signed(read.reached)}. Direct effect alone: "
        "what a part does through later layers is in their bars."
    )
    return what, element(
        "div",
        _table(("writer", "", "adds"), rows, "bars"),
        _heads(read, parts),
        _hint(told, _checked(read.facts)),
    )


def _writer(part: ContributionRow, low: float, high: float) -> Element:
    span = high - low or 1.0
    begin, length = (min(0.0, part.value) - low) / span * 100, abs(part.value) / span * 100
    sign = "plus" if part.value >= 0 else "minus"
    drawn = element(
        "svg",
        element("rect", class_=sign, x=f"{begin:.2f}", y=1, width=f"{length:.2f}", height=8),
        element("rect", class_="axis", x=f"{-low / span * 100 - 0.2:.2f}", y=0, width=0.4, height=10),
        viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true",
    )  # fmt: skip
    return row(part.name, drawn, _signed(part.value))


def _heads(read: AttributionRead, parts: Sequence[ContributionRow]) -> Element | None:
    """The heads that add or take most."""
    every = (head for part in parts for head in head_rows(read, part) if math.isfinite(head.value))
    found = sorted(every, key=lambda head: -abs(head.value))[:STRONGEST]
    words = ", ".join(f"{head.name} {_signed(head.value)}" for head in found)
    return element("p", element("b", "Heads: "), words, class_="heads-said") if words else None


# ---- switched off -------------------------------------------------------------------------------


def sweep(swept: HeadsSwept) -> Look:
    """The map of every unit switched off alone, and the strongest of them."""
    heading = "What each part is worth: switched off alone"
    units = [each for each in swept.units[:_UNITS] if math.isfinite(each.kl_bits)]
    if not units:
        return heading, None
    strongest = sorted(units, key=lambda each: -each.kl_bits)[:STRONGEST]
    rows = [
        row(each.intervention.label, bits(each.kl_bits), _signed(each.logit_change),
            f"{token_label(each.top_text)} {percent(each.top_prob)}")
        for each in strongest
    ]  # fmt: skip
    head = ("off", "KL bits", f"logit of {token_label(swept.text)}", "then leads")
    legend = [
        element("span", element("i", f"≥{edge:g}"), class_=f"t h{step}")
        for step, edge in enumerate(KL_BITS, 1)
    ]
    told = (
        "A row a layer, the last one on top; a column a head, then the layer's parts. KL: how far all "
        "probabilities move."
    )
    return heading, element(
        "div", _map(units), element("p", "KL in bits ", *legend, class_="legend"), _table(head, rows),
        _hint(told, _checked(swept.facts)),
    )  # fmt: skip


def _map(units: Sequence[SweptUnit]) -> Element:
    """A cell for each unit that there is: layers and columns that a file made up take no room."""
    layers = sorted({each.intervention.layer for each in units}, reverse=True)
    heads = sorted({each.intervention.head for each in units if each.intervention.head is not None})
    kinds = [kind for kind in _PARTS if any(each.intervention.kind == kind for each in units)]
    font = 6.5 * max(1.0, len(heads) / _ROOMY)
    left, top, wide = (
        4 * font,
        6 * font,
        max(_CELL, round(1.3 * font)),
    )  # a part's column has room for its name
    across: dict[tuple[str, int | None], float] = {
        ("head", head): left + place * _CELL for place, head in enumerate(heads)
    }
    begin = left + len(heads) * _CELL + _GAP * bool(heads)
    across |= {(kind, None): begin + place * wide for place, kind in enumerate(kinds)}
    down = {layer: top + place * _CELL for place, layer in enumerate(layers)}
    placed = [
        (unit, across[column], down[unit.intervention.layer], _CELL if column[1] is not None else wide)
        for unit in units
        if (column := (unit.intervention.kind, unit.intervention.head)) in across
    ]
    shapes = [_cell(*each) for each in placed] if len(placed) <= _TITLED else _cells(placed)
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
    """Those of some rows or columns that have room for their names."""
    return numbers if len(numbers) <= _ROOMY else [each for each in numbers if not each or not (each + 1) % 8]


def _step(unit: SweptUnit) -> int:
    return sum(unit.kl_bits >= edge for edge in KL_BITS)


def _cells(placed: Sequence[tuple[SweptUnit, float, float, int]]) -> list[Element]:
    """Cells without words, a path for each colour: 15 bytes a cell where an element with its title takes 150."""
    side = _CELL - 1
    paths = [
        "".join(f"M{x:g} {y:g}h{w - 1}v{side}h-{w - 1}z" for unit, x, y, w in placed if _step(unit) == step)
        for step in range(len(KL_BITS) + 1)
    ]
    return [element("path", class_=f"cell heat{step}", d=path) for step, path in enumerate(paths) if path]


def _cell(unit: SweptUnit, x: float, y: float, width: int) -> Element:
    step = _step(unit)
    said = f"{unit.intervention.label}: KL {bits(unit.kl_bits)} bits, logit {_signed(unit.logit_change)}"
    return element(
        "rect",
        element("title", said),
        class_=f"cell heat{step}",
        x=x,
        y=y,
        width=width - 1,
        height=_CELL - 1,
        rx=1.5,
    )


def effect(tried: Intervened) -> Look:
    """The candidates without and with what was switched off together."""
    scope = "in the whole context" if tried.scope == "context" else "in this token's forward"
    rows = [
        row(_label(each.before.text, each.before.raw), percent(each.before.prob), percent(each.after.prob),
            _signed(each.logit_change))
        for each in tried.candidates
    ]  # fmt: skip
    told = (
        f"{scope[0].upper()}{scope[1:]}. KL {bits(tried.kl_bits)} bits; the model's entropy goes from "
        f"{bits(tried.entropy_before_bits)} to {bits(tried.entropy_after_bits)} bits."
    )
    table = _table(("candidate", "without", "with", "logit"), rows)
    return f"With {interventions_words(tried.interventions)}", element(
        "div", table, _hint(told, _checked(tried.facts))
    )


def _label(text: str, raw: bytes) -> Element:
    return element("span", token_label(text, raw), class_="label")


def _table(head: Sequence[str], rows: Sequence[Element], name: str = "") -> Element:
    columns = (element("th", each, scope="col") for each in head)
    return element(
        "table",
        element("thead", element("tr", *columns)),
        element("tbody", *rows),
        class_=f"figured {name}".strip(),
    )
