"""What looks like a button in a view of the inside is one: names of views, keys of the last line, tokens."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from engine.protocol import CaptureFacts, Check
from inspector.display import quoted, token_label
from inspector.main.inside_view import InsideView
from inspector.main.key_table import key_table
from inspector.state.inside import checked
from inspector.state.session_tree import numbered
from inspector.views import TOOLS
from inspector.widgets.actions import Action
from tests.inspector.rig import Rig

VIEWS = key_table(TOOLS).views["3"]
SIZES = [(120, 40), (80, 24)]


# ---- keys and clicks ----------------------------------------------------------------------------


async def click(rig: Rig, widget: str, text: str) -> None:
    """Click the first place in a widget of the screen on top, or else of the main one, where a text stands."""
    screen = rig.app.screen
    region = screen.query_one(widget).region
    lines = rig.screen_text().splitlines()
    places = (
        (cell_len(lines[y][:x]), y)
        for y in range(region.y, region.bottom)
        if (x := lines[y].find(text, region.x)) >= 0
    )
    await rig.pilot.click(offset=next(places))
    await rig.pilot.pause()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.id)
async def test_the_name_of_each_view_leads_to_it(rig: Rig, view: Action, size: tuple[int, int]) -> None:
    await rig.ready()
    other = VIEWS[VIEWS.index(view) - 1]
    await rig.do(other.id)
    assert rig.app.main.view == other.id
    await click(rig, "#tabs", f"{view.shown} {view.view}")
    await rig.until(lambda: rig.app.main.view == view.id)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.id)
async def test_the_keys_of_the_last_line_are_pressed_by_a_click_on_key_or_word(
    rig: Rig, view: Action, size: tuple[int, int]
) -> None:
    await rig.ready()
    await rig.do(view.id)
    await click(rig, "#keyline", "next view")
    after = VIEWS[(VIEWS.index(view) + 1) % len(VIEWS)]
    await rig.until(lambda: rig.app.main.view == after.id)
    await click(rig, "#keyline", "esc")
    await rig.until(lambda: rig.app.top is rig.app.main)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", ["lens", "attribution", "positions"])
async def test_the_text_is_not_shown_twice(rig: Rig, view: str, size: tuple[int, int]) -> None:
    """Where it stands beside, the view says which token it is about; a view that colours it draws it all the same."""
    await rig.ready()
    await rig.do(view)
    token = rig.timeline.items[-1]
    assert f", {numbered(token)}, goes through the model" in rig.screen_text()
    assert (token.text.strip() in rig.answer_text().replace(quoted(token_label(token.text)), "")) == (
        size[0] == 80
    )


async def test_each_of_two_keys_that_stand_together_is_pressed_for_itself(rig: Rig) -> None:
    await rig.ready()
    await rig.do("attention")
    last = rig.timeline.slot
    await click(rig, "#keyline", "←")
    await rig.until(lambda: rig.timeline.slot == last - 1)
    await click(rig, "#keyline", "→")
    await rig.until(lambda: rig.timeline.slot == last)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES)
async def test_a_token_of_the_text_that_is_clicked_is_looked_at(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    await rig.do("attention")
    screen = rig.app.top
    assert isinstance(screen, InsideView)
    token = screen.path[-3]
    await click(rig, "#inside-text", token.text.strip())
    await rig.until(lambda: screen.path[-1] is token)


async def test_a_click_on_nothing_presses_nothing(rig: Rig) -> None:
    await rig.ready()
    await rig.do("attention")
    slot = rig.timeline.slot
    await rig.pilot.click("#status")
    await rig.pilot.click("#inside-view", offset=(1, 0))
    await rig.pilot.pause()
    assert (rig.app.main.view, rig.timeline.slot) == ("attention", slot)


# ---- checks -------------------------------------------------------------------------------------


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
