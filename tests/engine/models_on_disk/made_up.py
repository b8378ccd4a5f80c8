"""Models made up for a list: a config.json and headers of weights, with no data behind them that anybody reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.model.directory import TensorEntry
from tests.broken_models.breaking import put, safetensors

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""Types and shapes by name."""
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
}
PARAMETERS = 256 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)
KV_NUMBERS = 2 * 2 * 32
"""Of keys and values of a token in both layers."""


def llama(dtype: str = "BF16", bits: int = 0, group: int = 32, layers: int = 2) -> dict[str, Any]:
    """The shapes of a llama of `LLAMA`'s sizes, quantized where bits are given."""
    shapes: dict[str, Any] = {"model.norm.weight": (dtype, (64,))}
    linear = {"model.embed_tokens": (256, 64)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.{name}_layernorm.weight": (dtype, (64,)) for name in ("input", "post_attention")}
        linear |= {f"{at}.self_attn.{name}_proj": (64, 64) for name in "qo"}
        linear |= {f"{at}.self_attn.{name}_proj": (32, 64) for name in "kv"}
        linear |= {f"{at}.mlp.{name}_proj": (128, 64) for name in ("gate", "up")}
        linear |= {f"{at}.mlp.down_proj": (64, 128)}
    for name, (rows, columns) in linear.items():
        shapes |= packed(name, rows, columns, bits, group, dtype) if bits else {
            f"{name}.weight": (dtype, (rows, columns))
        }  # fmt: skip
    return shapes


def packed(name: str, rows: int, columns: int, bits: int, group: int, dtype: str = "BF16") -> dict[str, Any]:
    """The arrays of one quantized weight."""
    return {
        f"{name}.weight": ("U32", (rows, columns * bits // 32)),
        f"{name}.scales": (dtype, (rows, columns // group)),
        f"{name}.biases": (dtype, (rows, columns // group)),
    }


def header(shapes: Shapes) -> bytes:
    """A safetensors file of these, its data zeros."""
    entries, end = {}, 0
    for name, (dtype, shape) in shapes.items():
        size = TensorEntry(dtype, shape).size
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    return safetensors(entries, bytes(end))


def model(path: Path, shapes: Shapes | None = None, **config: Any) -> Path:
    """Write a model's directory: a llama's, unless told otherwise."""
    path.mkdir(parents=True, exist_ok=True)
    put(path, "config.json", {**LLAMA, **config})
    put(path, "tokenizer.json", "{}")
    put(path, "model.safetensors", header(llama() if shapes is None else shapes))
    return path


def repository(cache: Path, name: str, revision: str = "0123abcd", ref: bool = True) -> Path:
    """Write a repository of the hub's cache, without files; returns where its snapshot goes."""
    top = cache / f"models--{name.replace('/', '--')}"
    (top / "blobs").mkdir(parents=True)
    (top / "refs").mkdir()
    if ref:
        (top / "refs" / "main").write_text(revision)
    snapshot = top / "snapshots" / revision
    snapshot.mkdir(parents=True)
    return snapshot


def index(path: Path, files: Mapping[str, str]) -> None:
    """Write the index of weights in several files."""
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict(files)}))
