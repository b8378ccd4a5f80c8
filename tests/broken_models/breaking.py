"""How a model directory is broken: a file replaced, a field changed, a tensor's entry falsified."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[Path], None]
Header = dict[str, Any]


def put(directory: Path, name: str, content: bytes | str | Any) -> None:
    """Replace a file: bytes and texts as they are, all else as JSON."""
    path = directory / name
    path.unlink(missing_ok=True)
    if not isinstance(content, bytes | str):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def file(name: str, content: bytes | str | Any) -> Change:
    """Replaces a file."""
    return lambda directory: put(directory, name, content)


def gone(name: str) -> Change:
    """Removes a file."""
    return lambda directory: (directory / name).unlink()


def cut(name: str, keep: float) -> Change:
    """Cuts a file short to a part of it."""

    def change(directory: Path) -> None:
        raw = (directory / name).read_bytes()
        put(directory, name, raw[: int(len(raw) * keep)])

    return change


def fields(name: str, **values: Any) -> Change:
    """Sets fields of a JSON file."""
    return edited(name, lambda content: content | values)


def without(name: str, *keys: str) -> Change:
    """Removes fields of a JSON file."""
    return edited(name, lambda content: {key: value for key, value in content.items() if key not in keys})


def edited(name: str, edit: Callable[[Any], Any]) -> Change:
    """Changes the content of a JSON file."""
    return lambda directory: put(directory, name, edit(json.loads((directory / name).read_bytes())))


def header(edit: Callable[[Header], object], name: str = "model.safetensors") -> Change:
    """Changes the header of a safetensors file, and leaves its data."""

    def change(directory: Path) -> None:
        raw = (directory / name).read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        entries = json.loads(raw[8 : 8 + length])
        entries = edit(entries) or entries
        put(directory, name, safetensors(entries, raw[8 + length :]))

    return change


def safetensors(entries: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of a header, or of bytes in its place."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def nested(depth: int, inner: str = "1") -> str:
    """JSON of so many lists in lists."""
    return "[" * depth + inner + "]" * depth


def late(make: Callable[[], Change]) -> Change:
    """A change whose large content is made when it is needed."""
    return lambda directory: make()(directory)
