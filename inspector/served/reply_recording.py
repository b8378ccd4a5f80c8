"""A server's reply as a recording that replays without its model; what isn't known stays unknown.

A reply names tokens, their logprobs and a few alternatives. Entropies, ranks beyond the list, what the sampler did,
times, memory and the prompt's tokens it doesn't. Tokens without an id get one by their spelling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.errors import PromptError
from engine.protocol import (
    MADE_UP,
    Candidate,
    Candidates,
    Distribution,
    KVReading,
    Memory,
    ModelFacts,
    Prefilled,
    PromptOpened,
    PromptToken,
    Step,
    StepTimes,
)
from engine.recording import Entry
from engine.settings import LoadSettings
from engine.token_texts import decode
from inspector.served.exchange import Exchange
from inspector.served.replies import ServedReply, ServedToken, read_reply, repaired, spells
from inspector.served.requests import ServedRequest, served_request

NO_KV, NO_MEMORY, NO_TIMES = KVReading(0, 0, 0, ()), Memory(0, 0), StepTimes(0.0, 0.0, 0.0, 0.0)
PACE = 0.05
"""Seconds between two tokens of a replay: no reply has times."""
NO_LOGPROBS = (
    "The reply has no logprobs that can be read: without its model there is nothing to show but its text."
)


def recording_of(exchange: Exchange) -> list[Entry]:
    """Make a recording of a reply.

    Args:
        exchange: With a reply; its request may be unknown.

    Raises:
        PromptError: There is no reply, the server refused, or it named no tokens.
    """
    if exchange.reply is None:
        raise PromptError(
            exchange.note or "The request has no reply.", "Open it with a model: --model MODEL."
        )
    reply = read_reply(exchange.reply)
    if reply.error:
        raise PromptError(f"The server refused it: {reply.error}.", "Open it with a model: --model MODEL.")
    if not reply.tokens:
        raise PromptError(NO_LOGPROBS, "Ask the server for logprobs, or open it with a model: --model MODEL.")
    request = None
    if exchange.body is not None:
        request = served_request(exchange.body, f"Request {exchange.number}", reply.by_mlx_lm)
    return list(ReplyRecording(request, reply).entries())


def tokens_told(reply: ServedReply) -> tuple[tuple[ServedToken, ...], tuple[str, ...]]:
    """The tokens of a reply, repaired where it names others than it served, and what is said of them."""
    if any(each.raw is None for each in reply.tokens):
        return reply.tokens, ("Some tokens are named by their ids alone: their texts aren't known.",)
    if spells(reply):
        return reply.tokens, ()
    found = repaired(reply) if any(each.top for each in reply.tokens) else ()
    if not found:
        return reply.tokens, (
            "The tokens that the reply names don't spell its text: they are not those it served.",
        )
    unknown = sum(each.logprob is None for each in found)
    wrong = sum(one.raw != other.raw for one, other in zip(reply.tokens, found, strict=True))
    said = (
        f"The reply names {wrong:,} of {len(found):,} tokens wrongly; its text and lists give the right ones"
    )
    return found, (f"{said}, but {unknown:,} that are in no list." if unknown else f"{said}.",)


class ReplyRecording:
    """The records of a reply.

    Args:
        request: What was asked; None where that isn't known.
        reply: With tokens.
    """

    def __init__(self, request: ServedRequest | None, reply: ServedReply) -> None:
        self._request, self._reply = request, reply
        self._tokens, self._notes = tokens_told(reply)
        self._ids: dict[bytes, int] = {}
        """Those that were made up, by their spelling."""

    def entries(self) -> Iterator[Entry]:
        """The model's facts, the prompt and a step for each token."""
        yield Entry(LoadSettings(model="served"), 0.0)
        yield Entry(self._facts(), 0.0)
        if self._request is not None:
            yield Entry(self._request.settings, 0.0)
        opened, following = self._opened(), self._distribution(0)
        yield Entry(opened, 0.0)
        yield Entry(Prefilled(opened.text, opened.tokens, following, NO_KV, NO_MEMORY, 0.0, 0.0), 0.0)
        pending = b""
        for place, token in enumerate(self._tokens):
            choice, following = following, self._distribution(place + 1)
            text, pending = decode(pending, self._raw(token))
            yield Entry(self._step(place, token, text, pending, choice, following), PACE * (place + 1))

    def _facts(self) -> ModelFacts:
        model = self._request.model if self._request is not None else ""
        notes = (
            f"This is a server's reply, in the form of {self._reply.form}: no model was at hand. Entropies, ranks "
            "beyond its lists, times, memory and what its sampler did aren't known.",
            *self._reply.notes,
            *self._notes,
            f"{PACE:g} s from token to token are the replay's own: the reply has no times.",
        )  # fmt: skip
        return ModelFacts(
            name=model or f"a reply of {self._reply.form}", path="", family="", layers=0, heads=None, kv_heads=None,
            head_size=None, hidden_size=None, vocabulary=2 * MADE_UP, parameters=0, weight_bytes=0, dtype="",
            quantization=None, context_window=None, hard_window=False, cache_kinds=(), kv_bytes_per_token=None,
            eos_ids=(), has_chat_template=False, backend="", load_ms=0.0, notes=notes,
        )  # fmt: skip

    def _opened(self) -> PromptOpened:
        """The prompt: a token for each message, as its own tokens aren't known."""
        request = self._request
        if request is None:
            parts = ["(The reply doesn't say what was asked.)\n"]
        elif request.chat:
            parts = [f"{each.role}: {each.content}\n" for each in request.messages]
        else:
            parts = [request.prompt]
        raws = [part.encode("utf-8", "replace") for part in parts]
        tokens = tuple(
            PromptToken(place + 1, place, self._made_up(raw), part, raw, False)
            for place, (part, raw) in enumerate(zip(parts, raws, strict=True))
        )
        messages = request.messages if request is not None else ()
        return PromptOpened("".join(parts), bool(messages), tokens, False, messages=messages)

    def _step(
        self,
        place: int,
        token: ServedToken,
        text: str,
        pending: bytes,
        choice: Distribution,
        following: Distribution,
    ) -> Step:
        logprob = math.nan if token.logprob is None else token.logprob
        prob = 0.0 if token.logprob is None else min(1.0, math.exp(logprob))
        rank = next((each.rank for each in choice.candidates if each.id == choice.picked), 0)
        first = choice.node
        return Step(
            index=place, position=choice.position, node=first + 1, parent=first, id=choice.picked, text=text,
            raw=self._raw(token), pending=pending, special=False, origin="served", logprob=logprob, prob=prob,
            sampler_prob=prob, rank=rank, surprisal_bits=-logprob / math.log(2), choice=choice, next=following,
            kv=NO_KV, ms=NO_TIMES, memory=NO_MEMORY,
        )  # fmt: skip

    def _distribution(self, place: int) -> Distribution:
        """What the reply lists at a place, with the token that it served there."""
        count = self._prompt_tokens
        token = self._tokens[place] if place < len(self._tokens) else None
        listed = (
            {self._id(each): each for each in token.top if each.logprob is not None}
            if token is not None
            else {}
        )
        ranked = sorted(listed.items(), key=lambda each: -(each[1].logprob or 0.0))
        found = [self._candidate(id, each, rank) for rank, (id, each) in enumerate(ranked, 1)]
        picked = self._id(token) if token is not None else 0
        if token is not None and picked not in listed:
            found.append(self._candidate(picked, token, 1 if not found and not token.top else 0))
        rest = max(0.0, 1.0 - sum(each.prob for each in found))
        entropy = -sum(p * math.log2(p) for p in (*(each.prob for each in found), rest) if p > 0)
        return Distribution(
            node=count + place, position=count + place, candidates=Candidates(found), entropy_bits=max(0.0, entropy),
            sampler_entropy_bits=max(0.0, entropy), others=0, others_prob=rest, others_sampler_prob=rest, stages=(),
            picked=picked, draw=None, draw_from=None, draw_to=None, reroll=0, listed=True,
        )  # fmt: skip

    def _candidate(self, id: int, token: ServedToken, rank: int) -> Candidate:
        raw = self._raw(token)
        logprob = math.nan if token.logprob is None else min(0.0, token.logprob)
        prob = 0.0 if token.logprob is None else math.exp(logprob)
        return Candidate(id, raw.decode("utf-8", "replace"), raw, False, logprob, prob, rank, prob, None)

    @property
    def _prompt_tokens(self) -> int:
        request = self._request
        return len(request.messages) if request is not None and request.chat else 1

    def _raw(self, token: ServedToken) -> bytes:
        return f"⟨{token.id}⟩".encode() if token.raw is None else token.raw

    def _id(self, token: ServedToken) -> int:
        return token.id if token.id is not None and token.id < MADE_UP else self._made_up(self._raw(token))

    def _made_up(self, raw: bytes) -> int:
        return self._ids.setdefault(raw, MADE_UP + len(self._ids))
