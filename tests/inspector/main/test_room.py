"""The room of the panels: two alone, hidden ones, moved dividers, and what is remembered of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.geometry import Region

from engine.errors import EngineError
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences, SavedPreferences
from inspector.main.arrangement import Layout, layout_for
from inspector.main.division import LEAST_LINES, across, divided, divider_at, moved
from tests.inspector.rig import Rig, run

GRID, STACKED, LOW = (120, 40), (80, 24), (100, 16)


def region(rig: Rig, panel: str) -> Region:
    return rig.app.main.query_one(f"#{panel}").region


def shown(rig: Rig) -> set[str]:
    return {panel.id for panel in rig.app.main.query("#panels > .panel") if panel.display}


# ---- the grid ---------------------------------------------------------------------------------


def test_columns_share_their_rows() -> None:
    assert divided(["text", "steps"], ["candidates", "kv", "timing"], 16).spans == {
        "text": (1, 1), "steps": (2, 1), "candidates": (1, 1), "kv": (1, 1), "timing": (1, 1),
    }  # fmt: skip
    assert divided(["text"], ["candidates"], 16).spans == {"text": (3, 1), "candidates": (3, 1)}
    assert divided(["text"], ["candidates", "kv"], 15).rows == "1fr 8 7"
    assert divided(["text"], [], 15).spans == {"text": (3, 2)}
    assert across(["text", "candidates"], "tree", ["kv"], 8).spans["kv"] == (1, 2)
    assert across(["text", "candidates"], "tree", [], 8).rows == "1fr 1fr"


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


def test_the_two_alone_have_room_on_a_narrow_terminal() -> None:
    assert layout_for(60, 30) is Layout.SINGLE
    assert layout_for(60, 30, alone=True) is Layout.STACK
    assert layout_for(40, 12, alone=True) is Layout.SINGLE
    assert layout_for(120, 40, enlarged=True, alone=True) is Layout.SINGLE


# ---- keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [GRID, STACKED, LOW, (60, 30)])
def test_text_and_candidates_alone(size: tuple[int, int]) -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        before = shown(rig)
        await rig.press("0")
        assert shown(rig) == {"text", "candidates"}
        assert "0 brings the other panels back" in rig.status
        text, candidates = region(rig, "text"), region(rig, "candidates")
        area = region(rig, "panels")
        assert text.area + candidates.area == area.area
        await rig.press("0")
        assert shown(rig) == before
        await rig.press("0", "4")
        assert rig.app.main.arrangement.current == "kv"
        assert not rig.app.main.arrangement.alone
        await rig.press("0")
        assert rig.app.main.arrangement.current == "text"

    run(test, size)


def test_a_hidden_panel_leaves_its_room_to_the_others() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        area = region(rig, "panels")
        for key, panel in (("3", "steps"), ("5", "timing"), ("4", "kv")):
            await rig.press(key, "H")
            assert panel not in shown(rig)
            assert rig.status.endswith(f"{key} shows it again, \\ all panels at their usual sizes")
            assert sum(region(rig, each).area for each in shown(rig)) == area.area
        await rig.press("4")
        assert shown(rig) == {"text", "candidates", "kv"}
        await rig.press("1", "H")
        assert rig.status.startswith("Text stays.")
        await rig.press("t", "H")
        assert "tree" not in shown(rig)
        await rig.press("backslash")
        assert shown(rig) == {"text", "candidates", "steps", "kv", "timing"}

    run(test, GRID)


def test_a_hidden_panel_makes_room_for_the_next_one_where_one_is_shown_at_a_time() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("3", "H")
        assert shown(rig) == {"text", "candidates", "kv"}
        await rig.press("4", "H", "5", "H")
        assert shown(rig) == {"text", "candidates"}
        assert region(rig, "text").area + region(rig, "candidates").area == region(rig, "panels").area

    run(test, STACKED)


def test_tab_passes_over_what_is_hidden() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("3", "H", "2", "tab")
        assert rig.app.main.arrangement.current == "kv"
        await rig.press("shift+tab", "0", "tab")
        assert rig.app.main.arrangement.current == "sampler"
        await rig.press("tab")
        assert rig.app.main.arrangement.current == "text"
        assert rig.app.main.arrangement.alone

    run(test, GRID)


def test_keys_move_the_dividers_of_the_grid() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("shift+left")
        assert region(rig, "text").width == 58
        await rig.press("shift+right", "shift+right")
        assert region(rig, "text").width == 62
        await rig.press("shift+up")
        assert region(rig, "steps").height == 17
        assert region(rig, "kv").height + region(rig, "timing").height == 17
        await rig.press("4", "H", "5", "H", "shift+up")
        assert region(rig, "steps").height == 18
        await rig.press("backslash")
        assert (region(rig, "text").width, region(rig, "steps").height) == (60, 16)
        await rig.press("f", "shift+left")
        assert rig.status.startswith("No divider can be moved here")

    run(test, GRID)


def test_keys_move_the_lines_between_stacked_panels() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("shift+up")
        assert [region(rig, id).height for id in ("text", "candidates", "steps")] == [5, 10, 6]
        await rig.press("3", "shift+down", "shift+down")
        assert [region(rig, id).height for id in ("text", "candidates", "steps")] == [5, 12, 4]
        await rig.press("shift+down")
        assert region(rig, "steps").height == LEAST_LINES
        await rig.pilot.resize_terminal(80, 20)
        await rig.pilot.pause()
        assert region(rig, "text").height >= LEAST_LINES

    run(test, STACKED)


# ---- mouse ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [GRID, LOW])
def test_the_divider_between_the_columns_is_dragged(size: tuple[int, int]) -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        x = region(rig, "text").right
        await drag(rig, (x, 5), (x // 2, 6))
        assert region(rig, "text").right == pytest.approx(x // 2, abs=1)
        assert rig.app.mouse_captured is None
        assert rig.app.screen.get_selected_text() is None

    run(test, size)


def test_the_lines_between_stacked_panels_are_dragged() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        line = region(rig, "candidates").bottom
        await drag(rig, (20, line - 1), (22, line - 2))
        assert region(rig, "candidates").bottom == line - 2
        assert region(rig, "text").height == 6
        await drag(rig, (20, region(rig, "text").bottom), (20, region(rig, "text").bottom - 1))
        assert region(rig, "text").height == 5

    run(test, STACKED)


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
        await rig.press("T", "m", "minus", "4", "H", "shift+left")

    async def find(rig: Rig) -> None:
        await rig.ready()
        assert not rig.app.current_theme.dark
        assert "entropy from" in rig.screen_text()
        assert "pace 20 a second" in rig.screen_text()
        assert "kv" not in shown(rig)
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
    assert "There are dark, light, " in caught.value.hint
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
