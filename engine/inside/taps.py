"""Taps: record the inputs, outputs and attention weights of a model's layers in a forward pass.

No model of mlx_lm is changed or known by name. While a tap is set, it replaces what they all call:

- `mx.fast.scaled_dot_product_attention`, the fused attention, which some models call without mlx_lm's base module;
- `mlx_lm.models.base.quantized_scaled_dot_product_attention`, which that module calls for quantized caches;
- `mx.softmax` of four or more dimensions, for models with their own attention (routers of experts have fewer);
- the calls of the layers and, on request, of their direct children;
- the methods of caches that return keys, to know the positions of an attention's keys, and `mx.take_along_axis` of
  these keys, for models that attend to a selection of them.

An `Edits` may change what heads, parts and layers return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import mlx.core as mx
import mlx_lm.models.base as base
import numpy as np
from msgspec import Struct, field

from engine.cache.kinds import kind_of
from engine.model.layers import Patch, calls, decoder_layers, hidden, kept, parts_of, patched, with_hidden

# ---- attention weights, computed again from the queries and keys that a fused attention was given ----

UNITS = {mx.float32: 2.0**-24, mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}
"""Unit roundoff of each dtype."""


def unit_of(dtype: mx.Dtype) -> float:
    """The unit roundoff of a dtype: its largest relative rounding error."""
    return UNITS.get(dtype, UNITS[mx.float32])


class AttentionInputs(Struct, frozen=True):
    """Arguments of one attention, with dequantized keys and values."""

    queries: mx.array
    """Shape (1, heads, tokens, size)."""
    keys: mx.array
    """Shape (1, KV heads, keys, size)."""
    values: mx.array
    """Shape (1, KV heads, keys, size of values)."""
    scale: float
    mask: Any
    """Mask: None, `causal`, booleans, or numbers to add."""
    sinks: mx.array | None
    """A logit for each head that takes a share of the softmax but has no value vector."""


def attention_weights(
    given: AttentionInputs, output: mx.array
) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """The weights of a fused attention: softmax(scale x Q K^T + mask), in float32.

    Heads that share keys are grouped instead of repeating the keys. MLX's CPU rounds each score to the dtype of the
    queries, which moves a score s by at most u |s|, and its weight by that share: in bfloat16, with u = 2**-8, a
    score of 16 by 6 %.

    Args:
        given: The arguments of the attention.
        output: Its result, shape (1, heads, tokens, size).

    Returns:
        The weights, shape (heads, tokens, keys); the share of each head that its sink takes, shape (heads, tokens); and
        two scalars: the largest change of a weight by the model's own rounding, as a share of it, and the largest
        difference of the output from the values under these weights, as a share of the largest output.
    """
    queries, keys = given.queries.astype(mx.float32), given.keys.astype(mx.float32)
    _, heads, tokens, size = queries.shape
    groups, count = keys.shape[1], keys.shape[2]
    grouped = (queries * given.scale).reshape(groups, heads // groups * tokens, size)
    scores = (grouped @ keys[0].swapaxes(-1, -2)).reshape(1, heads, tokens, count)
    rounding = mx.abs(scores).max() * unit_of(given.queries.dtype)
    mask = given.mask
    if isinstance(mask, str):  # "causal": the last query sees all keys
        mask = mx.arange(count - tokens, count)[:, None] >= mx.arange(count)[None]
    if mask is not None:
        hides = mask.dtype == mx.bool_
        scores = mx.where(mask, scores, -mx.inf) if hides else scores + mask.astype(mx.float32)
    scores = scores[0]
    if given.sinks is None:
        weights, sink_shares = softmax(scores, axis=-1), mx.zeros((heads, tokens))
    else:
        sinks = mx.broadcast_to(given.sinks.astype(mx.float32).reshape(-1, 1, 1), (heads, tokens, 1))
        shares = softmax(mx.concatenate([sinks, scores], axis=-1), axis=-1)
        weights, sink_shares = shares[..., 1:], shares[..., 0]
    values, fused = given.values[0].astype(mx.float32), output[0].astype(mx.float32)
    mine = weights.reshape(len(values), heads // len(values) * tokens, count) @ values
    off = mx.abs(mine.reshape(fused.shape) - fused).max() / mx.maximum(mx.abs(fused).max(), 1e-9)
    return weights, sink_shares, rounding, off


# ---- taps --------------------------------------------------------------------------------------

fused_attention = mx.fast.scaled_dot_product_attention
"""MLX's own function; MLX's attribute is patched while taps are set, as are those of the next two."""
softmax = mx.softmax
take_along_axis = mx.take_along_axis
KEYS = 2
"""Axis of the keys in arrays of shape (rows, KV heads, keys, size)."""
FETCHES = ("update_and_fetch", "keys_and_values")
"""Methods of caches that return keys and values; layers that share another layer's cache call the second."""


class Edits:
    """Changes to a forward pass; this one changes nothing."""

    def heads(self, layer: int, output: mx.array) -> mx.array:
        """Change the output of the heads of a layer's attention, shape (rows, heads, tokens, size)."""
        return output

    def part(self, layer: int, name: str, result: Any) -> Any:
        """Change the result of a direct child of a layer."""
        return result

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        """Change the result of a layer; `given` is the residual stream before it."""
        return result


class LayerRun(Struct):
    """One call of a decoder layer."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    @property
    def given(self) -> mx.array:
        """The residual stream before the layer, shape (rows, tokens, size); gemma3n has several, on a first axis."""
        state: mx.array = self.args[0] if self.args else next(iter(self.kwargs.values()))
        return state

    @property
    def state(self) -> mx.array:
        """The residual stream after it."""
        return hidden(self.result)


class AttentionRun(Struct):
    """One attention within a layer."""

    layer: int
    kind: Literal["fused", "quantized", "softmax"]
    """`softmax`: the model computes its attention itself, and the weights are its own."""
    weights: mx.array
    """Float32, shape (heads, tokens, keys), evaluated; one axis if they can't be computed."""
    sinks: mx.array | None
    """Share of each head that its sink takes, shape (heads, tokens); None without sinks."""
    kv_heads: int
    positions: list[int] | None
    """Position of each key, in the order of the keys; None if the positions are unknown."""
    error: float | None
    """Error of the values under these weights against the output; None if the weights are the model's own."""
    rounding: float
    """Part of that error that the rounding of scores in the model's dtype may cause."""
    output: mx.array | None
    """Shape (rows, heads, tokens, size); None for the model's own attention."""


class PartRun(Struct):
    """One call of a layer's direct child."""

    layer: int
    name: str
    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    attention: list[AttentionRun]


class Taps(Struct):
    """A record of one forward pass of a model, made while it is `set`.

    Args:
        model: The model as mlx_lm loads it.
        caches: Caches of the forward pass, for the positions of their keys.
        attention: True to compute weights.
        parts: True to record the calls of the layers' children.
        streams: True to record the streams that layers are given and return; with edits they always are.
        edits: Changes to what is computed; None for none.
        also: More patches, set with these.
        take: Receives each attention, which is then not stored: the weights of all layers at once may be large.
        keep: False to record nothing: only the edits act, and a prefill of any length stores no array.
        places: Tokens of the forward pass whose streams are stored, evaluated as the layers run; None for all, lazy.
    """

    model: Any
    caches: Sequence[Any] = ()
    attention: bool = True
    parts: bool = False
    streams: bool = True
    edits: Edits | None = None
    also: Sequence[Patch] = ()
    take: Callable[[AttentionRun], None] | None = None
    keep: bool = True
    places: Sequence[int] | None = None
    called: bool = False
    """True once a layer was called as a whole; some models run the parts of their layers themselves."""
    layers: dict[int, LayerRun] = field(default_factory=dict)
    """Calls by the layer's index; the last one of a layer that ran more than once."""
    embedded: mx.array | None = None
    """The residual stream before the layer that ran first."""
    attended: list[AttentionRun] = field(default_factory=list)
    written: list[PartRun] = field(default_factory=list)
    _layer_now: int | None = None
    """Index of the layer that is running."""
    _in_part: bool = False
    """True within a child of a layer."""
    _quiet: bool = False
    """True within the quantized attention, whose softmax is not the model's own."""
    _fetched: dict[int, tuple[Any, Any, list[int] | None]] = field(default_factory=dict)
    """The keys that caches returned, by `id()`, and referenced so that the ids stay valid; the cache; and the keys'
    indices, if they are a selection."""
    _own: list[Any] = field(default_factory=list)
    """Caches that the running layer has fetched from."""
    _index: dict[int, int] = field(default_factory=dict)
    _cut: dict[int, tuple[mx.array, mx.array]] = field(default_factory=dict)
    """Arrays of the running layer, by `id()`, and their stored tokens: one array stays the same object."""

    @contextmanager
    def set(self) -> Iterator[Taps]:
        """Tap the forward passes of the model in this block."""
        layers = decoder_layers(self.model)
        self._index = {id(layer): number for number, layer in enumerate(layers)}
        quantized = base.quantized_scaled_dot_product_attention
        patches: list[Patch] = [
            (mx.fast, "scaled_dot_product_attention", self._fused),
            (base, "quantized_scaled_dot_product_attention", partial(self._quantized, quantized)),
            (mx, "softmax", self._softmax),
            (mx, "take_along_axis", self._chosen),
            *calls(layers, self._recorded if self.streams or self.edits else self._layer),
            *(self._around_parts(layers) if self.parts else ()),
            *(patch for name in FETCHES for patch in calls(list(flat_caches(self.caches, name)), self._fetch, name)),
            *self.also,
        ]  # fmt: skip
        try:
            with patched(*patches):
                yield self
        finally:
            self._fetched.clear()

    # ---- layers and parts ---------------------------------------------------------------------

    def _layer(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Run a layer; attentions that run meanwhile belong to it."""
        self.called = True
        self._own.clear()
        self._cut.clear()
        outer, self._layer_now = self._layer_now, self._index[id(module)]
        try:
            return original(module, *args, **kwargs)
        finally:
            self._layer_now = outer

    def _recorded(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Run a layer, and record what it is given and returns."""
        index = self._index[id(module)]
        run = LayerRun(args, kwargs, None)
        given = kept(run.given)
        run.args, run.kwargs = with_stream(run, given)
        if self.embedded is None:
            self.embedded = given
        result = self._layer(original, module, args, kwargs)
        if self.edits is not None:
            result = self.edits.layer(index, given, result)
        if self.keep:
            run.result = with_hidden(result, kept(hidden(result)))
            if self.places is not None:
                tokens = given.shape[1]
                run = LayerRun(
                    *(self._of_places(part, tokens) for part in (run.args, run.kwargs, run.result))
                )
                mx.eval(hidden(result), [cut for _, cut in self._cut.values()])
                self._cut.clear()
            self.layers[index] = run
        return result

    def _of_places(self, value: Any, tokens: int) -> Any:
        """An argument or a result with only the stored tokens of its hidden states."""
        if type(value) in (tuple, list):
            return type(value)(self._of_places(each, tokens) for each in value)
        if type(value) is dict:
            return {name: self._of_places(each, tokens) for name, each in value.items()}
        if self.places is None or not isinstance(value, mx.array):
            return value
        if (axis := token_axis(value, tokens)) is None:
            return value
        if id(value) not in self._cut:
            places = mx.array(list(self.places), dtype=mx.int32)
            self._cut[id(value)] = value, mx.take(value, places, axis=axis)
        return self._cut[id(value)][1]

    def _around_parts(self, layers: Sequence[Any]) -> list[Patch]:
        """Patches that edit and record the calls of the layers' children."""
        children = [(index, *part) for index, layer in enumerate(layers) for part in parts_of(layer)]
        names = {id(child): (index, name) for index, name, child in children}

        def part(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
            if self._in_part:  # a part within a part writes to it, not to the residual stream
                return original(module, *args, **kwargs)
            before = len(self.attended)
            self._in_part = True
            try:
                result = original(module, *args, **kwargs)
            finally:
                self._in_part = False
            index, name = names[id(module)]
            if self.edits is not None:
                result = self.edits.part(index, name, result)
            if self.keep and self._layer_now is not None:
                tokens = hidden(result).shape[1] if hidden(result).ndim == 3 else 0
                args, kwargs, made = (self._of_places(each, tokens) for each in (args, kwargs, result))
                self.written.append(PartRun(index, name, module, args, kwargs, made, self.attended[before:]))
            return result

        return calls([child for *_, child in children], part)

    # ---- attention ----------------------------------------------------------------------------

    def _fused(
        self, q: mx.array, k: mx.array, v: mx.array, *, scale: float, mask: Any = None, sinks: Any = None,
        **more: Any,
    ) -> mx.array:  # fmt: skip
        output = fused_attention(q, k, v, scale=scale, mask=mask, sinks=sinks, **more)
        return self._attended("fused", AttentionInputs(q, k, v, scale, mask, sinks), output, k)

    def _quantized(
        self, original: Any, queries: mx.array, q_keys: Any, q_values: Any, scale: float, mask: Any,
        group_size: int = 64, bits: int = 8,
    ) -> mx.array:  # fmt: skip
        unscaled = queries * 1  # the original scales its argument in place
        self._quiet = True
        try:
            output: mx.array = original(
                queries, q_keys, q_values, scale=scale, mask=mask, group_size=group_size, bits=bits
            )
        finally:
            self._quiet = False
        if self._layer_now is None:
            return output
        keys, values = (
            mx.dequantize(weights, scales, biases, group_size=group_size, bits=bits)
            for weights, scales, biases in (q_keys, q_values)
        )
        inputs = AttentionInputs(unscaled, keys, values, scale, mask, None)
        return self._attended("quantized", inputs, output, q_keys)

    def _softmax(self, x: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        shares = softmax(x, *args, **kwargs)
        if self._layer_now is None or self._quiet or x.ndim < 4:
            return shares
        positions = self._positions(None, *shares.shape[-2:])
        if positions is None:  # not over keys: deepseek_v41 mixes its streams with a softmax
            return shares
        if self.attention:
            weights = shares.reshape(-1, *shares.shape[-2:]).astype(mx.float32)
            mx.eval(weights)
            (self.take or self.attended.append)(
                AttentionRun(self._layer_now, "softmax", weights, None, 0, positions, None, 0.0, None)
            )
        if self.edits is None:
            return shares
        heads = shares.reshape(shares.shape[0], -1, *shares.shape[-2:])
        return self.edits.heads(self._layer_now, heads).reshape(shares.shape)

    def _attended(self, kind: Any, given: AttentionInputs, output: mx.array, keys: Any) -> mx.array:
        """Record one attention, and return its output with the edits."""
        if self._layer_now is None:
            return output
        if self.keep:
            weights, sinks, error, rounding = mx.zeros((0,)), None, None, 0.0
            readable = given.queries.shape[0] == 1  # not if each token has its own row and its own keys
            if self.attention and readable:
                weights, sink_shares, rounded, wrong = attention_weights(given, output)
                sinks = None if given.sinks is None else sink_shares
                # Layer by layer: the float32 copies of all layers' keys at once would take several times the cache.
                mx.eval(weights, sink_shares, wrong, rounded)
                error, rounding = float(np.array(wrong)), float(np.array(rounded))
            tokens, count = given.queries.shape[KEYS], given.keys.shape[KEYS]
            positions = self._positions(keys, tokens, count) if readable else None
            kv_heads, stored = given.keys.shape[1], self._of_places(output, tokens)
            (self.take or self.attended.append)(
                AttentionRun(
                    self._layer_now, kind, weights, sinks, kv_heads, positions, error, rounding, stored
                )
            )
        return output if self.edits is None else self.edits.heads(self._layer_now, output)

    # ---- positions of the keys ------------------------------------------------------------------

    def _fetch(self, original: Any, cache: Any, args: Any, kwargs: Any) -> Any:
        fetched = original(cache, *args, **kwargs)
        self._fetched[id(fetched[0])] = fetched[0], cache, None
        self._own.append(cache)
        return fetched

    def _chosen(self, array: mx.array, indices: mx.array, axis: int | None = None, **more: Any) -> mx.array:
        chosen = take_along_axis(array, indices, axis=axis, **more)
        known = self._fetched.get(id(array))
        if known is not None and axis == KEYS and chosen.shape[:KEYS] == (1, 1) and known[2] is None:
            self._fetched[id(chosen)] = chosen, known[1], np.array(indices[0, 0, :, 0]).tolist()
        return chosen

    def _positions(self, keys: Any, tokens: int, count: int) -> list[int] | None:
        """The positions of an attention's keys in the path.

        Args:
            keys: The object that a cache returned; a layer that shares another's keys is given the same one. A model
                may also compute other keys from what the layer fetched.
            tokens: Number of tokens that ran.
            count: Number of keys.
        """
        if (known := self._fetched.get(id(keys))) is not None:
            _, cache, chosen = known
            if chosen is None:
                return kind_of(cache).key_positions(cache, count)
            positions = kind_of(cache).key_positions(cache, cache.size())
            return None if positions is None else [positions[index] for index in chosen]
        read = (kind_of(cache).key_positions(cache, count) for cache in reversed(self._own))
        if (found := next((positions for positions in read if positions is not None), None)) is not None:
            return found
        return None if self.caches or count != tokens else list(range(count))


def with_stream(run: LayerRun, stream: mx.array) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a layer's call with another residual stream."""
    if run.args:
        return (stream, *run.args[1:]), run.kwargs
    return (), {**run.kwargs, next(iter(run.kwargs)): stream}


def token_axis(value: mx.array, tokens: int) -> int | None:
    """The axis of the tokens in hidden states, outputs of heads, and arrays with a number per token; None for other
    arrays."""
    if value.ndim == 2 and value.shape == (tokens, 1):
        return 0
    axis = {3: 1, 4: 2}.get(value.ndim, 0)
    return axis if axis and value.shape[0] == 1 and value.shape[axis] == tokens else None


def flat_caches(caches: Sequence[Any], method: str = "") -> Iterator[Any]:
    """All caches, with those inside other caches; if a method is named, only those that have it."""
    for cache in caches:
        if hasattr(cache, "caches"):
            yield from flat_caches(cache.caches, method)
        elif not method or hasattr(cache, method):
            yield cache
