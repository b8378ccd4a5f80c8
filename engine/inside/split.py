"""Splits what a layer adds to the residual stream of one or more tokens into what its attention, MLP and heads add.

The layer runs again with the results of its children frozen: once with all of them, once with none, once with each
alone, as rows of one batch. So the model's own code decides where a child's result goes, through which norm and which
multiplier. If the rows don't sum to what the layer returned, there is no split.

A contribution can be pushed through a norm once the norm's scale is held: then the norm is linear. Several rows go
through at once; the first is what the model itself computes, and all rows are scaled as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.inside.taps import LayerRun, PartRun, with_stream
from engine.inside.view import finite
from engine.model.layers import Patch, calls, hidden, patched, role_of, with_hidden
from engine.protocol import WriterKind


@contextmanager
def held_norms(rows: int, *patches: Patch, dtype: mx.Dtype | None = None) -> Iterator[None]:
    """Hold the norms' scales at those of the first row, and run compiled functions uncompiled.

    Args:
        rows: Number of rows that go through together, along the first axis.
        patches: Further patches, set with these.
        dtype: Dtype that the norms return; None for that of their input.
    """

    def scaled(wide: mx.array, eps: float, weight: mx.array | None, bias: mx.array | None) -> mx.array:
        squares = mx.square(wide).mean(axis=-1, keepdims=True)
        first = squares[:1] if squares.shape[0] == rows else squares
        x = wide * mx.stop_gradient(mx.rsqrt(first + eps))  # a constant to a derivative
        x = x if weight is None else x * weight.astype(mx.float32)
        return x if bias is None else x + bias.astype(mx.float32)

    def rms_norm(x: mx.array, weight: mx.array | None, eps: float, **_: Any) -> mx.array:
        return scaled(x.astype(mx.float32), eps, weight, None).astype(dtype or x.dtype)

    def layer_norm(
        x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float, **_: Any
    ) -> mx.array:
        wide = x.astype(mx.float32)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        return scaled(centred, eps, weight, bias).astype(dtype or x.dtype)

    norms: list[Patch] = [(mx.fast, "rms_norm", rms_norm), (mx.fast, "layer_norm", layer_norm)]
    with uncompiled(), patched(*norms, *patches):
        yield


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled functions uncompiled: a compiled one would not see the patches, or would keep them for ever if it
    was traced meanwhile."""
    if mx.default_device() == mx.Device(mx.cpu) or "MLX_DISABLE_COMPILE" in os.environ:
        yield  # nothing is compiled, on a CPU see `engine.model.load`
        return
    mx.disable_compile()
    try:
        yield
    finally:
        mx.enable_compile()


# ---- a layer's writers -------------------------------------------------------------------------

KINDS: dict[str, WriterKind] = {"attention": "attention", "mlp": "mlp", "recurrence": "recurrence"}
"""Kinds of writers, by the roles of modules; the rest are `other`."""


class LayerWriter(Struct, frozen=True):
    """The output of one child in the residual stream; of several tokens, `size` is that of all their streams."""

    kind: WriterKind
    name: str
    adds: mx.array
    """Float32, shape (1, size)."""
    heads: mx.array | None = None
    """Share of each head, shape (heads, size); None if they can't be told apart, or were not asked for."""
    rest: mx.array | None = None
    """Output without any head, shape (1, size)."""


class LayerSplit(Struct, frozen=True):
    """A layer's output as a sum: the stream before it, `residual`, and what each writer adds."""

    writers: tuple[LayerWriter, ...]
    residual: mx.array
    """Float32, shape (1, size); zeros in most models."""


def split_layer(
    layer: Any, run: LayerRun, written: Sequence[PartRun], bound: float, heads: bool = True
) -> LayerSplit | None:
    """Split a layer's output.

    Args:
        layer: The module.
        run: Its call.
        written: The calls of its children, in their order.
        bound: Bound of the relative error of the sum.
        heads: True to tell the heads of its attention apart.

    Returns:
        None if its writers can't be told apart.
    """
    parts = _writing(run, written)
    batches = [
        mx.concatenate([hidden(part.result).astype(mx.float32), *(heads_of(part, bound) if heads else [])])
        for part in parts
    ]  # of each part its result, and then, if its heads can be told apart, each head's and the rest
    if not parts:
        return None
    try:
        after = _replay(layer, run, parts, batches)
    except Exception:  # a family's own code, given frozen parts and more rows, may fail in any way
        return None
    full, none, rows = after[:1], after[1:2], after[2:] - after[1:2]
    split = LayerSplit(tuple(_writers(parts, batches, rows, bound)), none - stream(run.given))
    summed = none + sum(writer.adds for writer in split.writers)
    returned = stream(run.state)
    return split if _error(returned, returned, full, summed) <= bound else None


def _writing(run: LayerRun, written: Sequence[PartRun]) -> list[PartRun]:
    """The children whose results reach the stream: no norms, and nothing that only passes another's result on, such as
    a gain."""
    found: list[PartRun] = []
    for part in written:
        through = part.args and any(part.args[0] is hidden(other.result) for other in found)
        norm = role_of(part.module, part.name) == "norm"
        if not (through or norm) and hidden(part.result).shape == run.state.shape:
            found.append(part)
    return found


def _replay(layer: Any, run: LayerRun, parts: Sequence[PartRun], batches: Sequence[mx.array]) -> mx.array:
    """The layer's output with all writers, with none, and with each row of each writer alone; shape (rows, size)."""
    count = 2 + sum(rows.shape[0] for rows in batches)
    returned = []
    for number, rows in enumerate(batches):
        alone = [rows if other == number else mx.zeros_like(each) for other, each in enumerate(batches)]
        returned.append(mx.concatenate([rows[:1], mx.zeros_like(rows[:1]), *alone]))
    left = list(zip(parts, returned, strict=True))

    def freeze(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        part, rows = left.pop(0)
        if part.module is not module:
            raise RuntimeError("the layer called its parts in another order")
        return with_hidden(part.result, rows)

    given = mx.broadcast_to(run.given.astype(mx.float32), (count, *run.given.shape[1:]))
    args, kwargs = with_stream(run, given)
    with held_norms(count, *calls([part.module for part in parts], freeze)):
        after = hidden(layer(*args, **kwargs)).astype(mx.float32).reshape(count, -1)
    if left:
        raise RuntimeError("the layer did not call all its parts")
    mx.eval(after)
    return after


def _writers(
    parts: Sequence[PartRun], batches: Sequence[mx.array], rows: mx.array, bound: float
) -> Iterator[LayerWriter]:
    begin = 0
    for part, batch in zip(parts, batches, strict=True):
        end = begin + batch.shape[0]
        adds, heads, rest = rows[begin : begin + 1], rows[begin + 1 : end - 1], rows[end - 1 : end]
        begin = end
        summed = heads.sum(axis=0, keepdims=True) + rest
        kind = "attention" if part.attention else KINDS.get(role_of(part.module, part.name), "other")
        # of many heads each adds little: what they add together is rounded to its own last bits
        if heads.size and _error(mx.concatenate([adds, heads, rest]), adds, summed) <= bound:
            yield LayerWriter(kind, part.name, adds, heads, rest)
        else:
            yield LayerWriter(kind, part.name, adds)


def heads_of(part: PartRun, bound: float) -> list[mx.array]:
    """The result of an attention module with each head alone.

    The module runs again with its heads' outputs frozen: all of them, each alone, and none. Projections, gates and
    norms after the heads are its own.

    Args:
        part: The module's call.
        bound: Bound of the relative error of their sum.

    Returns:
        Float32, shape (heads, tokens, size), and the result without any head, (1, tokens, size). Nothing if the heads
        can't be told apart.
    """
    output = part.attention[0].output if len(part.attention) == 1 else None
    if output is None or output.shape[0] != 1:
        return []
    count = output.shape[1]
    alone = mx.concatenate([mx.ones((1, count)), mx.eye(count), mx.zeros((1, count))])
    outputs = output.astype(mx.float32) * alone[:, :, None, None]

    def attention(*_: Any, **__: Any) -> mx.array:
        return outputs

    args = [for_rows(value, count + 2) for value in part.args]
    kwargs = {name: for_rows(value, count + 2) for name, value in part.kwargs.items()}
    try:
        with held_norms(count + 2, (mx.fast, "scaled_dot_product_attention", attention)):
            rows = hidden(part.module(*args, **kwargs)).astype(mx.float32)
        heads, rest = rows[1:-1] - rows[-1:], rows[-1:]
        summed = heads.sum(axis=0, keepdims=True) + rest
        wrong = _error(rows, hidden(part.result), rows[:1], summed)
    except Exception:  # as above; without a cache, too, some refuse
        return []
    return [heads, rest] if wrong <= bound else []


def for_rows(value: Any, rows: int) -> Any:
    """An argument for several rows: hidden states repeated, no cache (nothing new may be written to it)."""
    if type(value) in (tuple, list):
        return type(value)(for_rows(each, rows) for each in value)
    if isinstance(value, mx.array):
        one = value.ndim == 3 and value.shape[0] == 1
        return mx.broadcast_to(value, (rows, *value.shape[1:])) if one else value
    return None if hasattr(value, "update_and_fetch") or hasattr(value, "caches") else value


def stream(state: mx.array) -> mx.array:
    """The residual stream, float32, shape (1, size)."""
    return state.astype(mx.float32).reshape(1, -1)


def _error(scale: mx.array, truth: mx.array, *others: mx.array) -> float:
    """The largest difference of some arrays from another, as a share of the largest number of `scale`."""
    largest = mx.maximum(mx.abs(scale).max(), 1e-9)
    wrong = mx.concatenate([mx.abs(truth - other).reshape(-1) for other in others])
    return finite(float(np.array(wrong.max() / largest)))
