"""Bars, areas, curves and the wrap: pure functions, so properties hold for any numbers and any tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from inspector.widgets.charts import (
    EIGHTHS,
    HEIGHTS,
    area,
    axis,
    bar,
    binned,
    curves,
    held_values,
    round_top,
    sample,
    shares,
    window,
)
from inspector.widgets.token_lines import Wrap


def drawn(series: list[list[float]], width: int, height: int, top: float) -> list[str]:
    """The chart as text."""
    return ["".join(cell.char for cell in line) for line in curves(series, width, height, top)]


def test_nothing_stands_on_the_lowest_dots_and_the_top_on_the_highest() -> None:
    assert drawn([[0.0] * 8], 4, 2, 10.0) == ["    ", "⣀⣀⣀⣀"]
    assert drawn([[10.0] * 8], 4, 2, 10.0) == ["⠉⠉⠉⠉", "    "]
    assert drawn([[99.0] * 8], 4, 2, 10.0) == ["⠉⠉⠉⠉", "    "]  # beyond the edge


def test_a_jump_is_joined() -> None:
    assert drawn([[0.0, 0.0, 10.0, 10.0]], 2, 2, 10.0) == [" ⡏", "⣀⠇"]


def test_a_cell_belongs_to_the_last_curve_in_it() -> None:
    line = curves([[0.0, 0.0, 5.0, 5.0], [0.0] * 4], 2, 1, 5.0)[0]
    assert [cell.series for cell in line] == [1, 1]
    assert [cell.series for cell in curves([[5.0] * 4], 2, 2, 5.0)[1]] == [None, None]


def test_values_are_binned_by_their_median_or_repeated() -> None:
    assert binned([1, 2, 90, 4, 5, 6], 2) == [2, 5]
    assert binned([1, 2], 4) == [1, 1, 2, 2]
    assert binned([], 4) == []


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.3, 0.3), (1, 1), (12.1, 15), (16, 20), (260, 300), (615, 800), (801, 1000)]
)
def test_the_scale_ends_at_a_round_number(value: float, top: float) -> None:
    assert round_top(value) == pytest.approx(top)


shares_of_one = st.floats(0, 1)
amounts = st.lists(st.floats(0, 1e9), min_size=1, max_size=30)


@given(shares_of_one, st.integers(0, 40))
def test_a_bar_has_its_length_and_shows_any_share(share: float, cells: int) -> None:
    drawn = bar(share, cells)
    assert len(drawn) == cells
    assert bool(drawn.strip()) == (share > 0 and cells > 0)


def test_a_bar_counts_in_eighths() -> None:
    assert bar(1.0, 3) == "███"
    assert bar(0.5, 4) == "██  "
    assert [bar(n / 8, 1) for n in range(9)] == list(EIGHTHS)


@given(amounts, st.integers(1, 5))
def test_an_area_begins_at_zero_and_reaches_the_top(values: list[float], height: int) -> None:
    rows = area(values, height, max(values))
    assert [len(row) for row in rows] == [len(values)] * height
    for column, value in enumerate(values):
        filled = sum(HEIGHTS.index(row[column]) for row in rows)
        assert (filled > 0) == (value > 0)
        assert value < max(values) or filled == 8 * height or value == 0


def test_an_unknown_value_leaves_its_column_empty() -> None:
    assert area([1.0, None, 0.5, 0.0], 1, 1.0) == ["█ ▄ "]


def test_a_value_is_named_from_where_it_holds_on() -> None:
    assert held_values([2] * 8 + [4] * 5, str) == "┌ 2 ╌╌╌╌┌ 4 ╌"
    assert held_values([2] * 2 + [4] * 3 + [2] * 4, str) == "┌╌┌ 4┌ 2 "
    assert held_values([], str) == ""


@given(st.lists(st.integers(0, 3), max_size=40))
def test_a_line_of_values_has_a_mark_for_each_change_unless_there_would_be_little_else(
    values: list[int],
) -> None:
    line = held_values(values, lambda value: "x" * value)
    assert len(line) == len(values)
    changes = [n for n, value in enumerate(values) if n == 0 or value != values[n - 1]]
    if 3 * len(changes) > len(values) + 3:
        assert line == "┌".ljust(len(values), "╌")
        return
    assert [n for n, character in enumerate(line) if character == "┌"] == changes


def test_an_axis_is_as_wide_as_its_chart() -> None:
    assert axis("1", "105", 20, "tokens") == "1     tokens     105"
    assert axis("1", "105", 10, "tokens") == "1      105"
    assert axis("1", "105", 4, "tokens") == ""


@given(st.lists(st.floats(0, 1e6), max_size=6), st.integers(0, 60))
def test_a_divided_bar_is_full(parts: list[float], cells: int) -> None:
    assert sum(shares(parts, cells)) == (cells if sum(parts) > 0 else 0)


@given(st.integers(0, 5000), st.integers(1, 200))
def test_a_sample_rises_and_ends_with_the_last(length: int, columns: int) -> None:
    chosen = sample(length, columns)
    assert len(chosen) == min(length, columns)
    assert chosen == sorted(set(chosen))
    assert not chosen or chosen[-1] == length - 1


@given(st.integers(0, 5000), st.integers(1, 200), st.integers(-5, 5000))
def test_a_window_holds_what_is_looked_at(length: int, columns: int, around: int) -> None:
    shown = window(length, columns, around)
    assert len(shown) == min(length, columns)
    assert not 0 <= around < length or around in shown


# ---- the wrap -------------------------------------------------------------------------------

tokens = st.lists(
    st.sampled_from([" a", " the", "ing", " longword", "x", "狐狸", " 狐", "\n", "\n\n", " ", "a\n b",
                     "supercalifragilistic", " abc def"]),
    max_size=50,
)  # fmt: skip


def laid(texts: list[str], width: int, boundary: int = -1) -> Wrap:
    wrap = Wrap(width)
    for slot, text in enumerate(texts):
        wrap.append(text.split("\n"), "▏" if slot == boundary else "")
    return wrap


def written(wrap: Wrap) -> list[str]:
    return ["".join(piece.text for piece in line.pieces) for line in wrap.lines]


def test_words_stay_whole_even_when_tokens_cut_them() -> None:
    wrap = laid([" named", " Li", "ly", ",", " who", " ran"], 10)
    assert written(wrap) == [" named", "Lily, who", "ran"]
    assert wrap.line_of == [0, 1, 1, 1, 1, 2]


def test_a_newline_is_seen_and_breaks() -> None:
    assert written(laid(["a", "\n\n", "  b"], 10)) == ["a↵", "↵", "  b"]


def test_a_token_wider_than_the_line_is_split() -> None:
    assert written(laid(["abcdefgh"], 3)) == ["abc", "def", "gh"]


def test_the_mark_stays_with_its_token() -> None:
    assert written(laid(["aaaa", "bbbb"], 6, boundary=1)) == ["aaaa", "▏bbbb"]


@given(tokens, st.integers(2, 20), st.integers(0, 50))
def test_no_line_is_too_long_and_no_text_is_lost(texts: list[str], width: int, boundary: int) -> None:
    wrap = laid(texts, width, boundary)
    for line in wrap.lines:
        assert line.cells == sum(cell_len(piece.text) for piece in line.pieces) <= width + 1
    lines = (
        " " * line.gap + "".join(piece.text for piece in line.pieces if not piece.mark) for line in wrap.lines
    )
    assert "".join(lines) == "".join(texts).replace("\n", "↵")


@given(tokens, st.integers(2, 20), st.integers(0, 50), st.integers(0, 9), st.data())
def test_bordered_tokens_fit_with_what_is_under_them_and_keep_their_spaces(
    texts: list[str], width: int, boundary: int, size: int, data: st.DataObject
) -> None:
    def bordered(texts: list[str], wrap: Wrap) -> Wrap:
        for slot in range(len(wrap.line_of), len(texts)):
            under = str(slot)[:1] * min(size, width)
            wrap.append(texts[slot].split("\n"), "▏" if slot == boundary else "", under)
        return wrap

    wrap = bordered(texts, Wrap(width, bordered=True))
    pieces = [piece for line in wrap.lines for piece in line.pieces]
    for line in wrap.lines:
        assert line.cells == sum(piece.cells for piece in line.pieces) <= width + 1
        assert not line.gap
    assert all(piece.blank >= 0 and piece.cells >= cell_len(piece.under) + piece.edge for piece in pieces)
    assert [piece.slot for piece in pieces if piece.edge] == [*range(len(texts))]
    assert "".join(piece.text for piece in pieces if not piece.mark) == "".join(texts).replace("\n", "↵")
    wrap.cut(data.draw(st.integers(0, len(texts))))
    assert bordered(texts, wrap).lines == bordered(texts, Wrap(width, bordered=True)).lines


@given(tokens, st.integers(1, 20), st.integers(0, 50), st.data())
def test_cutting_and_appending_again_is_the_same_as_laying_out_anew(
    texts: list[str], width: int, boundary: int, data: st.DataObject
) -> None:
    wrap = laid(texts, width, boundary)
    kept = data.draw(st.integers(0, len(texts)))
    again = wrap.cut(kept)
    assert again <= kept
    for slot in range(again, kept):
        wrap.append(texts[slot].split("\n"), "▏" if slot == boundary else "")
    fresh = laid(texts[:kept], width, boundary)
    assert wrap.lines == fresh.lines
    assert wrap.line_of == fresh.line_of
