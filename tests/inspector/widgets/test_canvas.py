"""A canvas paints what differs, once."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.strip import Strip

from inspector.widgets.canvas import Canvas, PageView, Row, around, side_by_side, strip_of, wrapped
from tests.inspector.painting import Terminal, painting
from tests.inspector.panels_app import on_screen, screen, shown


class Counted(Canvas):
    """Full of its own width, and counts the lines that are painted."""

    painted = 0

    def draw(self, width: int, height: int) -> list[Row]:
        return [[Segment(f"{width:x}" * width)] for _ in range(height)]

    def render_line(self, y: int) -> Strip:
        self.painted += 1
        return super().render_line(y)


@on_screen
async def test_another_size_is_painted_as_wide_as_it_is() -> None:
    with painting():
        async with shown(Counted(), size=(10, 4)) as (panel, pilot):
            for size in ((12, 4), (12, 6), (9, 3)):
                panel.painted = 0
                await pilot.resize_terminal(*size)
                while panel.painted == 0:
                    await pilot.pause(0.01)
                assert screen(pilot) == "\n".join([f"{size[0]:x}" * size[0]] * size[1])


@pytest.mark.parametrize(
    ("text", "drawn"), [("p95 26.3  ", "p95 26.3"), ("p95 26.35 ", "p95 26.…"), ("p95", "p95     ")]
)
def test_blanks_beyond_the_edge_cut_no_digit(text: str, drawn: str) -> None:
    assert strip_of([Segment(text)], 8, Style.null()).text == drawn


class Framed(Canvas):
    """Says in its frame what its rows are of."""

    DEFAULT_CSS = "Framed { border: round white; }"
    of = "before"

    def draw(self, width: int, height: int) -> list[Row]:
        self.title(Content(f"over {self.of}"), Content(f"under {self.of} {height}"))
        return [[Segment(f"row of {self.of}")]]


@on_screen
async def test_what_a_layout_has_drawn_is_painted_with_the_frame_of_it() -> None:
    with painting():
        async with shown(Framed(), size=(30, 8)) as (panel, pilot):
            terminal = Terminal(pilot.app)
            for of, height in (("after", 6), ("later", 8), ("last", 5)):
                panel.of, panel.styles.height = of, height
                await pilot.pause()
                for text in (f"over {of}", f"row of {of}", f"under {of} {height - 2}"):
                    assert text in terminal.text, terminal.text


class Saying(Canvas):
    """Says what its row is of, and nothing in a frame."""

    of = "before"

    def draw(self, width: int, height: int) -> list[Row]:
        return [[Segment(self.of)]]


@on_screen
async def test_what_is_drawn_as_it_is_painted_replaces_what_was_there() -> None:
    """After a style was looked at anew its rows are drawn with the next paint, whatever that is for."""
    with painting():
        async with shown(Saying(), size=(30, 5)) as (panel, pilot):
            terminal = Terminal(pilot.app)
            pilot.app.screen.refresh()
            await pilot.pause()
            assert "before" in terminal.text
            panel.notify_style_update()
            panel.of = "after"
            pilot.app.screen.refresh()
            await pilot.pause()
            panel.redraw()
            await pilot.pause()
            assert "after" in terminal.text


@on_screen
async def test_a_frame_without_room_for_rows_says_what_it_is_of() -> None:
    with painting():
        async with shown(Framed(), size=(30, 2)) as (panel, pilot):
            terminal = Terminal(pilot.app)
            pilot.app.screen.refresh()
            await pilot.pause()
            assert panel.size.height == 0
            panel.of = "after"
            panel.redraw()
            await pilot.pause()
            assert "over after" in terminal.text


@on_screen
async def test_a_page_says_how_many_lines_are_below() -> None:
    async with shown(PageView(), size=(30, 6)) as (panel, pilot):
        for lines, said in ((4, "─"), (5, "1 more line ↓"), (6, "2 more lines ↓")):
            panel.put(f"page {lines}", lambda on, width, height, lines=lines: [[Segment("row")]] * lines)
            await pilot.pause()
            assert said in screen(pilot)
            assert ("more" in screen(pilot)) is (lines > 4)


@pytest.mark.parametrize(
    ("width", "fit"),
    [(0, "one"), (3, "one"), (7, "one"), (8, "one  two"), (14, "one  two"), (15, "one  two  three")],
)
def test_as_many_pieces_as_have_room_stand_side_by_side(width: int, fit: str) -> None:
    row = side_by_side([[Segment(word)] for word in ("one", "two", "three")], width)
    assert "".join(segment.text for segment in row) == fit
    assert side_by_side([], width) == []


@pytest.mark.parametrize("cells", range(20, 60))
def test_a_place_in_its_text_is_cut_between_words(cells: int) -> None:
    before, after = "Once upon a time, a little girl named", " found a box in her room."
    left, found, right = (part.text for part in around(before, " Lily", after, cells, Style(), Style()))
    assert cell_len(left + found + right) == cells
    for words in (left, right):
        assert {*words.replace("…", " ").split()} <= {*(before + after).replace(".", "").split(), "room."}
        assert "…" in words or words.strip() in (before, after.strip())


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    text = "21 of padding (43.75 %), 130 ms in 6 forwards"
    assert wrapped(text, 22) == ["21 of padding", "(43.75 %), 130 ms in 6", "forwards"]
    assert wrapped("prompt took 130 ms", 15) == ["prompt took", "130 ms"]
    assert wrapped("a share of % x", 10) == ["a share of", "% x"], "no number before it"
