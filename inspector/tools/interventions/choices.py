"""What is chosen in the views of interventions, and what the engine answered."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import reduce

from engine.protocol import (
    ActivationsPatched,
    HeadsSwept,
    Intervene,
    Intervened,
    Intervention,
    PatchKind,
    Scope,
    SweptUnit,
)
from inspector.session.client import EngineClient
from inspector.session.requests import Replies
from inspector.state.inside import joined, layer_of_heads
from inspector.tools.interventions.measures import MEASURES, UnitMeasure

AT_ONCE = 600
"""Units of a model up to which its heads are switched off with the rest: at 94 layers of 64 heads that takes 6,298
forwards of one token, ten minutes where they run one by one."""
SCALES = (0.0, 0.5, 2.0)
"""What a key goes through: off, half, twice."""
PARTS: tuple[PatchKind, ...] = ("layer", "attention", "mlp")
_ORDER = ("head", "attention", "recurrence", "mlp", "layer")
Column = tuple[str, int | None]
"""A column of the map: the kind of its units, and which head."""


class SwitchControl:
    """The unit under the cursor, those that are switched off together, and the answers of the engine.

    A unit is an intervention at scale 0.

    Args:
        client: Of the engine.
    """

    def __init__(self, client: EngineClient) -> None:
        self.sweeps = Replies(client, HeadsSwept, lambda answer: (answer.node, layer_of_heads(answer)))
        self._joined: tuple[tuple[HeadsSwept, ...], HeadsSwept] | None = None
        """The sweeps that were joined last, and what came of it: thousands of units, drawn at each key."""
        self.tried = Replies(
            client, Intervened, lambda answer: (answer.node, tuple(answer.interventions), answer.scope)
        )
        self.patched = Replies(
            client, ActivationsPatched, lambda answer: (answer.node, answer.source, answer.part)
        )
        self.together: dict[Intervention, float] = {}
        """What is scaled at once, and how; of a model that was left it may have units that aren't there."""
        self.scale = 0.0
        """Of a unit that is not among them."""
        self.scope: Scope = "token"
        self.part: PatchKind = "layer"
        self.source: int | None = None
        """The path whose activations are put in; None for the first that can be."""
        self._measure = 0
        self._unit: Intervention | None = None

    def sweep(self, node: int) -> HeadsSwept | None:
        """What is known of a token: its layers and parts, with the heads of those layers that were asked for."""
        if (whole := self.sweeps.get((node, None))) is None:
            return None
        keys = [
            key
            for key in self.sweeps.keys
            if isinstance(key, tuple) and key[0] == node and key[1] is not None
        ]
        found = (whole, *(more for key in sorted(keys) if (more := self.sweeps.get(key)) is not None))
        if self._joined is None or self._joined[0] != found:
            self._joined = found, reduce(joined, found)
        return self._joined[1]

    def drop(self) -> None:
        """Nobody waits for an answer any more."""
        for answers in (self.sweeps, self.tried, self.patched):
            answers.drop()

    @property
    def measure(self) -> UnitMeasure:
        """What the colours of the map mean."""
        return MEASURES[self._measure]

    def turn_measure(self) -> None:
        """Colour by the next measure."""
        self._measure = (self._measure + 1) % len(MEASURES)

    # ---- the cursor -----------------------------------------------------------------------------

    def unit(self, swept: HeadsSwept) -> Intervention:
        """The unit under the cursor; the first time the head, or else the unit, that did most."""
        units = [each.intervention for each in swept.units]
        if self._unit in units:
            return self._unit
        if self._unit is not None and (near := _in_layer(units, self._unit.layer, column_of(self._unit))):
            return near
        heads = [each for each in swept.units if each.intervention.kind == "head"]
        return strongest(heads or swept.units, self.measure).intervention

    def turn_layer(self, swept: HeadsSwept, by: int) -> None:
        """Choose the unit of another layer that is the most alike."""
        now, units = self.unit(swept), [each.intervention for each in swept.units]
        layer = max(0, min(units[-1].layer, now.layer + by))
        self._unit = _in_layer(units, layer, column_of(now)) or now

    def turn_column(self, swept: HeadsSwept, by: int) -> None:
        """Choose the next unit of the layer; they go round."""
        now = self.unit(swept)
        own = sorted(
            (each.intervention for each in swept.units if each.intervention.layer == now.layer),
            key=lambda each: place(column_of(each)),
        )
        self._unit = own[(own.index(now) + by) % len(own)]

    # ---- what is switched off --------------------------------------------------------------------

    def marked(self, swept: HeadsSwept) -> dict[Intervention, float]:
        """What is scaled together, as far as the model has it."""
        units = {each.intervention for each in swept.units}
        return {unit: scale for unit, scale in self.together.items() if unit in units}

    def interventions(self, swept: HeadsSwept) -> tuple[Intervention, ...]:
        """What is tried: those together, or else the unit under the cursor."""
        marked = self.marked(swept) or {self.unit(swept): self.scale}
        return tuple(replace(unit, scale=scale) for unit, scale in marked.items())

    def toggle(self, swept: HeadsSwept) -> None:
        """Add the unit under the cursor to those together, or take it out."""
        unit = self.unit(swept)
        self._unit = unit  # the cursor stays, whatever the next sweep finds strongest
        if self.together.pop(unit, None) is None:
            self.together[unit] = self.scale

    def turn_scale(self, swept: HeadsSwept, by: int) -> None:
        """Scale the unit under the cursor by the next factor, or by the one before."""
        unit = self.unit(swept)
        now = self.together.get(unit, self.scale)
        scale = SCALES[max(0, min(len(SCALES) - 1, SCALES.index(now) + by))]
        if unit in self.together:
            self.together[unit] = scale
        else:
            self.scale = scale

    def question(self, node: int, swept: HeadsSwept) -> tuple[Hashable, Intervene]:
        """What is asked about the units chosen, and its key."""
        listed = self.interventions(swept)
        return (node, listed, self.scope), Intervene(node, listed, self.scope)


def column_of(unit: Intervention) -> Column:
    """The column of the map that a unit stands in."""
    return unit.kind, unit.head


def place(column: Column) -> tuple[int, int]:
    """Where a column stands: heads, parts, whole layers."""
    return _ORDER.index(column[0]), column[1] or 0


def columns(swept: HeadsSwept) -> list[Column]:
    """The columns of the map."""
    return sorted({column_of(each.intervention) for each in swept.units}, key=place)


def strongest(units: tuple[SweptUnit, ...] | list[SweptUnit], measure: UnitMeasure) -> SweptUnit:
    """The unit that did most."""
    return max(units, key=measure.strength)


def _in_layer(units: list[Intervention], layer: int, column: Column) -> Intervention | None:
    """The unit of a layer in a column, or in the nearest one."""
    own = [unit for unit in units if unit.layer == layer]
    kind, number = place(column)
    return min(
        own,
        key=lambda unit: (abs(place(column_of(unit))[0] - kind), abs((unit.head or 0) - number)),
        default=None,
    )
