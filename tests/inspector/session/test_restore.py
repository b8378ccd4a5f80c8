"""A recorded session is built anew: the same tree with the same numbers, and the model says what it said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine import protocol
from engine.beam_settings import BeamSettings
from engine.model.load import load
from engine.protocol import Distribution, Ended, Failure, ModelFacts, Record, Restored, Restoring
from engine.settings import LoadSettings, Settings
from engine.task import Task
from engine.worker import Worker
from inspector.session.restore import differs, largest_difference, restore_of
from inspector.state.beams import BeamHistory
from inspector.state.timeline import Timeline
from tests.inspector.fakes import Session

SETTINGS = Settings(temp=0.9, seed=11)
FACTS = next(r for r in Session().load() if isinstance(r, ModelFacts))


class Bench:
    """An engine without its thread, and the timeline of what it told; a blind one shows nothing."""

    def __init__(self, settings: LoadSettings | None = None, blind: bool = True) -> None:
        self.blind = blind
        self.told: list[Record] = []
        self.worker = Worker(self.told.append, lambda: False)
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


def test_the_tree_is_built_with_the_same_numbers_and_goes_on_the_same(lived):
    again = Bench()
    asked = restore_of(lived.timeline, rerolls(lived.told))
    found = again.do(asked)
    assert isinstance(found[-1], Ended)
    restored = next(record for record in found if isinstance(record, Restored))
    old, new = lived.worker._desk.session.tree, again.worker._desk.session.tree
    assert len(new) == len(old)
    for node in range(1, len(old)):
        assert (new[node].token, new[node].parent, new[node].depth, new[node].start, new[node].reroll) == (
            old[node].token, old[node].parent, old[node].depth, old[node].start, old[node].reroll
        )  # fmt: skip
        assert new.without_step(node) == old.without_step(node)
    assert again.worker._desk.session.pending == lived.worker._desk.session.pending
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
    assert again.worker._desk.session.tree.tokens(asked.node + 10) == lived.worker._desk.session.tree.tokens(
        asked.node
    )
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


def test_a_huge_number_takes_no_memory(lived):
    asked = restore_of(lived.timeline, {})
    node = replace(asked.nodes[0], node=2**60)
    assert "goes up to node" in Bench().do(protocol.Restore((node,), 1))[0].message


def test_it_tells_how_far_it_is_and_can_be_stopped(lived):
    asked = restore_of(lived.timeline, {})
    again = Bench()
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
    assert largest_difference(lived.timeline, off) == pytest.approx(0.5)


def test_models_are_told_apart():
    same = replace(FACTS, fingerprint="ab")
    assert differs(same, same) == ""
    assert "other weights" in differs(same, replace(same, fingerprint="cd"))
    assert "vocabulary" in differs(same, replace(same, vocabulary=7))
    assert "could not be compared" in differs(FACTS, FACTS)


def test_without_a_prompt_there_is_nothing_to_restore():
    assert restore_of(Timeline(), {}) is None


def test_the_bundled_model_has_a_fingerprint():
    assert len(load(LoadSettings()).facts.fingerprint) == 32
