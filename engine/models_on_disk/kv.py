"""Bytes of the KV cache a token, from the shapes of the weights that make keys and values.

A layer that attends has them, a recurrent one has not, so that hybrids come out right. How wide a fused projection's
keys are, which layers keep a window alone, and which share the cache of another one, the config tells. Where neither
does, there is no figure. tests/engine/models_on_disk/test_kv.py compares it with the caches of mlx_lm's families.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from engine.models_on_disk.facts import KVSize
from engine.models_on_disk.weights import Entries

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d{1,6})\.(.+)$")
_OTHER_TOWER = re.compile(r"vision|visual|audio|image|(^|\.)mtp\.|speech")
_KEY = re.compile(r"(?:^|\.)(k_proj|c_k|attn_key|wk|k)\.weight$")
_VALUE = re.compile(r"(?:^|\.)(v_proj|c_v|attn_value|wv|v)\.weight$")
_FUSED = re.compile(
    r"(?:^|\.)(qkv_proj|q_k_v_proj|query_key_value|c_attn|[Ww]qkv|att_proj|qkv|W_pack|attn_qkv)\.weight$"
)
_UNREADABLE = re.compile(r"(?:^|\.)(k_proj|v_proj|wk|wv|qkv_proj|c_attn)\.qweight$")
_LATENT = re.compile(r"(?:^|\.)kv_a_proj_with_mqa\.weight$")
_RECURRENT = re.compile(r"conv1d|A_log|q_conv|k_conv|r_proj|g_norm|qkv_conv")
_KEEPS_ALL = re.compile(r"(?<!Rotating)KVCache\(")
_PATTERN = re.compile(r"sliding_window_pattern: int = (\d+)")
UNTOLD = frozenset(
    {"baichuan_m1", "deepseek_v32", "glm_moe_dsa", "mimo_v2_flash", "minimax_m3_vl", "nanbeige"}
)
"""Families whose caches hold other than their shapes tell: windows of their own, what a sparse attention looks tokens
up by, layers that run several times."""


def kv_size(entries: Entries, config: Mapping[str, Any], source: str, itemsize: int) -> KVSize | None:
    """Bytes a token of all layers together.

    Args:
        entries: The tensors of the model's files.
        config: Its config.json, or the text model's part of it.
        source: Of its family in mlx_lm.
        itemsize: Bytes of a number.

    Returns:
        None where it can't be told.
    """
    widths = _widths(entries, config, source) if str(config.get("model_type")) not in UNTOLD else None
    if widths is None:
        return None
    window = _window(config, source)
    ringed = sum(width for layer, width in widths.items() if window and _is_windowed(layer, config, source))
    return KVSize((sum(widths.values()) - ringed) * itemsize, ringed * itemsize, window)


def _widths(entries: Entries, config: Mapping[str, Any], source: str) -> dict[int, int] | None:
    """Numbers that a token's keys and values take in each layer that has them; None where one can't be told."""
    layers = _layers(entries)
    most = _number(config, "num_hidden_layers", "n_layer", "n_layers") or len(layers)
    own = most - _number(config, "num_kv_shared_layers")
    widths: dict[int, int] = {}
    alike: dict[tuple[Any, ...], int | None] = {}
    for layer, names in layers.items():
        if layer >= own:
            continue
        key = tuple(names.items())
        if key not in alike:
            alike[key] = _width(names, config, source)
        width = alike[key]
        if width is None:
            return None
        if width:
            widths[layer] = width
    return widths if layers else None


def _layers(entries: Entries) -> dict[int, dict[str, tuple[int, ...]]]:
    """The shapes of each layer's tensors by their names in it."""
    layers: dict[int, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for name, entry in entries.items():
        if (match := _LAYER.search(name)) and not _of_other_tower(name[: match.start(1)]):
            layers[int(match[1])][match[2]] = entry.shape
    return layers


@lru_cache(maxsize=1000)
def _of_other_tower(place: str) -> bool:
    return bool(_OTHER_TOWER.search(place))


def _width(names: Mapping[str, tuple[int, ...]], config: Mapping[str, Any], source: str) -> int | None:
    """Numbers that a token takes in one layer: 0 in one without a cache of keys, None where it can't be told."""
    recurrent = {_part(name) for name in names if _RECURRENT.search(name)}
    names = {name: shape for name, shape in names.items() if _part(name) not in recurrent}
    if latent := [shape for name, shape in names.items() if _LATENT.search(name)]:
        each = [_latent(shape, config, source) for shape in latent]
        return sum(filter(None, each)) if all(each) else None
    keys, values = (
        sum(s[-2] for n, s in names.items() if of.search(n) and len(s) > 1) for of in (_KEY, _VALUE)
    )
    if keys or values:
        return keys + (values or keys)  # in gemma4's full attention the keys are the values
    if fused := next((shape for name, shape in names.items() if _FUSED.search(name)), None):
        return _fused(fused, config)
    if any(_UNREADABLE.search(name) for name in names):
        return _by_config(config)
    return None if any("attn" in _part(name) and "norm" not in _part(name) for name in names) else 0


def _part(name: str) -> str:
    """The part of a layer that a tensor belongs to: `self_attn`. One with a convolution or a decay is recurrent."""
    return name.partition(".")[0]


def _latent(shape: tuple[int, ...], config: Mapping[str, Any], source: str) -> int | None:
    """Of latent attention: mlx_lm's later families keep what is compressed, the earlier ones all heads."""
    if "MultiLinear" in source:
        return shape[-2]
    heads = _number(config, "num_attention_heads")
    parts = [_number(config, name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")]
    return heads * sum(parts) or None


def _fused(shape: tuple[int, ...], config: Mapping[str, Any]) -> int | None:
    """Of a projection that makes queries, keys and values at once: what is left of it beside the queries."""
    heads = _number(config, "num_attention_heads", "n_head", "num_heads")
    hidden = _number(config, "hidden_size", "n_embd", "d_model")
    queries = heads * _number(config, "head_dim") or hidden
    left = max(shape[-2:]) - queries if queries else 0  # GPT-2 has its columns where others have rows
    return left if left > 0 else None


def _by_config(config: Mapping[str, Any]) -> int | None:
    heads = _number(config, "num_attention_heads", "n_head", "num_heads")
    kv_heads = _number(config, "num_key_value_heads", "num_kv_heads", "multi_query_group_num") or heads
    if config.get("multi_query") is True:
        kv_heads = 1
    hidden = _number(config, "hidden_size", "n_embd", "d_model")
    size = _number(config, "head_dim") or (hidden // heads if heads else 0)
    return 2 * kv_heads * size or None


def _window(config: Mapping[str, Any], source: str) -> int:
    """Tokens that some layers keep: 0 where mlx_lm has no ring for the family."""
    names = ("sliding_window", "sliding_window_size", "window_size", "attention_window_size")
    return _number(config, *names) if "RotatingKVCache" in source else 0


def _is_windowed(layer: int, config: Mapping[str, Any], source: str) -> bool:
    kinds, pattern = config.get("layer_types"), config.get("sliding_window_pattern")
    if not _KEEPS_ALL.search(source):
        return True
    if isinstance(kinds, list):
        return layer < len(kinds) and kinds[layer] == "sliding_attention"
    if isinstance(pattern, str) and pattern:  # exaone4: LLLG
        return pattern[layer % len(pattern)] == "L"
    usual = _PATTERN.search(source)
    every = _number(config, "sliding_window_pattern") or (int(usual[1]) if usual else 0)
    return bool(every) and (layer + 1) % every != 0


def _number(config: Mapping[str, Any], *names: str) -> int:
    """The first of some fields that is a number, 0 where there is none."""
    values = (config.get(name) for name in names)
    return next((value for value in values if type(value) is int and value > 0), 0)
