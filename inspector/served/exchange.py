"""What a server was asked and what it answered, and the events of a stream. Standard library alone."""

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
    """Of HTTP; 0 if that isn't known."""
    cut: bool
    """True if it broke off."""
    body: Any
    """A JSON value, or a text where it is none; None where it was a stream."""
    events: tuple[Any, ...]
    """Of a stream: each a JSON value or a text such as `[DONE]`."""


class Exchange(Struct, frozen=True):
    """A request to a server, and the reply to it."""

    number: int
    """In its file, from 1."""
    at: float
    """Seconds since 1970 at which it began; 0 where that isn't known."""
    body: Any
    """A JSON value; None where the reply alone is known."""
    reply: Reply | None
    """None where none is known."""
    note: str = ""
    """Why its reply can't be read; empty where it can, or there is none."""


def json_of(text: str) -> Any:
    """The JSON value of a text.

    Raises:
        ValueError: It is none, or too deep to be worked with.
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
    """A reply by its JSON value; a list is the parts of a stream."""
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return Reply(status, cut, None, tuple(value))
    return Reply(status, cut, value, ())


def events_of(text: str) -> tuple[Any, ...]:
    """The events of a stream, each a JSON value or a text; empty where the text is none."""
    datas = (each.strip() for each in re.findall(r"(?:^|[\r\n])data:([^\r\n]*)", text))
    return tuple(next(json_lines(data), data) for data in datas)
