"""Files of requests and replies: a HAR file, a request's body, a reply alone, or both in one object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from engine.errors import PromptError
from engine.files import MIB, open_regular, shorter, typed
from inspector.served.exchange import Exchange, Reply, events_of, json_lines, reply_with
from inspector.served.har import NOT_WHOLE, begins_as_har, har_exchanges, is_har
from inspector.served.replies import ServedReply, read_reply
from inspector.served.requests import ServedRequest, parsed_json, served_request

MOST_BYTES = 256 * MIB
"""Of a file that are read."""
_REPLY = (
    "choices", "content", "completion_probabilities", "generated_text", "meta_info", "response", "message", "error",
)  # fmt: skip
"""Fields of which a reply has one, in any of the forms that `inspector.served.replies` knows."""
KINDS = "Give a HAR file, the body of a request, or a reply with logprobs."


class ServedFile(Struct, frozen=True):
    """A file of requests."""

    name: str
    """Its path, as it was typed."""
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
    content = _content(name)
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    found = list(_exchanges(shorter(name), content.decode(encoding, "replace")))
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
        values = whole if isinstance(whole, list) else [whole]
    for number, parts in enumerate(_streams(values), 1):
        if len(parts) > 1:
            yield _made(None, reply_with(parts), number)
        elif (made := _pair(parts[0], number)) is not None:
            yield made


def _streams(values: Iterable[Any]) -> Iterator[list[Mapping[str, Any]]]:
    """The objects among some values, each alone, but for the parts of a stream, which come together."""
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


def _pair(value: Mapping[str, Any], number: int) -> Exchange | None:
    body = value.get("request", value.get("body"))
    reply = value.get("response", value.get("reply"))
    if isinstance(body, dict):
        return _made(body, _answer(reply, value.get("error")), number)
    if "custom_id" in value:
        return _made(None, _answer(reply, value.get("error")), number)
    if any(name in value for name in _REPLY) and "messages" not in value:
        return _made(None, reply_with(value), number)
    if "messages" in value or "prompt" in value:
        return _made(value, None, number)
    return None


def _answer(reply: Any, error: Any) -> Reply | None:
    """What was answered to a request, of a line of a batch with its status and its error, too; None for nothing."""
    if error and not reply:
        return reply_with({"error": error}, 0)
    if isinstance(reply, str):
        return Reply(200, False, None, events) if (events := events_of(reply)) else None
    if isinstance(reply, dict) and "status_code" in reply:
        status = reply["status_code"]
        return reply_with(reply.get("body"), status if type(status) is int else 0)
    return reply_with(reply) if isinstance(reply, dict | list) else None


def _made(body: Any, reply: Reply | None, number: int) -> Exchange:
    return Exchange(number, 0.0, body, reply)
