"""What looks like a button in a view of the inside is one: names of views, keys of the last line, tokens."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from engine.protocol import CaptureFacts, Check
from inspector.main.inside.screen import InsideScreen, tabs
from inspector.main.tool import Tool
from inspector.state.inside import checked
from inspector.tools.registry import TOOLS
from tests.inspector.rig import Rig

FAMILY = [tool for tool in TOOLS if tool.family == "inside"]
SIZES = [(120, 40), (80, 24)]


# ---- keys and clicks ----------------------------------------------------------------------------


async def click(rig: Rig, widget: str, text: str) -> None:
    """Click the first place in a widget where a text stands."""
    region = rig.app.screen.query_one(widget).region
    lines = rig.screen_text().splitlines()
    y = next(y for y in range(region.y, region.bottom) if text in lines[y])
    x = cell_len(lines[y][: lines[y].index(text)])
    await rig.pilot.click(offset=(x, y))
    await rig.pilot.pause()


def on_top(rig: Rig) -> str:
    """Id of the tool whose screen is on top."""
    top = rig.app.screen
    return top.TOOL if isinstance(top, InsideScreen) else ""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tool", FAMILY, ids=lambda tool: tool.id)
async def test_the_name_of_each_view_leads_to_it(rig: Rig, tool: Tool, size: tuple[int, int]) -> None:
    await rig.ready()
    other = FAMILY[FAMILY.index(tool) - 1]
    await rig.press(other.actions[0].names[0])
    assert on_top(rig) == other.id
    name = tool.title if size[0] == 120 else tool.actions[0].label
    await click(rig, "#inside-tabs", f"{tool.actions[0].shown} {name}")
    await rig.until(lambda: on_top(rig) == tool.id)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tool", FAMILY, ids=lambda tool: tool.id)
async def test_the_keys_of_the_last_line_are_pressed_by_a_click_on_key_or_word(
    rig: Rig, tool: Tool, size: tuple[int, int]
) -> None:
    await rig.ready()
    await rig.press(tool.actions[0].names[0])
    await click(rig, "#inside-keys", "next view")
    after = FAMILY[(FAMILY.index(tool) + 1) % len(FAMILY)]
    await rig.until(lambda: on_top(rig) == after.id)
    await click(rig, "#inside-keys", "esc")
    await rig.until(lambda: rig.app.screen is rig.app.main)


async def test_each_of_two_keys_that_stand_together_is_pressed_for_itself(rig: Rig) -> None:
    await rig.ready()
    await rig.press("A")
    last = rig.timeline.slot
    await click(rig, "#inside-keys", "←")
    await rig.until(lambda: rig.timeline.slot == last - 1)
    await click(rig, "#inside-keys", "→")
    await rig.until(lambda: rig.timeline.slot == last)


@pytest.mark.parametrize("size", SIZES)
async def test_a_token_of_the_text_that_is_clicked_is_looked_at(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    await rig.press("A")
    screen = rig.app.screen
    assert isinstance(screen, InsideScreen)
    token = screen.path[-3]
    await click(rig, "#inside-text", token.text.strip())
    await rig.until(lambda: screen.path[-1] is token)


async def test_a_click_on_nothing_presses_nothing(rig: Rig) -> None:
    await rig.ready()
    await rig.press("A")
    slot = rig.timeline.slot
    await rig.pilot.click("#inside-status")
    await rig.pilot.click("#inside-view", offset=(1, 0))
    await rig.pilot.pause()
    assert (on_top(rig), rig.timeline.slot) == ("attention", slot)


# ---- names of the views, and checks -------------------------------------------------------------


@pytest.mark.parametrize("room", [118, 78, 38, 20])
def test_the_present_view_is_in_sight(room: int) -> None:
    for tool in FAMILY:
        shown = tabs(FAMILY, tool.id, room)
        place = next(span for span in shown.spans if span.style == "reverse bold")
        assert place.end <= room
        assert tool.actions[0].shown in shown.plain[place.start : place.end]


def test_at_80_columns_there_is_room_for_all() -> None:
    plain = tabs(FAMILY, FAMILY[0].id, 78).plain
    assert all(f" {tool.actions[0].shown} {tool.actions[0].label} " in plain for tool in FAMILY)
    assert len(plain) <= 78


@pytest.mark.parametrize("room", [170, 118, 98, 78])
def test_no_check_is_cut(room: int) -> None:
    names = ("forward", "session", "attention", "rows")
    facts = CaptureFacts(
        tuple(Check(name, 4e-7, 1e-5) for name in names), 202.0, 46.0, "llama", "1 token of the path"
    )
    line = checked(facts, room)
    assert len(line) <= room
    assert line.startswith("Checked · 202 ms")
    assert line.count("4e-07") == 4
    if room == 170:
        assert line.endswith("rows sum to 1 (4e-07) · 1 token of the path")
