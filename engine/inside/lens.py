"""The logit lens, and direct logit attribution: the residual stream through the model's own final norm and head.

The lens (nostalgebraist 2020) reads the stream after each layer. Attribution makes the model's end linear at the
token's stream, with the norm's scale held and without a softcap: the derivative of a token's logit is then a vector,
and its dot product with what a writer adds is the writer's share of the logit.

What a layer adds to the stream of one or more tokens is split into what its attention, MLP and heads add. The layer
runs again with the results of its children frozen: once with all of them, once with none, once with each alone, as rows
of one batch. So the model's own code decides where a child's result goes, through which norm and which multiplier. If
the rows don't sum to what the layer returned, there is no split.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from engine.errors import EngineError, StepError
from engine.inside import view
from engine.inside.taps import LayerRun, PartRun, Taps, with_stream
from engine.model.layers import (
    Patch,
    after_layers,
    calls,
    decoder_layers,
    hidden,
    patched,
    role_of,
    with_hidden,
)
from engine.protocol import (
    Attribute,
    AttributedToken,
    AttributionRead,
    Check,
    Contribution,
    LensCell,
    LensColumn,
    LensRead,
    LensToken,
    ReadLens,
    Record,
    WriterKind,
)
from engine.sampling.ranking import LN2, Row, checked_logprobs, rank_of, ranked
from engine.session.session import Session
from engine.task import Stopped, never, poll

Numbers = npt.NDArray[np.float64]

# ---- norms with held scales ---------------------------------------------------------------------
# With its scale held, a norm is linear, and contributions can go through it. Several rows go through at once; the first
# is what the model itself computes, and its scale applies to all rows.


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
        x = wide * mx.stop_gradient(mx.rsqrt(first + eps))  # constant for derivatives
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
    """Run compiled functions uncompiled: a compiled one would ignore the patches, or keep them for good if it is traced
    while they are set."""
    if mx.default_device() == mx.Device(mx.cpu) or "MLX_DISABLE_COMPILE" in os.environ:
        yield  # nothing is compiled; for the CPU see `engine.model.load`
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
    """One term of a layer's output: what a child adds to the stream, or what the layer changes without its children,
    `residual`.

    For several tokens, `size` is the size of all their streams together.
    """

    kind: WriterKind
    name: str
    adds: mx.array
    """Float32, shape (1, size)."""
    heads: mx.array | None = None
    """Share of each head, shape (heads, size); None if the heads can't be told apart, or weren't asked for."""
    rest: mx.array | None = None
    """Output without any head, shape (1, size)."""


def split_layer(
    layer: Any, run: LayerRun, written: Sequence[PartRun], bound: float, heads: bool = True
) -> list[LayerWriter] | None:
    """Split a layer's output into the stream before it and what each writer adds to it.

    Args:
        layer: The module.
        run: Its call.
        written: The calls of its children, in their order.
        bound: Bound of the relative error of the sum.
        heads: True to split its attention into heads.

    Returns:
        The writers; the first is what the layer changes without any of its children, zeros in most models. None if they
        can't be told apart.
    """
    parts = _writing(run, written)
    # for each part its result; then each head's and the rest, if its heads can be told apart
    batches = [
        mx.concatenate([hidden(part.result).astype(mx.float32), *(heads_of(part, bound) if heads else [])])
        for part in parts
    ]
    if not parts:
        return None
    try:
        after = _replay(layer, run, parts, batches)
    except Exception:  # a family's own code, given frozen parts and more rows, may fail in any way
        return None
    full, none, rows = after[:1], after[1:2], after[2:] - after[1:2]
    writers, returned = list(_writers(parts, batches, rows, bound)), stream(run.state)
    if _error(returned, returned, full, none + sum(writer.adds for writer in writers)) > bound:
        return None
    return [LayerWriter("residual", "", none - stream(run.given)), *writers]


def _writing(run: LayerRun, written: Sequence[PartRun]) -> list[PartRun]:
    """The children whose results reach the stream: not norms, and not modules that only pass on another's result, such
    as a gain."""
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
        # each of many heads adds little: the rounding depends on the size of their sum
        if heads.size and _error(mx.concatenate([adds, heads, rest]), adds, summed) <= bound:
            yield LayerWriter(kind, part.name, adds, heads, rest)
        else:
            yield LayerWriter(kind, part.name, adds)


def heads_of(part: PartRun, bound: float) -> list[mx.array]:
    """The result of an attention module with each head alone.

    The module runs again with its heads' outputs frozen: all of them, each alone, and none. Its own code computes the
    projections, gates and norms after the heads.

    Args:
        part: The module's call.
        bound: Bound of the relative error of their sum.

    Returns:
        Float32, shape (heads, tokens, size), and the result without any head, (1, tokens, size). An empty list if the
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
        wrong = _error(rows, hidden(part.result), rows[:1], summed)
    except Exception:  # as in `split_layer`; some also fail without a cache
        return []
    return [heads, rest] if wrong <= bound else []


def for_rows(value: Any, rows: int) -> Any:
    """A module's argument for several rows: hidden states are repeated, and a cache becomes None, since nothing may be
    written to it."""
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
    """The largest difference of `others` from `truth`, as a share of the largest number of `scale`."""
    largest = mx.maximum(mx.abs(scale).max(), 1e-9)
    wrong = mx.concatenate([mx.abs(truth - other).reshape(-1) for other in others])
    return view.finite(float(np.array(wrong.max() / largest)))


# ---- the model's end ---------------------------------------------------------------------------


def final_logits(model: Any, states: mx.array, layers: Mapping[int, LayerRun]) -> mx.array:
    """The logits that the model's own code computes after its last layer.

    Args:
        model: The model as mlx_lm loads it.
        states: Residual streams, shape (..., rows, size); gemma3n has several streams, on an axis before the rows.
        layers: Layers of a forward pass, for what they returned besides the stream.

    Returns:
        Float32, shape (rows, vocabulary), lazy.
    """
    returned = {index: run.result for index, run in layers.items()}
    return after_layers(model, states[..., None, :], returned)[:, -1, :].astype(mx.float32)


# ---- the logit lens ----------------------------------------------------------------------------

ROWS = 64
"""Number of residual streams that go through the head at once: a row of 150,000 logits has 0.6 MB."""


def read_lens(session: Session, command: ReadLens, stopped: Stopped = never) -> Iterator[Record]:
    """Run the last tokens of a path again and read every layer through the model's end.

    Raises:
        StepError: There is no such node, or it is the root; the model's logits are not numbers.
        PromptError: The model has no embedding for a followed token.
        Cancelled: `stopped` returned True.
    """
    session.tokens.check(list(command.followed))
    captured = view.capture(session, command.node, tokens=max(1, command.positions), stopped=stopped)

    def result(columns: Sequence[LensColumn], error: float, where: str) -> LensRead:
        facts = captured.facts(Check("lens", error, captured.bound, where))
        return LensRead(command.node, tuple(columns), command.followed, facts)

    layers = captured.taps[0].layers
    if not layers:
        yield result((), math.inf, "its layers are not called, their parts are")
        return
    states = residual_streams(captured)
    columns, worst = [], 0.0
    for place, node in enumerate(captured.nodes):
        rows: list[Row] = []
        try:
            for first in range(0, states.shape[-3], ROWS):
                poll(stopped)
                batch = states[..., first : first + ROWS, place, :]
                rows += list(np.array(final_logits(session.runner.model, batch, layers)))
        except EngineError:
            raise
        except Exception:  # this family's code after its layers doesn't accept these rows
            yield result((), math.inf, "its end needs more than the residual stream")
            return
        truth = np.array(captured.logits[place])
        worst = max(worst, view.relative_error(rows[-1], truth))
        columns.append(
            LensColumn(node, tuple(_cell(session, row, int(truth.argmax()), command) for row in rows))
        )
    yield result(columns, worst, "the last layer")


def residual_streams(captured: view.Capture) -> mx.array:
    """The residual stream before the first layer and after each.

    Returns:
        Shape (layers + 1, tokens, size); with an axis before them if there are several streams.
    """
    streams = []
    for taps in captured.taps:
        states = [taps.layers[index].state for index in sorted(taps.layers)]
        assert taps.embedded is not None
        streams.append(mx.concatenate([taps.embedded, *states], axis=-3))
    return mx.concatenate(streams, axis=-2)


def _cell(session: Session, row: Row, final: int, command: ReadLens) -> LensCell:
    logprobs = checked_logprobs(row)
    probs = np.exp(logprobs.astype(np.float64))
    some = probs > 0
    top = map(int, ranked(row, command.top))
    return LensCell(
        tuple(LensToken(id, view.token_text(session, id), float(probs[id])) for id in top),
        float(-(probs[some] * logprobs[some]).sum() / LN2),
        rank_of(row, final),
        tuple(float(probs[id]) for id in command.followed),
        tuple(rank_of(row, id) for id in command.followed),
    )


# ---- direct logit attribution ------------------------------------------------------------------

_refused = partial(
    view.refusal,
    "A logit of the architecture {} can't be taken apart",
    "Switch parts off instead to see what they do.",
)


def attribute(session: Session, command: Attribute, stopped: Stopped = never) -> Iterator[Record]:
    """Run a token again and decompose the logit of a token after it, or the difference of two.

    Raises:
        StepError: There is no such node, or it is the root; there are not one or two tokens; a logit is not a number;
            the model does not pass one residual stream from layer to layer.
        PromptError: The model has no embedding for a token.
        Cancelled: `stopped` returned True.
    """
    ids = list(command.tokens)
    if len(set(ids)) != len(ids) or len(ids) not in (1, 2):
        raise StepError("Attribution is of one token, or of two different ones.", "Choose another token.")
    session.tokens.check(ids)
    captured = view.capture(session, command.node, parts=True, stopped=stopped)
    model, taps = session.runner.model, captured.taps[0]
    layers, runs = decoder_layers(model), _runs(session, taps)
    row = np.array(captured.logits[0])
    logprobs = checked_logprobs(row)[ids]
    view.check_predictable(logprobs)
    try:
        weights, constant, uncapped, capped = linear_end(model, runs[-1].state, taps.layers, ids, row.size)
    except (RuntimeError, TypeError, ValueError) as error:  # MLX's or the family's code fails with these rows
        raise _refused(session, "its end can't be run without its layers") from error

    def share(adds: mx.array) -> Numbers:
        """The share of each row in the tokens' logits, shape (rows, tokens)."""
        shares: Numbers = np.array(adds).astype(np.float64) @ weights.T
        return shares

    splits: list[list[LayerWriter] | None] = []
    parts = [_contribution("embedding", None, "", share(stream(runs[0].given))[0])]
    for index, run in enumerate(runs):
        poll(stopped)
        written = [part for part in taps.written if part.layer == index]
        splits.append(split_layer(layers[index], run, written, captured.bound))
        parts += _of_layer(index, run, splits[-1], share)
    parts.append(_contribution("constant", None, "", constant))
    reached = uncapped[ids]
    tokens = tuple(
        AttributedToken(
            id, view.token_text(session, id), math.exp(logprob), rank_of(row, id), float(row[id]), each
        )
        for id, logprob, each in zip(ids, logprobs, reached.tolist(), strict=True)
    )
    sums, end = np.sum([part.logits for part in parts], axis=0), uncapped if capped is None else capped
    facts = captured.facts(
        Check("lens", view.relative_error(end, row), captured.bound, "the last layer"),
        Check("parts", view.relative_error(sums, reached.astype(np.float64), uncapped), captured.bound),
    )
    yield AttributionRead(
        command.node, tokens, tuple(parts), len(runs), capped is not None, _notes(splits), facts
    )


def _runs(session: Session, taps: Taps) -> list[LayerRun]:
    """The calls of the layers in their order.

    Raises:
        StepError: Not every layer was called once, or the layers pass on more than one stream.
    """
    runs = [taps.layers[index] for index in sorted(taps.layers)]
    depth = len(decoder_layers(session.runner.model))
    calls = Counter((part.layer, part.name) for part in taps.written)
    if len(runs) != depth or min(calls.values(), default=1) > 1:
        raise _refused(session, "it does not go through its layers once, one after another")
    if any(run.state.size != run.state.shape[-1] for run in runs):
        raise _refused(session, "its layers hand on several streams")
    return runs


def linear_end(
    model: Any, state: mx.array, layers: dict[int, LayerRun], tokens: Sequence[int], size: int
) -> tuple[Numbers, Numbers, Row, Row | None]:
    """Make a model's end linear at the residual stream after the last layer.

    The stream is float32 up to the final norm, which returns the model's dtype: a float32 copy of the head would take
    twice its bytes.

    Args:
        model: The model as mlx_lm loads it.
        state: The last layer's result for one token.
        layers: Layers of the forward pass.
        tokens: Ids of the tokens whose logits are wanted.
        size: Number of logits in a row.

    Returns:
        The derivative of each token's logit, shape (tokens, size); the logit of each token for a stream of zeros; the
        logits before a softcap; and those after it, None without one.
    """
    capped = False

    def identity(x: mx.array, *_: Any, **__: Any) -> mx.array:
        nonlocal capped
        capped = True
        return x

    def logits(at: mx.array) -> mx.array:
        return final_logits(model, mx.concatenate([at, mx.zeros_like(at[:1])]), layers)

    here = mx.repeat(stream(state), len(tokens), axis=0)  # a row for the derivative of each token
    one = mx.zeros((len(tokens) + 1, size))
    one[mx.arange(len(tokens)), mx.array(list(tokens))] = 1.0
    with held_norms(len(tokens) + 1, (mx, "tanh", identity), dtype=state.dtype):
        (rows,), (weights,) = mx.vjp(logits, [here], [one])
        mx.eval(rows, weights)
    row, none = np.array(rows[0]), np.array(rows[-1])
    after = np.array(final_logits(model, stream(state).astype(state.dtype), layers)[0]) if capped else None
    return np.array(weights).astype(np.float64), none[list(tokens)].astype(np.float64), row, after


def _of_layer(
    index: int, run: LayerRun, split: list[LayerWriter] | None, share: Callable[[mx.array], Numbers]
) -> Iterator[Contribution]:
    for writer in split or [LayerWriter("layer", "", stream(run.state) - stream(run.given))]:
        if writer.kind == "residual" and not np.array(writer.adds).any():
            continue
        heads: tuple[Any, ...] = ()
        if writer.heads is not None and writer.rest is not None:
            shares = share(mx.concatenate([writer.heads, writer.rest]))
            heads = view.packed(shares[:-1]), tuple(shares[-1].tolist())
        yield _contribution(writer.kind, index, writer.name, share(writer.adds)[0], *heads)


def _contribution(
    kind: WriterKind, layer: int | None, name: str, logits: Numbers, *heads: Any
) -> Contribution:
    return Contribution(kind, layer, name, tuple(logits.tolist()), *heads)


def _notes(splits: Sequence[list[LayerWriter] | None]) -> tuple[str, ...]:
    """Sentences about the layers and attentions that could not be split."""
    unsplit = [index for index, split in enumerate(splits) if split is None]
    fused = [
        index
        for index, split in enumerate(splits)
        for writer in split or ()
        if writer.kind == "attention" and writer.heads is None
    ]
    return view.layer_notes(
        (unsplit, ": attention and MLP can't be told apart here, a layer is one bar."),
        (fused, ": the heads can't be told apart here, the attention is one bar."),
    )
