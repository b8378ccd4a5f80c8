"""The screen of what one token chose: experts of each layer with their weights, and states of recurrent layers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar

from rich.segment import Segment

from engine.protocol import Command, ExpertLayer, ExpertsRead, ReadExperts, StateArray
from inspector.display import pad, visible
from inspector.main.inside.screen import InsideScreen
from inspector.scales import count, size
from inspector.tools.modules.tool import EXPERTS_SCREEN
from inspector.tools.modules.words import times
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.charts import bar

SHADES = "░▒▓█"
"""For a weight up to a quarter, a half, three quarters, and above."""
STATES = (
    "A state is all that a recurrent layer keeps of the text, and its size never grows."
    " Its norm before and after this token."
)
LOW = 8
"""Lines of a view below which the numbers come before the words."""
NAME = 8
CELL = 8


class ExpertsScreen(InsideScreen[ExpertsRead]):
    """Layers by experts, and layers by states."""

    TOOL: ClassVar[str] = "modules"
    ACTIONS: ClassVar[ActionTable] = EXPERTS_SCREEN

    def question(self) -> tuple[Hashable, Command]:
        return self.node, ReadExperts(self.node)

    def heading(self, answer: ExpertsRead | None) -> str:
        if answer is None or answer.layers:
            return "Experts that this token went through"
        return "What recurrent layers keep after this token" if answer.states else "Experts and states"

    def draw(self, answer: ExpertsRead, on: Canvas, width: int, height: int) -> list[Row]:
        rows: list[Row] = [
            [Segment(line, on.ink("accent"))]
            for text in (experts_summary(answer.layers), states_summary(answer.states))
            for line in wrapped(text, width)
            if text and height >= LOW
        ]
        for numbers, legend in (
            (list(_experts(answer.layers, on, width)), _legend(answer.layers, width)),
            (list(_states(answer.states, on, width)), STATES),
        ):
            said: list[Row] = [[Segment(line, on.ink("muted"))] for line in wrapped(legend, width)]
            gap: list[Row] = [[]] if rows and numbers else []
            if numbers:
                rows += [*gap, *numbers, *said] if height < LOW else [*gap, *said, *numbers]
        for sentence in answer.missing:
            rows += [[], *([Segment(line, on.ink("muted"))] for line in wrapped(visible(sentence), width))]
        return rows


def experts_summary(layers: Sequence[ExpertLayer]) -> str:
    """All mixtures in a sentence or two: how many experts, and how far one of them decides; empty without any."""
    if not layers:
        return ""
    chosen, experts = sum(len(layer.chosen) for layer in layers), sum(layer.experts for layer in layers)
    told = f"{_layers(len(layers))} with experts: {count(chosen)} of {count(experts)} ran for this token."
    strongest = [(max(layer.weights), layer.layer + 1) for layer in layers if layer.weights]
    if not strongest:
        return told
    mean = sum(weight for weight, _ in strongest) / len(strongest)
    (low, least), (high, most) = min(strongest), max(strongest)
    if len(strongest) == 1:
        return f"{told} The strongest weight is {mean:.2f}."
    return (
        f"{told} The strongest weight of a layer is {mean:.2f} on average: most in layer {most} ({high:.2f}), "
        f"least in layer {least} ({low:.2f})."
    )


def states_summary(states: Sequence[StateArray]) -> str:
    """All states of recurrent layers in a sentence; empty without any."""
    if not states:
        return ""
    layers = len({state.layer for state in states})
    told = f"{_layers(layers)} with a state, {size(sum(state.bytes for state in states))} in all."
    changed = [(state.changed, state.layer + 1) for state in states if state.changed is not None]
    if len(changed) < 2:
        return told
    (low, least), (high, most) = min(changed), max(changed)
    ends = f"most in layer {most} ({100 * high:.0f} %), least in layer {least} ({100 * low:.0f} %)"
    return f"{told} This token changed {ends}."


def _layers(number: int) -> str:
    return f"{count(number)} layer{'s' * (number != 1)}"


def _legend(layers: Sequence[ExpertLayer], width: int) -> str:
    what = "A column is an expert, a number" if _fits(layers, width) else "Each expert that was chosen, and"
    return f"{what} its weight: what its output is multiplied by before it is added."


def _fits(layers: Sequence[ExpertLayer], width: int) -> bool:
    """Whether there is a column for each expert."""
    return NAME + max((layer.experts for layer in layers), default=0) * CELL <= width


def _experts(layers: Sequence[ExpertLayer], on: Canvas, width: int) -> Iterator[Row]:
    wide = _fits(layers, width)
    if wide and layers:
        most = max(layer.experts for layer in layers)
        numbers = "".join(f"{number:>{CELL}}" for number in range(1, most + 1))
        yield [Segment(pad("expert", NAME) + numbers, on.ink("muted"))]
    for layer in layers:
        name = Segment(pad(f"layer {layer.layer + 1}", NAME + (0 if wide else 1)), on.ink("strong"))
        yield [name, *(_grid(layer, on) if wide else _list(layer, on, width - NAME - 1))]


def _grid(layer: ExpertLayer, on: Canvas) -> Iterator[Segment]:
    """A cell for each expert."""
    weights = dict(zip(layer.chosen, layer.weights or [None] * len(layer.chosen), strict=True))
    for expert in range(layer.experts):
        if expert not in weights:
            yield Segment(f"{'·':>{CELL}}", on.ink("faint"))
        elif (weight := weights[expert]) is None:
            yield Segment(f"{'■':>{CELL}}", on.data(0.5))
        else:
            shade = SHADES[min(3, max(0, int(weight * 4)))]
            yield Segment(f"{shade} {weight:.2f}".rjust(CELL), on.data(min(1.0, max(0.0, weight))))


def _list(layer: ExpertLayer, on: Canvas, width: int) -> Iterator[Segment]:
    """Those that were chosen, as many as fit."""
    used = 0
    for place, expert in enumerate(layer.chosen):
        weight = layer.weights[place] if layer.weights else None
        text = f"{expert + 1}" + (f" {bar(weight, 3).strip()} {weight:.2f}" if weight is not None else "")
        more = place + 1 < len(layer.chosen)
        if used + len(text) + 3 > width and more:
            yield Segment(f"{len(layer.chosen) - place} more", on.ink("muted"))
            return
        used += len(text) + 3
        yield Segment(f"{text}   ", on.data(min(1.0, max(0.0, weight or 0.5))))


def _states(states: Sequence[StateArray], on: Canvas, width: int) -> Iterator[Row]:
    for state in states:
        kind = f"{pad(visible(state.dtype), 9)}" if width >= 90 else ""
        shape = f"{pad(times(state.shape), 17)}{kind}{size(state.bytes):>9}  " if width >= 66 else ""
        changed = f"changed by {state.changed * 100:.0f} %" if state.changed is not None else "was empty"
        yield [
            Segment(pad(f"layer {state.layer + 1}", NAME + 1), on.ink("strong")),
            Segment(shape, on.ink("muted")),
            Segment(f"{state.before:>8.3g} → {state.norm:<8.3g}", on.rich_style),
            Segment(f" {changed:<16}" if width >= 52 else "", on.ink("muted")),
            Segment(f" {bar(min(1.0, state.changed or 0.0), 10)}" if width >= 90 else "", on.data(0.5)),
        ]
