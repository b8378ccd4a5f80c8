"""visible(): the only way that text from a model, tokenizer, prompt or file becomes display text.

A terminal obeys control characters, and a cell grid breaks on characters whose width depends on their neighbors. Every
foreign string passes through here first; the result is printable, and the widths of its tokens add up. It is not
markup: pass it to `Content`, rich `Text` or a `Segment`.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len, get_character_cell_size

if TYPE_CHECKING:
    from engine.protocol import Piece, PromptToken, Step

SPACE = "␣"
_PICTURES = {9: "⇥", 10: "↵", 0x7F: "␡", 0xA0: "⍽", 0x20: " ", 0x3000: "\u3000"}
GUARDED = "=+-@＝＋－＠'"
"""First characters that a table cell must not have without an apostrophe in front."""
_INVISIBLE_LETTERS = {0x115F, 0x1160, 0x3164, 0xFFA0}
_INVISIBLE_MARKS = {0x034F, 0x17B4, 0x17B5, *range(0x180B, 0x1810)}
_HIDDEN = {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp", "Zs"}
"""Unicode categories that print nothing, or nothing different from a space."""
_PRESENTATION = {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
"""Variation selectors, which only request a text or picture form of the character before."""


class _Table(dict[int, str]):
    """A translation table that computes the entry of a character on first use, since Unicode is large."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if code in _PICTURES:
            shown = _PICTURES[code]
        elif code < 0x20:
            shown = chr(0x2400 + code)
        elif code in _PRESENTATION:
            shown = ""  # terminals disagree on how it changes the width of the character before
        elif unicodedata.category(char) in _HIDDEN or code in _INVISIBLE_LETTERS or code in _INVISIBLE_MARKS:
            shown = f"‹{code:04X}›"
        else:
            shown = char
        self[code] = shown
        return shown


_TABLE = _Table()


@lru_cache(maxsize=1 << 15)
def visible(text: str) -> str:
    """Make a foreign text printable on one line: a terminal obeys nothing in it, and nothing in it is hidden.

    C0 controls become control pictures, newline `↵`, tab `⇥`; C1, bidi, zero-width, tag and private characters
    and lone surrogates become `‹XXXX›`; a leading combining mark is put on `◌`. Square brackets stay, since the result
    isn't markup.

    Args:
        text: Text of a token, prompt, file, path or error.

    Returns:
        The display text. Its cell width is the sum of the widths of its pieces, wherever tokens cut it.
    """
    if text.isascii() and text.isprintable():  # the usual case
        return text
    first = text[0]
    if get_character_cell_size(first) > 0 or ord(first) < 0x20 or ord(first) in _INVISIBLE_LETTERS:
        return text.translate(_TABLE)
    if ord(first) in _PRESENTATION:
        return f"‹{ord(first):04X}›" + text[1:].translate(_TABLE)
    shown = first.translate(_TABLE)
    if shown == first:  # a combining character needs a base, so that widths add up
        shown = "◌" + first if unicodedata.category(first).startswith("M") else f"‹{ord(first):04X}›"
    return shown + text[1:].translate(_TABLE)


def visible_lines(text: str) -> str:
    """Like `visible`, for a text of several lines; line breaks stay."""
    return "\n".join(visible(line) for line in text.replace("\r\n", "\n").split("\n"))


def hex_bytes(raw: bytes) -> str:
    """Bytes that aren't a whole character (yet), as `‹E2 9C›`."""
    return f"‹{raw.hex(' ').upper()}›"


def unfinished(raw: bytes) -> bytes:
    """The bytes at a token's end that begin a character that the next tokens may finish; usually empty."""
    if raw.isascii():
        return b""
    for size in range(1, min(3, len(raw)) + 1):
        if raw[-size] >= 0xC0:
            begun = codecs.getincrementaldecoder("utf-8")("replace").decode(raw[-size:]) == ""
            return raw[-size:] if begun else b""
        if raw[-size] < 0x80:
            break
    return b""


def token_text(text: str, raw: bytes, pending: bytes = b"") -> str:
    """The characters that a token shows inside the running text.

    Args:
        text: The characters that it finished; empty while a character is unfinished.
        raw: Its own bytes.
        pending: Bytes at its end that the next token may complete.

    Returns:
        Its visible text, and its unfinished bytes as `‹E2 9C›`; `∅` if it adds nothing.
    """
    if not text:
        return hex_bytes(raw) if raw else "∅"
    return visible(text) + (hex_bytes(pending) if pending else "")


def token_lines(text: str, raw: bytes) -> list[str]:
    """A token's visible text, split at line breaks."""
    parts = text.split("\n")
    return [*map(visible, parts)] if len(parts) > 1 else [token_text(text, raw, unfinished(raw))]


def token_label(text: str, raw: bytes = b"", pending: bytes = b"") -> str:
    """A token by itself, on one line: like `token_text`, with `␣` for spaces at its edges."""
    shown = token_text(text, raw, pending)
    core = shown.strip(" ")
    if not core:
        return SPACE * len(shown)
    lead = len(shown) - len(shown.lstrip(" "))
    return SPACE * lead + core + SPACE * (len(shown) - lead - len(core))


def guarded(text: str) -> str:
    """A foreign text as a table cell for a spreadsheet: printable, and not a formula.

    Spreadsheets run cells that begin with `=`, `+`, `-` or `@`. Such a cell, and one that begins with an apostrophe,
    gets an apostrophe in front; removing it gives the text back.
    """
    shown = visible(text)
    return f"'{shown}" if shown.lstrip(" ")[:1] in tuple(GUARDED) else shown


def quoted(label: str) -> str:
    """A token's label quoted for a sentence, so that its punctuation isn't taken for the sentence's."""
    return f"“{label}”"


def truncate(text: str, cells: int) -> str:
    """Cut a display text to at most `cells` cells; `…` marks the cut."""
    if cell_len(text) <= cells:
        return text
    if cells <= 0:
        return ""
    kept, width = [], 0
    for char in text:
        width += get_character_cell_size(char)
        if width > cells - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def truncate_words(text: str, cells: int) -> str:
    """Like `truncate`, but cut between words if at least one fits."""
    if cell_len(text) <= cells:
        return text
    if not (cut := truncate(text, cells)):
        return ""
    kept = cut[:-1]
    if not text[len(kept)].isspace():
        kept = kept.rpartition(" ")[0] or kept
    return f"{kept.rstrip(' ,;:·')}…"


def truncate_middle(text: str, cells: int) -> str:
    """Cut a display text to at most `cells` cells in the middle, so that texts with a common beginning still differ."""
    if cell_len(text) <= cells or cells < 5:
        return truncate(text, cells)
    end, room = "", (cells - 1) // 2
    for char in reversed(text):
        if cell_len(char + end) > room:
            break
        end = char + end
    return truncate(text, cells - cell_len(end)) + end


def pad(text: str, cells: int, right: bool = False) -> str:
    """Cut or fill a display text to exactly `cells` cells.

    Args:
        text: Display text.
        cells: The width.
        right: Whether the text is right-aligned, as numbers are.
    """
    if (room := cells - cell_len(text)) < 0:
        text = truncate(text, cells)
        room = cells - cell_len(text)
    space = " " * room
    return space + text if right else text + space


def truncate_start(text: str, cells: int) -> str:
    """The end of a display text in at most `cells` cells, cut before a word if possible; `…` marks the cut."""
    if cell_len(text) <= cells:
        return text
    rest = text
    while " " in rest.strip(" "):
        rest = rest.lstrip(" ").partition(" ")[2]
        if cell_len(rest) + 2 <= cells:
            return f"… {rest}"
    start = len(text)
    while start and cell_len(text[start - 1 :]) < cells:
        start -= 1
    return "…" + text[start:] if cells > 0 else ""


def first_fitting(cells: int, *forms: str) -> str:
    """The first of several forms of a display text that fits into `cells` cells; the last one if none fits."""
    return next((form for form in forms if cell_len(form) <= cells), forms[-1])


def joined_to_fit(parts: Iterable[str], cells: int) -> str:
    """The first texts that fit, joined by ` · `; empty ones are skipped, and only the first may be cut."""
    row = ""
    for part in filter(None, parts):
        more = f"{row} · {part}" if row else part
        if row and cell_len(more) > cells:
            break
        row = more
    return truncate(row, cells)


# ---- bytes of tokens ----------------------------------------------------------------------------


def carried(tokens: Sequence[Piece | PromptToken | Step], place: int) -> bytes:
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


def shown_bytes(tokens: Sequence[Piece | PromptToken | Step], place: int, most: int) -> str:
    """A token's bytes, `20 63 61 74`; if it finishes a character, the earlier bytes come first: `‹E2 82› AC`.

    Args:
        tokens: A text.
        place: The token's index.
        most: Maximum number of its own bytes.
    """
    own, before = spaced_hex(tokens[place].raw, most), carried(tokens, place)
    return f"{hex_bytes(before)} {own}" if before and tokens[place].text else own or "–"


def spaced_hex(raw: bytes, most: int) -> str:
    """Bytes as pairs of digits; `…` replaces those beyond the limit."""
    return raw[: most - 1].hex(" ").upper() + " …" if len(raw) > most else raw.hex(" ").upper()
