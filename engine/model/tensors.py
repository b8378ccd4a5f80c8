"""Reads the header of a safetensors file: what tensors there are, each checked against the size of the file."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from engine.files import open_regular

Tensors = dict[str, tuple[int, ...]]
"""Shapes by name."""
HEADER_LIMIT = 100_000_000
"""Bytes of a header at most, as in the safetensors library and MLX."""
VALUES = 8_000_000
"""Values of a header at most: some 700,000 tensors."""
BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


class Damaged(ValueError):
    """A file isn't safetensors, or is cut short."""


class TensorEntry(NamedTuple):
    """What a header says of one tensor."""

    dtype: str
    """As safetensors names it: `BF16`."""
    shape: tuple[int, ...]
    size: int
    """Bytes in the file."""


def read_header(path: Path) -> Tensors:
    """The tensors of a file.

    Args:
        path: A safetensors file.

    Returns:
        The shape of each.

    Raises:
        OSError: It can't be read, or is no regular file.
        Damaged: Its header is wrong, or says more than the file holds.
    """
    return {name: entry.shape for name, entry in read_entries(path).items()}


def read_entries(path: Path, limit: int = HEADER_LIMIT) -> dict[str, TensorEntry]:
    """The tensors of a file, with their types.

    Args:
        path: A safetensors file.
        limit: Bytes of its header at most.

    Raises:
        OSError: It can't be read, or is no regular file.
        Damaged: Its header is wrong, or larger, or says more than the file holds.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(limit, size - 8):
            raise Damaged(f"{path.name} has no header")
        text = file.read(length)
    if text.count(b",") + text.count(b"[") + 4 * text.count(b"{") > VALUES:
        raise Damaged(f"{path.name} has a header of too many values")
    try:
        entries = json.loads(text.decode())
    except RecursionError as error:
        raise Damaged(f"the header of {path.name} is nested too deeply") from error
    except ValueError as error:
        raise Damaged(f"the header of {path.name} is no JSON") from error
    if not isinstance(entries, dict):
        raise Damaged(f"the header of {path.name} names no tensors")
    metadata = entries.pop("__metadata__", None)
    if not isinstance(metadata, dict | None):
        raise Damaged(f"the header of {path.name} has metadata of another kind")
    return {name: _entry(name, entry, size - 8 - length) for name, entry in entries.items()}


def _entry(name: str, entry: Any, size: int) -> TensorEntry:
    """One tensor, checked.

    Args:
        name: For the message.
        entry: Its entry in the header.
        size: Bytes of data in the file.
    """
    entry = entry if isinstance(entry, dict) else {}
    shape, span, dtype = entry.get("shape"), entry.get("data_offsets"), entry.get("dtype")
    if not (_whole(shape) and _whole(span) and len(span) == 2 and isinstance(dtype, str)):
        raise Damaged(f"the entry of {name[:100]!r} is wrong")
    begin, end = span
    if not begin <= end <= size:
        raise Damaged(f"{name[:100]!r} lies beyond the end of the file")
    if dtype in BITS and math.prod(shape) * BITS[dtype] != (end - begin) * 8:
        raise Damaged(f"{name[:100]!r} has another size than its shape")
    return TensorEntry(dtype, tuple(shape), end - begin)


def _whole(values: Any) -> bool:
    """Whether this is a list of numbers that count something."""
    if not isinstance(values, list) or not set(map(type, values)) <= {int}:
        return False
    return not values or (min(values) >= 0 and max(values) < 2**63)
