"""Gradients of a logit, or of the difference of two, with respect to the vectors of the context's tokens.

The token embedding is the embedding module that is called first with the tokens. Its call is replaced by rows of
vectors that are given; tied heads use `as_linear`, another method, and stay as they are. Every forward begins with
fresh caches: without any, gemma3n computes other logits. Rows of a batch don't see each other, so that one derivative
along ones gives each row its own gradient, and several points of a line go through the model at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from engine.errors import Cancelled, PromptError, StepError
from engine.inside.capture import (
    FLOAT32,
    as_run,
    bounds,
    relative_error,
    runner_before,
)
from engine.inside.split import uncompiled
from engine.memory import memory_available
from engine.model.forward import Runner, precision
from engine.model.layers import Patch, calls, kept, patched
from engine.protocol import (
    CaptureFacts,
    Check,
    Floats,
    GradientsRead,
    GradientToken,
    Measuring,
    ReadGradients,
)
from engine.sampling.ranking import Row, checked_logprobs
from engine.session.session import Session
from engine.session.texts import cut
from engine.task import Stopped, never

Numbers = npt.NDArray[np.float64]
Tried = list[tuple[int, float]]
"""Steps, and the residual with so many."""
MOST_STEPS = 512
"""On the line from baseline to text."""
MORE = 3
"""By how much more steps the line has, while the shares aren't complete: of three times as many midpoints a third are
those of before."""
ENOUGH, COMPLETE = 0.01, 0.05
"""Residuals up to which no more steps are taken, as a share of what the shares have to sum to, and up to which they are
shown. The bundled model has 0.1 % at 32 steps from three baselines, 1.3 % from zeros."""
CANCELS = 0.1
"""The sum of the shares may be next to 0 while each is large. Then the residual may be `COMPLETE` of this share of the
sum of their sizes."""
DERIVATIVE, DERIVATIVE_LESS = 1e-2, 5e-2
"""Bounds of finite differences, in float32 and where weights or activations are in fewer bits. Measured on 124 tiny
random models in float32: 8e-4 at most, 2.6e-4 with the best of all sizes."""
SIZES, NEAR = (1e-2, 1e-3, 3e-3, 3e-4, 3e-2), 1e-3
"""Of finite differences, as a share of a token's vector, in the order in which they are tried until one comes near:
large ones bend, or meet another choice of experts, and small ones round."""
NO_GRADIENT = 1e-6
"""Share of the largest gradient of a token below which another one counts as 0."""
SWAPS = 8
"""Tokens with no gradient in whose place another one is tried, at most."""
SWAP_BOUND = 1e-3
"""How far another token may move a logit where the gradient is 0, as a share of the largest logit."""
MOST_ROWS = 8
"""Rows of one forward: eight take two fifths of the time of eight forwards in the bundled model; more gain nothing."""
BATCH_BYTES, ROW_BYTES = 2**29, 2**32
"""Bytes of one forward with its derivative, by estimate: of several rows, and of one alone at most."""
WIDTHS = 16
"""Numbers that a layer keeps of a token for the derivative, in widths of the stream: by estimate. With the weights of
its heads, of which `MAPS` arrays are kept: 480 tokens of the bundled model took 127 MiB, its forward alone 34."""
MAPS = 2
FAILS = (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, AttributeError)
"""The errors that MLX and a family's code raise where there is no derivative."""


def read_gradients(
    session: Session, asked: ReadGradients, stopped: Stopped = never
) -> Iterator[Measuring | GradientsRead]:
    """Tell what each token of a path has of a logit after it.

    Args:
        session: Has read a prompt; not changed.
        asked: The question.
        stopped: Polled before each forward.

    Yields:
        The progress, then the result.

    Raises:
        StepError: There is no such node, or it is the root; the tokens or the number of steps can't be; a logit or a
            gradient is not a number; the model has no derivative, or not one row of vectors for its tokens.
        PromptError: The model has no embedding for a token; a baseline is no single token.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    _check(session, asked)
    session.check_node(asked.node)
    baseline = _baseline_token(session, asked)
    plain, step_ms, note = _own_step(session, asked.node, stopped)
    tokens = _tokens(session, asked, plain)
    at = _embedded(session, asked, tokens, stopped)
    checks = [_forward_check(at), _session_check(at, plain)]
    yield Measuring(
        asked.kind, 0, 1 + asked.steps * (asked.method == "integrated"), "the gradient at the text"
    )
    (value,), gradient = at.gradients(at.own)
    slope = gradient[0]
    flat, swapped, moved = _swaps(at, slope)
    checks += [*([moved] if swapped else []), _derivative_check(at, slope)]
    own = np.array(at.own[0]).astype(np.float64)
    base_value, shares = 0.0, (slope * own).sum(-1)
    tried: Tried = []
    if asked.method == "integrated":
        base = at.baseline(asked.baseline, baseline)
        base_value = float(at.values(base)[0])
        for share in _integrated(at, asked, base, float(value) - base_value):
            if isinstance(share, Measuring):
                yield share
            else:
                shares, tried = share
        checks.append(_complete(shares, float(value) - base_value, tried[-1][0], at.jumps))
    logprobs = checked_logprobs(plain)
    facts = CaptureFacts(
        tuple(checks),
        (time.perf_counter() - begun) * 1000,
        step_ms,
        session.facts.family,
        note,
        session.title,
    )
    yield GradientsRead(
        node=asked.node,
        tokens=tuple(
            GradientToken(id, session.tokens.text(id, b"")[0], math.exp(logprobs[id]), float(plain[id]))
            for id in tokens
        ),
        method=asked.method,
        baseline=asked.baseline,
        baseline_text="" if baseline is None else session.tokens.text(baseline, b"")[0],
        held_experts=at.held,
        chooses=at.chooses,
        first=at.first,
        shares=Floats(shares.shape, shares.astype("<f4").tobytes()),
        value=float(value),
        base_value=base_value,
        tried=tuple(tried),
        flat=tuple(at.first + place for place in flat),
        swapped=swapped,
        rows=at.most_rows,
        forwards=at.forwards,
        notes=tuple(at.notes),
        facts=facts,
    )  # fmt: skip


def _check(session: Session, asked: ReadGradients) -> None:
    if asked.token is not None and asked.token == asked.other:
        raise StepError("A token's logit has no difference from itself.", "Choose another token.")
    session.tokens.check([each for each in (asked.token, asked.other) if each is not None])
    if not 1 <= asked.steps <= MOST_STEPS:
        raise StepError(f"{asked.steps} steps can't be taken.", f"Give a number from 1 to {MOST_STEPS}.")


def _baseline_token(session: Session, asked: ReadGradients) -> int | None:
    """The token that the baseline has everywhere; None where it has none.

    Raises:
        PromptError: The text of it is not one token.
    """
    if asked.method == "input" or asked.baseline in ("mean", "zero"):
        return None
    if asked.baseline == "first":
        return session.tree[session.tree.nodes(asked.node)[0]].token
    ids = cut(session.tokens, asked.baseline_text)
    if len(ids) != 1:
        raise PromptError(
            f"The baseline {asked.baseline_text!r} is {len(ids)} tokens, not one.",
            "Give a word that is one token.",
        )
    session.tokens.check(ids)
    return ids[0]


def _own_step(session: Session, node: int, stopped: Stopped) -> tuple[Row, float, str]:
    """The model's own logits after a node, from its cache: with the milliseconds, and what had to run again."""
    runner, _, note = runner_before(session, node, stopped)
    begun = time.perf_counter()
    row = np.array(runner.copy().forward_logits([session.tree[node].token])[0])
    ms = (time.perf_counter() - begun) * 1000
    if any(session.kv.quantized()):
        raise StepError(
            "The KV cache is quantized: rounding has no derivative.", "Load the model without --kv-bits."
        )
    return row, ms, note


def _tokens(session: Session, asked: ReadGradients, plain: Row) -> tuple[int, ...]:
    first = asked.token if asked.token is not None else int(checked_logprobs(plain).argmax())
    tokens = (first,) if asked.other in (None, first) else (first, asked.other)
    if not np.isfinite(plain[list(tokens)]).all():
        raise StepError("The model bars that token: its logit is minus infinity.", "Choose another token.")
    return tokens


def _refused(session: Session, why: str) -> StepError:
    return StepError(
        f"The architecture {session.facts.family} gives no gradient that could be shown: {why}.",
        "Switch parts off, or put other tokens in, to see what they do.",
    )


# ---- the model as a function of its tokens' vectors ---------------------------------------------


class _Embedded(Struct):
    """A logit, or the difference of two, as a function of the vectors of a path's last tokens."""

    session: Session
    node: int
    ids: list[int]
    """The tokens whose vectors are given."""
    first: int
    """Tokens of the path before them."""
    tokens: tuple[int, ...]
    """One, or two: the first's logit less the second's."""
    module: Any
    """The token embedding."""
    own: mx.array
    """The embeddings of the tokens, float32, shape (1, tokens, size)."""
    held: bool
    """A mixture chooses the experts of the real text everywhere."""
    chooses: bool
    """The model chooses experts or keys by scores."""
    pieces: list[int]
    """Into how many tokens each the path is cut."""
    before: Runner | None
    """Its cache holds the tokens before; None where there are none."""
    stopped: Stopped
    notes: list[str] = field(default_factory=list)
    forwards: int = 0

    @property
    def model(self) -> Any:
        return self.session.runner.model

    @property
    def jumps(self) -> bool:
        """True if experts change where they aren't held."""
        return self.chooses and not self.held

    @property
    def most_rows(self) -> int:
        """Rows of one forward: over a cache that holds something, one."""
        if self.before is not None:
            return 1
        fit = BATCH_BYTES // max(1, row_bytes(self.session, len(self.ids), self.own.shape[-1]))
        return max(1, min(MOST_ROWS, fit) - self.held)

    def logits(self, rows: mx.array) -> mx.array:
        """The logits after the last token for each row of vectors, float32, shape (rows, vocabulary), lazy."""
        if self.held:  # the first row chooses for all
            rows = mx.concatenate([self.own, rows])
        count, begin = rows.shape[0], 0
        runner = self.session.runner.fresh() if self.before is None else self.before.copy()
        caches = runner.kv.caches
        holding = _held_choice(count) if self.held else ()
        with uncompiled(), patched((mx, "take_along_axis", _by_held_indices), *holding):
            for piece in self.pieces:
                with _embedded_as(self.module, rows[:, begin : begin + piece]):
                    ids = mx.array([self.ids[begin : begin + piece]] * count)
                    out = self.model(ids, cache=caches)
                begin += piece
        after: mx.array = out[1 if self.held else 0 :, -1].astype(mx.float32)
        return after

    def values(self, rows: mx.array) -> Numbers:
        """The function of each row, shape (rows,)."""
        found = []
        for begin in range(0, rows.shape[0], self.most_rows):
            batch = rows[begin : begin + self.most_rows]
            self._poll(batch)
            found.append(np.array(self._of(self.logits(batch))))
        return np.concatenate(found).astype(np.float64)

    def gradients(self, rows: mx.array) -> tuple[Numbers, Numbers]:
        """The function of each row, and its derivative, of the shape of the rows; for as many rows as fit.

        Raises:
            StepError: There is none, or it is not a number.
        """
        self._poll(rows)
        try:
            (out,), (slopes,) = mx.vjp(
                lambda given: self._of(self.logits(given)), [rows], [mx.ones(rows.shape[0])]
            )
            mx.eval(out, slopes)
        except FAILS as error:
            why = str(error).strip().split("\n")[0] or type(error).__name__
            raise _refused(self.session, f"it can't be differentiated ({why})") from error
        values, found = (
            np.array(out).astype(np.float64),
            np.array(slopes.astype(mx.float32)).astype(np.float64),
        )
        if not (np.isfinite(values).all() and np.isfinite(found).all()):
            raise _refused(self.session, "its derivative is not a number")
        return values, found

    def baseline(self, kind: str, token: int | None) -> mx.array:
        """The baseline's vectors, of the shape of the tokens' own."""
        if kind == "zero":
            return mx.zeros_like(self.own)
        row = self.vectors([token])[0] if token is not None else self._mean()
        return mx.broadcast_to(row, self.own.shape)

    def vectors(self, ids: Sequence[int]) -> mx.array:
        """The vectors of some tokens, float32, shape (tokens, size)."""
        vectors: mx.array = self.module(mx.array([list(ids)]))[0].astype(mx.float32)
        return vectors

    def _mean(self) -> mx.array:
        """The mean of all vectors, a part at a time."""
        count, total = self.session.tokens.vocabulary, mx.zeros(self.own.shape[-1])
        for begin in range(0, count, 8192):
            total = total + self.vectors(range(begin, min(count, begin + 8192))).sum(axis=0)
            mx.eval(total)
        return total / count

    def _of(self, logits: mx.array) -> mx.array:
        first, *other = self.tokens
        return logits[:, first] - (logits[:, other[0]] if other else 0)

    def _poll(self, rows: mx.array) -> None:
        if self.stopped():
            raise Cancelled
        self.forwards += rows.shape[0]


def row_bytes(session: Session, tokens: int, size: int) -> int:
    """An estimate of the bytes that one text takes in a forward with its derivative.

    Args:
        session: Of the model.
        tokens: Of the text.
        size: Of a token's vector.
    """
    facts = session.facts
    kept_of_layer = WIDTHS * size + MAPS * (facts.heads or 1) * tokens
    return 4 * tokens * (facts.layers * kept_of_layer + 2 * facts.vocabulary)


def _fitting(session: Session, count: int, size: int) -> int:
    """The last tokens of a path that fit into the memory."""
    room = min(ROW_BYTES, (memory_available() or ROW_BYTES) // 2)
    low, high = 1, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if row_bytes(session, middle, size) <= room else (low, middle - 1)
    return low


take_along_axis = mx.take_along_axis
"""MLX's own: while a gradient is taken, the attribute is another function."""


def _by_held_indices(array: mx.array, indices: mx.array, axis: int | None = None, **more: Any) -> mx.array:
    """MLX refuses a derivative by indices; a choice has none."""
    return take_along_axis(array, mx.stop_gradient(indices), axis=axis, **more)


def _tables(model: Any) -> list[Any]:
    return [m for _, m in model.named_modules() if isinstance(m, nn.Embedding) or hasattr(m, "as_linear")]


@contextmanager
def _embedded_as(module: Any, rows: mx.array) -> Iterator[None]:
    """The token embedding returns these rows at its first call in this block: a copy, since gemma3, gpt2 and others
    change what it returns in place."""
    given = [rows]

    def give(original: Any, table: Any, args: Any, kwargs: Any) -> Any:
        return kept(given.pop()) if given else original(table, *args, **kwargs)

    with patched(*calls([module], give)):
        yield


SORTS: dict[str, Callable[..., mx.array]] = {"argpartition": mx.argpartition, "argsort": mx.argsort}
"""By which every family of mlx_lm chooses experts; MLX's own."""


def _around_sorts(then: Callable[[mx.array, mx.array], mx.array]) -> list[Patch]:
    """Patches that hand what is sorted, and the order, to a function that returns an order."""

    def around(original: Callable[..., mx.array]) -> Callable[..., mx.array]:
        return lambda x, *args, **kwargs: then(x, original(x, *args, **kwargs))

    return [(mx, name, around(original)) for name, original in SORTS.items()]


def _held_choice(count: int) -> list[Patch]:
    """Patches with which the first row of a forward chooses for all of them.

    Args:
        count: Rows.
    """

    def choose(x: mx.array, order: mx.array) -> mx.array:
        if x.ndim >= 2 and x.shape[0] == count:
            return mx.broadcast_to(order[:1], order.shape)
        if x.ndim == 2 and x.shape[0] % count == 0:  # rows and tokens along one axis
            apart = order.reshape(count, -1, order.shape[-1])
            return mx.broadcast_to(apart[:1], apart.shape).reshape(order.shape)
        return order

    return _around_sorts(choose)


def _embedded(session: Session, asked: ReadGradients, tokens: tuple[int, ...], stopped: Stopped) -> _Embedded:
    """The model as a function of the vectors of a path's tokens, as many of them as fit into the memory.

    Raises:
        StepError: No embedding is called with the tokens, or it returns several vectors for each.
    """
    nodes = session.tree.nodes(asked.node)
    size = session.facts.hidden_size or 1
    first = len(nodes) - _fitting(session, len(nodes), size)
    ids = [session.tree[node].token for node in nodes[first:]]
    runner = runner_before(session, nodes[first], stopped)[0] if first else None
    module, own, tables, chooses = _looked_up(session, ids, runner)
    notes = []
    if first:
        notes.append(
            f"The first {first:,} tokens stay as they are and have no share: the memory has room for {len(ids):,}."
        )
    if tables > 1:
        notes.append(
            "The model looks its tokens up in other tables, too: what comes from these stays as it is."
        )
    if precision(session.facts.dtype) != "float32":
        notes.append(
            f"Computed in float32 from the vectors on: in {session.facts.dtype} the gradient itself would be rounded."
        )
    held = asked.held_experts and asked.method == "integrated"
    if held and not chooses:
        notes.append("The model chooses no experts: nothing is held.")
    return _Embedded(
        session, asked.node, ids, first, tokens, module, own, held and chooses, chooses, [len(ids)], runner,
        stopped, notes,
    )  # fmt: skip


def _looked_up(session: Session, ids: list[int], runner: Runner | None) -> tuple[Any, mx.array, int, bool]:
    """The token embedding, what it returns for tokens, how many tables are asked for them, and whether the model sorts
    scores to choose by them."""
    found: list[tuple[Any, mx.array]] = []
    tables: set[int] = set()
    sorts: list[mx.array] = []

    def watch(original: Any, table: Any, args: Any, kwargs: Any) -> Any:
        out = original(table, *args, **kwargs)
        of_tokens = args and isinstance(args[0], mx.array) and args[0].size == len(ids)
        if of_tokens and np.array_equal(np.array(args[0]).reshape(-1), ids):
            found.append((table, kept(out).astype(mx.float32)))
            tables.add(id(table))
        return out

    def note(x: mx.array, order: mx.array) -> mx.array:
        sorts.extend([x] if x.ndim >= 2 else [])
        return order

    model = session.runner.model
    caches = (session.runner.fresh() if runner is None else runner.copy()).kv.caches
    with uncompiled(), patched(*calls(_tables(model), watch), *_around_sorts(note)):
        model(mx.array([ids]), cache=caches)
    if not found or found[0][1].shape[:2] != (1, len(ids)) or found[0][1].ndim != 3:
        raise _refused(session, "no embedding is called with its tokens")
    mx.eval(found[0][1])
    return *found[0], len(tables), bool(sorts)


# ---- the checks ---------------------------------------------------------------------------------


def _forward_check(at: _Embedded) -> Check:
    """The check that giving the model its own vectors changes nothing, against a forward with nothing replaced."""
    model, begin = at.model, 0
    caches = (at.session.runner.fresh() if at.before is None else at.before.copy()).kv.caches
    for piece in at.pieces:
        out = model(mx.array([at.ids[begin : begin + piece]]), cache=caches)
        begin += piece
    plain = np.array(out[0, -1].astype(mx.float32))
    at._poll(at.own)
    error = relative_error(np.array(at.logits(at.own)[0]), plain)
    bound = FLOAT32 if precision(at.session.facts.dtype) == "float32" else bounds(at.session).twice
    return Check("forward", error, bound)


def _session_check(at: _Embedded, plain: Row) -> Check:
    """The check that one forward of the text gives the session's logits; where a cache sees other tokens in another
    cut, the text is cut as the session cut it."""
    session, bound = at.session, bounds(at.session).again
    kept_row = session.row_at(at.node)
    plain = plain if kept_row is None else kept_row
    away = relative_error(np.array(at.logits(at.own)[0]), plain)
    if away > bound and not at.first:
        chunks = session.tree.chunks(at.node)
        at.pieces = [len(piece) for piece in as_run(chunks, len(at.ids), at.ids)]
        away = relative_error(np.array(at.logits(at.own)[0]), plain)
    return Check("session", away, bound)


def _derivative_check(at: _Embedded, slope: Numbers) -> Check:
    """The gradient against finite differences, along itself, where nothing cancels, and along a random direction."""
    length, own = float(np.linalg.norm(slope)), np.array(at.own[0])
    random = np.random.default_rng(0).normal(size=slope.shape)
    directions = [random / np.linalg.norm(random), *([slope / length] if length else [])]
    exact = np.array([float((slope * way).sum()) for way in directions])
    errors = np.full(len(directions), np.inf)
    for share in SIZES:
        size = share * float(np.linalg.norm(own)) / len(at.ids) ** 0.5
        rows = np.stack([own + sign * size * way for way in directions for sign in (1, -1)])
        ends = at.values(mx.array(rows.astype(np.float32))).reshape(-1, 2)
        found = np.abs((ends[:, 0] - ends[:, 1]) / (2 * size) - exact) / (length or 1.0)
        errors = np.minimum(errors, np.where(np.isfinite(found), found, np.inf))
        if errors.max() <= NEAR:
            break
    bound = DERIVATIVE if bounds(at.session).own <= FLOAT32 else DERIVATIVE_LESS
    return Check("derivative", float(errors.max()), bound)


def _swaps(at: _Embedded, slope: Numbers) -> tuple[list[int], int, Check]:
    """Put another token where the gradient is next to 0: where the logit moves, something rounds inside the model.

    Returns:
        The places where it does, how many were tried, and the check.
    """
    sizes = np.linalg.norm(slope, axis=-1)
    still = [place for place, size in enumerate(sizes) if size <= NO_GRADIENT * sizes.max()]
    tried = [still[round(step)] for step in np.linspace(0, len(still) - 1, min(SWAPS, len(still)))]
    if not tried:
        return [], 0, Check("swaps", 0.0, SWAP_BOUND)
    others = at.vectors([(at.ids[place] + 7) % at.session.tokens.vocabulary for place in tried])
    rows = np.repeat(np.array(at.own), len(tried), axis=0)
    rows[np.arange(len(tried)), tried] = np.array(others)
    own = np.array(at.logits(at.own)[0])
    largest = float(np.abs(own[np.isfinite(own)]).max(initial=1e-9))
    value = at.values(at.own)[0]
    moved = np.abs(at.values(mx.array(rows)) - value) / largest
    flat = [place for place, by in zip(tried, moved, strict=True) if not by <= SWAP_BOUND]
    where = (
        f"{len(flat)} of {len(tried)} tokens without a gradient count, as the model rounds inside"
        if flat
        else ""
    )
    return flat, len(tried), Check("swaps", float(moved.max()), SWAP_BOUND, where)


def _complete(shares: Numbers, reach: float, steps: int, jumps: bool) -> Check:
    """The check that the shares of integrated gradients sum to what they have to sum to."""
    sizes = CANCELS * float(np.abs(shares).sum())
    where = f"after {steps} steps"
    if sizes > abs(reach):
        where += ", as a share of a tenth of the sizes of the shares, which nearly cancel"
    if jumps:
        where += "; its experts change on the way"
    return Check("complete", abs(float(shares.sum()) - reach) / max(abs(reach), sizes, 1e-9), COMPLETE, where)


# ---- integrated gradients -----------------------------------------------------------------------


def _integrated(
    at: _Embedded, asked: ReadGradients, base: mx.array, reach: float
) -> Iterator[Measuring | tuple[Numbers, Tried]]:
    """The mean gradient on the line from a baseline to the text, by the midpoint rule, with more points while it isn't
    complete.

    Args:
        at: The function.
        asked: The question.
        base: The baseline.
        reach: What the shares have to sum to.

    Yields:
        The progress, then the shares and their residuals by steps.
    """
    line = at.own - base
    length = np.array(line[0]).astype(np.float64)
    total, tried = np.zeros(length.shape), list[tuple[int, float]]()
    steps, points = asked.steps, np.arange(asked.steps)
    while True:
        done = 0
        while done < len(points):
            yield Measuring(asked.kind, steps - len(points) + done, steps, f"{steps} steps")
            batch = (points[done : done + at.most_rows] + 0.5) / steps
            shares = mx.array(batch.astype(np.float32))[:, None, None]
            total += at.gradients(base + shares * line)[1].sum(axis=0)
            done += len(batch)
        found = (total / steps * length).sum(-1)
        missing = float(found.sum() - reach)
        tried.append((steps, missing / reach if reach else math.inf if missing else 0.0))
        if abs(tried[-1][1]) <= ENOUGH or steps * MORE > MOST_STEPS:
            yield found, tried
            return
        steps *= MORE
        points = np.array([point for point in range(steps) if point % MORE != MORE // 2])
