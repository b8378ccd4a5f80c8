"""The text token by token: borders, ids and bytes under the tokens, and the signs of marks."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection

from engine.protocol import Deleted, Marked
from inspector.display import carried
from inspector.main.panels.steps import StepsPanel, StepsTable
from inspector.main.panels.text import BYTES, VIEWS, TextPanel, TextRows, facts, under
from inspector.main.tool import SlotSelected
from inspector.state.timeline import Timeline
from tests.inspector.fakes import HOSTILE, TORN, Piece, Session, long_timeline, next_step, session
from tests.inspector.painting import painting
from tests.inspector.panels_app import find, heard, lines, on_screen, screen, shown, style_at
from tests.inspector.rig import Rig

MULTILINGUAL: tuple[Piece, ...] = (
    " Γειά", " σου", " 狐", "狸が", "こんに", "ちは", " мир", " שלום", " नम", "स्ते", "👩", " e", "\u0301t", "é", "\n\n",
    "  x\n y",
)  # fmt: skip


def read(pieces: tuple[Piece, ...]) -> Timeline:
    """A timeline whose prompt and completion are the same pieces."""
    made = Session(pieces, temp=0.0)
    made.load()
    made.open(pieces, echo=False)
    for _ in pieces:
        wanted = made._script(made.tips[made.node].position)
        made.step(next(c.id for c in made.tips[made.node].candidates if made.pieces[c.id] == wanted))
    return made.timeline()


@on_screen
async def test_borders_stand_between_tokens_and_neighbours_differ_in_ground() -> None:
    async with shown(TextPanel()) as (panel, pilot):
        panel.metric, panel.view = "off", "borders"
        panel.show(session(10).timeline())
        await pilot.pause()
        assert "▎ Once│␣upon│␣a│␣time│,│┊␣there│␣was│" in screen(pilot)
        assert style_at(pilot, "upon").bgcolor != style_at(pilot, "Once").bgcolor
        assert style_at(pilot, "time").bgcolor == style_at(pilot, "upon").bgcolor


@on_screen
async def test_without_colours_the_borders_remain() -> None:
    async with shown(TextPanel(), colours=False) as (panel, pilot):
        panel.view = "ids"
        panel.show(session(3).timeline())
        await pilot.pause()
        assert "Once│␣upon│␣a " in screen(pilot)


@pytest.mark.parametrize("width", [12, 23, 40, 60, 120])
@pytest.mark.parametrize("view", ["ids", "bytes"])
@on_screen
async def test_what_is_under_a_token_begins_in_its_column_at_any_width(view: str, width: int) -> None:
    """Also where tokens are wider than a line, or hold its break."""
    timeline = read(MULTILINGUAL)
    async with shown(TextPanel(), (width, 60)) as (panel, pilot):
        panel.view = view
        panel.show(timeline)
        await pilot.pause()
        seen = [line.pieces for line in panel._lines._wrap.lines]
        assert [piece.slot for pieces in seen for piece in pieces if piece.edge] == [
            *range(len(timeline.items))
        ]
        for number, pieces in enumerate(seen):
            first = number * 2 - panel.scroll_offset.y
            upper, lower = (panel.render_line(first + row).text[2:] for row in (0, 1))
            for piece in pieces:
                room = piece.cells - piece.edge
                assert _cells(lower, 0, room).rstrip() == piece.under
                assert _cells(upper, 0, cell_len(piece.text)).replace("␣", " ") == piece.text
                upper, lower = _cells(upper, piece.cells), _cells(lower, piece.cells)


def _cells(text: str, start: int, end: int | None = None) -> str:
    """The part of a text between two columns."""
    columns: list[str] = []
    for char in text:
        if cell_len(char):
            columns += [char, *[""] * (cell_len(char) - 1)]
        else:
            columns[-1] += char
    return "".join(columns[start:end])


@on_screen
async def test_a_character_is_whole_on_the_token_that_ends_it_with_its_bytes_under_it() -> None:
    timeline = read(TORN)
    async with shown(TextPanel(), (120, 20)) as (panel, pilot):
        panel.view = "bytes"
        panel.show(timeline)
        await pilot.pause()
        euro = next(slot for slot, item in enumerate(timeline.items) if item.text == "€")
        smile = next(slot for slot, item in enumerate(timeline.items) if item.text == "😀")
        assert under(BYTES, timeline.items, euro) == "‹E2 82› AC"
        assert under(BYTES, timeline.items, smile) == "‹F0 9F 98› 80"
        assert carried(timeline.items, euro + 1) == b""
        assert "│‹E2 82›│€ " in screen(pilot)
        assert "E2 82  │‹E2 82› AC" in screen(pilot)
        assert (
            facts(timeline.items, smile) == f"“😀”: id {timeline.items[smile].id}, 1 byte 80 after ‹F0 9F 98›"
        )


@on_screen
async def test_unfinished_bytes_of_the_prompt_are_seen_as_those_of_the_completion() -> None:
    async with shown(TextPanel(), (120, 20)) as (panel, pilot):
        panel.show(read(TORN))
        await pilot.pause()
        assert screen(pilot).count("It cost 5 ‹E2 82›€ and ‹F0 9F›‹98›😀!") == 2


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [12, 40, 120])
@on_screen
async def test_hostile_text_is_never_obeyed_and_fits(view: str, width: int) -> None:
    async with shown(TextPanel(), (width, 90)) as (panel, pilot):
        panel.view = view
        panel.show(read(HOSTILE))
        await pilot.pause()
        text = screen(pilot)
        assert not set("\x1b\x9b\x00\u202e\u200b\u200d") & set(text)
        assert {cell_len(strip.text) for strip in pilot.app.screen._compositor.render_strips()} == {width}
        assert "‹202E›" in text.replace("\n", "") or width == 12


@pytest.mark.parametrize("view", VIEWS)
@on_screen
async def test_a_click_on_any_row_of_a_token_selects_it_and_the_cursor_shows_it(view: str) -> None:
    timeline = session(12).timeline()
    async with shown(TextPanel()) as (panel, pilot):
        panel.view = view
        panel.show(timeline)
        await pilot.pause()
        x, y = find(pilot, "little")
        for row in range(panel._lines.height):
            await pilot.click(offset=(x, y + row))
        assert [message.slot for message in heard(pilot, SlotSelected)] == [8] * panel._lines.height
        timeline.select(8)
        panel.show(timeline)
        await pilot.pause()
        assert style_at(pilot, "little").reverse


@pytest.mark.parametrize("view", VIEWS)
@on_screen
async def test_a_copy_is_the_text_in_every_view(view: str) -> None:
    async with shown(TextPanel(), (40, 12)) as (panel, pilot):
        timeline = session(43).timeline()
        panel.view = view
        panel.show(timeline)
        await pilot.pause()
        whole = panel.get_selection(Selection(None, None))
        assert whole is not None
        assert whole[0] == "".join(item.text for item in timeline.items)
        timeline.select(0)
        panel.show(timeline)
        await pilot.pause()
        x, y = find(pilot, "upon")
        start = Offset(x - 2, y - 1)
        assert panel.get_selection(Selection(start, start + Offset(4, 0))) == ("upon", "\n")


@on_screen
async def test_the_selected_token_stays_in_view_as_the_view_changes() -> None:
    timeline = long_timeline(300)
    async with shown(TextPanel(), (40, 12)) as (panel, pilot):
        timeline.select(150)
        panel.show(timeline)
        for view in (*VIEWS[1:], VIEWS[0]):
            panel.view = view
            await pilot.pause()
            row = panel._lines.span(150)[0]
            last = panel.scroll_offset.y + panel.size.height - 1
            assert panel.scroll_offset.y <= row <= row + panel._lines.height - 1 <= last
            assert panel.virtual_size.height == panel._lines.rows


@pytest.mark.wide(1)
@pytest.mark.parametrize("view", VIEWS)
@on_screen
async def test_appending_draws_a_few_rows_only_and_ends_as_if_laid_out_at_once(
    monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    timeline = long_timeline(1000)
    pattern, drawn, draw = timeline.steps[:40], list[int](), TextRows.row
    async with shown(TextPanel(), (60, 20)) as (panel, pilot):
        panel.view = view
        panel.show(timeline)
        await pilot.pause()
        monkeypatch.setattr(TextRows, "row", lambda self, y, *of: drawn.append(y) or draw(self, y, *of))
        with painting():
            for number in range(10):
                timeline.apply(next_step(timeline, pattern[number]))
                panel.show(timeline)
                await pilot.pause()
        assert 10 <= len(drawn) <= 10 * 4 * panel._lines.height
        grown = _without_bar(pilot)
    async with shown(TextPanel(), (60, 20)) as (panel, pilot):
        panel.view = view
        panel.show(timeline)
        await pilot.pause()
        assert _without_bar(pilot) == grown


def _without_bar(pilot: Pilot[None]) -> list[str]:
    """The rows without the scroll bar."""
    return [line[:-2] for line in lines(pilot)]


@on_screen
async def test_special_tokens_are_reversed_among_borders() -> None:
    made = Session()
    made.load()
    made.open(("<|im_start|>", "user"))
    async with shown(TextPanel()) as (panel, pilot):
        panel.view = "borders"
        panel.show(made.timeline())
        await pilot.pause()
        assert style_at(pilot, "<|im_start|>").reverse
        assert not style_at(pilot, "user").reverse


@pytest.mark.screen(size=(80, 24))
async def test_a_key_goes_through_the_views_and_says_which(rig: Rig) -> None:
    await rig.ready()
    text = rig.app.main.panel(TextPanel)
    seen = []
    for _ in VIEWS:
        await rig.press("e")
        seen.append((text.view, rig.status))
    assert [view for view, _ in seen] == [*VIEWS[1:], VIEWS[0]]
    assert [said for _, said in seen] == [
        "Token borders. e: ids", "Token ids. e: bytes", "Token bytes. e: plain text", "Plain text",
    ]  # fmt: skip


@pytest.mark.screen(size=(40, 12))
async def test_the_smallest_screen_has_room_for_ids(rig: Rig) -> None:
    await rig.ready()
    await rig.press("e", "e")
    assert re.search(r"Once│␣upon│", rig.screen_text())


# ---- marks --------------------------------------------------------------------------------------


def forked() -> tuple[Session, Timeline, int]:
    """A session with another branch at the third step; the timeline, and that step's slot."""
    made = session(6)
    timeline = made.timeline()
    slot = timeline.step_slots[2]
    before = timeline.items[slot - 1].node
    text = "".join(item.text for item in timeline.items)
    other = next(c for c in made.tips[before].candidates if c.text.strip() not in text)
    for record in made.choose(before, other.id):
        timeline.apply(record)
    return made, timeline, slot


@pytest.mark.parametrize("view", VIEWS)
@on_screen
async def test_a_token_in_whose_place_branches_leave_has_a_sign(view: str) -> None:
    _, timeline, slot = forked()
    async with shown(TextPanel()) as (panel, pilot):
        panel.view = view
        panel.show(timeline)
        await pilot.pause()
        shown_text = screen(pilot).replace("␣", " ")
        assert f"├{timeline.items[slot].text}" in shown_text
        assert shown_text.count("├") == 1
        gone = next(node for node in timeline.siblings(slot) if node != timeline.items[slot].node)
        timeline.apply(Deleted(gone))
        panel.show(timeline)
        await pilot.pause()
        assert "├" not in screen(pilot)


@on_screen
async def test_marks_come_and_go_without_a_move() -> None:
    timeline = session(6).timeline()
    node = timeline.items[7].node
    async with shown(TextPanel()) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        for mark, signs in (
            (Marked(node, bookmarked=True), "★"),
            (Marked(node, name="ending", caption="watch"), "✎❝"),
            (Marked(node, note="why?"), "✎"),
        ):
            timeline.apply(mark)
            panel.show(timeline)
            await pilot.pause()
            assert f"was{signs} a little" in screen(pilot)
        timeline.apply(Marked(node))
        panel.show(timeline)
        await pilot.pause()
        assert "was a little" in screen(pilot)


@on_screen
async def test_the_caret_tells_that_branches_go_on_from_here() -> None:
    made = session(6)
    timeline = made.timeline()
    async with shown(TextPanel()) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert "├" not in screen(pilot)
        timeline.apply(made.move(timeline.items[7].node))
        panel.show(timeline)
        await pilot.pause()
        assert "├" in screen(pilot)


@on_screen
async def test_steps_have_the_same_signs_as_the_text() -> None:
    _, timeline, slot = forked()
    timeline.apply(Marked(timeline.items[slot].node, bookmarked=True))
    async with shown(StepsPanel(), (70, 14)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        row = next(line for line in lines(pilot) if "★├" in line)
        assert f" {timeline.steps_before(slot) + 1} " in row
        assert screen(pilot).count("├") == 1
        timeline.apply(Marked(timeline.items[slot].node, note="why?"))
        panel.show(timeline)
        await pilot.pause()
        assert "✎├" in screen(pilot)
        assert "★" not in screen(pilot)


@on_screen
async def test_the_mouse_on_a_token_tells_its_marks_and_among_borders_its_bytes() -> None:
    _, timeline, slot = forked()
    timeline.apply(Marked(timeline.items[slot].node, caption="watch [b]this[/b]"))
    item = timeline.items[slot]
    async with shown(TextPanel()) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        await pilot.hover(offset=find(pilot, item.text.strip()))
        assert str(panel.tooltip) == "❝ watch [b]this[/b]\n├ 2 branches start here: 1 [ and ] switch."
        await pilot.hover(offset=find(pilot, "Once"))
        assert panel.tooltip is None
        panel.view = "borders"
        await pilot.pause()
        await pilot.hover(offset=find(pilot, "Once"))
        assert str(panel.tooltip) == f"“Once”: id {timeline.items[0].id}, 4 bytes 4F 6E 63 65"


@on_screen
async def test_the_mouse_on_a_step_tells_its_marks() -> None:
    _, timeline, _ = forked()
    async with shown(StepsPanel(), (70, 14)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        await pilot.hover(offset=find(pilot, "├"))
        assert "2 branches start here" in str(panel.query_one(StepsTable).tooltip)
        await pilot.hover(offset=find(pilot, "was"))
        assert panel.query_one(StepsTable).tooltip is None
