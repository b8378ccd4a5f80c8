"""Look-ahead on the screen: when it is asked for, when it gives way, how it stands there, and taking it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.protocol import AheadLine, Ended, LookAhead, LookedAhead, Prefill, Take
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.main.panels.candidates import (
    CandidatesPanel,
    columns_behind,
    line_text,
    own_row,
)
from inspector.main.panels.text import TextPanel
from inspector.views.lookahead import tells_ahead
from tests.inspector.fakes import EOS
from tests.inspector.panels_app import find, lines, on_screen, screen, shown
from tests.inspector.rig import Rig
from tests.inspector.state.test_lookahead import switched_on
from tests.inspector.views.sampler.test_what_if_real import until

TEXT = " her friends went to the park."


def question(rig: Rig) -> LookAhead:
    """The only question that was sent since the last look; it is taken off the list."""
    (asked,) = [command for command in rig.engine.sent if isinstance(command, LookAhead)]
    rig.engine.sent.clear()
    return asked


def told(
    asked: LookAhead, tokens: int = 8, texts: Sequence[str] = (TEXT,), ended: bool = False
) -> LookedAhead:
    """The answer to a question, so many tokens far; the texts go round."""
    found = tuple(
        AheadLine(id, tuple(range(tokens)), texts[place % len(texts)], -3.0 - place, ended)
        for place, id in enumerate(asked.ids)
    )
    return LookedAhead(asked.node, found, asked.tokens, tokens == 8, 20.0)


async def answered(rig: Rig, **how: object) -> LookAhead:
    """Answer the question that was sent to its end."""
    asked = question(rig)
    await rig.push([told(asked, **how), Ended("LookAhead")])  # type: ignore[arg-type]
    return asked


def ids(rig: Rig) -> tuple[int, ...]:
    """The best candidates of the selected slot."""
    return tuple(candidate.id for candidate in rig.timeline.candidates[:5])


# ---- asking -----------------------------------------------------------------------------------


async def test_it_is_asked_once_it_is_on_and_the_status_line_says_what_the_key_did(rig: Rig) -> None:
    await rig.ready()
    assert "LookAhead" not in rig.engine.names
    await rig.press("l")
    assert question(rig) == LookAhead(rig.timeline.tip, ids(rig), 8)
    assert rig.status.startswith("Look-ahead on: L takes it, l hides it")
    await rig.press("l")
    assert rig.status == "Look-ahead off"


async def test_switching_it_off_stops_the_question_that_is_out(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    asked = question(rig)
    await rig.press("l")
    assert rig.engine.cancelled(asked)
    await rig.end("LookAhead", cancelled=True)
    assert "LookAhead" not in rig.engine.names


async def test_escape_switches_it_off_while_it_is_under_way_and_is_its_own_key_otherwise(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    await answered(rig)
    await rig.press("f", "escape")
    assert not rig.app.main.arrangement.enlarged
    assert rig.app.main.actions["lookahead"].lines.on
    await rig.press("space")
    await rig.push([rig.session.step(), Ended("TakeStep")])
    asked = question(rig)
    await rig.press("escape")
    assert rig.engine.cancelled(asked)
    assert rig.status == "Look-ahead off"
    await rig.end("LookAhead", cancelled=True)
    assert "LookAhead" not in rig.engine.names


async def test_every_step_is_followed_by_a_question_and_a_run_by_none_until_its_end(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    await answered(rig)
    await rig.press("space")
    await rig.push([rig.session.step(), Ended("TakeStep")])
    assert question(rig).node == rig.timeline.tip
    await rig.press("r")
    await rig.push([Ended("LookAhead", cancelled=True), *rig.session.steps(3)])
    assert rig.engine.names == ["Run"]
    await rig.end("Run")
    assert rig.engine.names[-1] == "LookAhead"


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("key", "sent"), [("space", "TakeStep"), ("r", "Run"), ("backspace", "MoveTo"), ("v", "Verify")]
)
async def test_a_key_that_asks_the_engine_for_something_goes_first(rig: Rig, key: str, sent: str) -> None:
    await rig.ready()
    await rig.press("l")
    asked = question(rig)
    await rig.press(key)
    assert rig.engine.cancelled(asked)
    assert rig.engine.names == [sent]


async def test_walking_away_stops_it_and_asks_where_the_person_looks_then(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    first = question(rig)
    await rig.press("left", "left")
    assert rig.engine.cancelled(first)
    assert rig.engine.names == []
    await rig.end("LookAhead", cancelled=True)
    assert question(rig) == LookAhead(rig.timeline.before, ids(rig), 8)


async def test_walking_back_shows_what_is_known_at_once(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    await answered(rig, texts=[" at the tip"])
    await rig.press("left")
    await answered(rig, texts=[" further back"])
    assert "further back" in rig.screen_text()
    await rig.press("right")
    assert "at the tip" in rig.screen_text()
    assert "further back" not in rig.screen_text()
    assert rig.engine.names == []


async def test_a_highlighted_candidate_further_down_is_asked_alone(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    await answered(rig)
    await rig.press(*["down"] * 8)
    candidate = rig.app.main.panel(CandidatesPanel).candidate
    assert candidate is not None
    asked = [command for command in rig.engine.sent if isinstance(command, LookAhead)]
    while asked[-1].ids != (candidate.id,):  # those that the highlight passed
        await rig.end("LookAhead", cancelled=True)
        asked = [command for command in rig.engine.sent if isinstance(command, LookAhead)]
    assert candidate.id not in ids(rig)


async def test_it_is_asked_in_the_prompt_too(rig: Rig) -> None:
    await rig.ready()
    await rig.press("home", "home", "right", "right", "l")
    assert question(rig).node == rig.timeline.items[1].node


@pytest.mark.screen(size=(60, 16))
async def test_nothing_is_asked_for_candidates_that_nobody_sees(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    assert rig.engine.names == []
    assert rig.status.startswith("Press c to see it")
    await rig.press("c")
    assert rig.engine.names == ["LookAhead"]


async def test_a_failure_is_told_and_not_asked_for_again(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    question(rig)
    await rig.push([rig.session.fail("There is no room.", "Shorten it.", "LookAhead"), Ended("LookAhead")])
    await rig.press("up")
    assert rig.engine.names == []


async def test_another_prompt_forgets_and_stays_switched_on(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    await answered(rig)
    rig.engine.sent.clear()
    rig.app.controller.setup.give(rig.app.controller.setup.prompt)
    assert isinstance(rig.engine.sent[-1], Prefill)
    await rig.push(rig.session.open())
    assert "her friends" not in rig.screen_text()
    assert question(rig).node == rig.timeline.tip


# ---- on screen --------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (80, 40)])
async def test_the_text_appears_token_by_token_with_the_joint_probability(
    rig: Rig, size: tuple[int, int]
) -> None:
    await rig.ready()
    await rig.press("l")
    assert "…" in rig.screen_text()
    asked = question(rig)
    await rig.push([told(asked, 1, [" her"])])
    assert "her" in rig.screen_text()
    assert "her friends" not in rig.screen_text()
    await rig.push([told(asked), Ended("LookAhead")])
    assert "her friends went to the park." in rig.screen_text()
    assert "4.98 %" in rig.screen_text()  # e to the -3
    assert "joint" in rig.screen_text()


async def test_what_the_model_writes_is_text_and_obeys_nothing(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    await answered(rig, texts=["[/nope]\x1b[31m\n\u202e[@click=app.quit]x[/]"])
    assert "[/nope]␛[31m↵‹202E›[@click" in rig.screen_text()


async def test_a_line_that_ends_says_so(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    await answered(rig, texts=[" The end."], ended=True)
    assert "The end.‹grammar complete›" in rig.screen_text(), "there is no end-of-sequence token"
    assert line_text(AheadLine(5, (6, EOS), " The end.", -3.0, True), False, (EOS,))[0] == " The end.‹end›"


async def test_what_the_engine_notes_stands_in_the_frame(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    asked = question(rig)
    answer = told(asked)
    note = "3 tokens of the path went through the model again."
    await rig.push([LookedAhead(asked.node, answer.lines, 8, True, 20.0, note), Ended("LookAhead")])
    assert note in rig.screen_text()


async def test_a_record_of_it_repaints_the_candidates_alone(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    drawn: list[str] = []
    rig.app.main.panel(TextPanel).show = lambda timeline: drawn.append("text")  # type: ignore[method-assign]
    await answered(rig)
    assert drawn == []
    await rig.push([rig.session.step()])
    assert drawn


def test_only_its_own_records_are_its_own():
    asked = LookAhead(1, (2,), 8)
    assert tells_ahead(told(asked))
    assert tells_ahead(Ended("LookAhead", cancelled=True))
    assert not tells_ahead(Ended("TakeStep"))


@on_screen
async def test_a_click_on_a_line_is_a_click_on_its_candidate() -> None:
    from tests.inspector.fakes import session

    async with shown(CandidatesPanel(), (60, 24)) as (panel, pilot):
        timeline = session(3).timeline()
        panel.ahead = switched_on()
        second = timeline.candidates[1]
        line = AheadLine(second.id, (1, 2), " under the second one", -2.0, False)
        panel.ahead.receive(LookedAhead(timeline.before, (line,), 8, True, 1.0))
        panel.show(timeline)
        await pilot.pause()
        await pilot.click(offset=find(pilot, "under the second one"))
        assert panel.candidate == second


@pytest.mark.parametrize("size", [(60, 24), (60, 12), (40, 10), (30, 24)])
@on_screen
async def test_the_highlighted_row_is_in_view_and_no_row_is_too_wide(size: tuple[int, int]) -> None:
    from rich.cells import cell_len

    from tests.inspector.fakes import Session

    made = Session(count=30)
    made.load()
    made.open()
    async with shown(CandidatesPanel(), size) as (panel, pilot):
        timeline = made.timeline()
        panel.ahead = switched_on()
        known = tuple(AheadLine(each.id, (1,) * 8, TEXT * 3, -9.0, False) for each in timeline.candidates)
        panel.ahead.receive(LookedAhead(timeline.before, known, 8, True, 1.0))
        panel.show(timeline)
        for step in (1, 1, 3, 1, 9, 15, -1, -9, -1, -19):
            panel.move(step)
            await pilot.pause()
            assert any("▌" in row for row in lines(pilot)[1:-1]), screen(pilot)
            assert all(cell_len(row) <= size[0] for row in lines(pilot))


@pytest.mark.parametrize(("height", "below"), [(9, 0), (17, 1)])
@on_screen
async def test_a_low_panel_has_the_lines_behind_the_tokens_and_a_tall_one_under_them(
    height: int, below: int
) -> None:
    from tests.inspector.fakes import session

    async with shown(CandidatesPanel(), (60, height)) as (panel, pilot):
        timeline = session(3).timeline()
        panel.ahead = switched_on()
        first = timeline.candidates[0]
        line = AheadLine(first.id, (1, 2), " and so on", -2.0, False)
        panel.ahead.receive(LookedAhead(timeline.before, (line,), 8, True, 1.0))
        panel.show(timeline)
        await pilot.pause()
        assert find(pilot, "and so on")[1] == find(pilot, f"␣{first.text.strip()}")[1] + below
        panel.ahead.switch()
        panel.show(timeline)
        await pilot.pause()
        assert "and so on" not in screen(pilot)


@pytest.mark.parametrize(
    ("width", "kept"),
    [(120, "joint sampler rank id"), (76, "joint sampler"), (52, "joint"), (44, "joint"), (30, "")],
)
def test_the_text_has_room_first(width: int, kept: str) -> None:
    fit = columns_behind(width, True)
    assert " ".join(fit.numbers) == kept
    assert fit.token >= min(23, width - 12)


def test_spaces_before_a_line_of_its_own_are_seen():
    assert own_row("  and") == "␣␣and"
    assert own_row("ly.") == "ly."
    assert line_text(None, True)[0] == "…"
    assert line_text(None, False)[0] == ""


# ---- taking it --------------------------------------------------------------------------------


async def test_the_highlighted_line_is_taken_and_followed(rig: Rig) -> None:
    await rig.ready()
    await rig.press("left", "left", "l")
    await answered(rig)
    node = rig.timeline.before
    await rig.press("down")
    candidate = rig.app.main.panel(CandidatesPanel).candidate
    assert candidate is not None
    await rig.press("L")
    assert rig.engine.last(Take) == Take(node, (candidate.id, *range(8)))
    await rig.push(rig.session.choose(node, candidate.id))
    assert rig.timeline.following
    await rig.press("left")
    await rig.push(rig.session.steps(1))
    assert not rig.timeline.following  # whoever looks elsewhere meanwhile is let be


async def test_as_much_is_taken_as_is_there(rig: Rig) -> None:
    await rig.ready()
    await rig.press("l")
    asked = question(rig)
    await rig.push([told(asked, 3)])
    await rig.press("L")
    assert rig.engine.cancelled(asked)
    taken = rig.engine.last(Take)
    assert isinstance(taken, Take)
    assert len(taken.ids) == 4


async def test_where_nothing_is_known_it_says_what_to_press(rig: Rig) -> None:
    await rig.ready()
    await rig.press("L")
    assert rig.status.startswith("Look-ahead is off. Press l")
    await rig.press("l", "L")
    assert rig.status.startswith("Nothing is known yet of what follows this candidate")
    assert "Take" not in rig.engine.names


async def test_on_the_real_engine_what_is_taken_is_what_stood_there() -> None:
    app = InspectorApp(LoadSettings(), Settings(temp=0.9, seed=5), Prefill("Once upon a time", False))

    async with app.run_test(size=(120, 40)) as pilot:
        controller, ahead = app.controller, app.main.actions["lookahead"].lines
        await until(lambda: controller.timeline.prompts.prefilled and not controller.client.outstanding)
        await pilot.press("l")
        await until(
            lambda: len(ahead.lines(controller.timeline.tip)) >= 5 and not controller.client.outstanding
        )
        timeline = controller.timeline
        known = dict(ahead.lines(timeline.tip))
        await pilot.press("down", "L")
        await until(lambda: len(timeline.steps) == 9)
        steps = timeline.steps
        line = known[steps[0].id]
        assert tuple(step.id for step in steps[1:]) == line.ids
        assert abs(sum(step.logprob for step in steps) - line.logprob) < 1e-4
        assert "".join(step.text for step in steps[1:]) == line.text
    assert app.closed_in_time
