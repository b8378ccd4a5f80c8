"""What looks like a button in a view of the inside is one: names of views, keys of the last line, tokens."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from engine.protocol import CaptureFacts, Check
from inspector.display import quoted, token_label
from inspector.main.inside_view import InsideView, TokenHeat
from inspector.main.key_table import key_table
from inspector.main.panels.header import TabLines
from inspector.main.tool import found
from inspector.state.inside import checked
from inspector.views import TOOLS
from inspector.widgets.actions import Action
from tests.inspector.fakes import Session
from tests.inspector.panels_app import on_screen, screen, shown
from tests.inspector.rig import Rig

TABLE = key_table(TOOLS)
VIEWS = TABLE.views["3"]
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
    assert f"the model reads {quoted(token_label(token.text))}" in rig.screen_text()
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


FACTS = CaptureFacts(
    (Check("forward", 0.0, 0.0), Check("rows", 4e-7, 1e-5)), 202.0, 46.0, "llama", "one layer alone"
)


@pytest.mark.parametrize(
    ("room", "line"),
    [
        (78, "Verified, largest error 4e-07 · 202 ms · one layer alone"),
        (50, "Verified, largest error 4e-07 · one layer alone"),
        (38, "Verified, largest error 4e-07"),
    ],
)
def test_checks_that_hold_are_quiet(room: int, line: str) -> None:
    assert checked(FACTS, room) == line


def test_a_check_that_fails_says_which_and_by_how_much() -> None:
    failed = replace(FACTS, checks=(*FACTS.checks, Check("attention", 0.25, 1e-5)))
    assert (
        checked(failed, 78) == "Not shown: the check “attention” failed, off by 0.25, where 1e-05 is allowed"
    )


# ---- pages and their keys -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "tool", "word"),
    [("scores", "attention", "attention"), ("positions", "modules", "map"), ("experts", "modules", "map")],
)
async def test_a_page_belongs_to_its_view(rig: Rig, page: str, tool: str, word: str) -> None:
    """The row has five words; a page underlines that of its view, and the view's own key leads back to it."""
    await rig.ready()
    assert [each.view for each in VIEWS] == ["map", "attention", "lens", "contributions", "gradients"]
    await rig.press("3", TABLE[page].shown)
    assert rig.app.main.view == page
    lines = rig.app.main.query_one(TabLines).render()
    underlined = [
        lines.plain[span.start : span.end] for span in lines.spans if "underline" in str(span.style)
    ]
    assert [text.split()[-1] for text in underlined] == [word]
    await rig.press("1", "3")
    assert rig.app.main.view == page, "the tab comes back to it"
    await rig.press(TABLE[tool].shown)
    assert rig.app.main.view == tool
    await rig.press(TABLE[page].shown, "tab")
    assert rig.app.main.view == VIEWS[[each.id for each in VIEWS].index(tool) + 1].id


def test_no_view_gives_a_letter_of_the_tab_another_meaning() -> None:
    """`3 o` opens a model, whatever was open before."""
    letters = {name: each.id for each in TABLE.actions if each.tabs == "3" for name in each.names}
    tables = [found(each.opens).ACTIONS for each in TABLE.actions if each.tabs == "3" and each.opens]
    assert len(tables) == 8
    for table in tables:
        for action in table.actions:
            assert all(letters.get(name, action.id) == action.id for name in action.names if action.id), (
                action.id
            )


@on_screen
async def test_the_text_above_a_view_ends_with_its_token_also_if_that_breaks_the_line() -> None:
    made = Session()
    items = [
        made._prompt_token(place, piece) for place, piece in enumerate(("Tim", " had", " a", " kite", "\n"))
    ]
    async with shown(TokenHeat(), (16, 3)) as (text, pilot):
        text.put("Title", items)
        await pilot.pause()
        assert "kite↵" in screen(pilot)
