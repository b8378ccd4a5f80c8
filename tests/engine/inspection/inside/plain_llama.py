"""A llama in numpy, written from its definition: the reference for what is read inside one."""

from __future__ import annotations

from typing import Any

import numpy as np
from mlx.utils import tree_flatten


class PlainLlama:
    """A llama in numpy, for one sequence, that keeps what each part writes at the last position."""

    def __init__(self, model: Any) -> None:
        arrays = dict(tree_flatten(model.parameters()))
        self.weights = {name: np.array(array).astype(np.float64) for name, array in arrays.items()}
        self.heads, self.groups, self.size, self.eps = 4, 2, 32, 1e-5

    def parts(self, ids: list[int]) -> tuple[dict[str, Any], Any]:
        """Everything that is written to the stream at the last token, and the stream."""
        x = self.weights["model.embed_tokens.weight"][ids]
        written = {"embedding": x[-1]}
        for layer in range(2):
            names = f"model.layers.{layer}."
            heads = self._attention(names, self._norm(x, names + "input_layernorm.weight"))
            x = x + heads.sum(axis=0)
            mlp = self._mlp(names + "mlp.", self._norm(x, names + "post_attention_layernorm.weight"))
            x = x + mlp
            written |= {f"{layer}.{head}": heads[head, -1] for head in range(self.heads)}
            written[f"{layer}.mlp"] = mlp[-1]
        return written, x[-1]

    def shares(self, ids: list[int], token: int) -> dict[str, float]:
        """What each part adds to a token's logit, the final norm's scale held."""
        written, x = self.parts(ids)
        scale = 1 / np.sqrt((x**2).mean() + self.eps)
        along = self.weights["model.norm.weight"] * self.weights["model.embed_tokens.weight"][token]
        return {name: float(part * scale @ along) for name, part in written.items()}

    def _norm(self, x: Any, name: str) -> Any:
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.eps) * self.weights[name]

    def _attention(self, names: str, x: Any) -> Any:
        """What each head writes, shape (heads, tokens, width)."""
        q, k, v = (
            (x @ self.weights[f"{names}self_attn.{part}_proj.weight"].T).reshape(len(x), -1, self.size)
            for part in "qkv"
        )
        q, k = self._turned(q), self._turned(k)
        after = np.triu(np.full((len(x), len(x)), -np.inf), 1)
        out = self.weights[names + "self_attn.o_proj.weight"]
        written = []
        for head in range(self.heads):
            group = head // (self.heads // self.groups)
            scores = q[:, head] @ k[:, group].T / np.sqrt(self.size) + after
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            looked = weights / weights.sum(axis=-1, keepdims=True) @ v[:, group]
            written.append(looked @ out[:, head * self.size : (head + 1) * self.size].T)
        return np.stack(written)

    def _turned(self, x: Any) -> Any:
        """Rotary positions: the two halves of a head are the two coordinates."""
        half = self.size // 2
        angles = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        one, two = x[..., :half], x[..., half:]
        return np.concatenate([one * cos - two * sin, one * sin + two * cos], axis=-1)

    def _mlp(self, names: str, x: Any) -> Any:
        gate, up, down = (self.weights[f"{names}{part}_proj.weight"] for part in ("gate", "up", "down"))
        gated = x @ gate.T
        return gated / (1 + np.exp(-gated)) * (x @ up.T) @ down.T
