"""Scales what heads, parts and layers compute, and finds what of a model can be scaled."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from engine.errors import StepError
from engine.inspection.inside.taps import Edits, Taps
from engine.model.layers import decoder_layers, parts_of, role_of
from engine.model.tail import hidden, with_hidden
from engine.protocol import Intervention, InterventionKind, Role

MOST = 64
"""Interventions at once at most."""
LARGEST = 100.0
"""Of a scale: beyond it float16 has no numbers left for what is scaled."""
KINDS: tuple[InterventionKind, ...] = ("head", "attention", "mlp", "recurrence", "layer")


def edited(model: Any, edits: Edits) -> Taps:
    """Taps that record nothing: the forwards of the model in `with edited(...).set():` are changed."""
    return Taps(model, attention=False, parts=True, edits=edits, keep=False)


def roles_of(model: Any) -> dict[tuple[int, str], Role]:
    """The role of each direct child of each layer, by the layer and the child's attribute."""
    layers = enumerate(decoder_layers(model))
    return {(index, name): role_of(part, name) for index, layer in layers for name, part in parts_of(layer)}


class Scaling(Edits):
    """Multiplies what units write; with several rows, in each row what its own interventions say.

    Args:
        model: As mlx_lm loads it.
        rows: The interventions of each row of the forward; those of a single row apply to all rows.
    """

    def __init__(self, model: Any, *rows: Sequence[Intervention]) -> None:
        self._roles = roles_of(model)
        self._rows = len(rows)
        self._units: dict[tuple[str, int], list[tuple[int, Intervention]]] = defaultdict(list)
        for row, interventions in enumerate(rows):
            for each in interventions:
                self._units[each.kind, each.layer].append((row, each))

    def heads(self, layer: int, output: mx.array) -> mx.array:
        """See `Edits`."""
        if not (units := self._units.get(("head", layer))):
            return output
        factors = np.ones((self._rows, output.shape[1], 1, 1), np.float32)
        for row, each in units:
            if (head := each.head or 0) >= output.shape[1]:
                raise StepError(f"{each.label} isn't there: this attention has {output.shape[1]} heads.")
            factors[row, head] *= each.scale
        return output * mx.array(factors).astype(output.dtype)

    def part(self, layer: int, name: str, result: Any) -> Any:
        """See `Edits`."""
        if not (units := self._units.get((self._roles[layer, name], layer))):
            return result
        state = hidden(result)
        return with_hidden(result, state * self._factors(units).astype(state.dtype))

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        """See `Edits`; at scale 0 the stream before the layer goes on bit for bit, at 1 the one after it."""
        if not (units := self._units.get(("layer", layer))):
            return result
        state, factors = hidden(result), self._factors(units).astype(given.dtype)
        if given.shape != state.shape:
            raise StepError(
                f"L{layer + 1} returns another shape than it is given: it can't be scaled.",
                "Choose its attention or its MLP.",
            )
        partly = mx.where(factors == 1, state, given + factors * (state - given))
        return with_hidden(result, mx.where(factors == 0, given, partly).astype(state.dtype))

    def _factors(self, units: list[tuple[int, Intervention]]) -> mx.array:
        factors = np.ones(self._rows, np.float32)
        for row, each in units:
            factors[row] *= each.scale
        # a single row's is a scalar: some parts return their tokens without an axis of rows
        return mx.array(factors).reshape(-1, 1, 1) if self._rows > 1 else mx.array(factors[0])


class Survey(Edits):
    """Changes nothing, and notes what of the model a forward of one token went through.

    Args:
        model: As mlx_lm loads it.
    """

    def __init__(self, model: Any) -> None:
        self._roles = roles_of(model)
        self._depth = len(decoder_layers(model))
        self._heads: dict[int, list[int]] = defaultdict(list)
        self._calls: Counter[tuple[int, str]] = Counter()
        self.rows = True
        """Whether all that was seen has its rows along the first axis, so that each can be changed in its own way."""
        self.width = 0
        """Of the residual stream."""

    def heads(self, layer: int, output: mx.array) -> mx.array:
        """See `Edits`."""
        self._heads[layer].append(output.shape[1])
        self.rows &= output.shape[0] == 1
        return output

    def part(self, layer: int, name: str, result: Any) -> Any:
        """See `Edits`."""
        self._calls[layer, name] += 1
        if self._roles[layer, name] in KINDS:
            self._see(hidden(result))
        return result

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        """See `Edits`."""
        self._see(hidden(result))
        self.width = given.shape[-1]
        return result

    def _see(self, state: mx.array) -> None:
        self.rows &= state.ndim == 3 and state.shape[0] == 1

    def heads_of(self, layer: int) -> int:
        """The number of heads of a layer; 0 where it has none, or attentions of several sizes."""
        counts = set(self._heads.get(layer, ()))
        return counts.pop() if len(counts) == 1 else 0

    def has(self, layer: int, role: str) -> bool:
        """Whether a layer has parts of a role, each of which ran once: one that layers share can't be told apart."""
        found = [name for (index, name), each in self._roles.items() if (index, each) == (layer, role)]
        return bool(found) and all(self._calls[layer, name] == 1 for name in found)

    def units(self) -> Iterator[Intervention]:
        """Everything that can be switched off alone: of each layer the heads, the parts, then the layer."""
        for layer in range(self._depth):
            yield from (Intervention("head", layer, head) for head in range(self.heads_of(layer)))
            yield from (Intervention(kind, layer) for kind in KINDS[1:-1] if self.has(layer, kind))
            yield Intervention("layer", layer)

    def missing(self) -> tuple[str, ...]:
        """What can't be switched off alone, a sentence each."""
        layers = range(self._depth)
        heads = [layer for layer in layers if not self.heads_of(layer)]
        parts = [layer for layer in layers if not any(self.has(layer, kind) for kind in KINDS[1:-1])]
        return (
            *([f"{_named(heads)}: no heads that could be told apart."] if heads else []),
            *([f"{_named(parts)}: no attention or MLP that is a module of its own."] if parts else []),
        )

    def check(self, interventions: Iterable[Intervention]) -> None:
        """Refuse what this model doesn't have.

        Raises:
            StepError: A layer has no such head or part.
        """
        for each in interventions:
            place = f"L{each.layer + 1}"
            if each.kind == "head":
                count, head = self.heads_of(each.layer), each.head or 0
                if not count:
                    raise StepError(
                        f"{place} has no heads that could be told apart.", "Choose the whole layer."
                    )
                if head >= count:
                    raise StepError(
                        f"{place} has {count} heads: there is no h{head + 1}.", f"Choose h1 to h{count}."
                    )
            elif each.kind != "layer" and not self.has(each.layer, each.kind):
                has = [kind for kind in KINDS[1:-1] if self.has(each.layer, kind)]
                raise StepError(
                    f"{place} has no {each.kind} that is a module of its own.",
                    f"Choose {' or '.join([f'its {kind}' for kind in has] + ['the whole layer'])}.",
                )


def check_interventions(model: Any, interventions: Sequence[Intervention]) -> None:
    """Refuse what can be refused before anything runs.

    Args:
        model: As mlx_lm loads it.
        interventions: As a person or a file gave them.

    Raises:
        StepError: There are none or too many, or one has a layer, head or scale that can't be.
    """
    depth = len(decoder_layers(model))
    if not 1 <= len(interventions) <= MOST:
        raise StepError(f"{len(interventions)} interventions were given.", f"Give 1 to {MOST}.")
    for each in interventions:
        if each.kind not in KINDS:
            raise StepError(f"There is no kind of unit {each.kind!r}.", f"Choose one of {', '.join(KINDS)}.")
        if not 0 <= each.layer < depth:
            raise StepError(
                f"There is no L{each.layer + 1}: this model has {depth} layers.", f"Choose L1 to L{depth}."
            )
        if (each.kind == "head") != (each.head is not None):
            what = "is missing" if each.kind == "head" else f"makes no sense for a unit of kind {each.kind}"
            raise StepError(f"The number of a head {what}.", "Give one for heads alone.")
        if each.head is not None and each.head < 0:
            raise StepError(f"There is no h{each.head + 1}: heads count from h1.", "Choose another head.")
        if not (math.isfinite(each.scale) and abs(each.scale) <= LARGEST):
            raise StepError(
                f"The scale {each.scale:g} is out of range.",
                f"Give -{LARGEST:g} to {LARGEST:g}: 0 switches off, 1 changes nothing.",
            )


def _named(layers: Sequence[int]) -> str:
    return ", ".join(f"L{layer + 1}" for layer in layers)
