"""The experts that a token went through, and the states of recurrent layers before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from rich.segment import Segment

from engine.protocol import ExpertLayer, ExpertsRead, StateArray
from inspector.blocks.blocks import (
    GAP,
    Bar,
    Block,
    Column,
    Drawn,
    Table,
    TableRow,
    number,
    sentence,
    sentences,
)
from inspector.blocks.paint import Painter
from inspector.display import pad, visible
from inspector.documents.modules import MOST, times
from inspector.documents.parts import ExportPart, looked_at
from inspector.scales import count, counted, size
from inspector.widgets.charts import bar
from inspector.widgets.rows import Row

# ---- in words -----------------------------------------------------------------------------------

STATES = (
    "A state is all that a recurrent layer keeps of the text, and its size never grows."
    " Its norm before and after this token."
)


def experts_summary(layers: Sequence[ExpertLayer]) -> str:
    """All mixtures in a sentence or two: how many experts ran, and the strongest weights; empty if there are none."""
    if not layers:
        return ""
    chosen, experts = sum(len(layer.chosen) for layer in layers), sum(layer.experts for layer in layers)
    words = f"{counted(len(layers), 'layer')} with experts: {count(chosen)} of {count(experts)} ran for this token."
    strongest = [(max(layer.weights), layer.layer + 1) for layer in layers if layer.weights]
    if not strongest:
        return words
    mean = sum(weight for weight, _ in strongest) / len(strongest)
    (low, least), (high, most) = min(strongest), max(strongest)
    if len(strongest) == 1:
        return f"{words} The strongest weight is {mean:.2f}."
    return (
        f"{words} The strongest weight of a layer is {mean:.2f} on average: most in layer {most} ({high:.2f}), "
        f"least in layer {least} ({low:.2f})."
    )


def chosen_words(layer: ExpertLayer) -> str:
    """The experts of a layer that ran, counted from 1, each with its weight if that is known."""
    known = len(layer.weights) == len(layer.chosen)
    return ", ".join(
        f"{expert + 1} ({layer.weights[place]:.2f})" if known else f"{expert + 1}"
        for place, expert in enumerate(layer.chosen)
    )


def states_summary(states: Sequence[StateArray]) -> str:
    """All states of recurrent layers in a sentence or two; empty if there are none."""
    if not states:
        return ""
    layers = len({state.layer for state in states})
    words = f"{counted(layers, 'layer')} with a state, {size(sum(state.bytes for state in states))} in all."
    changed = [(state.changed, state.layer + 1) for state in states if state.changed is not None]
    if len(changed) < 2:
        return words
    (low, least), (high, most) = min(changed), max(changed)
    ends = f"most in layer {most} ({100 * high:.0f} %), least in layer {least} ({100 * low:.0f} %)"
    return f"{words} This token changed {ends}."


# ---- the document -------------------------------------------------------------------------------

SHADES = "░▒▓█"
"""The shades of a weight up to a quarter, a half, three quarters, and above."""
NAME, CELL = 8, 8
"""Cells of a layer's name, and of an expert."""
WEIGHT = "its weight: what its output is multiplied by before it is added."
COLUMNS = (
    Column(tone="strong"), Column("state", tone="muted", priority=3), Column(tone="muted", priority=1),
    number("bytes", 3, "muted"), Column("norm"), Column("changed", tone="muted", priority=4),
    Column(cells=(10, 10), priority=1, top=1.0),
)  # fmt: skip


def document(read: ExpertsRead, most: int | None = None) -> Iterator[Block]:
    """A row for each layer's experts, and one for each state.

    Args:
        read: The experts and states.
        most: Maximum rows of each table; None for all.
    """
    yield from sentences([experts_summary(read.layers), states_summary(read.states)], "")
    if read.layers:
        rows = [TableRow((f"L{layer.layer + 1}", chosen_words(layer))) for layer in read.layers[:most]]
        yield Table((Column("layer"), Column("experts, each with its weight")), rows)
    if read.states:
        yield Table(COLUMNS[:-1], [*map(_state, read.states[:most])])  # the change is there in words
        yield sentence(STATES)
    if most is not None and (left := max(0, len(read.layers) - most) + max(0, len(read.states) - most)):
        yield sentence(f"Left out: {counted(left, 'more row')}.")
    yield from sentences(map(visible, read.missing))


def view(read: ExpertsRead, chosen: int | None, wide: bool, low: bool) -> Iterator[Block]:
    """See `document`; for a panel.

    Args:
        read: The experts and states.
        chosen: The layer that is shown first, counted from 0, as it may be far down in a large model; None for none.
        wide: Whether there is a column for each expert.
        low: Whether numbers come before words.
    """
    columns = tuple(replace(each, head="") for each in COLUMNS)
    layers = [each for each in read.layers if each.layer == chosen]
    states = [each for each in read.states if each.layer == chosen]
    first: list[Block] = [_weights(layers, wide)] if layers else []
    first += [Table(columns, [*map(_state, states)])] if states else []
    if chosen is not None and not first:
        first.append(sentence(f"Layer {chosen + 1} has no experts and no state.", tone="muted"))
    if not low:
        first += sentences([experts_summary(read.layers), states_summary(read.states)], "accent")
    parts = [first]
    what = "A column is an expert, a number" if wide else "Each expert that was chosen, and"
    if read.layers:
        parts.append([sentence(f"{what} {WEIGHT}", tone="muted"), _weights(read.layers, wide)])
    if read.states:
        parts.append([sentence(STATES, tone="muted"), Table(columns, [*map(_state, read.states)])])
    if low:
        parts = [part[::-1] if part is not first else part for part in parts]
    parts += [[each] for each in sentences(map(visible, read.missing))]
    for place, part in enumerate(filter(None, parts)):
        yield from (GAP, *part) if place else part


def fits(layers: Sequence[ExpertLayer], width: int) -> bool:
    """True if there is room for a column for each expert."""
    return NAME + max((layer.experts for layer in layers), default=0) * CELL <= width


def _state(state: StateArray) -> TableRow:
    changed = "was empty" if state.changed is None else f"changed by {100 * state.changed:.0f} %"
    return TableRow((
        f"layer {state.layer + 1}", times(state.shape), visible(state.dtype), size(state.bytes),
        f"{state.before:.3g} → {state.norm:.3g}", changed, Bar(min(1.0, state.changed or 0.0)),
    ))  # fmt: skip


def _weights(layers: Sequence[ExpertLayer], wide: bool) -> Drawn:
    """A row for each layer: a cell for each expert, or the chosen experts, as many as fit."""

    def draw(painter: Painter, width: int, height: int) -> list[Row]:
        on, rows = painter.on, list[Row]()
        if wide:
            numbers = range(1, max(layer.experts for layer in layers) + 1)
            names = "".join(f"{each:>{CELL}}" for each in numbers)
            rows.append([Segment(pad("expert", NAME) + names, on.ink("muted"))])
        for layer in layers:
            cells = _grid(layer, painter) if wide else _list(layer, painter, width - NAME - 1)
            name = pad(f"layer {layer.layer + 1}", NAME + (0 if wide else 1))
            rows.append([Segment(name, on.ink("strong")), *cells])
        return rows

    return Drawn(draw, (len(layers) + wide, len(layers) + wide))


def _grid(layer: ExpertLayer, painter: Painter) -> Iterator[Segment]:
    weights = dict(zip(layer.chosen, layer.weights or [None] * len(layer.chosen), strict=True))
    for expert in range(layer.experts):
        if expert not in weights:
            yield Segment(f"{'·':>{CELL}}", painter.on.ink("faint"))
        elif (weight := weights[expert]) is None:
            yield Segment(f"{'■':>{CELL}}", painter.on.data(0.5))
        else:
            shade = SHADES[min(3, max(0, int(weight * 4)))]
            yield Segment(f"{shade} {weight:.2f}".rjust(CELL), painter.on.data(min(1.0, max(0.0, weight))))


def _list(layer: ExpertLayer, painter: Painter, width: int) -> Iterator[Segment]:
    used = 0
    for place, expert in enumerate(layer.chosen):
        weight = layer.weights[place] if layer.weights else None
        text = f"{expert + 1}" + (f" {bar(weight, 3).strip()} {weight:.2f}" if weight is not None else "")
        if used + len(text) + 3 > width and place + 1 < len(layer.chosen):
            yield Segment(f"{len(layer.chosen) - place} more", painter.on.ink("muted"))
            return
        used += len(text) + 3
        yield Segment(f"{text}   ", painter.on.data(min(1.0, max(0.0, weight or 0.5))))


# ---- in an export -------------------------------------------------------------------------------


EXPERTS_PART = ExportPart(
    "experts",
    looked_at(
        ExpertsRead,
        "experts",
        lambda read: "Experts that the token went through" if read.layers else "What recurrent layers keep",
        lambda read, path: document(read, MOST),
        tables="plain",
    ),
)
