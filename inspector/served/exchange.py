"""A recording of a server: its format, and what is read from it. Standard library alone.

Each line is a JSON object. The first is the head, `{"recorder": 1, "program": "mlx-inspector 1.0", "upstream": URL}`;
then come two lines for each exchange, which a number from 1 joins, so that a kill loses no request:

    {"event": "request", "exchange": 1, "at": seconds since 1970, "method": "POST", "path": "/v1/chat/completions",
     "headers": [[name, value], ...], "body": JSON, or a text that is none}
    {"event": "reply", "exchange": 1, "status": 200, "headers": [...], "first_ms": ms, "last_ms": ms, "cut": false,
     "body": JSON or a text; or, where it was a stream, "events": [[ms, JSON or a text], ...]}

The times of a reply count from the end of its request. `cut` is true where the reply broke off. Either line may have a
`note`, which says what of its body isn't there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from engine.frozen import frozen

FORMAT = 1
"""The number in the head of a recording."""

Headers = tuple[tuple[str, str], ...]


@frozen
class Reply:
    """The reply of a server."""

    status: int
    first_ms: float
    """From the end of the request to the reply's first byte."""
    last_ms: float
    cut: bool
    """True if it broke off."""
    body: Any
    """A JSON value, or a text where it is none; None where it was a stream."""
    events: tuple[tuple[float, Any], ...]
    """Of a stream: milliseconds since the end of the request, and a JSON value or a text such as `[DONE]`."""
    headers: Headers = ()
    note: str = ""
    """What of the body isn't there."""


@frozen
class Exchange:
    """A request to a server, and the reply to it."""

    number: int
    """In its recording, from 1."""
    at: float
    """Seconds since 1970 at which it began; 0 where that isn't known."""
    method: str
    path: str
    body: Any
    """A JSON value, or a text where it is none."""
    reply: Reply | None
    """None where the recording ends before it."""
    headers: Headers = ()
    note: str = ""
    """What of the body isn't there."""


def head_line(program: str, upstream: str) -> str:
    """The first line of a recording.

    Args:
        program: Name and version of what writes.
        upstream: The server's URL.
    """
    return _line(recorder=FORMAT, program=program, upstream=upstream)


def request_line(exchange: Exchange) -> str:
    """The line of a request in a recording."""
    return _line(
        event="request", exchange=exchange.number, at=exchange.at, method=exchange.method, path=exchange.path,
        headers=exchange.headers, **_noted(exchange.note), body=exchange.body,
    )  # fmt: skip


def reply_line(number: int, reply: Reply, written: Sequence[str] = ()) -> str:
    """The line of a reply in a recording.

    Args:
        number: Of its exchange.
        reply: The reply.
        written: Its events, each as `event_text` wrote it, where they aren't in the reply: those of a long stream take
            ten times the memory as values.
    """
    head = {
        "event": "reply", "exchange": number, "status": reply.status, "headers": reply.headers,
        "first_ms": round(reply.first_ms, 2), "last_ms": round(reply.last_ms, 2), "cut": reply.cut,
        **_noted(reply.note),
    }  # fmt: skip
    events = written or [event_text(ms, event) for ms, event in reply.events]
    if not events:
        return _line(**head, body=reply.body)
    return f'{_line(**head)[:-2]},"events":[{",".join(events)}]}}\n'


def event_text(ms: float, event: Any) -> str:
    """One event of a stream, as it stands in a reply's line."""
    return _dumped([round(ms, 2), event])


def _noted(note: str) -> dict[str, str]:
    return {"note": note} if note else {}


def _line(**values: Any) -> str:
    return _dumped(values) + "\n"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def read_exchanges(lines: Iterable[bytes]) -> list[Exchange]:
    """Read the exchanges of a recording, in the order of their requests.

    A line that is no JSON or none of this format is left out, as the last one of a recorder that was killed is.

    Args:
        lines: Of the file.
    """
    found: dict[int, Exchange] = {}
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(value, dict) or not isinstance(number := value.get("exchange"), int):
            continue
        if value.get("event") == "request":
            found[number] = Exchange(
                number, _number(value.get("at")), str(value.get("method", "")), str(value.get("path", "")),
                value.get("body"), None, _headers(value.get("headers")), str(value.get("note", "")),
            )  # fmt: skip
        elif value.get("event") == "reply" and number in found:
            asked = found[number]
            found[number] = replace(asked, reply=_reply(value))
    return list(found.values())


def _reply(value: Mapping[str, Any]) -> Reply:
    events = value.get("events")
    pairs = (
        [each for each in events if isinstance(each, list) and len(each) == 2]
        if isinstance(events, list)
        else []
    )
    return Reply(
        status=int(_number(value.get("status"))),
        first_ms=_number(value.get("first_ms")),
        last_ms=_number(value.get("last_ms")),
        cut=bool(value.get("cut")),
        body=value.get("body"),
        events=tuple((_number(ms), event) for ms, event in pairs),
        headers=_headers(value.get("headers")),
        note=str(value.get("note", "")),
    )


def json_of(text: str) -> Any:
    """The JSON value of a text.

    Raises:
        ValueError: It is none, or too deep to be worked with.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("too deep") from None


def json_lines(text: str) -> Iterator[Any]:
    """The values of the lines of a text that are JSON."""
    for line in text.split("\n"):
        with suppress(ValueError):
            yield json_of(line)


def events_of(text: str) -> tuple[tuple[float, Any], ...]:
    """The events of a stream, each a JSON value or a text; empty where the text is none."""
    datas = (each.strip() for each in re.findall(r"(?:^|[\r\n])data:([^\r\n]*)", text))
    return tuple((0.0, next(json_lines(data), data)) for data in datas)


def _headers(value: Any) -> Headers:
    if not isinstance(value, list):
        return ()
    pairs = [each for each in value if isinstance(each, list) and len(each) == 2]
    return tuple((str(name), str(content)) for name, content in pairs)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
