"""Parameters and bits of weights from the headers of their files: what a config claims of them is not believed.

In a quantized weight of mlx the columns, 32 / bits numbers each, and those of its scales, one a group, give the product
of bits and group size. Which of 4 bits in groups of 64 and 8 bits in groups of 32 it is, a weight tells that reads the
hidden state, whose width the norms have.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from engine.model.directory import TensorEntry
from engine.models_on_disk.facts import StoredWeights

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
    """What the headers say of a model's weights.

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
