"""Positions on the screen: what is asked, the table of what-ifs, another offset, refusals, sizes, a real model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.protocol import (
    CaptureFacts,
    Check,
    Failure,
    Loading,
    PositionTried,
    PositionUse,
    Prefill,
    Rotation,
    TokenShift,
    TryPosition,
)
from engine.recording import Entry, save_as
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.documents.positions import OFFSETS, PositionTrial, facts_line, trials
from inspector.state.inside import KEYS
from inspector.views.positions import PositionsView
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig, idle

FACTS = CaptureFacts((Check("forward", 0.0, 0.0), Check("keys", 0.0, 0.0, "layer 0")), 9.0, 3.0, "llama")
ROTARY = PositionUse("rotary", 10, 11, (Rotation((0, 1), 64, 10000.0, 1.0, 10),), (), 0)


def told(asked: TryPosition, later: int = 0) -> PositionTried:
    tokens = (TokenShift(7, "[odd]", 0.5, 0.2, 1, 2), TokenShift(8, " new", 0.1, 0.625, 2, 1))
    return PositionTried(
        asked.node, asked.change, asked.offset, ROTARY, tokens, 0.25, 1.5, " new", later, 1, FACTS
    )


async def answer_all(rig: Rig, later: int = 0) -> list[TryPosition]:
    """Answer question after question, as each is asked once the one before has ended."""
    asked: list[TryPosition] = []
    while len(rig.engine.sent) > len(asked):
        question = rig.engine.last(TryPosition)
        assert isinstance(question, TryPosition)
        asked.append(question)
        await rig.push([told(question, later if question.change == "mask" else 0)])
        await rig.end("TryPosition")
    return asked


async def opened(rig: Rig) -> PositionsView:
    await rig.ready()
    await rig.press("Y")
    assert isinstance(rig.app.top, PositionsView)
    return rig.app.top


async def test_the_chosen_what_if_is_asked_first_and_then_all_others(rig: Rig) -> None:
    await opened(rig)
    at = len(rig.timeline.items) - 1
    asked = await answer_all(rig)
    assert [(one.change, one.offset) for one in asked] == [
        ("token", -at), ("token", -1), ("token", 1), ("token", 100), ("path", 100), ("mask", 0),
    ]  # fmt: skip
    text = rig.screen_text()
    assert f"▶ its position is 0, not {at}" in text
    assert text.count("0.250") == 6
    assert "[odd]" in text
    assert "50.00 %" in text
    assert "62.50 %" in text
    assert (
        "RoPE rotates its query and key by an angle for each position: 64 numbers of a head"
        in rig.answer_words()
    )
    assert "Verified, largest error 0 · " in text


async def test_rows_and_another_offset(rig: Rig) -> None:
    screen = await opened(rig)
    await answer_all(rig)
    await rig.press("minus")
    assert screen.offsets == [-1, 1, 100, 100], "position 0 is position 0"
    assert "have no offset to change" in rig.screen_text()
    assert "another offset" not in rig.screen_text()
    await rig.press("down", "minus")
    assert screen.offsets[0] == -2
    question = rig.engine.last(TryPosition)
    assert isinstance(question, TryPosition)
    assert (question.change, question.offset) == ("token", -2)
    await rig.push([told(question)])
    await rig.end("TryPosition")
    at = len(rig.timeline.items) - 1
    assert f"▶ its position is {at - 2}, not {at}" in rig.screen_text()
    assert "off by 2" in rig.screen_text()
    await rig.press("plus", "down", "down", "down")
    assert "So moving all positions by the same number" in rig.answer_words()
    await rig.press("down", "down")
    assert "Press ← for a token" in rig.screen_text()


async def test_an_earlier_token_sees_what_comes_after_it_without_the_mask(rig: Rig) -> None:
    screen = await opened(rig)
    screen.row = 5
    await rig.press("left", "left")
    await rig.end("TryPosition", cancelled=True)
    question = rig.engine.last(TryPosition)
    assert isinstance(question, TryPosition)
    assert (question.change, question.until) == ("mask", rig.timeline.items[-1].node)
    await rig.push([told(question, later=2)])
    await rig.end("TryPosition")
    assert "no causal mask: it sees 2 later" in rig.screen_text()
    assert "the answer leaks" in rig.screen_text()


async def test_what_a_family_has_no_positions_for_is_a_sentence(rig: Rig) -> None:
    await opened(rig)
    await rig.push([Failure("TryPosition", "mamba2 is never given a position.", "Press tab.")])
    await rig.end("TryPosition")
    assert "mamba2 is never given a position." in rig.screen_text()
    assert "Press tab." in rig.screen_text()
    assert rig.engine.names.count("TryPosition") == 2, "the next row may have an answer"
    question = rig.engine.last(TryPosition)
    assert isinstance(question, TryPosition)
    await rig.push([told(question)])
    await rig.end("TryPosition")
    assert "not here" in rig.screen_text(), "the table stands, the row that failed says so"
    assert "mamba2 is never given a position." in rig.screen_text()
    await rig.press("down")
    assert "[odd]" in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
async def test_every_size_has_all_rows(rig: Rig, size) -> None:
    await opened(rig)
    await answer_all(rig)
    text = rig.screen_text()
    assert text.count("0.250") == 6
    assert "no mask" in text or "no causal mask" in text
    await rig.press("pagedown")
    assert "62.50 %" in rig.screen_text()


def test_a_question_and_its_answer_have_one_key():
    for trial in trials(10, [-1, 1, 100, 1000], 3, 14):
        key, question = trial.question(4)
        assert KEYS[PositionTried](told(question, trial.later)) == key
        assert question.until == (14 if trial.change == "mask" else None)
    assert PositionTrial(0, "token", 0).label(False) == "its position is 0, not 0"


def test_each_way_of_being_told_has_its_words():
    table = PositionUse("learned", 3, 4, (), (), 256)
    assert "Row 3 of a learned table of 256 positions" in facts_line(table, False)
    two = PositionUse(
        "rotary", 3, 4, (Rotation((0, 2), 64, 1e6, 1.0, 3), Rotation((1,), 64, None, 0.5, 3)), (3,), 0
    )
    line = facts_line(two, False)
    assert "64 numbers of a head in 2 layers, base 1,000,000" in line
    assert "a list of frequencies, positions times 0.5; 1 layer rotates nothing" in line
    assert "its own way" in facts_line(PositionUse("own", 3, 4, (), (), 0), False)


@pytest.mark.slow
async def test_a_real_model_is_told_wrong_positions() -> None:
    app = InspectorApp(
        LoadSettings(), Settings(), Prefill("Once upon a time, there was a little girl named", False)
    )
    async with app.run_test(size=(120, 36)) as pilot:
        await idle(pilot)
        await pilot.press("3", "Y")
        screen = app.top
        assert isinstance(screen, PositionsView)
        keys = [trial.question(screen.node)[0] for trial in screen._trials()]
        async with asyncio.timeout(60):
            while not all(map(screen.answers.get, keys)):
                await pilot.pause(0.05)
        await pilot.pause()
        shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "its position is 0, not 10" in shown
        assert "␣Lily" in shown
        assert "Verified, largest " in shown


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A session in which somebody tried positions of the last token."""
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    timeline = session.timeline()
    place = len(timeline.items) - 1
    asked = [trial.question(timeline.before)[1] for trial in trials(place, OFFSETS, 0, None)]
    kept = [record for record in session.records if not isinstance(record, Loading)]
    entries = [Entry(LoadSettings("pocket"), 0.0)]
    entries += [Entry(record, number * 0.1) for number, record in enumerate([*kept, *map(told, asked)])]
    save_as(tmp_path / "a.trace", entries, "test 1")
    return tmp_path / "a.trace"


async def test_a_recording_shows_what_was_tried(replay: Rig) -> None:
    await replay.press("Y")
    await replay.until(lambda: replay.screen_text().count("0.250") == 6)
    assert not replay.engine.sent
