"""The demonstration that comes with the program: what is in it, and that it is of the bundled model as it is now."""

from __future__ import annotations

import re

import pytest

from engine import pocket
from engine.model.fingerprint import fingerprint
from engine.records import BeamEnded, Step, Verified
from engine.settings import LoadSettings, Settings
from engine.trace import Trace, load
from inspector.demo import DEMONSTRATION
from inspector.state.timeline import Timeline

LIMIT = 100_000
"""Bytes."""


@pytest.fixture(scope="module")
def trace() -> Trace:
    return load(DEMONSTRATION)


def replayed(trace: Trace) -> Timeline:
    timeline = Timeline()
    for entry in trace.entries:
        if not isinstance(entry.value, Settings | LoadSettings):
            timeline.apply(entry.value)  # type: ignore[arg-type]
    return timeline


def test_it_is_whole_and_small(trace: Trace) -> None:
    assert DEMONSTRATION.stat().st_size < LIMIT
    assert (trace.torn, trace.problems) == (0, [])
    assert re.fullmatch(r"mlx-inspector \d+\.\d+\.\d+.*", trace.header.program)


def test_its_session_has_what_is_to_be_shown(trace: Trace) -> None:
    timeline = replayed(trace)
    assert len(timeline.steps) > 60
    marks = timeline.tree.marks.of.values()
    assert len([mark for mark in marks if mark.caption]) > 8
    assert all(len(mark.caption) < 200 for mark in marks)
    assert len({mark.name for mark in marks} - {""}) == 4
    assert any(mark.bookmarked for mark in marks)
    kinds = {type(entry.value) for entry in trace.entries}
    assert {BeamEnded, Verified, Settings} <= kinds
    assert {step.origin for step in timeline.tree.nodes.values() if isinstance(step, Step)} == {
        "sampled", "chosen", "inserted", "beam",
    }  # fmt: skip


def test_the_story_ends_where_it_is_looked_at(trace: Trace) -> None:
    timeline = replayed(trace)
    assert timeline.following
    assert timeline.steps[0].index == 0
    assert {step.origin for step in timeline.steps} == {"sampled"}


def test_time_goes_on_and_leaves_room_to_read(trace: Trace) -> None:
    times = [entry.at for entry in trace.entries]
    assert times == sorted(times)
    assert times[-1] < 180
    for one, next_one in zip(trace.entries, trace.entries[1:], strict=False):
        if caption := getattr(one.value, "caption", ""):
            assert next_one.at - one.at > len(caption) / 40


def test_it_names_no_directory_of_the_machine_it_was_recorded_on(trace: Trace) -> None:
    facts = replayed(trace).facts
    assert facts is not None
    assert facts.path == "engine/pocket"
    assert not re.search(r"/(home|root|tmp|Users|work)/", repr([entry.value for entry in trace.entries]))


def test_it_is_of_the_bundled_model_so_that_it_can_be_gone_on_with(trace: Trace) -> None:
    facts = replayed(trace).facts
    assert facts is not None
    assert facts.fingerprint == fingerprint(pocket.directory()), (
        "record it anew: python -m inspector.demo.record"
    )
