"""Bytes and text of tokens, with UTF-8 characters that span tokens; queries of the vocabulary search."""

from __future__ import annotations

import codecs
import re
from typing import Literal, Protocol

from msgspec import Struct


def decode(pending: bytes, raw: bytes) -> tuple[str, bytes]:
    """Decode the next token's bytes.

    Args:
        pending: Bytes of an unfinished character from the tokens before.
        raw: Bytes of this token.

    Returns:
        The characters that are now complete, and the bytes of the next unfinished character. Invalid bytes become
        U+FFFD.
    """
    if not pending and raw.isascii():
        return raw.decode("ascii"), b""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(pending + raw)
    return text, decoder.getstate()[0]


class TokenTexts(Protocol):
    """The vocabulary that readings need: `engine.model.tokens.Tokens`, or `engine.logits.recorded.RecordedTexts`."""

    vocabulary: int
    eos_ids: tuple[int, ...]
    known: dict[int, tuple[str, bytes, bool]]
    """Cache by token: its text, its bytes, and True if it is special. Filled by readers that look up many tokens."""

    @property
    def spared(self) -> tuple[int, ...]:
        """Ids that XTC never excludes."""

    def raw(self, token: int) -> bytes:
        """A token's own bytes; empty for an id without a token."""

    def text(self, token: int, pending: bytes = b"") -> tuple[str, bytes]:
        """The characters that a token completes after the pending bytes, and the bytes that are still pending."""

    def is_special(self, token: int) -> bool:
        """True if the token is markup of the format instead of text."""


# ---- the query of a vocabulary search: a part of a token's text, an id, or bytes ---------------

_ID = r"#([0-9]{1,12})"
_BYTES = r"(?:0[xX]|‹)((?:\s*[0-9a-fA-F]){2,})\s*›?"
_SHOWN = str.maketrans("␣↵⇥", " \n\t")


class TokenQuery(Struct, frozen=True):
    """A parsed query."""

    kind: Literal["text", "id", "bytes"]
    texts: tuple[str, ...] = ()
    """Spellings of the searched text, each matching on its own; in lower case if `cased` is False."""
    cased: bool = False
    """True if case matters: the query has a capital letter."""
    id: int = -1
    raw: bytes = b""


def read_query(query: str) -> TokenQuery:
    """Read a query as the user typed it.

    Args:
        query: `#123` is an id; `0x e2 9c` (or `‹E2 9C›`, as unfinished characters are shown) is bytes, with an odd last
            digit ignored; anything else is a text, including spaces at its ends. In a text, `␣`, `↵`, `⇥`, `\\n` and
            `\\t` match themselves and the characters that they stand for.
    """
    if (match := re.fullmatch(_ID, query)) is not None:
        return TokenQuery("id", id=int(match[1]))
    if (match := re.fullmatch(_BYTES, query)) is not None:
        digits = "".join(match[1].split())
        return TokenQuery("bytes", raw=bytes.fromhex(digits[: len(digits) // 2 * 2]))
    cased = query != query.lower()
    texts = [query, query.translate(_SHOWN), query.replace(r"\n", "\n").replace(r"\t", "\t")]
    return TokenQuery("text", tuple(dict.fromkeys(text if cased else text.lower() for text in texts)), cased)


def alphabet() -> dict[str, int]:
    """The byte for each character of GPT-2's byte-level alphabet (the inverse of its `bytes_to_unicode`)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(256) if byte not in plain]
    unshifted = {chr(byte): byte for byte in plain}
    return unshifted | {chr(256 + place): byte for place, byte in enumerate(shifted)}
