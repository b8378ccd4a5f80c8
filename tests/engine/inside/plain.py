"""Transformers by hand, in numpy and float64 from a model's weights alone: a reference that shares nothing with the
engine. What is not looked into by hand, an MLP or a recurrent layer, the model's own module computes."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

Writer = tuple[str, int | None, int | None]
"""Kind, layer and head."""


def numbers(array: Any) -> Any:
    """An array of MLX in float64."""
    return np.array(array.astype(mx.float32)).astype(np.float64)


class Plain:
    """A llama, and what is like one: what writes to its stream, queries and keys of any stream, weights of its heads.

    Args:
        model: As mlx_lm loads it.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.args = model.model, model.args
        self.layers = self.model.layers
        self.heads, self.groups = self.args.num_attention_heads, self.args.num_key_value_heads

    # ---- what differs from family to family -------------------------------------------------------

    @property
    def scale(self) -> float:
        """Of the scores."""
        size = getattr(self.args, "head_dim", 0) or self.args.hidden_size // self.heads
        return float(size) ** -0.5

    def embed(self, ids: list[int]) -> Any:
        """The stream before the first layer, shape (tokens, size)."""
        return numbers(self.model.embed_tokens.weight)[ids]

    def norm(self, layer: int, x: Any, real: Any) -> Any:
        """The norm before the attention of a stream, its scale that of the real one."""
        return self.rms(self.layers[layer].input_layernorm, x, real)

    def rms(self, own: Any, x: Any, real: Any, eps: float = 0.0) -> Any:
        """A norm of the family, its scale that of the real stream."""
        mean = (real**2).mean(-1, keepdims=True)
        return x / np.sqrt(mean + (eps or self.args.rms_norm_eps)) * numbers(own.weight)

    def projected(self, layer: int, x: Any, real: Any) -> tuple[Any, Any, Any]:
        """Queries, keys and values of a stream, shape (tokens, heads, size), turned to their positions."""
        at, own = self.norm(layer, x, real), self.layers[layer].self_attn
        q, k, v = (self.heads_of(at, getattr(own, f"{part}_proj")) for part in "qkv")
        return self.turned(q), self.turned(k), v

    def hides(self, layer: int, tokens: int) -> Any:
        """Which keys each token can't see, shape (tokens, tokens)."""
        return np.triu(np.ones((tokens, tokens), dtype=bool), 1)

    def out(self, layer: int) -> Any:
        """The matrix that what a layer's heads saw is multiplied by."""
        return numbers(self.layers[layer].self_attn.o_proj.weight).T

    def mixed(self, layer: int, x: Any) -> dict[Writer, Any]:
        """What a layer writes before its MLP, by its writers."""
        out, written = self.out(layer), {}
        for head, seen in enumerate(self.seen(layer, x)):
            size = seen.shape[-1]
            written["attention", layer, head] = seen @ out[head * size : (head + 1) * size]
        return written

    def bias(self, layer: int) -> Any:
        """What an attention adds whatever its heads saw."""
        return 0.0

    def mlp(self, layer: int, x: Any) -> Any:
        """What the model's own MLP, or mixture of experts, writes."""
        own = self.layers[layer]
        block = own.block_sparse_moe if hasattr(own, "block_sparse_moe") else own.mlp
        return block(own.post_attention_layernorm(x))

    # ---- what all have in common ------------------------------------------------------------------

    def heads_of(self, x: Any, projection: Any) -> Any:
        """A stream through a projection, shape (tokens, heads, size)."""
        made = x @ numbers(projection.weight).T
        return made.reshape(
            len(x), -1, getattr(self.args, "head_dim", 0) or self.args.hidden_size // self.heads
        )

    def turned(self, x: Any) -> Any:
        """Rotary positions: the two halves of a head are the two coordinates."""
        half = x.shape[-1] // 2
        angles = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        one, two = x[..., :half], x[..., half:]
        return np.concatenate([one * cos - two * sin, one * sin + two * cos], axis=-1)

    def attends(self, layer: int) -> bool:
        """Whether a layer has an attention."""
        return hasattr(self.layers[layer], "self_attn") or hasattr(self.layers[layer], "attn")

    def weights_of(self, layer: int, x: Any) -> Any:
        """The weights of a layer's heads over a stream, shape (heads, tokens, tokens)."""
        q, k, _ = self.projected(layer, x, x)
        k = np.repeat(k, self.heads // k.shape[1], axis=1)
        scores = np.where(self.hides(layer, len(x)), -np.inf, self.scale * np.einsum("qhd,khd->hqk", q, k))
        made = np.exp(scores - scores.max(-1, keepdims=True))
        return made / made.sum(-1, keepdims=True)

    def seen(self, layer: int, x: Any) -> Any:
        """The values under these weights, shape (heads, tokens, size)."""
        v = self.projected(layer, x, x)[2]
        return np.einsum(
            "hqk,khd->hqd", self.weights_of(layer, x), np.repeat(v, self.heads // v.shape[1], axis=1)
        )

    def run(self, ids: list[int], until: int) -> tuple[dict[Writer, Any], list[Any]]:
        """What is written before a layer, by its writers, and the streams before each layer up to it."""
        found: dict[Writer, Any] = {("embedding", None, None): self.embed(ids)}
        streams = [found["embedding", None, None]]
        for layer in range(until):
            x, written = streams[-1], self.mixed(layer, streams[-1])
            x = x + sum(written.values()) + self.bias(layer)
            mlp = numbers(self.mlp(layer, mx.array(x[None].astype(np.float32))))[0]
            found |= {**written, ("mlp", layer, None): mlp}
            streams.append(x + mlp)
        return found, streams

    def weights(self, ids: list[int]) -> dict[int, Any]:
        """The weights of all heads over a text, by layer."""
        _, streams = self.run(ids, len(self.layers) - 1)
        return {layer: self.weights_of(layer, x) for layer, x in enumerate(streams) if self.attends(layer)}

    def shares(self, ids: list[int], layer: int, head: int) -> tuple[dict[Writer, Any], dict[Writer, Any]]:
        """What each writer makes of the last token's scores with the whole query, and with the whole keys."""
        written, (*_, x) = self.run(ids, layer)

        def of(stream: Any) -> tuple[Any, Any]:
            q, k, _ = self.projected(layer, stream, x)
            return q[-1, head], k[:, head // (self.heads // k.shape[1])]

        (query, keys), (no_query, no_keys) = of(x), of(np.zeros_like(x))
        by_key = {name: self.scale * (of(each)[1] - no_keys) @ query for name, each in written.items()}
        by_query = {name: self.scale * keys @ (of(each)[0] - no_query) for name, each in written.items()}
        return by_key, by_query


class Qwen3(Plain):
    """Queries and keys have norms of their own."""

    def projected(self, layer: int, x: Any, real: Any) -> tuple[Any, Any, Any]:
        at, into = self.norm(layer, x, real), self.norm(layer, real, real)
        own = self.layers[layer].self_attn
        q, k, v = (self.heads_of(at, getattr(own, f"{part}_proj")) for part in "qkv")
        q = self.rms(own.q_norm, q, self.heads_of(into, own.q_proj))
        k = self.rms(own.k_norm, k, self.heads_of(into, own.k_proj))
        return self.turned(q), self.turned(k), v


class Qwen3Next(Qwen3):
    """Most layers are recurrent; queries come with gates, and a quarter of a head is turned."""

    def heads_of(self, x: Any, projection: Any) -> Any:
        made, size = x @ numbers(projection.weight).T, self.args.head_dim
        gated = made.shape[-1] == 2 * self.heads * size
        made = made.reshape(len(x), -1, 2 * size if gated else size)
        return made[..., :size]

    def turned(self, x: Any) -> Any:
        turned = int(self.args.head_dim * self.args.partial_rotary_factor)
        return np.concatenate([super().turned(x[..., :turned]), x[..., turned:]], axis=-1)

    def mixed(self, layer: int, x: Any) -> dict[Writer, Any]:
        if self.attends(layer):
            raise NotImplementedError  # the gates, behind the last layer that a test looks at
        own, wide = self.layers[layer], mx.array(x[None].astype(np.float32))
        return {("recurrence", layer, None): numbers(own.linear_attn(own.input_layernorm(wide)))[0]}


class Gemma3(Qwen3):
    """Norms have weights around 0 and follow the parts, too; all layers but some see a window."""

    @property
    def scale(self) -> float:
        return float(self.args.query_pre_attn_scalar) ** -0.5

    def embed(self, ids: list[int]) -> Any:
        return super().embed(ids) * self.args.hidden_size**0.5

    def rms(self, own: Any, x: Any, real: Any, eps: float = 0.0) -> Any:
        mean = (real**2).mean(-1, keepdims=True)
        return x / np.sqrt(mean + self.args.rms_norm_eps) * (1 + numbers(own.weight))

    def hides(self, layer: int, tokens: int) -> Any:
        later = super().hides(layer, tokens)
        if (layer + 1) % self.args.sliding_window_pattern == 0:
            return later
        return later | np.tril(np.ones((tokens, tokens), dtype=bool), -self.args.sliding_window)

    def mixed(self, layer: int, x: Any) -> dict[Writer, Any]:
        written, own = super().mixed(layer, x), self.layers[layer].post_attention_layernorm
        added = sum(written.values())
        return {writer: self.rms(own, each, added) for writer, each in written.items()}

    def mlp(self, layer: int, x: Any) -> Any:
        own = self.layers[layer]
        return own.post_feedforward_layernorm(own.mlp(own.pre_feedforward_layernorm(x)))


class Gpt2(Plain):
    """Learned positions, LayerNorm, biases, and one matrix for queries, keys and values."""

    def __init__(self, model: Any) -> None:
        self.model, self.args, self.layers = model.model, model.args, model.model.h
        self.heads = self.groups = self.args.n_head

    @property
    def scale(self) -> float:
        return float(self.args.n_embd // self.heads) ** -0.5

    def embed(self, ids: list[int]) -> Any:
        return numbers(self.model.wte.weight)[ids] + numbers(self.model.wpe.weight)[: len(ids)]

    def norm(self, layer: int, x: Any, real: Any) -> Any:
        own, centred = self.layers[layer].ln_1, real - real.mean(-1, keepdims=True)
        scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + self.args.layer_norm_epsilon)
        return (x - x.mean(-1, keepdims=True)) * scale * numbers(own.weight) + numbers(own.bias)

    def projected(self, layer: int, x: Any, real: Any) -> tuple[Any, Any, Any]:
        own = self.layers[layer].attn.c_attn
        made = self.norm(layer, x, real) @ numbers(own.weight).T + numbers(own.bias)
        q, k, v = (part.reshape(len(x), self.heads, -1) for part in np.split(made, 3, axis=-1))
        return q, k, v

    def out(self, layer: int) -> Any:
        return numbers(self.layers[layer].attn.c_proj.weight).T

    def bias(self, layer: int) -> Any:
        return numbers(self.layers[layer].attn.c_proj.bias)

    def mlp(self, layer: int, x: Any) -> Any:
        own = self.layers[layer]
        return own.mlp(own.ln_2(x))


class DeepseekV2(Plain):
    """Multi-head latent attention (MLA): keys and values come from one narrow vector, a part of a key from positions
    alone, which is the same for all heads. Its rotary frequencies are those of a context that wasn't stretched."""

    @property
    def scale(self) -> float:
        return float(self.args.qk_nope_head_dim + self.args.qk_rope_head_dim) ** -0.5

    def projected(self, layer: int, x: Any, real: Any) -> tuple[Any, Any, Any]:
        at, into = self.norm(layer, x, real), self.norm(layer, real, real)
        own, args, tokens = self.layers[layer].self_attn, self.args, len(x)
        down, rank = numbers(own.kv_a_proj_with_mqa.weight).T, args.kv_lora_rank
        latent = self.rms(own.kv_a_layernorm, (at @ down)[:, :rank], (into @ down)[:, :rank], 1e-6)
        up = (latent @ numbers(own.kv_b_proj.weight).T).reshape(tokens, self.heads, -1)
        k, v = np.split(up, [args.qk_nope_head_dim], axis=-1)
        q = (at @ numbers(own.q_proj.weight).T).reshape(tokens, self.heads, -1)
        q, turned = np.split(q, [args.qk_nope_head_dim], axis=-1)
        shared = np.repeat(self.turned((at @ down)[:, None, rank:]), self.heads, axis=1)
        return np.concatenate([q, self.turned(turned)], -1), np.concatenate([k, shared], -1), v

    def turned(self, x: Any) -> Any:
        """Neighbours are the two coordinates."""
        made = super().turned(np.concatenate([x[..., ::2], x[..., 1::2]], axis=-1))
        half = x.shape[-1] // 2
        return np.stack([made[..., :half], made[..., half:]], axis=-1).reshape(x.shape)


PLAIN: dict[str, type[Plain]] = {
    "pocket": Plain,
    "llama": Plain,
    "qwen3": Qwen3,
    "gpt2": Gpt2,
    "gemma3": Gemma3,
    "mixtral": Plain,
    "deepseek-v2": DeepseekV2,
    "qwen3-next": Qwen3Next,
}
"""By its name in `tests.zoo`."""
