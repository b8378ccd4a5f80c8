"""Branches under interventions: every number of theirs is that of a model that is really changed from that token on,
however the session got there, and none of the model's own is ever one of theirs."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import protocol
from engine.beam_settings import BeamSettings
from engine.decoding.beam import search
from engine.decoding.lookahead import look_ahead
from engine.decoding.run import run
from engine.errors import Cancelled, StepError
from engine.inspection.inside.attention import read_attention
from engine.inspection.inside.interventions.holding import hold
from engine.inspection.inside.interventions.intervene import intervene
from engine.model.batch import rows
from engine.model.layers import decoder_layers
from engine.protocol import Grown, Intervention
from engine.sampling.ranking import Row
from engine.session.detached import run_at
from engine.session.session import Session
from engine.session.uncached import UncachedSession
from engine.settings import LoadSettings, Settings
from engine.task import Task
from engine.worker import Worker
from tests.engine.inspection.inside.swapped import logits, stream_of, swapped, with_stream
from tests.engine.inspection.inside.test_interventions import FAMILIES, IDS, opened
from tests.zoo import Zoo

OFF = (Intervention("layer", 0),)
OTHER = (Intervention("layer", 0, scale=0.5),)


def reference(session: Session, node: int) -> Row:
    """The logits after a node, by a model whose first layer is really scaled from the token on where the node's
    branch began; computed with no cache."""
    ids, model = session.tree.tokens(node), session.runner.model
    held = session.held.at(node)
    begin = session.tree[session.held.first(node)].depth - 1 if held else len(ids)

    def scale(given: Any, result: Any) -> Any:
        state, factor = stream_of(result), held[0].scale if held else 1.0
        late = (mx.arange(len(ids)) >= begin)[None, :, None]
        return with_stream(result, mx.where(late, given + factor * (state - given), state))

    with swapped(decoder_layers(model)[0], scale):
        return logits(model, ids)


def assert_right(session: Session) -> None:
    """The current node's logits are the reference's."""
    expected = reference(session, session.node)
    assert np.abs(session.logits - expected).max() < 2e-5 * np.abs(expected).max() + 1e-5


def held(session: Session, interventions: tuple[Intervention, ...] = OFF) -> int:
    """Hold interventions at the current node; returns the first node of the branch."""
    *_, step, last = hold(session, session.node, interventions)
    assert isinstance(step, protocol.Step)
    assert isinstance(last, protocol.InterventionsHeld)
    assert (last.node, last.interventions) == (session.node, interventions)
    assert step.origin == "intervened"
    return session.node


@pytest.mark.parametrize("name", FAMILIES)
def test_every_token_of_a_branch_is_that_of_a_changed_model(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name)
    own = session.logits.copy()
    for _ in range(3):
        session.step()
    expected = intervene(session, session.node, OFF, top=100)
    held(session)
    assert {each.after.id: each.logit_after for each in expected.candidates} == {
        each.after.id: float(session.logits[each.after.id]) for each in expected.candidates
    }
    for _ in range(5):
        assert_right(session)
        assert session.step().origin == "intervened"
    assert_right(session)
    verified = session.verify()
    assert verified.interventions == OFF
    assert verified.largest_difference <= verified.rounding
    plain = session.runner.fresh().forward_path(session.tree.tokens(session.node), ())
    assert np.abs(session.logits - plain).max() > 1e-3
    session.move(len(IDS))
    assert np.abs(session.logits - own).max() <= verified.rounding


@pytest.mark.wide(3)
@pytest.mark.parametrize(
    "settings",
    [
        {}, {"kept_kv_mib": 0}, {"kept_logits_mib": 0}, {"kept_logits_mib": 0, "kept_kv_mib": 0},
        {"prefill_step_size": 4},
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba2", "lfm2", "qwen3-next"])
def test_walks_over_branches_of_several_sets_never_mix_them(
    zoo: Zoo, name: str, settings: dict[str, Any]
) -> None:
    session, chance = opened(zoo, name, **settings), random.Random(f"{name}{settings}")
    for _ in range(2):
        session.step()
    for _ in range(40):
        act = chance.choice(["step", "step", "choose", "move", "move", "hold", "turn", "run"])
        nodes = [node for node in range(2, len(session.tree)) if session.tree[node].token >= 0]
        if act == "step":
            session.step()
        elif act == "choose":
            session.choose(chance.randrange(20, 60))
        elif act == "move":
            for _ in session.move_and_step(chance.choice(nodes)):
                pass
        elif act == "hold":
            node = chance.choice([node for node in nodes if not session.tree[node].held])
            for _ in hold(session, node, chance.choice([OFF, OTHER])):
                pass
        elif act == "turn":
            for _ in session.prefill("", [chance.randrange(20, 60) for _ in range(4)], parent=session.node):
                pass
        else:
            steps = run(session, lambda: False)
            for _ in range(3):
                next(steps)
            steps.close()
        assert_right(session)
        assert session.runner.compute is session.held.compute(session.tree[session.node].held)
    for node in nodes[::3]:
        session.move(node)
        assert_right(session)
    verified = session.verify()
    assert verified.largest_difference <= verified.rounding


@pytest.mark.wide(1)
@pytest.mark.parametrize("settings", [{"kv_bits": 8, "kv_group_size": 32}, {"max_kv_size": 16}])
def test_quantized_and_windowed_caches_agree_with_themselves(zoo: Zoo, settings: dict[str, Any]) -> None:
    session, alone = opened(zoo, "llama", **settings), opened(zoo, "llama", **settings)
    for each in (session, alone):
        for _ in range(3):
            each.step()
    own = session.node
    first = held(session)
    for _ in range(4):
        session.step()
    end = session.node
    kept = session.logits.copy()
    assert session.verify().largest_difference <= session.verify().rounding
    session.move(own)
    for _ in range(4):
        session.step()
        alone.step()
        assert np.abs(session.logits - alone.logits).max() <= session.verify().rounding
    session.move(first)
    session.move(end)
    assert np.abs(session.logits - kept).max() <= session.verify().rounding
    assert session.verify().largest_difference <= session.verify().rounding


def test_a_session_that_held_and_released_is_the_one_that_never_did(zoo: Zoo) -> None:
    session, never = opened(zoo, "llama"), opened(zoo, "llama")
    model = session.runner.model
    for _ in range(2):
        session.step()
        never.step()
    own = session.node
    held(session)
    for _ in range(3):
        session.step()
    *_, last = hold(session, session.node, ())
    assert last == protocol.InterventionsHeld(own, own, (), last.ms)  # type: ignore[union-attr]
    assert session.runner.compute is model
    for _ in range(5):
        assert session.step().next.candidates == never.step().next.candidates
        assert np.array_equal(session.logits, never.logits)
        assert session.tree[session.node].origin == "greedy"


def test_the_same_token_under_another_set_is_another_node_and_the_same_set_the_same(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    session.step()
    own = session.node
    first = held(session)
    session.move(own)
    second = held(session, OTHER)
    session.move(own)
    assert held(session) == first
    assert len({own, first, second}) == 3
    assert [session.held.at(node) for node in (own, first, second)] == [(), OFF, OTHER]
    assert {session.tree[node].token for node in (own, first, second)} == {session.tree[own].token}


def test_looking_ahead_and_beams_follow_the_branch(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    session.step()
    own = session.node
    held(session)
    here, picked = session.node, session.next.picked
    stepped = [session.step().id for _ in range(5)]
    session.move(own)  # from elsewhere too
    for at in (own, here):
        session.move(at)
        *_, ahead = look_ahead(session, here, (picked,), 4)
        assert list(ahead.lines[0].ids) == stepped[1:5]
    *_, ended = search(session, BeamSettings(2, max_tokens=4))
    assert isinstance(ended, protocol.BeamEnded)
    best = ended.ranking[0]
    assert session.tree[best.node].held
    for _ in session.move_and_step(best.node):
        pass
    assert_right(session)
    session.move(own)
    for _ in session.move_and_step(ended.ranking[1].node):
        pass
    assert_right(session)


@pytest.mark.parametrize("name", ["llama", "mamba2"])
def test_rows_of_a_branch_are_computed_as_the_branch_is(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name)
    own = session.node
    session.step()
    here = held(session)
    taken = session.choose(77)
    expected = session.logits
    for at in (own, here):
        session.move(at)
        forwards = rows(run_at(session, here).runner)
        first = forwards.forward([0, 0], [77, 78])[0]
        assert np.abs(first - expected).max() < 2e-5 * np.abs(expected).max()
    session.move(taken.node)
    session.choose(5)
    assert np.abs(forwards.forward([0, 1], [5, 5])[0] - session.logits).max() < 1e-4
    assert_right(session)
    plain = rows(run_at(session, own).runner).forward([0], [session.tree[here].token])[0]
    below = session.tree.child(own, session.tree[here].token)
    assert below is not None
    session.move(below)
    assert np.abs(plain - session.logits).max() < 1e-4


def test_a_prompt_on_a_branch_whose_kv_is_gone_is_prefilled_as_its_path_was_computed(zoo: Zoo) -> None:
    session = opened(zoo, "llama", kept_kv_mib=0)
    session.step()
    held(session)
    end = session.step().node
    session.move(3)
    for _ in session.prefill("", [21, 22, 23, 24, 25], parent=end):
        pass
    assert session.held.at(session.node) == OFF
    assert_right(session)


def test_a_run_under_interventions_takes_the_same_steps(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    session.step()
    first = held(session)
    stepped = [session.step().id for _ in range(6)]
    session.move(first)
    steps = run(session, lambda: False)
    ran = [next(steps) for _ in range(6)]
    steps.close()
    assert [step.id for step in ran] == stepped
    assert {step.origin for step in ran} == {"intervened"}
    assert_right(session)


def test_a_cancelled_move_leaves_what_computes_the_next_token_alone(zoo: Zoo) -> None:
    session = opened(zoo, "llama", kept_logits_mib=0, kept_kv_mib=0)
    session.step()
    own = session.node
    held(session)
    for _ in range(3):
        session.step()
    end = session.node
    session.move(own)
    for _ in range(3):
        session.step()
    far = session.node
    for there in (end, far):
        with pytest.raises(Cancelled):
            session.move(there, lambda: True)
        session.step()
        assert_right(session)
        session.move(there)
        assert_right(session)


# ---- refusals ---------------------------------------------------------------------------------------


def test_what_can_not_be_held_is_refused(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    before = session.node, len(session.tree), session.logits.tobytes()
    for node, interventions, message in (
        (1, OFF, "The first token has nothing before it"),
        (3, (Intervention("layer", 99),), "There is no L100"),
        (3, (Intervention("head", 0, 9),), "L1 has 4 heads: there is no h10"),
        (999, OFF, "There is no token number 999"),
        (3, (), "No intervention is held here"),
    ):
        with pytest.raises(StepError, match=message):
            list(hold(session, node, interventions))
        assert (session.node, len(session.tree), session.logits.tobytes()) == before
    first = held(session)
    with pytest.raises(StepError, match=r"computed under interventions \(L1\): a new intervention is for"):
        list(hold(session, first, OTHER))


def test_a_session_without_a_cache_says_why_it_can_not(zoo: Zoo) -> None:
    session = UncachedSession(zoo.load("llama", no_kv_cache=True), Settings())
    for _ in session.prefill("", IDS):
        pass
    with pytest.raises(StepError, match="Without a KV cache no intervention can be held"):
        list(hold(session, session.node, OFF))


def test_the_inside_of_the_models_own_tokens_can_be_seen_from_a_branch_and_not_that_of_the_branch(
    zoo: Zoo,
) -> None:
    session = opened(zoo, "llama")
    session.step()
    own, first = session.node, held(session)
    session.step()
    assert read_attention(session, own).facts.failed is None
    for node in (first, session.node):
        with pytest.raises(StepError, match=r"views of the inside are for the model's own"):
            read_attention(session, node)
    assert_right(session)


# ---- through the worker ---------------------------------------------------------------------------------


def told(*sent: protocol.Command) -> tuple[list[protocol.Record], Worker]:
    found: list[protocol.Record] = []
    worker = Worker(found.append, lambda: False)
    for command in (protocol.Load(LoadSettings()), *sent):
        worker.carry_out(Task(command))
    return found, worker


def test_a_restored_session_has_its_branches_with_their_numbers() -> None:
    head = (Intervention("head", 5, 0), Intervention("mlp", 3, scale=0.5))
    found, worker = told(
        protocol.Prefill("Once upon a time, there was a girl", chat=False),
        protocol.HoldInterventions(8, head), protocol.TakeStep(), protocol.TakeStep(), protocol.Race(),
    )  # fmt: skip
    steps = [record for record in found if isinstance(record, protocol.Step)]
    assert [step.origin for step in steps] == ["intervened"] * 3
    refused = next(record for record in found if isinstance(record, protocol.Failure))
    assert "measurements are for the model's own" in refused.message
    tree, logits = worker._desk.session.tree, worker._desk.session.logits
    grown = [
        Grown(node, tree[node].parent, tree[node].token, tree[node].origin, tree[node].has_step,
              interventions=head if node == steps[0].node else ())
        for node in range(1, len(tree))
    ]  # fmt: skip
    again, other = told(protocol.Restore(tuple(grown), steps[-1].node))
    restored = next(record for record in again if isinstance(record, protocol.Restored))
    assert max(abs(a - b.logprob) for a, b in zip(restored.logprobs, steps, strict=True)) < 1e-4
    assert np.abs(other._desk.session.logits - logits).max() < 1e-3
    assert other._desk.session.held.at(steps[-1].node) == head
    without = [protocol.Grown(each.node, each.parent, each.id, each.origin, each.has_step) for each in grown]
    failed, _ = told(protocol.Restore(tuple(without), steps[-1].node))
    assert any(isinstance(record, protocol.Failure) for record in failed)
