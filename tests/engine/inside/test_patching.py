"""Activation patching and sweeps: many changed forwards in one."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import mlx.core as mx
import numpy as np
import pytest

from engine.errors import Cancelled, StepError
from engine.inside import patching
from engine.inside.interventions import intervene
from engine.inside.patching import (
    ActivationCache,
    ActivationPatch,
    forward_rows,
    patch_activations,
    sweep_heads,
)
from engine.inside.taps import Edits
from engine.model.layers import decoder_layers
from engine.protocol import ActivationsPatched, HeadsSwept, Intervene, Measuring, PatchActivations, SweepHeads
from engine.session.session import Session
from engine.settings import Settings
from inspector.state.inside import joined
from tests.engine.inside.looking import answer
from tests.engine.inside.test_interventions import logits, opened, stream_of, swapped, with_stream
from tests.engine.sessions import go_back
from tests.zoo import Zoo

ONE = [31, 45, 77, 90, 12, 33, 61, 25]
OTHER = [31, 45, 77, 91, 12, 34, 61, 25]
"""They differ at positions 3 and 5."""
TOKEN, RIVAL = 100, 200


def opened_on(zoo: Zoo, name: str, *prompts: list[int], **settings: Any) -> tuple[Session, list[int]]:
    session, ends = Session(zoo.load(name, **settings), Settings()), []
    for ids in prompts:
        list(session.prefill("", ids))
        ends.append(session.node)
    return session, ends


def patched(session: Session, node: int, source: int, **more: Any) -> ActivationsPatched:
    *progress, last = patch_activations(session, PatchActivations(node, source, TOKEN, RIVAL, **more))
    assert progress
    assert all(isinstance(record, Measuring) for record in progress)
    assert isinstance(last, ActivationsPatched)
    return last


def difference(row: Any) -> float:
    return float(row[TOKEN] - row[RIVAL])


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-oss", "mixtral", "lfm2", "mamba2", "qwen3-next"])
def test_every_share_is_that_of_a_model_whose_layer_returns_the_other_activation(zoo: Zoo, name: str) -> None:
    session, (node, source) = opened_on(zoo, name, ONE, OTHER)
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


LONGER = [31, 45, 77, 91, 92, 93, 33, 61, 25]
"""One more token than `ONE`: three in the place of its fourth and fifth."""


@pytest.mark.wide(1)
@pytest.mark.parametrize(("path", "given"), [(ONE, LONGER), (LONGER, ONE)], ids=["longer", "shorter"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-oss", "mixtral", "lfm2", "mamba2", "qwen3-next"])
def test_of_another_length_what_faces_a_token_of_the_source_gets_its_activation(
    zoo: Zoo, name: str, path: list[int], given: list[int]
) -> None:
    session, (node, source) = opened_on(zoo, name, path, given)
    found = patched(session, node, source)
    assert found.facts.failed is None
    shift = len(given) - len(path)
    assert (found.first, found.shift) == (3, shift)
    begin = 3 + max(0, -shift)  # the replaced tokens are matched from their end: as many as both have
    faced = {2: 2} | {place: place + shift for place in range(begin, len(path))}
    assert [column.position for column in found.columns] == [*faced]
    assert [column.source_id for column in found.columns] == [given[place] for place in faced.values()]
    assert [column.source_position for column in found.columns] == [*faced.values()]
    assert found.floor is not None
    model = session.runner.model
    own, theirs = difference(logits(model, path)), difference(logits(model, given))
    assert (found.difference, found.source_difference) == pytest.approx((own, theirs), abs=1e-4)
    for index, layer in enumerate(decoder_layers(model)):
        taken: list[Any] = []
        with swapped(layer, lambda x, result, taken=taken: taken.append(stream_of(result)) or result):
            logits(model, given)
        for position, partner in faced.items():

            def put(x: Any, result: Any, at: Any = (position, partner), taken: list[Any] = taken) -> Any:
                here = (mx.arange(len(path)) == at[0])[None, :, None]
                return with_stream(result, mx.where(here, taken[0][:, at[1] : at[1] + 1], stream_of(result)))

            with swapped(layer, put):
                reference = (difference(logits(model, path)) - own) / (theirs - own)
            share = found.share(index, position)
            assert share == pytest.approx(reference, abs=2e-3 / abs(theirs - own) + 1e-3)
    assert all(found.share(0, place) is None for place in range(3, begin))
    assert found.share(0, 1) == 0.0


def test_where_one_is_the_beginning_of_the_other_their_last_tokens_face_each_other(zoo: Zoo) -> None:
    session, (node, source) = opened_on(zoo, "llama", [31, 45, 25], [31, 45, 25, 77, 25])
    found = patched(session, node, source)
    assert found.facts.failed is None
    assert [(each.position, each.id, each.source_id) for each in found.columns] == [(1, 45, 45), (2, 25, 25)]
    assert found.share(1, 2) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("count", [1, 3])
def test_of_another_length_smaller_batches_find_the_same(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    session, (node, source) = opened_on(zoo, "llama", ONE, LONGER)
    whole = patched(session, node, source)
    monkeypatch.setattr(patching, "MOST_ROWS", count)
    few = patched(session, node, source)
    assert few.facts.failed is None
    for layer in (0, 1):
        assert few.shares.row(layer) == pytest.approx(whole.shares.row(layer), abs=1e-3)


def test_nothing_before_the_first_difference_and_all_of_it_at_the_end(zoo: Zoo) -> None:
    session, (node, source) = opened_on(zoo, "llama", ONE, OTHER)
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
    session, _ = opened_on(zoo, name, ONE)
    runner, count = session.runner, 4
    source = ActivationCache(runner.model, kind)
    own = forward_rows(runner, [OTHER], count, [source])
    assert source.states
    for layer in (0, 1):
        again = forward_rows(runner, [OTHER], count, [ActivationPatch(layer, source, [0, 3, 5, 7])])
        assert np.array_equal(again, own)
    assert np.array_equal(forward_rows(runner, [OTHER], count, [Edits()]), own)


@pytest.mark.parametrize("kind", ["attention", "mlp"])
def test_parts_that_get_the_same_give_the_same(zoo: Zoo, kind: Any) -> None:
    session, (node, source) = opened_on(zoo, "llama", ONE, OTHER)
    found = patched(session, node, source, part=kind)
    assert found.facts.failed is None
    assert found.layers == (0, 1)
    assert found.share(0, 2) == 0.0
    assert any(found.share(0, position) for position in range(3, 8))


@pytest.mark.wide(1)
@pytest.mark.parametrize("settings", [{}, {"kv_bits": 8, "kv_group_size": 32}])
def test_smaller_batches_find_the_same(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    session, (node, source) = opened_on(zoo, "llama", ONE, OTHER, **settings)
    whole = patched(session, node, source)
    assert whole.rows == 6
    assert whole.facts.failed is None
    for count in (1, 4):
        monkeypatch.setattr(patching, "MOST_ROWS", count)
        few = patched(session, node, source)
        assert few.rows == count
        assert few.facts.failed is None
        for layer in (0, 1):
            assert few.shares.row(layer) == pytest.approx(whole.shares.row(layer), abs=1e-3)


def test_a_branch_of_the_same_tree_can_be_the_source_and_nothing_moves(zoo: Zoo) -> None:
    session, (end,) = opened_on(zoo, "llama", ONE)
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
    session, (node, source) = opened_on(zoo, "llama", ONE, OTHER)
    with pytest.raises(StepError, match="Both paths have the same tokens"):
        patched(session, node, node)
    with pytest.raises(StepError, match="Both paths have the same difference"):
        list(patch_activations(session, PatchActivations(node, source, TOKEN, TOKEN)))
    with pytest.raises(StepError):
        patched(session, node, 10_000)
    monkeypatch.setattr("engine.inside.patching.MOST_POSITIONS", 3)
    with pytest.raises(StepError, match="differ from token 4 on: 5 positions"):
        patched(session, node, source)


def test_a_batch_without_room_is_refused_and_other_failures_stay_as_they_are(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = opened_on(zoo, "llama", ONE)[0].runner
    for said, kind, words in (
        ("[malloc] Unable to allocate 9 bytes", StepError, "not enough memory for the batch"),
        ("another", RuntimeError, "another"),
    ):
        monkeypatch.setattr(type(runner.kv), "run", Mock(side_effect=RuntimeError(said)))
        with pytest.raises(kind, match=words):
            forward_rows(runner, [[5]], 2, [Edits()])


def test_of_another_length_and_with_another_last_token_the_last_ones_face_each_other(zoo: Zoo) -> None:
    session, (node, longer) = opened_on(zoo, "llama", ONE, [*OTHER, 5, 6])
    found = patched(session, node, longer)
    assert found.facts.failed is None
    assert (found.columns[-1].id, found.columns[-1].source_id) == (ONE[-1], 6)
    assert found.share(1, len(ONE) - 1) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt-oss", "mamba2"])
def test_an_alignment_is_followed(zoo: Zoo, name: str) -> None:
    """Against the model with one activation put in by hand; what is not in the alignment is not replaced."""
    session, (node, source) = opened_on(zoo, name, ONE, LONGER)
    facing = ((0, 0), (1, 1), (3, 3), (4, 6), (7, 8))
    found = patched(session, node, source, alignment=facing)
    assert found.facts.failed is None
    assert found.aligned
    assert [(each.position, each.source_position) for each in found.columns] == [(3, 3), (4, 6), (7, 8)]
    assert found.share(0, 5) is None
    assert found.share(0, 1) == 0.0
    model = session.runner.model
    own, theirs = difference(logits(model, ONE)), difference(logits(model, LONGER))
    layer, taken = decoder_layers(model)[0], []
    with swapped(layer, lambda x, result: taken.append(stream_of(result)) or result):
        logits(model, LONGER)

    def put(x: Any, result: Any) -> Any:
        here = (mx.arange(len(ONE)) == 4)[None, :, None]
        return with_stream(result, mx.where(here, taken[0][:, 6:7], stream_of(result)))

    with swapped(layer, put):
        reference = (difference(logits(model, ONE)) - own) / (theirs - own)
    assert found.share(0, 4) == pytest.approx(reference, abs=2e-3 / abs(theirs - own) + 1e-3)


@pytest.mark.parametrize(
    ("facing", "said"),
    [
        (((0, 0), (8, 8)), "Token 9 can't face token 9"),
        (((0, 0), (7, 9)), "Token 8 can't face token 10"),
        (((-1, 0), (7, 8)), "Token 0 can't face"),
        (((3, 4), (4, 4)), "Token 5 faces token 5 of the source, and token 4 before it faces token 5"),
        (((4, 4), (3, 5)), "Token 4 faces token 6"),
        (((0, 0), (1, 1)), "No token from the difference on"),
        ((), "No token from the difference on"),
    ],
)
def test_what_is_no_alignment_is_refused(zoo: Zoo, facing: Any, said: str) -> None:
    session, (node, source) = opened_on(zoo, "llama", ONE, LONGER)
    with pytest.raises(StepError, match=said):
        patched(session, node, source, alignment=facing)


def test_a_model_without_such_parts_says_so(zoo: Zoo) -> None:
    session, (node, source) = opened_on(zoo, "mamba2", ONE, OTHER)
    with pytest.raises(
        StepError, match=r"No layer of this model has an attention of its own\. Replace whole"
    ):
        patched(session, node, source, part="attention")


def test_a_cancel_ends_it(zoo: Zoo) -> None:
    session, (node, source) = opened_on(zoo, "llama", ONE, OTHER)
    attention, polls = mx.fast.scaled_dot_product_attention, iter([False] * 4)
    with pytest.raises(Cancelled):
        list(
            patch_activations(
                session, PatchActivations(node, source, TOKEN, RIVAL), lambda: next(polls, True)
            )
        )
    assert mx.fast.scaled_dot_product_attention is attention
    assert session.verify().largest_difference < 1e-4


# ---- sweeps ------------------------------------------------------------------------------------


def swept(session: Session, *args: Any) -> HeadsSwept:
    *progress, last = sweep_heads(session, SweepHeads(session.node, *args))
    assert progress
    assert all(isinstance(record, Measuring) for record in progress)
    assert isinstance(last, HeadsSwept)
    return last


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    "name", ["llama", "gemma3", "gpt-oss", "mixtral", "pocket", "mamba2", "lfm2", "deepseek-v2", "qwen3-next"]
)
def test_each_row_is_a_single_intervention(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name, list(range(300, 340)))
    found = swept(session, 7, 9)
    assert found.facts.failed is None
    assert found.rows > 1
    scale = float(np.abs(session.logits).max())
    for unit in found.units:
        alone = answer(intervene(session, Intervene(session.node, (unit.intervention,), top=100)))
        assert unit.kl_bits == pytest.approx(alone.kl_bits, rel=1e-3, abs=1e-5)
        best = max(alone.candidates, key=lambda each: each.logit_after)
        assert unit.top == best.after.id or best.logit_after == pytest.approx(
            next(each.logit_after for each in alone.candidates if each.after.id == unit.top), abs=1e-5 * scale
        )
        assert unit.top_prob == pytest.approx(best.after.prob, rel=1e-3)


def test_the_logit_is_followed_and_the_difference_too(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    best = int(session.logits.argmax())
    session.choose(next(each for each in (77, 78) if each != best))  # what was taken since changes nothing
    go_back(session)
    likeliest, given = swept(session), swept(session, 5, 6)
    assert (likeliest.token, likeliest.other, likeliest.difference) == (best, None, None)
    assert {unit.difference_change for unit in likeliest.units} == {None}
    assert (given.token, given.other) == (5, 6)
    assert given.difference == pytest.approx(float(session.logits[5] - session.logits[6]), abs=1e-5)
    five, six = swept(session, 5), swept(session, 6)
    for unit, one, other in zip(given.units, five.units, six.units, strict=True):
        assert unit.logit_change == one.logit_change
        assert unit.difference_change == pytest.approx(one.logit_change - other.logit_change, abs=1e-5)


def test_every_head_part_and_layer_is_there_once(zoo: Zoo) -> None:
    units = [unit.intervention for unit in swept(opened(zoo, "llama")).units]
    labels = [unit.label for unit in units]
    assert labels == [
        f"L{layer}{unit}"
        for layer in (1, 2)
        for unit in (" h1", " h2", " h3", " h4", " attention", " MLP", "")
    ]  # fmt: skip
    mamba = swept(opened(zoo, "mamba2"))
    assert [unit.intervention.label for unit in mamba.units] == ["L1 recurrence", "L1", "L2 recurrence", "L2"]
    assert mamba.missing == ("L1, L2: no heads that could be told apart.",)


@pytest.mark.parametrize("settings", [{}, {"kv_bits": 8, "kv_group_size": 32}])
@pytest.mark.parametrize("room", [1, 5])
def test_smaller_batches_sweep_the_same(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, room: int, settings: dict[str, Any]
) -> None:
    session = opened(zoo, "llama", **settings)
    whole = swept(session)
    monkeypatch.setattr(patching, "BYTES", whole.row_bytes * room)
    few = swept(session)
    assert few.rows == room
    assert whole.rows > room
    assert ("one by one" in few.note) == (room == 1)
    for one, other in zip(whole.units, few.units, strict=True):
        assert one.intervention == other.intervention
        assert one.kl_bits == pytest.approx(other.kl_bits, rel=1e-3, abs=1e-5)
        assert one.logit_change == pytest.approx(other.logit_change, abs=1e-4)


def test_a_sweep_that_is_cancelled_leaves_the_session_as_it_was(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(zoo, "llama")
    before = session.node, len(session.tree), session.kv.offset
    monkeypatch.setattr(patching, "MOST_ROWS", 2)
    polls = iter([False] * 3 + [True] * 9)
    with pytest.raises(Cancelled):
        list(sweep_heads(session, SweepHeads(session.node), lambda: next(polls)))
    assert (session.node, len(session.tree), session.kv.offset) == before
    assert session.verify().largest_difference < 1e-4


def test_heads_can_be_swept_a_layer_at_a_time_after_the_parts(zoo: Zoo) -> None:
    session = opened(zoo, "llama", list(range(300, 312)))
    whole = swept(session, 7, 9)
    *_, parts = sweep_heads(session, SweepHeads(session.node, 7, 9, heads=()))
    *_, heads = sweep_heads(session, SweepHeads(session.node, 7, 9, heads=(1,), parts=False))
    assert {each.intervention.kind for each in parts.units} == {"attention", "mlp", "layer"}
    assert [(each.intervention.layer, each.intervention.head) for each in heads.units] == [
        (1, head) for head in range(4)
    ]
    *_, others = sweep_heads(session, SweepHeads(session.node, 7, 9, heads=(0,), parts=False))
    assert isinstance(others, HeadsSwept)
    found = joined(joined(parts, heads), others)
    assert [each.intervention for each in found.units] == [each.intervention for each in whole.units]
    for one, other in zip(found.units, whole.units, strict=True):
        assert one.kl_bits == pytest.approx(other.kl_bits, abs=1e-5)
    assert joined(found, heads).units == found.units


def test_a_layer_without_heads_that_can_be_told_apart_is_refused_in_words(zoo: Zoo) -> None:
    session = opened(zoo, "mamba2", list(range(300, 312)))
    with pytest.raises(StepError, match="L2: no heads that could be told apart"):
        list(sweep_heads(session, SweepHeads(session.node, heads=(1,), parts=False)))


def test_sweeps_that_follow_other_logits_are_not_mixed(zoo: Zoo) -> None:
    session = opened(zoo, "llama", list(range(300, 312)))
    *_, parts = sweep_heads(session, SweepHeads(session.node, 7, heads=()))
    *_, heads = sweep_heads(session, SweepHeads(session.node, 9, heads=(1,), parts=False))
    *_, other = sweep_heads(session, SweepHeads(session.node, 9, heads=()))
    for found in (parts, heads, other):
        assert isinstance(found, HeadsSwept)
    assert joined(parts, heads) is parts
    assert joined(parts, other) is other


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba2", "qwen3-next"])
def test_in_the_whole_context_each_row_is_a_single_intervention_there(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name, list(range(300, 312)))
    *_, found = sweep_heads(session, SweepHeads(session.node, 7, 9, scope="context"))
    assert isinstance(found, HeadsSwept)
    assert found.facts.failed is None
    assert (found.scope, found.rows > 1) == ("context", True)
    token = {unit.intervention: unit.kl_bits for unit in swept(session, 7, 9).units}
    assert [*token] == [unit.intervention for unit in found.units]
    for unit in found.units:
        alone = answer(intervene(session, Intervene(session.node, (unit.intervention,), "context", top=100)))
        assert unit.kl_bits == pytest.approx(alone.kl_bits, rel=2e-3, abs=1e-4)
    assert any(abs(unit.kl_bits - token[unit.intervention]) > 1e-3 for unit in found.units)


def test_a_sweep_of_the_whole_context_can_be_stopped_within_a_forward(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(zoo, "llama", list(range(300, 340)))
    monkeypatch.setattr(patching, "AT_ONCE", 64)
    before = session.node, len(session.tree), session.kv.offset
    polls = iter([False] * 6)
    with pytest.raises(Cancelled):
        list(sweep_heads(session, SweepHeads(session.node, scope="context"), lambda: next(polls, True)))
    assert (session.node, len(session.tree), session.kv.offset) == before
