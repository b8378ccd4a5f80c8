"""The facts of a model on the disk, read from headers, and whether it fits in memory."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from engine.model.directory import TensorEntry

Source = Literal["bundled", "recent", "given", "hub", "LM Studio"]
WORKING_SHARE = 1.1
"""Memory of a loaded model, in bytes of its weights: beside these the program and a chunk's activations take some."""


class StoredWeights(Struct, frozen=True):
    """The facts of a model's weights, from the headers of its files."""

    parameters: int
    """A quantized weight counts as the numbers that it stands for."""
    size: int
    """Bytes of all tensors."""
    bits: tuple[int, ...]
    """Of quantized weights, those of most parameters first; empty where none are quantized."""
    group_size: int | None
    """Numbers that share a scale, where they do."""
    dtype: str
    """`BF16` and the like: of the scales, or of most weights that are not quantized."""

    @property
    def bits_a_parameter(self) -> float:
        """Bits that a parameter takes on the average, its share of the scales with it."""
        return self.size * 8 / self.parameters if self.parameters else 0.0


class KVSize(Struct, frozen=True):
    """Bytes of the KV cache, in the type of the files."""

    growing: int
    """Added by every token, in the layers that keep all of them."""
    windowed: int = 0
    """Added by every token up to `window`, in the layers that keep the last ones alone."""
    window: int = 0
    """Tokens."""

    def at(self, tokens: int) -> int:
        """Bytes after so many tokens."""
        return self.growing * tokens + self.windowed * min(tokens, self.window)

    def tokens_in(self, room: int, most: int) -> int:
        """How many tokens fit in some bytes.

        Args:
            room: Bytes.
            most: Tokens at most.
        """
        if self.at(most) <= room:
            return most
        in_window = min(room // max(1, self.growing + self.windowed), self.window)
        if in_window < self.window or not self.growing:
            return max(0, in_window)
        return max(0, (room - self.at(self.window)) // self.growing + self.window)


class DiskModel(Struct, frozen=True):
    """One model of a list."""

    name: str
    """A hub id, or the last parts of the path; not yet printable."""
    path: Path
    source: Source
    hub_id: str = ""
    """Of what came from the hub; not yet printable."""
    family: str = ""
    """`model_type` of its config.json, empty where it can't be read; not yet printable."""
    layers: int | None = None
    context: int | None = None
    """Tokens, None where the config states none."""
    size: int = 0
    """Bytes of its weights' files."""
    weights: StoredWeights | None = None
    kv: KVSize | None = None
    """None where the headers don't tell."""
    known: bool | None = None
    """True if mlx_lm has this family; None where mlx_lm isn't installed."""
    problem: str = ""
    """Why it can't be loaded, and what to do about it: a sentence or two; not yet printable. Empty where it can be."""
    incomplete: bool = False
    """True if files of it are missing."""
    notes: tuple[str, ...] = ()
    """What else there is to know, a sentence each; not yet printable."""

    @property
    def downloads(self) -> bool:
        """True if opening it downloads what is missing."""
        return self.incomplete and bool(self.hub_id)

    @property
    def spec(self) -> str:
        """What opens it: its path, `pocket`, or its hub id where files of it are missing; empty where nothing does."""
        if self.downloads:
            return self.hub_id
        if self.problem:
            return ""
        return "pocket" if self.source == "bundled" else str(self.path)

    @property
    def bits(self) -> str:
        """How its weights are stored: `4-bit`, `4/6-bit`, `bf16`; empty where that isn't known."""
        if self.weights is None:
            return ""
        if self.weights.bits:
            return "/".join(map(str, self.weights.bits[:2])) + "-bit"
        return self.weights.dtype.lower()

    def fits(self, available: int | None) -> int | None:
        """Tokens of context that fit in memory beside the weights, 0 where the weights don't: an estimate.

        Args:
            available: Bytes of memory that a program can take.

        Returns:
            None where it isn't known.
        """
        if available is None or self.weights is None:
            return None
        room = available - int(self.weights.size * WORKING_SHARE)
        if room <= 0:
            return 0
        return self.kv.tokens_in(room, self.context) if self.kv and self.context else None


# ---- parameters and bits of weights from the headers of their files ----------------------------
# In a quantized weight of mlx the columns, 32 / bits numbers each, and those of its scales, one a group, give the
# product of bits and group size. Which of 4 bits in groups of 64 and 8 bits in groups of 32 it is, a weight tells that
# reads the hidden state, whose width the norms have.

Entries = Mapping[str, TensorEntry]
FLOATS = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}
"""Bytes of the types that a cache can have."""
BITS, GROUPS = (2, 3, 4, 5, 6, 8), (16, 32, 64, 128)
_PRODUCTS = frozenset(bits * group for bits in BITS for group in GROUPS)
MX_FORMATS = {64: (4, 16), 128: (4, 32), 256: (8, 32)}
"""nvfp4, mxfp4 and mxfp8: bits and group size by their product, where scales are bytes."""
_READS_HIDDEN = re.compile(r"(embed\w*|wte|lm_head|[qkv]_proj|gate_proj|up_proj)$")
_NO_PARAMETER = (
    ".scales", ".biases", ".qzeros", ".g_idx", ".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".input_scale",
    ".inv_freq", "_scales", "_scale_inv",
)  # fmt: skip
"""How tensors are called that belong to a weight and are no parameters of their own."""
_BYTES_OF_TWO = "_blocks"
"""How tensors are called that hold two numbers a byte: mxfp4 as on the hub."""


def stored_weights(entries: Entries, config: Mapping[str, Any]) -> StoredWeights:
    """The facts of a model's weights, from the headers.

    Args:
        entries: All tensors of its files.
        config: Its config.json, for the width of the hidden state and for formats that aren't mlx's own.
    """
    packed = _packed(entries, config)
    by_bits: Counter[int] = Counter()
    plain: Counter[str] = Counter()
    claimed = _claimed_bits(config)
    for name, entry in entries.items():
        numbers = math.prod(entry.shape)
        if name in packed:
            by_bits[packed[name][0]] += numbers * 32 // packed[name][0]
        elif name.endswith(".qweight") and claimed:
            by_bits[claimed] += numbers * 32 // claimed
        elif name.endswith(_BYTES_OF_TWO) and entry.dtype == "U8":
            by_bits[4] += numbers * 2
        elif entry.dtype.startswith("F8"):
            by_bits[8] += numbers
        elif not name.endswith(_NO_PARAMETER):
            plain[entry.dtype] += numbers
    groups = Counter(group for _, group in packed.values())
    return StoredWeights(
        parameters=by_bits.total() + plain.total(),
        size=sum(entry.size for entry in entries.values()),
        bits=tuple(bits for bits, _ in by_bits.most_common()),
        group_size=groups.most_common(1)[0][0] if groups else None,
        dtype=_dtype(entries, packed, plain),
    )


def kept_in(dtype: str) -> int:
    """Bytes of a number in a cache of a model whose weights have a type."""
    return FLOATS.get(dtype, 2)


def _dtype(entries: Entries, packed: Mapping[str, object], plain: Counter[str]) -> str:
    """The type that is computed in: that of the scales, else that of most plain weights."""
    scales = (entries.get(f"{name.removesuffix('weight')}scales") for name in packed)
    for kinds in (Counter(one.dtype for one in scales if one), plain):
        if floats := [(count, kind) for kind, count in kinds.items() if kind in FLOATS]:
            return max(floats)[1]
    return max(plain, key=lambda kind: plain[kind], default="")


# ---- quantized weights ------------------------------------------------------------------------


def _packed(entries: Entries, config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Bits and group size of each quantized weight of mlx, by its name."""
    products = dict(_products(entries))
    hidden = _hidden(entries, config)
    sure = {name: way for name, product in products.items() if (way := _way(name, product, entries, hidden))}
    groups = [group for group, _ in Counter(group for _, group in sure.values()).most_common()]
    claimed = _quantization(config).get("group_size")
    if claimed in GROUPS:
        groups.append(claimed)
    return {name: sure.get(name) or _by_group(product, groups) for name, product in products.items()}


def _products(entries: Entries) -> Iterator[tuple[str, int]]:
    """Bits x group size of each quantized weight of mlx."""
    for name, entry in entries.items():
        if entry.dtype != "U32" or not name.endswith("weight") or not entry.shape:
            continue
        scales = entries.get(f"{name.removesuffix('weight')}scales")
        if scales and scales.shape and scales.shape[-1] and not 32 * entry.shape[-1] % scales.shape[-1]:
            product = 32 * entry.shape[-1] // scales.shape[-1]
            if product in _PRODUCTS:
                yield name, product


def _way(name: str, product: int, entries: Entries, hidden: int) -> tuple[int, int] | None:
    """Bits and group size of a weight that tells them; None for one that doesn't."""
    if entries[f"{name.removesuffix('weight')}scales"].dtype == "U8" and product in MX_FORMATS:
        return MX_FORMATS[product]
    if not hidden or not _READS_HIDDEN.search(name.removesuffix(".weight")):
        return None
    bits = 32 * entries[name].shape[-1] // hidden
    if bits in BITS and bits * hidden == 32 * entries[name].shape[-1] and product // bits in GROUPS:
        return bits, product // bits
    return None


def _by_group(product: int, groups: list[int]) -> tuple[int, int]:
    """Bits and group size of a product: with one of the likely groups, else with mlx's own choice of 64."""
    for group in (*groups, 64, 32, 128, 16):
        if not product % group and product // group in BITS:
            return product // group, group
    raise AssertionError("a product is one of BITS and GROUPS")


def _hidden(entries: Entries, config: Mapping[str, Any]) -> int:
    """Width of the hidden state: as the config says, where some norm has it, else that of most norms; 0 without any."""
    widths = Counter(e.shape[0] for e in entries.values() if len(e.shape) == 1 and e.dtype in FLOATS)
    for name in ("hidden_size", "n_embd", "d_model"):
        if isinstance(config.get(name), int) and config[name] in widths:
            return int(config[name])
    return widths.most_common(1)[0][0] if widths else 0


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (config.get(name) for name in ("quantization", "quantization_config"))
    return next((each for each in found if isinstance(each, dict)), {})


def _claimed_bits(config: Mapping[str, Any]) -> int:
    """Bits that a config claims, for formats whose arrays don't tell them; 0 where it claims none."""
    bits = _quantization(config).get("bits")
    return bits if bits in BITS else 0


# ---- bytes of the KV cache a token, from the shapes of the weights that make keys and values ----
# A layer that attends has them, a recurrent one has not, so that hybrids come out right. How wide a fused projection's
# keys are, which layers keep a window alone, and which share the cache of another one, the config tells. Where neither
# does, there is no figure. tests/engine/models_on_disk/test_reading.py holds it against caches of mlx_lm's families.

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
        None where it isn't known.
    """
    widths = _widths(entries, config, source) if str(config.get("model_type")) not in UNTOLD else None
    if widths is None:
        return None
    window = _window(config, source)
    ringed = sum(width for layer, width in widths.items() if window and _is_windowed(layer, config, source))
    return KVSize((sum(widths.values()) - ringed) * itemsize, ringed * itemsize, window)


def _widths(entries: Entries, config: Mapping[str, Any], source: str) -> dict[int, int] | None:
    """Numbers that a token's keys and values take in each layer that has them; None where one isn't known."""
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
    """Numbers that a token takes in one layer: 0 in one without a cache of keys, None where it isn't known."""
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
