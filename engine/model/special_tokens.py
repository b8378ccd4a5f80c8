"""The special tokens of a tokenizer with their roles, and its chat template's source, for the facts about a model."""

from __future__ import annotations

from collections.abc import Iterator

from engine.model.tokens import Tokens
from engine.protocol import SpecialToken

MOST = 1000
"""Special tokens in the facts: models with tens of thousands, kept free for later use, are known."""
TEMPLATE_CHARACTERS = 64 * 1024
"""Of a chat template's source in the facts. The longest in use have 20,000."""


def special_tokens(tokens: Tokens) -> tuple[tuple[SpecialToken, ...], int]:
    """The special tokens of a tokenizer by id.

    Args:
        tokens: The model's tokenizer.

    Returns:
        `MOST` of them, those with a role and those in the chat template before others; and how many there are.
    """
    roles: dict[int, set[str]] = {}
    for role, token in _roles(tokens):
        roles.setdefault(token, set()).add(role)
    made = [
        SpecialToken(token, tokens.text(token)[0], tuple(sorted(roles.get(token, ()))))
        for token in sorted({*tokens.special_ids, *roles})
    ]
    first = sorted(made, key=lambda each: (not each.roles, each.text not in tokens.template))[:MOST]
    return tuple(sorted(first, key=lambda each: each.id)), len(made)


def _roles(tokens: Tokens) -> Iterator[tuple[str, int]]:
    """`BOS`, `EOS`, `PAD` and the like, as the tokenizer names them; every token that ends a text is an `EOS`."""
    for name, token in tokens.named_ids.items():
        yield name.removesuffix("_token").upper(), token
    for token in tokens.eos_ids:
        yield "EOS", token
