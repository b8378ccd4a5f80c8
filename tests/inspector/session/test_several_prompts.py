"""Several prompts in one tree: what the timeline shows of them, and what a recording of them gives back."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import protocol
from engine.errors import Cancelled
from engine.protocol import Moved, Prefilled, PromptOpened, PromptToken, Restored, Step
from inspector.session.restore import largest_difference, restore_of
from inspector.state.branches import PROMPT, Branches, token
from inspector.state.timeline import Phase, Timeline
from inspector.tools.export.recording import Recording, line, paths
from tests.inspector.session.test_restore import Bench, rerolls

FIRST = "Once upon a time, there was a little girl"
EDITED = "Once upon a time, there was a big dog"


@pytest.fixture(scope="module")
def lived() -> Bench:
    """Three prompts, the second an edit of the first and the third a beginning of it, with steps after each."""
    bench = Bench(blind=False)
    for text, steps in ((FIRST, 6), (EDITED, 5), ("Once upon", 4)):
        bench.do(protocol.Prefill(text, False))
        bench.steps(steps)
    return bench


def of(bench: Bench, kind: type) -> list:
    return [record for record in bench.told if isinstance(record, kind)]


def text(timeline: Timeline) -> str:
    return "".join(item.text for item in timeline.items)


def test_a_new_prompt_keeps_the_tree_and_the_shared_beginning(lived: Bench) -> None:
    opened, prefilled = of(lived, PromptOpened), of(lived, Prefilled)
    assert [each.new_tree for each in opened] == [True, False, False]
    first, second = ([token.node for token in each.tokens] for each in opened[:2])
    shared = sum(a == b for a, b in zip(first, second, strict=False))
    assert shared > 3
    # the last shared token runs once more: its logits give the readings of the first token that is new
    assert prefilled[1].kept == opened[1].held == shared - 1
    assert prefilled[1].kept + prefilled[1].restored < len(second)
    assert prefilled[1].note == f"token {shared} ran again, for the logits after it"
    assert len(lived.timeline.prompts.by_end) == 3


def test_every_token_of_an_edited_prompt_has_its_readings(lived: Bench) -> None:
    fresh = Bench(blind=False)
    fresh.do(protocol.Prefill(EDITED, False))
    end = of(lived, Prefilled)[1].next.node
    found, expected = lived.timeline.tree.path(end), fresh.timeline.items
    assert [item.id for item in found] == [item.id for item in expected]
    assert [item.logprob is None for item in found] == [True] + [False] * (len(found) - 1)
    for item, other in zip(found[1:], expected[1:], strict=True):
        assert item.logprob == pytest.approx(other.logprob, abs=1e-4)
        candidates = item.choice.candidates if isinstance(item, Step) else item.candidates
        assert candidates[0].id == other.candidates[0].id


def test_a_token_that_was_stepped_is_a_step_in_every_prompt(lived: Bench) -> None:
    timeline = lived.timeline
    assert timeline.phase is Phase.READY
    assert [isinstance(item, Step) for item in timeline.items] == [False] * 2 + [True] * 4
    assert [timeline.items[slot].index for slot in timeline.step_slots] == [0, 1, 2, 3]
    of_first = timeline.tree.path(of(lived, Prefilled)[0].next.node)
    both = [item for item in of_first if isinstance(item, Step)]
    assert all(item.node in {step.node for step in timeline.steps} for item in both)


def test_going_back_to_a_prompt_shows_its_own(lived: Bench) -> None:
    bench = Bench(blind=False)
    ends = []
    for prompt in (FIRST, EDITED):
        bench.do(protocol.Prefill(prompt, False))
        bench.steps(3)
        ends.append(bench.timeline.tip)
    for end, prompt in zip(ends, (FIRST, EDITED), strict=True):
        bench.do(protocol.MoveTo(end))
        assert bench.timeline.prompts.opened.text == prompt
        assert text(bench.timeline).startswith(prompt)
        assert bench.timeline.prompts.prefilled.text == prompt
    moved = of(bench, Moved)
    assert all(each.recomputed <= 1 for each in moved), "left branches keep their KV"
    assert moved[-1].restored > 0


def test_a_stopped_prompt_can_be_left_and_finished(lived: Bench) -> None:
    bench = Bench(blind=False)
    bench.do(protocol.Prefill(FIRST, False))
    tip = bench.timeline.tip
    bench.do(protocol.Prefill("A long story about a bear", False, step_size=2), cancelled=True)
    assert bench.timeline.tip == tip, "a prompt that was cancelled before it began leaves all as it was"
    stopping = iter([False, True])
    session = bench.worker._desk.session
    ids = session.encode("A bear in a wood")
    with suppress(Cancelled):
        for record in session.prefill("A bear", ids, step_size=1, stopped=lambda: next(stopping)):
            bench.timeline.apply(record)
    assert bench.timeline.phase is Phase.PREFILL
    assert bench.timeline.held == 1
    bench.do(protocol.MoveTo(tip))
    assert bench.timeline.phase is Phase.READY
    assert text(bench.timeline) == FIRST
    unread = max(bench.timeline.tree.nodes)
    bench.do(protocol.MoveTo(unread))
    assert text(bench.timeline) == "A bear in a wood"
    assert bench.timeline.phase is Phase.READY
    bench.steps(1)


def test_the_tree_of_several_prompts_is_restored_with_its_numbers(lived: Bench) -> None:
    again = Bench()
    restored = next(
        record
        for record in again.do(restore_of(lived.timeline, rerolls(lived.told)))
        if isinstance(record, Restored)
    )
    old, new = lived.worker._desk.session.tree, again.worker._desk.session.tree
    assert len(new) == len(old)
    for node in range(1, len(old)):
        assert (new[node].token, new[node].parent, new[node].start) == (
            old[node].token, old[node].parent, old[node].start
        )  # fmt: skip
        assert new.chunks(node) == old.chunks(node)
    assert restored.next.candidates[0].id == lived.timeline.next.candidates[0].id
    assert largest_difference(lived.timeline, restored) == pytest.approx(0.0, abs=1e-4)


PROMPTS = st.lists(
    st.tuples(st.integers(0, 6), st.lists(st.sampled_from(["a", " dog", " big"]), max_size=3)),
    min_size=2,
    max_size=5,
)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROMPTS, st.booleans())
def test_the_fold_of_any_prompts_and_steps_is_that_of_its_tokens(
    made: list[tuple[int, list[str]]], greedy: bool
) -> None:
    folded(made, greedy)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROMPTS, st.booleans())
def test_the_fold_of_many_prompts_and_steps_is_that_of_their_tokens(
    made: list[tuple[int, list[str]]], greedy: bool
) -> None:
    folded(made, greedy)


def folded(made: list[tuple[int, list[str]]], greedy: bool) -> None:
    """Read prompts with steps after each, and hold what the timeline made of them against its tokens."""
    bench = Bench(blind=False)
    if greedy:
        bench.do(protocol.Configure(type(bench.worker._desk.settings)()))
    before = "Once"
    for steps, words in made:
        bench.do(protocol.Prefill(before + "".join(words), False))
        bench.steps(steps)
        before = text(bench.timeline)
    timeline, fresh = bench.timeline, Branches()
    for node in sorted(timeline.tree.nodes):
        fresh.add(token(timeline.tree.nodes[node], timeline.tree.parent[node]))
    found = [branch.nodes for branch in timeline.tree.branches]
    assert sorted(found) == sorted(branch.nodes for branch in fresh)
    assert timeline.tree.branches.count == fresh.count == len(found)
    for branch in timeline.tree.branches:
        assert len({timeline.tree.branches[node].made == PROMPT for node in branch.nodes}) == 1
        assert branch.sums.tokens == len(branch.nodes)
    for slot, item in enumerate(timeline.items):
        assert item.position == slot
        assert isinstance(item, PromptToken) != (slot in timeline.step_slots)


def test_an_export_tells_the_branches_of_every_prompt(lived: Bench) -> None:
    recording = line(Recording(lived.timeline))
    found = paths(recording)
    leaves = {node for node in lived.timeline.tree.nodes if not lived.timeline.tree.children.get(node)}
    assert {each.items[-1].node for each in found} == leaves
    texts = ["".join(item.text for item in each.items) for each in found]
    assert any(text.startswith(FIRST) for text in texts)
    assert any(text.startswith(EDITED) for text in texts)
