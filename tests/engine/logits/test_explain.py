"""Explanations and what-ifs: from kept logits, with the same draw, equal to what a run under those settings does."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from engine import protocol
from engine.decoding.run import run
from engine.errors import SettingsError, StepError
from engine.logits.explain import explain, what_if
from engine.model.forward import never
from engine.sampling.pipeline import uniform
from engine.session.session import Session
from engine.settings import ORDERS, LoadSettings, Settings, check
from tests.engine.test_thread import Engine
from tests.zoo import Zoo

BASE = Settings(temp=0.9, top_p=0.92, min_p=0.02, top_k=40, seed=11, max_tokens=10**6, min_tokens=10**6)


def ran(zoo: Zoo, settings: Settings, steps: int, **load: int) -> Session:
    session = Session(zoo.load("pocket", **load), settings)
    ids = session.tokens.encode("Once upon a time there was a")
    list(session.prefill("", ids, echo=False))
    for _ in range(steps):
        session.step()
    return session


@pytest.mark.parametrize("steps", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_at_the_settings_that_were_used_every_choice_is_reproduced(zoo: Zoo, steps: int) -> None:
    session = ran(zoo, replace(BASE, repetition_penalty=1.2, xtc_probability=0.3, candidates=5), steps)
    answer = what_if(session, session.settings, session.node)
    assert len(answer.steps) == steps
    assert all(step.same for step in answer.steps)
    assert answer.dropped == ()


OTHERS = [
    replace(BASE, temp=0.0),
    replace(BASE, temp=1.6),
    replace(BASE, top_p=0.5, sampler_order=ORDERS["llama.cpp"]),
    replace(BASE, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.3),
    replace(BASE, xtc_probability=1.0, xtc_threshold=0.1),
    replace(BASE, logit_bias=((433, -100.0), (261, 3.0)), sampler_order=ORDERS["transformers"]),
]


@pytest.fixture(scope="module")
def sixty(zoo: Zoo) -> Session:
    """A run of 60 steps, to be asked about and not moved."""
    return ran(zoo, BASE, 60)


@pytest.mark.wide(2)
@pytest.mark.parametrize("other", OTHERS, ids=range(len(OTHERS)))
def test_at_other_settings_it_equals_a_fresh_run_until_and_where_they_part(
    zoo: Zoo, sixty: Session, other: Settings
) -> None:
    session = sixty
    answer = what_if(session, other, session.node)
    fresh = ran(zoo, other, 0)
    for step in answer.steps:
        theirs = fresh.step().id
        assert step.same == (session.tree[step.node].token == theirs)
        if not step.same:
            assert step.picked == theirs
            break
    else:
        pytest.fail("they never parted")


def test_nothing_moves_while_asking(zoo: Zoo) -> None:
    session = ran(zoo, BASE, 20)
    before = (session.node, session.kv.offset, session.next)
    what_if(session, OTHERS[0], session.node)
    explain(session, session.tree[session.node].parent, OTHERS[1])
    assert (session.node, session.kv.offset, session.next) == before


def test_columns_tell_each_stage_in_its_order(zoo: Zoo) -> None:
    session = ran(zoo, replace(BASE, repetition_penalty=1.3, temp=0.8), 30)
    told = explain(session, session.node)
    assert told.used
    assert told.next == session.next
    assert [column.name for column in told.columns] == [
        "min-tokens", "repetition", "top-p", "min-p", "top-k", "temperature",
    ]  # fmt: skip
    assert [column.unit for column in told.columns] == ["logit"] * 2 + ["prob"] * 4
    assert [column.kept for column in told.columns] == sorted(
        (column.kept for column in told.columns), reverse=True
    )
    ids = [candidate.id for candidate in told.next.candidates]
    assert list(told.logits) == session.logits[ids].tolist()
    for place, candidate in enumerate(told.next.candidates):
        final = told.columns[-1].values[place]
        assert candidate.sampler_prob == pytest.approx(final or 0.0, abs=1e-6)
        cut_at = [column.name for column in told.columns if column.values[place] is None]
        assert candidate.cut_by == (cut_at[0] if cut_at else None)
    recent = session.tree.tokens(session.node)[-20:]
    depth = session.tree[session.node].depth
    for candidate, earlier in zip(told.next.candidates, told.earlier, strict=True):
        assert earlier == tuple(
            depth - 20 + place for place, token in enumerate(recent) if token == candidate.id
        )
        logit, penalised = (
            told.logits[ids.index(candidate.id)],
            told.columns[1].values[ids.index(candidate.id)],
        )
        if candidate.id not in session.tokens.eos_ids:
            assert (penalised != logit) == bool(earlier)


def test_the_settings_used_at_each_place_are_remembered(zoo: Zoo) -> None:
    session = ran(zoo, BASE, 5)
    node = session.tree[session.node].parent
    session.configure(replace(BASE, temp=0.0))
    assert explain(session, node).next.draw == pytest.approx(uniform(11, session.tree[node].depth, 0))
    assert explain(session, session.node).next.draw is None
    assert not explain(session, node, session.settings).used


def test_dropped_logits_are_said_and_can_be_recalled(zoo: Zoo) -> None:
    session = ran(zoo, replace(BASE, candidates=3), 100, kept_logits_mib=1)  # 64 rows of 4,096
    answer = what_if(session, OTHERS[1], session.node)
    assert len(answer.steps) + len(answer.dropped) == 100
    assert len(answer.dropped) >= 36
    parents = tuple(session.tree[node].parent for node in answer.dropped[:5])
    with pytest.raises(StepError, match="were dropped to hold the memory bound"):
        explain(session, parents[0])
    offset = session.kv.offset
    session.recall(parents)
    assert session.kv.offset == offset
    assert session.kept_logits.nbytes <= session.kept_logits.budget == 2**20
    whole = ran(zoo, replace(BASE, candidates=3), 100)
    for node in parents:
        told, expected = explain(session, node), explain(whole, node)
        assert [c.id for c in told.next.candidates] == [c.id for c in expected.next.candidates]
        assert np.allclose(told.logits, expected.logits, atol=0.25)  # bfloat16


def test_asides_are_answered_between_the_steps_of_a_run() -> None:
    engine = Engine()
    engine.do(protocol.Load(LoadSettings()))
    engine.do(protocol.Configure(BASE))
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    run_ = protocol.Run()
    engine.send(run_)
    engine.send(protocol.Explain(4))
    engine.send(protocol.WhatIf(replace(BASE, temp=0.0), 4))
    found: list[protocol.Record] = []
    while sum(isinstance(record, protocol.Ended) for record in found) < 2:
        found.append(engine.queue.get(timeout=20))
    assert any(isinstance(record, protocol.Explained) for record in found)
    assert any(isinstance(record, protocol.WhatIfAnswered) for record in found)
    assert not any(isinstance(record, protocol.Ended) and record.command == "Run" for record in found)
    engine.send(protocol.Cancel(run_.id))
    while not (
        isinstance(record := engine.queue.get(timeout=20), protocol.Ended) and record.command == "Run"
    ):
        pass
    assert engine.thread.close(10)


def test_the_same_seed_gives_the_same_text_after_any_detour(zoo: Zoo) -> None:
    straight = ran(zoo, BASE, 40)
    detour = ran(zoo, BASE, 10)
    tip = detour.node
    detour.back(4)
    detour.choose(700)
    for _ in range(5):
        detour.step()
    detour.back(8)
    list(detour.insert([5, 6]))
    detour.move(tip)
    taken = 0
    while taken < 30:
        taken += sum(1 for _, _ in zip(range(30 - taken), run(detour, never), strict=False))
    assert detour.tree.tokens(detour.node) == straight.tree.tokens(straight.node)


def test_a_draw_made_again_elsewhere_changes_nothing_of_the_branch_that_was_left(zoo: Zoo) -> None:
    session = ran(zoo, BASE, 10)
    tip = session.node
    fork = session.tree.nodes(tip)[-6]
    recorded = explain(session, fork).next.draw
    session.move(fork)
    assert session.reroll().draw != recorded
    session.step()
    session.move(tip)
    assert all(step.same for step in what_if(session, session.settings, tip).steps)
    assert explain(session, fork).next.draw == recorded


def test_a_draw_goes_back_to_an_earlier_one(zoo: Zoo) -> None:
    session = ran(zoo, BASE, 4)
    first, second = session.next, session.reroll()
    assert session.reroll().draw not in (first.draw, second.draw)
    assert session.reroll(0) == first
    assert session.reroll(1) == second
    assert session.reroll(0) == first
    assert session.step().choice == first


def test_a_bias_beyond_the_vocabulary_is_refused(zoo: Zoo) -> None:
    session = ran(zoo, BASE, 1)
    with pytest.raises(SettingsError, match="token id 4096 is outside the model's vocabulary of 4096"):
        session.configure(replace(BASE, logit_bias=((4096, 1.0),)))
    assert session.settings == BASE


def test_an_answer_comes_quickly_on_a_large_vocabulary() -> None:
    """A sanity bound; the measured figure is the benchmark's (tests/benchmarks/what_if.py)."""
    from engine.sampling.pipeline import sample
    from engine.sampling.ranking import log_softmax

    row = np.random.default_rng(0).standard_normal(150_000).astype(np.float32) * 3
    begun = time.perf_counter()
    sample(row, log_softmax(row), replace(BASE, repetition_penalty=1.1), 0.5)
    assert time.perf_counter() - begun < 0.5


def test_the_settings_check_knows_every_preset_order() -> None:
    for order in ORDERS.values():
        check(replace(BASE, sampler_order=order))
