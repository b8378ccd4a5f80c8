"""Drafts on the screen: what the keys ask for, a round and its outcomes, totals, the proof, and what is dim after the
text."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from engine.protocol import (
    DraftLoading,
    DraftReady,
    Ended,
    Failure,
    LoadDraft,
    RunRounds,
    SpeculationVerified,
    TakeRound,
    VerifySpeculation,
)
from engine.settings import SpeculationSettings
from inspector.views.drafts import DraftsView
from tests.inspector.rig import Rig
from tests.inspector.views.drafts.made import draft_round


async def began(rig: Rig, steps: int = 6) -> DraftsView:
    await rig.ready(steps)
    await rig.do("speculation")
    assert isinstance(rig.app.top, DraftsView)
    return rig.app.top


async def test_the_keys_ask_for_rounds_stages_and_runs_and_pause_them(rig: Rig) -> None:
    await began(rig, steps=0)
    assert "Press space for a round of this text, i for its first stage, r to run" in rig.said()
    await rig.press("space")
    command = rig.engine.last(TakeRound)
    assert command == TakeRound(SpeculationSettings(), inside=False)
    await rig.end("TakeRound")
    await rig.press("right", "right", "left", "i")
    assert rig.engine.last(TakeRound) == TakeRound(SpeculationSettings(num_draft_tokens=4), inside=True)
    await rig.end("TakeRound")
    await rig.press("r")
    running = rig.engine.last(RunRounds)
    assert running == RunRounds(SpeculationSettings(num_draft_tokens=4), plain=5)
    assert "Running. Press r to pause" in rig.screen_text()
    await rig.press("r")
    assert rig.engine.cancelled(running)


async def test_a_draft_is_loaded_when_it_is_chosen_and_a_refused_one_is_told(rig: Rig) -> None:
    await began(rig)
    await rig.press("m")
    assert rig.engine.last(LoadDraft) == LoadDraft(SpeculationSettings("self-4bit"))
    await rig.push([DraftLoading("pocket", 3, 9)])
    assert "Loading the draft: pocket 3/9" in rig.screen_text()
    await rig.push([DraftReady(SpeculationSettings("self-4bit"), 1000, 5.0)])
    await rig.end("LoadDraft")
    await rig.press("o", *"other", "enter")
    asked = rig.engine.last(LoadDraft)
    assert isinstance(asked, LoadDraft)
    assert asked.settings.draft == "model"
    words = "The draft model has other tokens: id 3 is “a” here and “b” there."
    await rig.push([Failure("LoadDraft", words, "Take another.")])
    await rig.end("LoadDraft")
    assert words in rig.screen_text()


async def test_a_draft_model_of_a_flag_is_loaded_at_the_start_and_a_missing_one_is_told(rig: Rig) -> None:
    rig.app.controller.speculation = asked = SpeculationSettings("model", "/nonexist")
    await rig.push([*rig.session.load(), Ended("Configure"), *rig.session.open()])
    assert rig.engine.last(LoadDraft) == LoadDraft(asked)
    assert rig.engine.names.index("Prefill") < rig.engine.names.index("LoadDraft")
    await rig.push([Failure("LoadDraft", "No such directory: /nonexist.", "Check the path's spelling.")])
    assert [each.title for each in rig.app._notifications] == ["Loading the draft model failed"]


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_round_is_shown_with_its_fates_its_times_and_what_it_came_to(
    rig: Rig, size: tuple[int, int]
) -> None:
    await began(rig)
    tip = rig.timeline.tip
    proposed = replace(draft_round(tip, tip, "DD", "proposed"), verify_ms=0.0, take_ms=0.0)
    await rig.push([proposed])
    assert "The drafts are proposed. Press i to verify them" in rig.screen_text()
    assert "verify 0" not in rig.screen_text()  # no time of a stage to come
    await rig.push([draft_round(tip - 2, tip)])
    text = rig.screen_text()
    assert re.search(r"token +draft +sampler  ", text)  # not the model's own probability
    assert "✗␣[b]ox ?␣and" in text  # behind the text
    for words in ("known before", "accepted", "refused", "taken instead", "not checked"):
        assert words in text
    assert "accepted: the draw's token" in text
    assert "→ ␣dog" in text
    assert "draft 10.0 ms · █ verify 5.0 ms" in text
    assert "1, 2.00 tokens a forward pass" in rig.said()
    assert "50.0 %, by place 1/1, 0/1" in text
    if size[0] == 120:
        assert "rejection" in text
        assert "80.0 %" in text
        meant = ("in force", "Leviathan 2023", "mlx-lm")
        rules = [line for line in text.splitlines() if "█" in line and line.rstrip(" │").endswith(meant)]
        assert len(rules) == 3, "what each rule is was cut in the middle of a word"
    await rig.press("c")
    assert rig.engine.last(VerifySpeculation) == VerifySpeculation(tip)
    await rig.push([SpeculationVerified(tip - 2, tip, 2, 0, None, None, "", 1e-5, 8.0)])
    await rig.end("VerifySpeculation")
    assert "Equal to plain steps: 2 tokens; logits differ by 1e-05 at most." in rig.screen_text()
    await rig.press("escape")
    assert "✗␣[b]ox ?␣and" in rig.screen_text()  # in the text panel
    await rig.press("4")
    branch = next(line for line in rig.screen_text().splitlines() if "└─◆" in line)
    assert "◆ ␣there was … · partly draft self-" in branch
    rig.resize(260, 40)  # in the tree too, where there is room
    await rig.until(
        lambda: any("└─◆" in line and "✗␣[b]ox ?␣and" in line for line in rig.screen_text().splitlines())
    )
    await rig.push([rig.session.step()])
    assert "✗␣[b]ox" not in rig.screen_text()


async def test_a_difference_is_named(rig: Rig) -> None:
    await began(rig)
    tip = rig.timeline.tip
    await rig.push(
        [draft_round(tip - 1, tip), SpeculationVerified(tip - 1, tip, 2, 0, tip, 9, " cat", 0.01, 8.0)]
    )
    assert "Differs from plain steps at token 2: they take “ cat” (id 9)" in rig.screen_text()


@pytest.mark.screen(size=(40, 12))
async def test_it_fits_where_there_is_hardly_room(rig: Rig) -> None:
    await began(rig)
    tip = rig.timeline.tip
    await rig.push([draft_round(tip - 1, tip)])
    text = rig.screen_text()
    assert "25.00 %" in text
    assert max(len(line) for line in text.splitlines()) <= 40


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (100, 30), (60, 20)])
async def test_each_token_says_what_became_of_it_and_each_part_of_the_bar_what_it_is(
    rig: Rig, size: tuple[int, int]
) -> None:
    screen = await began(rig)
    await rig.push([draft_round(rig.timeline.tip - 2, rig.timeline.tip)])
    text = "\n".join(line[screen.area.x :] for line in rig.screen_text().splitlines())
    for words in (
        "known before",
        "accepted",
        "refused",
        "░ draft 10.0 ms",
        "█ verify 5.0 ms",
        "▒ take 5.0 ms",
    ):
        assert words in text
