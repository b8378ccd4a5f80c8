"""What a person said in a prompt: the last message, without what the chat template put around it."""

from __future__ import annotations

from itertools import groupby

from engine.records import PromptOpened

_OWN = ("assistant", "model")
_ROLES = (*_OWN, "user", "system", "human")
"""Words that templates write before a message, as text; those of the answer to come are `_OWN`."""


def user_message(prompt: PromptOpened) -> str:
    """The last message of a chat; all of a raw prompt, or where nothing else is found."""
    if not prompt.chat:
        return prompt.text
    runs = groupby(prompt.tokens, key=lambda token: token.special)
    texts = ("".join(token.text for token in run).strip() for special, run in runs if not special)
    found = [message for text in texts if (message := _message(text))]
    return found[-1] if found else prompt.text


def _message(text: str) -> str:
    """A text between special tokens without the role on its first line; empty where it is none of a person's."""
    role, _, rest = text.partition("\n")
    role = role.strip().lower()
    if role in _OWN:
        return ""
    return rest.strip() if role in _ROLES else text
