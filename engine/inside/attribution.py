"""Direct logit attribution: what the embedding, each attention, head and MLP add to the logit of a token.

The model's end is made linear at the token's residual stream (its norm's scale held, a softcap left out); its
derivative for a token is then a vector whose dot product with what a writer adds is the writer's share of the logit.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from engine.errors import Cancelled, StepError
from engine.inside.capture import Capture, capture, tail
from engine.inside.split import LayerSplit, LayerWriter, held_norms, split_layer, stream
from engine.inside.taps import LayerRun, Taps
from engine.model.layers import decoder_layers, layers_in_words
from engine.protocol import AttributedToken, AttributionRead, Check, Contribution, Floats, WriterKind
from engine.sampling.ranking import Row, absolute_difference, checked_logprobs, rank_of
from engine.session.session import Session
from engine.task import Stopped, never

Numbers = npt.NDArray[np.float64]


def attribute(
    session: Session, node: int, tokens: Sequence[int], stopped: Stopped = never
) -> AttributionRead:
    """Run a token again and take the logit of one token after it, or the difference of two, apart.

    Args:
        session: Has read a prompt; not changed.
        node: The token after which they are predicted.
        tokens: One id, or two different ones.
        stopped: Polled before each chunk, forward and layer.

    Raises:
        StepError: There is no such node, or it is the root; there are not one or two tokens; a logit is not a number;
            the model does not hand one residual stream from layer to layer.
        PromptError: The model has no embedding for a token.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    _check_tokens(session, tokens)
    taken = capture(session, node, parts=True, stopped=stopped)
    model, taps = session.runner.model, taken.taps[0]
    layers, runs = decoder_layers(model), _runs(session, taps)
    row = np.array(taken.logits[0])
    asked = checked_logprobs(row)[list(tokens)]
    if not np.isfinite(asked).all():
        raise StepError("The model bars that token: its logit is minus infinity.", "Choose another token.")
    try:
        end = linear_end(model, runs[-1].state, taps.layers, tokens, row.size)
    except (
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:  # what MLX and a family's code raise for other rows
        raise _refused(session, "its end can't be run without its layers") from error
    splits: list[LayerSplit | None] = []
    parts = [_contribution("embedding", None, "", end.share(stream(runs[0].given)))]
    for index, run in enumerate(runs):
        if stopped():
            raise Cancelled
        written = [part for part in taps.written if part.layer == index]
        splits.append(split_layer(layers[index], run, written, taken.bound))
        parts += _of_layer(index, run, splits[-1], end)
    parts.append(_contribution("constant", None, "", end.constant))
    found = tuple(
        AttributedToken(
            id,
            session.tokens.text(id, b"")[0],
            math.exp(logprob),
            rank_of(row, id),
            float(row[id]),
            reached,
        )
        for id, logprob, reached in zip(tokens, asked, end.row[list(tokens)].tolist(), strict=True)
    )
    checks = _checks(taken, end, row, found, parts)
    facts = taken.facts(begun, session, *checks)
    return AttributionRead(node, found, tuple(parts), len(runs), end.softcap, _notes(splits), facts)


def _check_tokens(session: Session, tokens: Sequence[int]) -> None:
    if len(set(tokens)) != len(tokens) or len(tokens) not in (1, 2):
        raise StepError("Attribution is of one token, or of two different ones.", "Choose another token.")
    session.tokens.check(tokens)


def _runs(session: Session, taps: Taps) -> list[LayerRun]:
    """The calls of the layers in their order.

    Raises:
        StepError: Not every layer was called, or what they hand on is not one stream.
    """
    runs = [taps.layers[index] for index in sorted(taps.layers)]
    depth = len(decoder_layers(session.runner.model))
    calls = Counter((part.layer, part.name) for part in taps.written)
    if len(runs) != depth or min(calls.values(), default=1) > 1:
        raise _refused(session, "it does not go through its layers once, one after another")
    if any(run.state.size != run.state.shape[-1] for run in runs):
        raise _refused(session, "its layers hand on several streams")
    return runs


def _refused(session: Session, why: str) -> StepError:
    return StepError(
        f"A logit of the architecture {session.facts.family} can't be taken apart: {why}.",
        "Switch parts off instead to see what they do.",
    )


# ---- the end of the model ---------------------------------------------------------------------


class LinearEnd(Struct, frozen=True):
    """What a model does after its last layer, made linear at one residual stream."""

    weights: Numbers
    """For each token the derivative of its logit, shape (tokens, size)."""
    constant: Numbers
    """Each token's logit of a stream of zeros."""
    row: Row
    """The logits before a softcap."""
    capped: Row
    """After it; the same without one."""
    softcap: bool

    def share(self, adds: mx.array) -> Numbers:
        """What streams add to the logits, in float64.

        Args:
            adds: Float32, shape (rows, size).

        Returns:
            Shape (rows, tokens); for one row, (tokens,).
        """
        shares: Numbers = np.array(adds).astype(np.float64) @ self.weights.T
        return shares[0] if len(shares) == 1 else shares


def linear_end(
    model: Any, state: mx.array, layers: dict[int, LayerRun], tokens: Sequence[int], size: int
) -> LinearEnd:
    """Make a model's end linear at the residual stream after the last layer.

    The stream is float32 up to the final norm, whose result has the model's dtype again: a float32 copy of the head
    would take twice its bytes.

    Args:
        model: As mlx_lm loads it.
        state: What the last layer returned for one token.
        layers: Of the forward.
        tokens: Whose logits are wanted.
        size: Of a row of logits.
    """
    capped = False

    def identity(x: mx.array, *_: Any, **__: Any) -> mx.array:
        nonlocal capped
        capped = True
        return x

    def logits(at: mx.array) -> mx.array:
        return tail(model, mx.concatenate([at, mx.zeros_like(at[:1])]), layers)

    here = mx.repeat(stream(state), len(tokens), axis=0)  # a row for the derivative of each token
    one = mx.zeros((len(tokens) + 1, size))
    one[mx.arange(len(tokens)), mx.array(list(tokens))] = 1.0
    with held_norms(len(tokens) + 1, (mx, "tanh", identity), dtype=state.dtype):
        (rows,), (weights,) = mx.vjp(logits, [here], [one])
        mx.eval(rows, weights)
    row, none = np.array(rows[0]), np.array(rows[-1])
    after = np.array(tail(model, stream(state).astype(state.dtype), layers)[0]) if capped else row
    constant = none[list(tokens)].astype(np.float64)
    return LinearEnd(np.array(weights).astype(np.float64), constant, row, after, capped)


# ---- the parts --------------------------------------------------------------------------------


def _of_layer(index: int, run: LayerRun, split: LayerSplit | None, end: LinearEnd) -> Iterator[Contribution]:
    if split is None:
        yield _contribution("layer", index, "", end.share(stream(run.state) - stream(run.given)))
        return
    if np.array(split.residual).any():
        yield _contribution("residual", index, "", end.share(split.residual))
    for writer in split.writers:
        yield _of_writer(index, writer, end)


def _of_writer(index: int, writer: LayerWriter, end: LinearEnd) -> Contribution:
    adds = end.share(writer.adds)
    if writer.heads is None or writer.rest is None:
        return _contribution(writer.kind, index, writer.name, adds)
    heads = end.share(mx.concatenate([writer.heads, writer.rest]))
    packed, rest = heads[:-1].astype("<f4"), heads[-1]
    floats = Floats(packed.shape, packed.tobytes())
    return Contribution(writer.kind, index, writer.name, tuple(adds.tolist()), floats, tuple(rest.tolist()))


def _contribution(kind: WriterKind, layer: int | None, name: str, logits: Numbers) -> Contribution:
    return Contribution(kind, layer, name, tuple(logits.tolist()))


def _checks(
    taken: Capture, end: LinearEnd, row: Row, found: Sequence[AttributedToken], parts: Sequence[Contribution]
) -> tuple[Check, Check]:
    """The checks that the linear end gives the model's logits, and that the parts sum to them."""
    sums = np.sum([part.logits for part in parts], axis=0)
    reached = np.array([token.reached for token in found])
    return (
        Check("lens", _relative(end.capped, row, row), taken.bound, "the last layer"),
        Check("parts", _relative(sums, reached, end.row), taken.bound),
    )


def _relative(one: npt.NDArray[Any], other: npt.NDArray[Any], row: Row) -> float:
    """The largest difference as a share of the largest logit of a row."""
    largest = float(np.abs(row[np.isfinite(row)]).max(initial=1e-9))
    error = float(absolute_difference(one, other).max()) / largest
    return error if np.isfinite(error) else float("inf")


def _notes(splits: Sequence[LayerSplit | None]) -> tuple[str, ...]:
    """What could not be split, layers counted from 1."""
    whole = [index for index, split in enumerate(splits) if split is None]
    fused = [
        index
        for index, split in enumerate(splits)
        for writer in (split.writers if split is not None else ())
        if writer.kind == "attention" and writer.heads is None
    ]
    return (
        *(
            [f"{layers_in_words(whole)}: attention and MLP can't be told apart here, a layer is one bar."]
            if whole
            else []
        ),
        *(
            [f"{layers_in_words(fused)}: the heads can't be told apart here, the attention is one bar."]
            if fused
            else []
        ),
    )
