"""The way a layer adds its parts to the residual stream, and the activation of its MLP, found from one forward pass.

Each family defines both only in its code. Here they are found from the arrays: a part that reads the residual stream
was given that very array, and sums and activations are computed again and compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from engine.protocol import LayerSum, MlpFacts

Vector = npt.NDArray[np.float64]
CLOSE = 1e-5
"""Largest error of an activation that is computed again in float32, as a share of the largest number."""
CLOSE_LESS = 2e-2
"""The same bound in fewer bits: in bfloat16 five roundings of 4e-3, one for each operation of an activation."""
CLEARLY = 4.0
"""Factor by which the best activation's error must be below the second best's: SiLU and GELU are alike near 0."""


def vector(array: mx.array) -> Vector:
    """An MLX array in host memory, flat except for its last axis."""
    numbers = np.array(array.astype(mx.float32), dtype=np.float64)
    return numbers.reshape(-1, numbers.shape[-1]) if numbers.ndim else numbers.reshape(1, 1)


class PartVectors(Struct, frozen=True):
    """Input and output of one part of a layer; the same array of the model is the same object here."""

    path: str
    given: Vector
    returned: Vector


def joined(
    given: Vector, returned: Vector, parts: Sequence[PartVectors], unit: float
) -> tuple[dict[str, str], tuple[LayerSum, ...]]:
    """The input of each part of a layer, and the sums that add the parts' outputs to the residual stream.

    Args:
        given: The stream before the layer.
        returned: The stream after it.
        parts: Its direct parts in the order in which they ran.
        unit: Unit roundoff of the model's dtype.

    Returns:
        The input of each part by the part's path: `stream`, or the paths of other parts. And the sums, empty if they
        don't explain the layer.
    """
    stream, last = given, ""
    free: list[PartVectors] = []
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
    given: Vector, stream: Vector, before: Sequence[PartVectors], free: Sequence[PartVectors], unit: float
) -> tuple[str, ...]:
    """The sources of a part's input: the stream, another part's output, or the sum of several outputs.

    The first two are recognized by identity. Equal numbers are not enough: in bfloat16 a stream may equal its own norm
    to the last bit, or its sum with the output of a small part.
    """
    if given is stream:
        return ("stream",)
    alone = next((each.path for each in reversed(before) if given is each.returned), "")
    if alone or len(free) < 2 or any(each.returned.shape != given.shape for each in free):
        return (alone,) if alone else ()
    terms = np.stack([each.returned for each in free])
    most = _rounding(len(free) - 1, unit) * np.abs(terms).sum(axis=0)
    wrong = np.abs(terms.sum(axis=0) - given)
    return tuple(each.path for each in free) if (wrong <= most).all() else ()


def _factors(
    before: Vector, after: Vector, parts: Sequence[PartVectors], unit: float
) -> tuple[float, ...] | None:
    """The factors of the parts' outputs in the layer's sum, or None if it isn't such a sum.

    Each addition and each multiplication rounds a number no larger than the sum of all absolute values. Least squares
    leave a residual no larger than that of the true factors, which is at most these roundings.
    """
    if not 0 < len(parts) <= 4 or any(each.shape != after.shape for each in (before, parts[0].returned)):
        return None
    outputs = np.stack([part.returned.ravel() for part in parts], axis=1)
    difference = (after - before).ravel()
    start, sizes = np.abs(before).ravel(), np.abs(outputs)
    most = _rounding(len(parts), unit) * (start + sizes.sum(axis=1))
    if (np.abs(outputs.sum(axis=1) - difference) <= most).all():
        return (1.0,) * len(parts)
    solved = np.linalg.lstsq(outputs, difference, rcond=None)[0]
    most = _rounding(2 * len(parts), unit) * (start + sizes @ np.abs(solved))
    if np.linalg.norm(outputs @ solved - difference) > np.linalg.norm(most):
        return None
    return tuple(float(f"{factor:.4g}") for factor in solved)


def _rounding(count: int, unit: float) -> float:
    """The largest rounding error of a sum, as a share of its terms' absolute values (Higham 2002, chapter 3).

    Args:
        count: Number of times that a term is rounded on its way into the sum.
        unit: Unit roundoff of the dtype that rounds.
    """
    return count * unit / (1 - count * unit)


# ---- MLPs ---------------------------------------------------------------------------------------


def _sigmoid(x: Vector) -> Vector:
    return np.asarray(1 / (1 + np.exp(-x)))


def _gelu(x: Vector) -> Vector:
    return np.asarray([value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x.flat]).reshape(
        x.shape
    )


def _gelu_tanh(x: Vector) -> Vector:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _relu(x: Vector) -> Vector:
    return np.asarray(np.maximum(x, 0))


def _clipped_swiglu(gate: Vector, up: Vector) -> Vector:
    gate = np.minimum(gate, 7)
    return np.asarray(gate * _sigmoid(1.702 * gate) * (np.clip(up, -7, 7) + 1))


PLAIN: tuple[tuple[str, Callable[[Vector], Vector]], ...] = (
    ("GELU", _gelu),
    ("GELU", _gelu_tanh),
    ("GELU", lambda x: x * _sigmoid(1.702 * x)),
    ("SiLU", lambda x: x * _sigmoid(x)),
    ("ReLU", _relu),
    ("ReLU²", lambda x: _relu(x) ** 2),
)
"""Activations between two matrices."""
GATED: tuple[tuple[str, Callable[[Vector, Vector], Vector]], ...] = (
    ("SwiGLU", lambda gate, up: gate * _sigmoid(gate) * up),
    ("GeGLU", lambda gate, up: _gelu(gate) * up),
    ("GeGLU", lambda gate, up: _gelu_tanh(gate) * up),
    ("ReGLU", lambda gate, up: _relu(gate) * up),
    ("GLU", lambda gate, up: _sigmoid(gate) * up),
    ("bilinear", lambda gate, up: gate * up),
    ("SwiGLU, clipped", _clipped_swiglu),
)
"""Activations between three matrices (Shazeer 2020); the last is that of gpt-oss."""


def mlp_facts(outputs: Sequence[Vector], inner: Vector, close: float) -> MlpFacts | None:
    """The activation of an MLP.

    Args:
        outputs: Outputs of its first matrices.
        inner: Input of its last matrix.
        close: Largest relative difference of arrays that are the same.

    Returns:
        None if the outputs' sizes fit no MLP. The activation is empty if none matches, or none clearly better than the
        others.
    """
    size = inner.size
    fitting = [output for output in outputs if output.size == size]
    fused = [output for output in outputs if output.size == 2 * size]
    gated = len(fitting) != 1
    if not gated:
        trials = [(name, function(fitting[0])) for name, function in PLAIN]
    elif len(fitting) == 2 or (not fitting and len(fused) == 1):
        one, other = fitting or np.split(fused[0], 2, axis=-1)
        pairs = (one, other), (other, one)
        trials = [(name, function(*pair)) for name, function in GATED for pair in pairs]
    else:
        return None
    errors: dict[str, float] = {}
    largest = max(float(np.abs(inner).max()), 1e-12)
    for name, values in trials:
        error = float(np.abs(values.reshape(inner.shape) - inner).max() / largest)
        errors[name] = min(error, errors.get(name, math.inf))
    best, second = sorted(errors, key=errors.__getitem__)[:2]
    clear = errors[best] <= close and CLEARLY * errors[best] < errors[second]
    return MlpFacts(inner.shape[-1], gated, best if clear else "")
