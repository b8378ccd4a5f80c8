"""What a wrong position does to a prediction, and what the causal mask does.

The model asks a cache for its offset and turns queries and keys, or picks a row of a table, by it. Here it is given
another number while the cache holds and returns the same keys.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.models.base as base
import numpy as np

from engine.errors import Cancelled, StepError
from engine.inside.capture import bounds, runner_before
from engine.model.forward import Runner, rounding_of
from engine.model.layers import calls, decoder_layers, patched
from engine.protocol import (
    CaptureFacts,
    Check,
    PositionChange,
    PositionTried,
    PositionUse,
    PositionWay,
    Rotation,
    TokenShift,
)
from engine.sampling.ranking import LN2, Row, absolute_difference, checked_logprobs, rank_of, ranked
from engine.session.session import Session
from engine.task import Stopped, never

PIECE = 512
"""Tokens in a forward of the whole path."""
LOGITS = 1 << 30
"""Bytes of the logits of a forward without the mask, which can't be cut into pieces."""
MOST_OFFSET = 2**30
"""MLX counts positions with 32 bits."""


def try_position(
    session: Session,
    node: int,
    change: PositionChange = "token",
    offset: int = 0,
    top: int = 8,
    until: int | None = None,
    stopped: Stopped = never,
) -> PositionTried:
    """Run a token with a wrong position, or its path with one or without the causal mask.

    Args:
        session: Has read a prompt; not changed.
        node: The token's.
        change: What is wrong.
        offset: What is added to positions; of no account for the mask.
        top: Tokens that are listed of each side.
        until: A node further down the path, whose tokens are seen without the mask; None for the token itself.
        stopped: Polled before each forward.

    Raises:
        StepError: There is no such node, or it is the root; the model has no positions, no attention whose mask can be
            taken away, or no such position; the path is too long for one forward.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    session.check_node(node)
    if abs(offset) > MOST_OFFSET:
        raise StepError(f"The offset {offset:+,} is too large.", f"Give at most {MOST_OFFSET:,} either way.")
    runner, _, note = runner_before(session, node, stopped)
    token, model = session.tree[node].token, session.runner.model
    step_begun = time.perf_counter()
    plain = np.array(runner.copy().forward_logits([token])[0])
    step_ms = (time.perf_counter() - step_begun) * 1000
    watch = PositionWatch(model, position=runner.kv.offset)
    own = _row(runner.copy(), [[token]], 0, watch, stopped)
    use, by, exact = watch.use, 0 if change == "mask" else offset, change == "token"
    _refuse(session, change, watch)
    start, pieces, later = runner, [[token]], 0
    if not exact:
        start, watch = session.runner.fresh(), PositionWatch(model)
        pieces, later = _whole(session, node, until) if change == "mask" else (_pieces(session, node), 0)
        own = _row(session.runner.fresh(), pieces, 0, watch, stopped, later)
    changed = PositionWatch(model, position=start.kv.offset + by, unmasked=change == "mask")
    after = _row(start, pieces, by, changed, stopped, later)
    if change == "mask" and changed.computed_itself:
        raise StepError(
            f"{session.facts.family} computes its attention itself: its mask can't be removed from outside.",
            "Wrong positions can still be tried.",
        )
    bound = 0.0 if exact else max(rounding_of(plain, session.facts.dtype), bounds(session).own * _top(plain))
    checks = (Check("forward", _apart(own, plain), bound), watch.same_keys(changed))
    ms = (time.perf_counter() - begun) * 1000
    facts = CaptureFacts(checks, ms, step_ms, session.facts.family, note, session.title)
    difference = absolute_difference(own, after)
    largest = int(difference.argmax())
    return PositionTried(
        node, change, by, use, _tokens(session, own, after, top), _kl_bits(own, after), float(difference[largest]),
        session.tokens.text(largest, b"")[0], later, sum(map(len, pieces)), facts,
    )  # fmt: skip


def _refuse(session: Session, change: PositionChange, watch: PositionWatch) -> None:
    """Where the change has no meaning."""
    family = session.facts.family
    if change == "mask":
        if not watch.keys and not watch.computed_itself:
            raise StepError(
                f"{family} has no attention, and so no causal mask: its state takes in one token after another.",
                "Look at another view.",
            )
    elif watch.use.way == "none":
        raise StepError(
            f"{family} is never given a position: only the order in which tokens go through it counts.",
            "A wrong offset can't be given to it. Look at another view.",
        )


def _pieces(session: Session, node: int) -> list[list[int]]:
    ids = session.tree.tokens(node)
    return [ids[first : first + PIECE] for first in range(0, len(ids), PIECE)]


def _whole(session: Session, node: int, until: int | None) -> tuple[list[list[int]], int]:
    """A path in one piece, and how many of its tokens come after a node: without a mask nothing can be cut."""
    end = node if until is None else until
    session.check_node(end)
    ids, depth = session.tree.tokens(end), session.tree[node].depth
    if node not in session.tree.nodes(end):
        raise StepError(f"Node {end} does not come after node {node}.", "Name one further down its path.")
    needed, most = len(ids) * session.tokens.vocabulary * 4, LOGITS // 4 // session.tokens.vocabulary
    if needed > LOGITS:
        raise StepError(
            f"Without the mask {len(ids):,} tokens go through at once: {needed / LOGITS:.1f} GiB of logits.",
            f"Go to one of the first {most:,} tokens.",
        )
    return [ids], len(ids) - depth


def _row(
    runner: Runner,
    pieces: Sequence[Sequence[int]],
    by: int,
    watch: PositionWatch,
    stopped: Stopped,
    later: int = 0,
) -> Row:
    """The logits after some tokens but the `later` last ones, whose cache gives the model another offset."""
    for ids in pieces:
        if stopped():
            raise Cancelled
        caches = [shifted(cache, by, watch) for cache in runner.kv.caches]
        row = _forward(runner, ids, caches, by, watch, later)
    return row


def _forward(
    runner: Runner, ids: Sequence[int], caches: list[Any], by: int, watch: PositionWatch, later: int
) -> Row:

    def compute(tokens: mx.array, cache: Any) -> Any:
        return runner.model(tokens, cache=caches)

    try:
        with watch.set(len(ids)):
            logits = runner.kv.run(compute, mx.array([list(ids)]), chunk=len(ids) > 1)
            row = logits[0, -1 - later].astype(mx.float32)
            mx.eval(row, runner.kv.state())
    except (ValueError, IndexError, TypeError) as error:
        if not by:
            raise
        raise StepError(
            f"This model derives more than positions from the offset: with {by:+d} its forward fails ({error}).",
            "Try it without the mask, or look at another view.",
        ) from error
    return np.array(row)


def _tokens(session: Session, own: Row, after: Row, top: int) -> tuple[TokenShift, ...]:
    ids = dict.fromkeys(int(id) for row in (own, after) for id in ranked(row, max(1, top)))
    one, other = (np.exp(checked_logprobs(row).astype(np.float64)) for row in (own, after))
    return tuple(
        TokenShift(
            id, session.tokens.text(id, b"")[0], float(one[id]), float(other[id]), rank_of(own, id), rank_of(after, id)
        )
        for id in ids
    )  # fmt: skip


def _kl_bits(own: Row, after: Row) -> float:
    one, other = (checked_logprobs(row).astype(np.float64) for row in (own, after))
    probs = np.exp(one)
    live = probs > 0
    return max(0.0, float((probs[live] * (one[live] - other[live])).sum()) / LN2)


def _apart(one: Row, other: Row) -> float:
    error = float(absolute_difference(one, other).max())
    return error if np.isfinite(error) else float("inf")


def _top(row: Row) -> float:
    return float(np.abs(row[np.isfinite(row)]).max(initial=0.0))


# ---- watching how a forward uses positions, and handing its model other ones -------------------

rope = mx.fast.rope
"""MLX's own: while a watch is set, the attribute is another function."""
fused_attention = mx.fast.scaled_dot_product_attention
softmax = mx.softmax


class ShiftedCache:
    """A cache that gives the model another offset; what it holds, writes and masks by is its own.

    Args:
        cache: One of mlx_lm's.
        by: What is added to its offset.
        watch: Notes that the offset was asked for.
    """

    __slots__ = ("_by", "_cache", "_watch")

    def __init__(self, cache: Any, by: int, watch: PositionWatch) -> None:
        for name, value in (("_cache", cache), ("_by", by), ("_watch", watch)):
            object.__setattr__(self, name, value)

    @property
    def offset(self) -> Any:
        """What the model takes for the token's position."""
        self._watch.asked = True
        return self._cache.offset + self._by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._cache, name, value)


def shifted(cache: Any, by: int, watch: PositionWatch) -> Any:
    """A cache with another offset; a state has none, and stays as it is."""
    if hasattr(cache, "caches"):
        wrapped = copy.copy(cache)
        wrapped.caches = tuple(shifted(inner, by, watch) for inner in cache.caches)
        return wrapped
    return ShiftedCache(cache, by, watch) if hasattr(cache, "offset") else cache


class PositionWatch:
    """What some forwards of a model do with positions.

    Args:
        model: As mlx_lm loads it.
        position: That the first token is given.
        unmasked: Whether attention goes without its mask.
    """

    def __init__(self, model: Any, position: int = 0, unmasked: bool = False) -> None:
        self._model, self._position, self._unmasked = model, position, unmasked
        self.asked = False
        """True if the model asked for an offset."""
        self.keys: dict[int, int] = {}
        """By layer, the most keys that its attention saw."""
        self.computed_itself: set[int] = set()
        """Layers with an attention of their own."""
        self._turned: dict[int, tuple[int, float | None, float, int]] = {}
        self._table = 0
        self._layers: list[int] = []
        """Those that run."""
        self._count = self._lookups = 0
        self._quiet = False

    @contextmanager
    def set(self, count: int) -> Iterator[None]:
        """Watch a forward in this block.

        Args:
            count: Its tokens.
        """
        layers = decoder_layers(self._model)
        index = {id(layer): number for number, layer in enumerate(layers)}
        tables = [
            module
            for _, module in self._model.named_modules()
            if isinstance(module, nn.Embedding | nn.QuantizedEmbedding)
        ]

        def layer(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
            self._layers.append(index[id(module)])
            try:
                return original(module, *args, **kwargs)
            finally:
                self._layers.pop()

        self._count, self._lookups = count, 0
        with patched(
            (mx.fast, "rope", self._rope),
            (mx.fast, "scaled_dot_product_attention", self._fused),
            (base, "quantized_scaled_dot_product_attention", self._quantized_around()),
            (mx, "softmax", self._softmax),
            *calls(layers, layer),
            *calls(tables, self._look_up),
        ):
            yield
        self._position += count

    @property
    def use(self) -> PositionUse:
        """What was seen."""
        groups: dict[tuple[int, float | None, float, int], list[int]] = {}
        for layer, how in sorted(self._turned.items()):
            groups.setdefault(how, []).append(layer)
        rotations = tuple(Rotation(tuple(layers), *how) for how, layers in groups.items())
        way: PositionWay = (
            "rotary" if rotations else "learned" if self._table else "own" if self.asked else "none"
        )
        every = range(len(decoder_layers(self._model)))
        unturned = tuple(layer for layer in every if layer not in self._turned) if rotations else ()
        keys = max(self.keys.values(), default=0)
        return PositionUse(way, self._position - self._count, keys, rotations, unturned, self._table)

    def same_keys(self, other: PositionWatch) -> Check:
        """The check that the attentions of other forwards saw as many keys."""
        every = self.keys.keys() | other.keys.keys()
        apart = {layer: abs(self.keys.get(layer, 0) - other.keys.get(layer, 0)) for layer in every}
        layer = max(apart, key=apart.__getitem__, default=0)
        return Check("keys", float(apart.get(layer, 0)), 0.0, f"layer {layer}")

    # ---- what runs in the place of MLX's own -----------------------------------------------------

    def _rope(self, x: mx.array, dims: int, **how: Any) -> mx.array:
        if self._layers and self._layers[-1] not in self._turned:
            offset = int(np.array(how.get("offset", 0)).reshape(-1)[0])
            numbers = how.get("base"), how.get("scale", 1.0)
            self._turned[self._layers[-1]] = dims, numbers[0], numbers[1], offset
        return rope(x, dims, **how)

    def _fused(self, q: mx.array, k: mx.array, v: mx.array, *, mask: Any = None, **more: Any) -> mx.array:
        self._saw(k.shape[2])
        return fused_attention(q, k, v, mask=None if self._lifts else mask, **more)

    def _quantized_around(self) -> Any:
        original = base.quantized_scaled_dot_product_attention

        def quantized(queries: mx.array, keys: Any, values: Any, scale: float, mask: Any, **more: Any) -> Any:
            self._saw(keys[0].shape[2])
            self._quiet = True
            try:
                return original(queries, keys, values, scale, None if self._lifts else mask, **more)
            finally:
                self._quiet = False

        return quantized

    def _softmax(self, x: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        if self._layers and not self._quiet and x.ndim >= 4:
            self.computed_itself.add(self._layers[-1])
            self._saw(x.shape[-1])
        return softmax(x, *args, **kwargs)

    @property
    def _lifts(self) -> bool:
        return self._unmasked and bool(self._layers)

    def _saw(self, keys: int) -> None:
        if self._layers:
            self.keys[self._layers[-1]] = max(keys, self.keys.get(self._layers[-1], 0))

    def _look_up(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """A row of a table for each token: MLX doesn't check that there is one."""
        places = np.array(args[0] if args else next(iter(kwargs.values()))).reshape(-1)
        rows = int(module.weight.shape[0])
        self._lookups += 1
        own = self._lookups > 1 and list(places) == list(range(self._position, self._position + self._count))
        if own:
            self._table = rows
        if places.size and not 0 <= places.min() <= places.max() < rows:
            raise StepError(
                f"This model has learned {rows:,} positions, 0 to {rows - 1:,}, and was given {int(places.max())}"
                f"{f' and {int(places.min())}' if places.min() < 0 else ''}.",
                "There is no vector for it: try an offset within them.",
            )
        return original(module, *args, **kwargs)
