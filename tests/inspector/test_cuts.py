"""What is left out where there is no room: whole words, whole texts of a row, whole facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from inspector.display import joined_to_fit, truncate_start, visible
from inspector.widgets.canvas import FACT_NAME, fact_rows
from tests.inspector.test_display import texts


@given(texts, st.integers(0, 12))
def test_the_end_of_a_text_fits_and_says_that_it_is_one(text: str, cells: int) -> None:
    shown = visible(text)
    left = truncate_start(shown, cells)
    assert cell_len(left) <= cells
    assert left == shown or not cells or left.startswith("…")


@pytest.mark.parametrize(
    ("cells", "end"),
    [(20, "one two, three"), (13, "… two, three"), (9, "… three"), (7, "… three"), (3, "…ee"), (1, "…")],
)
def test_the_end_of_a_text_begins_with_a_word(cells: int, end: str) -> None:
    assert truncate_start("one two, three", cells) == end


@pytest.mark.parametrize(("cells", "row"), [(11, "one · two"), (8, "one"), (9, "one · two"), (2, "o…")])
def test_of_several_texts_none_is_cut_but_a_first_one_without_room(cells: int, row: str) -> None:
    assert joined_to_fit(["one", "", "two", "three"], cells) == row


@pytest.mark.parametrize(
    ("height", "names"),
    [(1, ["long"]), (4, ["long", "short"]), (5, ["long", "short"]), (6, ["long", "short", "last"])],
)
def test_a_fact_without_room_for_all_of_it_is_left_out(height: int, names: list[str]) -> None:
    facts = [("long", "one two three four five"), ("short", "one"), ("last", "one two three four")]
    rows = fact_rows(facts, FACT_NAME + 10, Style(), Style(), height)
    assert [row[0].text.strip() for row in rows if row[0].text.strip()] == names
