"""The elements of a trace: its header, and one entry a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.frozen import frozen
from engine.trace.shapes import Kept

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
