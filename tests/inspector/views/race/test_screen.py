"""The race on the screen: start, pause, length, failures, and what is told of the steps."""

from __future__ import annotations

import asyncio
import re

import pytest
from msgspec.structs import replace

from engine.protocol import Failure, Measuring, Prefill, Race, RaceEnded, RaceOpened, RaceStep
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.documents.race import verdict
from inspector.scales import milliseconds
from inspector.views.race import RaceView, columns
from tests.inspector.rig import Rig

HOW = "Each step is one forward, fenced."


def step(tokens: int, first: int = 16, equal: bool = True) -> RaceStep:
    """A step that takes 5 ms with the cache, and half a millisecond a token without it."""
    done = range(first + 1, tokens + 1)
    return RaceStep(
        tokens=tokens, id=7, text=" [b]x", cached_ms=5.0, uncached_ms=tokens / 2, cached_total_ms=5.0 * len(done),
        uncached_total_ms=sum(done) / 2, cached_pick=7, uncached_pick=7 if equal else 8,
        largest_difference=0.0 if equal else 0.5, kv_bytes=tokens * 4096, passed_bytes=tokens * 4096,
    )  # fmt: skip


def steps(first: int, last: int) -> list[RaceStep]:
    return [step(tokens, first) for tokens in range(first + 1, last + 1)]


def opened(rig: Rig, first: int = 16, last: int = 128) -> RaceOpened:
    return RaceOpened(rig.timeline.tip, first, last, 11, HOW)


async def began(rig: Rig) -> RaceView:
    await rig.ready()
    await rig.press("z")
    assert isinstance(rig.app.top, RaceView)
    return rig.app.top


def racing(rig: Rig) -> Race:
    command = rig.engine.last(Race)
    assert isinstance(command, Race)
    return command


async def test_it_says_what_it_is_before_it_starts(rig: Rig) -> None:
    await began(rig)
    assert rig.engine.sent == []
    text = rig.screen_text()
    assert "The same tokens twice, with the KV cache and without it" in rig.said()
    assert "Press space to race this text to 128 tokens" in rig.said()
    assert "─ With ─" not in text


@pytest.mark.screen(size=(60, 20))
async def test_narrow_lanes_keep_their_figures(rig: Rig) -> None:
    await began(rig)
    await rig.press("space")
    await rig.push([opened(rig), *steps(16, 64)])
    text = rig.screen_text()
    assert "5.0 ms · 240 ms in all" in text
    assert "64 tokens, 256 KiB dropped" in text
    assert "1 token, 256 KiB kept" in text


async def test_both_lanes_grow_and_the_factor_is_told(rig: Rig) -> None:
    await began(rig)
    await rig.press("space")
    assert (racing(rig).first, racing(rig).last) == (16, 128)
    await rig.push([Measuring("Race", 0, 16, "warm-up")])
    assert "Getting ready: warm-up 0/16" in rig.screen_text()
    await rig.push([opened(rig), *steps(16, 64)])
    text = rig.screen_text()
    assert "5.0 ms a step   240 ms so far" in text
    assert "64 tokens a step, 256 KiB dropped" in text
    assert "1 token a step, 256 KiB kept" in text
    assert "64/128 tokens" in text
    assert "[b]x" in text
    await rig.push([*steps(16, 128)[48:], RaceEnded(112, 1.0, 2.0, (), 0.0)])
    await rig.end("Race")
    assert "128 tokens reached" in rig.screen_text()
    assert "all 112 the same, and the logits bit for bit" in rig.answer_words()
    assert HOW in rig.screen_text()


@pytest.mark.parametrize("first", [16, 1], ids=["slower without", "faster without"])
async def test_the_bars_are_as_long_as_the_sums(rig: Rig, first: int) -> None:
    """240 ms with the cache, and without it 972 ms, or a tenth of that; the longer one has all the room."""
    await began(rig)
    await rig.press("space")
    made = steps(16, 64)
    if first == 1:
        made = [replace(each, uncached_total_ms=each.uncached_total_ms / 10) for each in made]
    await rig.push([opened(rig), *made])
    found = re.findall(r"│ (with|without) +([█▉▊▋▌▍▎▏]+) (\S+ \S+)", rig.screen_text())
    eighths = " ▏▎▍▌▋▊▉█"
    bars = {name: sum(map(eighths.index, cells)) / 8 for name, cells, _ in found}
    sums = {"with": made[-1].cached_total_ms, "without": made[-1].uncached_total_ms}
    assert {name: said for name, _, said in found} == {
        name: milliseconds(total) for name, total in sums.items()
    }
    for name, total in sums.items():
        assert bars[name] == pytest.approx(max(bars.values()) * total / max(sums.values()), abs=1 / 8)
    assert max(bars.values()) > 30  # of the 58 cells of the panel


async def test_a_pause_goes_on_where_it_was_and_the_sums_with_it(rig: Rig) -> None:
    screen = await began(rig)
    await rig.press("space")
    first = racing(rig)
    await rig.push([opened(rig), *steps(16, 30)])
    await rig.press("r")
    assert rig.engine.cancelled(first)
    await rig.end("Race", cancelled=True)
    assert "Paused at 30 of 128 tokens" in rig.screen_text()
    await rig.press("space")
    assert (racing(rig).first, racing(rig).last) == (30, 128)
    await rig.push([opened(rig, 30), *steps(30, 32)])
    assert screen.steps[-1].cached_total_ms == pytest.approx(16 * 5.0)
    assert screen.steps[-1].uncached_total_ms == pytest.approx(sum(range(17, 33)) / 2)
    assert "16 to 128 tokens" in rig.screen_text()


async def test_the_length_stays_within_the_window_and_beyond_what_was_passed(rig: Rig) -> None:
    screen = await began(rig)
    await rig.press(*["right"] * 9)
    assert screen.last == 512
    await rig.press(*["left"] * 9)
    assert screen.last == 32
    await rig.press("space")
    await rig.push([opened(rig, 16, 32), *steps(16, 32)])
    await rig.press("right")
    assert screen.last == 32  # not while it runs
    await rig.end("Race")
    assert "Press space to race again, after → to more" in rig.screen_text()
    await rig.press("right", "left", "right", "space")
    assert (racing(rig).first, racing(rig).last) == (32, 64)


async def test_one_that_is_over_starts_again_and_n_begins_anew(rig: Rig) -> None:
    screen = await began(rig)
    await rig.press("left", "left", "space")
    await rig.push([opened(rig, 16, 32), *steps(16, 32)])
    await rig.end("Race")
    await rig.press("space")
    assert (racing(rig).first, racing(rig).last) == (16, 32)
    assert screen.steps == []
    await rig.push([opened(rig, 16, 32), *steps(16, 20)])
    await rig.press("n")
    assert rig.engine.cancelled(racing(rig))
    assert screen.steps == []
    await rig.push([step(21)])  # was on its way
    assert screen.steps == []


async def test_escape_cancels_and_what_was_measured_is_there_again_for_the_same_text(rig: Rig) -> None:
    await began(rig)
    await rig.press("space")
    await rig.push([opened(rig), *steps(16, 20)])
    await rig.press("escape")
    assert rig.engine.cancelled(racing(rig))
    await rig.end("Race", cancelled=True)
    await rig.press("z")
    assert "Paused at 20 of 128" in rig.screen_text()
    await rig.press("escape")
    await rig.push([rig.session.step()])
    await rig.press("z")
    assert "Press space to race this text" in rig.screen_text()


async def test_a_failure_stands_in_the_view(rig: Rig) -> None:
    await began(rig)
    await rig.press("space")
    await rig.push([Failure("Race", "A race [can't] go there.", "End earlier.")])
    await rig.end("Race")
    assert "A race [can't] go there. End earlier." in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(80, 24), (80, 13), (60, 20), (40, 12)])
async def test_every_size_has_both_lanes_and_the_sums(rig: Rig, size) -> None:
    await began(rig)
    await rig.press("space")
    await rig.push([opened(rig), *steps(16, 40)])
    text = rig.screen_text()
    assert "─ With" in text
    assert "─ Without" in text
    assert re.search(r"│ [▁-█]+ *│", text) or size == (40, 12), "the times of the steps"
    assert text.count("120 ms") == (1 if size[1] < 20 else 2)  # in the lane, and with room among the sums
    assert "times faster" in text


def test_other_tokens_are_told():
    told = dict(verdict([step(17), step(18, equal=False), step(19)]))
    assert told["tokens"] == "1 of 3 differ, first after 18 tokens; the logits differ by 0.5 at most"


def test_a_chart_grows_with_the_steps():
    assert len(columns([1.0] * 10, 100, 50)) == 5
    assert len(columns([1.0] * 100, 100, 50)) == 50
    assert columns([1.0, 2.0], 2, 4) == [1.0, 1.0, 2.0, 2.0]
    assert len(columns([1.0], 1000, 50)) == 1


@pytest.mark.slow
async def test_a_real_race_reaches_its_length_with_equal_tokens() -> None:
    app = InspectorApp(LoadSettings(), Settings(), Prefill("Once upon a time", False))
    async with app.run_test(size=(100, 30)) as pilot:
        async with asyncio.timeout(60):
            while not app.controller.timeline.prompts.prefilled or app.controller.client.outstanding:
                await asyncio.sleep(0.05)
        await pilot.press("5", "z", "left", "left", "space")
        racing = app.top
        assert isinstance(racing, RaceView)
        for _ in range(1200):
            await asyncio.sleep(0.05)
            if racing.over and not racing.job.running:
                break
        assert racing.tokens == 32
        assert all(each.equal for each in racing.steps)
