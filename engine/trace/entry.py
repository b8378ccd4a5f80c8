"""What a trace is made of: its header, and one entry a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.trace.shapes import Kept

MAGIC = "mlx-inspector-trace"
END = "mlx-inspector-trace-end"
"""Names the last line of a file that was written whole: it has the number of lines before it."""
VERSION = 1
Fields = Mapping[str, Sequence[str]]
"""The fields of each class, in the order in which its values stand in a row."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a trace, and of each part that was appended by another run of the program."""

    program: str
    """What wrote it, with its version."""
    created: str
    """When, as ISO 8601 in UTC."""
    fields: Fields
    ends: bool = False
    """Whether a last line follows, so that a file that is cut short is known as such. A journal has none."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A line of a kind that this version doesn't know: kept as it is."""

    kind: str
    content: Mapping[str, Any]
    """The line's JSON, without time and checksum."""
    fields: Fields
    """Those of the header that it stood under."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: what happened, and when."""

    value: Kept | Unknown
    at: float = 0.0
    """Seconds since the session began."""
    more: tuple[tuple[object, Mapping[str, Any]], ...] = ()
    """Fields that this version doesn't know, with the object inside `value` that has them (None for the line itself):
    saving writes them back."""
