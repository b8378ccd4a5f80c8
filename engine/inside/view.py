"""The steps that all views of the model's inside share: run tokens again on copies of the cache, and check the result.

A view runs tokens of the tree again and compares what it computed with what the model computes. Its record contains
these checks; the screen shows no view with a failed check.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from engine.errors import StepError
from engine.inside.taps import Edits, Taps
from engine.model.forward import Runner, precision
from engine.model.layers import Patch, decoder_layers, layers_in_words
from engine.protocol import CaptureFacts, Check, CheckName, Floats
from engine.sampling.ranking import LN2, Row, sum_of_products
from engine.session.session import Session, run_at
from engine.task import Stopped, never, poll
from engine.tree import ROOT, Chunks, chunk_end

# ---- checks ------------------------------------------------------------------------------------

FLOAT32, LESS = 1e-5, 1e-2
"""Bounds of relative errors for models that compute in float32, and in fewer bits.

Measured on 101 tiny random models and on the bundled one: 1.4e-6 at most in float32, 8e-3 in bfloat16.
"""
DEPTH = 8
"""Number of layers of the deepest of these models."""
QUANTIZED = 4e-2
"""Bound with a quantized cache: mlx rounds the softmax within its quantized attention."""


class ErrorBounds(NamedTuple):
    """Largest relative errors that rounding explains."""

    own: float
    """Bound of a number that is computed in another way than the model's own."""
    again: float
    """Bound of logits that are computed again, in another chunk or after other chunks."""
    twice: float
    """Bound of the difference of two whole forward passes, both of them rounded."""


def bounds(session: Session) -> ErrorBounds:
    """The bounds for a session's model and its cache as it is now.

    With more than `DEPTH` layers, the bounds of a whole forward pass grow: each layer rounds again, and the sum of
    independent errors grows with the square root of their number. Measured on random layers of 64 heads in bfloat16,
    with sums in another order: 0.9e-2 at 8 layers, 1.1e-2 at 24, 1.7e-2 at 94.
    """
    own = FLOAT32 if precision(session.facts.dtype) == "float32" else LESS
    if session.kv.rounded:
        own = QUANTIZED
    deeper = max(1.0, math.sqrt(session.facts.layers / DEPTH))
    return ErrorBounds(own, max(10 * FLOAT32, 2 * own) * deeper, 2 * own * deeper)


def finite(value: float) -> float:
    """An error of a check: infinite if it is not a number."""
    return float(value) if np.isfinite(value) else float("inf")


def layer_check(name: CheckName, error: float, bound: float, layer: int) -> Check:
    """A check whose largest error is in one layer, counted from 0."""
    return Check(name, finite(error), bound, f"layer {layer + 1}")


def largest_difference(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float:
    """The largest difference of two arrays of logits; infinite if one is not a number.

    Two logits of -inf differ by 0: phi3small has them for tokens that it never predicts.
    """
    differ = first != second
    return finite(np.abs(first[differ] - second[differ]).max(initial=0.0))


def relative_error(
    row: npt.NDArray[Any], truth: npt.NDArray[Any], scale: npt.NDArray[Any] | None = None
) -> float:
    """The largest difference of two rows of logits, as a share of the largest logit of `scale`, by default `truth`."""
    scale = truth if scale is None else scale
    largest = float(np.abs(scale[np.isfinite(scale)]).max(initial=1e-9))
    return largest_difference(row, truth) / largest


def kl_bits(own: Row, changed: Row) -> float:
    """KL divergence of a changed distribution from the model's own, both as log-probabilities, in bits."""
    live = own > -np.inf
    wide, other = own[live].astype(np.float64), changed[live].astype(np.float64)
    return max(0.0, sum_of_products(np.exp(wide), wide - other) / LN2)


# ---- refusals, and parts of records ------------------------------------------------------------


def refusal(what: str, hint: str, session: Session, why: str) -> StepError:
    """The error of a view that an architecture doesn't allow.

    Args:
        what: Sentence without its end; `{}` stands for the architecture.
        hint: What the user can do instead.
        session: Session of the model.
        why: Reason, in words.
    """
    return StepError(f"{what.format(session.facts.family)}: {why}.", hint)


def failed_check(check: Check, family: str) -> StepError:
    return StepError(
        f"The check `{check.name}` of this view failed for the architecture {family}: "
        f"off by {check.error:.2g} where {check.bound:.2g} is allowed{f' ({check.where})' if check.where else ''}.",
        "A view that fails its check is not shown. Others may still work.",
    )


def check_layer(model: Any, layer: int) -> None:
    """Refuse a layer, counted from 0, that the model doesn't have."""
    depth = len(decoder_layers(model))
    if not 0 <= layer < depth:
        raise StepError(
            f"There is no L{layer + 1}: this model has {depth} layers.", f"Choose L1 to L{depth}."
        )


def check_tokens(session: Session, *ids: int | None) -> None:
    """Refuse token ids that the model has no embedding for; None stands for no token."""
    session.tokens.check([id for id in ids if id is not None])


def check_predictable(logits: npt.NDArray[Any]) -> None:
    """Refuse tokens that the model never predicts."""
    if not np.isfinite(logits).all():
        raise StepError("The model bars that token: its logit is minus infinity.", "Choose another token.")


def layer_notes(*notes: tuple[Sequence[int], str]) -> tuple[str, ...]:
    """Sentences about layers, counted from 1; notes without layers are left out."""
    return tuple(f"{layers_in_words(layers)}{text}" for layers, text in notes if layers)


def token_text(session: Session, id: int) -> str:
    return session.tokens.text(id, b"")[0]


def packed(numbers: npt.NDArray[Any], bits: int = 32) -> Floats:
    """An array as numbers of a record, of 16 or 32 bits."""
    return Floats(numbers.shape, numbers.astype(f"<f{bits // 8}").tobytes(), bits)


def facts_of(
    session: Session, begun: float, step_ms: float, checks: Iterable[Check], note: str = ""
) -> CaptureFacts:
    """The facts that come with a view.

    Args:
        session: Session of the model.
        begun: `time.perf_counter()` when the view began.
        step_ms: Time of a plain forward pass, in milliseconds.
        checks: Checks of the view, in the order in which they are shown.
        note: Why tokens ran again or were left out.
    """
    ms = (time.perf_counter() - begun) * 1000
    return CaptureFacts(tuple(checks), ms, step_ms, session.facts.family, note, session.title)


def combined_facts(facts: Sequence[CaptureFacts]) -> CaptureFacts:
    """The facts of several views together: the worst of each check, and the time of all."""
    worst: dict[str, Check] = {}
    for check in (check for each in facts for check in each.checks):
        worst[check.name] = max(worst.get(check.name, check), check, key=lambda one: one.error - one.bound)
    return replace(facts[0], checks=tuple(worst.values()), ms=sum(each.ms for each in facts))


# ---- tokens of the tree, run again -------------------------------------------------------------

REFUSED = "views of the inside are"
SHORTER = (
    "Tokens that this cache took in as a chunk can't be run again one by one with the same numbers: left out."
)


def runner_before(session: Session, node: int, stopped: Stopped = never) -> tuple[Runner, int, str]:
    """A separate runner whose cache contains the path up to a node, without the node's token.

    Returns:
        The runner, the number of tokens of the path that were recomputed, and why; empty if none was.
    """
    session.interventions.refuse(node, REFUSED)
    parent = session.tree[node].parent
    if parent == ROOT:
        return session.runner.fresh(), 0, ""
    detached = run_at(session, parent, stopped)
    runner = detached.runner.copy() if detached.runner is session.runner else detached.runner
    why = f" ({detached.why})" if detached.why else ""
    if not detached.recomputed:
        return runner, 0, ""
    tokens = "1 token" if detached.recomputed == 1 else f"{detached.recomputed:,} tokens"
    return runner, detached.recomputed, f"{tokens} recomputed{why}."


def logits_after(runner: Runner, token: int) -> Row:
    """The logits after one more token, which is added to the runner's cache."""
    row: Row = np.array(runner.forward_logits([token])[0])
    return row


def plain_step(runner: Runner, token: int) -> tuple[Row, float]:
    """The model's own logits after one more token, on a copy of the cache, and the milliseconds that they took."""
    begun = time.perf_counter()
    row = logits_after(runner.copy(), token)
    return row, (time.perf_counter() - begun) * 1000


def pieces_as_run(chunks: Chunks, depth: int, ids: list[int]) -> list[list[int]]:
    """The last tokens of a path, in the chunks in which the session ran them."""
    begin, pieces = depth - len(ids), []
    while begin < depth:
        end = max(chunk_end(chunks, begin), begin + 1)
        pieces.append(ids[begin - depth : end - depth or None])
        begin = end
    return pieces


class Capture(Struct):
    """The last tokens of a path, run once plainly and once under taps."""

    session: Session
    begun: float
    """`time.perf_counter()` before the runs."""
    node: int
    nodes: list[int]
    """Nodes of the tokens that ran."""
    depth: int
    """Number of tokens of the path."""
    taps: list[Taps]
    """Taps of each forward pass: of all tokens, or of fewer if such a chunk would change the numbers."""
    logits: mx.array
    """Logits after each token, float32, shape (tokens, vocabulary), evaluated."""
    plain: mx.array
    """The same logits without taps."""
    bound: float
    """Bound of relative errors in the dtype that the model computes in."""
    again: float
    """Bound of the error of logits that were computed again."""
    step_ms: float
    """Time of the plain forward pass in milliseconds."""
    tokens_run: int
    """Number of tokens that went through the model."""
    note: str
    session_error: float | None = None
    """Relative error of the plain forward pass against the logits that the session computed; None if it dropped
    them."""

    def facts(self, *checks: Check) -> CaptureFacts:
        """The facts of a view of this capture, with its checks besides those of the forward pass."""
        changed = largest_difference(np.array(self.logits), np.array(self.plain))  # changed by the taps
        found = [Check("forward", changed, 0.0), *checks]
        if (error := self.session_error) is not None:  # the session may have run other chunks
            where = "cut into other chunks than before" if error > self.again else ""
            found.insert(1, Check("session", error, self.again, where))
        return facts_of(self.session, self.begun, self.step_ms, found, self.note)


def capture(
    session: Session,
    node: int,
    *,
    tokens: int = 1,
    attention: bool = False,
    parts: bool = False,
    streams: bool = True,
    edits: Edits | None = None,
    also: Sequence[Patch] = (),
    stopped: Stopped = never,
) -> Capture:
    """Run the last tokens of the path to a node again; the session doesn't change.

    Args:
        session: A session that has read a prompt.
        node: Node of the last token.
        tokens: Number of tokens to run under taps; fewer if the path is shorter. If chunks change the numbers, only
            tokens that the session ran one by one, at least one.
        attention: True to compute attention weights.
        parts: True to record the layers' children.
        streams: True to record the streams that the layers are given and return.
        edits: Changes to the tapped forward pass.
        also: Further patches, set with the taps.
        stopped: Polled before each chunk and forward pass.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    session.check_node(node)
    # `runner_before` only checks the first token that runs
    session.interventions.refuse(node, REFUSED)
    depth, chunks = session.tree[node].depth, session.tree.chunks(node)
    stepped = depth - (chunks[-1][1] if chunks else 0)
    shorter = session.kv.chunks_matter and max(1, stepped) < min(tokens, depth)
    path = session.tree.nodes(node)[-max(1, stepped) if shorter else -tokens :]
    ids = [session.tree[each].token for each in path]
    runner, run, note = runner_before(session, path[0], stopped)
    if shorter:
        note = f"{note} {SHORTER}" if note else SHORTER
    pieces = [[token] for token in ids] if runner.kv.chunks_matter else [ids]
    run += 2 * len(ids)
    plain, _, step_ms = _run(runner.copy(), pieces, stopped)
    bound, again, _ = bounds(session)
    before = session.row_at(node)
    error = None if before is None else relative_error(np.array(plain[-1]), before)
    if before is not None and error is not None and error > again and pieces == [ids]:
        # plamo3's chunks see more than its ring holds
        pieces = pieces_as_run(chunks, depth, ids)
        run += len(ids)
        plain, _, step_ms = _run(runner.copy(), pieces, stopped)
        error = relative_error(np.array(plain[-1]), before)
    tapped = partial(
        Taps, runner.model, attention=attention, parts=parts, edits=edits, also=also, streams=streams
    )
    logits, taps, _ = _run(runner, pieces, stopped, tapped)
    return Capture(
        session, begun, node, path, depth, taps, logits, plain, bound, again, step_ms, run, note, error
    )


def _run(
    runner: Runner, pieces: list[list[int]], stopped: Stopped, tapped: Callable[..., Taps] | None = None
) -> tuple[mx.array, list[Taps], float]:
    """Run tokens, each piece under its own taps if these are wanted.

    Returns:
        The logits, the taps, and the time in milliseconds.
    """
    begun = time.perf_counter()
    rows: list[mx.array] = []
    taps: list[Taps] = []
    for piece in pieces:
        poll(stopped)
        if tapped is None:
            rows.append(runner.forward_logits(piece))
            continue
        taps.append(tapped(caches=runner.kv.caches))
        with taps[-1].set():
            rows.append(runner.forward_logits(piece))
    return mx.concatenate(rows, axis=0), taps, (time.perf_counter() - begun) * 1000
