"""The experts that one token went through, with their weights; and the states of recurrent layers after it.

Nothing is asked of a router, whose names and formulas differ from family to family. A mixture hands the indices of the
chosen experts to mlx_lm's switched matrices, and that call is tapped. The weight of each expert's output is read by
running the mixture again with outputs that are 0 except for one number each. That reading is checked: the experts' own
outputs under these weights must give what the mixture returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from engine.cache.kinds import kind_of
from engine.errors import StepError
from engine.inside.taps import flat_caches
from engine.inside.view import Capture, capture, layer_check, runner_before
from engine.model.facts import SWITCHED, experts_of
from engine.model.layers import Patch, calls, decoder_layers, hidden
from engine.protocol import NEITHER, Check, ExpertLayer, ExpertsRead, ReadExperts, Record, StateArray
from engine.session.session import Session
from engine.task import Stopped, never

Vector = npt.NDArray[np.float64]
MARK = 256.0
"""The number that an expert returns to have its weight read: the mixture's other parts, such as a shared expert, are
small against it, and so is their rounding."""


class MixtureRun(Struct):
    """A mixture of experts in the forward pass of one token."""

    layer: int
    path: str
    experts: int
    chosen: list[int]
    outputs: mx.array
    """Outputs of the chosen experts, shape (chosen, size)."""
    weights: list[float] = field(default_factory=list)
    error: float | None = None
    """Largest error of their weighted sum against the result of the mixture: of each number, as a share of the sizes of
    the terms that are added to it."""


def read_experts(session: Session, command: ReadExperts, stopped: Stopped = never) -> Iterator[Record]:
    """Run a token again, and read the experts that it went through and the states of recurrent layers after it.

    Raises:
        StepError: There is no such node, or it is the root; the model has neither experts nor recurrent layers.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    runs: list[MixtureRun] = []
    captured = capture(session, command.node, also=_mixture_taps(session.runner.model, runs), stopped=stopped)
    layers = tuple(_layer(run, captured.bound) for run in runs)
    states = tuple(_states(session, captured, stopped))
    mixes = experts_of(session.runner.model) > 0
    if not (mixes or states):
        raise StepError(NEITHER, "Look at its modules instead: they show what it is made of.")
    missing = tuple(_missing(mixes, layers, states))
    read = [(layer.error, layer.layer) for layer in layers if layer.weights and layer.error is not None]
    checks: list[Check] = [layer_check("experts", max(read)[0], captured.bound, max(read)[1])] if read else []
    yield ExpertsRead(command.node, layers, states, missing, captured.facts(begun, session, *checks))


# ---- mixtures ----------------------------------------------------------------------------------


def _mixture_taps(model: Any, runs: list[MixtureRun]) -> list[Patch]:
    """Patches that record each mixture's run in `runs`, with the weights of the chosen experts.

    The switched matrices of a mixture are in one module, and the mixture that weighs their outputs holds that module.
    """
    known: dict[
        int, tuple[int, str, int]
    ] = {}  # the layer, path and number of experts of each group of matrices
    groups, holders = [], []
    for index, layer in enumerate(decoder_layers(model)):
        named = list(layer.named_modules())
        for path, module in named:
            own = [child for child in module.children().values() if isinstance(child, SWITCHED)]
            if own:
                known[id(module)] = index, path, max(child.num_experts for child in own)
                groups.append(module)
        above = {path.rpartition(".")[0] for path, module in named if id(module) in known}
        holders += [module for path, module in named if path and path in above]
    replacement: mx.array | None = None

    def switch(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if replacement is not None:
            return replacement
        result = original(module, *args, **kwargs)
        arrays = [value for value in (*args, *kwargs.values()) if isinstance(value, mx.array)]
        indices = next((value for value in arrays if mx.issubdtype(value.dtype, mx.integer)), None)
        if indices is not None and indices.size == indices.shape[-1]:  # of one token
            chosen = [int(number) for number in np.array(indices.reshape(-1))]
            runs.append(MixtureRun(*known[id(module)], chosen, result))
        return result

    def hold(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        def with_outputs(outputs: mx.array) -> Any:
            nonlocal replacement
            replacement = outputs
            try:
                return original(module, *args, **kwargs)
            finally:
                replacement = None

        count = len(runs)
        result = original(module, *args, **kwargs)
        for run in runs[count:]:
            _read_weights(run, with_outputs, result)
        return result

    return [*calls(groups, switch), *calls(holders, hold)]


def _read_weights(run: MixtureRun, with_outputs: Callable[[mx.array], Any], result: Any) -> None:
    """Read the weights of the chosen experts, if the mixture is a weighted sum of their outputs.

    Args:
        run: The mixture's run; its weights and error are set.
        with_outputs: Runs the mixture again with other outputs of the experts.
        result: The mixture's result.
    """
    outputs, count = run.outputs, len(run.chosen)
    if outputs.shape[-2:-1] != (count,) or outputs.shape[-1] < count:
        return
    if not isinstance(hidden(result), mx.array):
        return
    marks = MARK * mx.eye(count, outputs.shape[-1])
    rest, marked = (
        hidden(with_outputs((marks * on).reshape(outputs.shape).astype(outputs.dtype))) for on in (0, 1)
    )
    if hidden(result).size != outputs.shape[-1]:
        return
    made, without, one = (_numbers(each) for each in (hidden(result), rest, marked))
    weights = (one - without)[:count] / MARK
    terms = [*(weights[:, None] * _numbers(outputs).reshape(count, -1)), without]
    sizes = np.maximum(np.abs(terms).sum(axis=0), np.abs(made))
    run.error = float((np.abs(np.sum(terms, axis=0) - made) / np.maximum(sizes, 1e-9)).max())
    run.weights = [float(weight) for weight in weights]


def _layer(run: MixtureRun, bound: float) -> ExpertLayer:
    chosen, weights = tuple(run.chosen), ()
    if run.error is not None and run.error <= bound:
        ordered = sorted(zip(run.weights, run.chosen, strict=True), key=lambda pair: (-pair[0], pair[1]))
        weights, chosen = zip(*ordered, strict=True)
    return ExpertLayer(run.layer, run.path, run.experts, chosen, weights, run.error)


def _numbers(array: mx.array) -> Vector:
    return np.array(array.astype(mx.float32), dtype=np.float64).reshape(-1)


# ---- recurrent layers ---------------------------------------------------------------------------


def _states(session: Session, captured: Capture, stopped: Stopped) -> Iterator[StateArray]:
    """The arrays of the recurrent caches after the token, with those before it."""
    after = list(flat_caches(captured.taps[-1].caches))
    if all(kind_of(cache).attended for cache in after):
        return
    layers = {  # not every layer has a cache
        id(cache): number
        for number, run in captured.taps[-1].layers.items()
        for value in (*run.args, *run.kwargs.values())
        for cache in flat_caches([value])
    }
    before = list(flat_caches(runner_before(session, captured.node, stopped)[0].kv.caches))
    for index, (one, other) in enumerate(zip(before, after, strict=True)):
        if kind_of(other).attended:
            continue
        earlier = [_numbers(array) for array in kind_of(one).buffers(one)]
        for place, array in enumerate(kind_of(other).buffers(other)):
            numbers = _numbers(array)
            was = earlier[place] if place < len(earlier) else np.zeros(0)
            was = was if was.shape == numbers.shape else np.zeros_like(numbers)
            norm, old = float(np.linalg.norm(numbers)), float(np.linalg.norm(was))
            changed = float(np.linalg.norm(numbers - was)) / old if old else None
            dtype = str(array.dtype).removeprefix("mlx.core.")
            layer = layers.get(id(other), index)
            yield StateArray(layer, tuple(array.shape), dtype, array.nbytes, norm, old, changed)


def _missing(mixes: bool, layers: tuple[ExpertLayer, ...], states: tuple[StateArray, ...]) -> Iterator[str]:
    """Sentences on what can't be shown."""
    lacking = [layer for layer in layers if not layer.weights]
    if lacking:
        error = max((layer.error for layer in lacking if layer.error is not None), default=None)
        why = "the mixture is not a plain sum of its experts"
        if error is not None:
            why = f"their outputs under the weights that were read are off by {error:.2g}"
        count = "1 layer" if len(lacking) == 1 else f"{len(lacking)} layers"
        yield f"The weights of {count} are not known: {why}."
    if mixes and not layers:
        yield "The chosen experts are not known: this model calls them in its own way."
    if states:
        yield (
            "A recurrent layer has no weights over earlier tokens: its state mixes them all, and does "
            "not show which token a number came from."
        )
