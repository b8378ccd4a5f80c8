"""Prompts: conversations that are edited, and those that were given or typed before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import Message, Prefill, PromptOpened
from inspector.state.timeline import Timeline

# ---- conversations ----------------------------------------------------------------------------


def is_conversation(messages: Sequence[Message]) -> bool:
    """True if there is more than a system prompt and one message."""
    return sum(message.role != "system" for message in messages) > 1


def system_of(messages: Sequence[Message]) -> str:
    """The system prompt that they begin with, empty for none."""
    return messages[0].content if messages and messages[0].role == "system" else ""


def last_user(messages: Sequence[Message]) -> int | None:
    """The place of the last user's message."""
    return next((place for place in reversed(range(len(messages))) if messages[place].role == "user"), None)


def edited(messages: Sequence[Message], text: str, system: str) -> tuple[Message, ...]:
    """The conversation with another last user's message and another system prompt.

    Args:
        messages: As they are.
        text: Of the user's message; put at the end if there is none.
        system: Empty for none.
    """
    place, changed = last_user(messages), list(messages)
    if place is not None:
        changed[place] = replace(changed[place], content=text)
    elif text:
        changed.append(Message("user", text))
    first = replace(changed.pop(0), content=system) if system_of(changed) else Message("system", system)
    return (first, *changed) if system else tuple(changed)


def transcript(messages: Sequence[Message]) -> str:
    """The messages that are not edited elsewhere, each with its role: the system prompt and the user's last one are."""
    own = {last_user(messages), 0 if system_of(messages) else None}
    rest = (message for place, message in enumerate(messages) if place not in own)
    return "\n".join(f"{each.role}: {each.content}{f' {each.more}' if each.more else ''}" for each in rest)


# ---- typed ------------------------------------------------------------------------------------


class Draft(Struct, frozen=True):
    """The typed text, and whether it was submitted."""

    prompt: Prefill
    submitted: bool


# ---- given before -----------------------------------------------------------------------------


def given(timeline: Timeline) -> list[Prefill]:
    """The prompts of the tree, in the order in which they were given last."""
    return [prompt_of(read.opened) for read in timeline.prompts.by_end.values()]


def on_show(timeline: Timeline) -> Prefill | None:
    """The conversation that the path on show has, up to its last user's message; None if it has one message."""
    opened = timeline.prompts.opened
    return prompt_of(opened) if opened is not None and is_conversation(opened.messages) else None


def prompt_of(opened: PromptOpened) -> Prefill:
    """A prompt that was given, as it can be given again."""
    messages = opened.messages
    if not messages:
        return Prefill(opened.text, False)
    system = system_of(messages) or None
    if not is_conversation(messages):
        return Prefill(messages[-1].content, True, system)
    place = last_user(messages)
    text = messages[place].content if place is not None else ""
    options = replace(opened.options, response=None)
    return Prefill(text, True, system, messages=messages, options=options)


def _key(prompt: Prefill) -> tuple[object, ...]:
    """Key that is equal for prompts that look the same."""
    messages = prompt.messages if is_conversation(prompt.messages) else ()
    return prompt.text, prompt.chat, prompt.system, messages


class PromptHistory:
    """Prompts, oldest first, with a place among them: at the beginning the last one, which is being edited.

    Args:
        before: Earlier prompts; of equal ones the last is kept, and none that is empty.
        present: The one that is edited.
    """

    def __init__(self, before: Iterable[Prefill], present: Prefill) -> None:
        distinct: dict[tuple[object, ...], Prefill] = {}
        for prompt in before:
            distinct.pop(_key(prompt), None)
            distinct[_key(prompt)] = prompt
        distinct.pop(_key(present), None)
        self._prompts = [*(prompt for prompt in distinct.values() if prompt.text), present]
        self._place = len(self._prompts) - 1

    @property
    def earlier(self) -> int:
        """Number of those before the one on show."""
        return self._place

    def go(self, by: int, typed: Prefill) -> Prefill | None:
        """Go to another prompt.

        Args:
            by: -1 for the one before, 1 for the next.
            typed: The text that the one on show has now.

        Returns:
            The prompt; None if there is no further one.
        """
        if not 0 <= self._place + by < len(self._prompts):
            return None
        self._prompts[self._place] = typed
        self._place += by
        return self._prompts[self._place]
