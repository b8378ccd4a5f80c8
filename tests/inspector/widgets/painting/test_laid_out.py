"""A screen that was laid out once stands as it does after any number of layouts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from inspector.widgets.painting.laid_out import LaidOutOnce
from tests.inspector.main.test_overlays import OVERLAYS
from tests.inspector.painting import Terminal, painting
from tests.inspector.rig import Rig, run


@pytest.fixture(autouse=True)
def own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a dialog saves goes nowhere else."""
    monkeypatch.chdir(tmp_path)


def places(screen: Screen[object]) -> dict[Widget, tuple[Region, tuple[int, int]]]:
    """Where all widgets are, and how much there is to scroll."""
    return {
        each: (each.region, each.virtual_size)
        for each in screen.walk_children(Widget)
        if each in screen._compositor.visible_widgets
    }


def laid_out_again(screen: Screen[object]) -> dict[Widget, tuple[Region, tuple[int, int]]]:
    """The same, after the toolkit's own layouts with nothing remembered."""
    for _ in range(3):
        for each in screen.walk_children(Widget, with_self=True):
            each._clear_arrangement_cache()
            each.clear_cached_dimensions()
            each._layout_updates += 1
        Screen._refresh_layout(screen)
    return places(screen)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
def test_another_layout_changes_nothing(size: tuple[int, int]) -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        for key in [*OVERLAYS, "t", "w", "f"]:
            await rig.press(key)
            await rig.pilot.pause()
            await rig.pilot.pause()
            screen = rig.app.screen
            assert places(screen) == laid_out_again(screen), key
            while rig.app.screen is not rig.app.main:
                await rig.press("escape")
            await rig.press("escape")
            assert places(rig.app.main) == laid_out_again(rig.app.main), key

    run(test, size)


def test_what_is_asked_for_just_before_a_layout_is_in_it() -> None:
    """The toolkit forgets the arrangement around a widget later than the widget asks: a layout between the two had the
    old one, and the demand was dropped with it."""

    class Lines(LaidOutOnce[None]):
        def compose(self) -> ComposeResult:
            yield Static("", id="above")
            yield Static("\n".join("abcdef"), id="below")

    class Application(App[None]):
        CSS = "#above { height: 1fr; } #below { height: auto; }"

        def get_default_screen(self) -> Screen[None]:
            return Lines()

    async def body() -> None:
        app = Application()
        async with app.run_test(size=(40, 20)) as pilot:
            below = app.screen.query_one("#below", Static)
            assert below.size.height == 6
            below.update("one")
            app.screen._refresh_layout()
            await pilot.pause()
            await pilot.pause()
            assert below.size.height == 1

    asyncio.run(body())


class Noticing(App[None]):
    """An application whose screen is laid out once."""

    def get_default_screen(self) -> Screen[object]:
        return Below()


class Below(LaidOutOnce[object]):
    def compose(self) -> ComposeResult:
        yield Static("\n".join(["below"] * 40))


async def test_what_goes_while_a_place_is_asked_for_is_painted_over() -> None:
    """Textual makes its map of the screen anew where it is outdated, and no longer knows what it has to paint over."""
    app = Noticing()
    with painting():
        async with app.run_test(size=(40, 12), notifications=True) as pilot:
            terminal = Terminal(app)
            app.notify("seen")
            while "seen" not in terminal.text:
                await pilot.pause(0.01)
            toast = app.screen.query_one("ToastHolder")
            gone = toast.remove()
            while toast in app.screen.query_one("ToastRack").children:
                await asyncio.sleep(0)
            app.screen._compositor.update_widgets({Static("that is not on screen")})
            assert toast not in app.screen._compositor.full_map
            await gone
            await pilot.pause()
            assert "seen" not in terminal.text
