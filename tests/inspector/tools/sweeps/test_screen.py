"""Sweeps on the screen: what is asked for, progress, stopping, and the tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.protocol import Failure, Figure, Machine, Measuring, Sweep, SweepPoint, Swept
from inspector.tools.sweeps.screen import SweepScreen
from inspector.tools.sweeps.tables import spread
from tests.inspector.rig import Rig

MACHINE = Machine("Linux", "a [processor]", 2, 2**34, "3.11", "0.32", "0.32", "cpu")
SWEPT = Swept(
    MACHINE, "pocket", "llama", 7_000_000, "bfloat16", None, 3,
    (
        SweepPoint("ttft", 16, (Figure("TTFT", "ms", (50.0, 60.0, 70.0)), Figure("KV used", "bytes", (65536.0,)))),
        SweepPoint("ttft", 64, (Figure("TTFT", "ms", (200.0, 240.0, 280.0)), Figure("KV used", "bytes", (262144.0,)))),
        SweepPoint("inspection", 16, (Figure("run", "times", (1.1, 1.2, 1.3)),)),
    ),
    (("ttft", "the whole prompt"), ("tpot", "nothing"), ("inspection", "in turn")), ("No batch here.",), 100.0,
)  # fmt: skip


async def opened(rig: Rig) -> SweepScreen:
    await rig.ready()
    await rig.press("y")
    assert isinstance(rig.app.screen, SweepScreen)
    return rig.app.screen


def sweep(rig: Rig) -> Sweep:
    command = rig.engine.last(Sweep)
    assert isinstance(command, Sweep)
    return command


async def test_it_waits_for_the_person_and_measures_what_is_chosen(rig: Rig) -> None:
    await opened(rig)
    assert rig.engine.sent == []
    assert "a◉ TTFT d◉ TPOT b◉ batch i◉ inspection l○ BLAS to 512" in rig.screen_text()
    assert "b  batch       throughput over batch" in rig.screen_text()
    await rig.press("b", "i", "left", "space")
    assert sweep(rig).settings.sweeps == ("ttft", "tpot")
    assert sweep(rig).settings.longest == 256
    await rig.push([Measuring("Sweep", 3, 12, "ttft at 64")])
    assert "3/12 ttft at 64" in rig.screen_text()
    await rig.press("a")
    assert rig.app.main.actions["sweeps"].control.chosen == ("ttft", "tpot")  # not while it runs


async def test_one_sweep_is_always_chosen(rig: Rig) -> None:
    screen = await opened(rig)
    await rig.press("a", "d", "b", "i")
    assert screen.control.chosen == ("inspection",)
    await rig.press("a")
    assert screen.control.chosen == ("ttft", "inspection")


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_the_tables_have_bars_and_say_how(rig: Rig, size) -> None:
    await opened(rig)
    await rig.press("space")
    await rig.push([SWEPT])
    await rig.end("Sweep")
    lines = rig.screen_text().splitlines()
    short = next(line for line in lines if "60.0 ms" in line)
    long = next(line for line in lines if "240 ms" in line)
    assert "60.0 ms (50.0-70.0)" in short
    assert 0 < short.count("█") < long.count("█")
    text = "\n".join(lines)
    assert "the whole prompt" in text
    assert "1.20 times (1.10-1.30)" in text
    assert "Time per output token" not in text
    await rig.press("pagedown")
    assert "No batch here." in rig.screen_text()
    assert "a [processor]" in rig.screen_text()


async def test_results_come_as_they_are_measured_with_the_time_that_is_left(rig: Rig) -> None:
    await opened(rig)
    await rig.press("space")
    await rig.push([Measuring("Sweep", 1, 12, "ttft at 32")])
    assert "1/12 ttft at 32" in rig.screen_text()
    assert "left" not in rig.screen_text()
    await rig.push([replace(SWEPT, last=False), Measuring("Sweep", 5, 12, "tpot at 64", 41_400.0)])
    assert "5/12 tpot at 64, about 41 s left" in rig.screen_text()
    assert "Time to first token over" in rig.screen_text()
    await rig.press("space")
    await rig.end("Sweep", cancelled=True)
    assert "Stopped: the figures are of the rounds until then." in rig.screen_text()
    await rig.press("pagedown", "pagedown")
    assert "the rounds so far, of" in rig.screen_text()


async def test_space_and_escape_stop_it(rig: Rig) -> None:
    await opened(rig)
    await rig.press("space")
    first = sweep(rig)
    await rig.press("space")
    assert rig.engine.cancelled(first)
    await rig.end("Sweep", cancelled=True)
    assert "nothing was measured to the end" in rig.screen_text()
    await rig.press("space", "escape")
    assert sweep(rig) is not first
    assert rig.engine.cancelled(sweep(rig))
    assert rig.app.screen is rig.app.main


async def test_a_failure_stands_in_the_view(rig: Rig) -> None:
    await opened(rig)
    await rig.press("space")
    await rig.push([Failure("Sweep", "This model [can't] be measured.", "Open another.")])
    await rig.end("Sweep")
    assert "This model [can't] be measured." in rig.screen_text()
    assert "Open another." in rig.screen_text()


async def test_without_a_model_there_is_nothing_to_measure(rig: Rig) -> None:
    await rig.press("y")
    assert rig.app.screen is rig.app.main
    assert "There is no model to measure yet" in rig.status


def test_a_spread_over_two_units_names_both():
    assert spread(Figure("TTFT", "ms", (93.6, 503.0, 1160.0))) == " (93.6 ms-1.16 s)"
    assert spread(Figure("TTFT", "ms", (93.6, 95.0))) == " (93.6-95.0)"
    assert spread(Figure("TTFT", "ms", (93.6,))) == ""
