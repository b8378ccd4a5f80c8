"""From a recording back to a session: what the engine is asked to build, also of several prompts and of format 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine import protocol
from engine.errors import Cancelled
from engine.model.load import load as load_model
from engine.protocol import (
    Distribution,
    Ended,
    Failure,
    ModelFacts,
    Moved,
    Prefilled,
    PromptOpened,
    PromptToken,
    Record,
    Restored,
    Restoring,
    Step,
)
from engine.settings import BeamSettings, LoadSettings, Settings
from engine.task import Task
from engine.worker import Worker
from inspector.export.recording import Recording, line, paths
from inspector.session.replay import differs, largest_difference, restore_of
from inspector.state.beams import BeamHistory
from inspector.state.branches import PROMPT, Branches, token
from inspector.state.timeline import Phase, Timeline
from tests.inspector.fakes import Session

SETTINGS = Settings(temp=0.9, seed=11)
FACTS = next(r for r in Session().load() if isinstance(r, ModelFacts))


class Bench:
    """An engine without its thread, and the timeline of what it told; a blind one shows nothing."""

    def __init__(self, settings: LoadSettings | None = None, blind: bool = True) -> None:
        self.blind = blind
        self.told: list[Record] = []
        self.worker = Worker(lambda received: self.told.append(received.record))
        self.timeline = Timeline()
        self.do(protocol.Load(settings or LoadSettings()))
        self.do(protocol.Configure(SETTINGS))

    def do(self, command: protocol.Command, cancelled: bool = False) -> list[Record]:
        start, task = len(self.told), Task(command)
        if cancelled:
            task.cancel.set()
        self.worker.carry_out(task)
        found = self.told[start:]
        for record in found:
            if self.timeline.facts is None or not self.blind:
                self.timeline.apply(record)
        return found

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.do(protocol.TakeStep())


@pytest.fixture
def again() -> Bench:
    return Bench()


def grown() -> Bench:
    """A session with a fork inside the prompt, another in the completion, a beam search, a beam taken, a re-roll."""
    bench = Bench(blind=False)
    bench.do(protocol.Prefill("Once upon a time", False))
    bench.steps(6)
    tip = bench.timeline.tip
    other = next(
        c.id for c in bench.timeline.steps[2].choice.candidates if c.id != bench.timeline.steps[2].id
    )
    bench.do(protocol.Choose(bench.timeline.steps[2].parent, other))
    bench.steps(3)
    bench.do(protocol.SearchBeams(BeamSettings(width=3, max_tokens=6)))
    bench.do(protocol.MoveTo(tip))
    bench.do(protocol.Reroll())
    bench.steps(4)
    bench.do(protocol.MoveTo(bench.timeline.of(BeamHistory).search.ended.ranking[0].node))
    return bench


@pytest.fixture(scope="module")
def lived() -> Iterator[Bench]:
    return grown()


def rerolls(told: list[Record]) -> dict[int, int]:
    found: dict[int, int] = {}
    for record in told:
        following = getattr(record, "next", None)
        if isinstance(following, Distribution) and following.reroll:
            found[following.node] = following.reroll
    return found


def test_the_tree_is_built_with_the_same_numbers_and_goes_on_the_same(again, lived):
    asked = restore_of(lived.timeline, rerolls(lived.told))
    found = again.do(asked)
    assert isinstance(found[-1], Ended)
    restored = next(record for record in found if isinstance(record, Restored))
    old, new = lived.worker._context.session.tree, again.worker._context.session.tree
    assert len(new) == len(old)
    for node in range(1, len(old)):
        assert (new[node].token, new[node].parent, new[node].depth, new[node].start, new[node].reroll) == (
            old[node].token, old[node].parent, old[node].depth, old[node].start, old[node].reroll
        )  # fmt: skip
        assert new.without_step(node) == old.without_step(node)
    assert again.worker._context.session.pending == lived.worker._context.session.pending
    assert restored.next == lived.timeline.next
    assert largest_difference(lived.timeline, restored) == 0.0
    assert again.do(protocol.TakeStep())[0].next == lived.do(protocol.TakeStep())[0].next


def test_numbers_that_were_never_told_stay_free(lived):
    asked = restore_of(lived.timeline, {})
    apart = tuple(
        replace(each, node=each.node + 10, parent=each.parent + 10 if each.parent > 5 else each.parent)
        if each.node > 5
        else each
        for each in asked.nodes
    )
    again = Bench()
    again.do(protocol.Restore(apart, asked.node + 10))
    assert again.worker._context.session.tree.tokens(
        asked.node + 10
    ) == lived.worker._context.session.tree.tokens(asked.node)
    assert "no token number 7" in again.do(protocol.MoveTo(7))[0].message


def test_a_tree_that_doesnt_hold_together_is_refused(lived):
    asked = restore_of(lived.timeline, {})
    twice = (*asked.nodes, replace(asked.nodes[0], node=asked.nodes[-1].node + 1))
    again = Bench()
    refused = again.do(protocol.Restore(twice, asked.node))[0]
    assert isinstance(refused, Failure)
    assert "doesn't hold together" in refused.message
    assert "no prompt" in again.do(protocol.TakeStep())[0].message


def test_ids_without_an_embedding_never_reach_the_model(lived):
    asked = restore_of(lived.timeline, {})
    refused = Bench().do(protocol.Restore((replace(asked.nodes[0], id=10**6),), asked.node))[0]
    assert isinstance(refused, Failure)
    assert refused.expected


def test_a_tree_without_a_token_is_refused():
    refused = Bench().do(protocol.Restore((), 0))[0]
    assert refused.message == "The recorded session has no prompt."


def test_a_huge_number_takes_no_memory(lived):
    asked = restore_of(lived.timeline, {})
    node = replace(asked.nodes[0], node=2**60)
    assert "goes up to node" in Bench().do(protocol.Restore((node,), 1))[0].message


def test_it_tells_how_far_it_is_and_can_be_stopped(again, lived):
    asked = restore_of(lived.timeline, {})
    assert any(isinstance(record, Restoring) for record in again.do(asked))
    found = again.do(protocol.Restore(asked.nodes, asked.node), cancelled=True)
    assert found == [Ended("Restore", True)]


def test_without_a_kv_cache_it_is_restored_too(lived):
    again = Bench(LoadSettings(no_kv_cache=True))
    found = again.do(restore_of(lived.timeline, {}))
    restored = next(record for record in found if isinstance(record, Restored))
    assert largest_difference(lived.timeline, restored) < 1e-3


def test_another_number_is_seen(lived):
    found = Bench().do(restore_of(lived.timeline, {}))
    restored = next(record for record in found if isinstance(record, Restored))
    off = replace(restored, logprobs=(*restored.logprobs[:-1], restored.logprobs[-1] - 0.5))
    assert largest_difference(lived.timeline, off) == pytest.approx(0.5, abs=1e-4)


def test_models_are_told_apart():
    same = replace(FACTS, fingerprint="ab")
    assert differs(same, same) == ""
    assert "other weights" in differs(same, replace(same, fingerprint="cd"))
    assert "vocabulary" in differs(same, replace(same, vocabulary=7))
    assert "could not be compared" in differs(FACTS, FACTS)


def test_without_a_prompt_there_is_nothing_to_restore():
    assert restore_of(Timeline(), {}) is None


def test_the_bundled_model_has_a_fingerprint():
    assert len(load_model(LoadSettings()).facts.fingerprint) == 32


# ---- several prompts in one tree --------------------------------------------------------------


FIRST = "Once upon a time, there was a little girl"
EDITED = "Once upon a time, there was a big dog"


@pytest.fixture(scope="module")
def three() -> Bench:
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


def test_a_new_prompt_keeps_the_tree_and_the_shared_beginning(three: Bench) -> None:
    opened, prefilled = of(three, PromptOpened), of(three, Prefilled)
    assert [each.new_tree for each in opened] == [True, False, False]
    first, second = ([token.node for token in each.tokens] for each in opened[:2])
    shared = sum(a == b for a, b in zip(first, second, strict=False))
    assert shared > 3
    # the last shared token runs once more: its logits give the readings of the first token that is new
    assert prefilled[1].kept == opened[1].held == shared - 1
    assert prefilled[1].kept + prefilled[1].restored < len(second)
    assert prefilled[1].note == f"token {shared} recomputed, for the logits after it"
    assert len(three.timeline.prompts.by_end) == 3


def test_every_token_of_an_edited_prompt_has_its_readings(three: Bench) -> None:
    fresh = Bench(blind=False)
    fresh.do(protocol.Prefill(EDITED, False))
    end = of(three, Prefilled)[1].next.node
    found, expected = three.timeline.tree.path(end), fresh.timeline.items
    assert [item.id for item in found] == [item.id for item in expected]
    assert [item.logprob is None for item in found] == [True] + [False] * (len(found) - 1)
    for item, other in zip(found[1:], expected[1:], strict=True):
        assert item.logprob == pytest.approx(other.logprob, abs=1e-4)
        candidates = item.choice.candidates if isinstance(item, Step) else item.candidates
        assert candidates[0].id == other.candidates[0].id


def test_a_token_that_was_stepped_is_a_step_in_every_prompt(three: Bench) -> None:
    timeline = three.timeline
    assert timeline.phase is Phase.READY
    assert [isinstance(item, Step) for item in timeline.items] == [False] * 2 + [True] * 4
    assert [timeline.items[slot].index for slot in timeline.step_slots] == [0, 1, 2, 3]
    of_first = timeline.tree.path(of(three, Prefilled)[0].next.node)
    both = [item for item in of_first if isinstance(item, Step)]
    assert all(item.node in {step.node for step in timeline.steps} for item in both)


def test_going_back_to_a_prompt_shows_its_own(three: Bench) -> None:
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


def test_a_stopped_prompt_can_be_left_and_finished(three: Bench) -> None:
    bench = Bench(blind=False)
    bench.do(protocol.Prefill(FIRST, False))
    tip = bench.timeline.tip
    bench.do(protocol.Prefill("A long story about a bear", False, step_size=2), cancelled=True)
    assert bench.timeline.tip == tip, "a prompt that was cancelled before it began leaves all as it was"
    stopping = iter([False, True])
    session = bench.worker._context.session
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


def test_the_tree_of_several_prompts_is_restored_with_its_numbers(again: Bench, three: Bench) -> None:
    restored = next(
        record
        for record in again.do(restore_of(three.timeline, rerolls(three.told)))
        if isinstance(record, Restored)
    )
    old, new = three.worker._context.session.tree, again.worker._context.session.tree
    assert len(new) == len(old)
    for node in range(1, len(old)):
        assert (new[node].token, new[node].parent, new[node].start) == (
            old[node].token, old[node].parent, old[node].start
        )  # fmt: skip
        assert new.chunks(node) == old.chunks(node)
    assert restored.next.candidates[0].id == three.timeline.next.candidates[0].id
    assert largest_difference(three.timeline, restored) == pytest.approx(0.0, abs=1e-4)


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
        bench.do(protocol.Configure(type(bench.worker._context.settings)()))
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
    opened = timeline.prompts.opened
    prompt = {each.node for each in opened.tokens} if opened is not None else set()  # it may go over steps
    for slot, item in enumerate(timeline.items):
        assert item.position == slot
        if slot in timeline.step_slots or item.node not in prompt:
            assert isinstance(item, PromptToken) != (slot in timeline.step_slots)


def test_an_export_tells_the_branches_of_every_prompt(three: Bench) -> None:
    recording = line(Recording(three.timeline))
    found = paths(recording)
    leaves = {node for node in three.timeline.tree.nodes if not three.timeline.tree.children.get(node)}
    assert {each.items[-1].node for each in found} == leaves
    texts = ["".join(item.text for item in each.items) for each in found]
    assert any(text.startswith(FIRST) for text in texts)
    assert any(text.startswith(EDITED) for text in texts)
