"""A server's reply as a recording that replays without its model; unknown values stay unknown.

A reply has tokens, their logprobs and a few alternatives. It lacks entropies, ranks beyond the list, the sampler's
stages, times, memory and the prompt's tokens. Tokens without an id get one by their spelling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine import protocol
from engine.errors import PromptError
from engine.protocol import MADE_UP
from engine.recording import Entry
from engine.settings import LoadSettings
from engine.token_texts import decode
from inspector.served.replies import Exchange, ServedReply, ServedToken, read_reply, repaired, spells
from inspector.served.requests import ServedRequest, served_request

NO_KV, NO_MEMORY = protocol.KVReading(0, 0, 0, ()), protocol.Memory(0, 0)
PACE = 0.05
"""Seconds between two tokens of a replay: no reply has times."""
WITH_MODEL = "Open it with a model: --model MODEL."


def recording_of(exchange: Exchange) -> list[Entry]:
    """Make a recording of a reply.

    Args:
        exchange: The request, which may be unknown, and its reply.

    Raises:
        PromptError: There is no reply, the server refused the request, or the reply has no tokens.
    """
    if exchange.reply is None:
        raise PromptError(exchange.note or "The request has no reply.", WITH_MODEL)
    reply = read_reply(exchange.reply)
    if reply.error:
        raise PromptError(f"The server refused it: {reply.error}.", WITH_MODEL)
    if not reply.tokens:
        raise PromptError(
            "The reply has no logprobs that can be read: without its model there is nothing to show but its text.",
            "Ask the server for logprobs, or open it with a model: --model MODEL.",
        )
    request = None
    if exchange.body is not None:
        request = served_request(exchange.body, f"Request {exchange.number}", reply.by_mlx_lm)
    return list(_entries(request, reply))


def _repaired(reply: ServedReply) -> tuple[tuple[ServedToken, ...], tuple[str, ...]]:
    """The tokens of a reply, repaired if they aren't the ones served, and sentences on them."""
    if any(each.raw is None for each in reply.tokens):
        return reply.tokens, ("Some tokens are named by their ids alone: their texts aren't known.",)
    if spells(reply):
        return reply.tokens, ()
    found = repaired(reply) if any(each.top for each in reply.tokens) else ()
    if not found:
        said = "The tokens that the reply names don't spell its text: they are not those it served."
        return reply.tokens, (said,)
    unknown = sum(each.logprob is None for each in found)
    wrong = sum(one.raw != other.raw for one, other in zip(reply.tokens, found, strict=True))
    said = (
        f"The reply names {wrong:,} of {len(found):,} tokens wrongly; its text and lists give the right ones"
    )
    return found, (f"{said}, but {unknown:,} that are in no list." if unknown else f"{said}.",)


def _entries(request: ServedRequest | None, reply: ServedReply) -> Iterator[Entry]:
    """The model's facts, the prompt and a step for each token.

    Args:
        request: The request; None if unknown.
        reply: The reply, which has tokens.
    """
    tokens, notes = _repaired(reply)
    yield Entry(LoadSettings(model="served"), 0.0)
    yield Entry(_facts(request, reply, notes), 0.0)
    if request is not None:
        yield Entry(request.settings, 0.0)
    ids: dict[bytes, int] = {}
    prompt = _prompt(request, ids)
    following = _distribution(tokens[0], len(prompt.tokens), ids)
    yield Entry(prompt, 0.0)
    yield Entry(protocol.Prefilled(prompt.text, prompt.tokens, following, NO_KV, NO_MEMORY, 0.0, 0.0), 0.0)
    pending = b""
    for place, (token, after) in enumerate(zip(tokens, (*tokens[1:], None), strict=True)):
        choice, following = following, _distribution(after, len(prompt.tokens) + place + 1, ids)
        text, pending = decode(pending, token.shown)
        logprob = math.nan if token.logprob is None else token.logprob
        prob = 0.0 if token.logprob is None else min(1.0, math.exp(logprob))
        step = protocol.Step(
            index=place, position=choice.position, node=choice.node + 1, parent=choice.node, id=choice.picked,
            text=text, raw=token.shown, pending=pending, special=False, origin="served", logprob=logprob, prob=prob,
            sampler_prob=prob, rank=next((each.rank for each in choice.candidates if each.id == choice.picked), 0),
            surprisal_bits=-logprob / math.log(2), choice=choice, next=following, kv=NO_KV, memory=NO_MEMORY,
            ms=protocol.StepTimes(0.0, 0.0, 0.0, 0.0),
        )  # fmt: skip
        yield Entry(step, PACE * (place + 1))


def _facts(request: ServedRequest | None, reply: ServedReply, more: tuple[str, ...]) -> protocol.ModelFacts:
    notes = (
        f"This is a server's reply, in the form of {reply.form}: no model was at hand. Entropies, ranks "
        "beyond its lists, times, memory and what its sampler did aren't known.",
        *reply.notes,
        *more,
        f"{PACE:g} s from token to token are the replay's own: the reply has no times.",
    )
    return protocol.ModelFacts(
        name=(request.model if request is not None else "") or f"a reply of {reply.form}", path="", family="",
        layers=0, heads=None, kv_heads=None, head_size=None, hidden_size=None, vocabulary=2 * MADE_UP, parameters=0,
        weight_bytes=0, dtype="", quantization=None, context_window=None, hard_window=False, cache_kinds=(),
        kv_bytes_per_token=None, eos_ids=(), has_chat_template=False, backend="", load_ms=0.0, notes=notes,
    )  # fmt: skip


def _prompt(request: ServedRequest | None, ids: dict[bytes, int]) -> protocol.PromptOpened:
    """The prompt, with one token for each message, since its own tokens are unknown.

    Args:
        request: The request; None if unknown.
        ids: Made-up ids by the tokens' bytes; new ones are added.
    """
    messages = request.messages if request is not None else ()
    if request is None:
        parts = ["(The reply doesn't say what was asked.)\n"]
    elif request.chat:
        parts = [f"{each.role}: {each.content}\n" for each in messages]
    else:
        parts = [request.prompt]
    raws = [part.encode("utf-8", "replace") for part in parts]
    tokens = tuple(
        protocol.PromptToken(place + 1, place, _made_up(raw, ids), part, raw, False)
        for place, (part, raw) in enumerate(zip(parts, raws, strict=True))
    )
    return protocol.PromptOpened("".join(parts), bool(messages), tokens, False, messages=messages)


def _distribution(token: ServedToken | None, node: int, ids: dict[bytes, int]) -> protocol.Distribution:
    """The distribution that a reply lists for a token, including that token; empty for None, after the last one."""
    top = token.top if token is not None else ()
    listed = {_id(each, ids): each for each in top if each.logprob is not None}
    ranked = sorted(listed.items(), key=lambda each: -(each[1].logprob or 0.0))
    found = [_candidate(id, each, rank) for rank, (id, each) in enumerate(ranked, 1)]
    picked = _id(token, ids) if token is not None else 0
    if token is not None and picked not in listed:
        found.append(_candidate(picked, token, 1 if not top else 0))
    rest = max(0.0, 1.0 - sum(each.prob for each in found))
    entropy = -sum(p * math.log2(p) for p in (*(each.prob for each in found), rest) if p > 0)
    return protocol.Distribution(
        node=node, position=node, candidates=protocol.Candidates(found), entropy_bits=max(0.0, entropy),
        sampler_entropy_bits=max(0.0, entropy), others=0, others_prob=rest, others_sampler_prob=rest, stages=(),
        picked=picked, draw=None, draw_from=None, draw_to=None, reroll=0, listed=True,
    )  # fmt: skip


def _candidate(id: int, token: ServedToken, rank: int) -> protocol.Candidate:
    logprob = math.nan if token.logprob is None else min(0.0, token.logprob)
    prob = 0.0 if token.logprob is None else math.exp(logprob)
    return protocol.Candidate(
        id, token.shown.decode("utf-8", "replace"), token.shown, False, logprob, prob, rank, prob, None
    )


def _id(token: ServedToken, ids: dict[bytes, int]) -> int:
    return token.id if token.id is not None and token.id < MADE_UP else _made_up(token.shown, ids)


def _made_up(raw: bytes, ids: dict[bytes, int]) -> int:
    return ids.setdefault(raw, MADE_UP + len(ids))
