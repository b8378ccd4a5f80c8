"""A training on the screen: what keys ask the engine for, what is shown of its records, and the recorded one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.protocol import (
    BeginTraining,
    CheckpointSaved,
    Failure,
    Load,
    NextToken,
    Record,
    ResumeTraining,
    SaveCheckpoint,
    Train,
    TrainedStep,
    TrainingBegun,
    TrainingLook,
)
from engine.settings import TrainingSettings
from inspector.demo import DEMONSTRATION
from inspector.state.training import TrainingSoFar, next_label, recorded
from inspector.views.training import RecordedTraining, TrainingView
from tests.inspector.rig import Rig

SIZES = pytest.mark.parametrize("size", [(120, 40), (80, 24)])
BEGUN = TrainingBegun(
    TrainingSettings(steps=400),
    "832 stories",
    0,
    455_520,
    512,
    218_351,
    11_492,
    ("embedding", "layer 0", "norm"),
    80.0,
)


def step(number: int, loss: float, held_out: float | None = None) -> TrainedStep:
    look = None
    if held_out is not None:
        candidates = (
            NextToken(7, ",", 0.61),
            NextToken(8, "\x1b[31m", 0.2),
            NextToken(9, " there", 0.1),
        )
        look = TrainingLook(held_out, candidates, f", text {number} \x1b]0;x\x07", 100.0)
    return TrainedStep(number, loss, 0.003, (0.9, 1.8, 0.1), 512 * number, 58.0, (400 - number) * 60.0, look)


async def opened(rig: Rig) -> TrainingView:
    await rig.ready()
    await rig.do("training")
    assert isinstance(rig.app.top, TrainingView)
    return rig.app.top


async def trained(rig: Rig, steps: int = 100) -> TrainingView:
    """Steps on the screen, of which every 25th was looked at, and then a pause."""
    screen = await opened(rig)
    await rig.press("r")
    await rig.push([BEGUN])
    await rig.end("BeginTraining")
    await rig.push(
        [step(n, 6.7 - n / 50, 6.8 - n / 60 if n % 25 == 0 or n == 1 else None) for n in range(1, steps + 1)]
    )
    return screen


@pytest.mark.wide(1)
@SIZES
async def test_a_stranger_is_told_what_to_press(rig: Rig, size: tuple[int, int]) -> None:
    await opened(rig)
    text = rig.screen_text()
    assert f"r trains a llama of {TrainingSettings().layers} layers" in text
    assert "space makes a single step" in text
    assert "v plays a longer training" in text
    assert "the engine does nothing else" in text
    assert rig.engine.sent == []


@pytest.mark.wide(1)
@SIZES
async def test_it_trains_and_shows_what_it_learns(rig: Rig, size: tuple[int, int]) -> None:
    await trained(rig)
    assert rig.engine.sent == [BeginTraining(TrainingSettings()), rig.engine.last(Train)]
    command = rig.engine.last(Train)
    assert isinstance(command, Train)
    assert (command.steps, command.save_every) == (TrainingSettings().steps, 200)
    assert "trained" in command.directory
    text = rig.screen_text()
    assert "Training: step 100 of 400, 58.0 ms each, about 18 s left" in text
    assert "4.79" in text  # mean of the last ten losses
    assert "5.13 held out" in text
    assert "6.24 a guess" in text
    assert "Once upon a time, text 100" in text
    await rig.press("down", *["pagedown"] * 3)
    text = rig.screen_text()
    assert "L1 " in text
    assert "1.800" in text


@pytest.mark.screen(size=(120, 40))
async def test_what_comes_next_has_a_column_for_each_look(rig: Rig) -> None:
    await trained(rig)
    chart = rig.screen_text().split("a guess")[1]
    assert re.search(r"│ +8 ", chart), "the top of the scale"
    assert re.search(r"│ +0 ", chart)
    lines = rig.screen_text().splitlines()
    head = next(line for line in lines if " step " in line and " 75 " in line)
    assert head.split("step")[1].split()[:5] == ["1", "25", "50", "75", "100"]
    row = next(line for line in lines if "61%" in line)
    assert row.count("61%") == 5
    assert "\x1b" not in rig.screen_text()
    assert "\x07" not in rig.screen_text()


async def test_a_step_is_one_step_and_r_pauses(rig: Rig) -> None:
    await opened(rig)
    await rig.press("space")
    assert rig.engine.last(Train) == Train(1, "", 200)
    await rig.push([BEGUN])
    await rig.end("BeginTraining")
    await rig.push([step(1, 6.7, 6.8)])
    await rig.end("Train")
    assert "Paused at step 1 of 400" in rig.screen_text()
    await rig.press("r")
    running = rig.engine.last(Train)
    assert rig.engine.names == ["BeginTraining", "Train", "Train"]
    await rig.press("r")
    assert rig.engine.cancelled(running)


async def test_leaving_pauses_and_coming_back_finds_it(rig: Rig) -> None:
    await trained(rig)
    await rig.press("escape")
    assert rig.app.top is rig.app.main
    assert rig.engine.cancelled(rig.engine.last(Train))
    await rig.end("Train", cancelled=True)
    await rig.do("training")
    assert "Paused at step 100 of 400" in rig.screen_text()


async def test_going_back_forgets_what_came_after(rig: Rig) -> None:
    screen = await trained(rig)
    await rig.press("b")
    assert "There is no earlier checkpoint" in rig.screen_text()
    await rig.push(
        [CheckpointSaved(50, "/trained/step-000050"), CheckpointSaved(100, "/trained/step-000100")]
    )
    await rig.end("Train", cancelled=True)
    await rig.press("b")
    assert rig.engine.last(ResumeTraining) == ResumeTraining("/trained/step-000050")
    await rig.push([replace(BEGUN, step=50)])
    await rig.end("ResumeTraining")
    assert "Paused at step 50 of 400" in rig.screen_text()
    assert [each.step for each in screen.live.steps] == [*range(1, 51)]
    assert [each.step for each in screen.live.looks] == [1, 25, 50]


async def test_what_was_trained_opens_as_a_session(rig: Rig) -> None:
    await trained(rig)
    await rig.press("o")
    assert rig.app.top is rig.app.main
    await rig.end("Train", cancelled=True)
    save = rig.engine.last(SaveCheckpoint)
    assert not rig.engine.cancelled(save)
    await rig.push([CheckpointSaved(100, "/trained/step-000100")])
    await rig.end("SaveCheckpoint")
    load = rig.engine.last(Load)
    assert isinstance(load, Load)
    assert load.settings.model == "/trained/step-000100"


async def test_a_failure_is_shown_with_what_to_do(rig: Rig) -> None:
    await opened(rig)
    await rig.press("r")
    await rig.push([Failure("BeginTraining", "No \x1b[31mroom.", "Make some.")])
    await rig.end("BeginTraining")
    await rig.end("Train")
    text = rig.screen_text()
    assert "room." in text
    assert "Make some." in text
    assert "\x1b" not in text


@pytest.mark.wide(1)
@SIZES
async def test_a_training_that_diverged_is_shown(rig: Rig, size: tuple[int, int]) -> None:
    await trained(rig, 30)
    lost = float("nan")
    look = TrainingLook(lost, (NextToken(7, ",", lost),), "", 1.0)
    await rig.push([replace(step(31, lost), norms=(lost, float("inf"), lost), look=look)])
    assert "Training: step 31 of 400" in rig.screen_text()
    assert "nan held out" in rig.screen_text()


async def test_anew_is_another_seed(rig: Rig) -> None:
    await trained(rig)
    await rig.end("Train", cancelled=True)
    await rig.press("n")
    assert "n again forgets this training of" in rig.screen_text()
    await rig.press("n", "r")
    assert rig.engine.last(BeginTraining) == BeginTraining(TrainingSettings(seed=1))


def test_bytes_that_are_no_character_are_told_apart():
    assert [next_label(NextToken(id, "�", 0.1)) for id in (153, 177)] == ["‹id 153›", "‹id 177›"]


# ---- the recorded training ----------------------------------------------------------------------


@pytest.mark.wide(1)
@SIZES
async def test_the_recorded_training_plays_without_an_engine(rig: Rig, size: tuple[int, int]) -> None:
    screen = await opened(rig)
    await rig.press("v")
    assert "Recorded: step 0 of 4,000" in rig.screen_text()
    await rig.press("space", "space")
    assert "Recorded: step 50 of 4,000" in rig.screen_text()
    await rig.press("r")
    await rig.until(lambda: screen.so_far.step > 100)
    await rig.press("r")
    assert "Recorded: step" in rig.screen_text()
    await rig.press("b")
    assert "n begins it again" in rig.screen_text()
    await rig.press("n")
    assert "step 0 of 4,000" in rig.screen_text()
    await rig.press("v")
    assert "r trains a llama" in rig.screen_text()
    assert rig.engine.sent == []


def test_the_recorded_training_shows_what_there_is_to_see() -> None:
    so_far = TrainingSoFar()
    for record in recorded():
        so_far.apply(record)
    assert so_far.over
    assert so_far.begun is not None
    assert so_far.begun.settings.texts == ()
    first, last = so_far.looks[0].look, so_far.looks[-1].look
    assert first.held_out_loss > 6
    assert last.held_out_loss < 2.3
    assert so_far.steps[-1].loss < last.held_out_loss - 0.5, "by heart, at the end"
    assert len(so_far.looks) == 81


def test_the_recording_is_small(tmp_path: Path) -> None:
    from inspector.state.training import RECORDING

    assert RECORDING.stat().st_size < 100_000


def test_records_of_something_else_change_nothing() -> None:
    so_far = TrainingSoFar()
    so_far.apply(Record())
    assert (so_far.begun, so_far.step, so_far.over) == (None, 0, False)


@pytest.fixture
def path() -> Path:
    """The recording that the application shows."""
    return DEMONSTRATION


async def test_in_a_replay_the_recorded_training_is_all_there_is(replay: Rig) -> None:
    rig = replay
    await rig.do("training")
    assert isinstance(rig.app.top, TrainingView)
    assert "Recorded: step 0 of 4,000" in rig.screen_text()
    await rig.press("space", "space")
    assert "Recorded: step 50 of 4,000" in rig.screen_text()
    await rig.press("v")
    assert "needs a live engine" in rig.screen_text()
    await rig.press("o")
    assert "There is no model to open" in rig.screen_text()


def test_going_to_a_step_shows_what_the_model_knew_then_and_no_more() -> None:
    played = RecordedTraining()
    played.go_to(100)
    assert 100 <= played.so_far.step < 200
    assert not played.so_far.over
    played.go_to(10**9)
    assert played.so_far.over
