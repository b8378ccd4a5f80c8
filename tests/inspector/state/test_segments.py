"""Segments of a path: as its prompts say and its reply's marks tell, on each branch its own, quick in a long text."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.protocol import (
    SegmentRun,
    ToolCallChecked,
)
from inspector.state.segments import Figures, Segments
from inspector.state.timeline import Timeline
from tests.inspector.segmented import END, FACTS, prompt, step


def timeline_of(texts: Iterable[str], begin: str = "answer") -> Timeline:
    timeline = Timeline()
    timeline.apply(FACTS)
    timeline.apply(prompt(begin))
    for place, text in enumerate(texts):
        timeline.apply(step(END + 1 + place, text))
    return timeline


def kinds(timeline: Timeline) -> list[str | None]:
    return [*timeline.segments.kinds]


PROMPT_KINDS = ["markup", "system", "system", "markup", "user", "user", "markup"]
SAID = ["<think>", "Hm", " a", "</", "think>", "\n\n", "Fine", "<tool_call>", "{}", "</tool_call>"]
SAID_KINDS = [
    "markup",
    "thinking",
    "thinking",
    "markup",
    "markup",
    "answer",
    "answer",
    "markup",
    "tool call",
    "markup",
]


def test_each_token_is_labelled_as_it_comes() -> None:
    timeline = timeline_of([])
    for place, text in enumerate(SAID):
        timeline.apply(step(END + 1 + place, text))
        path = timeline.segments
        assert path.kinds[:END] == PROMPT_KINDS
        certain = len(path.kinds) - path.provisional
        assert path.kinds[END:certain] == SAID_KINDS[: certain - END]
        assert path.provisional == (1 if text == "</" else 0)
    assert kinds(timeline) == PROMPT_KINDS + SAID_KINDS
    told = [(run.kind, run.message, run.begin, run.end) for run in timeline.segments.told]
    assert told == [("system", 0, 1, 3), ("user", 1, 4, 6), ("thinking", 2, 8, 10), ("answer", 2, 12, 14),
                    ("tool call", 2, 15, 16)]  # fmt: skip


def test_a_reply_begins_where_the_prompt_left_it() -> None:
    assert kinds(timeline_of(["Hm", "</think>", "Fine"], "thinking"))[END:] == [
        "thinking",
        "markup",
        "answer",
    ]


def test_a_branch_has_labels_of_its_own() -> None:
    """The same token is a mark's on one branch and text on the other."""
    timeline = timeline_of(["a", "<th", "ink>", "Hm"])
    assert kinds(timeline)[END:] == ["answer", "markup", "markup", "thinking"]
    timeline.apply(step(20, "at", parent=END + 2))
    assert kinds(timeline)[END:] == ["answer", "answer", "answer"]
    timeline.visit(END + 4)
    assert kinds(timeline)[END:] == ["answer", "markup", "markup", "thinking"]


def test_a_token_that_is_forced_into_a_prompt_is_an_answer() -> None:
    timeline = timeline_of([])
    timeline.apply(step(20, "x", parent=5))
    assert kinds(timeline) == [*PROMPT_KINDS[:5], "answer"]


def test_raw_text_has_no_segments() -> None:
    timeline = Timeline()
    timeline.apply(FACTS)
    timeline.apply(replace(prompt(runs=()), chat=False))
    timeline.apply(step(END + 1, "Hm"))
    assert kinds(timeline) == [None] * END + ["answer"]
    assert not timeline.segments.several


def test_a_hostile_prompt_is_labelled_within_its_bounds() -> None:
    timeline = Timeline()
    timeline.apply(FACTS)
    timeline.apply(prompt(runs=(SegmentRun("user", 5, 10**9, 10**9), SegmentRun("user", 4, 2, 0))))
    assert kinds(timeline) == ["markup"] * 5 + ["user"] * 2
    assert timeline.prompts.roles(timeline.items).keys() == {4, END}


PIECES = ("<think>", "</think>", "<", "th", "ink>", "</", "a", " ", "\n", "<tool_call>")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14), st.integers(0, 13))
def test_runs_are_those_of_the_kinds(texts: list[str], moved: int) -> None:
    """Kept up a token at a time, they are what a walk over the whole path gives, after any detour too."""
    timeline = timeline_of([])
    for place, text in enumerate(texts):
        timeline.apply(step(END + 1 + place, text))
        if place == moved:
            timeline.apply(step(100, "zz", parent=END + 1 + place // 2))
            kinds(timeline)
            timeline.visit(END + 1 + place)
        path = timeline.segments
        fresh = timeline.of(Segments).read(timeline.items)
        assert (path.kinds, path.provisional) == (fresh.kinds, fresh.provisional)
        assert [(run.begin, run.word) for run in path.runs] == [(run.begin, run.word) for run in fresh.runs]
        assert path.several == (len(path.told) > 1)
        assert path.calling or "tool call" not in path.kinds
        flat = [(run.kind, slot) for run in path.runs for slot in range(run.begin, run.end)]
        assert flat == list(zip(path.kinds, range(len(path.kinds)), strict=True))
        assert all(path.at(slot) is run for run in path.runs for slot in range(run.begin, run.end))


def test_figures_of_a_segment() -> None:
    timeline = timeline_of(SAID)
    path = timeline.segments
    thinking = next(run for run in path.runs if run.kind == "thinking")
    found = path.figures([thinking])
    assert (found.tokens, found.ms, found.steps, found.bits) == (2, 4.0, 2, 1.0)
    totals = path.totals
    assert totals["user"].bits is None
    assert sum(each.tokens for each in totals.values()) == len(timeline.items)
    assert totals["markup"].steps == 5
    whole = path.figures(path.runs)
    assert [sum(each) for each in zip(*totals.values(), strict=True)] == list(whole)
    one, other = Figures(1, 2.0, 3, 4.0, 5), Figures(10, 20.0, 30, 40.0, 50)
    assert one.plus(other) == Figures(11, 22.0, 33, 44.0, 55)
    assert other.plus(one, -1) == Figures(9, 18.0, 27, 36.0, 45)


def test_calls_that_have_ended_are_asked_about_once_each() -> None:
    timeline = timeline_of([*SAID[:-1]])
    segments = timeline.of(Segments)
    assert list(segments.calls(timeline.segments)) == []
    timeline.apply(step(END + 10, "</tool_call>"))
    [(run, node)] = segments.calls(timeline.segments)
    assert (run.kind, node) == ("tool call", END + 9)
    timeline.apply(ToolCallChecked(node, ("zeta",), "", 0, "json_tools"))
    assert segments.checked[node].names == ("zeta",)


def test_an_end_of_sequence_is_markup() -> None:
    timeline = timeline_of(["Fine"])
    timeline.apply(step(END + 2, "<|im_end|>", special=True, id=FACTS.eos_ids[0]))
    assert kinds(timeline)[END:] == ["answer", "markup"]


def test_what_is_copied_changes_no_more() -> None:
    timeline = timeline_of(SAID)
    held = copy.deepcopy(timeline.of(Segments))
    timeline.apply(step(END + 11, "x"))
    assert held.state(END + 11) is None
    assert held.read(timeline.items[:-1]).kinds == kinds(timeline)[:-1]


def test_another_tree_forgets() -> None:
    timeline = timeline_of(SAID)
    timeline.apply(prompt())
    assert timeline.of(Segments).state(END + 2) is None
    assert kinds(timeline) == PROMPT_KINDS


@pytest.mark.wide(1)
@pytest.mark.parametrize("text", ["word ", "<"])
def test_twenty_thousand_steps_stay_instant(text: str) -> None:
    """Judged by what a step costs late against early, with room for a busy machine."""
    timeline = timeline_of([])
    taken: list[float] = []
    for place in range(20_000):
        timeline.apply(step(END + 1 + place, text))
        began = time.perf_counter()
        assert timeline.segments.kinds
        taken.append(time.perf_counter() - began)
    early, late = sorted(taken[1000:3000])[1000], sorted(taken[-2000:])[1000]
    assert late < 5 * early + 1e-4
