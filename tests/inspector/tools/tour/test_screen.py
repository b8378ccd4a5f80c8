"""The tour goes to every panel, leaves it in sight, and puts everything back."""

from __future__ import annotations

import pytest

from inspector.tools.tour.tool import STOPS, TourDialog
from tests.inspector.rig import Rig


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_it_goes_from_panel_to_panel_and_back(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    await rig.press("W")
    for place, stop in enumerate(STOPS):
        assert f"Tour {place + 1}/{len(STOPS)} · {stop.question[:12]}" in rig.screen_text()
        assert rig.app.main.arrangement.current == stop.panel
        assert stop.panel in rig.app.main.host.shown
        card = rig.app.screen.query_one("#dialog").region
        seen = rig.app.main.query_one(f"#{stop.panel}").region
        assert card.intersection(seen).area < seen.area
        await rig.press("right" if place % 2 else "space")
    assert not isinstance(rig.app.screen, TourDialog)
    await rig.press("W", "enter", "left")
    assert f"Tour 1/{len(STOPS)}" in rig.screen_text()
    await rig.press("escape")
    assert rig.engine.sent == []  # keys of the tour are no steps


async def test_everything_is_as_it_was_before(rig: Rig) -> None:
    await rig.ready()
    await rig.press("5", "H", "2", "0")
    before = rig.app.main.left, rig.app.main.arrangement.current, rig.app.main.host.shown
    await rig.press("W", *["space"] * 6, "escape")
    assert (rig.app.main.left, rig.app.main.arrangement.current, rig.app.main.host.shown) == before


async def test_it_is_offered_before_there_is_a_text(rig: Rig) -> None:
    assert "W a tour of the panels" in rig.screen_text()
    await rig.press("W", "space", "escape")
    await rig.ready(steps=0)
    assert "W for a tour" in rig.screen_text()
