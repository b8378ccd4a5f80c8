"""Tiny random models, one a family: what mlx_lm builds and loads, and the cache kinds that it makes for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.model.load import Loaded, load
from engine.settings import LoadSettings
from tests import synthetic

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 4096,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "head_dim": 32,
}


def _config(model_type: str, **more: Any) -> dict[str, Any]:
    return {**BASE, "model_type": model_type, **more}


CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _config("llama"),
    "llama-sliding": _config("llama", sliding_window=32, layer_types=["sliding_attention", "full_attention"]),
    "qwen2": _config("qwen2"),
    "qwen3": _config("qwen3"),
    "gemma3": _config("gemma3_text", query_pre_attn_scalar=32, sliding_window=32, sliding_window_pattern=2),
    "gpt2": {
        "model_type": "gpt2",
        "n_ctx": 256,
        "n_embd": 64,
        "n_head": 4,
        "n_layer": 2,
        "n_positions": 256,
        "layer_norm_epsilon": 1e-5,
        "vocab_size": 4096,
    },
    "phi3": _config("phi3", tie_word_embeddings=False),
    "mixtral": _config("mixtral", tie_word_embeddings=False, num_local_experts=4, num_experts_per_tok=2),
    "gpt-oss": _config(
        "gpt_oss",
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=32,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "mamba2": {
        "model_type": "mamba2",
        "num_heads": 4,
        "head_dim": 32,
        "vocab_size": 4096,
        "hidden_size": 64,
        "intermediate_size": 128,
        "state_size": 16,
        "num_hidden_layers": 2,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "tie_word_embeddings": True,
        "time_step_limit": (0.001, 0.1),
        "time_step_rank": "auto",
        "ssm_state_size": 16,
        "residual_in_fp32": False,
        "rms_norm": True,
        "chunk_size": 64,
    },
    "lfm2": _config(
        "lfm2",
        norm_eps=1e-5,
        conv_bias=False,
        conv_L_cache=3,
        block_dim=64,
        block_ff_dim=128,
        block_multiple_of=32,
        block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=True,
        full_attn_idxs=[1],
    ),
    "qwen3-next": _config(
        "qwen3_next",
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        linear_conv_kernel_dim=4,
        num_experts=4,
        num_experts_per_tok=2,
        decoder_sparse_step=1,
        shared_expert_intermediate_size=64,
        mlp_only_layers=[],
        moe_intermediate_size=64,
        norm_topk_prob=True,
        full_attention_interval=2,
        partial_rotary_factor=0.25,
    ),
    "deepseek-v2": _config(
        "deepseek_v2",
        kv_lora_rank=32,
        q_lora_rank=None,
        qk_rope_head_dim=16,
        qk_nope_head_dim=16,
        v_head_dim=32,
        moe_intermediate_size=64,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        rope_scaling={
            "type": "yarn",
            "factor": 1.0,
            "mscale_all_dim": 0,
            "original_max_position_embeddings": 2048,
        },
    ),
}


class Zoo:
    """Builds each model once a test run and loads it once a setting.

    Args:
        directory: Where the models are written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loaded: dict[str, Loaded] = {}

    def path(self, name: str) -> Path:
        """A model's directory: `llama`, `llama:bfloat16`, `llama:4bit` and the like."""
        directory = self._directory / name.replace(":", "-")
        if not directory.exists():
            family, _, variant = name.partition(":")
            bits = int(variant[0]) if variant.endswith("bit") else None
            dtype = getattr(mx, variant) if variant and bits is None else mx.float32
            synthetic.write(directory, CONFIGS[family], dtype=dtype, quantize=bits)
        return directory

    def load(self, name: str, **settings: Any) -> Loaded:
        """A loaded model; `settings` are fields of `LoadSettings`. One of a named type is computed in that."""
        if ":" in name:
            settings.setdefault("dtype", "file")
        key = name + json.dumps(settings, sort_keys=True)
        if key not in self._loaded:
            model = "pocket" if name == "pocket" else str(self.path(name))
            self._loaded[key] = load(LoadSettings(model=model, **settings))
        return self._loaded[key]


Load = Callable[..., Loaded]
