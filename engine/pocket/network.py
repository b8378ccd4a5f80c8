"""The pocket model's network in PyTorch: a llama, with the parameter names that mlx_lm loads. Needs torch."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from engine.frozen import frozen


@frozen
class Shape:
    """Sizes of the network; the defaults are the pocket model's, as in config.json."""

    vocabulary: int = 4096
    hidden: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    mlp: int = 768
    context: int = 512
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5
    initial_deviation: float = 0.02

    @property
    def head_size(self) -> int:
        """Dimensions of one head."""
        return self.hidden // self.heads


class RMSNorm(nn.Module):
    """Scales a vector to unit root mean square, then by a learned weight."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.epsilon = shape.norm_epsilon
        self.weight = nn.Parameter(torch.ones(shape.hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.epsilon)


def rope_tables(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotary positions, float32, shape (context, head size) each."""
    exponents = torch.arange(0, shape.head_size, 2).float() / shape.head_size
    angles = torch.outer(torch.arange(shape.context).float(), 1 / shape.rope_base**exponents)
    return torch.cat([angles.cos(), angles.cos()], -1), torch.cat([angles.sin(), angles.sin()], -1)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn each pair of dimensions by its position's angle."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Attention(nn.Module):
    """Causal self-attention with grouped key/value heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        kv_size = shape.kv_heads * shape.head_size
        self.q_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_size, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_size, bias=False)
        self.o_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        shape = self.shape
        queries = rotate(self._split(self.q_proj(x), shape.heads), cos, sin)
        keys = rotate(self._split(self.k_proj(x), shape.kv_heads), cos, sin)
        values = self._split(self.v_proj(x), shape.kv_heads)
        group = shape.heads // shape.kv_heads
        keys, values = (side.repeat_interleave(group, 1).to(queries.dtype) for side in (keys, values))
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(x.shape))

    def _split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.shape.head_size).transpose(1, 2)


class MLP(nn.Module):
    """The gated feed-forward part of a layer (SwiGLU)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.down_proj = nn.Linear(shape.mlp, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer: attention, then the feed-forward part, each normed before and added to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape)
        self.mlp = MLP(shape)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """The whole network; the output matrix is the embedding.

    Args:
        shape: Its sizes.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape)
        cos, sin = rope_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise(shape)

    def _initialise(self, shape: Shape) -> None:
        """Normal weights; what writes to the stream is scaled down by the depth, so that the stream keeps its size."""
        into_stream = ("o_proj.weight", "down_proj.weight")
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                scale = 1 / math.sqrt(2 * shape.layers) if name.endswith(into_stream) else 1.0
                nn.init.normal_(weight, std=shape.initial_deviation * scale)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss in nats per token, a float32 scalar.

        Args:
            ids: Token ids, int64, shape (texts, tokens).
            targets: The id after each, same shape and dtype.
        """
        stream = self.embed_tokens(ids)
        length = ids.shape[1]
        cos, sin = (table[:length].to(stream.dtype) for table in (self.cos, self.sin))
        for layer in self.layers:
            stream = layer(stream, cos, sin)
        logits = functional.linear(self.norm(stream), self.embed_tokens.weight)
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
