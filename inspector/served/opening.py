"""Files of requests and replies: a HAR file, a request's body, a reply alone, or both in one object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from engine.errors import PromptError
from engine.files import MIB, open_regular, shorter, typed
from engine.frozen import frozen
from inspector.served.exchange import Exchange, Reply, events_of, json_lines
from inspector.served.har import NOT_WHOLE, begins_as_har, har_exchanges, is_har
from inspector.served.replies import ServedReply, read_reply
from inspector.served.requests import ServedRequest, parsed_json, served_request

MOST_BYTES = 256 * MIB
"""Of a file that are read."""
_REPLY = ("choices", "content", "generated_text", "meta_info", "response", "message", "error")
"""Fields of which a reply has one, in any of the forms that `inspector.served.replies` knows."""
KINDS = "Give a HAR file, the body of a request, or a reply with logprobs."


@frozen
class ServedFile:
    """A file of requests."""

    name: str
    """Its path, as it was typed."""
    exchanges: tuple[Exchange, ...]


@frozen
class OpenedRequest:
    """A request that is open as a session."""

    file: ServedFile
    exchange: Exchange
    request: ServedRequest
    reply: ServedReply | None


def opened_request(file: ServedFile, exchange: Exchange) -> OpenedRequest:
    """Read a request and its reply.

    Raises:
        PromptError: It is no request for text.
    """
    reply = read_reply(exchange.reply) if exchange.reply is not None else None
    request = served_request(exchange.body, f"Request {exchange.number}", reply is None or reply.by_mlx_lm)
    if exchange.note:
        request = replace(request, notes=(*request.notes, exchange.note))
    return OpenedRequest(file, exchange, request, reply)


def exchanges_of(name: str) -> list[Exchange]:
    """The requests for text of a file, in the order in which they came, with their replies.

    Args:
        name: Its path.

    Returns:
        At least one; of a reply alone the request is None.

    Raises:
        EngineError: It can't be read, or has neither.
    """
    found = list(_exchanges(shorter(name), _content(name).decode("utf-8-sig", "replace")))
    if not found:
        raise PromptError(f"{shorter(name)} has no request for text and no reply.", KINDS)
    return found


def _content(name: str) -> bytes:
    mend = "Check the path's spelling."
    try:
        with open_regular(typed(name)) as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise PromptError(f"There is no file {shorter(name)}.", mend) from None
    except OSError as error:
        raise PromptError(f"{shorter(name)} can't be read: {error.strerror}.", KINDS) from error
    if len(content) > MOST_BYTES:
        raise PromptError(f"{shorter(name)} has more than {MOST_BYTES // MIB} MiB.", "Give a part of it.")
    return content


def _exchanges(name: str, text: str) -> Iterator[Exchange]:
    """What a file has: HAR, one JSON value, one in each line, or the events of a stream."""
    if events := events_of(text):
        yield _made(None, Reply(200, False, None, events), 1)
        return
    try:
        whole = parsed_json(name, text)
    except PromptError as error:
        if begins_as_har(text):
            raise PromptError(error.message, NOT_WHOLE) from None
        values = list(json_lines(text))
    else:
        if is_har(whole):
            yield from har_exchanges(name, whole["log"])
            return
        values = [whole]
    for number, value in enumerate(values, 1):
        if isinstance(value, dict) and (made := _pair(value, number)) is not None:
            yield made


def _pair(value: Mapping[str, Any], number: int) -> Exchange | None:
    body = value.get("request", value.get("body"))
    reply = value.get("response", value.get("reply"))
    if isinstance(body, dict):
        return _made(body, _whole(reply) if isinstance(reply, dict) else None, number)
    if any(name in value for name in _REPLY) and "messages" not in value:
        return _made(None, _whole(value), number)
    if "messages" in value or "prompt" in value:
        return _made(value, None, number)
    return None


def _whole(body: Any) -> Reply:
    status = 400 if isinstance(body, dict) and "error" in body and "choices" not in body else 200
    return Reply(status, False, body, ())


def _made(body: Any, reply: Reply | None, number: int) -> Exchange:
    return Exchange(number, 0.0, body, reply)
