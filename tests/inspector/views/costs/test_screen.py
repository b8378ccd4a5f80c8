"""What a step costs, on the screen: its pages, what each asks for, stopping, and failures."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from engine.protocol import (
    Failure,
    KVCompared,
    KVCost,
    MeasureRoofline,
    Measuring,
    Prefill,
    Profile,
    Profiled,
    ProfilePart,
    RooflineMeasured,
    Work,
)
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.views.costs import CostsView
from tests.inspector.rig import Rig, idle

PARTS = (
    ProfilePart("model.embed", "embedding", None, 0.5),
    *(
        ProfilePart(f"model.layers.{layer}.{name}", role, layer, ms)
        for layer in range(3)
        for name, role, ms in (("attn", "attention", 1.0 + layer), ("mlp", "mlp", 2.0))
    ),
    ProfilePart("model.head", "head", None, 1.0),
    ProfilePart("sampling", "sampling", None, 0.25),
    ProfilePart("[odd]", "other", None, 0.125),
)
PROFILED = Profiled(1, 11, 5, PARTS, 15.0, 10.0, "Fenced, the mean of five.")
ROOFLINE = RooflineMeasured(
    1, 10.0, "reading an array", 50.0, "two matrices", Work(1, 12, 14_000_000, 80_000, 15_000_000, 2.0, 2.1),
    Work(11, 11, 14_000_000, 80_000, 160_000_000, 4.0, 4.5), 7_000_000, "By formula.", ("Experts are guessed.",),
)  # fmt: skip
OWN = KVCost(16, None, 1000, 1000, 2000, 0.0, 0.0, True, 1.0)
QUARTER = KVCost(4, 64, 280, 280, 512, 0.875, 0.125, False, 1.0, note="One cache stays as it is.")
REFUSED = KVCost(8, 64, 0, 0, 0, 0.0, 0.0, False, 0.0, refused="Heads of 24 can't be cut into groups of 64.")


def compared(*costs: KVCost, last: bool = True) -> KVCompared:
    return KVCompared(1, 11, costs, "tokens x bytes", last)


async def opened(rig: Rig, page: str = "profile") -> CostsView:
    await rig.ready()
    await rig.do(page)
    assert isinstance(rig.app.top, CostsView)
    return rig.app.top


async def test_the_parts_stand_against_the_unfenced_step(rig: Rig) -> None:
    await opened(rig)
    assert rig.engine.names == ["Profile", "MeasureRoofline"]
    assert "Measuring, on a copy" in rig.screen_text()
    await rig.push([Measuring("Profile", 2, 7, "one step")])
    assert "one step 2/7" in rig.screen_text()
    await rig.push([PROFILED])
    await rig.end("Profile")
    text = rig.said()
    assert "whole step 10.0 ms part by part 15.0 ms measuring adds 50 %" in text
    line = next(line for line in rig.screen_text().splitlines() if "attention" in line)
    assert "6.000 ms" in line
    assert "40.00 %" in line
    assert "[odd]" in text
    assert "Fenced, the mean of five." in text
    await rig.push([ROOFLINE])
    await rig.end("MeasureRoofline")
    text = rig.said()
    assert (
        "13.4 MiB of weights and 78.1 KiB of KV (the forward pass alone, best of its repeats: 2.0 ms)" in text
    )
    assert "7.04 GB/s of the 10 that memory gives" in text
    assert "Experts are guessed." in text, "what is said of the roof stands beside its figures, too"
    assert "● decode" in text
    assert "r again" in rig.screen_text()


async def test_the_pages_stand_without_keys_of_tabs(rig: Rig) -> None:
    await opened(rig)
    assert rig.answer_text().splitlines()[0].split() == ["Parts", "of", "a", "step", "Layers", "Roofline"]


@pytest.mark.parametrize(("page", "panel"), [("profile", "timing"), ("compare_kv", "kv")])
async def test_a_page_is_one_of_its_panel_and_escape_goes_back_there(rig: Rig, page: str, panel: str) -> None:
    await opened(rig, page)
    assert (rig.app.main.tab, rig.app.main.table.on_row(rig.app.main.view)) == ("5", panel)
    await rig.press("escape")
    assert rig.app.top is rig.app.main
    assert (rig.app.main.tab, rig.app.main.view) == ("5", panel)


async def test_one_page_opens_over_the_other(rig: Rig) -> None:
    await opened(rig)
    await rig.press("Q")
    assert (rig.app.main.view, rig.engine.names[-1]) == ("compare_kv", "CompareKV")
    await rig.press("right")
    assert "There is one page. P takes a step apart" in rig.screen_text()
    await rig.press("P")
    assert rig.app.main.view == "profile"
    await rig.press("t")
    assert (rig.app.top, rig.app.main.view) == (rig.app.main, "timing")


async def test_a_speed_above_the_machine_s_says_why(rig: Rig) -> None:
    await opened(rig)
    await rig.push([PROFILED, replace(ROOFLINE, bandwidth_gbs=2.0)])
    assert (
        "7.04 GB/s, more than memory gives (2): what it reads stays in the processor's caches" in rig.said()
    )
    await rig.press("right", "right")
    why = "what it reads stays in the processor's caches, or other programs slowed that measurement"
    assert f"3.5 times the roof: {why}" in rig.said()
    assert not re.search(r"[1-9]\d\d % of", rig.said())


async def test_the_layers_are_a_table(rig: Rig) -> None:
    await opened(rig)
    await rig.push([PROFILED])
    await rig.press("right")
    rows = [line.split() for line in rig.answer_text().splitlines()]
    assert any(row[1:5] == ["1", "1.000", "2.000", "3.000"] for row in rows)
    assert any(row[1:5] == ["3", "3.000", "2.000", "5.000"] for row in rows)
    assert "model.head 1.000 ms" in rig.said()


async def test_the_roofline_has_both_forwards_under_it(rig: Rig) -> None:
    await opened(rig)
    await rig.push([PROFILED, ROOFLINE])
    await rig.press("right", "right")
    text = rig.said()
    assert "● decode" in text
    assert "● prefill" in text
    assert "limited by memory" in text
    assert "limited by arithmetic" in text
    assert "Experts are guessed." in text


async def test_a_forward_far_under_the_roof_is_limited_by_neither_side_of_it(rig: Rig) -> None:
    await opened(rig)
    slow = replace(ROOFLINE.decode, ms=20.0, median_ms=22.0)
    await rig.push([PROFILED, replace(ROOFLINE, decode=slow)])
    await rig.press("right", "right")
    text = rig.said()
    assert "7 % of the roof, under the roof of memory, limited by neither" in text


def test_the_roof_is_the_lower_of_both_limits():
    assert ROOFLINE.roof(1.0) == 10.0
    assert ROOFLINE.roof(ROOFLINE.ridge) == pytest.approx(50.0)
    assert ROOFLINE.roof(100.0) == 50.0


async def test_fewer_bits_are_compared_as_they_come_and_refusals_are_sentences(rig: Rig) -> None:
    await opened(rig, "compare_kv")
    assert rig.engine.names == ["CompareKV"]
    await rig.push([compared(OWN, last=False)])
    assert "16 bits" in rig.screen_text()
    await rig.push([compared(OWN, REFUSED, QUARTER)])
    await rig.end("CompareKV")
    text = rig.screen_text()
    assert "Heads of 24 can't be cut into groups of 64." in text
    assert "One cache stays as it is." in text
    line = next(line for line in text.splitlines() if " 4 bits" in line)
    assert "280 B" in line
    assert "0.875" in line
    assert "different" in line


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (100, 30), (80, 24), (60, 20)])
async def test_no_figure_of_fewer_bits_is_cut(rig: Rig, size: tuple[int, int]) -> None:
    screen = await opened(rig, "compare_kv")
    await rig.push([compared(OWN, QUARTER)])
    await rig.end("CompareKV")
    beside = screen.area.x
    lines = [line[beside:] for line in rig.screen_text().splitlines()]
    assert not any("…" in line for line in lines)
    line = next(line for line in lines if " 4 bits" in line)
    assert "different" in line
    assert "0.875" in line


async def test_a_page_asks_once_and_r_asks_again(rig: Rig) -> None:
    await opened(rig)
    await rig.press("right", "right", "right")
    assert rig.engine.names == ["Profile", "MeasureRoofline"]
    await rig.push([PROFILED, ROOFLINE])
    for name in ("Profile", "MeasureRoofline"):
        await rig.end(name)
    await rig.press("left", "r")
    assert rig.engine.names[2:] == ["MeasureRoofline"]
    await rig.press("r")
    assert rig.engine.cancelled(rig.engine.last(MeasureRoofline))


async def test_escape_stops_and_what_is_known_stays_until_the_next_step(rig: Rig) -> None:
    await opened(rig)
    await rig.push([PROFILED])
    await rig.end("Profile")
    await rig.press("escape")
    assert rig.engine.cancelled(rig.engine.last(MeasureRoofline))
    await rig.end("MeasureRoofline", cancelled=True)
    await rig.do("profile")
    assert "attention" in rig.screen_text()
    assert rig.engine.names == ["Profile", "MeasureRoofline", "MeasureRoofline"]
    await rig.press("escape")
    await rig.push([rig.session.step()])
    await rig.do("profile")
    assert "Measuring, on a copy" in rig.screen_text()
    assert rig.engine.names.count("Profile") == 2


async def test_a_failure_stands_in_the_view_and_is_not_asked_again(rig: Rig) -> None:
    await opened(rig)
    await rig.push([Failure("Profile", "This step [can't] be taken apart.", "Take one step first.")])
    await rig.end("Profile")
    await rig.end("MeasureRoofline")
    assert "This step [can't] be taken apart." in rig.screen_text()
    assert "Take one step first." in rig.screen_text()
    await rig.press("right")
    assert rig.engine.names == ["Profile", "MeasureRoofline"]
    await rig.press("r")
    assert isinstance(rig.engine.last(Profile), Profile)
    assert rig.engine.names.count("Profile") == 2


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(60, 20), (40, 12)])
async def test_a_long_page_scrolls_at_every_size(rig: Rig, size) -> None:
    screen = await opened(rig)
    await rig.push([PROFILED, ROOFLINE, compared(OWN, REFUSED, QUARTER)])
    await rig.press("right", "right")
    assert "more lines ↓" in rig.screen_text()
    await rig.press(*["pagedown"] * 6)
    assert "By formula." in rig.screen_text()
    await rig.press("right")
    assert screen.view._top == 0
    assert "whole step" in rig.screen_text()


@pytest.mark.slow
async def test_a_real_step_is_taken_apart() -> None:
    app = InspectorApp(LoadSettings(), Settings(), Prefill("Once upon a time", False))
    async with app.run_test(size=(100, 36)) as pilot:
        await idle(pilot)
        await pilot.press("5", "P")
        await idle(pilot)
        costs = app.top
        assert isinstance(costs, CostsView)
        assert costs.job.failures == {}
        assert costs.measured.profiled is not None
        assert costs.measured.roofline is not None
        together = sum(part.ms for part in costs.measured.profiled.parts) + costs.measured.profiled.other_ms
        assert together == pytest.approx(costs.measured.profiled.fenced_ms, rel=0.05)
        await pilot.press("Q")
        await idle(pilot)
        assert costs.measured.compared is not None
        facts = app.controller.timeline.facts
        assert facts is not None
        own = {"float32": 32, "bfloat16": 16}[facts.dtype]
        assert [cost.bits for cost in costs.measured.compared.costs] == [own, 8, 4]
