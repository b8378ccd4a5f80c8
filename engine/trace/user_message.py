"""The person's last message in a prompt, without what the chat template added around it."""

from __future__ import annotations

from itertools import groupby

from engine.protocol import PromptOpened

_OWN = ("assistant", "model")
_ROLES = (*_OWN, "user", "system", "human")
"""Words that templates write before a message, as text; those before the model's answer are `_OWN`."""


def user_message(prompt: PromptOpened) -> str:
    """The last message of a chat; the whole text of a raw prompt, or where there is no message."""
    if not prompt.chat:
        return prompt.text
    runs = groupby(prompt.tokens, key=lambda token: token.special)
    texts = ("".join(token.text for token in run).strip() for special, run in runs if not special)
    messages = [message for text in texts if (message := _message(text))]
    return messages[-1] if messages else prompt.text


def _message(text: str) -> str:
    """A text between special tokens without the role on its first line; empty where it isn't a person's."""
    role, _, rest = text.partition("\n")
    role = role.strip().lower()
    if role in _OWN:
        return ""
    return rest.strip() if role in _ROLES else text
