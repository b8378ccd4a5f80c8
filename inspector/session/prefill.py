"""The prompt's way in, as a person steers it: stopped, gone on with, and in larger or smaller chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from engine.commands import Command, GoOnPrefill, Prefill
from inspector.state.timeline import Phase, Timeline

LEAST, MOST = 1, 2048
"""Tokens a chunk."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as a person gives it."""

    text: str
    chat: bool
    """Through the chat template, where the model has one."""
    system: str | None = None
    echo: bool | None = None
    """Prompt logprobs: None for up to 2,048 tokens, True always, False never."""


class Prefilling:
    """Sends prefills.

    Args:
        send: Sends a command to the engine.
        out: The commands that are out.
    """

    def __init__(self, send: Callable[[Command], None], out: Callable[[], list[Command]]) -> None:
        self.size: int | None = None
        """Tokens a chunk, None for as many as take about 100 ms."""
        self._send, self._out = send, out

    def begin(self, prompt: Prompt) -> None:
        """Begin a new tree with a prompt."""
        self._send(Prefill(prompt.text, prompt.chat, prompt.system, prompt.echo, self.size))

    def waits(self, timeline: Timeline) -> bool:
        """Whether a prefill was stopped on its way, and can be gone on with."""
        return timeline.phase is Phase.PREFILL and not self._under_way()

    def go_on(self) -> None:
        """Go on with the prefill that waits."""
        self._send(GoOnPrefill(self.size))

    def resize(self, timeline: Timeline, by: int) -> str:
        """Double the chunks, or halve them with -1; a prefill under way goes on with them.

        Returns:
            What to tell the person.
        """
        size = (self.size or _last(timeline)) * 2 if by > 0 else (self.size or _last(timeline)) // 2
        self.size = max(LEAST, min(MOST, size))
        if (under_way := self._under_way()) is not None:
            under_way.cancel.set()
            self.go_on()
        return f"Chunks of {self.size:,} tokens"

    def _under_way(self) -> Command | None:
        kinds = (Prefill, GoOnPrefill)
        return next(
            (each for each in self._out() if isinstance(each, kinds) and not each.cancel.is_set()), None
        )


def _last(timeline: Timeline) -> int:
    """Tokens of the last chunk."""
    ends = [0, *(chunk.done for chunk in timeline.chunks[-2:])]
    return max(1, *(b - a for a, b in pairwise(ends[-2:]))) if len(ends) > 1 else 32
