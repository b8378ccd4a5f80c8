"""Tell whether two model directories hold the same model, without reading gigabytes.

A fingerprint is BLAKE2b over what makes the numbers: config.json (parsed, without notes on where it came from) and,
for each weights file and the adapter's, its name, its size, its safetensors header (every tensor's name, type, shape
and place), and its bytes: all of them in files of up to 32 MiB, else 256 blocks of 4 KiB spread evenly from the first
to the last. A change of a few numbers in a large file can so go unseen; another training, quantization or version
can't. What is verified after it, ids and logprobs against the record, sees the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

WHOLE_LIMIT = 32 * 2**20
"""Bytes of a file that are all read."""
BLOCKS, BLOCK = 256, 4096
"""How many blocks of a larger file are read, and the bytes of each."""
HEADER_LIMIT = 100 * 2**20
"""Bytes of a safetensors header at most, as its own library has it."""
_NOTES = frozenset({"_name_or_path", "transformers_version"})
"""Of config.json: what says where a model came from, and changes nothing."""


def fingerprint(directory: Path | str, adapter: Path | str | None = None) -> str:
    """The fingerprint of a model directory.

    Args:
        directory: Holds config.json and the weights.
        adapter: Directory of an adapter, where one is used.

    Returns:
        32 hexadecimal digits; empty where a file can't be read, so that nothing is known.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        _add(digest, Path(directory), ("model*.safetensors",), "config.json")
        if adapter is not None:
            _add(digest, Path(adapter).expanduser(), ("adapters.safetensors",), "adapter_config.json")
    except (OSError, ValueError, RecursionError):
        return ""
    return digest.hexdigest()


def _add(digest: Any, directory: Path, patterns: Iterable[str], config: str) -> None:
    found = json.loads((directory / config).read_text(encoding="utf-8"))
    if isinstance(found, dict):
        found = {name: value for name, value in found.items() if name not in _NOTES}
    digest.update(json.dumps(found, sort_keys=True).encode())
    files = sorted({path for pattern in patterns for path in directory.glob(pattern)})
    if not files:
        raise ValueError("no weights")
    for path in files:
        with path.open("rb") as file:
            _weights(digest, path.name, file)


def _weights(digest: Any, name: str, file: BinaryIO) -> None:
    size = os.fstat(file.fileno()).st_size
    digest.update(f"{name} {size}\n".encode())
    if size <= WHOLE_LIMIT:
        digest.update(file.read())
        return
    length = int.from_bytes(file.read(8), "little")
    begin = 8 + length if length <= min(HEADER_LIMIT, size - 8) else 8  # else it is no safetensors file
    digest.update(file.read(begin - 8))
    for block in range(BLOCKS):
        file.seek(begin + block * max(0, size - begin - BLOCK) // (BLOCKS - 1))
        digest.update(file.read(BLOCK))
