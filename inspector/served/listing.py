"""Requests of a file as lines and as values: the request, and its reply as it came or as computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from inspector.display import truncate, visible
from inspector.served.replies import Exchange, read_reply
from inspector.served.rescoring import SOURCES, VERDICTS, Rescored, ServedStep, Source, Verdict

_WORDS = 48
"""Maximum width of a request's own words in a line, in cells."""


def asked(exchange: Exchange) -> tuple[str, str]:
    """The last user message or the prompt of a request on one line, and the request's kind."""
    body = exchange.body
    if not isinstance(body, dict):
        return "", "reply"
    if "messages" not in body:
        return " ".join(str(body.get("prompt", "")).split()), "completion"
    messages = body["messages"] if isinstance(body["messages"], list) else []
    contents = [
        each.get("content") for each in messages if isinstance(each, dict) and each.get("role") == "user"
    ]
    last = contents[-1] if contents else ""
    if isinstance(last, list):
        last = " ".join(str(part.get("text", "")) for part in last if isinstance(part, dict))
    return " ".join(str(last or "").split()), "chat"


def outcome(exchange: Exchange) -> str:
    """The outcome of a request, in two words."""
    if exchange.reply is None:
        return "unreadable" if exchange.note else "no reply"
    reply = read_reply(exchange.reply)
    if reply.error:
        return str(exchange.reply.status) if exchange.reply.status >= 400 else "refused"
    if reply.cut:
        return "cut"
    number = reply.completion_tokens or len(reply.tokens)
    return f"{number:,} tokens" if number else f"{len(reply.text):,} characters"


def listed_row(exchange: Exchange) -> tuple[str, ...]:
    """A row of the list of requests: number, time, kind, outcome, and what is asked."""
    words, kind = asked(exchange)
    when = datetime.fromtimestamp(exchange.at).strftime("%H:%M:%S") if exchange.at else ""
    return str(exchange.number), when, kind, outcome(exchange), truncate(visible(words), _WORDS)


class ListedRequest(Struct, frozen=True, tag_field="event"):
    """A recorded request with a few figures of its reply."""

    number: int
    at: float
    kind: str
    asked: str
    tokens: int | None
    """Number of tokens of the reply, as the server counted them."""
    error: str | None


def listed_request(exchange: Exchange) -> ListedRequest:
    """A request and its reply as values."""
    reply = read_reply(exchange.reply) if exchange.reply is not None else None
    words, kind = asked(exchange)
    tokens, error = (reply.completion_tokens, reply.error) if reply is not None else (None, None)
    return ListedRequest(exchange.number, exchange.at, kind, words, tokens, error)


# ---- replies that were computed again -------------------------------------------------------------


def checked_line(exchange: Exchange, result: Rescored | None, why: str, detailed: bool) -> str:
    """The comparison of a reply, as lines of text.

    Args:
        exchange: The request and its reply.
        result: The comparison; None if the request can't be read.
        why: The failure; empty if there was none.
        detailed: Whether each token has a line.
    """
    head = f"{exchange.number:>5}  {asked(exchange)[1]:10}  "
    if result is None:
        return f"{head}{visible(why)}\n"
    lines = [head + "; ".join(_parts(result))]
    if detailed:
        lines += [f"  note     {visible(each)}" for each in result.notes]
        lines += map(token_line, result.steps)
    else:
        lines += [f"{'':19}{visible(each)}" for each in result.notes if not each.startswith("It has no seed")]
    return "".join(f"{line}\n" for line in lines)


def _parts(result: Rescored) -> Iterator[str]:
    served, counted = result.reply.prompt_tokens, result.reply.completion_tokens
    differs = "" if served in (None, result.prompt_tokens) else f" here, {served:,} at the server"
    yield f"prompt {result.prompt_tokens:,} tokens{differs}"
    if result.source is None:
        return
    other = "" if counted in (None, len(result.steps)) else f" here, {counted:,} at the server"
    yield f"reply {len(result.steps):,} tokens{other}, {result.source}"
    yield verdict_words(result)
    if not result.same_text:
        yield "its text differs from that of these tokens"
    if (largest := result.largest) is not None:
        yield f"logprobs within {largest:.3f}"
    if result.misnamed:
        yield f"{result.misnamed} of {len(result.steps)} tokens named wrongly"


def verdict_words(result: Rescored) -> str:
    """The verdict on a whole reply, in a few words."""
    place = result.first
    if place is not None:
        others = "other tokens" if result.steps[place].verdict == "differs" else "others by rounding"
        return f"from token {place + 1:,} on {others}"
    return "drawn" if any(each.verdict == "drawn" for each in result.steps) else "all equal"


def token_line(each: ServedStep) -> str:
    """A token of a reply: its place, text, figures and verdict."""
    known = each.served is not None and each.computed is not None
    figures = f"{each.served:8.3f} {each.computed:8.3f}" if known else ""
    wrong = "  named wrongly" if each.misnamed else ""
    text = truncate(visible(each.step.text), 24)
    return f"  {each.step.index + 1:>5}  {text:24}  {each.verdict:9} {figures}{wrong}".rstrip()


class CheckedToken(Struct, frozen=True):
    """A token of a reply, with its logprob from the server and as computed here."""

    id: int
    text: str
    verdict: Verdict
    served: float | None
    computed: float | None
    misnamed: bool


class CheckedReply(Struct, frozen=True, tag_field="event"):
    """A reply that was computed again; without figures if it can't be."""

    number: int
    error: str | None
    prompt_tokens: int | None = None
    served_prompt_tokens: int | None = None
    source: Source | None = None
    same_text: bool | None = None
    first: int | None = None
    largest: float | None = None
    misnamed: int = 0
    notes: tuple[str, ...] = ()
    tokens: tuple[CheckedToken, ...] = ()


def checked_reply(exchange: Exchange, result: Rescored | None, why: str) -> CheckedReply:
    """The comparison of a reply as values; arguments as for `checked_line`."""
    if result is None:
        return CheckedReply(exchange.number, why or None)
    tokens = tuple(
        CheckedToken(each.step.id, each.step.text, each.verdict, each.served, each.computed, each.misnamed)
        for each in result.steps
    )
    return CheckedReply(
        exchange.number, None, result.prompt_tokens, result.reply.prompt_tokens, result.source, result.same_text,
        result.first, result.largest, result.misnamed, result.notes, tokens,
    )  # fmt: skip


def sums(results: Sequence[Rescored], count: int) -> str:
    """The totals over all replies of a recording, as lines of text."""
    known = [each for each in results if each.source is not None]
    steps = [step for each in known for step in each.steps]
    differing = sum(not each.same_text for each in known)
    misnamed, named = (
        sum(each.misnamed for each in known),
        sum(len(each.steps) for each in known if each.misnamed),
    )
    counts = [
        *((sum(each.source == name for each in known), f"tokens known: {SOURCES[name]}") for name in SOURCES),
        *((sum(step.verdict == name for step in steps), f"tokens: {VERDICTS[name]}") for name in VERDICTS),
        (differing, "replies whose text differs from that of these tokens"),
        (misnamed, f"of {named:,} tokens of those replies are named wrongly"),
    ]
    lines = [f"{count:,} requests, {len(known):,} replies computed again"]
    lines += [f"  {number:>6,}  {words}" for number, words in counts if number]
    largest = max((each.largest for each in known if each.largest is not None), default=None)
    if largest is not None:
        lines.append(f"  {largest:>6.3f}  largest difference of a logprob, in nats")
    return "".join(f"{line}\n" for line in lines)
