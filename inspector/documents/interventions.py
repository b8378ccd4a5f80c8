"""Interventions: the candidates under them, the strongest units, and the map of all units."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import CandidateChange, HeadsSwept, Intervened, Scope, SweptUnit
from inspector.blocks.blocks import Bar, Block, Cell, Column, Table, TableRow, number, sentence, sentences
from inspector.blocks.page import element, elements
from inspector.display import quoted, token_label, visible
from inspector.documents.parts import Exhibit, Exported, ExportPart, looked_at
from inspector.keys import with_keys
from inspector.scales import KL_BITS, bits, count, left_over, percent, signed
from inspector.state.inside import Answers, interventions_words, sides, steered_words

STRONGEST = 12
"""Units in a table."""
KINDS = {"head": "head", "attention": "attention", "recurrence": "recurrence", "mlp": "MLP", "layer": "layer"}
"""The names of the kinds of units, in the order in which they are shown."""
SCOPES: dict[Scope, str] = {
    "token": "Only this token's forward pass changes; earlier keys and values stay. {interventions.hold} keeps the "
    "change for the tokens that follow.",
    "context": "The whole path runs again through the changed model, so its keys and values change, too. "
    "{interventions.hold} keeps the change from this token on only.",
}
"""The meaning of each scope; see `with_keys`."""
TOTAL = (
    "This is the total effect: later layers react to the change, and may make up for it. "
    "The direct effect of a unit is in contributions ({attribution})."
)


# ---- the candidates under interventions ---------------------------------------------------------


def heading(tried: Intervened) -> str:
    """The interventions in words."""
    return interventions_words(tried.interventions, exact=True)


def candidates(tried: Intervened) -> Iterator[Block]:
    """The candidates without and with the interventions, for a page or a terminal."""
    scope = steered_words(tried.scope, tried.begin)
    entropy = f"from {bits(tried.entropy_before_bits)} to {bits(tried.entropy_after_bits)} bits"
    yield sentence(
        f"{scope[0].upper()}{scope[1:]}. KL {bits(tried.kl_bits)} bits; the model's entropy goes {entropy}."
    )
    most = f"{tried.largest_change:.2f} ({quoted(token_label(tried.largest_change_text))})"
    yield sentence(f"Largest change of a logit: {most}.")
    ranks = number("rank"), number("rank then")
    columns = Column("candidate"), *map(number, sides(tried.interventions)), number("Δ logit"), *ranks
    yield Table(columns, [*map(_candidate, tried.candidates)], rest=others(probs_of(tried)))
    yield from sentences([tried.note], "")


def _candidate(each: CandidateChange) -> TableRow:
    before, after = each.before, each.after
    label, ranks = token_label(before.text, before.raw), (count(before.rank), count(after.rank))
    return TableRow((label, percent(before.prob), percent(after.prob), signed(each.logit_change), *ranks))


def probs_of(tried: Intervened) -> list[tuple[float, float]]:
    """The probabilities of each candidate before and after."""
    return [(each.before.prob, each.after.prob) for each in tried.candidates]


def others(
    probs: Sequence[tuple[float, float]], between: tuple[str, ...] = (), after: str = ""
) -> Callable[[Collection[int]], TableRow]:
    """The row about the candidates that are not shown.

    Args:
        probs: The probabilities of each candidate before and after.
        between: Cells between the two probabilities.
        after: A text after the second probability.
    """

    def row(shown: Collection[int]) -> TableRow:
        own, changed = (left_over(probs[place][side] for place in shown) for side in (0, 1))
        return TableRow(("others", percent(own), *between, percent(changed) + after), "muted")

    return row


def changed_to(before: float, after: float) -> str:
    """A changed probability, with an arrow up or down if the two differ as written."""
    text = percent(after)
    return text + (" " if text == percent(before) else "↑" if after > before else "↓")


def moved(label: str, before: float, after: float) -> tuple[Cell, ...]:
    """The cells of a candidate with its probabilities before and after, each with its bar."""
    return label, percent(before), Bar(before), changed_to(before, after), Bar(after)


def effect(tried: Intervened, followed: int) -> Iterator[Block]:
    """The candidates with and without the chosen units, for a panel.

    Args:
        tried: The answer.
        followed: Id of the token whose logit is followed, which always has a row.
    """
    scope = steered_words(tried.scope, tried.begin)
    what = f"{interventions_words(tried.interventions)}, {scope}: KL {tried.kl_bits:.3f} bits"
    entropy = f"model entropy {bits(tried.entropy_before_bits)} → {bits(tried.entropy_after_bits)}"
    largest = f"{tried.largest_change:.2f} ({quoted(token_label(tried.largest_change_text))})"
    below = " (rounding explains it)" if tried.largest_change <= tried.rounding else ""
    long = f"{what} · {entropy} bits · largest logit change {largest}{below}"
    yield sentence(long, f"{what}, {entropy}", what, tone="accent", lines=2)
    own, changed = sides(tried.interventions)
    bar = Column(cells=(4, 24), priority=2, top=1.0)
    columns = Column(), number(own), bar, number(f"{changed} "), bar, number("Δ logit", 2), number("rank", 2)
    places = range(len(tried.candidates))
    kept = sorted(places, key=lambda place: tried.candidates[place].before.id != followed)
    yield Table(
        columns, [*map(_change, tried.candidates)], rest=others(probs_of(tried), ("",), " "), keep=kept
    )
    yield from sentences([tried.note, with_keys(SCOPES[tried.scope]), with_keys(TOTAL)])


def _change(each: CandidateChange) -> TableRow:
    before, after = each.before, each.after
    rank = f"#{count(before.rank)}" + (f"→#{count(after.rank)}" if each.ranks_up else "")
    cells = moved(token_label(before.text, before.raw), before.prob, after.prob)
    return TableRow((*cells, signed(each.logit_change), rank))


# ---- units switched off alone -------------------------------------------------------------------


def strongest(swept: HeadsSwept) -> Iterator[Block]:
    """The units that move the probabilities most when they are switched off alone."""
    units = [each for each in swept.by_kl if math.isfinite(each.kl_bits)]
    name = token_label(swept.text)
    scope = " in the whole context" if swept.scope == "context" else ""
    shown = f"the largest {min(STRONGEST, len(units))} of {count(len(units))}{scope}"
    yield sentence(f"Switching off one unit at a time: effect on {name} ({percent(swept.prob)}), {shown}.")
    columns = (
        Column("off"),
        number("KL bits"),
        number(f"logit of {name}"),
        number("probability"),
        Column("then leads"),
    )
    yield Table(columns, [*map(_unit, units[:STRONGEST])])
    yield from sentences(map(visible, swept.missing))


def _unit(each: SweptUnit) -> TableRow:
    leads = f"{token_label(each.top_text)} {percent(each.top_prob)}"
    label = visible(each.intervention.label)
    return TableRow((label, bits(each.kl_bits), signed(each.logit_change), percent(each.prob), leads))


# ---- the map of all units, on a page ------------------------------------------------------------

_CELL, _GAP = 10, 4
"""The side of a cell with the space after it, and the space before the parts, in units of the SVG."""
_ROOMY = 24
"""Number of rows or columns up to which each has its name."""
_UNITS = 20_000
"""Maximum number of units: no present model has more."""
_TITLED = 600
"""Number of cells up to which each has its figures as a tooltip."""


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    for swept in of.timeline.of(Answers).found(HeadsSwept):
        title = "Switching off one part at a time"
        title += ", in the whole context" * (swept.scope == "context")
        kind = "sweep" if swept.scope == "token" else "sweep-context"
        yield Exhibit(kind, title, partial(_sweep, swept), swept.node, swept.token)
    yield from _tried(of)


_tried = looked_at(
    Intervened, lambda read, place: f"tried-{place}", heading, lambda read, path: candidates(read)
)


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
    """A cell for each unit; layers and columns without units take no room."""
    layers = sorted({each.intervention.layer for each in units}, reverse=True)
    heads = sorted({each.intervention.head for each in units if each.intervention.head is not None})
    kinds = [kind for kind in [*KINDS][1:] if any(each.intervention.kind == kind for each in units)]
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
        name = f"h{head + 1}" if head is not None else KINDS[kind]
        x, y = across[kind, head] + 7, top - 3
        shapes.append(element("text", name, x=x, y=y, transform=f"rotate(-60 {x} {y})"))
    width, height = round(max(across.values()) + wide + 3 * font), round(top + len(layers) * _CELL)
    return element(
        "svg", *shapes, viewBox=f"0 0 {width} {height}", width=round(1.7 * width), class_="map", role="img",
        font_size=round(font, 1), aria_label="KL of each unit switched off alone; the strongest are listed below",
    )  # fmt: skip


def _named_ones(numbers: Sequence[int]) -> Sequence[int]:
    """The rows or columns that get their names: all, or about every eighth of many."""
    return numbers if len(numbers) <= _ROOMY else [each for each in numbers if not each or not (each + 1) % 8]


def _cells(placed: Sequence[tuple[SweptUnit, float, float, int]]) -> list[Element]:
    """Each cell with its figures; for a large map a path for each colour, at 15 bytes a cell instead of 150."""
    side, paths = _CELL - 1, [""] * (len(KL_BITS) + 1)
    shapes = []
    for unit, x, y, width in placed:
        step = sum(unit.kl_bits >= edge for edge in KL_BITS)
        paths[step] += f"M{x:g} {y:g}h{width - 1}v{side}h-{width - 1}z"
        if len(placed) <= _TITLED:
            effect = f"KL {bits(unit.kl_bits)} bits, logit {signed(unit.logit_change)}"
            said = element("title", f"{unit.intervention.label}: {effect}")
            place = {"x": x, "y": y, "width": width - 1, "height": side, "rx": 1.5}
            shapes.append(element("rect", said, class_=f"cell heat{step}", **place))
    drawn = [element("path", class_=f"cell heat{step}", d=path) for step, path in enumerate(paths) if path]
    return shapes or drawn


SWITCHED_PART = ExportPart("switched off", _exhibits)
