"""How the running text shows where tokens begin and end: not at all, by borders, or with ids or bytes under them."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.display import hex_bytes, quoted, token_label, unfinished
from inspector.state.timeline import Item

OFF, BORDERS, IDS, BYTES = "off", "borders", "ids", "bytes"
VIEWS = (OFF, BORDERS, IDS, BYTES)
"""In the order in which a key goes through them."""
TWO_ROWS = (IDS, BYTES)
"""Those with a row under each line of the text."""
_BYTES = 12
"""Bytes that are shown under a token at most."""


def under(view: str, items: Sequence[Item], slot: int) -> str:
    """What stands under a token: its id or its bytes.

    Where it ends a character that the tokens before it began, their bytes are in brackets before its own.

    Args:
        view: One of `VIEWS`.
        items: The path.
        slot: The token's place in it.
    """
    if view == IDS:
        return str(items[slot].id)
    if view != BYTES:
        return ""
    own, before = _hex(items[slot].raw), carried(items, slot)
    return f"{hex_bytes(before)} {own}" if before and items[slot].text else own or "–"


def facts(items: Sequence[Item], slot: int) -> str:
    """A token in a line: `“␣cat”: id 421, 4 bytes 20 63 61 74`."""
    item, before = items[slot], carried(items, slot)
    count = f"{len(item.raw)} byte{'s' * (len(item.raw) != 1)}"
    after = f" after {hex_bytes(before)}" if before else ""
    return (
        f"{quoted(token_label(item.text, item.raw))}: id {item.id}, {count} {_hex(item.raw)}".rstrip() + after
    )


def _hex(raw: bytes) -> str:
    return raw[: _BYTES - 1].hex(" ").upper() + " …" if len(raw) > _BYTES else raw.hex(" ").upper()


def carried(items: Sequence[Item], slot: int) -> bytes:
    """Bytes of the tokens before one that begin the character which it may finish."""
    before = b""
    for item in reversed(items[max(0, slot - 3) : slot]):
        if item.text or not item.raw:
            return unfinished(item.raw) + before
        before = item.raw + before
    return before
