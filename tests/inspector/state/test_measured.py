"""What was measured is kept until something else is measured, and what no engine tells is not drawn."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from engine.protocol import KVCompared, RaceEnded, RaceOpened, Record
from inspector.state.measured import Measured
from tests.inspector.views.costs.test_screen import OWN, PROFILED, QUARTER, ROOFLINE
from tests.inspector.views.race.test_screen import HOW, steps

COMPARED = KVCompared(1, 11, (OWN, QUARTER), "x", True)


def measured(*records: Record) -> Measured:
    made = Measured()
    for record in records:
        made.apply(record)
    return made


def test_a_race_that_was_taken_up_again_is_one_and_runs_a_step_again_that_came_too_late():
    race = measured(
        RaceOpened(5, 16, 64, 9, HOW), *steps(16, 21), RaceOpened(5, 20, 128, 9, "Later."), *steps(20, 24)
    ).race
    assert race is not None
    assert [step.tokens for step in race.steps] == list(range(17, 25))
    assert race.steps[-1].cached_total_ms == 8 * 5.0
    assert (race.opened.first, race.opened.last, race.opened.how) == (16, 128, "Later.")


@pytest.mark.parametrize(
    "again", [RaceOpened(5, 16, 64, 9, HOW), RaceOpened(6, 20, 64, 9, HOW), RaceOpened(5, 30, 64, 9, HOW)]
)
def test_another_race_begins_anew(again: RaceOpened):
    race = measured(RaceOpened(5, 16, 64, 9, HOW), *steps(16, 20), again).race
    assert race is not None
    assert (race.opened, race.steps) == (again, [])


def test_steps_without_a_race_and_out_of_their_order_are_left_out():
    assert measured(*steps(16, 20), RaceEnded(4, 1.0, 2.0, (), 0.0)).race is None
    race = measured(RaceOpened(5, 16, 64, 9, HOW), *steps(17, 20)).race
    assert race is not None
    assert race.steps == []


def test_what_an_engine_told_is_sound():
    kept = (PROFILED, ROOFLINE, COMPARED, RaceOpened(5, 16, 64, 9, HOW), *steps(16, 18))
    assert all(map(Measured.sound, kept))
    assert Measured.sound(replace(COMPARED, costs=(replace(QUARTER, largest_change=math.nan),)))


@pytest.mark.parametrize(
    ("record", "changed"),
    [
        (PROFILED, {"fenced_ms": 0.0}),
        (PROFILED, {"unfenced_ms": math.nan}),
        (PROFILED, {"parts": (replace(PROFILED.parts[0], ms=-1.0),)}),
        (ROOFLINE, {"bandwidth_gbs": 0.0}),
        (ROOFLINE, {"decode": replace(ROOFLINE.decode, flops=0)}),
        (ROOFLINE, {"decode": replace(ROOFLINE.decode, ms=math.inf)}),
        (COMPARED, {"costs": (replace(OWN, used_bytes=-1),)}),
        (steps(16, 17)[0], {"cached_ms": 0.0}),
        (steps(16, 17)[0], {"uncached_ms": 1e300}),
    ],
)
def test_what_could_not_be_drawn_is_not(record: Any, changed: dict[str, Any]):
    assert not Measured.sound(replace(record, **changed))
