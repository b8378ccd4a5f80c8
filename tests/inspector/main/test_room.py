"""The room of the panels: two alone, hidden ones, moved dividers, and what is remembered of it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.geometry import Region

from engine.errors import EngineError
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences, SavedPreferences
from inspector.main.division import LEAST_LINES, Grip, divided, divider_at, lined, moved
from tests.inspector.rig import Rig, run

GRID, STACKED, TALL, LOW = (120, 40), (80, 24), (80, 36), (100, 16)


def region(rig: Rig, panel: str) -> Region:
    return rig.app.main.query_one(f"#{panel}").region


def shown(rig: Rig) -> set[str]:
    return {panel.id for panel in rig.app.main.query("#panels > .panel") if panel.display}


def rooms(rig: Rig) -> dict[str, Region]:
    return {panel: region(rig, panel) for panel in shown(rig)}


# ---- the grid ---------------------------------------------------------------------------------


def test_columns_share_their_rows() -> None:
    assert divided(["text", "steps"], ["candidates", "kv", "timing"], 16).spans == {
        "text": (1, 1), "steps": (2, 1), "candidates": (1, 1), "kv": (1, 1), "timing": (1, 1),
    }  # fmt: skip
    assert divided(["text"], ["candidates"], 16).spans == {"text": (3, 1), "candidates": (3, 1)}
    assert divided(["text"], ["candidates", "kv"], 15).rows == "1fr 8 7"
    assert divided(["text"], [], 15).spans == {"text": (3, 2)}
    alone = lined(["text"], "tree", ["kv", "timing"], 15)
    assert alone.spans == {"text": (4, 1), "tree": (2, 1), "kv": (1, 1), "timing": (1, 1)}
    assert alone.rows == "1fr 13 1 1"
    assert lined(["text", "steps"], "tree", ["kv"], 15).spans["steps"] == (2, 1)


def test_a_divider_is_where_two_frames_meet() -> None:
    area = Region(0, 1, 120, 37)
    regions = {
        "text": Region(0, 1, 60, 21),
        "steps": Region(0, 22, 60, 16),
        "candidates": Region(60, 1, 60, 37),
    }
    cells = {
        (59, 5): "left", (60, 30): "left", (10, 21): "below", (10, 22): "below", (10, 20): "", (80, 22): "",
        (119, 5): "", (10, 37): "",
    }  # fmt: skip
    for (x, y), name in cells.items():
        assert divider_at(x, y, regions, area, stacked=False) == name, (x, y)
    assert moved("left", 30, 5, {}, area) == {"left": 250}
    assert moved("left", 0, 5, {}, area) == {"left": 200}
    assert moved("below", 10, 36, {"below": 16}, area) == {"below": 2 * LEAST_LINES}
    assert moved("below", 10, 0, {"below": 16}, area) == {"below": area.height - LEAST_LINES}
    both = moved("lower", 10, 30, {"candidates": 9, "lower": 6}, area)
    assert both == {"candidates": 15 - 8, "lower": 8}


def test_beside_a_panel_over_the_whole_width_there_is_no_divider_in_it() -> None:
    area = Region(0, 1, 120, 37)
    regions = {
        "text": Region(0, 1, 60, 14),
        "candidates": Region(60, 1, 60, 14),
        "tree": Region(0, 15, 120, 23),
    }
    assert divider_at(60, 5, regions, area, stacked=False) == "left"
    assert divider_at(60, 20, regions, area, stacked=False) == ""


CELLS = st.integers(0, 6)
PLACES = st.builds(Region, CELLS, CELLS, CELLS, CELLS)
"""Of a panel: while a new size is laid out, some of those before are still there."""


@given(st.lists(PLACES, min_size=1, max_size=5), PLACES, CELLS, CELLS, CELLS, CELLS, st.booleans())
def test_a_divider_is_let_go_anywhere_wherever_the_panels_are(
    places: list[Region], area: Region, x: int, y: int, to_x: int, to_y: int, stacked: bool
) -> None:
    regions = {f"panel {number}": region for number, region in enumerate(places)}
    if divider := divider_at(x, y, regions, area, stacked):
        assert Grip(divider, x, y, regions, area).squeezed(to_x, to_y) <= regions.keys()


# ---- keys -------------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [GRID, STACKED, TALL, LOW, (60, 30)])
async def test_text_and_answer_alone(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    before = shown(rig)
    await rig.press("0")
    assert shown(rig) == {"text", "candidates"}
    assert "6 0 brings the other panels back" in rig.status
    text, candidates = region(rig, "text"), region(rig, "candidates")
    area = region(rig, "panels")
    assert text.area + candidates.area == area.area
    await rig.press("0")
    assert shown(rig) == before
    await rig.press("0")
    await rig.do("kv")
    assert shown(rig) == {"text", "kv"}
    assert rig.app.main.arrangement.alone
    await rig.press("0")
    assert shown(rig) == before - {"candidates"} | {"kv"}


@pytest.mark.screen(size=GRID)
async def test_steps_beside_the_answer_are_gone_to_where_the_two_were_alone(rig: Rig) -> None:
    await rig.ready()
    await rig.press("0")
    await rig.do("steps")
    assert rig.app.main.arrangement.current == "steps"
    assert shown(rig) == {"text", "steps", "candidates", "kv", "timing"}
    await rig.press("0")
    assert rig.app.main.arrangement.current == "text"


@pytest.mark.screen(size=GRID)
async def test_a_hidden_panel_leaves_its_room_to_the_others(rig: Rig) -> None:
    await rig.ready()
    area = region(rig, "panels")
    for panel, label in (("steps", "Steps"), ("timing", "Time"), ("kv", "KV cache")):
        await rig.pilot.click(f"#{panel}", offset=(3, 1))
        await rig.press("H")
        assert panel not in shown(rig)
        assert rig.status == f"{label} hidden. 6 \\ shows all panels again"
        assert sum(region(rig, each).area for each in shown(rig)) == area.area
    await rig.do("kv")
    assert shown(rig) == {"text", "kv"}
    await rig.press("H")
    assert shown(rig) == {"text", "candidates"}
    await rig.press("H")
    assert rig.status.startswith("Only steps, KV cache and time can be hidden")
    await rig.do("tree")
    await rig.press("H")
    assert rig.status.startswith("Only steps, KV cache and time can be hidden")
    assert shown(rig) == {"text", "tree"}
    await rig.press("backslash", "escape")
    assert shown(rig) == {"text", "candidates", "steps", "kv", "timing"}


@pytest.mark.screen(size=STACKED)
async def test_a_hidden_line_leaves_its_room_to_the_others(rig: Rig) -> None:
    await rig.ready()
    for panel in ("kv", "timing"):
        await rig.pilot.click(f"#{panel}", offset=(3, 0))
        await rig.press("H")
        assert panel not in shown(rig)
        assert sum(region(rig, each).area for each in shown(rig)) == region(rig, "panels").area
    assert shown(rig) == {"text", "candidates"}


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [GRID, STACKED, LOW, (60, 30), (40, 12)])
async def test_before_there_is_a_text_the_candidates_stay_in_sight(rig: Rig, size: tuple[int, int]) -> None:
    """Or the one panel that has the whole screen: a key brings none in sight that has nothing to show."""
    beside = {"opening", "candidates"} <= shown(rig)
    assert beside is (size != (40, 12))
    for key in ("tab", "tab", "shift+tab", "5", "2", "1"):
        await rig.press(key)
        assert {"opening", "candidates"} <= shown(rig) or (not beside and len(shown(rig)) == 1)
        assert not shown(rig) & {"sampler", "tree", "grammar"}


@pytest.mark.wide(1)
@pytest.mark.parametrize("key", ["shift+up", "shift+down", "shift+left", "shift+right"])
@pytest.mark.screen(size=GRID)
async def test_dividers_move_where_the_panel_gone_to_is_not_on_screen(rig: Rig, key: str) -> None:
    """The next model could not be loaded: there is no text any more, and so no reason of a token."""

    await rig.ready()
    await rig.press("w")
    assert rig.app.main.arrangement.current == "sampler"
    rig.app.controller.setup.open(LoadSettings(model="none"))
    await rig.fail_to_load("There is no such model.", "Open another.")
    assert "sampler" not in shown(rig)
    before = rooms(rig)
    await rig.press(key)
    assert rooms(rig) != before


@pytest.mark.screen(size=GRID)
async def test_keys_move_the_dividers_of_the_grid(rig: Rig) -> None:
    await rig.ready()
    await rig.press("shift+left")
    assert region(rig, "text").width == 58
    await rig.press("shift+right", "shift+right")
    assert region(rig, "text").width == 62
    await rig.press("shift+up")
    assert region(rig, "steps").height == 17
    assert region(rig, "kv").height + region(rig, "timing").height == 17
    for panel in ("kv", "timing"):
        await rig.do(panel)
        await rig.press("H")
    await rig.press("shift+up")
    assert region(rig, "steps").height == 18
    await rig.press("backslash")
    assert (region(rig, "text").width, region(rig, "steps").height) == (60, 16)
    await rig.press("f", "shift+left")
    assert rig.status.startswith("No divider can be moved here")


@pytest.mark.screen(size=TALL)
async def test_keys_move_the_lines_between_stacked_panels(rig: Rig) -> None:
    await rig.ready()
    before = [region(rig, id).height for id in ("text", "candidates", "steps")]
    await rig.press("shift+up")
    text, candidates, steps = before
    assert [region(rig, id).height for id in ("text", "candidates", "steps")] == [
        text - 1,
        candidates + 1,
        steps,
    ]
    await rig.pilot.click("#steps", offset=(3, 1))
    await rig.press("shift+down", "shift+down")
    assert [region(rig, id).height for id in ("text", "candidates", "steps")] == [
        text - 1,
        candidates + 3,
        steps - 2,
    ]
    for _ in range(steps):
        await rig.press("shift+down")
    assert region(rig, "steps").height == LEAST_LINES
    await rig.pilot.resize_terminal(80, 20)
    await rig.pilot.pause()
    assert region(rig, "text").height >= LEAST_LINES


# ---- mouse ------------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [GRID, LOW])
async def test_the_divider_between_the_columns_is_dragged(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    x = region(rig, "text").right
    await drag(rig, (x, 5), (x // 2, 6))
    assert region(rig, "text").right == pytest.approx(x // 2, abs=1)
    assert rig.app.mouse_captured is None
    assert rig.app.top.get_selected_text() is None


@pytest.mark.screen(size=TALL)
async def test_the_lines_between_stacked_panels_are_dragged(rig: Rig) -> None:
    await rig.ready()
    line, text = region(rig, "candidates").bottom, region(rig, "text").height
    await drag(rig, (20, line - 1), (22, line - 2))
    assert region(rig, "candidates").bottom == line - 2
    assert region(rig, "text").height == text
    await drag(rig, (20, region(rig, "text").bottom), (20, region(rig, "text").bottom - 1))
    assert region(rig, "text").height == text - 1


@pytest.mark.screen(size=STACKED)
async def test_the_line_between_text_and_answer_is_dragged_and_those_of_one_line_stay(rig: Rig) -> None:
    await rig.ready()
    text, kv = region(rig, "text"), region(rig, "kv")
    await drag(rig, (20, text.bottom), (20, text.bottom + 3))
    assert region(rig, "text").height == text.height + 3
    assert region(rig, "kv") == kv
    await drag(rig, (20, kv.y - 1), (20, kv.y - 4))
    assert region(rig, "candidates").bottom == kv.y


@pytest.mark.screen(size=GRID)
async def test_the_line_between_the_lower_panels_of_a_column_is_dragged(rig: Rig) -> None:
    await rig.ready()
    line = region(rig, "timing").y
    await drag(rig, (90, line - 1), (90, line - 3))
    assert (region(rig, "timing").y, region(rig, "steps").height) == (line - 3, 16)
    await drag(rig, (90, line - 3), (90, line - 5))
    assert region(rig, "kv").height == LEAST_LINES
    await drag(rig, (90, region(rig, "kv").y), (90, region(rig, "kv").y + 4))
    assert min(region(rig, id).height for id in ("kv", "timing")) >= LEAST_LINES
    await rig.pilot.click("#kv", offset=(3, 1))
    await rig.press("shift+up", "backslash")
    assert region(rig, "timing").y == line


DRAGGED: list[tuple[tuple[int, int], str, str, tuple[int, int], set[str], str]] = [
    (GRID, "right", "candidates", (118, 9), {"text"}, "Text alone. f or esc brings the others back"),
    (GRID, "right", "candidates", (1, 9), {"candidates"}, "Candidates alone. f or esc brings the others back"),
    (GRID, "bottom", "text", (9, 37), {"text", "candidates", "kv", "timing"}, "Steps hidden. 6 \\ shows all panels"),
    (GRID, "bottom", "text", (9, 0), {"candidates"}, "Candidates alone. f or esc"),
    (GRID, "bottom", "candidates", (90, 39), {"text", "candidates", "steps"}, "KV cache and Time hidden. 6 \\ shows"),
    (GRID, "bottom", "candidates", (90, 1), {"text"}, "Text alone. f or esc"),
    (GRID, "bottom", "kv", (90, 38), {"text", "candidates", "steps", "kv"}, "Time hidden. 6 \\ shows"),
    (TALL, "bottom", "candidates", (9, 35), {"text", "candidates", "kv", "timing"}, "Steps hidden. 6 \\ shows"),
    (STACKED, "bottom", "text", (9, 22), {"text"}, "Text alone. f or esc brings the others back"),
    (LOW, "right", "candidates", (99, 5), {"text"}, "Text alone. f or esc brings the others back"),
    (LOW, "right", "candidates", (0, 5), {"candidates"}, "Candidates alone. f or esc brings the others back"),
]  # fmt: skip


@pytest.mark.wide(1)
@pytest.mark.parametrize(("size", "side", "panel", "end", "left", "said"), DRAGGED)
async def test_a_panel_dragged_to_nothing_is_hidden(
    rig: Rig, size: tuple[int, int], side: str, panel: str, end: tuple[int, int], left: set[str], said: str
) -> None:
    await rig.ready()
    before, had = shown(rig), rooms(rig)
    at = had[panel]
    start = (at.x, at.y + 3) if side == "right" else (at.x + 9, at.bottom - 1)
    await rig.pilot.mouse_down(offset=start)
    await rig.pilot.hover(offset=end)
    assert shown(rig) == before
    assert rig.status.startswith("Let go to hide ")
    await rig.pilot.mouse_up(offset=end)
    await rig.pilot.pause()
    assert shown(rig) == left
    assert rig.status.startswith(said)
    assert sum(region(rig, id).area for id in left) == region(rig, "panels").area
    assert rig.app.mouse_captured is None
    await rig.press("f" if "alone" in said else "backslash")
    assert rooms(rig) == had, "each has its room back"


@pytest.mark.screen(size=GRID)
async def test_a_tools_panel_dragged_to_nothing_leaves_the_text_alone_until_it_is_asked_for(rig: Rig) -> None:
    await rig.ready()
    await rig.press("w")
    await drag(rig, (region(rig, "sampler").x, 5), (119, 5))
    assert shown(rig) == {"text"}
    await rig.press("f")
    assert "sampler" in shown(rig)


def test_panels_that_were_dragged_to_nothing_stay_hidden_at_every_size_and_at_the_next_start(
    config: Path,
) -> None:
    async def leave(rig: Rig) -> None:
        await rig.ready()
        at = region(rig, "candidates")
        await drag(rig, (90, at.bottom - 1), (90, 39))
        assert shown(rig) == {"text", "candidates", "steps"}

    async def find(rig: Rig) -> None:
        await rig.ready()
        assert shown(rig) == {"text", "candidates", "steps"}
        await rig.pilot.resize_terminal(*STACKED)
        await rig.pilot.pause()
        assert shown(rig) == {"text", "candidates"}
        await rig.do("timing")
        assert shown(rig) == {"text", "timing"}

    run(leave)
    assert json.loads((config / "screen.json").read_text())["screen"] == {"hidden": ["kv", "timing"]}
    run(find)
    assert json.loads((config / "screen.json").read_text())["screen"] == {"hidden": ["kv"]}


@pytest.mark.wide(1)
@pytest.mark.parametrize("key", ["shift+right", "shift+left", "shift+up", "shift+down"])
@pytest.mark.screen(size=(60, 20))
async def test_a_divider_is_moved_before_a_new_size_is_laid_out(rig: Rig, key: str) -> None:
    """The terminal has its new size when the key comes, and no panel its place."""

    await rig.ready()
    await rig.press("6")
    rig.app.post_message(events.Key(key, None))
    rig.resize(*GRID)
    await rig.pilot.pause()
    check_room(rig)


@pytest.mark.wide(1)
@pytest.mark.parametrize("view", ["candidates", "tree", pytest.param("why", marks=pytest.mark.slow)])
@pytest.mark.screen(size=GRID)
async def test_dividers_dragged_anywhere_at_any_size(rig: Rig, view: str) -> None:
    """The panels fill their place without overlapping, whatever was dragged, wherever to, on whichever terminal."""

    await rig.ready()
    await rig.do(view)
    dice = random.Random(7)
    for size in ((300, 100), (80, 24), (120, 20), (100, 16), (1, 1), (121, 33)):
        await rig.pilot.resize_terminal(*size)
        await rig.pilot.pause()
        for _ in range(2):
            edges = [((each.right, each.y + 1), (each.x + 3, each.bottom)) for each in rooms(rig).values()]
            grips = [at for both in edges for at in both if rig.app.main._panel_layout.divider_at(*at)]
            if grips:
                end = dice.randrange(size[0]), dice.randrange(size[1])
                await drag(rig, dice.choice(grips), end)
            check_room(rig)
        await rig.press("backslash")
        check_room(rig)


def check_room(rig: Rig) -> None:
    """Each panel on screen has cells of its own."""
    area, seen = region(rig, "panels"), [region(rig, id) for id in shown(rig)]
    assert all(each.area and area.contains_region(each) for each in seen), seen
    assert sum(each.area for each in seen) == (area.area if seen else 0), seen
    assert not any(a.overlaps(b) for n, a in enumerate(seen) for b in seen[n + 1 :]), seen


@given(
    below=st.integers(2, 96),
    last=st.none() | st.integers(-100, 1000),
    share=st.integers(-5000, 5000),
    right=st.integers(0, 3),
)
def test_sizes_of_a_file_edited_by_hand_divide_what_there_is(
    below: int, last: int | None, share: int, right: int
) -> None:
    made = divided(["text", "steps"], ["candidates", "kv", "timing"][:right], below, share, last)
    _, upper, lower = made.rows.split()
    assert min(int(upper), int(lower)) >= min(LEAST_LINES, below // 2)
    assert int(upper) + int(lower) == below
    columns = [int(each.removesuffix("fr")) for each in made.columns.split()]
    assert sum(columns) == 1000
    assert min(columns) >= 200


@pytest.mark.wide(1)
@pytest.mark.parametrize(("before", "after"), [(GRID, STACKED), (STACKED, GRID), (GRID, (60, 20))])
def test_a_new_size_lets_go_of_a_divider(before: tuple[int, int], after: tuple[int, int]) -> None:
    """The panels that it was between are elsewhere: what the mouse does from there on is nothing to them."""

    async def test(rig: Rig) -> None:
        await rig.ready()
        layout = rig.app.main._panel_layout
        cells = [(each.x + 3, each.bottom) for each in rooms(rig).values()]
        for divider in {layout.divider_at(*cell) for cell in cells} - {""}:
            at = next(cell for cell in cells if layout.divider_at(*cell) == divider)
            await rig.pilot.mouse_down(offset=at)
            for resized in (False, True):  # some moves come before the new size is laid out
                rig.resize(*after)
                if resized:
                    await rig.pilot.pause()
                await rig.pilot.hover(offset=(5, 3))
            assert layout.sizes == {}
            await rig.pilot.mouse_up(offset=(5, 3))
            await rig.pilot.pause()
            check_room(rig)
            await rig.pilot.resize_terminal(*before)
            await rig.pilot.pause()

    run(test, before)


@pytest.mark.screen(size=GRID)
async def test_a_new_size_hides_no_panel_that_a_divider_has_left_no_room(rig: Rig) -> None:
    await rig.ready()
    before, text = shown(rig), region(rig, "text")
    await rig.pilot.mouse_down(offset=(text.x + 3, text.bottom - 1))
    await rig.pilot.hover(offset=(text.x + 3, region(rig, "panels").bottom))
    assert rig.status.startswith("Let go to hide ")
    assert not rig.app.main.selections  # pressed in the frame of the text, where a selection begins
    rig.resize(130, 42)
    await rig.pilot.pause()
    assert "Let go" not in rig.status
    await rig.pilot.mouse_up(offset=(text.x + 3, 30))
    await rig.pilot.pause()
    assert shown(rig) == before


async def drag(rig: Rig, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Press at one cell, move to another and let go."""
    await rig.pilot.mouse_down(offset=start)
    await rig.pilot.hover(offset=end)
    await rig.pilot.mouse_up(offset=end)
    await rig.pilot.pause()


# ---- what is remembered -----------------------------------------------------------------------


def test_the_screen_is_found_as_it_was_left(config: Path) -> None:
    async def leave(rig: Rig) -> None:
        await rig.ready()
        await rig.press("T", "m", "minus")
        await rig.do("kv", "hide")
        await rig.press("shift+left", "e", "e")

    async def find(rig: Rig) -> None:
        await rig.ready()
        assert not rig.app.current_theme.dark
        assert "entropy from" in rig.screen_text()
        assert "pace 20 a second" in rig.screen_text()
        assert "kv" not in shown(rig)
        assert str(rig.timeline.items[0].id) in rig.screen_text()
        assert region(rig, "text").width == 58
        await rig.press("0")

    run(leave)
    kept = json.loads((config / "screen.json").read_text())["screen"]
    assert kept == {
        "theme": "textual-light",
        "metric": "entropy",
        "pace": 20,
        "hidden": ["kv"],
        "sizes": {"left": 484},
        "view": "ids",
    }
    run(find)
    assert json.loads((config / "screen.json").read_text())["screen"] == {**kept, "alone": True}


def test_nothing_is_written_where_nothing_was_changed(config: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("space", "left", "end")

    run(test)
    assert not (config / "screen.json").exists()


def test_the_theme_is_one_that_there_is(config: Path) -> None:
    with pytest.raises(EngineError, match="There is no theme 'sepia'") as caught:
        InspectorApp(LoadSettings(), Settings(), theme="sepia")
    assert "The themes are dark, light, " in caught.value.hint
    SavedPreferences().save(Preferences(theme="nord"))
    assert InspectorApp(LoadSettings(), Settings()).theme == "nord"
    assert InspectorApp(LoadSettings(), Settings(), theme="light").theme == "textual-light"
    assert InspectorApp(LoadSettings(), Settings(), begins=Preferences()).theme != "nord"
    SavedPreferences().save(Preferences(theme="one that is gone"))
    assert InspectorApp(LoadSettings(), Settings()).theme == "textual-dark"


def test_the_environment_names_the_theme(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SavedPreferences().save(Preferences(theme="nord"))
    monkeypatch.setenv("TEXTUAL_THEME", "dracula")
    assert InspectorApp(LoadSettings(), Settings()).theme != "nord"
