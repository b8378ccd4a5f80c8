"""Gradients on the screen: questions, colours, the list, methods, what is refused, a replay, a real model."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.protocol import Check, Floats, Loading, ReadGradients
from engine.recording import Entry, save_as
from engine.settings import LoadSettings
from inspector import scales
from inspector.documents.gradients import largest, percent_off, shares_of
from inspector.views.gradients import GradientsView
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig
from tests.inspector.views.gradients.reads import FACTS, read

KIND = "ReadGradients"


def asked(rig: Rig) -> ReadGradients:
    """The last question."""
    command = rig.engine.last(ReadGradients)
    assert isinstance(command, ReadGradients)
    return command


async def answer(rig: Rig, **how: object) -> None:
    """Answer the last question."""
    await rig.push([read(asked(rig), **how)])  # type: ignore[arg-type]
    await rig.end(KIND)


async def opened(rig: Rig, **how: object) -> GradientsView:
    await rig.ready()
    await rig.do("gradients")
    assert isinstance(rig.app.top, GradientsView)
    await answer(rig, **how)
    return rig.app.top


@pytest.mark.wide(1)
@pytest.mark.screen(size=(98, 40))
async def test_the_text_has_shares_and_the_list_begins_with_the_largest(rig: Rig) -> None:
    screen = await opened(rig)
    assert asked(rig).method == "input"
    assert (asked(rig).node, asked(rig).token) == (rig.timeline.before, rig.timeline.taken)
    found = screen.answer
    assert found is not None, rig.screen_text()
    shares = shares_of(found, screen.path)
    assert [each.value for each in shares] == [0.5, -1.5, 3.0]
    assert [each.share for each in shares] == pytest.approx([0.1, -0.3, 0.6])
    text = rig.screen_text()
    assert "60" in text
    assert "−30" in text
    lines = rig.answer_text().splitlines()
    (first, second, third) = (next(at for at, line in enumerate(lines) if value in line)
                              for value in ("+60.0 %", "−30.0 %", "+10.0 %"))  # fmt: skip
    assert first < second < third
    assert "how fast the logit rises" in rig.said()
    assert "+ raises, − lowers the difference" in rig.screen_text()
    assert (
        "The logits add up to +2.00. With gradient × input they need not equal the logit difference"
        in rig.said()
    )


@pytest.mark.screen(size=(98, 40))
async def test_the_other_method_has_a_baseline_steps_and_a_residual(rig: Rig) -> None:
    await opened(rig)
    await rig.press("m")
    assert (asked(rig).method, asked(rig).baseline, asked(rig).steps) == ("integrated", "mean", 32)
    await answer(rig)
    said = rig.said()
    assert "Integrated gradients from the mean of all tokens, 96 steps." in said
    assert "0.20 % missing (32 steps 3.00 % too much)" in said
    await rig.press("b")
    assert asked(rig).baseline == "first"
    await answer(rig)
    assert "Integrated gradients from “Tom” everywhere" in rig.said(), "the token as it is"
    await rig.press("+")
    assert asked(rig).steps == 64
    await answer(rig)
    await rig.press("m")
    await rig.press("b")
    assert "has no baseline" in rig.screen_text()


@pytest.mark.screen(size=(98, 40))
async def test_experts_can_be_held_where_there_are_some(rig: Rig) -> None:
    await opened(rig)
    await rig.press("x")
    assert "Experts can be held only" in rig.screen_text()
    await rig.press("m")
    failed = replace(FACTS, checks=(Check("complete", 0.4, 0.05, "after 288 steps"),))
    await answer(rig, chooses=True, facts=failed)
    text = rig.said()
    assert "off by 0.4, where 0.05 is allowed" in text
    assert "x holds the experts" in text
    await rig.press("x")
    assert asked(rig).held_experts
    await answer(rig, chooses=True)
    assert "with the text's experts held, which is another question" in rig.said()


async def test_one_token_or_two_and_others(rig: Rig) -> None:
    await opened(rig)
    first = asked(rig)
    await rig.press("d")
    assert asked(rig).other is None
    await answer(rig)
    await rig.press("t")
    assert asked(rig).token != first.token
    await answer(rig)
    await rig.press("c")
    assert asked(rig).other is not None


@pytest.mark.screen(size=(80, 24))
@pytest.mark.parametrize("text", ["\x1b[31mred\x07", "[bold]x", "家" * 400, "\n\n"])
async def test_hostile_texts_and_numbers_are_shown_as_text(rig: Rig, text: str) -> None:
    screen = await opened(rig, texts=(text, text), values=(float("nan"), float("inf"), -1e30), notes=(text,))
    assert "\x1b[31m" not in rig.screen_text()
    found = screen.answer
    assert found is not None
    lies = replace(found, first=10**9, shares=Floats((10**9,), b"x"), tried=((3, float("nan")),))
    assert shares_of(lies, screen.path) == []
    assert shares_of(replace(found, first=-5), screen.path)[0].place == 0
    assert shares_of(replace(found, shares=Floats((2, 2), b"0" * 16)), screen.path) == []


def test_residuals_in_words() -> None:
    assert percent_off(0.0123) == "1.23 % too much"
    assert percent_off(-0.5) == "50.00 % missing"
    assert percent_off(float("nan")) == "not a number"
    assert percent_off(float("inf")) == "a share of 0 can't be given"
    assert largest([]) == []


@pytest.mark.parametrize("dark", [True, False])
def test_what_is_below_zero_has_colours_of_its_own_that_can_be_read(dark: bool) -> None:
    for step in range(1, 6):
        ink, ground = scales.opposed_heat(-step, dark)
        assert scales.contrast(ink, ground) >= 4.5
        assert ground != scales.HEAT[step, dark][1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording with integrated gradients after the last step, of its token and a rare one."""
    session = Session()
    session.load()
    session.open()
    session.steps(4)
    node = session.node
    distribution = session.tips[node]
    rare = [each.id for each in distribution.candidates if each.id != distribution.picked][3]
    kept = [record for record in session.records if not isinstance(record, Loading)]
    made = read(ReadGradients(node, distribution.picked, rare, "integrated"))
    entries = [Entry(LoadSettings("pocket"), 0.0), *(Entry(record, 0.1) for record in [*kept, made])]
    save_as(tmp_path / "a.trace", entries, "test 1")
    return tmp_path / "a.trace"


@pytest.mark.recorded(size=(98, 40))
async def test_a_replay_shows_what_was_asked(replay: Rig) -> None:
    await replay.press("3", "g")
    assert "+60.0 %" in replay.screen_text()
    assert "from the mean of all tokens, 96 steps" in replay.said()
    assert replay.engine.sent == []
