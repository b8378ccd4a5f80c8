"""The prompts of a tree: how far each was read, which of them the path ends in, and the KV cache after each chunk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from msgspec import Struct, field
from msgspec.structs import replace

from engine.protocol import Failure, KVReading, PrefillChunk, Prefilled, PromptOpened, PromptReadings
from inspector.state.branches import ROOT
from inspector.state.session_tree import Item

_PACE = 20
"""The last chunks of a prefill, whose pace is told: chunks grow slower with the context."""
_SHORT_MS = 3000.0
"""Below this the time that is left is not told."""


class PromptRead(Struct):
    """One prompt of the tree, and what is known of its prefill."""

    opened: PromptOpened
    chunks: list[PrefillChunk] = field(default_factory=list)
    prefilled: Prefilled | None = None
    """None until it is read to its end."""
    readings_ms: float = 0.0
    """What its prompt logprobs took so far, in the prefill and after it."""


class Prompts(Struct):
    """The prompts of one tree, of its records."""

    by_end: dict[int, PromptRead] = field(default_factory=dict)
    """By their last nodes, in the order in which they were given last."""
    current: PromptRead | None = None
    """The path's last prompt; where the path leaves inside one, the prompt on show before."""
    opened: PromptOpened | None = None
    """That prompt as it was given."""
    chunks: list[PrefillChunk] = field(default_factory=list)
    """The chunks of its prefill so far."""
    prefilled: Prefilled | None = None
    """The end of its prefill, once it was reached."""
    readings_ms: float = 0.0
    """The milliseconds that its prompt logprobs took so far; 0 without any."""
    reading: bool = False
    """True if a prompt's prefill is under way, or was stopped on its way."""
    failure: Failure | None = None
    """Why the last prompt was refused, until one is taken."""
    kv: dict[int, KVReading] = field(default_factory=dict)
    """The KV cache after the chunk that a prompt's token was in, by node."""

    @property
    def tps(self) -> float:
        """Tokens a second of the chunks so far that are no cold start; 0 where there is none."""
        ends = [self.opened.held if self.opened else 0, *(chunk.done for chunk in self.chunks)]
        warm = [
            (end - begin, chunk.ms)
            for (begin, end), chunk in zip(pairwise(ends), self.chunks, strict=True)
            if not chunk.cold
        ]
        ms = sum(ms for _, ms in warm)
        return sum(tokens for tokens, _ in warm) / ms * 1000 if ms else 0.0

    @property
    def left_ms(self) -> float | None:
        """Time until the prefill ends at the pace of its last chunks; None where it is short, or nothing tells it."""
        latest = self.chunks[-_PACE - 1 :]
        if not self.reading or len(latest) < 2 or latest[-1].cold:
            return None
        ms = sum(chunk.ms for chunk in latest[1:])
        left = (latest[-1].total - latest[-1].done) * ms / (latest[-1].done - latest[0].done)
        return left if left >= _SHORT_MS else None

    def held(self, tokens: int) -> int:
        """How many tokens of a path the model has run: all but in a prefill.

        Args:
            tokens: Of the path on show.
        """
        if not self.reading or self.current is None:
            return tokens
        return self.current.chunks[-1].done if self.current.chunks else self.current.opened.held

    # ---- records as they come ---------------------------------------------------------------

    def open(self, record: PromptOpened, end: int) -> None:
        """Take in that a prompt is being read.

        Args:
            record: The prompt.
            end: Its last node.
        """
        self.by_end.pop(end, None)
        self.by_end[end] = PromptRead(record)
        self.reading, self.failure = True, None

    def take_chunk(self, record: PrefillChunk, path: Sequence[Item]) -> None:
        """Take in a chunk of the prompt that is being read, which the path ends with."""
        begin = self.held(len(path))
        self.chunks.append(record)
        for item in path[begin : record.done]:
            self.kv[item.node] = record.kv

    def take_readings(self, record: PromptReadings) -> None:
        """Take in the time that some prompt logprobs took."""
        if self.current is not None:
            self.current.readings_ms += record.ms
            self._show(self.current)

    def finish(self, record: Prefilled) -> None:
        """Take in that the prompt was read to its end."""
        if self.current is not None:
            self.current.prefilled = record
            self._show(self.current)
        self.kv[record.next.node] = record.kv
        self.reading = False

    def follow(self, path: Sequence[Item]) -> None:
        """Another path is on show: find its last prompt."""
        end = next((item.node for item in reversed(path) if item.node in self.by_end), None)
        if end is not None:
            self._show(self.by_end[end])

    def _show(self, read: PromptRead) -> None:
        self.current, self.opened, self.chunks = read, read.opened, read.chunks
        self.prefilled, self.readings_ms = read.prefilled, read.readings_ms

    def roles(self, path: Sequence[Item]) -> dict[int, str]:
        """The role of each message of a path by the slot of its first token; empty for raw text.

        A message that the template leaves out, or writes in another way, has no slot.
        """
        starts: dict[int, str] = {}
        for slot, item in enumerate(path):
            if (read := self.by_end.get(item.node)) is not None and read.opened.messages:
                starts |= _roles_of(read.opened)
                starts[slot + 1] = "assistant"
        return starts

    # ---- at one moment ----------------------------------------------------------------------

    def snapshot(self) -> Prompts:
        """The prompts as they are: what comes later changes nothing in it."""
        reads = {end: replace(read, chunks=list(read.chunks)) for end, read in self.by_end.items()}
        made = Prompts(reads, reading=self.reading, failure=self.failure, kv=dict(self.kv))
        current = next((reads[end] for end, read in self.by_end.items() if read is self.current), None)
        if current is not None:
            made._show(current)
        return made


def _roles_of(opened: PromptOpened) -> dict[int, str]:
    """The messages that are in a prompt's own text: of a turn the last one alone."""
    if opened.segments.runs:
        first = {run.message: run.begin for run in reversed(opened.segments.runs)}
        return {
            opened.tokens[place].position: opened.messages[number].role
            for number, place in sorted(first.items(), key=lambda each: each[1])
            if 0 <= number < len(opened.messages) and 0 <= place < len(opened.tokens)
        }
    ends = list(accumulate(len(token.text) for token in opened.tokens))
    places = _only_places(opened)
    return {
        opened.tokens[bisect_right(ends, at)].position: message.role
        for message, at in zip(opened.messages, places, strict=False)
        if 0 <= at < ends[-1]
    }


def _only_places(opened: PromptOpened) -> list[int]:
    """Where messages are that are once in the text: all that can be said where nothing tells their places."""
    contents = [message.content.strip() for message in opened.messages]
    if opened.parent != ROOT:
        contents[:-1] = [""] * (len(contents) - 1)
    return [opened.text.find(each) if each and opened.text.count(each) == 1 else -1 for each in contents]
