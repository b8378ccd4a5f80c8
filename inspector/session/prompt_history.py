"""The prompts that a person gave or typed before, gone through one after another; what is changed on the way stays."""

from __future__ import annotations

from collections.abc import Iterable

from engine.records import PromptOpened
from inspector.session.prefill import Prompt
from inspector.state.timeline import Timeline


def given(timeline: Timeline) -> list[Prompt]:
    """The prompts of the tree, in the order in which they were given last; of a conversation its last message."""
    return [_prompt(read.opened) for read in timeline.prompts.by_end.values()]


def _prompt(opened: PromptOpened) -> Prompt:
    if not opened.messages:
        return Prompt(opened.text, False)  # or an old recording, whose text has the template in it
    first, last = opened.messages[0], opened.messages[-1]
    return Prompt(last.content, True, first.content if first.role == "system" else None)


def _key(prompt: Prompt) -> tuple[object, ...]:
    """What makes two prompts the same to a person."""
    return prompt.text, prompt.chat, prompt.system


class PromptHistory:
    """Prompts, oldest first, with a place among them: at the beginning the last one, which is being edited.

    Args:
        before: Prompts from before; of equal ones the last is kept, and none that is empty.
        present: What is edited.
    """

    def __init__(self, before: Iterable[Prompt], present: Prompt) -> None:
        distinct: dict[tuple[object, ...], Prompt] = {}
        for prompt in before:
            distinct.pop(_key(prompt), None)
            distinct[_key(prompt)] = prompt
        distinct.pop(_key(present), None)
        self._prompts = [*(prompt for prompt in distinct.values() if prompt.text), present]
        self._place = len(self._prompts) - 1

    @property
    def earlier(self) -> int:
        """How many there are before the one on show."""
        return self._place

    def go(self, by: int, typed: Prompt) -> Prompt | None:
        """Go to another prompt.

        Args:
            by: -1 for the one before, 1 for the next.
            typed: What the one on show has become.

        Returns:
            It, None where there is no further one.
        """
        if not 0 <= self._place + by < len(self._prompts):
            return None
        self._prompts[self._place] = typed
        self._place += by
        return self._prompts[self._place]
