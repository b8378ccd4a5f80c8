"""The frame of the main screen: tabs, line of keys and layout are made anew where what they read has changed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from rich.segment import Segment

from engine import protocol
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.header import HeaderLine
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import TextPanel
from inspector.main.panels.timing import TimingPanel
from inspector.main.status import StatusLine
from inspector.widgets.actions import KeyLine
from inspector.widgets.canvas import Canvas
from tests.inspector.main.test_overlays import branched
from tests.inspector.rig import Rig

WALK = (
    "why", "sampler.warmer", "stop", "tree", "below", "choose", "steps", "kv", "usual_room", "earlier", "tip",
    "tab_3", "tab_5", "grammar_expects", "enlarge", "enlarge", "alone", "alone", "next_view", "view_before",
    "look_ahead", "look_ahead", "tab_6", "tab_1", "candidates",
)  # fmt: skip
"""Actions, some of which are refused where they come."""
KEYS = (
    *"123456sbpwtAIgmavTh", *["escape"] * 5, "left", "right", "up", "down", "down", "tab", "space", "d", "plus",
    "minus", "end", "home", "backspace",
)  # fmt: skip
"""What opens something and leaves it, looks elsewhere, and has panels come and go."""
OF_RECORDS = (HeaderLine, TextPanel, CandidatesPanel, StepsPanel, KVPanel, TimingPanel)


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
    await rig.press("escape")
    await rig.do("tree")
    assert line.render() != before


# ---- the panels of records ----------------------------------------------------------------------


def cells(rig: Rig) -> list[list[Segment]]:
    """What stands on the screen, with its styles."""
    return [list(strip.simplify()) for strip in rig.app.screen._compositor.render_strips()]


def news(rig: Rig, draw: Random) -> Iterator[protocol.Record]:
    """What an engine may tell meanwhile, of what panels show and of what they don't."""
    told = draw.randrange(6)
    if told == 0:
        yield rig.session.step()
    elif told == 1:
        yield rig.session.move(draw.choice(list(rig.session.tips)))
    elif told == 2:
        yield protocol.Marked(draw.choice(list(rig.session.tips)), bookmarked=bool(draw.randrange(2)))
    elif told == 3:
        yield protocol.TokensFound(0, "", (), 0, 0.0)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=str)
@pytest.mark.parametrize("seed", range(4))
async def test_panels_that_are_not_asked_show_what_they_would_if_all_were_drawn_anew(
    rig: Rig, seed: int, size: tuple[int, int]
) -> None:
    await rig.pilot.resize_terminal(*size)
    await branched(rig)
    draw, did = Random(seed), list[str]()
    for _ in range(40):
        did.append(draw.choice(KEYS))
        await rig.pilot.press(did[-1])
        await rig.push(news(rig, draw))
        await rig.pilot.pause()
        focused = rig.app.screen.focused
        if focused is not None and focused.check_consume_key("x", "x"):
            continue  # a cursor blinks
        kept = cells(rig)
        rig.app.main._session = None  # as if all of the session had changed
        for panel in rig.app.main.query(Canvas):
            panel.redraw()
        rig.app.main.changed()
        await rig.pilot.pause()
        assert cells(rig) == kept, did


@pytest.fixture
def asked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The panels of records that were asked to show something."""
    found: list[str] = []
    for kind in OF_RECORDS:
        monkeypatch.setattr(
            kind,
            "show",
            lambda panel, *of, show=kind.show: (found.append(panel.id), show(panel, *of))[-1],
        )
    return found


async def test_no_panel_is_asked_for_a_dialog_or_for_what_no_panel_shows(rig: Rig, asked: list[str]) -> None:
    await branched(rig)
    asked.clear()
    await rig.do("find")
    await rig.push([protocol.TokensFound(0, "", (), 0, 0.0)])
    await rig.press("escape")
    await rig.do("modules")
    await rig.press("escape")
    assert asked == []
    await rig.push([rig.session.step()])
    assert set(asked) == {"header", "text", "candidates", "steps", "kv", "timing"}


async def test_a_panel_that_goes_is_not_drawn_any_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await branched(rig)
    await rig.do("why")
    await rig.do("candidates")
    drawn: list[str | None] = []
    for kind in (CandidatesPanel, KVPanel, TimingPanel):
        monkeypatch.setattr(
            kind, "draw", lambda panel, *of, draw=kind.draw: (drawn.append(panel.id), draw(panel, *of))[-1]
        )
    await rig.do("sampling")
    await rig.press("down", "1")
    assert drawn == [], "the dialog of the sampler lies over them"
    await rig.press("escape")
    assert {*drawn} == {"candidates", "kv", "timing"}


async def test_another_highlighted_candidate_is_for_the_candidates_alone(rig: Rig, asked: list[str]) -> None:
    await branched(rig)
    asked.clear()
    await rig.press("down")
    assert asked == ["candidates"]
    await rig.do("help")
    assert asked == ["candidates"]


async def test_the_status_line_under_a_tools_own_screen_is_right_once_that_is_left(rig: Rig) -> None:
    await branched(rig)
    status = rig.app.main.query_one(StatusLine)
    await rig.do("modules")
    before = status.left
    await rig.push([rig.session.step()])
    await rig.press("escape")
    kept = status.left
    assert kept != before
    assert kept in rig.screen_text()
    rig.app.main.changed()
    await rig.pilot.pause()
    assert status.left == kept
