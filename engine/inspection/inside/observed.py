"""One forward of one token, observed: which modules run, in which order, and what they are given and return.

What a module is for is taken from what it computes, since names and configs differ from family to family: the heads are
those that the attention's queries and keys have, RoPE's base is the one that the rotation was called with, and so on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models import cache as caches
from mlx_lm.models import switch_layers

from engine.cache.kinds import kind_of
from engine.inspection.inside.taps import flat_caches
from engine.model.patches import Patch, calls, patched
from engine.model.tail import hidden
from engine.protocol import HeadFacts, NormFacts, RopeFacts

EMBEDDINGS = (nn.Embedding, nn.QuantizedEmbedding)
SWITCHED = (switch_layers.SwitchLinear, switch_layers.QuantizedSwitchLinear)
"""The matrices of all experts of a mixture in one array."""
NEVER = 1 << 30
"""The place in the order of a module that wasn't called."""
fused_attention = mx.fast.scaled_dot_product_attention
softmax = mx.softmax
rope = mx.fast.rope
rms_norm, layer_norm = mx.fast.rms_norm, mx.fast.layer_norm


@dataclass(slots=True)
class Seen:
    """What one module did."""

    order: int
    """Of its first call among those of all modules."""
    runs: int = 0
    given: mx.array | None = None
    """The first array among the arguments of its first call."""
    returned: mx.array | None = None
    indices: mx.array | None = None
    """The first array of whole numbers after that: a mixture's chosen experts."""
    heads: HeadFacts | None = None
    rope: RopeFacts | None = None
    norm: NormFacts | None = None


@dataclass(slots=True)
class Observed:
    """What a forward of token 0 on caches of its own did, as `observe` fills it in."""

    model: Any
    seen: dict[int, Seen] = field(default_factory=dict)
    """By `id()` of the module."""
    linear: set[int] = field(default_factory=set)
    """Embeddings whose table made the logits, by `id()`."""
    logits: mx.array | None = None
    _stack: list[Any] = field(default_factory=list)
    _window: int | None = None
    """Of the cache that was read last."""

    def run(self) -> None:
        """Run it."""
        cache = caches.make_prompt_cache(self.model)
        modules = list({id(each): each for _, each in self.model.named_modules() if _callable(each)}.values())
        tables = [module for module in modules if isinstance(module, EMBEDDINGS)]
        patches: list[Patch] = [
            *calls(modules, self._call),
            *calls(tables, self._as_linear, "as_linear"),
            *calls(list(flat_caches(cache, "update_and_fetch")), self._fetch, "update_and_fetch"),
            (mx.fast, "scaled_dot_product_attention", self._fused),
            (mx, "softmax", self._softmax),
            (mx.fast, "rope", self._rope),
            (mx.fast, "rms_norm", self._rms_norm),
            (mx.fast, "layer_norm", self._layer_norm),
        ]
        with patched(*patches):
            self.logits = self.model(mx.array([[0]]), cache=cache)
        mx.eval(self.logits)

    def of(self, module: Any) -> Seen:
        """What a module did; one that wasn't called comes last."""
        return self.seen.get(id(module)) or Seen(NEVER)

    # ---- modules ------------------------------------------------------------------------------

    def _call(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        seen = self._now(module)
        self._stack.append(module)
        try:
            result = original(module, *args, **kwargs)
        finally:
            self._stack.pop()
        seen.runs += 1
        if seen.given is None:
            given = [value for value in (*args, *kwargs.values()) if isinstance(value, mx.array)]
            seen.given = given[0] if given else None
            whole = (value for value in given[1:] if mx.issubdtype(value.dtype, mx.integer) and value.ndim)
            seen.indices = next(whole, None)
            returned = hidden(result) if result is not None else None
            seen.returned = returned if isinstance(returned, mx.array) else None
        return result

    def _now(self, module: Any) -> Seen:
        return self.seen.setdefault(id(module), Seen(len(self.seen)))

    def _as_linear(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        self.linear.add(id(module))
        return original(module, *args, **kwargs)

    # ---- what they compute --------------------------------------------------------------------

    def _fetch(self, original: Any, cache: Any, args: Any, kwargs: Any) -> Any:
        self._window = kind_of(cache).limit(cache)
        return original(cache, *args, **kwargs)

    def _fused(self, q: mx.array, k: mx.array, v: mx.array, **more: Any) -> mx.array:
        if self._stack:
            sinks = more.get("sinks") is not None
            sizes = q.shape[1], k.shape[1], q.shape[-1], v.shape[-1]
            self._now(self._stack[-1]).heads = HeadFacts(*sizes, self._window, sinks)
        return fused_attention(q, k, v, **more)

    def _softmax(self, x: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        """Of an attention of the model's own, which has (rows, heads, queries, keys), or the heads in groups."""
        if self._stack and x.ndim >= 4 and (seen := self._now(self._stack[-1])).heads is None:
            seen.heads = HeadFacts(math.prod(x.shape[1:-2]), 0, 0, 0, self._window)
        return softmax(x, *args, **kwargs)

    def _rope(self, *args: Any, **how: Any) -> mx.array:
        if self._stack:
            dims = args[1] if len(args) > 1 else how["dims"]
            self._now(self._stack[-1]).rope = _rope_facts(dims, self._stack[-1], how)
        return rope(*args, **how)

    def _rms_norm(self, x: mx.array, weight: Any, eps: float, **more: Any) -> mx.array:
        self._norm("RMSNorm", eps)
        return rms_norm(x, weight, eps, **more)

    def _layer_norm(self, x: mx.array, weight: Any, bias: Any, eps: float, **more: Any) -> mx.array:
        self._norm("LayerNorm", eps)
        return layer_norm(x, weight, bias, eps, **more)

    def _norm(self, kind: str, eps: float) -> None:
        if self._stack:
            self._now(self._stack[-1]).norm = NormFacts(kind, eps)


def _callable(module: Any) -> bool:
    """Whether its class has a call of its own: a patch of another would be one of `type`."""
    return any("__call__" in vars(cls) for cls in type(module).__mro__)


def _rope_facts(dims: int, module: Any, how: dict[str, Any]) -> RopeFacts:
    """Of a call of MLX's rotation.

    Args:
        dims: Numbers of each head that are rotated.
        module: That calls it: it may remember the base that its table was made from.
        how: The other arguments.
    """
    theta, scale, table = how.get("base"), float(how.get("scale", 1.0)), how.get("freqs")
    if table is not None:
        periods = np.array(table.astype(mx.float32))
        longest = float(periods.max()) * 2 * math.pi / scale
        known = getattr(module, "base", None)
        theta = float(known) if isinstance(known, int | float) else None
    else:
        longest = 2 * math.pi * float(theta or 1.0) ** ((dims - 2) / dims) / scale
    slowest = longest if math.isfinite(longest) else None
    return RopeFacts(int(dims), None if theta is None else float(theta), scale, slowest, table is not None)


def observe(model: Any) -> Observed:
    """Run one token through a model, on caches of its own, and observe it.

    Args:
        model: As mlx_lm loads it; not changed.
    """
    observed = Observed(model)
    observed.run()
    return observed
