"""What the panels of KV cache and time tell when they have room."""

from __future__ import annotations

import math
import re

import pytest
from msgspec.structs import replace
from rich.style import Style

from engine.protocol import NO_CANDIDATES, KVGroup, KVReading, Memory, StepTimes
from inspector.main.panels.kv import KVPanel, kv_facts, layers_counted, layers_of, projected
from inspector.main.panels.steps import StepFigures
from inspector.main.panels.timing import (
    TimingPanel,
    cause,
    footprint,
    memory_facts,
    slow_steps,
)
from inspector.scales import count
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import fact_rows
from tests.inspector.fakes import PROMPT, Session, facts, long_timeline, session
from tests.inspector.panels_app import on_screen, screen, shown

GIB = 2**30


def facts_of(timeline: Timeline) -> dict[str, str]:
    """What the KV panel tells, by name; of a name that comes twice the last."""
    assert timeline.kv is not None
    return dict(kv_facts(timeline, timeline.kv))


# ---- KV cache -------------------------------------------------------------------------------


def test_a_token_is_told_as_a_formula_that_gives_what_was_measured():
    timeline = session(11).timeline()
    assert timeline.facts is not None
    assert 2 * 8 * 4 * 32 * 2 == 4096
    timeline.facts = replace(timeline.facts, kv_bytes_per_token=4096)
    told = facts_of(timeline)
    assert told["a token"] == "2 (key and value) × 8 layers × 4 KV heads × 32 × 2 B = 4 KiB"
    assert told["grouped"].startswith("8 query heads share 4 KV heads")
    assert "8 KiB, 2 times as much" in told["grouped"]


def test_a_formula_that_does_not_hold_is_not_told():
    timeline = session(3).timeline()
    assert timeline.facts is not None
    timeline.facts = replace(timeline.facts, kv_bytes_per_token=4097)
    told = facts_of(timeline)
    assert "×" not in told["a token"]
    assert "read off the arrays" in told["a token"]
    assert "grouped" not in told


@pytest.mark.parametrize(
    ("kinds", "each", "layers"),
    [
        (("plain",) * 8, 4096, 8),
        (("rotating", "plain") * 4, 2048, 4),
        (("rotating", "plain") * 4, 4096, 8),
        (("recurrent",) * 7 + ("plain",), 512, 1),
        (("plain",) * 8, 100, None),
    ],
)
def test_only_layers_that_grow_are_counted(kinds, each, layers):
    assert layers_counted(facts(cache_kinds=kinds, kv_bytes_per_token=each)) == layers


def test_hybrids_say_which_layers_count():
    timeline = session(3).timeline()
    kinds = ("recurrent",) * 6 + ("plain",) * 2
    timeline.facts = facts(cache_kinds=kinds, kv_bytes_per_token=1024)
    assert facts_of(timeline)["a token"].endswith("= 1 KiB; 6 of 8 layers don't grow without end")
    timeline.facts = facts(cache_kinds=("plain",) * 2, kv_bytes_per_token=1024)
    assert "share these, or keep nothing" in facts_of(timeline)["a token"]


def test_windows_and_states_tell_what_fell_out_and_what_stays():
    timeline = session(3).timeline()
    groups = (
        KVGroup("rotating", (0, 1, 2, 4), 128, 128, 1280, 2048),
        KVGroup("recurrent", (3,), 0, None, 512, 512),
    )
    timeline.kv = KVReading(200, 5632, 8704, groups)
    told = facts_of(timeline)
    assert told["window"] == "layers 1-3, 5: 128 tokens at most; 72 dropped"
    assert told["state"] == "layer 4: 512 B each, whatever the length; 512 B in all"
    assert projected(timeline.kv, 10_000) == 4 * 1280 + 512


@on_screen
async def test_the_title_counts_the_tokens_that_windows_hold():
    timeline = session(3).timeline()
    timeline.kv = KVReading(200, 5632, 8704, (KVGroup("rotating", (0, 1, 2), 128, 128, 1280, 2048),))
    async with shown(KVPanel(), (60, 10)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert "KV cache · 128 of 200 tokens" in screen(pilot)


def test_numbers_of_facts_stay_and_foreign_text_is_made_visible():
    rows = fact_rows([("window", f"{count(2048)} tokens of a\u2009b\u200bc")], 60, Style(), Style())
    assert "".join(segment.text for segment in rows[0]).endswith("2,048 tokens of a‹2009›b‹200B›c")


def test_layers_are_told_in_runs():
    layers = tuple(range(0, 20, 2))
    assert layers_of(KVGroup("plain", layers, 1, None, 1, 1)) == "layers 1, 3, 5, 7, 9 and 5 runs more"


def test_the_full_window_is_set_against_weights_and_machine():
    timeline = session(11).timeline()
    assert timeline.facts is not None
    timeline.facts = replace(timeline.facts, free_bytes=2 * GIB)
    told = facts_of(timeline)
    assert told["full window"].startswith("4 MiB at 512 tokens; 28.57 %")
    assert told["memory"].startswith("2 GiB free once the weights were loaded: room for about 262 k")
    for of, where in (("gpu", "free on the GPU"), ("metal", "free of what Metal recommends")):
        timeline.facts = replace(timeline.facts, memory_of=of)
        assert facts_of(timeline)["memory"].startswith(f"2 GiB {where} once the weights")
    timeline.facts = replace(timeline.facts, free_bytes=None)
    assert "memory" not in facts_of(timeline)
    timeline.facts = replace(timeline.facts, context_window=None)
    assert "full window" not in facts_of(timeline)


def test_branches_tell_the_prefix_that_they_share():
    made = session(6)
    assert "branches" not in facts_of(made.timeline())
    parting = made.timeline().items[len(PROMPT) + 2]
    other = next(c.id for c in parting.choice.candidates if c.id != parting.id)
    made.choose(parting.parent, other)
    told = facts_of(made.timeline())["branches"]
    together, apart = len(PROMPT) + 6 + 1, 2 * (len(PROMPT) + 2) + 4 + 1
    assert told.startswith(f"2 ends, the first {len(PROMPT) + 2} tokens common to all")
    assert f"as a tree {together} tokens stand for {apart}" in told


@on_screen
async def test_the_panel_tells_it_where_it_has_room():
    async with shown(KVPanel(), (80, 22)) as (panel, pilot):
        panel.show(session(11).timeline())
        await pilot.pause()
        text = screen(pilot)
        assert "full window" in text
        assert "layers 1-8" in text
        assert "Q compares" in text
        held = session(11).timeline().kv.offset
        assert re.search(rf"│ 1 +\+8 KiB a token +{held} ", text)
    async with shown(KVPanel(), (80, 10)) as (panel, pilot):
        panel.show(session(11).timeline())
        await pilot.pause()
        assert "full window" not in screen(pilot)


# ---- time -----------------------------------------------------------------------------------


def slowed(changes: dict[int, StepTimes], steps: int = 12) -> Timeline:
    """A path of steps of 10 ms, some of them otherwise."""
    made = session(0)
    for place in range(steps):
        step = made.step()
        made.records[-1] = replace(step, ms=changes.get(place, StepTimes(10.0, 9.0, 0.5, 0.5)))
    return made.timeline()


def test_slow_steps_have_their_causes_where_they_are_known():
    slow = {
        0: StepTimes(40.0, 39.0, 0.5, 0.5, cold=True),
        4: StepTimes(30.0, 9.0, 20.0, 1.0),
        6: StepTimes(30.0, 20.0, 1.0, 1.0, collecting=15.0),
        8: StepTimes(30.0, 29.0, 0.5, 0.5, collecting=7.0, drawing=18.0),
        9: StepTimes(19.0, 18.0, 0.5, 0.5, collecting=9.0, drawing=9.0),
    }
    timeline = slowed(slow)
    found = [cause(timeline, place, 10.0) for place in (0, 4, 6, 8)]
    assert found[0].startswith("warm-up: the model's first step")
    assert found[1:] == [
        "cause not known; most of it in the sampler",
        "garbage collection, 15.0 ms",
        "garbage collection, 7.0 ms and the screen was drawn at the same time, 18.0 ms",
    ]
    told = dict(slow_steps(timeline, figures(timeline), 10.0))
    assert [name for name in told if name.startswith("  step")] == ["  step 1", "  step 5", "  step 7"]
    assert told["  step 7"] == f"30.0 ms, 3.0 times: {found[2]}"


def figures(timeline: Timeline) -> StepFigures:
    """Those of the steps of a path."""
    made = StepFigures()
    made.update(timeline)
    return made


def test_the_slowest_are_told_in_their_order_and_all_are_counted():
    slow = {place: StepTimes(ms, 9.0, 0.5, 0.5, cold=not place) for place, ms in
            ((0, 40.0), (4, 30.0), (6, 50.0), (8, 30.0), (9, 19.0), (10, 25.0))}  # fmt: skip
    timeline = slowed(slow)
    told = dict(slow_steps(timeline, figures(timeline), 10.0))
    assert [name for name in told if name.startswith("  step")] == ["  step 1", "  step 5", "  step 7"]
    told = dict(slow_steps(timeline, figures(timeline), 10.0, 2))
    assert told["slow steps"] == "5 of 12 took more than 2 times the median; the 2 slowest:"
    assert [name for name in told if name.startswith("  step")] == ["  step 1", "  step 7"]


def test_slow_steps_of_another_path_are_forgotten():
    made, ms = session(0), StepFigures()
    for place in range(6):
        step = made.step()
        made.records[-1] = replace(step, ms=StepTimes(90.0 if place == 4 else 10.0, 9.0, 0.5, 0.5))
    timeline = made.timeline()
    ms.update(timeline)
    timeline.apply(made.move(timeline.items[-3].node))
    ms.update(timeline)
    assert ms.beyond(20.0) == 0
    assert len(dict(slow_steps(timeline, ms, 10.0))) == 1


def test_the_slow_steps_of_a_long_path_cost_no_look_at_each_of_its_steps(monkeypatch):
    timeline, ms = long_timeline(3_000), StepFigures()
    ms.update(timeline)
    looked = []
    monkeypatch.setattr(Timeline, "steps", property(lambda self: looked.append("all")))
    timeline.tree.nodes = {}  # the steps in it are counted as they come
    assert f"of {count(3_000)} took" in dict(slow_steps(timeline, ms, ms.tpot().p50))["slow steps"]
    assert f"{count(3_000)} steps of" in dict(memory_facts(timeline, None, None))["records"]
    assert not looked


def test_a_step_in_which_the_cache_grew_says_by_how_much():
    timeline = slowed({5: StepTimes(25.0, 24.0, 0.5, 0.5)})
    place = timeline.step_slots[5]
    step = timeline.items[place]
    assert step.kv.allocated_bytes == 2**21
    timeline.items[place] = replace(step, kv=replace(step.kv, allocated_bytes=2**22))
    assert cause(timeline, 5, 10.0) == "the KV cache grew by 2 MiB"


def test_no_slow_step_is_said_too():
    timeline = slowed({})
    for median in (10.0, math.inf):
        told = dict(slow_steps(timeline, figures(timeline), median))
        assert told == {"slow steps": "none of 12 took more than 2 times the median"}
    assert list(slow_steps(timeline, StepFigures(), 10.0)) == []


def test_who_holds_memory_and_what_bounds_it():
    timeline = session(20).timeline()
    told = dict(memory_facts(timeline, Memory(2**20, 2**21, 2**19, 3 * 2**20), 2**16))
    assert told["framework"] == "1 MiB in use · 512 KiB kept ready · 2 MiB at its peak"
    assert told["process"].startswith("3 MiB resident")
    assert "20 steps of" in told["records"]
    assert told["kept logits"] == "about 64 KiB of at most 64 KiB; the oldest go first"
    assert "process" not in dict(memory_facts(timeline, Memory(1, 2), None))


def test_a_step_takes_some_kibibytes():
    step = session(20).timeline().steps[-1]
    assert 2**10 < footprint(step) < 2**14
    bare = replace(step, next=replace(step.next, candidates=NO_CANDIDATES))
    packed = len(step.next.candidates.packed) - len(NO_CANDIDATES.packed)
    assert footprint(step) - footprint(bare) == packed


@on_screen
async def test_the_panel_marks_slow_steps_where_it_has_room():
    timeline = slowed({7: StepTimes(50.0, 49.0, 0.5, 0.5)})
    async with shown(TimingPanel(), (80, 24)) as (panel, pilot):
        panel.kept_bytes = 2**26
        panel.show(timeline)
        await pilot.pause()
        text = screen(pilot)
        assert "p99 50.0" in text
        assert text.count("▲") == 1
        assert re.search(rf"│ 1 +steps +{len(timeline.steps)} ", text)
        assert "step 8     50.0 ms, 5.0 times" in text
        assert "at most 64 MiB" in text
        assert "P takes one step apart" in text


@on_screen
async def test_fewer_slow_steps_are_told_where_memory_would_have_no_room():
    timeline = slowed({place: StepTimes(50.0 + place, 49.0, 0.5, 0.5) for place in (3, 5, 7, 9)})
    async with shown(TimingPanel(), (80, 20)) as (panel, pilot):
        panel.kept_bytes = 2**26
        panel.show(timeline)
        await pilot.pause()
        text = screen(pilot)
        assert f"4 of {len(timeline.steps)} took more than 2 times the median; the slowest:" in text
        assert "  step 10    59.0 ms" in text
        assert "  step 8 " not in text
        assert "at most 64 MiB" in text
        assert "P takes one step apart" in text


@on_screen
async def test_nothing_in_depth_is_told_before_there_is_a_step():
    made = Session()
    made.load()
    made.open()
    async with shown(TimingPanel(), (80, 24)) as (panel, pilot):
        panel.show(made.timeline())
        await pilot.pause()
        assert "slow steps" not in screen(pilot)
        assert "first token" in screen(pilot)
