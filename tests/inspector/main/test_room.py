"""The room of the panels: two alone, sizes that keys change, and what is remembered of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.geometry import Region

from engine.errors import EngineError
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import SIZES, Preferences, SavedPreferences
from inspector.main.layout import LEAST_LINES
from tests.inspector.rig import Rig, run

GRID, STACKED, TALL, LOW = (120, 40), (80, 24), (80, 36), (100, 16)


def region(rig: Rig, panel: str) -> Region:
    return rig.app.main.query_one(f"#{panel}").region


def shown(rig: Rig) -> set[str]:
    return {panel.id for panel in rig.app.main.query("#panels > .panel") if panel.display}


def rooms(rig: Rig) -> dict[str, Region]:
    return {panel: region(rig, panel) for panel in shown(rig)}


# ---- keys -------------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [GRID, STACKED, TALL, LOW, (60, 30)])
async def test_text_and_answer_alone(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    before = shown(rig)
    await rig.press("0")
    assert shown(rig) == {"text", "candidates"}
    assert "0 brings the others back" in rig.status
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
    assert region(rig, "text").width == 46
    await rig.press("shift+right", "shift+right")
    assert region(rig, "text").width == 50
    await rig.press("shift+up")
    assert region(rig, "steps").height == 17
    assert region(rig, "kv").height + region(rig, "timing").height == 17
    await rig.press("shift+up")
    assert region(rig, "steps").height == 18
    await rig.press("backslash")
    assert (region(rig, "text").width, region(rig, "steps").height) == (48, 16)
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
    for _ in range(text + candidates):
        await rig.press("shift+down")
    assert region(rig, "candidates").height == LEAST_LINES
    await rig.pilot.resize_terminal(80, 20)
    await rig.pilot.pause()
    assert region(rig, "text").height >= LEAST_LINES


def check_room(rig: Rig) -> None:
    """Each panel on screen has cells of its own."""
    area, seen = region(rig, "panels"), [region(rig, id) for id in shown(rig)]
    assert all(each.area and area.contains_region(each) for each in seen), seen
    assert sum(each.area for each in seen) == (area.area if seen else 0), seen
    assert not any(a.overlaps(b) for n, a in enumerate(seen) for b in seen[n + 1 :]), seen


@pytest.mark.parametrize("value", [-1000, 0, 3, 30, 999, 10**6])
async def test_sizes_of_a_file_edited_by_hand_divide_what_there_is(rig: Rig, value: int) -> None:
    await rig.ready()
    rig.app.main._panel_layout.sizes.update(dict.fromkeys(SIZES, value))
    for view in ("candidates", "tree", "kv"):
        await rig.do(view)
        for size in (GRID, STACKED, TALL, LOW, (40, 12), (300, 60)):
            await rig.pilot.resize_terminal(*size)
            await rig.pilot.pause()
            check_room(rig)


# ---- what is remembered -----------------------------------------------------------------------


def test_the_screen_is_found_as_it_was_left(config: Path) -> None:
    async def leave(rig: Rig) -> None:
        await rig.ready()
        await rig.press("T", "m", "minus")
        await rig.press("shift+left", "e", "e")

    async def find(rig: Rig) -> None:
        await rig.ready()
        assert not rig.app.current_theme.dark
        assert "entropy ≥" in rig.screen_text()
        assert "20 steps/s" in rig.screen_text()
        assert str(rig.timeline.items[0].id) in rig.screen_text()
        assert region(rig, "text").width == 46
        await rig.press("0")

    run(leave)
    kept = json.loads((config / "screen.json").read_text())["screen"]
    assert kept == {
        "theme": "textual-light",
        "metric": "entropy",
        "pace": 20,
        "sizes": {"left": 384},
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
