"""The frame of the main screen: tabs, line of keys and layout are made anew where what they read has changed."""

from __future__ import annotations

import pytest

from inspector.widgets.actions import KeyLine
from tests.inspector.main.test_overlays import branched
from tests.inspector.rig import Rig

WALK = (
    "why", "sampler.warmer", "stop", "tree", "below", "choose", "steps", "kv", "hide", "usual_room", "earlier", "tip",
    "tab_3", "tab_5", "grammar_expects", "enlarge", "enlarge", "alone", "alone", "next_view", "view_before",
    "look_ahead", "look_ahead", "tab_6", "tab_1", "candidates",
)  # fmt: skip
"""Actions, some of which are refused where they come."""


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 16)], ids=str)
async def test_it_is_what_it_would_be_if_it_were_made_anew(rig: Rig, size: tuple[int, int]) -> None:
    await rig.pilot.resize_terminal(*size)
    await branched(rig)

    async def is_fresh() -> None:
        rig.app.main.show()
        await rig.pilot.pause()
        kept = rig.screen_text()
        rig.app.main.changed()
        await rig.pilot.pause()
        assert rig.screen_text() == kept

    for action in WALK:
        if action != "sampler.warmer" or rig.app.main.meaning("plus") is not None:
            await rig.do(action)
        await is_fresh()
        await rig.push([rig.session.step()])
        await is_fresh()


async def test_a_step_leaves_it_as_it_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.ready()
    made: list[KeyLine] = []
    monkeypatch.setattr(KeyLine, "show", lambda line: made.append(line))
    await rig.push([rig.session.step()])
    assert not made
    await rig.press("right", "left", "left")
    assert not made
    await rig.do("tree")
    assert made


async def test_a_tool_hears_of_a_step_while_its_panel_is_on_screen(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.ready()
    heard: list[bool] = []
    monkeypatch.setattr(rig.app.main.actions["tree"], "show", lambda: heard.append(True))
    await rig.push([rig.session.step()])
    assert not heard
    await rig.do("tree")
    heard.clear()
    await rig.push([rig.session.step()])
    assert heard


async def test_a_tool_out_of_sight_hears_of_the_session_and_of_no_dialog(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.ready()
    heard: list[bool] = []
    monkeypatch.setattr(rig.app.main.actions["tree"], "show", lambda: heard.append(True))
    await rig.do("sampling")
    await rig.press("escape")
    assert not heard
    await rig.push([rig.session.move(min(rig.session.tips))])  # another path
    assert heard


async def test_the_line_of_keys_is_made_anew_once_the_dialog_over_it_has_gone(rig: Rig) -> None:
    await rig.ready()
    line = rig.app.main.query_one(KeyLine)
    before = line.render()
    await rig.do("sampling")
    assert line.render() == before
    await rig.press("escape")
    await rig.do("tree")
    assert line.render() != before
