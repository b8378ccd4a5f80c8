"""Activation patching against forwards whose layers really return the other path's activations."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.errors import Cancelled, StepError
from engine.inspection.inside.interventions import rows
from engine.inspection.inside.interventions.patching import Kept, Patch, patch_activations
from engine.inspection.inside.interventions.rows import forward_rows
from engine.inspection.inside.taps import Edits
from engine.model.layers import decoder_layers
from engine.protocol import ActivationsPatched, Measuring
from engine.session.session import Session
from engine.settings import Settings
from tests.engine.inspection.inside.swapped import logits, stream_of, swapped, with_stream
from tests.zoo import Zoo

ONE = [31, 45, 77, 90, 12, 33, 61, 25]
OTHER = [31, 45, 77, 91, 12, 34, 61, 25]
"""They differ at positions 3 and 5."""
TOKEN, RIVAL = 100, 200


def opened(zoo: Zoo, name: str, *prompts: list[int], **settings: Any) -> tuple[Session, list[int]]:
    session, ends = Session(zoo.load(name, **settings), Settings()), []
    for ids in prompts:
        for _ in session.prefill("", ids):
            pass
        ends.append(session.node)
    return session, ends


def patched(session: Session, node: int, source: int, **more: Any) -> ActivationsPatched:
    *progress, last = patch_activations(session, node, source, TOKEN, RIVAL, **more)
    assert progress
    assert all(isinstance(record, Measuring) for record in progress)
    assert isinstance(last, ActivationsPatched)
    return last


def difference(row: Any) -> float:
    return float(row[TOKEN] - row[RIVAL])


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-oss", "mixtral", "lfm2", "mamba2", "qwen3-next"])
def test_every_share_is_that_of_a_model_whose_layer_returns_the_other_activation(zoo: Zoo, name: str) -> None:
    session, (node, source) = opened(zoo, name, ONE, OTHER)
    found = patched(session, node, source)
    assert found.facts.failed is None
    assert (found.first, [column.position for column in found.columns]) == (3, [2, 3, 4, 5, 6, 7])
    model = session.runner.model
    own, given = difference(logits(model, ONE)), difference(logits(model, OTHER))
    assert found.difference == pytest.approx(own, abs=1e-4)
    assert found.source_difference == pytest.approx(given, abs=1e-4)
    for index, layer in enumerate(decoder_layers(model)):
        taken: list[Any] = []
        with swapped(layer, lambda x, result, taken=taken: taken.append(stream_of(result)) or result):
            logits(model, OTHER)
        for position in range(2, len(ONE)):

            def put(x: Any, result: Any, position: int = position, taken: list[Any] = taken) -> Any:
                here = (mx.arange(len(ONE)) == position)[None, :, None]
                return with_stream(result, mx.where(here, taken[0], stream_of(result)))

            with swapped(layer, put):
                reference = (difference(logits(model, ONE)) - own) / (given - own)
            share = found.share(index, position)
            assert share == pytest.approx(reference, abs=2e-3 / abs(given - own) + 1e-3)


def test_nothing_before_the_first_difference_and_all_of_it_at_the_end(zoo: Zoo) -> None:
    session, (node, source) = opened(zoo, "llama", ONE, OTHER)
    found = patched(session, node, source)
    assert [found.share(layer, position) for layer in (0, 1) for position in range(3)] == [0.0] * 6
    assert found.share(1, 7) == pytest.approx(1.0, abs=1e-5)
    assert [found.share(1, position) for position in range(3, 7)] == [
        0.0
    ] * 4  # the last layer acts at its own place
    assert found.share(2, 7) is None
    assert found.share(0, 8) is None


@pytest.mark.parametrize("kind", ["layer", "attention", "mlp"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-oss", "deepseek-v2"])
def test_an_activation_patched_by_its_own_changes_nothing(zoo: Zoo, name: str, kind: Any) -> None:
    session, _ = opened(zoo, name, ONE)
    runner, count = session.runner, 4
    source = Kept(runner.model, kind)
    own = forward_rows(runner, [OTHER], count, [source])
    assert source.states
    for layer in (0, 1):
        again = forward_rows(runner, [OTHER], count, [Patch(layer, source, [0, 3, 5, 7])])
        assert np.array_equal(again, own)
    assert np.array_equal(forward_rows(runner, [OTHER], count, [Edits()]), own)


@pytest.mark.parametrize("kind", ["attention", "mlp"])
def test_parts_that_get_the_same_give_the_same(zoo: Zoo, kind: Any) -> None:
    session, (node, source) = opened(zoo, "llama", ONE, OTHER)
    found = patched(session, node, source, kind=kind)
    assert found.facts.failed is None
    assert found.layers == (0, 1)
    assert found.share(0, 2) == 0.0
    assert any(found.share(0, position) for position in range(3, 8))


@pytest.mark.wide(1)
@pytest.mark.parametrize("settings", [{}, {"kv_bits": 8, "kv_group_size": 32}])
def test_smaller_batches_find_the_same(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    session, (node, source) = opened(zoo, "llama", ONE, OTHER, **settings)
    whole = patched(session, node, source)
    assert whole.rows == 6
    assert whole.facts.failed is None
    for count in (1, 4):
        monkeypatch.setattr(rows, "MOST_ROWS", count)
        few = patched(session, node, source)
        assert few.rows == count
        assert few.facts.failed is None
        for layer in (0, 1):
            assert few.shares.row(layer) == pytest.approx(whole.shares.row(layer), abs=1e-3)


def test_a_branch_of_the_same_tree_can_be_the_source_and_nothing_moves(zoo: Zoo) -> None:
    session, (end,) = opened(zoo, "llama", ONE)
    ends = []
    for token in (55, 66):
        session.move(end)
        session.choose(token)
        ends.append(session.choose(70).node)
    before = session.node, len(session.tree), session.kv.offset, session.logits.tobytes()
    found = patched(session, ends[0], ends[1])
    assert found.first == len(ONE)
    assert found.facts.failed is None
    assert (session.node, len(session.tree), session.kv.offset, session.logits.tobytes()) == before
    assert session.verify().largest_difference < 1e-4


def test_what_can_not_be_compared_is_refused(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    session, (node, source, longer) = opened(zoo, "llama", ONE, OTHER, [*OTHER, 5, 6])
    with pytest.raises(StepError, match=r"10 tokens, 2 more than this path's 8: .* Choose a node as deep"):
        patched(session, node, longer)
    with pytest.raises(StepError, match=r"2 fewer than this path's 10"):
        patched(session, longer, node)
    with pytest.raises(StepError, match="Both paths have the same tokens"):
        patched(session, node, node)
    with pytest.raises(StepError, match="Both paths have the same difference"):
        list(patch_activations(session, node, source, TOKEN, TOKEN))
    with pytest.raises(StepError):
        patched(session, node, 10_000)
    monkeypatch.setattr("engine.inspection.inside.interventions.patching.MOST_POSITIONS", 3)
    with pytest.raises(StepError, match="differ from token 4 on: 5 positions"):
        patched(session, node, source)


def test_a_model_without_such_parts_says_so(zoo: Zoo) -> None:
    session, (node, source) = opened(zoo, "mamba2", ONE, OTHER)
    with pytest.raises(
        StepError, match=r"No layer of this model has an attention of its own\. Replace whole"
    ):
        patched(session, node, source, kind="attention")


def test_a_cancel_ends_it(zoo: Zoo) -> None:
    session, (node, source) = opened(zoo, "llama", ONE, OTHER)
    attention, polls = mx.fast.scaled_dot_product_attention, iter([False] * 4)
    with pytest.raises(Cancelled):
        list(patch_activations(session, node, source, TOKEN, RIVAL, stopped=lambda: next(polls, True)))
    assert mx.fast.scaled_dot_product_attention is attention
    assert session.verify().largest_difference < 1e-4
