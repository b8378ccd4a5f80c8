"""Which experts one token went through, with their weights; and what recurrent layers keep of the text after it.

Nothing is asked of a router, whose names and formulas differ from family to family. A mixture hands the numbers of the
chosen experts to mlx_lm's switched matrices, and that call is tapped. What it then multiplies each expert's output by
is read by running the mixture again with outputs that are 0 but for one number each. That reading is checked: the
experts' own outputs under these weights have to give what the mixture returned.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from engine.cache.kinds import kind_of
from engine.errors import StepError
from engine.inside.capture import Capture, capture, runner_before
from engine.inside.taps import flat_caches
from engine.model.layers import Patch, calls, decoder_layers, hidden
from engine.model.weights import SWITCHED, experts_of
from engine.protocol import NEITHER, Check, ExpertLayer, ExpertsRead, StateArray
from engine.session.session import Session
from engine.task import Stopped, never

Vector = npt.NDArray[np.float64]
MARK = 256.0
"""The number that an expert returns to have its weight read: the mixture's other parts, such as a shared expert, are
small against it, and so is their rounding."""


class _MixtureRun(Struct):
    """What one mixture of experts did for one token."""

    layer: int
    path: str
    experts: int
    chosen: list[int]
    outputs: mx.array
    """Of the chosen experts, shape (chosen, size)."""
    weights: list[float] = field(default_factory=list)
    error: float | None = None
    """How far their weighted sum is from what the mixture returned: of each number, as a share of the sizes of those
    that are added to it; the largest."""


class _Switches(Struct):
    """Taps the mixtures of a model.

    Args:
        model: As mlx_lm loads it.
    """

    model: Any
    choices: list[_MixtureRun] = field(default_factory=list)
    _instead: mx.array | None = None
    """Outputs to return for the experts', while a mixture is run once more."""
    _known: dict[int, tuple[int, str, int]] = field(default_factory=dict)
    """Of each group of switched matrices, by `id()`: its layer, path and number of experts."""

    def patches(self) -> list[Patch]:
        """To set during the forward."""
        groups, others = [], []
        for index, layer in enumerate(decoder_layers(self.model)):
            named = list(layer.named_modules())
            for path, module in named:
                own = [child for child in module.children().values() if isinstance(child, SWITCHED)]
                if own:
                    self._known[id(module)] = index, path, max(child.num_experts for child in own)
                    groups.append(module)
            holders = {path.rpartition(".")[0] for path, module in named if id(module) in self._known}
            others += [module for path, module in named if path and path in holders]
        return [*calls(groups, self._switch), *calls(others, self._hold)]

    def _hold(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        count = len(self.choices)
        result = original(module, *args, **kwargs)
        for choice in self.choices[count:]:
            self._read_weights(choice, lambda: original(module, *args, **kwargs), result)
        return result

    def _switch(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if self._instead is not None:
            return self._instead
        result = original(module, *args, **kwargs)
        whole = [
            value for value in (*args, *kwargs.values())
            if isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.integer)
        ]  # fmt: skip
        if whole and whole[0].size == whole[0].shape[-1]:  # of one token
            layer, path, experts = self._known[id(module)]
            chosen = [int(number) for number in np.array(whole[0].reshape(-1))]
            self.choices.append(_MixtureRun(layer, path, experts, chosen, result))
        return result

    def _read_weights(self, choice: _MixtureRun, again: Any, result: Any) -> None:
        """Weights of the chosen experts, where the mixture is a weighted sum of their outputs."""
        outputs, count = choice.outputs, len(choice.chosen)
        if (
            outputs.shape[-2:-1] != (count,)
            or outputs.shape[-1] < count
            or not isinstance(hidden(result), mx.array)
        ):
            return
        marks = MARK * mx.eye(count, outputs.shape[-1])
        whole, rest, marked = (
            hidden(result),
            *(
                hidden(self._replaced(again, (marks * on).reshape(outputs.shape).astype(outputs.dtype)))
                for on in (0, 1)
            ),
        )
        if whole.size != outputs.shape[-1]:
            return
        made, without, one = (_numbers(each) for each in (whole, rest, marked))
        weights = (one - without)[:count] / MARK
        terms = [*(weights[:, None] * _numbers(outputs).reshape(count, -1)), without]
        sizes = np.maximum(np.abs(terms).sum(axis=0), np.abs(made))
        choice.error = float((np.abs(np.sum(terms, axis=0) - made) / np.maximum(sizes, 1e-9)).max())
        choice.weights = [float(weight) for weight in weights]

    def _replaced(self, again: Any, outputs: mx.array) -> Any:
        self._instead = outputs
        try:
            return again()
        finally:
            self._instead = None


def read_experts(session: Session, node: int, stopped: Stopped = never) -> ExpertsRead:
    """Run a token again, and read which experts it went through and what recurrent layers keep after it.

    Args:
        session: Has read a prompt; not changed.
        node: The token.
        stopped: Polled before each chunk and forward.

    Raises:
        StepError: There is no such node, or it is the root; the model has neither experts nor recurrent layers.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    switches = _Switches(session.runner.model)
    taken = capture(session, node, also=switches.patches(), stopped=stopped)
    layers = tuple(_layer(choice, taken.bound) for choice in switches.choices)
    states = tuple(_states(session, taken, stopped))
    mixes = experts_of(session.runner.model) > 0
    if not (mixes or states):
        raise StepError(NEITHER, "Look at its modules instead: they show what it is made of.")
    missing = _missing(mixes, layers, states)
    read = [(layer.error, layer.layer) for layer in layers if layer.weights and layer.error is not None]
    checks = [Check("experts", max(read)[0], taken.bound, f"layer {max(read)[1] + 1}")] if read else []
    return ExpertsRead(node, layers, states, missing, taken.facts(begun, session, *checks))


def _layer(choice: _MixtureRun, bound: float) -> ExpertLayer:
    if choice.error is None or not choice.error <= bound:
        return ExpertLayer(choice.layer, choice.path, choice.experts, tuple(choice.chosen), (), choice.error)
    ordered = sorted(zip(choice.weights, choice.chosen, strict=True), key=lambda pair: (-pair[0], pair[1]))
    weights, chosen = zip(*ordered, strict=True)
    return ExpertLayer(choice.layer, choice.path, choice.experts, chosen, weights, choice.error)


def _numbers(array: mx.array) -> Vector:
    return np.array(array.astype(mx.float32), dtype=np.float64).reshape(-1)


# ---- recurrent layers ---------------------------------------------------------------------------


def _states(session: Session, taken: Capture, stopped: Stopped) -> Iterator[StateArray]:
    """The arrays of the recurrent caches after the token, with those before it."""
    after = list(flat_caches(taken.taps[-1].caches))
    if all(kind_of(cache).attended for cache in after):
        return
    layers = _layers_of(taken)
    earlier = list(flat_caches(runner_before(session, taken.node, stopped)[0].kv.caches))
    for index, (one, other) in enumerate(zip(earlier, after, strict=True)):
        if not kind_of(other).attended:
            layer = layers.get(id(other), index)
            yield from _arrays(layer, kind_of(one).buffers(one), kind_of(other).buffers(other))


def _layers_of(taken: Capture) -> dict[int, int]:
    """The layer that each cache was handed to, by the cache's `id()`: not every layer has one."""
    runs = taken.taps[-1].layers.items()
    return {
        id(each): number for number, run in runs for value in (*run.args, *run.kwargs.values())
        for each in flat_caches([value])
    }  # fmt: skip


def _arrays(layer: int, before: list[Any], after: list[Any]) -> Iterator[StateArray]:
    earlier = [_numbers(array) for array in before]
    for index, array in enumerate(after):
        numbers = _numbers(array)
        was = earlier[index] if index < len(earlier) else np.zeros(0)
        was = was if was.shape == numbers.shape else np.zeros_like(numbers)
        norm, old = float(np.linalg.norm(numbers)), float(np.linalg.norm(was))
        changed = float(np.linalg.norm(numbers - was)) / old if old else None
        dtype = str(array.dtype).removeprefix("mlx.core.")
        yield StateArray(layer, tuple(array.shape), dtype, array.nbytes, norm, old, changed)


def _missing(mixes: bool, layers: tuple[ExpertLayer, ...], states: tuple[StateArray, ...]) -> tuple[str, ...]:
    """What can't be shown, a sentence each."""
    sentences = []
    lacking = [layer for layer in layers if not layer.weights]
    if lacking:
        off = max((layer.error for layer in lacking if layer.error is not None), default=None)
        why = "their outputs under the weights that were read are off by" if off is not None else ""
        reason = (
            f": {why} {off:.2g}" if off is not None else ": the mixture is not a plain sum of its experts"
        )
        sentences.append(f"The weights of {_count(len(lacking), 'layer')} are not known{reason}.")
    if mixes and not layers:
        sentences.append("The chosen experts are not known: this model calls them in its own way.")
    if states:
        sentences.append(
            "A recurrent layer has no weights over earlier tokens: its state mixes them all, and does "
            "not show which token a number came from."
        )
    return tuple(sentences)


def _count(number: int, word: str) -> str:
    return f"1 {word}" if number == 1 else f"{number} {word}s"
