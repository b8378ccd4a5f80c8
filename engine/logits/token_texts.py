"""The bytes and text of a model's tokens, as its tokenizer or a record knows them, with UTF-8 that spans tokens."""

from __future__ import annotations

import codecs
from typing import Protocol


def decode(pending: bytes, raw: bytes) -> tuple[str, bytes]:
    """Decode the next token's bytes.

    Args:
        pending: Bytes of an unfinished character from the tokens before.
        raw: Bytes of this token.

    Returns:
        The characters that are now complete, and the bytes that wait for the next token. Bytes that can't become
        a character give U+FFFD.
    """
    if not pending and raw.isascii():
        return raw.decode("ascii"), b""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(pending + raw)
    return text, decoder.getstate()[0]


class TokenTexts(Protocol):
    """What readings need of a vocabulary: `engine.model.tokens.Tokens`, or `engine.logits.recorded.RecordedTexts`."""

    @property
    def vocabulary(self) -> int:
        """How many ids there are."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end the sequence."""

    @property
    def spared(self) -> tuple[int, ...]:
        """Ids that XTC never cuts."""

    def raw(self, token: int) -> bytes:
        """A token's own bytes; empty for an id without a token."""

    def text(self, token: int, pending: bytes = b"") -> tuple[str, bytes]:
        """The characters that a token finishes after some pending bytes, and the bytes still pending."""

    def is_special(self, token: int) -> bool:
        """Whether it is a mark of the format rather than text."""
