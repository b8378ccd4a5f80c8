"""Splits what a layer adds to the residual stream of one or more tokens into what its attention, MLP and heads add.

The layer runs again with what its children returned frozen: once with all of them, once with none, once with each
alone, as rows of one batch. So it is the model's own code that says where a child's result goes, through which norm and
which multiplier. Where the rows don't sum to what the layer returned, there is no split.

A contribution can be pushed through a norm once the norm's scale is held: then it is linear. Several rows go through at
once, and the first is what the model itself computes: all rows are scaled as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.inside.taps import LayerRun, PartRun
from engine.model.layers import Patch, calls, hidden, patched, role_of, with_hidden
from engine.protocol import WriterKind


@contextmanager
def held_norms(rows: int, *patches: Patch, dtype: mx.Dtype | None = None) -> Iterator[None]:
    """Hold the norms' scales at those of the first row, and run compiled functions uncompiled.

    Args:
        rows: How many go through together, along the first axis.
        patches: Others, set with them.
        dtype: That the norms return; None for that of what they are given.
    """
    norms: list[Patch] = [
        (mx.fast, "rms_norm", _rms_norm(rows, dtype)),
        (mx.fast, "layer_norm", _layer_norm(rows, dtype)),
    ]
    with uncompiled(), patched(*norms, *patches):
        yield


def _rms_norm(rows: int, dtype: mx.Dtype | None) -> Callable[..., mx.array]:
    def rms_norm(x: mx.array, weight: mx.array | None, eps: float, **_: Any) -> mx.array:
        wide = x.astype(mx.float32)
        normed = wide * _held(mx.square(wide).mean(axis=-1, keepdims=True), eps, rows)
        return _affine(normed, weight, None).astype(dtype or x.dtype)

    return rms_norm


def _layer_norm(rows: int, dtype: mx.Dtype | None) -> Callable[..., mx.array]:
    def layer_norm(
        x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float, **_: Any
    ) -> mx.array:
        wide = x.astype(mx.float32)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        normed = centred * _held(mx.square(centred).mean(axis=-1, keepdims=True), eps, rows)
        return _affine(normed, weight, bias).astype(dtype or x.dtype)

    return layer_norm


def _held(squares: mx.array, eps: float, rows: int) -> mx.array:
    """The scale of the first row; a constant to a derivative."""
    first = squares[:1] if squares.shape[0] == rows else squares
    return mx.stop_gradient(mx.rsqrt(first + eps))


def _affine(x: mx.array, weight: mx.array | None, bias: mx.array | None) -> mx.array:
    x = x if weight is None else x * weight.astype(mx.float32)
    return x if bias is None else x + bias.astype(mx.float32)


@contextmanager
def uncompiled() -> Iterator[None]:
    """A compiled function would not see what is replaced, or would keep it for ever if it was traced meanwhile."""
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
"""Of writers, by the roles of modules; the rest are `other`."""


class LayerWriter(Struct, frozen=True):
    """What one child adds to the residual stream. Of several tokens `size` is that of all their streams together."""

    kind: WriterKind
    name: str
    adds: mx.array
    """Float32, shape (1, size)."""
    heads: mx.array | None = None
    """Each head's share, shape (heads, size); None where they can't be told apart, or were not asked for."""
    rest: mx.array | None = None
    """What is added without any head, shape (1, size)."""


class LayerSplit(Struct, frozen=True):
    """A layer's writers, and what it does to the stream itself: its output is the stream, this, and what they add."""

    writers: tuple[LayerWriter, ...]
    residual: mx.array
    """Float32, shape (1, size); zeros in most models."""


class _Rows(Struct, frozen=True):
    """A writer's call, and which rows of the batch it has for itself."""

    part: PartRun
    alone: mx.array
    """What it returned, and where its heads can be told apart what each makes it return, and what comes without any."""


def split_layer(
    layer: Any, run: LayerRun, written: Sequence[PartRun], bound: float, heads: bool = True
) -> LayerSplit | None:
    """Take a layer's output apart.

    Args:
        layer: The module.
        run: Its call.
        written: The calls of its children, in their order.
        bound: Of the relative error of the sum.
        heads: Whether the heads of its attention are told apart.

    Returns:
        None where its writers can't be told apart.
    """
    writers = [
        _Rows(part, mx.concatenate([hidden(part.result).astype(mx.float32), *told]))
        for part in _writing(run, written)
        for told in [heads_of(part, bound) if heads else []]
    ]
    if not writers:
        return None
    try:
        after = _replay(layer, run, writers)
    except Exception:  # a family's own code, given frozen parts and more rows, may fail in any way
        return None
    full, none, rows = after[:1], after[1:2], after[2:] - after[1:2]
    split = LayerSplit(tuple(_writers(writers, rows, bound)), none - stream(run.given))
    summed = none + sum(writer.adds for writer in split.writers)
    whole = stream(run.state)
    return split if _apart(whole, whole, full, summed) <= bound else None


def _writing(run: LayerRun, written: Sequence[PartRun]) -> list[PartRun]:
    """The children whose results reach the stream: neither norms, nor what another's result goes through, as a gain."""
    found: list[PartRun] = []
    for part in written:
        through = part.args and any(part.args[0] is hidden(other.result) for other in found)
        norm = role_of(part.module, part.name) == "norm"
        if not (through or norm) and hidden(part.result).shape == run.state.shape:
            found.append(part)
    return found


def _replay(layer: Any, run: LayerRun, writers: Sequence[_Rows]) -> mx.array:
    """The layer's output for all writers, for none, and for each row of each writer alone; shape (rows, size)."""
    alone = [writer.alone for writer in writers]
    count = 2 + sum(rows.shape[0] for rows in alone)
    returned = []
    for number, rows in enumerate(alone):
        pieces = [rows if other == number else mx.zeros_like(alone[other]) for other in range(len(alone))]
        returned.append(mx.concatenate([rows[:1], mx.zeros_like(rows[:1]), *pieces]))
    left = list(zip(writers, returned, strict=True))

    def freeze(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        writer, rows = left.pop(0)
        if writer.part.module is not module:
            raise RuntimeError("the layer called its parts in another order")
        return with_hidden(writer.part.result, rows)

    given = mx.broadcast_to(run.given.astype(mx.float32), (count, *run.given.shape[1:]))
    args, kwargs = with_given(run, given)
    with held_norms(count, *calls([writer.part.module for writer in writers], freeze)):
        after = hidden(layer(*args, **kwargs)).astype(mx.float32).reshape(count, -1)
    if left:
        raise RuntimeError("the layer did not call all its parts")
    mx.eval(after)
    return after


def with_given(run: LayerRun, given: mx.array) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a layer's call with another residual stream."""
    if run.args:
        return (given, *run.args[1:]), run.kwargs
    return (), {**run.kwargs, next(iter(run.kwargs)): given}


def _writers(writers: Sequence[_Rows], rows: mx.array, bound: float) -> Iterator[LayerWriter]:
    begin = 0
    for writer in writers:
        end = begin + writer.alone.shape[0]
        adds, heads, rest = rows[begin : begin + 1], rows[begin + 1 : end - 1], rows[end - 1 : end]
        begin = end
        part, summed = writer.part, heads.sum(axis=0, keepdims=True) + rest
        kind = "attention" if part.attention else KINDS.get(role_of(part.module, part.name), "other")
        # of many heads each adds little: what they add together is rounded to its own last bits
        if heads.size and _apart(mx.concatenate([adds, heads, rest]), adds, summed) <= bound:
            yield LayerWriter(kind, part.name, adds, heads, rest)
        else:
            yield LayerWriter(kind, part.name, adds)


def heads_of(part: PartRun, bound: float) -> list[mx.array]:
    """What each head makes an attention module return.

    The module runs again with its heads' outputs frozen: all of them, each alone, and none. Projections, gates and
    norms after the heads are its own.

    Args:
        part: The module's call.
        bound: Of the relative error of their sum.

    Returns:
        Float32, shape (heads, tokens, size), and what comes without any head, (1, tokens, size). Nothing where the
        heads can't be told apart.
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
        wrong = _apart(rows, hidden(part.result), rows[:1], summed)
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


def _apart(scale: mx.array, truth: mx.array, *others: mx.array) -> float:
    """The largest difference of some arrays from another, as a share of the largest number of `scale`."""
    largest = mx.maximum(mx.abs(scale).max(), 1e-9)
    wrong = mx.concatenate([mx.abs(truth - other).reshape(-1) for other in others])
    error = float(np.array(wrong.max() / largest))
    return error if np.isfinite(error) else float("inf")
