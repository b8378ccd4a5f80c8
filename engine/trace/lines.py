"""One line of a trace: the header or the entry that it is, and its bytes with their checksum.

The end of a line, its parts and candidates, need not be decoded before it is shown.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from engine.frozen import frozen
from engine.trace.schema import Kept
from engine.trace.values import Misfit, brief, parse

MAGIC = "mlx-inspector-trace"
END = "mlx-inspector-trace-end"
"""Key of the last line of a complete file, with the number of lines before it."""
VERSION = 2
Fields = Mapping[str, Sequence[str]]
"""The fields of each class, in the order of the values in a row."""


@frozen
class Header:
    """The first line of a trace, and of each part that was appended by another run of the program."""

    program: str
    """The program that wrote it, with its version."""
    created: str
    """When, as ISO 8601 in UTC."""
    fields: Fields
    ends: bool = False
    """Whether a last line follows, so that a file that is cut short can be detected. A journal has none."""


@frozen
class Unknown:
    """A line of a kind that this version doesn't know, kept unchanged."""

    kind: str
    content: Mapping[str, Any]
    """The line's JSON, without time and checksum."""
    fields: Fields
    """Those of the header before it."""


@frozen
class Entry:
    """One line: what happened, and when."""

    value: Kept | Unknown
    at: float = 0.0
    """Seconds since the session began."""
    more: tuple[tuple[object, Mapping[str, Any]], ...] = ()
    """Fields that this version doesn't know, with the object inside `value` that has them (None for the line itself):
    saving writes them back."""


# ---- bytes ------------------------------------------------------------------------------------

_CRC = b',"crc":"'


def sealed(data: bytes) -> bytes:
    """A line with its checksum.

    Args:
        data: A JSON object without its last brace.
    """
    return b'%b,"crc":"%08x"}\n' % (data, zlib.crc32(data))


def unsealed(line: bytes) -> tuple[bytes, bool]:
    """A line without its checksum and last brace, and whether it had a checksum.

    Raises:
        Misfit: The checksum differs, or the last brace is missing.
    """
    line = line.rstrip(b"\r\n")
    if not line.endswith(b"}"):
        raise Misfit("is not JSON: it has no closing brace")
    if line[-18:-10] != _CRC:
        return line[:-1], False
    if line[-10:] != b'%08x"}' % zlib.crc32(line[:-18]):
        raise Misfit("was damaged: its checksum is another one")
    return line[:-18], True


def split(content: bytes) -> tuple[bytes, bytes, bytes]:
    """A line without its end, its parts and its candidates: JSON, the first without its last brace, each empty if none.

    Args:
        content: A line, as `unsealed` gave it.
    """
    before, _, candidates = content.partition(b',"candidates":')
    head, _, parts = before.partition(b',"parts":')
    return head, parts, candidates


def whole(content: bytes) -> dict[str, Any]:
    """The JSON object of a line.

    Raises:
        Misfit: It isn't one.
    """
    value = parse(content + b"}")
    if type(value) is not dict:
        raise Misfit(f"must be an object, not {brief(value)}")
    return value
