"""The screen of the beam search: on records pushed by hand, and once on the real engine and the pocket model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from engine.protocol import Ended, Failure, GoOnBeams, MoveTo, Prefill, SearchBeams
from engine.settings import BeamSettings, LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.documents.beams import settings_phrase
from inspector.main.screen import MainScreen
from inspector.state.beams import BeamHistory
from inspector.views.beams import BeamsView
from inspector.widgets.fields import SafeInput
from tests.inspector.fake_beams import search
from tests.inspector.rig import Rig


async def opened(rig: Rig, steps: int = 3) -> BeamsView:
    """Open the screen and start a search as it stands in the fields."""
    await rig.ready(steps)
    await rig.press("B")
    screen = rig.app.top
    assert isinstance(screen, BeamsView)
    return screen


async def begun(rig: Rig, count: int = 1) -> BeamsView:
    """A search that took some steps and waits."""
    screen = await opened(rig)
    await rig.press("space")
    await rig.push([*search(rig.timeline.tip)[: count + 1], Ended("SearchBeams")])
    return screen


def status(rig: Rig) -> str:
    return str(rig.app.top.screen.query_one("#status").render())


# ---- settings -------------------------------------------------------------------------------------


async def test_one_key_starts_and_another_searches_to_the_end(rig: Rig) -> None:
    await opened(rig)
    assert "Beam search follows several continuations" in rig.screen_text()
    assert status(rig) == "Space starts, r searches to the end, ⏎ changes the settings"
    await rig.press("space")
    assert rig.engine.sent == [SearchBeams(BeamSettings(), steps=1)]
    await rig.push([*search(rig.timeline.tip)[:2], Ended("SearchBeams")])
    await rig.press("n", "r")
    assert rig.engine.sent[1:] == [SearchBeams(BeamSettings())]


async def test_keys_are_typed_into_a_field_only_once_it_is_open(rig: Rig) -> None:
    screen = await opened(rig)
    width = screen.query_one("#beam-width", SafeInput)
    await rig.press("8", "9")
    assert width.value == "4"
    await rig.press("B")
    screen = rig.app.top
    assert isinstance(screen, BeamsView)
    for key, hints in (
        ("enter", ("⏎ start", "esc done")),
        ("escape", ("space start", "⏎ settings", "esc back")),
    ):
        await rig.press(key)
        assert rig.app.top is screen
        assert all(hint in rig.screen_text().splitlines()[-1] for hint in hints)
    await rig.press("1")
    assert (rig.app.main.tab, width.value) == ("1", "4")


async def test_enter_starts_with_the_settings_as_they_stand_and_takes_a_step(rig: Rig) -> None:
    screen = await opened(rig)
    await rig.press("enter", "3", "down", "9", "down", "0", ".", "5", "down", "right", "enter")
    (sent,) = rig.engine.sent
    assert sent == SearchBeams(BeamSettings(3, 0.5, True, 9), steps=1)
    await rig.push([*search(rig.timeline.tip)[:2], Ended("SearchBeams")])
    assert not screen.form.display
    assert "the" in rig.screen_text()
    assert status(rig).startswith("Step 1 of at most 6, 5.0 ms.")


async def test_settings_are_remembered_while_the_program_runs(rig: Rig) -> None:
    await opened(rig)
    await rig.press("enter", "7", "enter")
    await rig.push([*search(rig.timeline.tip), Ended("SearchBeams")])
    await rig.press("escape", "B", "n")
    assert rig.app.top.query_one("#beam-width", SafeInput).value == "7"


WRONG = (
    (("1", "1", "enter"), "width must be a whole number from 1 to 10, not 11."),
    (("x", "enter"), "width must be a whole number from 1 to 10, not 'x'."),
    (("down", "0", "enter"), "max tokens must be a whole number of at least 1, not 0."),
    (("down", "delete", "enter"), "max tokens must be a whole number of at least 1, not empty."),
    (("down", "down", "9", "9", "enter"), "length penalty must be a number from -10 to 10, not 99."),
)


async def test_a_wrong_setting_is_told_at_its_field_and_starts_nothing(rig: Rig) -> None:
    await rig.ready()
    for keys, told in WRONG:
        await rig.press("B", "enter", *keys)
        assert rig.engine.sent == []
        assert str(rig.app.top.query_one("#beam-remark").render()) == told
        wrong = [field.id for field in rig.app.screen.query(SafeInput) if field.has_class("-wrong")]
        assert [rig.app.focused.id] == wrong
        await rig.press("escape", "escape")


# ---- where it begins --------------------------------------------------------------------------------


async def test_at_an_older_token_it_begins_there_and_the_session_stays_where_it_stood(rig: Rig) -> None:
    await rig.ready(4)
    await rig.press("left", "left")
    tip, before, slot = rig.timeline.tip, rig.timeline.before, rig.timeline.slot
    await rig.press("B")
    assert "in place of “␣a”, step 3" in rig.screen_text()
    await rig.press("space")
    assert rig.engine.sent == [MoveTo(before), SearchBeams(BeamSettings(), steps=1), MoveTo(tip)]
    move = rig.session.move
    await rig.push([move(before), Ended("MoveTo"), *search(before)[:2], Ended("SearchBeams"), move(tip)])
    await rig.end("MoveTo")
    await rig.press("escape")
    assert (rig.timeline.tip, rig.timeline.slot) == (tip, slot)


async def test_a_run_is_paused_first(rig: Rig) -> None:
    await rig.ready()
    await rig.press("r")
    going = rig.engine.sent[-1]
    await rig.press("B")
    assert rig.engine.cancelled(going)


# ---- stepping, running, looking -----------------------------------------------------------------------


async def test_space_takes_a_step_and_r_runs_and_pauses(rig: Rig) -> None:
    await begun(rig)
    await rig.press("space")
    assert rig.engine.sent[-1] == GoOnBeams(steps=1)
    await rig.push([search(rig.timeline.tip)[2], Ended("GoOnBeams")])
    await rig.press("r")
    going = rig.engine.sent[-1]
    assert going == GoOnBeams()
    assert status(rig) == "Searching: step 2 of at most 6. space pauses"
    await rig.press("r")
    assert rig.engine.cancelled(going)
    assert len(rig.engine.sent) == 3


async def test_a_held_space_bar_queues_no_more_than_eight_steps(rig: Rig) -> None:
    await begun(rig)
    await rig.press(*["space"] * 20)
    assert rig.engine.names.count("GoOnBeams") == 8


async def test_esc_pauses_and_goes_back_and_b_goes_on_with_what_waits(rig: Rig) -> None:
    await begun(rig)
    await rig.press("r", "escape")
    assert rig.engine.cancelled(rig.engine.sent[-1])
    assert isinstance(rig.app.top, MainScreen)
    assert rig.status == "The beam search is paused: B continues it"
    await rig.push([search(rig.timeline.tip)[2], Ended("GoOnBeams", True)])
    await rig.press("B")
    assert status(rig).startswith("Step 2 of at most 6")
    await rig.press("space")
    assert rig.engine.sent[-1] == GoOnBeams(steps=1)


async def test_an_older_step_is_looked_at_and_space_walks_back(rig: Rig) -> None:
    await begun(rig, 5)
    await rig.press("left", "left")
    assert status(rig) == "Step 3 of 5. End returns to the last one"
    assert "Beams after step 3" in rig.screen_text()
    sent = len(rig.engine.sent)
    await rig.press("space")
    assert "Beams after step 4" in rig.screen_text()
    await rig.press("home")
    assert "Beams after step 1" in rig.screen_text()
    await rig.press("end")
    assert "Beams after step 5" in rig.screen_text()
    assert len(rig.engine.sent) == sent


async def test_the_end_shows_the_ranking_and_nothing_goes_on(rig: Rig) -> None:
    await begun(rig, 7)
    text = rig.screen_text()
    assert "Ranking" in text
    assert "Done: 6 steps, 30.0 ms, max tokens reached" in text
    assert "greedy, eos" in text
    assert "Hypothesis 1 diverges from greedy at token 5" in text
    sent = len(rig.engine.sent)
    await rig.press("space", "r")
    assert len(rig.engine.sent) == sent
    assert status(rig) == "This search is over. Press n to set up another one"


async def test_the_cursor_stays_with_its_beam_as_it_grows(rig: Rig) -> None:
    screen = await begun(rig, 2)
    await rig.press("down")
    assert screen.entry.path[-1].text == " cat"
    await rig.push(search(rig.timeline.tip)[3:4])
    assert screen.entry.path[-1].text == " sat"
    await rig.press("left")
    assert screen.entry.path[-1].text == " cat"
    await rig.press("end")
    assert screen.entry.path[-1].text == " sat"
    await rig.push(search(rig.timeline.tip)[4:])  # all that grew from it falls out
    assert screen.entry.place == 1


# ---- going there ----------------------------------------------------------------------------------------


async def test_enter_goes_to_the_highlighted_beam(rig: Rig) -> None:
    screen = await begun(rig, 2)
    await rig.press("down", "enter")
    assert isinstance(rig.app.top, MainScreen)
    assert rig.engine.sent[-1] == MoveTo(rig.timeline.tip + 3)
    assert rig.timeline.following
    assert screen.search.ended is None


async def test_a_record_that_comes_after_the_screen_was_left_is_no_harm(rig: Rig) -> None:
    screen = await begun(rig, 2)
    screen.dismiss()
    await rig.push(search(rig.timeline.tip)[3:4])
    assert rig.app._exception is None
    assert isinstance(rig.app.top, MainScreen)
    assert len(rig.timeline.of(BeamHistory).search.steps) == 3


async def test_a_click_highlights_and_a_second_one_goes(rig: Rig) -> None:
    screen = await begun(rig, 2)
    assert await rig.pilot.click("#beam-table", offset=(10, 3))
    await rig.pilot.pause()
    assert screen.entry.place == 2
    assert await rig.pilot.click("#beam-table", offset=(10, 3))
    await rig.pilot.pause()
    assert rig.engine.sent[-1] == MoveTo(rig.timeline.tip + 3)


# ---- what goes wrong --------------------------------------------------------------------------------------


async def test_a_failure_is_said_in_the_view(rig: Rig) -> None:
    await begun(rig)
    await rig.press("space")
    failed = Failure("GoOnBeams", "There is not enough memory for 4 beams at once.", "Take a smaller width.")
    await rig.push([failed, Ended("GoOnBeams")])
    assert status(rig) == (
        "The search broke off: There is not enough memory for 4 beams at once. Take a smaller width."
    )
    await rig.press("space")
    assert rig.engine.names.count("GoOnBeams") == 1
    await rig.press("n")
    assert rig.app.top.form.display


async def test_a_search_that_never_began_says_why(rig: Rig) -> None:
    await opened(rig)
    await rig.press("space")
    await rig.push(
        [Failure("SearchBeams", "The context\x1b[31m is full.", "Take back."), Ended("SearchBeams")]
    )
    assert status(rig) == "No search was begun: The context␛[31m is full. Take back."


async def test_another_prompt_forgets_the_search(rig: Rig) -> None:
    await begun(rig, 3)
    await rig.press("escape")
    await rig.push(rig.session.open())
    await rig.press("B")
    assert rig.app.top.form.display
    assert rig.timeline.of(BeamHistory).search is None


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20), (40, 12)])
async def test_every_size_shows_the_beams_and_no_line_is_too_wide(rig: Rig, size: tuple[int, int]) -> None:
    await begun(rig, 5)
    assert "#" in rig.screen_text()
    assert "−0.33" in rig.screen_text()
    await rig.press("v")
    assert "Tree of the search" in rig.screen_text() or size[1] >= 22
    await rig.press("n")
    assert "width" in rig.screen_text()


# ---- the real engine ----------------------------------------------------------------------------------------


async def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait for the engine."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the engine took too long"
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_on_the_pocket_model_the_winner_is_gone_to_and_width_one_is_greedy() -> None:
    app = InspectorApp(LoadSettings(), Settings(temp=0.0), Prefill("Once upon a time", False))

    async with app.run_test(size=(120, 40)) as pilot:
        control = app.controller
        idle = lambda: not control.client.outstanding  # noqa: E731
        await until(lambda: control.timeline.prompts.prefilled and idle())
        await pilot.press("4", "B", "enter", "4", "down", "1", "2", "enter")
        await until(lambda: control.timeline.of(BeamHistory).search is not None and idle())
        assert settings_phrase(control.timeline.of(BeamHistory).search).startswith("width 4 · max tokens 12")
        await pilot.press("space")
        await until(lambda: len(control.timeline.of(BeamHistory).search.steps) == 2 and idle())
        assert control.timeline.of(BeamHistory).search.ended is None
        await pilot.press("r")
        await until(lambda: control.timeline.of(BeamHistory).search.ended is not None and idle())
        ended = control.timeline.of(BeamHistory).search.ended
        assert len(ended.ranking) == 4

        await pilot.pause()
        await pilot.press("enter")
        await until(lambda: len(control.timeline.steps) == 12 and idle())
        assert "".join(step.text for step in control.timeline.steps) == ended.ranking[0].text
        assert {step.origin for step in control.timeline.steps} == {"beam"}
        assert control.timeline.tip == ended.ranking[0].node

        await pilot.press("1", "home", "4", "B", "n", "enter", "1", "enter")
        await until(lambda: control.timeline.of(BeamHistory).search.opened.width == 1 and idle())
        await pilot.press("r")
        await until(lambda: control.timeline.of(BeamHistory).search.ended is not None and idle())
        one = control.timeline.of(BeamHistory).search.ended
        assert [each.ids for each in one.ranking] == [one.greedy.ids] == [ended.greedy.ids]
        assert control.timeline.tip == ended.ranking[0].node
    assert app.closed_in_time


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(80, 24), (60, 20)])
async def test_where_one_of_the_views_is_in_sight_the_key_for_another_is_offered(
    rig: Rig, size: tuple[int, int]
) -> None:
    await begun(rig)
    assert "Tree of the search" not in rig.screen_text()
    assert " v view " in rig.screen_text().splitlines()[-1]


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(100, 30), (60, 20)])
async def test_the_fields_have_whole_names_beside_the_text(rig: Rig, size: tuple[int, int]) -> None:
    screen = await opened(rig)
    lines = [line[screen.area.x :] for line in rig.screen_text().splitlines()]
    assert any("length penalty" in line and "early stopping" in line for line in lines)
