"""Files of requests and replies: a HAR file, the body of a request, a reply alone, or both in one object.

HAR (HTTP Archive 1.2) is written by mitmdump, browsers and other proxies. Of an entry only the method, the time, the
status and the two bodies are read, since headers, cookies and URLs contain keys.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from engine.errors import PromptError
from engine.files import MIB, read_regular, shorter, typed
from inspector.served import replies
from inspector.served.replies import Exchange, Reply, ServedReply, events_of, json_lines, json_of
from inspector.served.requests import ServedRequest, asks_for_text, parsed_json, served_request

MOST_BYTES = 256 * MIB
"""Size of the largest file that is read."""
_LATEST = 2**32
"""Latest time that can be shown, in seconds since 1970: in the year 2106."""
_REPLY = (
    "choices", "content", "completion_probabilities", "generated_text", "meta_info", "response", "message", "error",
)  # fmt: skip
"""A reply has at least one of these fields, in any of the forms that `inspector.served.replies` knows."""
KINDS = "Give a HAR file, the body of a request, or a reply with logprobs."
NOT_WHOLE = "mitmdump writes its file when it is stopped: copy it then, or record again."
ASK = "Record a client's requests to a server of models, such as POST /v1/chat/completions."
MEND = "Correct the entry or take it out, or record again."


class ServedFile(Struct, frozen=True):
    """A file of requests."""

    name: str
    """Its path as typed."""
    exchanges: tuple[Exchange, ...]


class OpenedRequest(Struct, frozen=True):
    """A request that is open as a session."""

    file: ServedFile
    exchange: Exchange
    request: ServedRequest
    reply: ServedReply | None


def opened_request(file: ServedFile, exchange: Exchange) -> OpenedRequest:
    """Read a request and its reply.

    Raises:
        PromptError: It isn't a request for text.
    """
    reply = replies.read_reply(exchange.reply) if exchange.reply is not None else None
    request = served_request(exchange.body, f"Request {exchange.number}", reply is None or reply.by_mlx_lm)
    if exchange.note:
        request = replace(request, notes=(*request.notes, exchange.note))
    return OpenedRequest(file, exchange, request, reply)


def exchanges_of(path: str) -> list[Exchange]:
    """Read the requests for text of a file, in the order in which they came, with their replies.

    Returns:
        At least one exchange; its request is None if the file has only a reply.

    Raises:
        EngineError: The file can't be read, or has neither a request nor a reply.
    """
    name = shorter(path)
    try:
        content = read_regular(typed(path), MOST_BYTES)
    except FileNotFoundError:
        raise PromptError(f"There is no file {name}.", "Check the path's spelling.") from None
    except OSError as error:
        raise PromptError(f"{name} can't be read: {error.strerror}.", KINDS) from error
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    found = list(_exchanges(name, content.decode(encoding, "replace")))
    if not found:
        raise PromptError(f"{name} has no request for text and no reply.", KINDS)
    return found


def _exchanges(name: str, text: str) -> Iterator[Exchange]:
    """The exchanges of a file: HAR, one JSON value, one value per line, or the events of a stream."""
    if events := events_of(text):
        yield Exchange(1, 0.0, None, Reply(200, False, None, events))
        return
    try:
        whole = parsed_json(name, text)
    except PromptError as error:
        if re.match(r"""\s*\{\s*"log"\s*:\s*[{\[]""", text):
            raise PromptError(error.message, NOT_WHOLE) from None
        whole = list(json_lines(text))
    if isinstance(whole, dict) and isinstance(whole.get("log"), dict | list):
        yield from _har_exchanges(name, whole["log"])
        return
    for number, parts in enumerate(_streams(whole if isinstance(whole, list) else [whole]), 1):
        if len(parts) > 1:
            yield Exchange(number, 0.0, None, replies.reply_with(parts))
        elif (made := _of_object(parts[0], number)) is not None:
            yield made


def _streams(values: Iterable[Any]) -> Iterator[list[Mapping[str, Any]]]:
    """The objects among some values: the parts of a stream as one list, every other object as its own list."""
    run: list[Mapping[str, Any]] = []
    for value in values:
        if not isinstance(value, dict):
            continue
        if run and not _continues(run[-1], value):
            yield run
            run = []
        run.append(value)
    if run:
        yield run


def _continues(part: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """True if a value is the next part of a stream."""
    if not any(name in value for name in _REPLY) or not {"request", "body", "messages"}.isdisjoint(value):
        return False
    choices = part.get("choices")
    opened = isinstance(choices, list) and any(
        isinstance(each, dict) and each.get("finish_reason") is None and "message" not in each
        for each in choices
    )
    same = isinstance(part.get("id"), str) and part["id"] == value.get("id")
    return opened or same or part.get("done") is False or part.get("stop") is False


def _of_object(value: Mapping[str, Any], number: int) -> Exchange | None:
    """The exchange in a JSON object; None if there is none."""
    body = value.get("request", value.get("body"))
    if isinstance(body, dict) or "custom_id" in value:
        reply = _answer(value.get("response", value.get("reply")), value.get("error"))
        return Exchange(number, 0.0, body if isinstance(body, dict) else None, reply)
    if any(name in value for name in _REPLY) and "messages" not in value:
        return Exchange(number, 0.0, None, replies.reply_with(value))
    return Exchange(number, 0.0, value, None) if asks_for_text(value) else None


def _answer(reply: Any, error: Any) -> Reply | None:
    """The reply in an object, which for a line of a batch has a status and an error; None if there is none."""
    if error and not reply:
        return replies.reply_with({"error": error}, 0)
    if isinstance(reply, str):
        return Reply(200, False, None, events) if (events := events_of(reply)) else None
    if isinstance(reply, dict) and "status_code" in reply:
        status = reply["status_code"]
        return replies.reply_with(reply.get("body"), status if type(status) is int else 0)
    return replies.reply_with(reply) if isinstance(reply, dict | list) else None


# ---- HAR ------------------------------------------------------------------------------------------


def _har_exchanges(name: str, log: Any) -> list[Exchange]:
    """The requests for text of a HAR file with their replies, numbered by their entries.

    Raises:
        PromptError: There is no request for text, or an entry is damaged.
    """
    entries = log.get("entries") if isinstance(log, dict) else None
    if not isinstance(entries, list):
        raise PromptError(f"{name} is a HAR file without a list of entries.", NOT_WHOLE)
    posts, found = 0, []
    for number, entry in enumerate(entries, 1):
        where = f"{name}, entry {number:,}"
        if not isinstance(entry, dict) or entry.get("request") is None:
            raise PromptError(f"{where} has no request.", MEND)
        request = _part(where, entry, "request")
        if request.get("method") != "POST":
            continue
        posts += 1
        try:
            text, _ = _text(_part(where, request, "postData"))
        except ValueError as error:
            raise PromptError(f"{where}: the request's body can't be read: {error}.", MEND) from None
        try:
            body = json_of(text)
        except ValueError:
            continue
        if not asks_for_text(body):
            continue
        response, note = _part(where, entry, "response"), ""
        try:
            reply = _reply(response.get("status"), _part(where, response, "content"))
        except ValueError as error:
            reply, note = None, f"Its reply can't be read: {error}."
        found.append(Exchange(number, _seconds(entry.get("startedDateTime")), body, reply, note))
    if not found:
        counted = f"{len(entries):,} entr{'y' if len(entries) == 1 else 'ies'}, {posts:,} of them POST"
        raise PromptError(f"{name} has no request for text among its {counted}.", ASK)
    return found


def _part(where: str, whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object inside another; empty if it is missing."""
    part = whole.get(name)
    if not isinstance(part, dict | None):
        raise PromptError(f"{where}: {name} must be an object.", MEND)
    return part or {}


def _text(part: Mapping[str, Any]) -> tuple[str, bool]:
    """The text of a body, empty if missing, and whether it broke off.

    Raises:
        ValueError: It isn't a text.
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
        # mitmproxy 11 reads a body without a charset as Latin-1; model servers write UTF-8
        with suppress(UnicodeError):
            text = text.encode("latin-1").decode()
    return text, False


def _reply(status: Any, content: Mapping[str, Any]) -> Reply | None:
    """The reply in a response; None if there was no answer.

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
        return replies.reply_with(json_of(text), status, cut)
    parts = tuple(each for each in json_lines(text) if isinstance(each, dict))
    if len(parts) > 1:  # as ollama streams
        return Reply(status, cut, None, parts)
    if status >= 400 or text.lstrip().startswith(("{", ":")):
        return Reply(status, status < 400, text, ())
    raise ValueError(f"its {len(text):,} characters are neither JSON nor a stream")


def _seconds(time: Any) -> float:
    """A time of ISO 8601 in seconds since 1970; 0 if it is invalid."""
    with suppress(TypeError, ValueError, OverflowError, OSError):
        seconds = datetime.fromisoformat(time).timestamp()
        return seconds if 0 < seconds < _LATEST else 0.0
    return 0.0
