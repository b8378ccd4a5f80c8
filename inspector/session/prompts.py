"""Prompts: editing conversations, and the history of earlier prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import Message, Prefill, PromptOpened
from inspector.state.timeline import Timeline

# ---- conversations ----------------------------------------------------------------------------


def is_conversation(messages: Sequence[Message]) -> bool:
    """True if there is more than one message besides system prompts."""
    return sum(message.role != "system" for message in messages) > 1


def system_of(messages: Sequence[Message]) -> str:
    """The system prompt at the beginning; empty for none."""
    return messages[0].content if messages and messages[0].role == "system" else ""


def last_user(messages: Sequence[Message]) -> int | None:
    """Index of the last message with the role user."""
    return next((place for place in reversed(range(len(messages))) if messages[place].role == "user"), None)


def edited(messages: Sequence[Message], text: str, system: str) -> tuple[Message, ...]:
    """The conversation with a new last user message and a new system prompt.

    Args:
        messages: The conversation so far.
        text: Text of the user message, which is appended if there is none yet.
        system: The system prompt; empty for none.
    """
    place, changed = last_user(messages), list(messages)
    if place is not None:
        changed[place] = replace(changed[place], content=text)
    elif text:
        changed.append(Message("user", text))
    first = replace(changed.pop(0), content=system) if system_of(changed) else Message("system", system)
    return (first, *changed) if system else tuple(changed)


def transcript(messages: Sequence[Message]) -> str:
    """The messages with their roles, except the system prompt and the last user message, which are edited elsewhere."""
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
    """The prompts of the tree, the most recent last."""
    return [prompt_of(read.opened) for read in timeline.prompts.by_end.values()]


def on_show(timeline: Timeline) -> Prefill | None:
    """The conversation of the path on show; None if it is a single message or raw text."""
    opened = timeline.prompts.opened
    return prompt_of(opened) if opened is not None and is_conversation(opened.messages) else None


def prompt_of(opened: PromptOpened) -> Prefill:
    """The command that gives a prompt again."""
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
    """Prompts, oldest first, and the one on show: at first the last, which is being edited.

    Args:
        before: Earlier prompts; empty ones and all but the last of equal ones are dropped.
        present: The prompt that is being edited.
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
        """Number of prompts before the one on show."""
        return self._place

    def go(self, by: int, typed: Prefill) -> Prefill | None:
        """Go to the previous or the next prompt.

        Args:
            by: -1 for the previous, 1 for the next.
            typed: The prompt on show as edited.

        Returns:
            The prompt; None if there is no further one.
        """
        if not 0 <= self._place + by < len(self._prompts):
            return None
        self._prompts[self._place] = typed
        self._place += by
        return self._prompts[self._place]
