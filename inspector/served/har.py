"""HAR files (HTTP Archive 1.2), which mitmdump, browsers and other proxies write. Standard library alone.

Of an exchange its method, its time, the status and the two bodies are read, and nothing else: headers, cookies and
URLs have keys in them.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from engine.errors import PromptError
from inspector.served.exchange import Exchange, Reply, events_of, json_lines, json_of, reply_with
from inspector.served.requests import asks_for_text

NOT_WHOLE = "mitmdump writes its file when it is stopped: copy it then, or record again."
ASK = "Record a client's requests to a server of models, such as POST /v1/chat/completions."
MEND = "Correct the entry or take it out, or record again."
_LATEST = 2**32
"""Seconds since 1970 of a time that can be shown: the year 2106."""


def is_har(value: Any) -> bool:
    """Tell whether a JSON value is a HAR file's."""
    return isinstance(value, dict) and isinstance(value.get("log"), dict | list)


def begins_as_har(text: str) -> bool:
    """Tell whether a text that is not valid JSON begins as a HAR file does."""
    return re.match(r"""\s*\{\s*"log"\s*:\s*[{\[]""", text) is not None


def har_exchanges(name: str, log: Any) -> list[Exchange]:
    """The requests for text of a HAR file, with their replies; each has its entry's number, from 1.

    Args:
        name: Of the file, as a message has it.
        log: All of its content.

    Raises:
        PromptError: There is none, or an entry is none.
    """
    entries = log.get("entries") if isinstance(log, dict) else None
    if not isinstance(entries, list):
        raise PromptError(f"{name} is a HAR file without a list of entries.", NOT_WHOLE)
    made = [_exchange(f"{name}, entry {number:,}", number, each) for number, each in enumerate(entries, 1)]
    found = [each for each in made if each is not None]
    if not found:
        raise PromptError(f"{name} has no request for text among its {_counted(entries)}.", ASK)
    return found


def _counted(entries: Sequence[Mapping[str, Any]]) -> str:
    posts = sum(each["request"].get("method") == "POST" for each in entries)
    return f"{len(entries):,} entr{'y' if len(entries) == 1 else 'ies'}, {posts:,} of them POST"


def _exchange(where: str, number: int, entry: Any) -> Exchange | None:
    """What an entry has; None where that is no request for text."""
    if not isinstance(entry, dict) or entry.get("request") is None:
        raise PromptError(f"{where} has no request.", MEND)
    request = _part(where, entry, "request")
    if request.get("method") != "POST":
        return None
    try:
        text, _ = _text(_part(where, request, "postData"))
    except ValueError as error:
        raise PromptError(f"{where}: the request's body can't be read: {error}.", MEND) from None
    try:
        body = json_of(text)
    except ValueError:
        return None
    if not asks_for_text(body):
        return None
    response, note = _part(where, entry, "response"), ""
    try:
        reply = _reply(response.get("status"), _part(where, response, "content"))
    except ValueError as error:
        reply, note = None, f"Its reply can't be read: {error}."
    return Exchange(number, _seconds(entry.get("startedDateTime")), body, reply, note)


def _part(where: str, whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object inside another one; empty where it isn't there."""
    part = whole.get(name)
    if not isinstance(part, dict | None):
        raise PromptError(f"{where}: {name} must be an object.", MEND)
    return part or {}


def _text(part: Mapping[str, Any]) -> tuple[str, bool]:
    """The text of a body, empty where it has none, and whether it broke off.

    Raises:
        ValueError: It has no text, but something else.
    """
    text, kind = part.get("text"), part.get("mimeType")
    if not isinstance(text, str | None):
        raise ValueError("its text is none")
    if not text:
        return "", False
    if part.get("encoding") == "base64":
        signs = re.sub(r"\s", "", text)
        over = len(signs) % 4
        try:
            raw = b64decode(signs[: len(signs) - over], validate=True)
        except ValueError:
            raise ValueError("it is not valid base64") from None
        return raw.decode("utf-8", "replace"), over > 0
    if not re.search("json|charset", kind if isinstance(kind, str) else "", re.IGNORECASE):
        # mitmproxy 11 takes for Latin-1 what names no charset; servers of models write UTF-8
        with suppress(UnicodeError):
            text = text.encode("latin-1").decode()
    return text, False


def _reply(status: Any, content: Mapping[str, Any]) -> Reply | None:
    """The reply in a response; None where nothing was answered.

    Raises:
        ValueError: It can't be read.
    """
    if status is not None and type(status) is not int:
        raise ValueError("its status is no number")
    text, cut = _text(content)
    if not status or not (text or status >= 400):
        return None
    if events := events_of(text):
        return Reply(status, cut, None, events)
    with suppress(ValueError):
        return reply_with(json_of(text), status, cut)
    parts = tuple(each for each in json_lines(text) if isinstance(each, dict))
    if len(parts) > 1:  # as ollama streams
        return Reply(status, cut, None, parts)
    if status >= 400 or text.lstrip().startswith(("{", ":")):
        return Reply(status, status < 400, text, ())
    raise ValueError(f"its {len(text):,} characters are neither JSON nor a stream")


def _seconds(time: Any) -> float:
    """A time of ISO 8601 as seconds since 1970; 0 where it is none."""
    with suppress(TypeError, ValueError, OverflowError, OSError):
        seconds = datetime.fromisoformat(time).timestamp()
        return seconds if 0 < seconds < _LATEST else 0.0
    return 0.0
