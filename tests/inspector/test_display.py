"""Foreign text: nothing in it is obeyed, nothing in it is hidden, and its width adds up."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len, get_character_cell_size

from inspector.display import (
    hex_bytes,
    pad,
    token_label,
    token_text,
    truncate,
    truncate_words,
    visible,
    visible_lines,
)

NASTY = (
    "\x00\x07\x08\t\n\r\x1b\x7f\x80\x9b\x9d\xa0\xad\u034f\u061c\u115f\u1160\u180e\u200b\u200c\u200d\u200e\u2028"
    "\u202e\u2060\u2066\u3164\u0301\u20e3\ufe0f\ufeff\ufff9\uffff\ud83d\udc00\U000e0001\U000e0041\U000e0100"
    "\U0001f3fd\U0001f1e9\U0001f469❤狐가각ก\u0e33क\u093f aZ["
)  # fmt: skip
texts = st.text(st.one_of(st.sampled_from(NASTY), st.characters()), max_size=12)
"""Any text at all, lone surrogates included, with the characters that make trouble well represented."""


def is_mark(char: str) -> bool:
    return unicodedata.category(char).startswith("M")


def joins_hangul(char: str) -> bool:
    """Vowels and finals of decomposed Korean: they have no width of their own, and a base before them."""
    return "\u1161" <= char <= "\u11ff" or "\ud7b0" <= char <= "\ud7fb"


@given(texts)
def test_no_control_format_bidi_private_or_surrogate_character_survives(text: str) -> None:
    for char in visible(text):
        assert unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}, ascii(char)


@given(texts)
def test_what_has_no_width_is_a_mark_with_a_base_before_it(text: str) -> None:
    shown = visible(text)
    for place, char in enumerate(shown):
        if get_character_cell_size(char) == 0 and char != "\U0001f3fd":
            modifies = "\U0001f3fb" <= char <= "\U0001f3ff"
            assert place > 0, ascii(shown)
            assert is_mark(char) or joins_hangul(char) or modifies, ascii(char)


@given(st.lists(texts, max_size=6))
def test_widths_add_up_however_tokens_cut_the_text(tokens: list[str]) -> None:
    shown = [visible(token) for token in tokens]
    assert sum(map(cell_len, shown)) == cell_len("".join(shown))


@given(texts)
def test_it_can_be_encoded_and_stands_on_one_line(text: str) -> None:
    assert "\n" not in visible(text).encode("utf-8").decode("utf-8")


@given(texts)
def test_nothing_vanishes_but_the_presentation_of_a_character_before_it(text: str) -> None:
    if text.strip("\ufe0f\U000e0100"):
        assert visible(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a␛[31mb"),
        ("\x9b31m", "‹009B›31m"),
        ("x\r\n\ty", "x␍↵⇥y"),
        ("\x00\x7f", "␀␡"),
        ("\u202eabc", "‹202E›abc"),
        ("a\u200bb", "a‹200B›b"),
        ("👩\u200d👩", "👩‹200D›👩"),
        ("\u0301e", "◌\u0301e"),
        ("e\u0301", "e\u0301"),
        ("\ufe0f", "‹FE0F›"),
        ("❤\ufe0f", "❤"),
        ("\U0001f3fd", "‹1F3FD›"),
        ("\ud83d", "‹D83D›"),
        ("\U000e0041", "‹E0041›"),
        ("a\xa0b", "a⍽b"),
        ("[bold]x[/]", "[bold]x[/]"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_characters_look_like(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_message_keeps_its_lines() -> None:
    assert visible_lines("one\r\ntwo\n\x1bthree") == "one\ntwo\n␛three"


def test_bytes_of_an_unfinished_character() -> None:
    assert hex_bytes(b"\xe2\x9c") == "‹E2 9C›"
    assert token_text("", b"\xe2\x9c") == "‹E2 9C›"
    assert token_text(" ", b" \xe2", b"\xe2") == " ‹E2›"
    assert token_text("", b"") == "∅"


@pytest.mark.parametrize(
    ("text", "label"), [(" toys", "␣toys"), ("  ", "␣␣"), ("a b ", "a b␣"), ("\n", "↵"), (" \n", "␣↵")]
)
def test_a_label_shows_the_spaces_at_its_edges(text: str, label: str) -> None:
    assert token_label(text, text.encode()) == label


@given(texts, st.integers(0, 12), st.booleans())
def test_padding_gives_exactly_the_cells_asked_for(text: str, cells: int, right: bool) -> None:
    assert cell_len(pad(visible(text), cells, right)) == cells


@given(texts, st.integers(0, 12))
def test_a_cut_text_fits_and_says_so(text: str, cells: int) -> None:
    shown = visible(text)
    cut = truncate(shown, cells)
    assert cell_len(cut) <= cells
    assert cut == shown or not cells or cut.endswith("…")


@given(texts, st.integers(0, 12))
def test_a_text_cut_between_words_is_the_beginning_of_it(text: str, cells: int) -> None:
    shown = visible(text)
    cut = truncate_words(shown, cells)
    assert cell_len(cut) <= cells
    assert cut == shown or not cells or (cut.endswith("…") and shown.startswith(cut[:-1]))


def test_no_word_or_number_is_cut_where_one_has_room() -> None:
    sentence = "session 0, attention 3e-07, rows"
    assert [truncate_words(sentence, cells) for cells in (32, 31, 26, 20, 11, 4)] == [
        sentence, "session 0, attention 3e-07…", "session 0, attention…", "session 0…", "session 0…", "ses…",
    ]  # fmt: skip
