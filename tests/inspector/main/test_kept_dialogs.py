"""Dialogs that are built once are shown again as if they were new, and opening anything leaves nothing behind."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.color import Color
from textual.containers import Vertical
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import TextArea

from engine.breakpoints import Breakpoints
from inspector.views.breakpoints import BreakpointsDialog
from inspector.widgets.dialog import Dialog
from inspector.widgets.fields import SafeInput
from tests.inspector.main.test_overlays import OVERLAYS, branched, burst
from tests.inspector.rig import Rig, run

KEPT = ["slash", "a", "question_mark", "p", "s", "b"]


@pytest.fixture(autouse=True)
def own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a dialog saves goes nowhere else."""
    monkeypatch.chdir(tmp_path)


async def opened(rig: Rig, key: str) -> Screen[object]:
    """Press a key that opens a dialog."""
    await rig.press(key)
    dialog = rig.app.top
    await rig.until(lambda: isinstance(dialog, Dialog) and dialog is rig.app.top and dialog.focused)
    await rig.pilot.pause()
    return dialog


@pytest.mark.wide(1)
@pytest.mark.parametrize("key", KEPT)
async def test_a_dialog_that_is_shown_again_looks_as_at_first(rig: Rig, key: str) -> None:
    await rig.ready()
    dialog = await opened(rig, key)
    looks, focused = rig.screen_text(), dialog.focused
    for field in [*dialog.query(SafeInput), *dialog.query(TextArea)]:
        (field.insert if isinstance(field, TextArea) else field.insert_text_at_cursor)("oops")
    await rig.press("down", "down", "shift+tab", "pagedown", "right")
    dialog.query_one("#dialog-body").scroll_end(animate=False)
    await rig.pilot.pause()
    assert rig.screen_text() != looks
    dialog.dismiss()  # nothing is remembered, as it is when it is left with a key
    await rig.pilot.pause()
    assert rig.app.top is rig.app.main
    assert dialog.focused is None
    assert await opened(rig, key) is dialog
    assert rig.screen_text() == looks
    assert dialog.focused is focused


async def test_the_facts_are_those_of_the_present_model(rig: Rig) -> None:
    await rig.ready()
    dialog = await opened(rig, "i")
    await rig.press("escape")
    assert await opened(rig, "i") is dialog
    await rig.press("escape")
    facts = rig.timeline.facts
    assert facts is not None
    rig.timeline.facts = replace(facts, name="another-model")
    assert await opened(rig, "i") is not dialog
    assert "another-model" in rig.screen_text()
    await rig.until(lambda: not dialog.is_running)


async def test_each_showing_has_one_result_of_its_own(rig: Rig) -> None:
    await rig.ready()
    breakpoints = rig.app.controller.runs.breakpoints
    for value in ("3", "4", "5"):
        dialog = await opened(rig, "b")
        assert isinstance(dialog, BreakpointsDialog)
        await rig.type_in("entropy_above", value)
        burst(rig, "ctrl+s", "ctrl+s", "escape")  # the second opens the dialog that saves the session
        await rig.until(lambda: rig.app.top is rig.app.main and not rig.app.keys.busy)
        assert breakpoints.points == Breakpoints(entropy_above=float(value))
    await opened(rig, "b")
    await rig.press("6", "escape")
    assert breakpoints.points == Breakpoints(entropy_above=5)


async def test_keys_right_after_the_one_that_shows_it_again_are_its_own(rig: Rig) -> None:
    await rig.ready()
    for value in ("7", "8"):
        burst(rig, "b", value)
        await rig.until(lambda: isinstance(rig.app.top, BreakpointsDialog))
        await rig.until(lambda value=value: rig.form.rows["entropy_above"].text == value)
        await rig.press("escape")
    dialog = await opened(rig, "slash")
    for value in ("7", "8"):
        await rig.press("escape")
        burst(rig, "slash", value)
        await rig.until(lambda value=value: dialog.query_one("#find-query", SafeInput).value == value)
    assert rig.app.top is dialog


@pytest.mark.wide(2)
@pytest.mark.parametrize("key", KEPT)
async def test_a_dialog_that_is_shown_again_focuses_its_first_field_alone(
    rig: Rig, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.ready()
    dialog = await opened(rig, key)
    first = dialog.focused
    await rig.press("escape")
    focused: list[Widget] = []
    set_focus = dialog.set_focus

    def note(widget: Widget | None, *more: bool, **named: bool) -> None:
        focused.extend([] if widget is None else [widget])
        set_focus(widget, *more, **named)

    monkeypatch.setattr(dialog, "set_focus", note)
    assert await opened(rig, key) is dialog
    assert set(focused) == {first}


@pytest.mark.slow
@pytest.mark.parametrize("key", KEPT)
def test_another_theme_and_size_hold_for_what_was_built_before(key: str) -> None:
    looks: list[str] = []

    async def at_once(rig: Rig) -> None:
        await rig.ready()
        await opened(rig, key)
        looks.append(rig.screen_text())

    async def later(rig: Rig) -> None:
        await rig.ready()
        dialog = await opened(rig, key)
        await rig.press("escape")
        rig.app.theme = "textual-light"
        await rig.pilot.resize_terminal(70, 24)
        await rig.pilot.pause()
        assert await opened(rig, key) is dialog
        await rig.until(lambda: rig.screen_text() == looks[0])
        surface = Color.parse(rig.app.theme_variables["surface"])
        assert dialog.query_one("#dialog", Vertical).styles.background == surface

    run(at_once, size=(70, 24))
    run(later)


def widgets() -> int:
    """Widgets that are alive."""
    gc.collect()
    return sum(isinstance(each, Widget) for each in gc.get_objects())


@pytest.mark.slow
async def test_opening_things_often_leaves_no_widget_behind(rig: Rig) -> None:
    counts: list[int] = []

    await branched(rig)
    for _ in range(4):
        for action in OVERLAYS:
            await rig.do(action)
            assert rig.app.top is not rig.app.main
            rig.app.top.dismiss()
            await rig.until(lambda: rig.app.top is rig.app.main)
            await rig.press("left", "end")  # what was left last may be held until something happens
        counts.append(widgets())
    await rig.until(lambda: widgets() - counts[1] < 2)  # those of the last screen go one by one


def test_a_dialog_is_in_its_place_after_a_resize() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await opened(rig, "s")
        await rig.press("escape")
        await rig.pilot.resize_terminal(120, 40)
        await rig.pilot.pause()
        dialog = await opened(rig, "s")
        await rig.press(*["down"] * 15)
        first = dialog.query_one("#dialog").region
        await rig.press("escape")
        assert await opened(rig, "s") is dialog
        await rig.press(*["down"] * 15)
        assert dialog.query_one("#dialog").region == first

    run(test, size=(80, 24))
