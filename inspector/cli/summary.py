"""What a generation came to: its text, cut where it stopped, and its figures, from the records alone."""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine import protocol
from engine.frozen import frozen
from engine.settings import Settings
from engine.timing import Tpot, tpot
from inspector.state.speculation import Speculation


class Completion:
    """The text of a completion as far as it is certain: what may become a stop string is held back.

    Args:
        stops: Stop strings.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._pieces: list[str] = []
        self._held = ""

    @property
    def text(self) -> str:
        """What is certain so far."""
        return "".join(self._pieces)

    def add(self, text: str) -> str:
        """Take in the text of a token; returns what is certain now and was not before."""
        held = self._held + text
        cut = self._begins(held)
        self._held = held[cut:]
        return self._keep(held[:cut])

    def close(self) -> str:
        """No more text comes: returns the rest, without a stop string and what follows it."""
        places = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        rest = self._held[: min(places)] if places else self._held
        self._held = ""
        return self._keep(rest)

    def _keep(self, text: str) -> str:
        if text:
            self._pieces.append(text)
        return text

    def _begins(self, text: str) -> int:
        """Where a stop string, or the beginning of one at the text's end, begins: the earliest place."""
        places = [len(text)]
        for stop in self._stops:
            at = text.find(stop)
            places.append(at if at >= 0 else _partial(text, stop))
        return min(places)


def _partial(text: str, stop: str) -> int:
    """Where the longest end of `text` that is a beginning of `stop` begins; the text's end where there is none."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return len(text) - length
    return len(text)


@frozen
class Summary:
    """A generation that ended."""

    reason: protocol.FinishReason
    detail: str
    text: str
    """Of the completion, without the end-of-sequence token and cut before a stop string."""
    pending: bytes
    """Bytes of a character that the last token left unfinished."""
    steps: int
    tpot: Tpot | None
    cold_ms: float | None
    """Of a first step that was a cold start: `tpot` doesn't count it."""
    pipelined: bool
    """Whether steps overlapped while they were timed."""
    facts: protocol.ModelFacts | None
    prefilled: protocol.Prefilled | None
    first_token_ms: float | None
    """From the encoded prompt until the first token was there to be written: TTFT and the record."""
    kv: protocol.KVReading | None
    memory: protocol.Memory | None
    speculation: Speculation
    """Rounds of speculative decoding, if there were any."""


class Tally:
    """Adds records up to a summary, keeping no step.

    The first token is known with the prompt's distribution, a forward before its own step is: its text is certain then
    if a run follows, and a run of which nothing else came (it was interrupted) has it as its text.

    Args:
        settings: Their stop strings cut the text.
        runs: Whether a run follows the prompt.
    """

    def __init__(self, settings: Settings, runs: bool = False) -> None:
        self._runs = runs
        self._first: int | None = None
        """Id of the first token, from when its text was taken in until its step."""
        self._begun = time.perf_counter()
        self._first_ms: float | None = None
        self.completion = Completion(settings.stop)
        self.facts: protocol.ModelFacts | None = None
        self.prefilled: protocol.Prefilled | None = None
        self._last: protocol.Step | None = None
        self._finished: protocol.Finished | None = None
        self._steps = 0
        self._ms: list[float] = []
        """Of the steps that are no cold start."""
        self._cold_ms: float | None = None
        self._pipelined = False
        self._speculation = Speculation()

    def take(self, record: protocol.Record) -> str:
        """Take in one record; returns the text of the completion that it made certain."""
        self._speculation.apply(record)
        match record:
            case protocol.ModelFacts():
                self.facts = record
            case protocol.PromptOpened():
                self._begun = time.perf_counter()
            case protocol.Prefilled():
                self.prefilled = record
                self._first_ms = (time.perf_counter() - self._begun) * 1000
                return self._take_first(record)
            case protocol.Step():
                self._last = record
                self._steps += 1
                if record.ms.cold:
                    self._cold_ms = record.ms.total
                else:
                    self._ms.append(record.ms.total)
                self._pipelined |= record.ms.pipelined
                first, self._first = self._first, None
                return "" if first == record.id or self._ends(record.id) else self.completion.add(record.text)
            case protocol.Finished():
                self._finished = record
                return self.completion.close()
            case _:
                pass
        return ""

    def _take_first(self, prefilled: protocol.Prefilled) -> str:
        """The text of the token that a run begins with; none where the context window has no room for it."""
        picked, window = prefilled.next.picked, self.facts.context_window if self.facts else None
        if not self._runs or self._ends(picked) or len(prefilled.tokens) == window:
            return ""
        self._first = picked
        text = next(candidate.text for candidate in prefilled.next.candidates if candidate.id == picked)
        return self.completion.add(text)

    def _ends(self, token: int) -> bool:
        return self.facts is not None and token in self.facts.eos_ids

    def summary(self) -> Summary:
        """Where the generation ended: without a finish reason it was cancelled."""
        self.completion.close()
        finished, latest = self._finished, self._last or self.prefilled
        return Summary(
            reason=finished.reason if finished else "cancelled",
            detail=finished.detail if finished else "",
            text=self.completion.text,
            pending=self._last.pending if self._last else b"",
            steps=self._steps,
            tpot=tpot(self._ms),
            cold_ms=self._cold_ms,
            pipelined=self._pipelined,
            facts=self.facts,
            prefilled=self.prefilled,
            first_token_ms=self._first_ms,
            kv=latest.kv if latest else None,
            memory=latest.memory if latest else None,
            speculation=self._speculation,
        )
