"""Answers about tokens: one question at a time, the latest wins, and what is known is kept."""

from __future__ import annotations

import pytest

from engine.protocol import (
    AttentionLayer,
    AttentionRead,
    CaptureFacts,
    Ended,
    Failure,
    LensRead,
    PromptOpened,
    ReadAttention,
    ReadLens,
    floats,
)
from inspector.session.client import EngineClient
from inspector.session.requests import KEPT, Answers
from tests.inspector.rig import FakeEngine

FACTS = CaptureFacts((), 1.0, 1.0, "llama")


class Asking:
    """Answers whose questions are gathered."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.client = EngineClient(self.engine)
        self.answers = Answers(self.client, ReadLens, LensRead, lambda read: read.node)

    def want(self, node: int) -> None:
        self.answers.want(node, ReadLens(node))

    @property
    def sent(self) -> list[ReadLens]:
        return [command for command in self.engine.sent if isinstance(command, ReadLens)]

    def answer(self, node: int) -> LensRead:
        read = LensRead(node, (), (), FACTS)
        self.client.receive(read)
        return read

    def end(self, place: int = -1) -> None:
        self.client.receive(Ended("ReadLens", id=self.sent[place].id))


def test_a_question_is_asked_once_and_its_answer_kept() -> None:
    asking = Asking()
    asking.want(3)
    asking.want(3)
    assert [command.node for command in asking.sent] == [3]
    assert asking.answers.waiting
    read = asking.answer(3)
    asking.end()
    assert not asking.answers.waiting
    asking.want(3)
    assert len(asking.sent) == 1
    assert asking.answers.get(3) is read
    asking.answer(4)
    assert asking.answers.keys == (3, 4)
    asking.answers.get(3)
    assert asking.answers.keys == (4, 3), "the one looked at last comes last"


def test_while_one_is_out_the_latest_waits_for_its_end() -> None:
    asking = Asking()
    for node in (3, 4, 5):
        asking.want(node)
    assert [command.node for command in asking.sent] == [3]
    assert asking.engine.cancelled(asking.sent[0])
    asking.end()
    assert [command.node for command in asking.sent] == [3, 5]


def test_who_goes_back_to_what_is_known_has_the_question_dropped() -> None:
    asking = Asking()
    asking.want(3)
    asking.answer(3)
    asking.end()
    asking.want(4)
    asking.want(3)
    assert asking.engine.cancelled(asking.sent[-1])
    asking.end()
    assert not asking.answers.waiting


def test_a_failure_is_that_of_its_question_and_isnt_asked_for_again() -> None:
    asking = Asking()
    asking.want(3)
    told = Failure("ReadLens", "No room.", "Close something.", id=asking.sent[0].id)
    asking.client.receive(told)
    asking.end()
    assert asking.answers.failure(3) is told
    asking.want(3)
    assert len(asking.sent) == 1
    asking.answers.again(3, ReadLens(3))
    assert len(asking.sent) == 2


def test_nodes_of_another_tree_are_others() -> None:
    asking = Asking()
    asking.answer(3)
    asking.client.receive(PromptOpened("a", False, (), False, new_tree=True))
    assert asking.answers.get(3) is None


def test_the_least_recently_used_goes_first() -> None:
    asking = Asking()
    for node in range(1, KEPT + 1):
        asking.answer(node)
    assert asking.answers.get(1) is not None
    asking.answer(KEPT + 1)
    assert asking.answers.get(1) is not None
    assert asking.answers.get(2) is None


def test_large_answers_are_kept_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspector.session.answers.KEPT_BYTES", 100)
    engine = FakeEngine()
    client = EngineClient(engine)
    answers = Answers(client, ReadAttention, AttentionRead, lambda read: read.node)
    layer = AttentionLayer(0, "fused", 1, floats([0.1] * 10, (1, 10)), 10)
    for node in (1, 2, 3, 4):
        client.receive(AttentionRead(node, 10, (layer,), 1, (), FACTS))
    assert [node for node in (1, 2, 3, 4) if answers.get(node)] == [3, 4]
    client.receive(AttentionRead(5, 10, (layer, layer, layer), 1, (), FACTS))
    assert answers.get(5) is not None, "one is kept, however large"
