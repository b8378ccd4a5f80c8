"""The tabs: what holds in them, what they show, and that the text stays beside whatever answers."""

from __future__ import annotations

import re

import pytest

from inspector.keys import FIXED, TABS, key_for, shown
from inspector.main.key_table import key_table
from inspector.main.panels.header import TabLines
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.text import TextPanel
from inspector.main.panels.timing import TimingPanel
from inspector.main.tool import found as imported
from inspector.main.view import View
from inspector.views import TOOLS
from tests.inspector.main.test_overlays import branched
from tests.inspector.rig import Rig, run

TABLE = key_table(TOOLS)
MOST_EVERYWHERE = 18
GROUPS = (
    {"above", "below", "earlier", "later", "ten_earlier", "ten_later", "first", "tip"},
    {"next_view", "view_before"},
    {"undo", "redo"},
    {f"tab_{digit}" for digit in TABS},
    {"left_narrower", "left_wider", "divider_up", "divider_down", "alone", "usual_room"},
    {"save_as", "sessions"},
)
"""Actions that are one thing to remember: the arrows with pages and ends, the answers, undo and redo, the tabs, the
layout, saving and opening."""
OF_THE_TEXT = {"segments"}
"""The tools whose view is about the text, and on no row."""
TERMINAL = {"copy_selection"}
"""What the terminal's own key does."""


def test_at_most_eighteen_keys_hold_everywhere() -> None:
    everywhere = {each.id for each in TABLE.actions if not each.tabs} - TERMINAL
    grouped = set().union(*GROUPS)
    assert len(everywhere - grouped) + len(GROUPS) <= MOST_EVERYWHERE
    assert grouped <= everywhere


def test_every_tab_has_an_answer_and_every_panel_and_screen_is_one() -> None:
    views = {each.id for tab in TABS for each in TABLE.views[tab]}
    assert all(TABLE.views[tab] and not TABLE.views[tab][0].view.endswith("…") for tab in TABS)
    for tool in TOOLS:
        pages = {TABLE.on_row(each.id) for each in tool.actions if each.opens}
        if (tool.panel is not None or tool.opening) and tool.id not in OF_THE_TEXT:
            assert {tool.opener, *pages} - {""} <= views, tool.id
            assert tool.opener or pages, tool.id


def test_no_key_of_a_tools_screen_is_that_of_another_answer_of_its_tab() -> None:
    """Both stand on the screen at once."""
    for tool in TOOLS:
        own = {each.id for each in tool.actions}
        tab = TABLE[tool.opener].tabs if tool.opener else ""
        others = {
            key: each.id for each in TABLE.views.get(tab, ()) if each.id not in own for key in each.names
        }
        for table in (imported(each.opens).ACTIONS for each in tool.actions if each.opens):
            for action in table.actions:
                assert not others.keys() & {*action.names}, (tool.id, action.id)


AS_ON_THE_SCREEN = frozenset(("space", "r", "backspace", *FIXED))
"""Keys that a view may have for its own steps, runs and places."""


def test_a_letter_of_a_tab_or_of_all_means_the_same_in_every_view() -> None:
    """`3 o` opens a model whichever view is on show. The keys that are fixed move about whatever is on show."""
    taken = set()
    for tool in TOOLS:
        for opener in (each for each in tool.actions if each.opens):
            for tab in opener.tabs:
                held = {
                    key: each.id
                    for each in TABLE.actions
                    if each.holds(tab)
                    for key in each.names
                    if key not in (AS_ON_THE_SCREEN if not each.tabs else FIXED)
                }
                taken |= {
                    f"{own.id} {shown(key)} {held[key]}"
                    for own in imported(opener.opens).ACTIONS.actions
                    for key in own.names
                    if own.id and held.get(key, own.id) != own.id
                }
    assert not taken


def test_esc_goes_back_everywhere_and_q_quits() -> None:
    for table in TABLE.tables:
        for action in (each for each in table.actions if each.id):
            back = action.id.endswith((".leave", ".close"))
            assert "q" not in action.names, action.id
            assert not back or action.id == "help.close" or action.names == ("escape",), action.id
            assert "escape" not in action.names or back or action.id == "stop", action.id


def test_esc_makes_an_enlarged_view_small_before_it_leaves_it() -> None:
    async def test(rig: Rig) -> None:
        await branched(rig)
        await rig.do("attention")
        for key, enlarged, view in (
            ("f", True, "attention"),
            ("escape", False, "attention"),
            ("escape", False, ""),
        ):
            await rig.press(key)
            opened = rig.app.main.open_view
            assert rig.app.main.arrangement.enlarged is enlarged
            assert (opened.TOOL if opened is not None else "") == view

    run(test)


def test_no_key_is_silent_in_a_view() -> None:
    async def test(rig: Rig) -> None:
        await branched(rig)
        await rig.do("attention")
        for key, said in (
            ("percent_sign", "% does nothing here. ? shows the keys"),
            ("X", "Press 4 X for Switch off"),
            ("A", "On show already: Attention. Esc goes back"),
        ):
            await rig.app._press_keys([key])
            await rig.pilot.pause()
            assert said in rig.screen_text()
        assert rig.app.main.view == "attention"

    run(test)


def test_no_key_is_silent_in_the_help() -> None:
    async def test(rig: Rig) -> None:
        await rig.press("question_mark", "q")
        assert "q does nothing here" in rig.screen_text().splitlines()[-1]
        await rig.press("escape")
        assert rig.app.top is rig.app.main

    run(test)


def test_no_view_begins_in_a_field() -> None:
    """Letters go into a field once it was opened."""

    async def test(rig: Rig) -> None:
        await branched(rig)
        main = rig.app.main
        for tab in TABS:
            for view in TABLE.views[tab]:
                if not view.opens:
                    continue
                await rig.do(view.id)
                assert main.open_view is None or not main.open_view.typing, view.id
                for command in [*rig.app.controller.client.outstanding]:
                    await rig.end(command.kind, cancelled=True)

    run(test)


def lines(rig: Rig) -> list[str]:
    """The rows of the tabs."""
    top = rig.app.main.query_one(TabLines).region
    return rig.screen_text().split("\n")[top.y : top.bottom]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(120, 40), (100, 30), (80, 24)])
def test_tabs_and_answers_are_clicked(size: tuple[int, int]) -> None:
    async def test(rig: Rig) -> None:
        await branched(rig)
        main = rig.app.main
        for tab, name in TABS.items():
            await rig.pilot.click(
                offset=(lines(rig)[0].index(f"{tab} {name}"), main.query_one(TabLines).region.y)
            )
            await rig.pilot.pause()
            assert main.tab == tab
            for view in main.views:
                if view.view.endswith("…") or view.id == "look_ahead":
                    continue
                row = lines(rig)[1]
                assert view.view in row, (size, tab, row)
                at = row.index(view.view)
                await rig.pilot.click(offset=(at, main.query_one(TabLines).region.y + 1))
                await rig.pilot.pause()
                assert main.view == view.id, (size, tab, view.id)
                for command in [*rig.app.controller.client.outstanding]:
                    await rig.end(command.kind, cancelled=True)

    run(test, size)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (100, 30), (160, 50)])
def test_the_text_stays_beside_every_answer(size: tuple[int, int]) -> None:
    async def test(rig: Rig) -> None:
        await branched(rig)
        main = rig.app.main
        for tab in TABS:
            main.tab = tab
            for view in main.views:
                if view.view.endswith("…") or view.id == "look_ahead":
                    continue
                await rig.do(view.id)
                opened = main.open_view
                if opened is not None and opened.WHOLE:
                    assert opened.region.width == size[0]
                    continue
                text = main.query_one(TextPanel).region
                rows = rig.screen_text().split("\n")[text.y : text.bottom]
                assert any("Once upon a time," in row[: text.right] for row in rows), (size, view.id)
                assert 0.38 <= text.width / size[0] <= 0.42
                if opened is not None:
                    assert opened.area.x >= text.right
                    assert opened.area.y >= main.query_one(TabLines).region.bottom
                for command in [*rig.app.controller.client.outstanding]:
                    await rig.end(command.kind, cancelled=True)

    run(test, size)


def test_a_token_of_the_text_is_clicked_beside_a_tool() -> None:
    async def test(rig: Rig) -> None:
        await branched(rig)
        await rig.do("attention")
        main = rig.app.main
        assert isinstance(rig.app.top, View)
        rows = rig.screen_text().split("\n")
        y = next(y for y, row in enumerate(rows) if "Once upon a time," in row[:60])
        before = rig.timeline.slot
        await rig.pilot.click(offset=(rows[y].index("upon") + 1, y))
        await rig.pilot.pause()
        assert rig.timeline.slot == 1 != before
        assert main.open_view is not None
        assert main.view == "attention"

    run(test)


def test_a_tab_is_left_with_its_answer_and_comes_back_with_it() -> None:
    async def test(rig: Rig) -> None:
        await branched(rig)
        main = rig.app.main
        await rig.press("5", "t")
        assert (main.tab, main.view) == ("5", "timing")
        await rig.press("2")
        assert (main.tab, main.view) == ("2", "why")
        await rig.press("5")
        assert (main.tab, main.view) == ("5", "timing")
        await rig.press("escape")
        assert (main.tab, main.view) == ("1", "candidates")

    run(test)


def test_tab_goes_through_the_answers_and_passes_over_what_cannot_be_shown() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()  # one branch: nothing to compare
        main = rig.app.main
        await rig.press("4")
        seen = [main.view]
        for _ in range(3):
            await rig.press("tab")
            seen.append(main.view)
            for command in [*rig.app.controller.client.outstanding]:
                await rig.end(command.kind, cancelled=True)
        assert seen == ["tree", "beams", "interventions", "patching"]
        await rig.press("shift+tab", "shift+tab")
        assert main.view == "beams"

    run(test)


def test_sentences_name_the_tab_of_a_key_from_elsewhere() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        assert key_for("export") == "7 E"
        await rig.press("7")
        assert key_for("export") == "E"
        assert key_for("step") == "space"

    run(test)


def test_what_stands_on_the_screen_names_keys_as_the_open_tab_has_them() -> None:
    async def test(rig: Rig) -> None:
        offer = r"(6 )?S +lessons: predict"
        for tab, way in (("1", "6 "), ("6", None), ("1", "6 ")):
            await rig.press(tab)
            found = re.search(offer, rig.screen_text())
            assert found is not None
            assert found[1] == way

    run(test)


@pytest.mark.wide(1)
@pytest.mark.parametrize("answer", ["kv", "timing", "candidates"])
def test_a_tools_screen_leaves_nothing_but_lines_under_it(answer: str) -> None:
    """KV cache and time keep their order, also where one of them was the answer that the screen lies over."""

    async def test(rig: Rig) -> None:
        await branched(rig)
        await rig.do(answer, "speculation")
        opened = rig.app.main.open_view
        assert opened is not None
        rows = [rig.app.main.query_one(line).region for line in (KVPanel, TimingPanel)]
        assert [(row.y, row.height) for row in rows] == [(opened.area.bottom, 1), (opened.area.bottom + 1, 1)]
        assert "─ KV cache" not in rig.screen_text()
        await rig.do("speculation", "keep")
        assert rig.app.main.query_one(KVPanel).region.y < rig.app.main.query_one(TimingPanel).region.y

    run(test, (120, 40))
