"""Small vocabularies on which masks are compared with brute force."""

from __future__ import annotations

from collections.abc import Sequence


class PlainVocabulary:
    """Tokens by their bytes.

    Args:
        tokens: Their bytes, by id.
        special: Ids of marks of the format.
        eos_ids: Ids that end the sequence.
    """

    def __init__(
        self, tokens: Sequence[bytes], special: Sequence[int] = (), eos_ids: tuple[int, ...] = ()
    ) -> None:
        self._tokens, self._special, self.eos_ids = tokens, frozenset(special), eos_ids
        self.vocabulary = len(tokens)

    def raw(self, token: int) -> bytes:
        """The token's bytes."""
        return self._tokens[token]

    def is_special(self, token: int) -> bool:
        """Whether it is a mark of the format."""
        return token in self._special


def overlapping() -> PlainVocabulary:
    """All bytes, many texts of several that contain each other, halves of characters, ids without bytes, marks of the
    format whose text is common, and two ends."""
    texts = ["ab", "abc", "abcd", "bc", "bcd", "cd", "aa", "aaa", "00", "12", "123", "2026", "-0", "0-", "{}", '{"',
             '":', '": ', '", "', ', "', "true", "tr", "ue", "false", "null", "yes", "no", "ye", "nope", " ", "  ",
             "\n\n", "a\n", "é", "日", "日本", "本", "👋", "x日", "\\n", '\\"',
             "[1", "1]", "],", "-1", "1.5", "e1"]  # fmt: skip
    pieces = [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in texts)]
    pieces += [
        "é".encode()[:1] + b"",
        "日".encode()[:2],
        "日".encode()[1:],
        b"a" + "日".encode()[:1],
        b"\xff\xfe",
    ]
    first = len(pieces)
    pieces += [b"", b"", b"<|end|>", b"<|stop|>", b"ab", b"<|tool|>"]
    return PlainVocabulary(
        pieces, special=(first + 2, first + 3, first + 4, first + 5), eos_ids=(first + 2, first + 3)
    )
