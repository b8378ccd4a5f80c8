"""A sweep's rows are single interventions, whatever the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.errors import Cancelled, StepError
from engine.inspection.inside.interventions import rows
from engine.inspection.inside.interventions.intervene import intervene
from engine.inspection.inside.interventions.sweep import sweep_heads
from engine.protocol import HeadsSwept, Measuring
from engine.session.session import Session
from inspector.state.inside import joined
from tests.engine.inspection.inside.test_interventions import opened
from tests.zoo import Zoo


def swept(session: Session, *args: Any) -> HeadsSwept:
    *progress, last = sweep_heads(session, session.node, *args)
    assert progress
    assert all(isinstance(record, Measuring) for record in progress)
    assert isinstance(last, HeadsSwept)
    return last


@pytest.mark.wide(2)
@pytest.mark.parametrize(
    "name", ["llama", "gemma3", "gpt-oss", "mixtral", "mamba2", "lfm2", "qwen3-next", "deepseek-v2", "pocket"]
)
def test_each_row_is_a_single_intervention(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name, list(range(300, 340)))
    found = swept(session, 7, 9)
    assert found.facts.failed is None
    assert found.rows > 1
    scale = float(np.abs(session.logits).max())
    for unit in found.units:
        alone = intervene(session, session.node, [unit.intervention], top=100)
        assert unit.kl_bits == pytest.approx(alone.kl_bits, rel=1e-3, abs=1e-5)
        best = max(alone.candidates, key=lambda each: each.logit_after)
        assert unit.top == best.after.id or best.logit_after == pytest.approx(
            next(each.logit_after for each in alone.candidates if each.after.id == unit.top), abs=1e-5 * scale
        )
        assert unit.top_prob == pytest.approx(best.after.prob, rel=1e-3)


def test_the_logit_is_followed_and_the_difference_too(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    session.choose(77)
    session.back()
    taken, given = swept(session), swept(session, 5, 6)
    assert (taken.token, taken.other, taken.difference) == (77, None, None)
    assert {unit.difference_change for unit in taken.units} == {None}
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
def test_smaller_batches_find_the_same(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, room: int, settings: dict[str, Any]
) -> None:
    session = opened(zoo, "llama", **settings)
    whole = swept(session)
    monkeypatch.setattr(rows, "BYTES", whole.row_bytes * room)
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
    monkeypatch.setattr(rows, "MOST_ROWS", 2)
    polls = iter([False] * 3 + [True] * 9)
    with pytest.raises(Cancelled):
        list(sweep_heads(session, session.node, stopped=lambda: next(polls)))
    assert (session.node, len(session.tree), session.kv.offset) == before
    assert session.verify().largest_difference < 1e-4


def test_heads_can_be_swept_a_layer_at_a_time_after_the_parts(zoo: Zoo) -> None:
    session = opened(zoo, "llama", list(range(300, 312)))
    whole = swept(session, 7, 9)
    *_, parts = sweep_heads(session, session.node, 7, 9, heads=())
    *_, heads = sweep_heads(session, session.node, 7, 9, heads=(1,), parts=False)
    assert isinstance(parts, HeadsSwept)
    assert isinstance(heads, HeadsSwept)
    assert {each.intervention.kind for each in parts.units} == {"attention", "mlp", "layer"}
    assert [(each.intervention.layer, each.intervention.head) for each in heads.units] == [
        (1, head) for head in range(4)
    ]
    *_, others = sweep_heads(session, session.node, 7, 9, heads=(0,), parts=False)
    assert isinstance(others, HeadsSwept)
    found = joined(joined(parts, heads), others)
    assert [each.intervention for each in found.units] == [each.intervention for each in whole.units]
    for one, other in zip(found.units, whole.units, strict=True):
        assert one.kl_bits == pytest.approx(other.kl_bits, abs=1e-5)
    assert joined(found, heads).units == found.units


def test_a_layer_without_heads_that_can_be_told_apart_is_refused_in_words(zoo: Zoo) -> None:
    session = opened(zoo, "mamba2", list(range(300, 312)))
    with pytest.raises(StepError, match="L2: no heads that could be told apart"):
        list(sweep_heads(session, session.node, heads=(1,), parts=False))


def test_sweeps_that_follow_other_logits_are_not_mixed(zoo: Zoo) -> None:
    session = opened(zoo, "llama", list(range(300, 312)))
    *_, parts = sweep_heads(session, session.node, 7, heads=())
    *_, heads = sweep_heads(session, session.node, 9, heads=(1,), parts=False)
    *_, other = sweep_heads(session, session.node, 9, heads=())
    for found in (parts, heads, other):
        assert isinstance(found, HeadsSwept)
    assert joined(parts, heads) is parts
    assert joined(parts, other) is other
