"""The prompts of a tree, apart from the timeline that they are part of."""

from __future__ import annotations

from inspector.state.prompts import Prompts
from tests.inspector.fakes import PROMPT, Session, session


def test_a_prompt_is_held_as_far_as_its_chunks_go() -> None:
    made = Session()
    made.load()
    opened = made.begin()
    timeline = made.timeline()
    prompts = timeline.prompts
    assert (prompts.opened, prompts.prefilled, prompts.chunks) == (opened, None, [])
    assert timeline.held == prompts.held(len(PROMPT)) == opened.held == 0
    chunk = made.chunk(opened, 3)
    timeline.apply(chunk)
    assert prompts.chunks == [chunk]
    assert timeline.held == prompts.held(len(PROMPT)) == 3
    assert prompts.kv == {item.node: chunk.kv for item in timeline.items[:3]}
    prefilled = made.prefilled(opened)
    timeline.apply(prefilled)
    assert prompts.prefilled == prefilled
    assert not prompts.reading
    assert timeline.held == len(PROMPT)


def test_without_a_prompt_all_is_held() -> None:
    prompts = Prompts()
    assert (prompts.opened, prompts.prefilled, prompts.chunks, prompts.held(0)) == (None, None, [], 0)


def test_what_comes_after_a_snapshot_changes_nothing_in_it() -> None:
    made = Session()
    made.load()
    opened = made.begin()
    timeline = made.timeline()
    timeline.apply(made.chunk(opened, 3))
    taken = timeline.prompts.snapshot()
    assert taken == timeline.prompts
    assert taken.current is next(iter(taken.by_end.values()))
    timeline.apply(made.chunk(opened, 4))
    timeline.apply(made.prefilled(opened))
    assert len(taken.chunks) == 1
    assert len(taken.kv) == 3
    assert (taken.prefilled, taken.reading) == (None, True)


def test_a_refusal_is_kept_until_a_prompt_is_taken() -> None:
    made = Session()
    made.load()
    timeline = made.timeline()
    refused = made.fail("The prompt is empty.", "Give some text.", "Prefill")
    timeline.apply(refused)
    assert timeline.prompts.failure == refused
    timeline.apply(made.begin())
    assert timeline.prompts.failure is None


def test_a_new_tree_begins_without_the_prompts_of_the_last_one() -> None:
    made = session(2)
    timeline = made.timeline()
    before = timeline.prompts.current
    timeline.apply(made.begin())
    assert len(timeline.prompts.by_end) == 1
    assert timeline.prompts.current is not before
    assert timeline.prompts.kv == {}
