"""A server's reply beside what the engine computes: the tokens it must have served, and each of them judged.

Which tokens were served is known in four ways, the surest first: the reply names them; mlx_lm's own generator, with the
request's seed, gives the reply's text again; the reply's lists spell its text; its text is cut into tokens anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from engine import protocol
from engine.frozen import frozen
from engine.protocol import Command, Record, Step
from engine.settings import Settings
from inspector.served.replies import ServedReply, ServedToken, repaired
from inspector.served.requests import ServedRequest

Source = Literal["named", "repeated", "repaired", "cut"]
SOURCES: dict[Source, str] = {
    "named": "the reply names them",
    "repeated": "mlx_lm's generator gives the same text again",
    "repaired": "the reply's lists spell its text so",
    "cut": "its text, cut into tokens anew",
}
"""How the tokens that were served are known, the surest way first."""
Verdict = Literal["equal", "rounding", "differs", "drawn"]
VERDICTS: dict[Verdict, str] = {
    "equal": "the same token is taken here",
    "rounding": "another token is taken here, equally probable up to rounding",
    "differs": "another token is taken here",
    "drawn": "the server drew it; its draw can't be repeated",
}
AS_SERVED = "--dtype file --blas bundled computes as a server with the same files does."
THINK = ("<think>", "</think>")
"""Marks of thinking, where the model's own aren't known."""
ROUNDING = 0.1
"""Nats by which logprobs differ that are computed in other types or shapes: bfloat16 against float32 on the bundled
model and in mlx_lm's batches at most 0.06."""


@frozen
class ServedStep:
    """A token that a server sent, beside what is computed here."""

    step: Step
    verdict: Verdict
    served: float | None
    """Its logprob as the server named it; None where it didn't."""
    computed: float | None
    """The same figure here; None without one of the server's."""
    named: bytes | None = None
    """Bytes of another token that the reply names in its place; None where it names this one, or none."""

    @property
    def misnamed(self) -> bool:
        """True if the reply names another token in its place."""
        return self.named is not None


@frozen
class Rescored:
    """A reply that was computed again."""

    prompt_tokens: int
    prompt_node: int
    """The prompt's last node: the served tokens begin after it."""
    source: Source | None
    """How the tokens are known; None without any."""
    steps: tuple[ServedStep, ...]
    same_text: bool
    """True if these tokens spell the reply's text."""
    notes: tuple[str, ...]
    """What the server made of the text, and what isn't known: one sentence each."""

    @property
    def first(self) -> int | None:
        """The place of the first token that is another one here, from 0; None where there is none."""
        other = (place for place, each in enumerate(self.steps) if each.verdict in ("rounding", "differs"))
        return next(other, None)

    @property
    def largest(self) -> float | None:
        """The largest difference of a logprob, in nats; None where the server named none."""
        pairs = ((each.served, each.computed) for each in self.steps)
        return max(
            (abs(one - other) for one, other in pairs if one is not None and other is not None), default=None
        )

    @property
    def misnamed(self) -> int:
        """Tokens in whose place the reply names another."""
        return sum(each.misnamed for each in self.steps)


class Rescoring:
    """Computes again what a server answered, once the session has read the request's prompt.

    Each of `commands` is sent when the one before has ended, and every record goes to `take`.

    Args:
        request: As it was sent.
        reply: What was answered; None where it isn't known.
    """

    def __init__(self, request: ServedRequest, reply: ServedReply | None) -> None:
        self._request, self._reply = request, reply
        self._prompt: tuple[protocol.PromptToken, ...] = ()
        self._repeated: protocol.ReplyRepeated | None = None
        self._steps: list[Step] = []
        self.done = 0
        """Tokens that mlx_lm's generator has made so far."""
        self._drawn: tuple[int, ...] = ()
        """The tokens that mlx_lm's generator draws here; empty where its draws can't be repeated."""
        self._tokens: tuple[ServedToken, ...] = reply.tokens if reply is not None else ()
        self._source: Source | None = None
        self._eos: tuple[int, ...] = ()
        self._format = protocol.ReplyFormat()
        self._dtype = ""

    def take(self, record: Record) -> None:
        """Take in a record."""
        match record:
            case protocol.ModelFacts():
                self._eos, self._dtype = record.eos_ids, record.dtype
            case protocol.PromptOpened():
                self._format = record.segments.reply
            case protocol.Prefilled():
                self._prompt = record.tokens
            case protocol.ReplyRepeated():
                self.done = len(record.ids)
                self._repeated = record if record.last else self._repeated
            case Step():
                self._steps.append(record)
            case _:
                pass

    def commands(self) -> Iterator[Command]:
        """The commands that find the served tokens, take them, and read their logprobs."""
        reply, settings = self._reply, self._request.settings
        if not self._prompt or reply is None or reply.error:
            return
        node, seed = self._prompt[-1].node, self._request.seed
        cached = self._unseen
        if settings.temp == 0 or seed is not None:
            yield protocol.RepeatReply(node, seed, cached=cached)
            self._drawn = self._repeated.ids if self._repeated is not None else ()
        yield from self._take(node, reply)
        taken = tuple(step.id for step in self._steps)
        if taken and (self._repeated is None or self._repeated.ids != taken):
            yield protocol.RepeatReply(node, ids=taken, cached=cached)

    def _take(self, node: int, reply: ServedReply) -> Iterator[Command]:
        """The command that takes the served tokens; a second one where those that were repeated spell another text."""
        exact = reply.exact_ids
        if exact:
            self._source = "named"
            yield protocol.Take(node, exact, "served", leave_grammar=True)
            return
        if self._drawn:
            self._source = "repeated"
            yield protocol.Take(node, self._drawn, "served", leave_grammar=True)
            if self._said_as(reply)[0]:
                return
            self._steps = []
        by_lists = repaired(reply) if any(each.top for each in reply.tokens) else ()
        ids = tuple(each.id for each in by_lists if each.id is not None)
        if by_lists and len(ids) == len(by_lists):
            self._source = "repaired"
            yield protocol.Take(node, ids, "served", leave_grammar=True)
        elif text := self._written(reply):
            self._source = "cut"
            yield protocol.Insert(node, text, leave_grammar=True)

    def _written(self, reply: ServedReply) -> str:
        """The reply's text as the model must have written it, with the marks of its thinking."""
        if not reply.reasoning:
            return reply.text
        begins = next((each.text for each in self._format.marks if each.to == "thinking"), THINK[0])
        ends = next((each.text for each in self._format.marks if each.at == "thinking"), THINK[1])
        opened = "" if self._format.begin == "thinking" else begins
        return f"{opened}{reply.reasoning}" + (f"{ends}{reply.text}" if reply.text else "")

    def _said_as(self, reply: ServedReply) -> tuple[bool, tuple[str, ...]]:
        """Compare the text of the tokens that were taken with the reply's: see `said_as`."""
        written = "".join(step.text for step in self._steps if step.id not in self._eos)
        return said_as(
            written, reply, self._request.settings, [each.text for each in self._format.marks] or THINK
        )

    # ---- what came of it --------------------------------------------------------------------

    def result(self) -> Rescored:
        """The result of the comparison."""
        same, notes = True, list(self._request.notes)
        if self._reply is None:
            notes.append("The recording has no reply: what the engine generates is all there is.")
        elif self._reply.error:
            notes.append(f"The server refused it: {self._reply.error}")
        elif self._source is not None:
            same, said = self._said_as(self._reply)
            notes += said
            if self._unseen and self._penalised:
                cached = f"{self._unseen:,} tokens of the prompt that it had in its KV cache"
                notes.append(f"The server's penalties didn't see the {cached}.")
            if self._source == "cut":
                notes.append("Which tokens were served isn't known: its text was cut into tokens anew.")
                if self._drawn:
                    notes.append(f"mlx_lm's generator gives another text here, in {self._dtype}. {AS_SERVED}")
        judged = tuple(self._judged(place, step) for place, step in enumerate(self._steps))
        node = self._prompt[-1].node if self._prompt else 0
        return Rescored(len(self._prompt), node, self._source, judged, same, tuple(notes))

    @property
    def _unseen(self) -> int:
        """Tokens of the prompt that mlx_lm.server's penalties didn't see: those in its KV cache, of a request with a
        seed, which it serves alone; in a batch they see all."""
        reply = self._reply
        if reply is None or not reply.by_mlx_lm or self._request.seed is None:
            return 0
        return min(reply.cached_tokens or 0, len(self._prompt) - 1)

    @property
    def _penalised(self) -> bool:
        settings = self._request.settings
        return bool(settings.repetition_penalty or settings.presence_penalty or settings.frequency_penalty)

    def _judged(self, place: int, step: Step) -> ServedStep:
        token = self._tokens[place] if place < len(self._tokens) else None
        if token is None:
            return ServedStep(step, self._verdict(place, step), None, None)
        other = None
        if not _is(token, step):
            other = f"⟨{token.id}⟩".encode() if token.raw is None else token.raw
            token = next((each for each in token.top if _is(each, step)), None)
        figure = token.logprob if token is not None else None
        computed = self._at(place)[0] if figure is not None and self._repeated is not None else None
        return ServedStep(step, self._verdict(place, step), figure, computed, other)

    def _at(self, place: int) -> tuple[float, float]:
        """Logprob and margin of a served token, as mlx_lm's generator computes them."""
        made = self._repeated
        if made is None or place >= len(made.ids):
            return math.nan, math.inf
        return made.logprobs[place], made.margins[place]

    def _verdict(self, place: int, step: Step) -> Verdict:
        settings = self._request.settings
        if settings.temp == 0:
            close = abs(self._at(place)[1]) <= ROUNDING
            return "equal" if step.choice.picked == step.id else "rounding" if close else "differs"
        if self._request.seed is None:
            return "drawn"
        ours = self._drawn[: place + 1]
        served = tuple(each.id for each in self._steps[: place + 1])
        if ours == served:
            return "equal"
        return "differs" if ours[:place] == served[:place] else "drawn"


def _is(token: ServedToken, step: Step) -> bool:
    """Tell whether an entry of a reply names the token of a step, as one that says nothing does, too."""
    if token.id is None and token.raw is None:
        return True
    if token.id is not None:
        return token.id == step.id
    return token.raw == step.raw


# ---- the text that a server makes of its tokens ---------------------------------------------------


def said_as(
    written: str, reply: ServedReply, settings: Settings, marks: Sequence[str] = THINK
) -> tuple[bool, tuple[str, ...]]:
    """Compare what tokens spell with what a server sent of it.

    Args:
        written: The tokens' text, without end-of-sequence.
        reply: What was sent.
        settings: Of the request.
        marks: Of thinking and tool calls, which servers take away.

    Returns:
        Whether the server makes that of these tokens, and what it changed: one sentence each.
    """
    said = reply.reasoning + reply.text
    if reply.cut:
        same = _plain(written, marks).startswith(_plain(said, marks))
        return same, ("The reply broke off; what follows is generated here.",) if same else ()
    if said == written:
        return True, _swallowed(reply)
    notes: list[str] = []
    if said and written.startswith(" ") and not said.startswith(" "):
        written = written[1:]
        notes.append("The server left out the space that the reply begins with.")
    written, more = _without_stops(written, said, settings.stop)
    notes += more
    if said == written:
        return True, (*notes, *_swallowed(reply))
    same = _plain(said, marks) == _plain(written, marks) or (
        bool(reply.calls) and _in_order(reply, written, marks)
    )
    return same, (*notes, *_swallowed(reply)) if same else ()


def _without_stops(written: str, said: str, stops: Sequence[str]) -> tuple[str, list[str]]:
    """A text without its stop strings, and what is said where the server deleted one and went on."""
    notes = []
    for stop in stops:
        if stop in written and stop not in said:
            before, _, after = written.partition(stop)
            if not after or said == before:
                written = before
                continue
            written = written.replace(stop, "")
            notes.append(
                f"The server deleted {stop!r} from the text and continued: it stops at its own tokens alone."
            )
    return written, notes


def _swallowed(reply: ServedReply) -> tuple[str, ...]:
    if reply.reasoning and not reply.text and not reply.calls and reply.finish == "stop":
        return ("The server sent all of it as reasoning, and no answer.",)
    return ()


def _plain(text: str, marks: Sequence[str]) -> str:
    """A text without white space and without marks."""
    for mark in marks:
        text = text.replace(mark, "")
    return "".join(text.split())


def _in_order(reply: ServedReply, written: str, marks: Sequence[str]) -> bool:
    """Tell whether a text has the parts of a reply with calls of tools, one after another."""
    text, at = _plain(written, marks), 0
    names = (call.partition("(")[0] for call in reply.calls)
    for part in (_plain(reply.reasoning, marks), _plain(reply.text, marks), *names):
        at = text.find(part, at)
        if at < 0:
            return False
    return True
