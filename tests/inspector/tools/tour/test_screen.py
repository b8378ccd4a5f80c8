"""The tour goes to every tab, leaves its answer in sight, and puts everything back."""

from __future__ import annotations

import pytest
from textual.widget import Widget

from inspector.keys import TABS
from inspector.tools.tour.dialog import TourDialog
from inspector.tools.tour.tool import STOPS, Stop
from tests.inspector.rig import Rig


def answer(rig: Rig, stop: Stop) -> Widget:
    """What the stop shows: a panel, or a tool's own screen."""
    main = rig.app.main
    opened = main.tool_screen
    assert (opened.TOOL if opened is not None else main.arrangement.current) == stop.panel
    return opened.query_one("#answer") if opened is not None else main.query_one(f"#{stop.panel}")


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_it_goes_from_tab_to_tab_and_back(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    await rig.do("tour")
    for place, stop in enumerate(STOPS):
        await rig.until(lambda: isinstance(rig.app.screen, TourDialog) and rig.app.screen.painted)
        assert f"Tour {place + 1}/{len(STOPS)} · {stop.heading[:12]}" in rig.screen_text()
        if stop.tab:
            assert rig.app.main.tab == stop.tab
        card, seen = rig.app.screen.query_one("#dialog").region, answer(rig, stop).region
        assert card.intersection(seen).area < seen.area
        await rig.press("right" if place % 2 else "space")
    assert rig.app.screen is rig.app.main
    await rig.do("tour")
    await rig.press("enter", "left")
    assert f"Tour 1/{len(STOPS)}" in rig.screen_text()
    await rig.press("escape")
    assert rig.app.screen is rig.app.main
    assert rig.engine.names == ["ReadModules"]  # keys of the tour are no steps


def test_it_has_a_stop_for_each_tab() -> None:
    assert [stop.tab for stop in STOPS] == ["", *TABS, ""]
    assert [stop.title for stop in STOPS if not stop.tab] == ["What has been said?", "Now you"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(120, 40)])
async def test_the_card_leaves_all_of_the_answer_in_sight_where_it_stands_beside(
    rig: Rig, size: tuple[int, int]
) -> None:
    await rig.ready()
    await rig.do("tour")
    for stop in STOPS:
        if stop.tab:
            assert not rig.app.screen.query_one("#dialog").region.overlaps(answer(rig, stop).region)
        await rig.press("space")


@pytest.mark.wide(1)
@pytest.mark.parametrize("id", [None, "kv", "tree"])
async def test_everything_is_as_it_was_before(rig: Rig, id: str | None) -> None:
    await rig.ready()
    await rig.do("timing", "hide", "candidates", "alone", *([id] if id else []))
    main = rig.app.main
    before = main.left, main.arrangement.current, main.host.shown, main.tab, main.view
    for stops in range(len(STOPS)):  # left at each of them
        await rig.do("tour")
        await rig.press(*["space"] * stops, "escape")
        assert rig.app.screen is main
        assert (main.left, main.arrangement.current, main.host.shown, main.tab, main.view) == before


@pytest.mark.slow
@pytest.mark.parametrize("size", [(120, 40)])
async def test_the_finder_leaves_it(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    await rig.do("tour")
    await rig.press(*["space"] * 3)
    await rig.from_finder("dark or light", "Dark or light")
    await rig.until(lambda: rig.app.screen is rig.app.main)
    assert rig.app.main.view == "candidates"


async def test_it_is_offered_before_there_is_a_text(rig: Rig) -> None:
    assert "6 W a tour of the tabs" in " ".join(rig.screen_text().split())
    await rig.do("tour")
    await rig.press(*["space"] * 5, "escape")
    assert rig.app.screen is rig.app.main
    await rig.ready(steps=0)
    assert "6 W for a tour" in rig.screen_text()
