"""Predictions with wrong positions, and without the causal mask.

The model asks a cache for its offset, and rotates queries and keys by it or looks up a row of a table. Here the cache
reports another offset and still returns the same keys.
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

from engine.errors import StepError
from engine.inside import view
from engine.inside.taps import fused_attention, softmax
from engine.model.forward import Runner, rounding_of
from engine.model.layers import calls, decoder_layers, patched
from engine.protocol import (
    Check,
    PositionChange,
    PositionTried,
    PositionUse,
    PositionWay,
    Record,
    Rotation,
    TokenShift,
    TryPosition,
)
from engine.sampling.ranking import LN2, Row, absolute_difference, checked_logprobs, rank_of, ranked
from engine.session.session import Session
from engine.task import Stopped, never, poll

PIECE = 512
"""Largest number of tokens of one forward pass when the whole path runs."""
LOGITS = 1 << 30
"""Largest size in bytes of the logits of a path without the mask, which runs in a single forward pass."""
MOST_OFFSET = 2**30
"""Largest offset: MLX counts positions with 32 bits."""


def try_position(session: Session, command: TryPosition, stopped: Stopped = never) -> Iterator[Record]:
    """Run a token at a wrong position, or its path at wrong positions or without the causal mask.

    Raises:
        StepError: There is no such node, or it is the root; the model has no positions, no attention whose mask can be
            removed, or no such position; the path is too long for one forward pass.
        Cancelled: `stopped` returned True.
    """
    begun, node, mask = time.perf_counter(), command.node, command.change == "mask"
    session.check_node(node)
    if abs(command.offset) > MOST_OFFSET:
        raise StepError(
            f"The offset {command.offset:+,} is too large.", f"Give at most {MOST_OFFSET:,} either way."
        )
    runner, _, note = view.runner_before(session, node, stopped)
    token, model = session.tree[node].token, session.runner.model
    plain, step_ms = view.plain_step(runner, token)
    watch = PositionWatch(model, position=runner.kv.offset)
    own = _logits(runner.copy(), [[token]], 0, watch, stopped)
    use, by, exact = watch.use, 0 if mask else command.offset, command.change == "token"
    _refuse(session, command.change, watch)
    start, pieces, later = runner, [[token]], 0
    if not exact:
        start, watch = session.runner.fresh(), PositionWatch(model)
        if mask:
            pieces, later = _whole_path(session, command)
        else:
            ids = session.tree.tokens(node)
            pieces = [ids[first : first + PIECE] for first in range(0, len(ids), PIECE)]
        own = _logits(session.runner.fresh(), pieces, 0, watch, stopped, later)
    changed = PositionWatch(model, position=start.kv.offset + by, unmasked=mask)
    after = _logits(start, pieces, by, changed, stopped, later)
    if mask and changed.computed_itself:
        raise StepError(
            f"{session.facts.family} computes its attention itself: its mask can't be removed from outside.",
            "Wrong positions can still be tried.",
        )
    largest_logit = float(np.abs(plain[np.isfinite(plain)]).max(initial=0.0))
    rounding = max(rounding_of(plain, session.facts.dtype), view.bounds(session).own * largest_logit)
    checks = (
        Check("forward", view.largest_difference(own, plain), 0.0 if exact else rounding),
        watch.same_keys(changed),
    )
    facts = view.facts_of(session, begun, step_ms, checks, note)
    difference = absolute_difference(own, after)
    largest = int(difference.argmax())
    yield PositionTried(
        node, command.change, by, use, *_compared(session, own, after, command.top), float(difference[largest]),
        view.token_text(session, largest), later, sum(map(len, pieces)), facts,
    )  # fmt: skip


def _refuse(session: Session, change: PositionChange, watch: PositionWatch) -> None:
    """Refuse a change that has no meaning for the model."""
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


def _whole_path(session: Session, command: TryPosition) -> tuple[list[list[int]], int]:
    """A path in one piece, since it can't be split without a mask, and the number of its tokens after the node."""
    node, end = command.node, command.node if command.until is None else command.until
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


def _logits(
    runner: Runner,
    pieces: Sequence[Sequence[int]],
    by: int,
    watch: PositionWatch,
    stopped: Stopped,
    later: int = 0,
) -> Row:
    """Run tokens with caches that report another offset to the model.

    Args:
        runner: Runner whose cache contains the tokens before these.
        pieces: Tokens of each forward pass.
        by: Number added to the offset.
        watch: Records how the model uses positions.
        stopped: Polled before each forward pass.
        later: Number of tokens after the one whose logits are returned.

    Returns:
        The logits after that token.
    """
    for ids in pieces:
        poll(stopped)
        caches = [shifted(cache, by, watch) for cache in runner.kv.caches]

        def compute(tokens: mx.array, cache: Any, caches: list[Any] = caches) -> Any:
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


def _compared(session: Session, own: Row, after: Row, top: int) -> tuple[tuple[TokenShift, ...], float]:
    """The most probable tokens of two rows, and the KL divergence of the second from the first in bits."""
    ids = dict.fromkeys(int(id) for row in (own, after) for id in ranked(row, max(1, top)))
    one, other = (checked_logprobs(row).astype(np.float64) for row in (own, after))
    probs, others = np.exp(one), np.exp(other)
    shifts = tuple(
        TokenShift(
            id, view.token_text(session, id), float(probs[id]), float(others[id]), rank_of(own, id), rank_of(after, id)
        )
        for id in ids
    )  # fmt: skip
    live = probs > 0  # not by `view.kl_bits`: it sums in another order, and the last digit would differ
    return shifts, max(0.0, float((probs[live] * (one[live] - other[live])).sum()) / LN2)


# ---- caches that give another offset, and a record of how a forward pass uses positions --------

rope = mx.fast.rope
"""MLX's own function; `mx.fast.rope` is patched while a watch is set."""


class ShiftedCache:
    """A cache that reports another offset to the model; it stores and masks by the real one.

    Args:
        cache: A cache of mlx_lm.
        by: Number added to its offset.
        watch: Records that the offset was asked for.
    """

    __slots__ = ("_by", "_cache", "_watch")

    def __init__(self, cache: Any, by: int, watch: PositionWatch) -> None:
        for name, value in (("_cache", cache), ("_by", by), ("_watch", watch)):
            object.__setattr__(self, name, value)

    @property
    def offset(self) -> Any:
        """The offset that the model uses as the token's position."""
        self._watch.asked = True
        return self._cache.offset + self._by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._cache, name, value)


def shifted(cache: Any, by: int, watch: PositionWatch) -> Any:
    """A cache with another offset; a recurrent state has no offset and stays as it is."""
    if hasattr(cache, "caches"):
        wrapped = copy.copy(cache)
        wrapped.caches = tuple(shifted(inner, by, watch) for inner in cache.caches)
        return wrapped
    return ShiftedCache(cache, by, watch) if hasattr(cache, "offset") else cache


class PositionWatch:
    """A record of how some forward passes of a model use positions.

    Args:
        model: The model as mlx_lm loads it.
        position: Position that the first token is given.
        unmasked: True to remove the attention's mask.
    """

    def __init__(self, model: Any, position: int = 0, unmasked: bool = False) -> None:
        self._model, self._position, self._unmasked = model, position, unmasked
        self.asked = False
        """True if the model asked for an offset."""
        self.keys: dict[int, int] = {}
        """The most keys that each layer's attention saw."""
        self.computed_itself: set[int] = set()
        """Layers that compute their attention themselves."""
        self._rotated: dict[int, tuple[int, float | None, float, int]] = {}
        self._table = 0
        self._layers: list[int] = []
        """Layers that are running, the innermost last."""
        self._count = self._lookups = 0
        self._quiet = False

    @contextmanager
    def set(self, count: int) -> Iterator[None]:
        """Watch a forward pass of `count` tokens in this block."""
        layers = decoder_layers(self._model)
        index = {id(layer): number for number, layer in enumerate(layers)}
        embeddings = nn.Embedding | nn.QuantizedEmbedding
        tables = [module for _, module in self._model.named_modules() if isinstance(module, embeddings)]
        original_quantized = base.quantized_scaled_dot_product_attention

        def layer(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
            self._layers.append(index[id(module)])
            try:
                return original(module, *args, **kwargs)
            finally:
                self._layers.pop()

        def quantized(queries: mx.array, keys: Any, values: Any, scale: float, mask: Any, **more: Any) -> Any:
            mask = self._saw(keys[0].shape[2], mask)
            self._quiet = True
            try:
                return original_quantized(queries, keys, values, scale, mask, **more)
            finally:
                self._quiet = False

        self._count, self._lookups = count, 0
        with patched(
            (mx.fast, "rope", self._rope),
            (mx.fast, "scaled_dot_product_attention", self._fused),
            (base, "quantized_scaled_dot_product_attention", quantized),
            (mx, "softmax", self._softmax),
            *calls(layers, layer),
            *calls(tables, self._look_up),
        ):
            yield
        self._position += count

    @property
    def use(self) -> PositionUse:
        """The use of positions that was recorded."""
        groups: dict[tuple[int, float | None, float, int], list[int]] = {}
        for layer, how in sorted(self._rotated.items()):
            groups.setdefault(how, []).append(layer)
        rotations = tuple(Rotation(tuple(layers), *how) for how, layers in groups.items())
        way: PositionWay = (
            "rotary" if rotations else "learned" if self._table else "own" if self.asked else "none"
        )
        every = range(len(decoder_layers(self._model)))
        unturned = tuple(layer for layer in every if layer not in self._rotated) if rotations else ()
        keys = max(self.keys.values(), default=0)
        return PositionUse(way, self._position - self._count, keys, rotations, unturned, self._table)

    def same_keys(self, other: PositionWatch) -> Check:
        """The check that the attentions of other forward passes saw the same number of keys."""
        layers = self.keys.keys() | other.keys.keys()
        errors = {layer: abs(self.keys.get(layer, 0) - other.keys.get(layer, 0)) for layer in layers}
        layer = max(errors, key=errors.__getitem__, default=0)
        return view.layer_check("keys", float(errors.get(layer, 0)), 0.0, layer)

    # ---- replacements of MLX's functions ---------------------------------------------------------

    def _rope(self, x: mx.array, dims: int, **how: Any) -> mx.array:
        if self._layers and self._layers[-1] not in self._rotated:
            offset = int(np.array(how.get("offset", 0)).reshape(-1)[0])
            self._rotated[self._layers[-1]] = dims, how.get("base"), how.get("scale", 1.0), offset
        return rope(x, dims, **how)

    def _fused(self, q: mx.array, k: mx.array, v: mx.array, *, mask: Any = None, **more: Any) -> mx.array:
        return fused_attention(q, k, v, mask=self._saw(k.shape[2], mask), **more)

    def _softmax(self, x: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        if self._layers and not self._quiet and x.ndim >= 4:
            self.computed_itself.add(self._layers[-1])
            self._saw(x.shape[-1])
        return softmax(x, *args, **kwargs)

    def _saw(self, keys: int, mask: Any = None) -> Any:
        """Record the number of keys that an attention sees; returns its mask, None to remove it."""
        if self._layers:
            self.keys[self._layers[-1]] = max(keys, self.keys.get(self._layers[-1], 0))
        return None if self._unmasked and self._layers else mask

    def _look_up(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Recognize a table of positions, and refuse a position without a row, which MLX doesn't check."""
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
