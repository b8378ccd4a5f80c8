"""The tabs: which answer each shows, how one goes on to the next, and how keys of another tab are named."""

from __future__ import annotations

import pytest

from engine import protocol
from inspector.keys import TABS, key_for
from inspector.views.draws import DrawsView
from inspector.views.interventions import SwitchOff
from inspector.views.modules import ModulesView
from tests.inspector.rig import Rig

WIDE, NORMAL, NARROW = (120, 40), (80, 24), (40, 12)


def at(rig: Rig) -> tuple[str, str]:
    """The open tab, and the action of the answer on show."""
    return rig.app.main.tab, rig.app.main.view


def lines(rig: Rig) -> list[str]:
    """The two lines of tabs, as on the terminal."""
    return rig.screen_text().splitlines()[1:3]


# ---- opening ----------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [WIDE, NORMAL, NARROW])
async def test_a_digit_opens_a_tab_with_the_answer_that_was_shown_there_last(
    rig: Rig, size: tuple[int, int]
) -> None:
    await rig.ready()
    first = ["candidates", "why", "modules", "tree", "kv", "lessons", "keep"]
    for _ in range(2):
        for digit, view in zip(TABS, first, strict=True):
            await rig.press(digit)
            assert at(rig) == (digit, view)
    await rig.press("5", "t")
    assert at(rig) == ("5", "timing")
    await rig.press("4", "X")
    assert at(rig) == ("4", "interventions")
    await rig.press("5")
    assert at(rig) == ("5", "timing")
    await rig.press("4")
    assert at(rig) == ("4", "interventions")
    await rig.press("escape")
    assert at(rig) == ("5", "timing")


async def test_one_letter_means_in_each_tab_what_its_line_says(rig: Rig) -> None:
    await rig.ready()
    for digit, view, word in (("5", "timing", "t time"), ("4", "tree", "t tree")):
        await rig.press(digit)
        assert word in lines(rig)[1]
        if digit != "4":  # it is on show
            await rig.press("t")
        assert rig.app.main.tab == digit
        assert rig.app.main.arrangement.current == view


async def test_a_tab_without_a_distribution_says_what_it_waits_for(rig: Rig) -> None:
    await rig.press("2")
    assert rig.app.main.tab == "2"
    assert rig.status.startswith("The model is still loading")


async def test_tabs_and_answers_are_clicked(rig: Rig) -> None:
    await rig.ready()
    for row, word, reached in (
        (0, "5 Cost", ("5", "kv")),
        (1, "t time", ("5", "timing")),
        (0, "3 Inside", ("3", "modules")),
        (1, "A attention", ("3", "attention")),
        (0, "1 Next", ("1", "candidates")),
    ):
        await rig.pilot.click(offset=(lines(rig)[row].index(word) + 1, row + 1))
        await rig.pilot.pause()
        assert at(rig) == reached, word


def test_a_sentence_names_the_tab_of_a_key_that_holds_elsewhere_alone(request: pytest.FixtureRequest) -> None:
    from inspector.keys import go_to

    request.addfinalizer(lambda: go_to(""))
    go_to("5")
    assert [key_for(id) for id in ("timing", "export", "step", "previous_branch")] == [
        "t",
        "7 E",
        "space",
        "1 [",
    ]
    go_to("4")
    assert [key_for(id) for id in ("timing", "previous_branch")] == ["5 t", "["]
    go_to("")
    assert key_for("timing") == "5 t"


@pytest.mark.parametrize(
    ("tab", "key", "says"),
    [
        ("1", "A", "Press 3 A for Attention"),
        ("3", "x", "Press 4 x for Delete branch"),
        ("3", "e", "Press 1 e for Tokens"),
        ("1", "R", "Press 2 R for Recorded reply, 4 R for Reply, 5 R for Ranks, 7 R for Requests"),
        ("1", "ctrl+y", ""),
    ],
)
async def test_a_key_of_another_tab_says_so(rig: Rig, tab: str, key: str, says: str) -> None:
    await rig.ready()
    await rig.pilot.press(tab, key)
    assert rig.app.main.status.answer == says
    assert rig.app.main.tab == tab


# ---- going on to the next answer --------------------------------------------------------------


async def test_tab_goes_round_the_answers_of_the_open_tab_and_back(rig: Rig) -> None:
    await rig.ready()
    await rig.press("5")
    seen = []
    for _ in range(5):
        seen.append(rig.app.main.view)
        await rig.press("tab")
    assert seen == ["kv", "timing", "race", "batch", "speculation"]
    assert at(rig) == ("5", "kv")
    await rig.press("shift+tab", "shift+tab")
    assert at(rig) == ("5", "batch")


async def test_tab_passes_over_what_cannot_be_shown_now_and_what_shows_no_answer(rig: Rig) -> None:
    await rig.ready()
    await rig.press("4", "tab")
    assert at(rig) == ("4", "beams")  # there is no other branch to compare with
    await rig.press("escape")
    assert "branch" not in rig.app.main.status.answer
    await rig.press("1", "tab")
    assert isinstance(rig.app.top, DrawsView)
    assert not [each for each in rig.engine.sent if isinstance(each, protocol.LookAhead)]
    await rig.press("tab")
    assert at(rig) == ("1", "merges")


async def test_tab_stays_where_a_tab_has_one_answer(rig: Rig) -> None:
    await rig.ready()
    await rig.press("5")
    assert "next view" in rig.screen_text()
    await rig.press("2")
    for key in ("tab", "shift+tab"):
        assert "next view" not in rig.screen_text()
        await rig.press(key)
        assert at(rig) == ("2", "why")
        assert rig.status == "No other answer can be shown in this tab now"


async def test_an_answer_under_a_tool_s_screen_is_gone_back_to(rig: Rig) -> None:
    """Its key would leave it where it is in sight."""
    await rig.ready()
    await rig.press("4", "X")
    assert isinstance(rig.app.top, SwitchOff)
    await rig.do("tree")
    assert rig.app.top is rig.app.main
    assert at(rig) == ("4", "tree")
    await rig.press("3", "4")
    assert at(rig) == ("4", "tree")
    await rig.press("shift+tab", "tab")
    assert at(rig) == ("4", "tree")


@pytest.mark.screen(size=NARROW)
async def test_where_one_panel_is_shown_the_text_comes_before_the_first_answer(rig: Rig) -> None:
    await rig.ready()
    main = rig.app.main
    await rig.press("3")
    for _ in range(5):
        assert isinstance(rig.app.top, ModulesView) is (main.view == "modules")
        assert rig.app.top is not main
        await rig.press("tab")
    assert rig.app.top is main
    assert (main.tab, main.arrangement.current) == ("3", "text")
    await rig.press("tab")
    assert at(rig) == ("3", "modules")
    await rig.press("2", "tab")
    assert (main.tab, main.arrangement.current) == ("2", "text")
    await rig.press("tab")
    assert (at(rig), main.arrangement.current) == (("2", "why"), "sampler")


# ---- a tool's own screen ----------------------------------------------------------------------


async def test_a_tool_s_screen_leaves_the_text_in_sight_and_it_takes_clicks_there(rig: Rig) -> None:
    await rig.ready()
    await rig.press("3")
    text = rig.app.main.query_one("#text").region
    answer = rig.app.top.region
    assert (answer.x, answer.y) == (text.right, text.y)
    assert answer.right == 120
    assert "there was a" in rig.screen_text()
    await rig.pilot.click(offset=(text.x + 4, text.y + 1))
    await rig.pilot.pause()
    assert rig.timeline.slot == 0
    assert isinstance(rig.app.top, ModulesView)


@pytest.mark.screen(size=NORMAL)
async def test_a_tool_s_screen_is_in_the_place_of_all_panels_where_there_is_no_room_beside_the_text(
    rig: Rig,
) -> None:
    await rig.ready()
    await rig.press("3")
    answer = rig.app.top.region
    assert (answer.x, answer.y, answer.right, answer.bottom) == (0, 3, 80, 22)
    await rig.pilot.resize_terminal(*WIDE)
    await rig.pilot.pause()
    assert rig.app.top.region.x == rig.app.main.query_one("#text").region.right


async def test_a_tool_s_screen_is_enlarged_and_follows_every_size(rig: Rig) -> None:
    await rig.ready()
    await rig.press("3", "f")
    answer = rig.app.top
    assert (answer.region.x, answer.region.right) == (0, 120)
    await rig.press("f")
    assert answer.region.x == rig.app.main.query_one("#text").region.right
    for size in ((160, 50), (99, 30), (100, 18), (100, 16), (40, 12), (300, 60)):
        await rig.pilot.resize_terminal(*size)
        await rig.pilot.pause()
        text = rig.app.main.query_one("#text").region
        beside = size[0] >= 100 and size[1] >= 18
        assert answer.region.x == (text.right if beside else 0), size
        assert answer.region.y == rig.app.main.query_one("#tabs").region.bottom
        assert answer.region.right == size[0]
        assert answer.region.bottom <= size[1] - 2


async def test_a_tool_s_screen_has_the_room_of_the_lines_where_the_text_is_alone_beside_it(rig: Rig) -> None:
    await rig.ready()
    await rig.press("3")
    assert rig.app.top.region.bottom == 36
    await rig.do("alone")
    assert rig.app.top.region.bottom == 38


async def test_the_other_answers_of_the_tab_have_their_keys_on_a_tool_s_screen(rig: Rig) -> None:
    await rig.ready()
    await rig.press("3", "A")
    assert at(rig) == ("3", "attention")
    await rig.press("I", "O")
    assert at(rig) == ("3", "modules")


async def test_what_holds_everywhere_holds_on_a_tool_s_screen(rig: Rig) -> None:
    await rig.ready()
    await rig.press("3")
    await rig.end("ReadModules", cancelled=True)
    rig.engine.sent.clear()
    await rig.press("space")
    assert rig.engine.names == ["TakeStep"]
    assert isinstance(rig.app.top, ModulesView)
    await rig.end("TakeStep")
    await rig.press("r")
    assert rig.engine.names == ["TakeStep", "Run"]
    await rig.end("Run", cancelled=True)
    await rig.press("2")
    assert rig.app.top is rig.app.main
    assert at(rig) == ("2", "why")


# ---- the lines --------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [WIDE, NORMAL, NARROW, (60, 20), (100, 18)])
async def test_the_lines_keep_the_open_tab_and_the_shown_answer_in_sight(
    rig: Rig, size: tuple[int, int]
) -> None:
    await rig.ready()
    for digit, name in TABS.items():
        await rig.press(digit)
        rows = rig.screen_text().splitlines()
        assert f"{digit} {name}" in rows[1]
        if size[1] >= 20:
            shown = next(
                each.view for each in rig.app.main.table.views[digit] if each.id == rig.app.main.view
            )
            assert shown in rows[2]
