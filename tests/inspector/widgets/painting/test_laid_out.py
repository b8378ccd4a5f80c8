"""A screen that was laid out once stands as it does after any number of layouts."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from tests.inspector.main.test_overlays import OVERLAYS
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
