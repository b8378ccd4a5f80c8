"""The bytes of tokens, and those of characters that several tokens hold together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from inspector.display import hex_bytes, unfinished


class TokenBytes(Protocol):
    """What is asked of a token, wherever it comes from."""

    @property
    def text(self) -> str:
        """The characters that it finishes; empty while one is unfinished."""

    @property
    def raw(self) -> bytes:
        """Its own bytes."""


def carried(tokens: Sequence[TokenBytes], place: int) -> bytes:
    """Bytes of the tokens before one that begin the character which it may finish.

    Args:
        tokens: A text.
        place: The token's index.
    """
    before = b""
    for token in reversed(tokens[max(0, place - 3) : place]):
        if token.text or not token.raw:
            return unfinished(token.raw) + before
        before = token.raw + before
    return before


def shown_bytes(tokens: Sequence[TokenBytes], place: int, most: int) -> str:
    """A token's bytes, `20 63 61 74`; behind those of the tokens before it, `‹E2 82› AC`, where it ends a character.

    Args:
        tokens: A text.
        place: The token's index.
        most: Bytes of its own that are shown at most.
    """
    own, before = spaced_hex(tokens[place].raw, most), carried(tokens, place)
    return f"{hex_bytes(before)} {own}" if before and tokens[place].text else own or "–"


def spaced_hex(raw: bytes, most: int) -> str:
    """Bytes as pairs of digits; `…` stands for those that are left out."""
    return raw[: most - 1].hex(" ").upper() + " …" if len(raw) > most else raw.hex(" ").upper()
