"""The query of a vocabulary search: a part of a token's text, an id, or bytes. Standard library alone."""

from __future__ import annotations

import re
from typing import Literal

from engine.frozen import frozen

_ID = re.compile(r"#([0-9]{1,12})")
_BYTES = re.compile(r"(?:0[xX]|‹)((?:\s*[0-9a-fA-F]){2,})\s*›?")
_SHOWN = {"␣": " ", "↵": "\n", "⇥": "\t"}
_ESCAPED = {r"\n": "\n", r"\t": "\t"}


@frozen
class TokenQuery:
    """A parsed query."""

    kind: Literal["text", "id", "bytes"]
    texts: tuple[str, ...] = ()
    """Spellings of one text, any of which may be part of a token's; lowered where case doesn't matter."""
    cased: bool = False
    """Whether case matters: the query has a capital letter."""
    id: int = -1
    raw: bytes = b""


def read(query: str) -> TokenQuery:
    """Read a query as a person typed it.

    Args:
        query: `#123` is an id; `0x e2 9c` (or `‹E2 9C›`, as unfinished characters are shown) is bytes, of which a digit
            without its second one is left out; all else is a text, spaces at its edges included. In it `␣`, `↵`, `⇥`,
            `\\n` and `\\t` stand for themselves and for what they show.
    """
    if (match := _ID.fullmatch(query)) is not None:
        return TokenQuery("id", id=int(match[1]))
    if (match := _BYTES.fullmatch(query)) is not None:
        digits = "".join(match[1].split())
        return TokenQuery("bytes", raw=bytes.fromhex(digits[: len(digits) // 2 * 2]))
    cased = query != query.lower()
    texts = [query, _replaced(query, _SHOWN), _replaced(query, _ESCAPED)]
    return TokenQuery("text", tuple(dict.fromkeys(text if cased else text.lower() for text in texts)), cased)


def _replaced(text: str, by: dict[str, str]) -> str:
    for written, meant in by.items():
        text = text.replace(written, meant)
    return text
