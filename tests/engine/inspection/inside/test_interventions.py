"""Interventions against models that were really changed; what they must not change; what is refused."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import protocol
from engine.errors import Cancelled, StepError
from engine.inspection.inside.interventions.intervene import intervene
from engine.model.layers import decoder_layers
from engine.protocol import Intervened, Intervention
from engine.sampling.ranking import log_softmax
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.task import Task
from engine.worker import Worker
from tests.engine.inspection.inside.swapped import identity, identity_at_the_end, logits, swapped
from tests.zoo import Zoo

FAMILIES = (
    "llama", "llama-sliding", "qwen2", "gemma3", "gpt2", "phi3", "mixtral", "gpt-oss", "mamba2", "lfm2",
    "qwen3-next", "deepseek-v2",
)  # fmt: skip
IDS = [int(id) for id in np.random.default_rng(5).integers(20, 4000, 21)]


def opened(zoo: Zoo, name: str, ids: list[int] = IDS, **settings: Any) -> Session:
    session = Session(zoo.load(name, **settings), Settings())
    for _ in session.prefill("", ids):
        pass
    return session


def changed(intervened: Intervened) -> dict[int, float]:
    """The logits under the intervention, of the tokens that are listed."""
    return {each.after.id: each.logit_after for each in intervened.candidates}


def assert_is(intervened: Intervened, row: Any) -> None:
    """Its numbers are those of a row of logits."""
    found = changed(intervened)
    assert len(found) >= 10
    assert max(abs(row[id] - logit) for id, logit in found.items()) < 2e-5 * np.abs(row).max()
    logprobs = log_softmax(row)
    assert max(abs(logprobs[each.after.id] - each.after.logprob) for each in intervened.candidates) < 1e-4


# ---- against models that were really changed ------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_switched_off_in_the_context_is_the_identity(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name)
    found = intervene(session, session.node, [Intervention("layer", 1)], "context")
    model = session.runner.model
    with swapped(decoder_layers(model)[1], identity):
        reference = logits(model, IDS)
    assert_is(found, reference)
    assert found.largest_change > 1e-3
    assert found.facts.failed is None


@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_switched_off_here_is_the_identity_for_this_token_alone(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name)
    found = intervene(session, session.node, [Intervention("layer", 0)])
    model = session.runner.model
    with swapped(decoder_layers(model)[0], identity_at_the_end):
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
    found = intervene(session, session.node, [Intervention(kind, 1, scale=scale)], "context")
    model = session.runner.model
    with swapped(decoder_layers(model)[1][part], lambda given, result: scale * result):
        reference = logits(model, IDS)
    assert_is(found, reference)


def test_a_head_switched_off_is_a_model_whose_output_projection_lacks_its_columns(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    found = intervene(session, session.node, [Intervention("head", 1, 2)], "context")
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
    here = intervene(session, session.node, [Intervention("head", 1, 2)])
    assert_is(here, reference)  # the last layer's heads act on no later layer's keys


def test_the_numbers_are_those_of_their_definitions(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    found = intervene(session, session.node, [Intervention("layer", 1)], top=4096)
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


def test_two_interventions_act_together(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    model = session.runner.model
    found = intervene(session, session.node, [Intervention("layer", 0), Intervention("layer", 1)], "context")
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
    found = intervene(session, session.node, kinds)
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
        intervene(session, session.node, [Intervention("head", 0, 1)], scope)
        intervene(session, session.tree[session.node].parent, [Intervention("layer", 0)], scope)
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
        intervene(
            session, session.node, [Intervention("layer", 0)], "context", stopped=lambda: next(polls, True)
        )
    assert mx.fast.scaled_dot_product_attention is attention
    assert session.verify().largest_difference == 0.0 or session.verify().same_order


def test_an_earlier_node_and_the_first_one(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    model = session.runner.model
    for depth in (1, 9):
        node = session.tree.nodes(session.node)[depth - 1]
        with swapped(decoder_layers(model)[1], identity):
            assert_is(intervene(session, node, [Intervention("layer", 1)]), logits(model, IDS[:depth]))


def test_the_cost_is_told(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    found = intervene(session, session.node, [Intervention("layer", 1)], "context")
    again = 1  # for the logits before the token, which a prefill does not compute
    assert found.tokens_run == again + 2 + len(IDS)  # plain, under taps that change nothing, and the path
    assert found.facts.ms > 0
    assert found.rounding > 0
    assert intervene(session, session.node, [Intervention("layer", 1)]).tokens_run == again + 3


def test_a_scale_that_a_norm_undoes_is_told(zoo: Zoo) -> None:
    session = opened(zoo, "gemma3")
    found = intervene(session, session.node, [Intervention("mlp", 0, scale=2.0)])
    assert "a norm follows" in found.note
    assert intervene(session, session.node, [Intervention("mlp", 0)]).largest_change > 1e-3


# ---- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interventions", "message"),
    [
        ([], "0 interventions were given. Give 1 to 64."),
        ([Intervention("layer", 99)], "There is no L100: this model has 2 layers. Choose L1 to L2."),
        ([Intervention("layer", -1)], "There is no L0: this model has 2 layers. Choose L1 to L2."),
        ([Intervention("head", 0, -1)], "There is no h0: heads count from h1. Choose another head."),
        ([Intervention("head", 0, 4)], "L1 has 4 heads: there is no h5. Choose h1 to h4."),
        ([Intervention("head", 0)], "The number of a head is missing. Give one for heads alone."),
        ([Intervention("mlp", 0, 1)], "The number of a head makes no sense for a unit of kind mlp. Give one"),
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
        intervene(session, session.node, interventions)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_a_model_without_attention_says_what_it_has(zoo: Zoo) -> None:
    session = opened(zoo, "mamba2")
    with pytest.raises(StepError, match=r"L1 has no heads .* Choose the whole layer\."):
        intervene(session, session.node, [Intervention("head", 0, 0)])
    with pytest.raises(StepError, match=r"L2 has no attention .* Choose its recurrence or the whole layer\."):
        intervene(session, session.node, [Intervention("attention", 1)])


def test_a_node_that_is_not_there_is_refused(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    for node in (0, -1, 10_000):
        with pytest.raises(StepError):
            intervene(session, node, [Intervention("layer", 0)])


# ---- through the worker -------------------------------------------------------------------------------


def test_the_commands_are_answered_by_their_records() -> None:
    found: list[protocol.Record] = []
    worker = Worker(found.append, lambda: False)
    for command in (
        protocol.Load(LoadSettings()),
        protocol.Prefill("Once upon a time, there was a girl", chat=False),
        protocol.Prefill("Once upon a time, there was a boy", chat=False),
        protocol.Intervene(8, (Intervention("head", 0, 0),)),
        protocol.SweepHeads(8),
        protocol.Intervene(8, (Intervention("layer", 99),)),
    ):
        worker.carry_out(Task(command))
    assert next(record for record in found if isinstance(record, protocol.Intervened)).node == 8
    assert [type(record).__name__ for record in found[-5:]] == [
        "Measuring", "HeadsSwept", "Ended", "Failure", "Ended",
    ]  # fmt: skip
