"""Compare two model directories by a fingerprint, without reading gigabytes.

A fingerprint is BLAKE2b over what determines the numbers: config.json (parsed, without notes on its origin) and,
for the weights files and the adapter's, the name, the size, the safetensors header (every tensor's name, type, shape
and place), and the bytes: all of them in files of up to 32 MiB, else 256 blocks of 4 KiB spread evenly from the first
to the last. It can thus miss a change of a few numbers in a large file, but not another training, quantization or
version. The later comparison of ids and logprobs with the record detects the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import EngineError
from engine.files import CONFIG_LIMIT, open_regular, read_regular
from engine.paths import typed

WHOLE_LIMIT = 32 * 2**20
"""Bytes of a file that are all read."""
BLOCKS, BLOCK = 256, 4096
"""Number of blocks that are read of a larger file, and bytes of a block."""
HEADER_LIMIT = 100 * 2**20
"""Bytes of a safetensors header at most: the limit of the safetensors library."""
_NOTES = frozenset({"_name_or_path", "transformers_version"})
"""Fields of config.json that name a model's origin and change no number."""


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
            _add(digest, typed(str(adapter)), ("adapters.safetensors",), "adapter_config.json")
    except (EngineError, OSError, ValueError, RecursionError):
        return ""
    return digest.hexdigest()


def _add(digest: Any, directory: Path, patterns: Iterable[str], config: str) -> None:
    parsed = json.loads(read_regular(directory / config, CONFIG_LIMIT).decode())
    if isinstance(parsed, dict):
        parsed = {name: value for name, value in parsed.items() if name not in _NOTES}
    digest.update(json.dumps(parsed, sort_keys=True).encode())
    files = sorted({path for pattern in patterns for path in directory.glob(pattern)})
    if not files:
        raise ValueError("no weights")
    for path in files:
        with open_regular(path) as file:
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
