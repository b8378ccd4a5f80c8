"""A conversation as it is edited: its last user's message and its system prompt. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.protocol import Message


def is_conversation(messages: Sequence[Message]) -> bool:
    """Whether there is more than a system prompt and one message."""
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
        text: Of the user's message; put at the end where there is none.
        system: Empty for none.
    """
    place, changed = last_user(messages), list(messages)
    if place is not None:
        changed[place] = replace(changed[place], content=text)
    elif text:
        changed.append(Message("user", text))
    if system_of(changed):
        first = [replace(changed[0], content=system)] if system else []
        return (*first, *changed[1:])
    return (*([Message("system", system)] if system else []), *changed)


def transcript(messages: Sequence[Message]) -> str:
    """The messages that are not edited elsewhere, each with its role: the system prompt and the user's last one are."""
    own = {last_user(messages), 0 if system_of(messages) else None}
    rest = [message for place, message in enumerate(messages) if place not in own]
    return "\n".join(f"{message.role}: {message.content}{_more(message)}" for message in rest)


def _more(message: Message) -> str:
    return f" {message.more}" if message.more else ""
