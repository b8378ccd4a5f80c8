"""Interventions: scaled units at a token, in the whole context, and held on a branch."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from msgspec.structs import replace

from engine import protocol
from engine.decoding.beam import search
from engine.decoding.lookahead import lines_ahead
from engine.decoding.rows import rows_of
from engine.errors import Cancelled, PromptError, StepError
from engine.inside.attention import read_attention
from engine.inside.interventions import Scaling, baseline, changed_masses, hold, intervene
from engine.inside.lens import read_lens
from engine.model.layers import decoder_layers
from engine.protocol import (
    Check,
    Direction,
    Grown,
    HoldInterventions,
    Intervene,
    Intervened,
    Intervention,
    ReadAttention,
    ReadLens,
    floats,
)
from engine.sampling.ranking import Row, checked_logprobs
from engine.session.run import run
from engine.session.session import Session, run_at
from engine.settings import BeamSettings, LoadSettings, Settings
from tests.engine.inside.looking import answer
from tests.engine.sessions import begun
from tests.engine.unthreaded import Unthreaded, kinds
from tests.zoo import Zoo

# ---- models that are really other models: the independent reference, with no tap ---------------
# An instance gets a class of its own, whose call differs; a model's list of layers stays what its own code expects.

Change = Callable[[Any, Any], Any]
"""From what a module is given, and what it returns, to what it returns instead."""


@contextmanager
def swapped(module: Any, change: Change) -> Iterator[None]:
    """Give a module another call for this block."""
    own = type(module)

    def call(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        return change(x, own.__call__(self, x, *args, **kwargs))

    module.__class__ = type(f"Swapped{own.__name__}", (own,), {"__call__": call})
    try:
        yield
    finally:
        module.__class__ = own


def with_stream(result: Any, stream: Any) -> Any:
    """What a layer returned, with another residual stream."""
    return type(result)([stream, *result[1:]]) if isinstance(result, tuple | list) else stream


def stream_of(result: Any) -> Any:
    """The residual stream of what a layer returned."""
    return result[0] if isinstance(result, tuple | list) else result


def identity(given: Any, result: Any) -> Any:
    """The layer does nothing."""
    return with_stream(result, given)


def identity_at_the_end(given: Any, result: Any) -> Any:
    """The layer does nothing to the last token."""
    own = stream_of(result)
    return with_stream(result, mx.concatenate([own[:, :-1], given[:, -1:]], axis=1))


def logits(model: Any, ids: list[int]) -> Row:
    """The logits after the last of some tokens, computed with no cache."""
    return np.array(model(mx.array([ids]))[0, -1].astype(mx.float32))


FAMILIES = (
    "llama", "llama-sliding", "qwen2", "gemma3", "gpt2", "phi3", "mixtral", "gpt-oss", "mamba2", "lfm2",
    "qwen3-next", "deepseek-v2",
)  # fmt: skip
IDS = [int(id) for id in np.random.default_rng(5).integers(20, 4000, 21)]


def opened(zoo: Zoo, name: str, ids: list[int] = IDS, **settings: Any) -> Session:
    return begun(zoo.load(name, **settings), ids, echo=None)


def changed(intervened: Intervened) -> dict[int, float]:
    """The logits under the intervention, of the tokens that are listed."""
    return {each.after.id: each.logit_after for each in intervened.candidates}


def assert_is(intervened: Intervened, row: Any) -> None:
    """Its numbers are those of a row of logits."""
    found = changed(intervened)
    assert len(found) >= 10
    assert max(abs(row[id] - logit) for id, logit in found.items()) < 2e-5 * np.abs(row).max()
    logprobs = checked_logprobs(row)
    assert max(abs(logprobs[each.after.id] - each.after.logprob) for each in intervened.candidates) < 1e-4


# ---- against models that were really changed ------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("scope", "layer", "change"),
    [("context", 1, identity), ("token", 0, identity_at_the_end)],
    ids=["context", "token"],
)
def test_a_layer_switched_off_is_the_identity_in_the_context_or_for_this_token_alone(
    zoo: Zoo, name: str, scope: Any, layer: int, change: Change
) -> None:
    session = opened(zoo, name)
    found = answer(intervene(session, Intervene(session.node, (Intervention("layer", layer),), scope)))
    model = session.runner.model
    with swapped(decoder_layers(model)[layer], change):
        reference = logits(model, IDS)
    assert_is(found, reference)
    assert found.largest_change > 1e-3
    assert found.facts.failed is None


@pytest.mark.parametrize(("part", "kind"), [("self_attn", "attention"), ("mlp", "mlp")])
@pytest.mark.parametrize("scale", [0.0, -0.5, 2.0])
def test_a_part_scaled_in_the_context_is_a_model_whose_part_returns_that(
    zoo: Zoo, part: str, kind: Any, scale: float
) -> None:
    session = opened(zoo, "llama")
    found = answer(
        intervene(session, Intervene(session.node, (Intervention(kind, 1, scale=scale),), "context"))
    )
    model = session.runner.model
    with swapped(decoder_layers(model)[1][part], lambda given, result: scale * result):
        reference = logits(model, IDS)
    assert_is(found, reference)


def test_a_head_switched_off_is_a_model_whose_output_projection_lacks_its_columns(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    found = answer(intervene(session, Intervene(session.node, (Intervention("head", 1, 2),), "context")))
    projection = decoder_layers(session.runner.model)[1].self_attn.o_proj
    weight = projection.weight
    columns = np.ones(weight.shape[1], np.float32)
    size = weight.shape[1] // 4
    columns[2 * size : 3 * size] = 0
    try:
        projection.weight = weight * mx.array(columns)
        reference = logits(session.runner.model, IDS)
    finally:
        projection.weight = weight
    assert_is(found, reference)
    assert found.largest_change > 1e-3
    here = answer(intervene(session, Intervene(session.node, (Intervention("head", 1, 2),))))
    assert_is(here, reference)  # the last layer's heads act on no later layer's keys


def test_the_numbers_are_those_of_their_definitions(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    found = answer(intervene(session, Intervene(session.node, (Intervention("layer", 1),), top=4096)))
    assert 100 <= len(found.candidates) <= 200  # the first hundred of each side
    model = session.runner.model
    own = logits(model, IDS).astype(np.float64)
    with swapped(decoder_layers(model)[1], identity_at_the_end):
        other = logits(model, IDS).astype(np.float64)
    p, q = (np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in (own, other))
    assert found.kl_bits == pytest.approx(float((p * np.log2(p / q)).sum()), abs=1e-5)
    assert found.entropy_before_bits == pytest.approx(float(-(p * np.log2(p)).sum()), abs=1e-4)
    assert found.entropy_after_bits == pytest.approx(float(-(q * np.log2(q)).sum()), abs=1e-4)
    assert found.largest_change == pytest.approx(float(np.abs(own - other).max()), abs=1e-4)
    assert abs(own - other)[found.largest_change_id] == pytest.approx(found.largest_change, abs=1e-4)
    first = found.candidates[0]
    assert first.before.rank == 1
    assert first.ranks_up == 1 - first.after.rank
    assert first.after.rank == 1 + int((other > other[first.after.id] + 1e-7).sum())


def test_a_named_token_is_listed_however_improbable(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    asked = Intervene(session.node, (Intervention("layer", 1),), top=1)
    rare = int(logits(session.runner.model, IDS).argmin())
    for also in ((rare,), (rare, rare)):
        found = answer(intervene(session, replace(asked, also=also)))
        assert [each.before.id for each in found.candidates].count(rare) == 1
    with pytest.raises(PromptError):
        answer(intervene(session, replace(asked, also=(10**6,))))


def test_two_interventions_act_together(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    model = session.runner.model
    found = answer(
        intervene(
            session, Intervene(session.node, (Intervention("layer", 0), Intervention("layer", 1)), "context")
        )
    )
    with swapped(decoder_layers(model)[0], identity), swapped(decoder_layers(model)[1], identity):
        assert_is(found, logits(model, IDS))


# ---- what must not change -------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_scale_1_changes_nothing(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name)
    kinds = [Intervention("layer", 1, scale=1.0)]
    kinds.append(Intervention("recurrence" if name == "mamba2" else "mlp", 1, scale=1.0))
    if name != "mamba2":
        kinds.append(Intervention("head", 1, 3, 1.0))
    found = answer(intervene(session, Intervene(session.node, kinds)))
    assert (found.largest_change, found.kl_bits) == (0.0, 0.0)


@pytest.mark.parametrize("settings", [{}, {"kv_bits": 8, "kv_group_size": 32}, {"max_kv_size": 16}])
def test_looking_leaves_the_session_as_it_was(zoo: Zoo, settings: dict[str, Any]) -> None:
    session, alone = opened(zoo, "llama", **settings), opened(zoo, "llama", **settings)
    attention, calls = (
        mx.fast.scaled_dot_product_attention,
        type(decoder_layers(session.runner.model)[0]).__call__,
    )
    before = session.node, len(session.tree), session.kv.offset, session.logits.tobytes()
    for scope in ("token", "context"):
        answer(intervene(session, Intervene(session.node, (Intervention("head", 0, 1),), scope)))
        answer(
            intervene(
                session, Intervene(session.tree[session.node].parent, (Intervention("layer", 0),), scope)
            )
        )
    assert (session.node, len(session.tree), session.kv.offset, session.logits.tobytes()) == before
    assert mx.fast.scaled_dot_product_attention is attention
    assert type(decoder_layers(session.runner.model)[0]).__call__ is calls
    for _ in range(3):
        assert session.step().next.candidates == alone.step().next.candidates
        assert np.array_equal(session.logits, alone.logits)


def test_a_cancel_restores_everything(zoo: Zoo) -> None:
    session = opened(zoo, "llama", list(range(20, 300)))
    attention, polls = mx.fast.scaled_dot_product_attention, iter([False, False, False, True])
    with pytest.raises(Cancelled):
        answer(
            intervene(
                session,
                Intervene(session.node, (Intervention("layer", 0),), "context"),
                lambda: next(polls, True),
            )
        )
    assert mx.fast.scaled_dot_product_attention is attention
    assert session.verify().largest_difference == 0.0 or session.verify().same_order


def test_an_earlier_node_and_the_first_one(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    model = session.runner.model
    for depth in (1, 9):
        node = session.tree.nodes(session.node)[depth - 1]
        with swapped(decoder_layers(model)[1], identity):
            assert_is(
                answer(intervene(session, Intervene(node, (Intervention("layer", 1),)))),
                logits(model, IDS[:depth]),
            )


def test_the_cost_is_told(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    found = answer(intervene(session, Intervene(session.node, (Intervention("layer", 1),), "context")))
    again = 1  # for the logits before the token, which a prefill does not compute
    assert found.tokens_run == again + 2 + len(IDS)  # plain, under taps that change nothing, and the path
    assert found.facts.ms > 0
    assert found.rounding > 0
    assert (
        answer(intervene(session, Intervene(session.node, (Intervention("layer", 1),)))).tokens_run
        == again + 3
    )


def test_a_scale_that_a_norm_undoes_is_told(zoo: Zoo) -> None:
    session = opened(zoo, "gemma3")
    found = answer(intervene(session, Intervene(session.node, (Intervention("mlp", 0, scale=2.0),))))
    assert "a norm follows" in found.note
    assert (
        answer(intervene(session, Intervene(session.node, (Intervention("mlp", 0),)))).largest_change > 1e-3
    )


# ---- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interventions", "message"),
    [
        ([], "0 interventions were given. Give 1 to 64."),
        ([Intervention("layer", 99)], "There is no L100: this model has 2 layers. Choose L1 to L2."),
        ([Intervention("layer", -1)], "There is no L0: this model has 2 layers. Choose L1 to L2."),
        ([Intervention("head", 0, -1)], "There is no h0: heads count from h1. Choose another head."),
        ([Intervention("head", 0, 4)], "L1 has 4 heads: there is no h5. Choose h1 to h4."),
        ([Intervention("head", 0)], "The number of a head is missing. A head needs a number;"),
        ([Intervention("mlp", 0, 1)], "The number of a head makes no sense for a unit of kind mlp. A head"),
        ([Intervention("layer", 0, scale=math.nan)], "The scale nan is out of range. Give -100 to 100"),
        ([Intervention("layer", 0, scale=math.inf)], "The scale inf is out of range."),
        ([Intervention("layer", 0, scale=1e9)], "The scale 1e+09 is out of range."),
        (
            [Intervention("recurrence", 0)],
            "L1 has no recurrence that is a module of its own. Choose its attention or",
        ),
        ([Intervention("soul", 0)], "There is no kind of unit 'soul'. Choose one of head, attention"),  # type: ignore[arg-type]
        ([Intervention("layer", 0)] * 65, "65 interventions were given. Give 1 to 64."),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(
    zoo: Zoo, interventions: list[Intervention], message: str
) -> None:
    session = opened(zoo, "llama")
    with pytest.raises(StepError) as raised:
        answer(intervene(session, Intervene(session.node, interventions)))
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_nothing_is_held_where_the_model_is_not_computed_as_before(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(zoo, "llama")
    failed = replace(baseline(session, session.node), check=Check("forward", 1.0, 0.0))
    monkeypatch.setattr("engine.inside.interventions.baseline", lambda *_: failed)
    before = session.node, len(session.tree)
    with pytest.raises(StepError, match="forward"):
        list(hold(session, HoldInterventions(session.node, (Intervention("layer", 0),))))
    assert (session.node, len(session.tree)) == before


def test_logits_that_are_not_numbers_are_refused() -> None:
    for bad in (np.inf, np.nan):
        with pytest.raises(StepError, match="With this intervention the logits are not numbers"):
            changed_masses(np.array([1, bad, 2], np.float32))


def test_what_a_layer_does_not_have_or_return_is_refused(zoo: Zoo) -> None:
    model, given = zoo.load("llama").model, mx.zeros((1, 3, 8))
    with pytest.raises(StepError, match="this attention has 2 heads"):
        Scaling(model, [Intervention("head", 0, 2)]).heads(0, mx.zeros((1, 2, 3, 8)))
    with pytest.raises(StepError, match="L1 returns another shape than it is given"):
        Scaling(model, [Intervention("layer", 0)]).layer(0, given, given[:, :2])


def test_a_model_without_attention_says_what_it_has(zoo: Zoo) -> None:
    session = opened(zoo, "mamba2")
    with pytest.raises(StepError, match=r"L1 has no heads .* Choose the whole layer\."):
        answer(intervene(session, Intervene(session.node, (Intervention("head", 0, 0),))))
    with pytest.raises(StepError, match=r"L2 has no attention .* Choose its recurrence or the whole layer\."):
        answer(intervene(session, Intervene(session.node, (Intervention("attention", 1),))))


def test_a_node_that_is_not_there_is_refused(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    for node in (0, -1, 10_000):
        with pytest.raises(StepError):
            answer(intervene(session, Intervene(node, (Intervention("layer", 0),))))


# ---- through the worker -------------------------------------------------------------------------------


def test_the_commands_are_answered_by_their_records() -> None:
    engine = Unthreaded(LoadSettings())
    engine.do(
        protocol.Prefill("Once upon a time, there was a girl", chat=False),
        protocol.Prefill("Once upon a time, there was a boy", chat=False),
        protocol.Intervene(8, (Intervention("head", 0, 0),)),
        protocol.SweepHeads(8),
        protocol.Intervene(8, (Intervention("layer", 99),)),
    )
    found = engine.records
    assert next(record for record in found if isinstance(record, protocol.Intervened)).node == 8
    assert kinds(found[-5:]) == [
        "Measuring", "HeadsSwept", "Ended", "Failure", "Ended",
    ]  # fmt: skip


# ---- holding them ------------------------------------------------------------------------------

OFF = (Intervention("layer", 0),)
OTHER = (Intervention("layer", 0, scale=0.5),)
VECTOR = np.random.default_rng(3).normal(size=64).astype(np.float32)
STEERED = (Intervention("direction", 0, None, 2.0, Direction("up", 0, floats(VECTOR, VECTOR.shape))),)


def reference(session: Session, node: int) -> Row:
    """The logits after a node, by a model whose first layer is really scaled, or steered, from the token on where the
    node's branch began; computed with no cache."""
    ids, model = session.tree.tokens(node), session.runner.model
    held = session.interventions.at(node)
    begin = session.tree[session.interventions.first(node)].depth - 1 if held else len(ids)

    def scale(given: Any, result: Any) -> Any:
        state, factor = stream_of(result), held[0].scale if held else 1.0
        late = (mx.arange(len(ids)) >= begin)[None, :, None]
        steered = held == STEERED
        changed = state + factor * mx.array(VECTOR) if steered else given + factor * (state - given)
        return with_stream(result, mx.where(late, changed, state))

    with swapped(decoder_layers(model)[0], scale):
        return logits(model, ids)


def assert_right(session: Session) -> None:
    """The current node's logits are the reference's."""
    expected = reference(session, session.node)
    assert np.abs(session.logits - expected).max() < 2e-5 * np.abs(expected).max() + 1e-5


def held(session: Session, interventions: tuple[Intervention, ...] = OFF) -> int:
    """Hold interventions at the current node; returns the first node of the branch."""
    *_, step, last = hold(session, HoldInterventions(session.node, interventions))
    assert isinstance(step, protocol.Step)
    assert isinstance(last, protocol.InterventionsHeld)
    assert (last.node, last.interventions) == (session.node, interventions)
    assert step.origin == "intervened"
    return session.node


@pytest.mark.wide(3)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("change", [OFF, STEERED], ids=["off", "steered"])
def test_every_token_of_a_branch_is_that_of_a_changed_model(
    zoo: Zoo, name: str, change: tuple[Intervention, ...]
) -> None:
    session = opened(zoo, name)
    own = session.logits.copy()
    for _ in range(3):
        session.step()
    expected = answer(intervene(session, Intervene(session.node, change, top=100)))
    held(session, change)
    assert {each.after.id: each.logit_after for each in expected.candidates} == {
        each.after.id: float(session.logits[each.after.id]) for each in expected.candidates
    }
    for _ in range(5):
        assert_right(session)
        assert session.step().origin == "intervened"
    assert_right(session)
    verified = session.verify()
    assert verified.interventions == change
    assert verified.largest_difference <= verified.rounding
    plain = session.runner.fresh().forward_path(session.tree.tokens(session.node), ())
    assert np.abs(session.logits - plain).max() > 1e-3
    session.move(len(IDS))
    assert np.abs(session.logits - own).max() <= verified.rounding


@pytest.mark.wide(2)
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
    for _ in range(25):
        act = chance.choice(["step", "step", "choose", "move", "move", "hold", "turn", "run"])
        nodes = [node for node in range(2, len(session.tree)) if session.tree[node].token >= 0]
        if act == "step":
            session.step()
        elif act == "choose":
            session.choose(chance.randrange(20, 60))
        elif act == "move":
            list(session.move_and_step(chance.choice(nodes)))
        elif act == "hold":
            node = chance.choice([node for node in nodes if not session.tree[node].intervention_set])
            list(hold(session, HoldInterventions(node, chance.choice([OFF, OTHER, STEERED]))))
        elif act == "turn":
            list(session.prefill("", [chance.randrange(20, 60) for _ in range(4)], parent=session.node))
        else:
            steps = run(session, lambda: False)
            for _ in range(3):
                next(steps)
            steps.close()
        assert_right(session)
        assert (
            session.runner.compute
            is session.interventions.computes[session.tree[session.node].intervention_set]
        )
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
    *_, last = hold(session, HoldInterventions(session.node, ()))
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
    assert [session.interventions.at(node) for node in (own, first, second)] == [(), OFF, OTHER]
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
        *_, ahead = lines_ahead(session, here, (picked,), 4)
        assert list(ahead.lines[0].ids) == stepped[1:5]
    *_, ended = search(session, BeamSettings(2, max_tokens=4))
    best = ended.ranking[0]
    assert session.tree[best.node].intervention_set
    list(session.move_and_step(best.node))
    assert_right(session)
    session.move(own)
    list(session.move_and_step(ended.ranking[1].node))
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
        rows = rows_of(run_at(session, here).runner)
        rows.keep([0, 0])
        first = rows.forward([77, 78])[0]
        assert np.abs(first - expected).max() < 2e-5 * np.abs(expected).max()
    session.move(taken.node)
    session.choose(5)
    assert np.abs(rows.forward([5, 5])[0] - session.logits).max() < 1e-4
    assert_right(session)
    plain = rows_of(run_at(session, own).runner).forward([session.tree[here].token])[0]
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
    list(session.prefill("", [21, 22, 23, 24, 25], parent=end))
    assert session.interventions.at(session.node) == OFF
    assert_right(session)


@pytest.mark.parametrize("change", [OFF, STEERED], ids=["off", "steered"])
def test_a_run_under_interventions_takes_the_same_steps(zoo: Zoo, change: tuple[Intervention, ...]) -> None:
    session = opened(zoo, "llama")
    session.step()
    first = held(session, change)
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
            list(hold(session, HoldInterventions(node, interventions)))
        assert (session.node, len(session.tree), session.logits.tobytes()) == before
    first = held(session)
    with pytest.raises(StepError, match=r"computed under interventions \(L1\): a new intervention is for"):
        list(hold(session, HoldInterventions(first, OTHER)))


def test_a_session_without_a_cache_says_why_it_can_not(zoo: Zoo) -> None:
    session = Session(zoo.load("llama", no_kv_cache=True), Settings())
    list(session.prefill("", IDS))
    with pytest.raises(StepError, match="Without a KV cache interventions can't be held"):
        list(hold(session, HoldInterventions(session.node, OFF)))


def test_the_inside_of_the_models_own_tokens_can_be_seen_from_a_branch_and_not_that_of_the_branch(
    zoo: Zoo,
) -> None:
    session = opened(zoo, "llama")
    session.step()
    own, first = session.node, held(session)
    session.step()
    assert answer(read_attention(session, ReadAttention(own))).facts.failed is None
    for node in (first, session.node):
        with pytest.raises(StepError, match=r"views of the inside are for the model's own"):
            answer(read_attention(session, ReadAttention(node)))
        with pytest.raises(StepError, match=r"views of the inside are for the model's own"):
            answer(
                read_lens(session, ReadLens(node, positions=4))
            )  # the first of the four is the model's own
    assert_right(session)


# ---- through the worker ---------------------------------------------------------------------------------


def told(*sent: protocol.Command) -> tuple[list[protocol.Record], Unthreaded]:
    engine = Unthreaded(LoadSettings())
    engine.do(*sent)
    return engine.records, engine


def test_a_restored_session_has_its_branches_with_their_numbers() -> None:
    wide = Direction("up", 2, floats(np.random.default_rng(4).normal(size=256), (256,)))
    steer = Intervention("direction", 4, None, 3.0, wide)
    head = (Intervention("head", 5, 0), Intervention("mlp", 3, scale=0.5), steer)
    found, engine = told(
        protocol.Prefill("Once upon a time, there was a girl", chat=False),
        protocol.HoldInterventions(8, head), protocol.TakeStep(), protocol.TakeStep(), protocol.Race(),
    )  # fmt: skip
    steps = [record for record in found if isinstance(record, protocol.Step)]
    assert [step.origin for step in steps] == ["intervened"] * 3
    refused = next(record for record in found if isinstance(record, protocol.Failure))
    assert "measurements are for the model's own" in refused.message
    tree, logits = engine.session.tree, engine.session.logits
    grown = [
        Grown(node, tree[node].parent, tree[node].token, tree[node].origin, tree[node].has_step,
              interventions=head if node == steps[0].node else ())
        for node in range(1, len(tree))
    ]  # fmt: skip
    again, other = told(protocol.Restore(tuple(grown), steps[-1].node))
    restored = next(record for record in again if isinstance(record, protocol.Restored))
    assert max(abs(a - b.logprob) for a, b in zip(restored.logprobs, steps, strict=True)) < 1e-4
    assert np.abs(other.session.logits - logits).max() < 1e-3
    assert other.session.interventions.at(steps[-1].node) == head
    without = [protocol.Grown(each.node, each.parent, each.id, each.origin, each.has_step) for each in grown]
    failed, _ = told(protocol.Restore(tuple(without), steps[-1].node))
    assert any(isinstance(record, protocol.Failure) for record in failed)
