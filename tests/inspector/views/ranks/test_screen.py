"""The ranks on the screen: what each holds, a measurement, and where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.protocol import Failure, MeasureRanks, Measuring, RankFacts, RanksLoaded, RanksMeasured, RankTime
from inspector.main.dialogs.facts import rows
from inspector.state.measured import Measured
from inspector.views.ranks import RanksView
from tests.inspector import fakes
from tests.inspector.rig import Rig
from tests.inspector.views.recordings.test_measured_replay import write

MIB = 2**20
FIRST = RankFacts(0, "here[b]", 11, 4, 4, 16 * MIB, 170 * MIB, 0, 0)
LOADED = RanksLoaded(
    "pipeline", (FIRST, replace(FIRST, rank=1, host="there\x1b", first_layer=0, memory_bytes=0))
)
HELD = tuple(replace(each, kv_used_bytes=20 * 1024, kv_allocated_bytes=MIB) for each in LOADED.ranks)
MEASURED = RanksMeasured(
    "pipeline", HELD, 5, 5, 20.0, 1.5, (RankTime(0, 4.0, 8.0, 0.1, 0.2), RankTime(1, 10.0, 2.0, 0.3, 0.4)), 1
)


async def opened(rig: Rig, *ranks: RanksLoaded) -> RanksView:
    await rig.push([*rig.session.load(), *ranks, *rig.session.open()])
    await rig.end("Configure")
    await rig.push(rig.session.steps(4))
    rig.engine.sent.clear()
    await rig.do("ranks")
    assert isinstance(rig.app.top, RanksView)
    return rig.app.top


async def test_without_ranks_it_says_how_to_get_some_and_stays_where_it_was(rig: Rig) -> None:
    await rig.ready()
    await rig.do("race", "ranks")
    assert rig.app.main.view == "race"
    assert "This session runs in one process. Start with --ranks 2" in rig.screen_text()
    assert "R ranks" not in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(220, 40), (120, 40), (80, 24), (40, 12)])
async def test_each_rank_is_shown_and_measured(rig: Rig, size: tuple[int, int]) -> None:
    await opened(rig, LOADED)
    text = rig.screen_text()
    assert "R ranks" in text or size[0] < 80
    assert "5-8" in text
    assert "1-4" in text
    if size[0] >= 80:
        assert "pipeline: each of 2 ranks has some layers" in text
    await rig.press("r")
    assert rig.engine.last(MeasureRanks) == MeasureRanks()
    await rig.push([Measuring("MeasureRanks", 1, 6, "ranks")])
    assert "round 2 of 6" in rig.screen_text()
    await rig.push([MEASURED])
    await rig.end("MeasureRanks")
    text = rig.screen_text()
    assert "10.0 ms" in text
    assert "8.0 ms" in text
    if size[0] >= 80:
        assert "rank 1 computes 10.0 ms, the next one 4.0 ms" in rig.answer_words()
        assert "40 KiB used of 2 MiB allocated on all ranks, after 5 tokens" in rig.answer_words()
        drawn = [row for row in rig.answer_text().splitlines() if "█" in row]
        assert len(drawn) == (0 if size[0] == 120 else 2), "there is little room beside the text"
    if size[0] >= 220:
        assert "here[b]" in text
        assert "there␛" in text
    await rig.press("r")
    await rig.push([Failure("MeasureRanks", "Rank 1 [b] is lost.", "Load again.")])
    await rig.end("MeasureRanks")
    assert "Rank 1 [b] is lost." in rig.screen_text()


async def test_the_kv_panel_and_the_facts_name_the_ranks(rig: Rig) -> None:
    await opened(rig, LOADED)
    await rig.press("escape")
    assert "over 2 ranks" in rig.screen_text()
    await rig.press("i")
    assert "2, pipeline: 0 on here[b] (layers 5 to 8, 16.0 MiB)" in rig.screen_text()
    told = dict(rows(fakes.facts(), LOADED))["ranks"]
    assert told.endswith("1 on there␛ (layers 1 to 4, 16.0 MiB)")
    await rig.press("escape")
    await rig.push([fakes.facts()])  # another model, in one process
    assert "over 2 ranks" not in rig.screen_text()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording of a measurement."""
    write(tmp_path / "a.trace", [LOADED, MEASURED])
    return tmp_path / "a.trace"


async def test_a_recording_shows_its_ranks(replay: Rig) -> None:
    await replay.do("ranks")
    assert "Ranks · recorded" in replay.screen_text()
    assert "rank 1 computes 10.0 ms" in replay.screen_text()
    await replay.press("r", "r")
    assert "needs a live model" in replay.app.top.said  # type: ignore[attr-defined]
    assert replay.engine.sent == []


def test_what_no_engine_measured_is_not_shown() -> None:
    assert Measured.sound(LOADED)
    assert Measured.sound(MEASURED)
    for wrong in (
        replace(LOADED, ranks=()), replace(MEASURED, ranks=()), replace(MEASURED, step_ms=-1.0),
        replace(MEASURED, times=(RankTime(0, float("nan"), 0.0, 0.0, 0.0),)),
    ):  # fmt: skip
        assert not Measured.sound(wrong)
