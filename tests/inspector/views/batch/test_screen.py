"""A batch on the screen: prompts, steps of all lanes, one lane looked into, and what it comes to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.protocol import (
    AddLanes,
    AdvanceBatch,
    CompareBatch,
    Failure,
    LanesAdded,
    LanesJoined,
    Prefill,
    RemoveLane,
    StartBatch,
    Take,
)
from inspector.state.batch import EXAMPLES
from inspector.views.batch import BatchDialog, BatchView, laid_out, typed_prompts
from inspector.widgets.fields import SafeTextArea
from tests.inspector.rig import Rig
from tests.inspector.told_batch import BEGINNING, COMPARED, OPENED, REST, draws, step

SIZES = ((120, 40), (80, 24), (40, 12))


async def opened(rig: Rig) -> BatchView:
    await rig.ready()
    await rig.do("batch")
    assert isinstance(rig.app.top, BatchView)
    return rig.app.top


async def began(rig: Rig) -> BatchView:
    screen = await opened(rig)
    await rig.press("n")
    assert isinstance(rig.app.top, BatchDialog)
    await rig.press("ctrl+s")
    await rig.push(BEGINNING)
    await rig.end("StartBatch")
    return screen


async def test_it_says_what_it_is_and_asks_for_prompts(rig: Rig) -> None:
    await opened(rig)
    assert rig.engine.sent == []
    assert "one forward pass for all" in rig.said()
    await rig.press("n")
    assert "3 prompts" in rig.screen_text()
    await rig.press("ctrl+s")
    command = rig.engine.last(StartBatch)
    assert isinstance(command, StartBatch)
    assert (len(command.prompts), command.size, command.static, command.steps) == (3, 8, False, 0)


@pytest.mark.parametrize(("key", "asked"), [("space", ["StartBatch"]), ("r", ["StartBatch", "AdvanceBatch"])])
async def test_an_empty_batch_offers_an_example(rig: Rig, key: str, asked: list[str]) -> None:
    await opened(rig)
    assert "Press space for an example of 3 prompts" in rig.said()
    await rig.press(key)
    assert rig.engine.names == asked
    command = rig.engine.last(StartBatch)
    assert isinstance(command, StartBatch)
    assert [prompt.text for prompt in command.prompts[1:]] == [*EXAMPLES]


async def test_the_number_of_much_padding_is_not_read_as_the_prompt(rig: Rig) -> None:
    await began(rig)
    await rig.push([OPENED, LanesJoined((0, 1), (0, 14)), *BEGINNING[2:]])
    assert f"14 {'░' * 12} The" in rig.screen_text()


async def test_what_is_typed_replaces_the_examples(rig: Rig) -> None:
    await opened(rig)
    await rig.press("n", *"Hi", "enter")
    command = rig.engine.last(StartBatch)
    assert isinstance(command, StartBatch)
    assert [prompt.text for prompt in command.prompts] == ["Hi"]


async def test_a_line_gives_its_lane_settings_which_are_shown(rig: Rig) -> None:
    await opened(rig)
    await rig.press("n")
    area = rig.app.top.query_one("#batch-prompts", SafeTextArea)
    area.text = '{"prompt": "The", "temp": "x"}'
    await rig.pilot.pause()  # until the dialog counted what is typed
    await rig.press("ctrl+s")
    assert isinstance(rig.app.top, BatchDialog)
    assert "Prompt 1: temperature must be" in rig.screen_text()
    area.text = '{"prompt": "The", "temp": 0.25, "seed": 9}'
    await rig.press("ctrl+s")
    command = rig.engine.last(StartBatch)
    assert isinstance(command, StartBatch)
    (lane,) = command.prompts
    assert (lane.text, lane.settings) == (
        "The",
        replace(rig.app.controller.setup.settings, temp=0.25, seed=9),
    )
    first, *_ = OPENED.lanes
    mine = replace(first, seed=9, settings=("temperature 0.25", "stop string [b]"))
    await rig.push([replace(OPENED, lanes=(mine,)), *BEGINNING[1:4]])
    await rig.end("StartBatch")
    assert "seed 9, temperature 0.25, stop string [b]" in rig.said()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES)
async def test_lanes_step_together(rig: Rig, size: tuple[int, int]) -> None:
    await began(rig)
    await rig.press("space")
    assert rig.engine.last(AdvanceBatch) == AdvanceBatch(steps=1)
    await rig.push([step(1, 0, 1)])
    await rig.end("AdvanceBatch")
    text = rig.screen_text()
    assert "Once [b]upon" in text
    assert "░ The dog" in text
    if size[1] > 12:
        assert "36" not in text
        what = "next token" if size[0] >= 100 else "next"
        assert f"{what}: “␣time”, draw 0.250, 1.25 bits" in text
        assert "5 row-steps" in text


async def test_a_run_pauses_and_a_lane_that_ended_says_why(rig: Rig) -> None:
    await began(rig)
    await rig.press("r")
    command = rig.engine.last(AdvanceBatch)
    assert command == AdvanceBatch()
    await rig.press("r")
    assert rig.engine.cancelled(command)
    await rig.end("AdvanceBatch", cancelled=True)
    await rig.push(REST)
    text = rig.screen_text()
    assert "eos <|eos|>" in text
    assert "length" in text
    assert "All lanes have ended" in text


async def test_lanes_come_and_go_while_the_others_run(rig: Rig) -> None:
    await began(rig)
    await rig.press("r", "down", "x")
    assert rig.engine.asked[-1] == RemoveLane(1)
    await rig.press("a", "T", "o", "m", "enter")
    command = rig.engine.asked[-1]
    assert isinstance(command, AddLanes)
    assert [prompt.text for prompt in command.prompts] == ["Tom"]
    await rig.push([LanesAdded((replace(OPENED.lanes[0], lane=2, text="Tom"),))])
    assert "1 wait" in rig.screen_text()
    assert not rig.engine.cancelled(rig.engine.last(AdvanceBatch))


async def test_the_lanes_beside_their_prompts_alone(rig: Rig) -> None:
    await began(rig)
    await rig.press("c")
    assert "Run the batch to its end first" in rig.screen_text()
    await rig.push(REST)
    await rig.press("c")
    assert rig.engine.last(CompareBatch) == CompareBatch()
    await rig.push(COMPARED)
    await rig.end("CompareBatch")
    text = rig.said()
    assert "1 of 2 lanes equal" in text
    assert "1.50 times faster" in text
    await rig.press("down")
    assert "within the rounding" in rig.screen_text()


async def test_a_lane_opens_in_the_session(rig: Rig) -> None:
    screen = await began(rig)
    screen.prompts = list(screen.lane_prompts(["Once", "The own prompt"]))
    await rig.push(REST)
    await rig.press("down", "enter")
    assert rig.app.top is rig.app.main
    command = rig.engine.last(Prefill)
    assert isinstance(command, Prefill)
    assert command.text == "The own prompt"
    prefilled = rig.timeline.prompts.prefilled
    assert prefilled is not None
    await rig.push([prefilled])
    assert rig.engine.last(Take) == Take(prefilled.next.node, (10, 11))


async def test_a_lane_of_a_prompt_that_was_read_opens_without_reading_it_again(rig: Rig) -> None:
    await began(rig)
    await rig.push(REST)
    prompts = rig.timeline.prompts
    lanes = tuple(
        replace(lane, ids=tuple(each.id for each in prompts.opened.tokens)) for lane in OPENED.lanes
    )
    await rig.push([replace(OPENED, lanes=lanes), *BEGINNING[1:], *REST])
    rig.engine.sent.clear()
    await rig.press("down", "enter")
    assert rig.engine.sent == [Take(prompts.prefilled.next.node, (10, 11))]


async def test_draws_are_no_batch_of_prompts(rig: Rig) -> None:
    await rig.ready()
    await rig.push(draws(rig.timeline.tip))
    await rig.do("batch")
    text = rig.said()
    assert "draw 0" not in text
    assert "one forward pass for all" in text
    assert "n for your own" in text


async def test_a_batch_that_draws_took_the_place_of_is_shown_and_does_nothing_more(rig: Rig) -> None:
    await began(rig)
    await rig.press("escape")
    await rig.push(draws(rig.timeline.tip))
    rig.engine.sent.clear()
    await rig.do("batch")
    text = rig.screen_text()
    assert "Once [b]upon" in text
    assert "Draws took the place of this batch. n starts another batch" in text
    for key in ("space", "r", "x", "c"):
        await rig.press(key)
        assert "Draws took the place of this batch. Press n" in rig.screen_text()
    assert rig.engine.sent == []
    await rig.press("a", "ctrl+s")
    assert [type(each) for each in rig.engine.sent] == [StartBatch]


async def test_what_goes_wrong_is_told(rig: Rig) -> None:
    await opened(rig)
    await rig.press("n", "ctrl+s")
    await rig.push([Failure("StartBatch", "300 lanes at once are out of range.", "Give 1 to 256.")])
    await rig.end("StartBatch")
    assert "300 lanes at once are out of range. Give 1 to 256." in rig.screen_text()


def test_prompts_are_lines():
    assert typed_prompts("Once upon\n\n  a time \n") == ["Once upon", "a time"]


def test_a_long_text_keeps_its_end():
    from rich.style import Style

    parts = [("beginning ", Style()), ("words " * 40, Style()), ("end", Style())]
    rows = laid_out(parts, 20, 2, Style())
    assert len(rows) == 2
    told = ["".join(segment.text for segment in row) for row in rows]
    assert told[0].startswith("…")
    assert told[1].endswith("end")
    assert all(len(line) <= 20 for line in told)


def test_a_long_text_is_cut_before_a_word() -> None:
    from rich.style import Style

    words = [f"word{n}" for n in range(30)]
    rows = laid_out([(" ".join(words), Style())], 20, 2, Style())
    told = "".join(segment.text for row in rows for segment in row)
    assert told.removeprefix("…").split() == words[-len(told.split()) :]
