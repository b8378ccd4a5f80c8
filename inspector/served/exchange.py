"""A request to a server, its reply, and the events of a stream. Standard library alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct


class Reply(Struct, frozen=True):
    """The reply of a server."""

    status: int
    """HTTP status; 0 if unknown."""
    cut: bool
    """True if it broke off."""
    body: Any
    """A JSON value, or else the text; None for a stream."""
    events: tuple[Any, ...]
    """Events of the stream: each a JSON value or a text such as `[DONE]`."""


class Exchange(Struct, frozen=True):
    """A request to a server, and the reply to it."""

    number: int
    """Number in its file, from 1."""
    at: float
    """Beginning in seconds since 1970; 0 if unknown."""
    body: Any
    """The request as a JSON value; None if only the reply is known."""
    reply: Reply | None
    note: str = ""
    """Reason that there is a reply that can't be read; otherwise empty."""


def json_of(text: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: The text is not JSON, or too deep to be worked with.
    """
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("too deep") from None


def json_lines(text: str) -> Iterator[Any]:
    """The values of the lines of a text that are JSON."""
    for line in text.split("\n"):
        with suppress(ValueError):
            yield json_of(line)


def reply_with(value: Any, status: int = 200, cut: bool = False) -> Reply:
    """Make a reply of its JSON value; a list holds the parts of a stream."""
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return Reply(status, cut, None, tuple(value))
    return Reply(status, cut, value, ())


def events_of(text: str) -> tuple[Any, ...]:
    """The events of a stream, each a JSON value or a text; empty if the text is not a stream."""
    datas = (each.strip() for each in re.findall(r"(?:^|[\r\n])data:([^\r\n]*)", text))
    return tuple(next(json_lines(data), data) for data in datas)
