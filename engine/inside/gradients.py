"""Gradients of a logit, or of the difference of two, with respect to the vectors of the context's tokens.

The token embedding is the first embedding module that is called with the tokens. Its call is replaced by given vectors;
tied heads use `as_linear`, another method, and don't change. Every forward pass begins with new caches: without caches,
gemma3n computes other logits. Rows of a batch don't see each other, so one vector-Jacobian product with ones gives each
row its own gradient, and several points of a line run in one batch.
"""

from __future__ import annotations

import math
import time
from bisect import bisect
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from engine.errors import PromptError, StepError
from engine.inside import view
from engine.inside.lens import uncompiled
from engine.memory import memory_available
from engine.model.forward import Runner, precision
from engine.model.layers import Patch, calls, kept, patched
from engine.protocol import Check, GradientsRead, GradientToken, Measuring, ReadGradients, Record
from engine.sampling.ranking import Row, checked_logprobs
from engine.session.session import Session
from engine.session.texts import cut
from engine.task import Stopped, never, poll

Numbers = npt.NDArray[np.float64]
Tried = list[tuple[int, float]]
"""Numbers of steps, each with its residual."""
MOST_STEPS = 512
"""Largest number of steps from baseline to text."""
MORE = 3
"""Factor by which the steps grow until the shares are complete; at 3, a third of the midpoints are computed already."""
ENOUGH, COMPLETE = 0.01, 0.05
"""Largest residuals, as a share of the sum that the shares must reach: to stop adding steps, and to show the shares.
The bundled model has 0.1 % at 32 steps from three baselines, 1.3 % from zeros."""
CANCELS = 0.1
"""If the shares nearly cancel, the residual is compared with this fraction of the sum of their absolute values."""
DERIVATIVE, DERIVATIVE_LESS = 1e-2, 5e-2
"""Bounds of the error of finite differences, in float32 and in fewer bits. Measured on 124 tiny random models in
float32: 8e-4 at most, 2.6e-4 with the best of all sizes."""
SIZES, NEAR = (1e-2, 1e-3, 3e-3, 3e-4, 3e-2), 1e-3
"""Steps of finite differences, as a share of a token's vector, in the order of trial, and the error that ends the
trials. With large steps the function bends, or other experts are chosen; small steps are lost to rounding."""
NO_GRADIENT = 1e-6
"""Share of the largest gradient up to which a token's gradient counts as 0."""
SWAPS = 8
"""Largest number of tokens with no gradient that are replaced by another token."""
SWAP_BOUND = 1e-3
"""Bound of the change of a logit when a token with no gradient is replaced, as a share of the largest logit."""
MOST_ROWS = 8
"""Largest number of rows of one forward pass: in the bundled model eight rows take two fifths of the time of eight
passes, and more gain nothing."""
BATCH_BYTES, ROW_BYTES = 2**29, 2**32
"""Largest estimated size in bytes of a forward pass with its derivative: of several rows, and of a single one."""
WIDTHS = 16
"""Estimate of the numbers that a layer keeps per token for the derivative, in widths of the stream. It also keeps
`MAPS` arrays of its heads' weights. 480 tokens of the bundled model took 127 MiB, their forward pass alone 34."""
MAPS = 2
FAILS = (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, AttributeError)
"""Errors that MLX and a family's code raise if there is no derivative."""

_refused = partial(
    view.refusal,
    "The architecture {} gives no gradient that could be shown",
    "Switch parts off, or put other tokens in, to see what they do.",
)


def read_gradients(session: Session, command: ReadGradients, stopped: Stopped = never) -> Iterator[Record]:
    """Compute the share of each token of a path in a logit after it.

    Raises:
        StepError: There is no such node, or it is the root; the tokens or the number of steps are invalid; a logit or a
            gradient is not a number; the model has no derivative, or no embedding that gives each token one vector.
        PromptError: The model has no embedding for a token; the baseline's text is not one token.
        Cancelled: `stopped` returned True.
    """
    begun, node, integrated = time.perf_counter(), command.node, command.method == "integrated"
    if command.token is not None and command.token == command.other:
        raise StepError("A token's logit has no difference from itself.", "Choose another token.")
    view.check_tokens(session, command.token, command.other)
    if not 1 <= command.steps <= MOST_STEPS:
        raise StepError(f"{command.steps} steps can't be taken.", f"Give a number from 1 to {MOST_STEPS}.")
    session.check_node(node)
    baseline = _baseline_token(session, command)
    runner, _, note = view.runner_before(session, node, stopped)
    plain, step_ms = view.plain_step(runner, session.tree[node].token)
    if any(session.kv.quantized()):
        raise StepError(
            "The KV cache is quantized: rounding has no derivative.", "Load the model without --kv-bits."
        )
    first = command.token if command.token is not None else int(checked_logprobs(plain).argmax())
    tokens = (first,) if command.other in (None, first) else (first, command.other)
    view.check_predictable(plain[list(tokens)])
    function = _logit_function(session, command, tokens, stopped)
    checks = [_forward_check(function), _session_check(function, plain)]
    yield Measuring(command.kind, 0, 1 + command.steps * integrated, "the gradient at the text")
    (value,), gradient = function.gradients(function.own)
    slope = gradient[0]
    flat, swapped, moved = _swaps(function, slope)
    checks += [*([moved] if swapped else []), _derivative_check(function, slope)]
    base_value, shares = 0.0, (slope * np.array(function.own[0]).astype(np.float64)).sum(-1)
    tried: Tried = []
    if integrated:
        base = function.baseline(command.baseline, baseline)
        base_value = float(function.values(base)[0])
        reach = float(value) - base_value
        shares, tried = yield from _integrated(function, command, base, reach)
        checks.append(_complete(shares, reach, tried[-1][0], function.chooses and not function.held))
    logprobs = checked_logprobs(plain)
    yield GradientsRead(
        node=node,
        tokens=tuple(
            GradientToken(id, view.token_text(session, id), math.exp(logprobs[id]), float(plain[id]))
            for id in tokens
        ),
        method=command.method,
        baseline=command.baseline,
        baseline_text="" if baseline is None else view.token_text(session, baseline),
        held_experts=function.held,
        chooses=function.chooses,
        first=function.first,
        shares=view.packed(shares),
        value=float(value),
        base_value=base_value,
        tried=tuple(tried),
        flat=tuple(function.first + place for place in flat),
        swapped=swapped,
        rows=function.most_rows,
        forwards=function.forwards,
        notes=tuple(function.notes),
        facts=view.facts_of(session, begun, step_ms, checks, note),
    )


def _baseline_token(session: Session, command: ReadGradients) -> int | None:
    """The token that the baseline has at every position; None if it has none.

    Raises:
        PromptError: Its text is not one token.
    """
    if command.method == "input" or command.baseline in ("mean", "zero"):
        return None
    if command.baseline == "first":
        return session.tree[session.tree.nodes(command.node)[0]].token
    ids = cut(session.tokens, command.baseline_text)
    if len(ids) != 1:
        raise PromptError(
            f"The baseline {command.baseline_text!r} is {len(ids)} tokens, not one.",
            "Give a word that is one token.",
        )
    session.tokens.check(ids)
    return ids[0]


# ---- the model as a function of its tokens' vectors ---------------------------------------------


class _LogitFunction(Struct):
    """A logit, or the difference of two, as a function of the vectors of a path's last tokens."""

    session: Session
    node: int
    ids: list[int]
    """Tokens whose vectors are the function's argument."""
    first: int
    """Number of tokens of the path before `ids`."""
    tokens: tuple[int, ...]
    """The id of the logit; or two ids, for the first one's logit minus the second one's."""
    module: Any
    """The token embedding."""
    own: mx.array
    """Embeddings of the tokens, float32, shape (1, tokens, size)."""
    held: bool
    """True if the experts that are chosen for the real text are used in all rows."""
    chooses: bool
    """True if the model chooses experts or keys by scores."""
    pieces: list[int]
    """Number of tokens of each forward pass that the path is split into."""
    before: Runner | None
    """Runner whose cache contains the tokens before `ids`; None if there are none."""
    stopped: Stopped
    notes: list[str] = field(default_factory=list)
    forwards: int = 0

    @property
    def most_rows(self) -> int:
        """Largest number of rows of one forward pass; 1 if there are tokens before `ids`."""
        if self.before is not None:
            return 1
        fit = BATCH_BYTES // max(1, row_bytes(self.session, len(self.ids), self.own.shape[-1]))
        return max(1, min(MOST_ROWS, fit) - self.held)

    def caches(self) -> list[Any]:
        """New caches that contain the tokens before `ids`."""
        runner = self.session.runner.fresh() if self.before is None else self.before.copy()
        return runner.kv.caches

    def logits(self, rows: mx.array) -> mx.array:
        """The logits after the last token for each row of vectors, float32, shape (rows, vocabulary), lazy."""
        if self.held:  # the first row chooses the experts of all rows
            rows = mx.concatenate([self.own, rows])
        count, begin, caches = rows.shape[0], 0, self.caches()
        holding = _held_choice(count) if self.held else ()
        with uncompiled(), patched((mx, "take_along_axis", _by_held_indices), *holding):
            for piece in self.pieces:
                with _embedded_as(self.module, rows[:, begin : begin + piece]):
                    ids = mx.array([self.ids[begin : begin + piece]] * count)
                    out = self.session.runner.model(ids, cache=caches)
                begin += piece
        after: mx.array = out[1 if self.held else 0 :, -1].astype(mx.float32)
        return after

    def values(self, rows: mx.array) -> Numbers:
        """The function's value for each row, shape (rows,)."""
        found = []
        for begin in range(0, rows.shape[0], self.most_rows):
            batch = rows[begin : begin + self.most_rows]
            self.begin_forward(batch)
            found.append(np.array(self._of(self.logits(batch))))
        return np.concatenate(found).astype(np.float64)

    def gradients(self, rows: mx.array) -> tuple[Numbers, Numbers]:
        """The function's value for each row, and its gradient, with the shape of `rows`; for `most_rows` rows at most.

        Raises:
            StepError: There is no gradient, or it is not a number.
        """
        self.begin_forward(rows)
        try:
            (out,), (slopes,) = mx.vjp(
                lambda given: self._of(self.logits(given)), [rows], [mx.ones(rows.shape[0])]
            )
            mx.eval(out, slopes)
        except FAILS as error:
            why = str(error).strip().split("\n")[0] or type(error).__name__
            raise _refused(self.session, f"it can't be differentiated ({why})") from error
        values = np.array(out).astype(np.float64)
        found = np.array(slopes.astype(mx.float32)).astype(np.float64)
        if not (np.isfinite(values).all() and np.isfinite(found).all()):
            raise _refused(self.session, "its derivative is not a number")
        return values, found

    def baseline(self, kind: str, token: int | None) -> mx.array:
        """The baseline's vectors, with the shape of `own`."""
        if kind == "zero":
            return mx.zeros_like(self.own)
        if token is not None:
            return mx.broadcast_to(self.vectors([token])[0], self.own.shape)
        count, total = self.session.tokens.vocabulary, mx.zeros(self.own.shape[-1])
        for begin in range(0, count, 8192):  # the mean of all vectors, a part at a time
            total = total + self.vectors(range(begin, min(count, begin + 8192))).sum(axis=0)
            mx.eval(total)
        return mx.broadcast_to(total / count, self.own.shape)

    def vectors(self, ids: Sequence[int]) -> mx.array:
        """The vectors of some tokens, float32, shape (tokens, size)."""
        vectors: mx.array = self.module(mx.array([list(ids)]))[0].astype(mx.float32)
        return vectors

    def _of(self, logits: mx.array) -> mx.array:
        first, *other = self.tokens
        return logits[:, first] - (logits[:, other[0]] if other else 0)

    def begin_forward(self, rows: mx.array) -> None:
        """Stop if the command was cancelled; count the rows' forward passes."""
        poll(self.stopped)
        self.forwards += rows.shape[0]


def row_bytes(session: Session, tokens: int, size: int) -> int:
    """An estimate of the bytes of one text in a forward pass with its derivative; `size` is the width of the stream."""
    facts = session.facts
    kept_of_layer = WIDTHS * size + MAPS * (facts.heads or 1) * tokens
    return 4 * tokens * (facts.layers * kept_of_layer + 2 * facts.vocabulary)


def _fitting(session: Session, count: int, size: int) -> int:
    """The number of a path's last tokens that fit into memory."""
    room = min(ROW_BYTES, (memory_available() or ROW_BYTES) // 2)
    return max(1, bisect(range(1, count + 1), room, key=lambda tokens: row_bytes(session, tokens, size)))


take_along_axis = mx.take_along_axis
"""MLX's own function; `mx.take_along_axis` is patched while a gradient is computed."""


def _by_held_indices(array: mx.array, indices: mx.array, axis: int | None = None, **more: Any) -> mx.array:
    """`mx.take_along_axis` with constant indices: MLX refuses to differentiate with respect to them."""
    return take_along_axis(array, mx.stop_gradient(indices), axis=axis, **more)


@contextmanager
def _embedded_as(module: Any, rows: mx.array) -> Iterator[None]:
    """A block in which the token embedding's first call returns a copy of these rows; gemma3, gpt2 and others change
    its result in place."""
    given = [rows]

    def give(original: Any, table: Any, args: Any, kwargs: Any) -> Any:
        return kept(given.pop()) if given else original(table, *args, **kwargs)

    with patched(*calls([module], give)):
        yield


SORTS: dict[str, Callable[..., mx.array]] = {"argpartition": mx.argpartition, "argsort": mx.argsort}
"""MLX's own functions with which all families of mlx_lm choose experts."""


def _around_sorts(then: Callable[[mx.array, mx.array], mx.array]) -> list[Patch]:
    """Patches of `SORTS` that pass each array and its order to `then`, and return the order that `then` returns."""

    def around(original: Callable[..., mx.array]) -> Callable[..., mx.array]:
        return lambda x, *args, **kwargs: then(x, original(x, *args, **kwargs))

    return [(mx, name, around(original)) for name, original in SORTS.items()]


def _held_choice(count: int) -> list[Patch]:
    """Patches that apply the first row's choices, of experts or keys, to all rows of a forward pass."""

    def choose(x: mx.array, order: mx.array) -> mx.array:
        if x.ndim >= 2 and x.shape[0] == count:
            return mx.broadcast_to(order[:1], order.shape)
        if x.ndim == 2 and x.shape[0] % count == 0:  # rows and tokens along one axis
            by_row = order.reshape(count, -1, order.shape[-1])
            return mx.broadcast_to(by_row[:1], by_row.shape).reshape(order.shape)
        return order

    return _around_sorts(choose)


def _logit_function(
    session: Session, command: ReadGradients, tokens: tuple[int, ...], stopped: Stopped
) -> _LogitFunction:
    """The model as a function of the vectors of a path's last tokens, as many as fit into memory.

    Raises:
        StepError: No embedding is called with the tokens, or it returns several vectors for each.
    """
    nodes = session.tree.nodes(command.node)
    first = len(nodes) - _fitting(session, len(nodes), session.facts.hidden_size or 1)
    ids = [session.tree[node].token for node in nodes[first:]]
    runner = view.runner_before(session, nodes[first], stopped)[0] if first else None
    module, own, tables, chooses = _find_embedding(session, ids, runner)
    held = command.held_experts and command.method == "integrated"
    dtype = session.facts.dtype
    notes = (
        (first, f"The first {first:,} tokens stay as they are and have no share: "
                f"the memory has room for {len(ids):,}."),
        (tables > 1, "The model looks its tokens up in other tables, too: what comes from these stays as it is."),
        (precision(dtype) != "float32",
         f"Computed in float32 from the vectors on: in {dtype} the gradient itself would be rounded."),
        (held and not chooses, "The model chooses no experts: nothing is held."),
    )  # fmt: skip
    return _LogitFunction(
        session, command.node, ids, first, tokens, module, own, held and chooses, chooses, [len(ids)], runner,
        stopped, [note for applies, note in notes if applies],
    )  # fmt: skip


def _find_embedding(
    session: Session, ids: list[int], runner: Runner | None
) -> tuple[Any, mx.array, int, bool]:
    """The token embedding, the tokens' vectors, the number of tables that look them up, and True if the model chooses
    experts or keys by sorting scores."""
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
    embeddings = [
        module
        for _, module in model.named_modules()
        if isinstance(module, nn.Embedding) or hasattr(module, "as_linear")
    ]
    with uncompiled(), patched(*calls(embeddings, watch), *_around_sorts(note)):
        model(mx.array([ids]), cache=caches)
    if not found or found[0][1].shape[:2] != (1, len(ids)) or found[0][1].ndim != 3:
        raise _refused(session, "no embedding is called with its tokens")
    mx.eval(found[0][1])
    return *found[0], len(tables), bool(sorts)


# ---- the checks ---------------------------------------------------------------------------------


def _forward_check(function: _LogitFunction) -> Check:
    """The check that giving the model its own vectors changes nothing, against a plain forward pass."""
    begin, caches, session = 0, function.caches(), function.session
    for piece in function.pieces:
        out = session.runner.model(mx.array([function.ids[begin : begin + piece]]), cache=caches)
        begin += piece
    plain = np.array(out[0, -1].astype(mx.float32))
    function.begin_forward(function.own)
    error = view.relative_error(np.array(function.logits(function.own)[0]), plain)
    bound = view.FLOAT32 if precision(session.facts.dtype) == "float32" else view.bounds(session).twice
    return Check("forward", error, bound)


def _session_check(function: _LogitFunction, plain: Row) -> Check:
    """The check that one forward pass of the text gives the session's logits. If it doesn't, the text runs in the
    session's chunks, since in some caches the chunks decide which tokens are seen."""
    session, bound = function.session, view.bounds(function.session).again
    row = session.row_at(function.node)
    plain = plain if row is None else row
    error = view.relative_error(np.array(function.logits(function.own)[0]), plain)
    if error > bound and not function.first:
        chunks = session.tree.chunks(function.node)
        function.pieces = [
            len(piece) for piece in view.pieces_as_run(chunks, len(function.ids), function.ids)
        ]
        error = view.relative_error(np.array(function.logits(function.own)[0]), plain)
    return Check("session", error, bound)


def _derivative_check(function: _LogitFunction, slope: Numbers) -> Check:
    """Check the gradient with finite differences: along itself, where nothing cancels, and in a random direction."""
    length, own = float(np.linalg.norm(slope)), np.array(function.own[0])
    random = np.random.default_rng(0).normal(size=slope.shape)
    directions = [random / np.linalg.norm(random), *([slope / length] if length else [])]
    exact = np.array([float((slope * each).sum()) for each in directions])
    errors = np.full(len(directions), np.inf)
    for share in SIZES:
        size = share * float(np.linalg.norm(own)) / len(function.ids) ** 0.5
        rows = np.stack([own + sign * size * each for each in directions for sign in (1, -1)])
        ends = function.values(mx.array(rows.astype(np.float32))).reshape(-1, 2)
        found = np.abs((ends[:, 0] - ends[:, 1]) / (2 * size) - exact) / (length or 1.0)
        errors = np.minimum(errors, np.where(np.isfinite(found), found, np.inf))
        if errors.max() <= NEAR:
            break
    bound = DERIVATIVE if view.bounds(function.session).own <= view.FLOAT32 else DERIVATIVE_LESS
    return Check("derivative", float(errors.max()), bound)


def _swaps(function: _LogitFunction, slope: Numbers) -> tuple[list[int], int, Check]:
    """Replace tokens with a gradient near 0: if the logit changes, something rounds inside the model.

    Returns:
        The places of the tokens that change it, the number of replaced tokens, and the check.
    """
    sizes = np.linalg.norm(slope, axis=-1)
    still = [place for place, size in enumerate(sizes) if size <= NO_GRADIENT * sizes.max()]
    tried = [still[round(step)] for step in np.linspace(0, len(still) - 1, min(SWAPS, len(still)))]
    if not tried:
        return [], 0, Check("swaps", 0.0, SWAP_BOUND)
    vocabulary = function.session.tokens.vocabulary
    others = function.vectors([(function.ids[place] + 7) % vocabulary for place in tried])
    rows = np.repeat(np.array(function.own), len(tried), axis=0)
    rows[np.arange(len(tried)), tried] = np.array(others)
    own = np.array(function.logits(function.own)[0])
    largest = float(np.abs(own[np.isfinite(own)]).max(initial=1e-9))
    value = function.values(function.own)[0]
    moved = np.abs(function.values(mx.array(rows)) - value) / largest
    flat = [place for place, by in zip(tried, moved, strict=True) if not by <= SWAP_BOUND]
    where = f"{len(flat)} of {len(tried)} tokens without a gradient count, as the model rounds inside"
    return flat, len(tried), Check("swaps", float(moved.max()), SWAP_BOUND, where if flat else "")


def _complete(shares: Numbers, reach: float, steps: int, jumps: bool) -> Check:
    """The check that the shares of integrated gradients sum to `reach`, the change from the baseline."""
    sizes = CANCELS * float(np.abs(shares).sum())
    where = f"after {steps} steps"
    if sizes > abs(reach):
        where += ", as a share of a tenth of the sizes of the shares, which nearly cancel"
    if jumps:
        where += "; its experts change on the way"
    return Check("complete", abs(float(shares.sum()) - reach) / max(abs(reach), sizes, 1e-9), COMPLETE, where)


# ---- integrated gradients -----------------------------------------------------------------------


def _integrated(
    function: _LogitFunction, command: ReadGradients, base: mx.array, reach: float
) -> Generator[Measuring, None, tuple[Numbers, Tried]]:
    """Compute integrated gradients from a baseline by the midpoint rule, with more points while they aren't complete.

    Args:
        function: The function.
        command: The command.
        base: Vectors of the baseline.
        reach: Sum that the shares must reach.

    Returns:
        The shares, shape (tokens,), and their residuals by steps.
    """
    line = function.own - base
    length = np.array(line[0]).astype(np.float64)
    total, tried = np.zeros(length.shape), list[tuple[int, float]]()
    steps, points = command.steps, np.arange(command.steps)
    while True:
        done = 0
        while done < len(points):
            yield Measuring(command.kind, steps - len(points) + done, steps, f"{steps} steps")
            batch = (points[done : done + function.most_rows] + 0.5) / steps
            shares = mx.array(batch.astype(np.float32))[:, None, None]
            total += function.gradients(base + shares * line)[1].sum(axis=0)
            done += len(batch)
        found = (total / steps * length).sum(-1)
        missing = float(found.sum() - reach)
        tried.append((steps, missing / reach if reach else math.inf if missing else 0.0))
        if abs(tried[-1][1]) <= ENOUGH or steps * MORE > MOST_STEPS:
            return found, tried
        steps *= MORE
        points = np.array([point for point in range(steps) if point % MORE != MORE // 2])
