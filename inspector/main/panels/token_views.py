"""How the running text shows where tokens begin and end: not at all, by borders, or with ids or bytes under them."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.config.preferences import VIEWS
from inspector.display import hex_bytes, quoted, token_label
from inspector.state.session_tree import Item
from inspector.state.token_bytes import carried, shown_bytes, spaced_hex

OFF, BORDERS, IDS, BYTES = VIEWS
TWO_ROWS = (IDS, BYTES)
"""Those with a row under each line of the text."""
_BYTES = 12
"""Bytes that are shown under a token at most."""


def under(view: str, items: Sequence[Item], slot: int) -> str:
    """What stands under a token: its id or its bytes.

    Args:
        view: One of `VIEWS`.
        items: The path.
        slot: The token's place in it.
    """
    if view == IDS:
        return str(items[slot].id)
    if view != BYTES:
        return ""
    return shown_bytes(items, slot, _BYTES)


def facts(items: Sequence[Item], slot: int) -> str:
    """A token in a line: `“␣cat”: id 421, 4 bytes 20 63 61 74`."""
    item, before = items[slot], carried(items, slot)
    size = f"{len(item.raw)} byte{'s' * (len(item.raw) != 1)} {spaced_hex(item.raw, _BYTES)}".rstrip()
    after = f" after {hex_bytes(before)}" if before else ""
    return f"{quoted(token_label(item.text, item.raw))}: id {item.id}, {size}{after}"
