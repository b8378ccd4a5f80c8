"""Models of random weights, for measuring and testing without a real model: mlx_lm builds and loads them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm import utils

from engine import pocket

LLAMA_100M: Mapping[str, Any] = {
    "model_type": "llama",
    "hidden_size": 768,
    "num_hidden_layers": 14,
    "intermediate_size": 2304,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "vocab_size": 8192,
    "max_position_embeddings": 8192,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
"""A llama of 103 million parameters."""
QWEN3_600M: Mapping[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}
"""The shape of Qwen3-0.6B."""


def wide(vocabulary: int) -> Mapping[str, Any]:
    """A small llama of many token ids, as today's models have them: what a row of logits costs is what it costs."""
    return {
        **LLAMA_100M, "hidden_size": 256, "num_hidden_layers": 2, "intermediate_size": 768, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": vocabulary,
    }  # fmt: skip


def write(
    directory: Path,
    config: Mapping[str, Any],
    *,
    dtype: mx.Dtype = mx.float32,
    quantize: int | None = None,
    group_size: int = 32,
    mode: str = "affine",
) -> Path:
    """Write a model of random weights, with the pocket model's tokenizer, where mlx_lm can load it.

    Args:
        directory: Made if it isn't there.
        config: A config.json that mlx_lm knows the model type of.
        dtype: Of the weights.
        quantize: Bits of the weights, None for plain ones.
        group_size: Weights of a scale, where they are quantized.
        mode: MLX's, of the quantization.

    Returns:
        The directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    mx.random.seed(0)
    model_class, arguments = utils._get_classes(dict(config))
    model = model_class(arguments.from_dict(dict(config)))
    weights: Any = tree_flatten(model.parameters())
    model.update(tree_unflatten([(name, _peaked(name, array)) for name, array in weights]))
    model.set_dtype(dtype)
    written = dict(config)
    if quantize is not None:
        model, written = utils.quantize_model(model, written, group_size=group_size, bits=quantize, mode=mode)
    mx.eval(model.parameters())
    utils.save_model(directory, model)
    (directory / "config.json").write_text(json.dumps(written), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(pocket.directory() / name, directory / name)
    return directory


def _peaked(name: str, array: Any) -> Any:
    """Larger embeddings and output projections, so that the distributions have peaks as a trained model's have."""
    if any(part in name for part in ("embed", "wte", "lm_head")):
        return array * 3
    return array * 12 if name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight")) else array
