"""A server's reply compared with the engine's computation: the served tokens, and a verdict on each.

The served tokens are found in four ways, the most reliable first: the reply names them; mlx_lm's own generator, with
the request's seed, generates the reply's text again; the reply's lists of alternatives spell its text; its text is
tokenized again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct

from engine import protocol
from engine.protocol import Command, Record, Step
from engine.settings import Settings
from engine.token_texts import decode
from inspector.served.replies import ServedReply, ServedToken, repaired
from inspector.served.requests import ServedRequest

Source = Literal["named", "repeated", "repaired", "cut"]
SOURCES: dict[Source, str] = {
    "named": "the reply names them",
    "repeated": "mlx_lm's generator gives the same text again",
    "repaired": "the reply's lists spell its text so",
    "cut": "its text, cut into tokens again",
}
"""The ways the served tokens can be known, the most reliable way first."""
Verdict = Literal["equal", "rounding", "differs", "drawn"]
VERDICTS: dict[Verdict, str] = {
    "equal": "the same token is taken here",
    "rounding": "another token is taken here, equally probable up to rounding",
    "differs": "another token is taken here",
    "drawn": "the server drew it; its draw can't be repeated",
}
THINK = ("<think>", "</think>")
"""Marks of thinking to assume if the model's own are unknown."""
STOPPED, ENDED = ("stop", "tool_calls", "function_call"), ("eos", "eos_token")
"""Finish reasons of a reply that ended with an end-of-sequence token; for the first ones it may be a stop string."""
MOST_CHARACTERS = 2**20
"""Length of the longest reply that is computed again, for which a tokenizer takes a second and 200 MiB."""
_MORE = 32
"""Number of further tokens in which a reply's end is searched, after those that have as many letters as the reply."""
ROUNDING = 0.1
"""Nats by which logprobs computed in different types or shapes may differ: for bfloat16 against float32, on the bundled
model and in mlx_lm's batches, at most 0.06."""


NO_REPLY = ServedReply("")


class ServedStep(Struct, frozen=True):
    """A token that a server sent, with the computation here."""

    step: Step
    verdict: Verdict
    served: float | None
    """Its logprob from the server; None if the reply doesn't have it."""
    computed: float | None
    """The same figure computed here; None if there is none from the server."""
    named: bytes | None = None
    """Bytes of the wrong token that the reply names instead; None if it names the right token or no token."""

    @property
    def misnamed(self) -> bool:
        """True if the reply names a wrong token instead."""
        return self.named is not None


class Rescored(Struct, frozen=True):
    """A reply that was computed again."""

    prompt_tokens: int
    reply: ServedReply
    """The reply as it was read; `NO_REPLY` if there is none."""
    source: Source | None
    """The way the tokens are known; None if there are none."""
    steps: tuple[ServedStep, ...]
    same_text: bool
    """True if these tokens spell the reply's text."""
    notes: tuple[str, ...]
    """Sentences on the server's changes to the text, and on what isn't known."""

    @property
    def first(self) -> int | None:
        """Index of the first token that differs here; None if all are equal."""
        other = (place for place, each in enumerate(self.steps) if each.verdict in ("rounding", "differs"))
        return next(other, None)

    @property
    def largest(self) -> float | None:
        """The largest difference of a logprob, in nats; None if the server named no logprob."""
        pairs = ((each.served, each.computed) for each in self.steps)
        known = (abs(one - other) for one, other in pairs if one is not None and other is not None)
        return max(known, default=None)

    @property
    def misnamed(self) -> int:
        """Number of tokens that the reply names wrongly."""
        return sum(each.misnamed for each in self.steps)


class Rescoring:
    """Computes a reply again, after the prefill of the request's prompt.

    The caller sends each of `commands` when the one before has ended, and passes every record to `take`.

    Args:
        request: The request as it was sent.
        reply: The reply; None if unknown.
    """

    def __init__(self, request: ServedRequest, reply: ServedReply | None) -> None:
        self._request, self._reply = request, reply or NO_REPLY
        self._facts: protocol.ModelFacts | None = None
        self._eos: tuple[int, ...] = ()
        self._format = protocol.ReplyFormat()
        self._prompt: tuple[protocol.PromptToken, ...] = ()
        self._following: protocol.Distribution | None = None
        """The model's distribution after the prompt."""
        self.done = 0
        """Number of tokens that mlx_lm's generator has made so far."""
        self._repeated: protocol.ReplyRepeated | None = None
        self._drawn: tuple[int, ...] = ()
        """The tokens that mlx_lm's generator draws here; empty if the server's draws can't be repeated."""
        self._steps: list[Step] = []
        self._source: Source | None = None
        self._ended = False
        """True if an end-of-sequence token was taken only because of the reply's finish reason."""

    def take(self, record: Record) -> None:
        """Receive a record."""
        match record:
            case protocol.ModelFacts():
                self._eos, self._facts = record.eos_ids, record
            case protocol.PromptOpened():
                self._format = record.segments.reply
            case protocol.Prefilled():
                self._prompt, self._following = record.tokens, record.next
            case protocol.ReplyRepeated():
                self.done = len(record.ids)
                self._repeated = record if record.last else self._repeated
            case Step():
                self._steps.append(record)

    def commands(self) -> Iterator[Command]:
        """The commands that find the served tokens, take them, and read their logprobs."""
        reply, request = self._reply, self._request
        if not self._prompt or reply is NO_REPLY or reply.error or self._too_long:
            return
        node = self._prompt[-1].node
        if request.settings.temp == 0 or request.seed is not None:
            yield protocol.RepeatReply(node, request.seed, cached=self._unseen)
            self._drawn = self._repeated.ids if self._repeated is not None else ()
        self._source, ids = self._served()
        if self._source == "cut":
            yield protocol.Insert(node, self._written(), leave_grammar=True)
        elif ids:
            yield protocol.Take(node, ids, "served", leave_grammar=True)
        if self._end_is_missing():
            following = self._steps[-1].next if self._steps else self._following
            listed = following.candidates if following is not None else ()
            end = next((each.id for each in listed if each.id in self._eos), self._eos[0])
            yield protocol.Take(self._steps[-1].node if self._steps else node, (end,), "served", True)
            self._source, self._ended = self._source or "cut", True
        taken = tuple(step.id for step in self._steps)
        if taken and (self._repeated is None or self._repeated.ids != taken):
            yield protocol.RepeatReply(node, ids=taken, cached=self._unseen)

    @property
    def _too_long(self) -> bool:
        return len(self._reply.text + self._reply.reasoning) > MOST_CHARACTERS

    def _served(self) -> tuple[Source | None, tuple[int, ...]]:
        """The way the served tokens are known, and their ids; no ids if the text is tokenized again."""
        if self._reply.exact_ids:
            return "named", self._reply.exact_ids
        if (repeated := self._repeated_part()) is not None:
            return "repeated" if repeated else None, repeated
        by_lists = repaired(self._reply) if any(each.top for each in self._reply.tokens) else ()
        ids = tuple(each.id for each in by_lists if each.id is not None)
        if by_lists and len(ids) == len(by_lists):
            return "repaired", ids
        return "cut" if self._written() else None, ()

    def _repeated_part(self) -> tuple[int, ...] | None:
        """The part of the repeated tokens that the reply consists of; None if they spell a different text.

        mlx_lm's generator continues at some places where other servers stop: at a stop string that is tokenized
        differently, or at an end-of-sequence token that it doesn't know. The number of tokens is the reply's own count,
        or else found by its text.
        """
        drawn, raws = self._drawn, self._repeated.raws if self._repeated is not None else ()
        text = [b"" if id in self._eos else raw for id, raw in zip(drawn, raws, strict=True)]

        def written(length: int) -> str:
            return decode(b"", b"".join(text[:length]))[0]

        def spells_it(length: int) -> bool:
            return 0 <= length <= len(drawn) and self._compared(written(length))[0]

        if not drawn:
            return None
        count = self._reply.completion_tokens
        if self._reply.cut or (count is None and self._reply.by_mlx_lm):
            return drawn if spells_it(len(drawn)) else None
        if count is not None:
            # some servers don't count the end-of-sequence token
            uncounted = count < len(drawn) and drawn[count] in self._eos
            lengths = [count + 1 if uncounted else count, *([count - 1] if self._ends() else [])]
            return next((drawn[:length] for length in lengths if spells_it(length)), None)
        said = len("".join((self._reply.reasoning + self._reply.text).split()))
        sizes = accumulate((len("".join(decode(b"", raw)[0].split())) for raw in text), initial=0)
        first = next((length for length, size in enumerate(sizes) if size >= said), len(drawn) + 1)
        found = [length for length in range(first, first + _MORE) if spells_it(length)]
        if not found:
            return None
        stops = self._request.settings.stop
        texts = [(length, written(length)) for length in found]
        exact = (n for n, text in texts if text == self._reply.text or any(stop in text for stop in stops))
        length = next(exact, found[0])
        return drawn[: length + (length < len(drawn) and drawn[length] in self._eos)]

    def _ends(self) -> bool:
        """True if an end-of-sequence token ended the reply, by its finish reason."""
        if self._reply.finish in STOPPED:
            return not self._request.settings.stop
        return self._reply.finish in ENDED

    def _end_is_missing(self) -> bool:
        """True if an end-of-sequence token was served that isn't among the tokens taken so far."""
        if self._reply.cut or not self._eos or not self._ends() or self._reply.completion_tokens == 0:
            return False
        if self._reply.calls and self._source in (
            None,
            "cut",
        ):  # the tokens of the calls are missing before it
            return False
        return not self._steps or self._steps[-1].id not in self._eos

    def _written(self) -> str:
        """The reply's text as the model must have written it, with the marks of its thinking."""
        if not self._reply.reasoning:
            return self._reply.text
        begins = next((each.text for each in self._format.marks if each.to == "thinking"), THINK[0])
        ends = next((each.text for each in self._format.marks if each.at == "thinking"), THINK[1])
        opened = "" if self._format.begin == "thinking" else begins
        return f"{opened}{self._reply.reasoning}" + (f"{ends}{self._reply.text}" if self._reply.text else "")

    def _compared(self, written: str) -> tuple[bool, tuple[str, ...]]:
        marks = [each.text for each in self._format.marks] or THINK
        return said_as(written, self._reply, self._request.settings, marks)

    # ---- the result -------------------------------------------------------------------------

    def result(self) -> Rescored:
        """The result of the comparison."""
        reply, same, notes = self._reply, True, [*self._request.notes, *self._reply.notes]
        if reply is NO_REPLY:
            notes.append("The recording has no reply: what the engine generates is all there is.")
        elif reply.error:
            notes.append(f"The server refused it: {reply.error}")
        elif self._too_long:
            characters = f"{len(reply.text + reply.reasoning):,} characters"
            notes.append(f"The reply has {characters}: more than {MOST_CHARACTERS:,} are not computed again.")
        elif self._source is not None:
            taken = "".join(step.text for step in self._steps if step.id not in self._eos)
            same, said = self._compared(taken)
            notes += said
            settings = self._request.settings
            penalties = settings.repetition_penalty or settings.presence_penalty or settings.frequency_penalty
            if self._unseen and penalties:
                cached = f"{self._unseen:,} tokens of the prompt that it had in its KV cache"
                notes.append(f"The server's penalties didn't see the {cached}.")
            if self._source == "cut" and reply.text + reply.reasoning:
                notes.append("Which tokens were served isn't known: its text was cut into tokens again.")
                if self._drawn:
                    assert self._facts is not None
                    here = f"mlx_lm's generator gives another text here, in {self._facts.dtype}."
                    notes.append(f"{here} {as_served(self._facts)}")
            if self._ended:
                notes.append(f"The last token is known by the finish reason alone, {reply.finish[:40]!r}.")
        judged = tuple(self._judged(place, step) for place, step in enumerate(self._steps))
        return Rescored(len(self._prompt), reply, self._source, judged, same, tuple(notes))

    @property
    def _unseen(self) -> int:
        """Number of the prompt's tokens that mlx_lm.server's penalties didn't see: those in its KV cache, for a request
        with a seed, which it serves alone; in a batch the penalties see all."""
        reply = self._reply
        if not reply.by_mlx_lm or self._request.seed is None:
            return 0
        return min(reply.cached_tokens or 0, len(self._prompt) - 1)

    def _judged(self, place: int, step: Step) -> ServedStep:
        tokens = self._reply.tokens
        token, other = tokens[place] if place < len(tokens) else None, None
        if token is not None and not _is(token, step):
            other = token.shown
            token = next((each for each in token.top if _is(each, step)), None)
        figure = token.logprob if token is not None else None
        made = self._repeated
        logprob, margin = math.nan, math.inf
        if made is not None and place < len(made.ids):
            logprob, margin = made.logprobs[place], made.margins[place]
        computed = logprob if figure is not None and made is not None else None
        return ServedStep(step, self._verdict(place, step, margin), figure, computed, other)

    def _verdict(self, place: int, step: Step, margin: float) -> Verdict:
        if self._request.settings.temp == 0:
            close = abs(margin) <= ROUNDING
            return "equal" if step.choice.picked == step.id else "rounding" if close else "differs"
        if self._request.seed is None:
            return "drawn"
        ours = self._drawn[: place + 1]
        served = tuple(each.id for each in self._steps[: place + 1])
        if ours == served:
            return "equal"
        return "differs" if ours[:place] == served[:place] else "drawn"


def as_served(facts: protocol.ModelFacts) -> str:
    """A sentence on the flags with which a model computes exactly like a server with the same files."""
    flags = ["--dtype file"] if facts.stored else []
    quantized = facts.quantization is not None or "-bit" in facts.stored
    if quantized and facts.backend == "cpu" and facts.dtype == "float32":
        flags.append("--no-float32-scales")
    if facts.blas:
        flags.append("--blas bundled")
    if not flags:
        return "It computes as a server with the same files and the same mlx_lm does on this machine."
    return f"With these flags it computes as a server with the same files does: {' '.join(flags)}."


def _is(token: ServedToken, step: Step) -> bool:
    """True if an entry of a reply names the token of a step, or has neither id nor bytes."""
    return token.raw in (None, step.raw) if token.id is None else token.id == step.id


# ---- the text that a server makes from its tokens -------------------------------------------------


def said_as(
    written: str, reply: ServedReply, settings: Settings, marks: Sequence[str] = THINK
) -> tuple[bool, tuple[str, ...]]:
    """Compare the text of some tokens with a server's reply.

    Args:
        written: The tokens' text, without end-of-sequence tokens.
        reply: The server's reply.
        settings: Settings of the request.
        marks: Marks of thinking and tool calls, which servers remove.

    Returns:
        True if the server makes this reply from these tokens, and sentences on what it changed.
    """
    said, notes = reply.reasoning + reply.text, []
    if reply.cut:
        same = _plain(written, marks).startswith(_plain(said, marks))
        return same, ("The reply broke off; what follows is generated here.",) if same else ()
    if said != written:
        if said and written.startswith(" ") and not said.startswith(" "):
            written = written[1:]
            notes.append("The server left out the space that the reply begins with.")
        for stop in settings.stop:
            if stop not in written or stop in said:
                continue
            before, _, after = written.partition(stop)
            if after and said != before:
                written = written.replace(stop, "")
                continued = f"The server deleted {stop!r} from the text and continued"
                notes.append(f"{continued}: it stops at its own tokens alone.")
            else:
                written = before
    same = said == written or _plain(said, marks) == _plain(written, marks)
    if not same and not (reply.calls and _in_order(reply, written, marks)):
        return False, ()
    if reply.reasoning and not reply.text and not reply.calls and reply.finish == "stop":
        notes.append("The server sent all of it as reasoning, and no answer.")
    return True, tuple(notes)


def _plain(text: str, marks: Sequence[str]) -> str:
    """A text without white space and without marks."""
    for mark in marks:
        text = text.replace(mark, "")
    return "".join(text.split())


def _in_order(reply: ServedReply, written: str, marks: Sequence[str]) -> bool:
    """True if a text contains the parts of a reply with tool calls, in order."""
    text, at = _plain(written, marks), 0
    names = (call.partition("(")[0] for call in reply.calls)
    for part in (_plain(reply.reasoning, marks), _plain(reply.text, marks), *names):
        at = text.find(part, at)
        if at < 0:
            return False
    return True
