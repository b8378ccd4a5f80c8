"""A conversation, as a chat template takes it."""

from __future__ import annotations

from engine.frozen import frozen


@frozen
class Message:
    """One message of a conversation."""

    role: str
    """`system`, `user`, `assistant`, `tool` or what else the template knows."""
    content: str
    more: str = ""
    """Its other keys as a JSON object, empty where it has none."""


@frozen
class ChatOptions:
    """What a chat template gets in addition to the messages."""

    config: str = ""
    """Variables of the template as a JSON object (`--chat-template-config` of mlx_lm.generate)."""
    tools: str = ""
    """Tools as a JSON list, empty for none."""
    default_template: bool = False
    """Where the model has no template, the one that its tokenizer's class brings, if any."""
    response: str | None = None
    """The given beginning of the answer (`--prefill-response` of mlx_lm.generate): the prompt ends with it. In the
    record of a prompt it is as the template wrote it."""


NO_OPTIONS = ChatOptions()


def conversation(text: str, system: str | None) -> tuple[Message, ...]:
    """One user's message, and the system prompt before it."""
    before = (Message("system", system),) if system is not None else ()
    return (*before, Message("user", text))


@frozen
class TurnDiffers:
    """The template gives the conversation another text than the path has: a turn was not added. The person decides."""

    at: int
    """Characters that both texts share at the beginning."""
    path: str
    """What the path and the turn behind it would be, from there on."""
    template: str
    """What the template makes of the whole conversation, from there on."""
    kept: int
    """Tokens that the template's text shares with the path: the rest would run again."""
    tokens: int
    """Tokens of the template's text."""
