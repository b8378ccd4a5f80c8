"""The views of the model's inside, as elements of the page: they stand in it for print and where no script runs.

With scripts the panel shows those of the chosen token, copied from here. Everything foreign in them is printable text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from engine.protocol import (
    AttentionRead,
    AttributionRead,
    Candidate,
    CaptureFacts,
    HeadsSwept,
    Intervened,
    LensColumn,
    LensRead,
    LockstepSpan,
    SweptUnit,
)
from inspector.display import quoted, token_label, visible
from inspector.scales import KL_BITS, bits, count, percent, signed
from inspector.state.contributions import ContributionRow, head_rows, part_rows
from inspector.state.inside import Looks, checks_words, interventions_words
from inspector.state.lockstep import Divergences, LockstepSoFar, mean
from inspector.state.session_tree import Item
from inspector.tools.export.markup import element, hint, millionths, number, row, table
from inspector.tools.export.recording import Figure, Recording

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
Titled = tuple[str, Element | None]
"""A heading, and what stands under it."""


def evidence(recording: Recording, places: Mapping[int, int]) -> list[Element]:
    """An article for each token whose forward was looked at, in the order of the tree's tokens.

    Args:
        recording: Whose views they are.
        places: Row of each node.
    """
    seen = recording.timeline.of(Looks)
    tried = (node for node, _, _ in seen.tried)
    nodes = {*seen.attention, *seen.lens, *seen.contributions, *seen.sweeps, *tried} & places.keys()
    return [_article(recording, places, node) for node in sorted(nodes, key=lambda each: places[each])]


def _article(recording: Recording, places: Mapping[int, int], node: int) -> Element:
    """All views of one token's way through the model."""
    timeline = recording.timeline
    item, children = timeline.tree.nodes[node], timeline.tree.children.get(node, [])
    path = {each.node for each in recording.items}
    taken = next((child for child in children if child in path), children[0] if children else None)
    followed = f"What came after {_named(item)}"
    followed += f": {_named(timeline.tree.nodes[taken])}" if taken is not None else ""
    sections = [
        element("section", element("h4", heading), body, class_="look", data_kind=kind)
        for kind, (heading, body) in _views(recording, places, node)
        if body is not None
    ]
    return element("article", element("h3", followed), *sections, class_="looked", data_row=places[node])


def _named(item: Item) -> str:
    return quoted(token_label(item.text, item.raw))


def _views(recording: Recording, places: Mapping[int, int], node: int) -> Iterator[tuple[str, Titled]]:
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


def _explained(says: str, facts: CaptureFacts, *shown: Element | None) -> Element:
    """The elements of a view, and below them how to read it and how it was checked."""
    return element("div", *shown, hint(says, f"Checked: {checks_words(facts)}." if facts.checks else ""))


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
        row(f"L{layer + 1} h{head + 1}", _label(path[at]), f"token {at + 1}", percent(weight))
        for weight, layer, head, at in found[:STRONGEST]
    ]
    says = (
        "The strongest weights, the first token aside. Where a head looks does not tell what it does with it."
    )
    head_names = ("head", "looks at", "", "weight")
    return _explained(says, read.facts, table("", head_names, rows, class_="figured"))


def lens_table(read: LensRead, recording: Recording, places: Mapping[int, int]) -> Element | None:
    """A column for each position, a row for each layer, the last one on top."""
    depth = max((len(column.cells) for column in read.columns), default=0)
    if not depth:
        return None
    nodes = recording.timeline.tree.nodes
    heads = [nodes[column.node].text if column.node in places else "" for column in read.columns]
    rows = [
        element("tr", element("th", str(layer or "emb"), scope="row"), *(_lens_cell(c, layer) for c in read.columns))
        for layer in reversed(range(depth))
    ]  # fmt: skip
    names = (element("th", token_label(text) if text else "", scope="col") for text in heads)
    shown = element("table", element("thead", element("tr", element("td"), *names)), element("tbody", *rows))
    says = (
        "Bold: the layer ranks first what the last layer does. Early layers were not trained to be read so."
    )
    return _explained(says, read.facts, element("div", shown, class_="lens"))


def _lens_cell(column: LensColumn, layer: int) -> Element:
    cell = column.cells[layer] if layer < len(column.cells) else None
    if cell is None or not cell.top:
        return element("td")
    label, leads = token_label(cell.top[0].text), "leads" if cell.final_rank == 1 else None
    return element("td", label, class_=leads, title=f"{label} {percent(cell.top[0].prob)}")


# ---- contributions ------------------------------------------------------------------------------


def contributions(read: AttributionRead) -> Titled:
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
        rows.append(row(f"{count(len(parts) - len(kept))} others", "", signed(others), class_="others"))
    logit = "the logit before the softcap" if read.softcap else "the logit"
    rows.append(row("sum", "", signed(read.total), class_="taken"))
    unit = f"logits of {names[0]} less those of {names[1]}" if len(names) > 1 else f"logits of {names[0]}"
    says = (
        f"In {unit}; the model's own {logit.removeprefix('the ')} is {signed(read.reached)}. Direct effect alone: "
        "what a part does through later layers is in their bars."
    )
    bars = table("", ("writer", "", "adds"), rows, class_="figured bars")
    return what, _explained(says, read.facts, bars, _heads(read, parts))


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
    return row(part.name, drawn, signed(part.value))


def _heads(read: AttributionRead, parts: Sequence[ContributionRow]) -> Element | None:
    """The heads that add or take most."""
    every = (head for part in parts for head in head_rows(read, part) if math.isfinite(head.value))
    found = sorted(every, key=lambda head: -abs(head.value))[:STRONGEST]
    words = ", ".join(f"{head.name} {signed(head.value)}" for head in found)
    return element("p", element("b", "Heads: "), words, class_="heads-said") if words else None


# ---- switched off -------------------------------------------------------------------------------


def sweep(swept: HeadsSwept) -> Titled:
    """The map of every unit switched off alone, and the strongest of them."""
    heading = "What each part is worth: switched off alone"
    units = [each for each in swept.units[:_UNITS] if math.isfinite(each.kl_bits)]
    if not units:
        return heading, None
    strongest = sorted(units, key=lambda each: -each.kl_bits)[:STRONGEST]
    rows = [
        row(each.intervention.label, bits(each.kl_bits), signed(each.logit_change),
            f"{token_label(each.top_text)} {percent(each.top_prob)}")
        for each in strongest
    ]  # fmt: skip
    head = ("off", "KL bits", f"logit of {token_label(swept.text)}", "then leads")
    edges = enumerate(KL_BITS, 1)
    legend = (element("span", element("i", f"≥{edge:g}"), class_=f"t h{step}") for step, edge in edges)
    says = "A row a layer, the last one on top; a column a head, then the layer's parts. KL: how far all " \
           "probabilities move."  # fmt: skip
    listed = table("", head, rows, class_="figured")
    named = element("p", "KL in bits ", *legend, class_="legend")
    return heading, _explained(says, swept.facts, _map(units), named, listed)


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
    """The rows or columns that have room for their names."""
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
    said = f"{unit.intervention.label}: KL {bits(unit.kl_bits)} bits, logit {signed(unit.logit_change)}"
    side = {"x": x, "y": y, "width": width - 1, "height": _CELL - 1, "rx": 1.5}
    return element("rect", element("title", said), class_=f"cell heat{step}", **side)


def effect(tried: Intervened) -> Titled:
    """The candidates without and with what was switched off together."""
    scope = "in the whole context" if tried.scope == "context" else "in this token's forward"
    rows = [
        row(_label(each.before), percent(each.before.prob), percent(each.after.prob),
            signed(each.logit_change))
        for each in tried.candidates
    ]  # fmt: skip
    says = (
        f"{scope[0].upper()}{scope[1:]}. KL {bits(tried.kl_bits)} bits; the model's entropy goes from "
        f"{bits(tried.entropy_before_bits)} to {bits(tried.entropy_after_bits)} bits."
    )
    listed = table("", ("candidate", "without", "with", "logit"), rows, class_="figured")
    return f"With {interventions_words(tried.interventions)}", _explained(says, tried.facts, listed)


def _label(of: Item | Candidate) -> Element:
    return element("span", token_label(of.text, of.raw), class_="label")


# ---- beside a second model -------------------------------------------------------------------

BESIDE_CANDIDATES = 6
"""Of each model at a token."""
BESIDE_LISTED = 12
"""Tokens that the two part over most."""


def _spans(recording: Recording) -> dict[int, LockstepSpan]:
    """The spans of the exported path, by their last nodes; none without a second model."""
    known = recording.timeline.of(LockstepSoFar)
    if known.opened is None:
        return {}
    return {span.node: span for span in known.along(recording.items) if span is not None}


def beside_column(recording: Recording, places: Mapping[int, int]) -> dict[str, Any]:
    """The numbers of each token, by its row; empty without a second model.

    Of each: KL in bits, both probabilities and ranks, and both models' candidates, each a label and a probability.
    """
    found = {
        places[node]: [
            number(span.kl_bits, 4), _share(span.logprob, span), _share(span.other_logprob, span), span.rank,
            span.other_rank, _listed(span.candidates), _listed(span.other_candidates),
        ]
        for node, span in _spans(recording).items()
        if node in places
    }  # fmt: skip
    if not found:
        return {}
    return {"names": list(_names(recording)), "rows": found}


def _names(recording: Recording) -> tuple[str, str]:
    facts, opened = recording.timeline.facts, recording.timeline.of(LockstepSoFar).opened
    first = visible(facts.name) if facts else "first model"
    return first, visible(opened.title) if opened else "second model"


def _share(logprob: float | None, span: LockstepSpan) -> float | int | None:
    """The probability that a model gives the span's tokens together."""
    return None if logprob is None or not span.whole else millionths(math.exp(min(0.0, logprob)))


def _listed(candidates: tuple[Candidate, ...]) -> list[list[Any]]:
    first = candidates[:BESIDE_CANDIDATES]
    return [[token_label(each.text, each.raw), millionths(each.prob)] for each in first]


def _beside_figures(recording: Recording) -> Iterator[Figure]:
    """The figures of both models over the path."""
    found = _spans(recording)
    if not found:
        return
    first, second = _names(recording)
    yield "models", f"{first} (P) and {second} (Q)"
    known = Divergences()
    known.add(found.values())
    if known.kl:
        together = mean(known.kl)
        yield "mean KL(P||Q)", f"{bits(together.value)} bits over {count(len(known.kl))} tokens"
    if known.tops:
        yield "same top token", f"{100 * known.same_top.value:.1f} %"
    if all(known.scored):
        yield "perplexity", " and ".join(f"{each.value:.2f}" for each in known.perplexities)


def beside_section(recording: Recording) -> Element | None:
    """The figures and the tokens that the two part over most, for print and where no script runs."""
    pairs = list(_beside_figures(recording))
    if not pairs:
        return None
    listed = sorted(_spans(recording).values(), key=_apart, reverse=True)[:BESIDE_LISTED]
    rows = [
        row(token_label(span.text, span.raw), "" if span.kl_bits is None else bits(span.kl_bits),
            _percent(span.logprob, span), _percent(span.other_logprob, span), likeliest(span.candidates),
            likeliest(span.other_candidates))
        for span in listed
        if _apart(span) > 0
    ]  # fmt: skip
    terms = (element("div", element("dt", name), element("dd", value)) for name, value in pairs)
    head = ("token", "KL bits", "P", "Q", "P has first", "Q has first")
    return element(
        "article", element("h3", "Beside a second model"), element("dl", *terms, class_="figures"),
        table("Where the two part most", head, rows, class_="figured") if rows else None, class_="looked",
    )  # fmt: skip


def _apart(span: LockstepSpan) -> float:
    """The distance of the two at a span: the divergence, or else the change of the logprob."""
    for value in (span.kl_bits, span.logprob_change):
        if value is not None and not math.isnan(value):
            return abs(value)
    return 0.0


def _percent(logprob: float | None, span: LockstepSpan) -> str:
    return "" if logprob is None or not span.whole else percent(math.exp(min(0.0, logprob)))


def likeliest(candidates: Sequence[Candidate]) -> str:
    """The first of some candidates with its probability; empty where there are none."""
    return "".join(f"{token_label(each.text, each.raw)} {percent(each.prob)}" for each in candidates[:1])
