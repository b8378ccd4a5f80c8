"""Nodes that are in the tree before anybody stood on them: going there steps them."""

from __future__ import annotations

import pytest

from engine import protocol
from engine.beam_settings import BeamSettings
from engine.errors import Cancelled
from engine.model.load import Loaded
from engine.protocol import BeamEnded, Moved, Step
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.task import Task
from engine.tree import TokenTree
from engine.worker import Worker
from tests.zoo import Zoo


def searched(loaded: Loaded) -> tuple[Session, BeamEnded]:
    from engine.decoding.beam import search

    session = Session(loaded, Settings(temp=0, candidates=5))
    list(session.prefill("", [1, 402, 411, 263, 931]))
    end = list(search(session, BeamSettings(width=3, max_tokens=6)))[-1]
    assert isinstance(end, BeamEnded)
    return session, end


@pytest.mark.parametrize("name", ["llama", "mamba2", "gpt-oss"])
def test_going_to_a_beam_steps_its_tokens(zoo: Zoo, name: str) -> None:
    session, end = searched(zoo.load(name))
    wanted = end.ranking[1]
    moved, *steps = session.move_and_step(wanted.node)
    assert isinstance(moved, Moved)
    assert all(isinstance(step, Step) for step in steps)
    told = [step for step in steps if isinstance(step, Step)]
    assert tuple(step.id for step in told) == wanted.ids
    assert {step.origin for step in told} == {"beam"}
    assert sum(step.logprob for step in told) == pytest.approx(wanted.logprob, abs=1e-4)
    assert session.node == wanted.node
    assert session.verify().largest_difference < 1e-4


def test_a_second_visit_is_a_move(zoo: Zoo) -> None:
    session, end = searched(zoo.load("llama"))
    list(session.move_and_step(end.ranking[1].node))
    list(session.move_and_step(end.ranking[0].node))
    (again,) = session.move_and_step(end.ranking[1].node)
    assert isinstance(again, Moved)
    assert again.recomputed == 0
    assert again.restored_bytes > 0
    assert again.kv.kept_bytes > 0
    assert again.kv.kept_budget == 256 * 2**20


def test_it_can_be_broken_off_at_any_step(zoo: Zoo) -> None:
    session, end = searched(zoo.load("llama"))
    going = session.move_and_step(end.ranking[0].node, lambda: session.tree[session.node].depth >= 7)
    _, _, last = (next(going) for _ in range(3))
    with pytest.raises(Cancelled):
        next(going)
    assert isinstance(last, Step)
    assert session.node == last.node


def test_untold_are_the_last_nodes_of_a_path() -> None:
    tree = TokenTree()
    prompt = tree.add_prompt(0, [5, 6])[-1]
    first = tree.add(prompt, 7, "sampled")
    tree[first].has_step = True
    beam = tree.add(tree.add(first, 8, "beam"), 9, "beam")
    assert tree.without_step(prompt) == []
    assert tree.without_step(first) == []
    assert [tree[each].token for each in tree.without_step(beam)] == [8, 9]


def test_tokens_are_taken_by_id(zoo: Zoo) -> None:
    came: list[protocol.Record] = []
    worker = Worker(came.append, lambda: False)
    worker.carry_out(Task(protocol.Load(LoadSettings())))
    worker.carry_out(Task(protocol.Prefill("Once upon a time", chat=False)))
    (prompt,) = (record for record in came if isinstance(record, protocol.Prefilled))
    came.clear()
    node = prompt.tokens[-1].node
    worker.carry_out(Task(protocol.TakeStep()))
    worker.carry_out(Task(protocol.Take(node, (44, 45, 46))))
    steps = [record for record in came if isinstance(record, Step)]
    assert [step.id for step in steps[1:]] == [44, 45, 46]
    assert {step.origin for step in steps[1:]} == {"chosen"}
    came.clear()
    worker.carry_out(Task(protocol.Take(node, (44, 10**9))))
    assert [type(record).__name__ for record in came] == ["Failure", "Ended"]
    assert "outside the model's vocabulary" in came[0].message  # type: ignore[union-attr]
