"""Curves of braille dots: where the dots stand."""

from __future__ import annotations

import pytest

from inspector.widgets.curves import binned, curves, round_top


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
