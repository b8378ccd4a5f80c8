"""How a layer joins its parts, and what an MLP computes between its matrices: found by computing it again.

Nothing says so but the code of each family. The arrays of one observed forward do: a part that is given the residual
stream was given just that array, and what a layer returned is the stream plus its parts' outputs, or it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from engine.inside.rounding import rounding
from engine.protocol import LayerSum, MlpFacts

Vector = npt.NDArray[np.float64]
CLOSE = 1e-5
"""Largest difference of what an activation gives when it is computed again, as a share of the largest number, in
float32."""
CLOSE_LESS = 2e-2
"""The same in fewer bits: in bfloat16 five roundings of 4e-3, one for each operation of an activation."""
CLEARLY = 4.0
"""So many times nearer than the second best an activation has to be: with small numbers SiLU and GELU are alike."""


class Ran(Struct, frozen=True):
    """One part of a layer, as it ran; what is one array in the model is one vector here."""

    path: str
    given: Vector
    returned: Vector


def joined(
    given: Vector, returned: Vector, parts: Sequence[Ran], unit: float
) -> tuple[dict[str, str], tuple[LayerSum, ...]]:
    """What each part of a layer reads, and where outputs are added to the residual stream.

    Args:
        given: The stream before the layer.
        returned: The stream after it.
        parts: Its direct parts in the order in which they ran.
        unit: How far the model's dtype rounds a number at most, as a share of it.

    Returns:
        By path what a part reads, `stream` or another's path; and the sums: none where they don't explain the layer.
    """
    stream, last = given, ""
    free: list[Ran] = []
    reads: dict[str, str] = {}
    sums: list[LayerSum] = []
    for index, part in enumerate(parts):
        sources = _sources(part.given, stream, parts[:index], free, unit)
        if not sources and (factors := _factors(stream, part.given, free, unit)) is not None:
            sums.append(LayerSum(last, tuple(each.path for each in free), factors))
            stream, free, sources = part.given, [], ("stream",)
        reads[part.path] = " + ".join(sources)
        free = [each for each in free if each.path not in sources]
        if part.returned.shape == stream.shape:
            free.append(part)
        last = part.path
    if returned is stream and not free:
        return reads, tuple(sums)
    factors = _factors(stream, returned, free, unit)
    if factors is None:
        return reads, ()
    return reads, (*sums, LayerSum(last, tuple(each.path for each in free), factors))


def _sources(
    given: Vector, stream: Vector, before: Sequence[Ran], free: Sequence[Ran], unit: float
) -> tuple[str, ...]:
    """The sources of a part's input: the stream, another part's output, or the sum of several outputs.

    The first two are the same array. Equal numbers would not do: in bfloat16 a stream may equal its own norm to the
    last bit, or its sum with what a small part adds.
    """
    if given is stream:
        return ("stream",)
    alone = next((each.path for each in reversed(before) if given is each.returned), "")
    if alone or len(free) < 2 or any(each.returned.shape != given.shape for each in free):
        return (alone,) if alone else ()
    terms = np.stack([each.returned for each in free])
    wrong, most = np.abs(terms.sum(axis=0) - given), rounding(len(free) - 1, unit) * np.abs(terms).sum(axis=0)
    return tuple(each.path for each in free) if (wrong <= most).all() else ()


def _factors(before: Vector, after: Vector, parts: Sequence[Ran], unit: float) -> tuple[float, ...] | None:
    """The factors of the parts' outputs in the sum that the layer makes of them; None where the sum is another one.

    Each addition rounds a number that is no larger than the sum of all sizes, and so does each multiplication. The
    factors that fit best leave no more than the true ones, which leave these roundings.
    """
    if not 0 < len(parts) <= 4 or any(each.shape != after.shape for each in (before, parts[0].returned)):
        return None
    outputs, difference = (
        np.stack([part.returned.ravel() for part in parts], axis=1),
        (after - before).ravel(),
    )
    start, sizes = np.abs(before).ravel(), np.abs(outputs)
    most = rounding(len(parts), unit) * (start + sizes.sum(axis=1))
    if (np.abs(outputs.sum(axis=1) - difference) <= most).all():
        return (1.0,) * len(parts)
    solved = np.linalg.lstsq(outputs, difference, rcond=None)[0]
    most = rounding(2 * len(parts), unit) * (start + sizes @ np.abs(solved))
    if np.linalg.norm(outputs @ solved - difference) > np.linalg.norm(most):
        return None
    return tuple(float(f"{factor:.4g}") for factor in solved)


def _relative(difference: Vector, to: Vector) -> float:
    return float(np.abs(difference).max() / max(float(np.abs(to).max()), 1e-12))


# ---- MLPs ---------------------------------------------------------------------------------------


def _sigmoid(x: Vector) -> Vector:
    values: Vector = 1 / (1 + np.exp(-x))
    return values


def _gelu(x: Vector) -> Vector:
    return np.asarray([value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x.flat]).reshape(
        x.shape
    )


def _gelu_tanh(x: Vector) -> Vector:
    values: Vector = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return values


def _relu(x: Vector) -> Vector:
    values: Vector = np.maximum(x, 0)
    return values


PLAIN: tuple[tuple[str, Callable[[Vector], Vector]], ...] = (
    ("GELU", _gelu),
    ("GELU", _gelu_tanh),
    ("GELU", lambda x: x * _sigmoid(1.702 * x)),
    ("SiLU", lambda x: x * _sigmoid(x)),
    ("ReLU", _relu),
    ("ReLU²", lambda x: _relu(x) ** 2),
)
"""What stands between two matrices."""
GATED: tuple[tuple[str, Callable[[Vector, Vector], Vector]], ...] = (
    ("SwiGLU", lambda gate, up: gate * _sigmoid(gate) * up),
    ("GeGLU", lambda gate, up: _gelu(gate) * up),
    ("GeGLU", lambda gate, up: _gelu_tanh(gate) * up),
    ("ReGLU", lambda gate, up: _relu(gate) * up),
    ("GLU", lambda gate, up: _sigmoid(gate) * up),
    ("bilinear", lambda gate, up: gate * up),
    (
        "SwiGLU, clipped",
        lambda gate, up: (
            np.minimum(gate, 7) * _sigmoid(1.702 * np.minimum(gate, 7)) * (np.clip(up, -7, 7) + 1)
        ),
    ),
)
"""What stands between three (Shazeer 2020); the last is that of gpt-oss."""


def mlp_facts(outputs: Sequence[Vector], inner: Vector, close: float) -> MlpFacts | None:
    """What an MLP computes between its first matrices and its last one.

    Args:
        outputs: Of its first matrices.
        inner: What its last matrix was given.
        close: Largest relative difference of arrays that are the same.

    Returns:
        None where no outputs have the size for one.
    """
    size = inner.size
    fitting = [output for output in outputs if output.size == size]
    fused = [output for output in outputs if output.size == 2 * size]
    if len(fitting) == 2:
        pairs = [(fitting[0], fitting[1]), (fitting[1], fitting[0])]
    elif not fitting and len(fused) == 1:
        one, other = np.split(fused[0], 2, axis=-1)
        pairs = [(one, other), (other, one)]
    elif len(fitting) == 1:
        trials = [(name, function(fitting[0])) for name, function in PLAIN]
        return MlpFacts(inner.shape[-1], False, _nearest(trials, inner, close))
    else:
        return None
    trials = [(name, function(*pair)) for name, function in GATED for pair in pairs]
    return MlpFacts(inner.shape[-1], True, _nearest(trials, inner, close))


def _nearest(trials: Sequence[tuple[str, Vector]], inner: Vector, close: float) -> str:
    """The activation that gives these numbers; empty where none does, or two of different names do."""
    errors: dict[str, float] = {}
    for name, values in trials:
        error = _relative(values.reshape(inner.shape) - inner, inner)
        errors[name] = min(error, errors.get(name, math.inf))
    ordered = sorted(errors, key=errors.__getitem__)
    best, second = errors[ordered[0]], errors[ordered[1]]
    return ordered[0] if best <= close and CLEARLY * best < second else ""


def vector(array: Any) -> Vector:
    """An MLX array in host memory, flat but for its last axis."""
    numbers = np.array(array.astype(mx.float32), dtype=np.float64)
    return numbers.reshape(-1, numbers.shape[-1]) if numbers.ndim else numbers.reshape(1, 1)
