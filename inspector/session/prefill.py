"""The prompt's way in, as a person steers it: stopped, gone on with, and in larger or smaller chunks."""

from __future__ import annotations

from itertools import pairwise

from engine.frozen import frozen
from engine.protocol import NO_OPTIONS, AddTurn, ChatOptions, Command, GoOnPrefill, Message, Prefill
from inspector.session.client import EngineClient
from inspector.state.timeline import Phase, Timeline

LEAST, MOST = 1, 2048
"""Tokens a chunk."""


@frozen
class Prompt:
    """A prompt as a person gives it."""

    text: str
    chat: bool
    """Through the chat template, where the model has one."""
    system: str | None = None
    echo: bool | None = None
    """Prompt logprobs: None for up to 2,048 tokens, True always, False never."""
    messages: tuple[Message, ...] = ()
    """A whole conversation, whose last user's message is the text."""
    options: ChatOptions = NO_OPTIONS
    """What else the chat template gets."""
    cache_file: str = ""
    """A KV cache that mlx_lm.cache_prompt saved, which the text follows."""
    cached_text: str = ""
    """The prompt that it was made from."""


class PrefillControl:
    """Sends prefills.

    Args:
        client: Takes the commands.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self.size: int | None = None
        """Tokens a chunk, None for as many as take about 100 ms."""

    def begin(self, prompt: Prompt) -> None:
        """Begin a new tree with a prompt."""
        self._client.send(
            Prefill(
                prompt.text,
                prompt.chat,
                prompt.system,
                prompt.echo,
                self.size,
                prompt.messages,
                prompt.options,
                prompt.cache_file,
                prompt.cached_text,
            )
        )

    @property
    def waits(self) -> bool:
        """Whether a prefill was stopped on its way, and can be gone on with."""
        return self._client.timeline.phase is Phase.PREFILL and not self._under_way()

    def go_on(self) -> None:
        """Go on with the prefill that waits."""
        self._client.send(GoOnPrefill(self.size))

    def resize(self, by: int) -> str:
        """Double the chunks, or halve them with -1; a prefill under way goes on with them.

        Returns:
            The answer for the person.
        """
        size = self.size or _last(self._client.timeline)
        self.size = max(LEAST, min(MOST, size * 2 if by > 0 else size // 2))
        if under_way := self._under_way():
            self._client.cancel(under_way[0])
            self.go_on()
        return f"Chunks of {self.size:,} tokens"

    def _under_way(self) -> list[Command]:
        return self._client.under_way(Prefill, AddTurn, GoOnPrefill)


def _last(timeline: Timeline) -> int:
    """Tokens of the last chunk."""
    ends = [0, *(chunk.done for chunk in timeline.prompts.chunks[-2:])]
    return max(1, *(b - a for a, b in pairwise(ends[-2:]))) if len(ends) > 1 else 32
