"""The prompts that a person gave or typed before, gone through one after another; what is changed on the way stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.protocol import PromptOpened
from inspector.session.conversation import is_conversation, last_user, system_of
from inspector.session.prefill import Prompt
from inspector.state.timeline import Timeline


def given(timeline: Timeline) -> list[Prompt]:
    """The prompts of the tree, in the order in which they were given last."""
    return [_prompt(read.opened) for read in timeline.prompts.by_end.values()]


def on_show(timeline: Timeline) -> Prompt | None:
    """The conversation that the path on show has, up to its last user's message; None where it has one message."""
    opened = timeline.prompts.opened
    return _prompt(opened) if opened is not None and is_conversation(opened.messages) else None


def _prompt(opened: PromptOpened) -> Prompt:
    messages = opened.messages
    if not messages:
        return Prompt(opened.text, False)  # or an old recording, whose text has the template in it
    system = system_of(messages) or None
    if not is_conversation(messages):
        return Prompt(messages[-1].content, True, system)
    place = last_user(messages)
    text = messages[place].content if place is not None else ""
    return Prompt(text, True, system, None, messages, replace(opened.options, response=None))


def _key(prompt: Prompt) -> tuple[object, ...]:
    """What makes two prompts the same to a person."""
    messages = prompt.messages if is_conversation(prompt.messages) else ()
    return prompt.text, prompt.chat, prompt.system, messages


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
