"""Contributions as rows: names, running sum, heads in their attention's place; which tokens are compared."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from inspector.documents.attribution import head_rows, part_rows, rows_of
from inspector.state.candidates import compared, ranked
from tests.inspector import fakes
from tests.inspector.views.attribution.reads import read

ATTENTIONS = (1, 3)


def test_rows_follow_the_layers_and_end_at_the_logit() -> None:
    one = read(5, (7,))
    rows = rows_of(one)
    assert [row.name for row in rows] == [
        "embedding", "L1 attention", "L1 MLP", "L2 attention", "L2 MLP",
    ]  # fmt: skip
    assert rows[-1].after == one.reached == one.total == 3.25
    two = read(5, (7, 8))
    assert [row.value for row in rows_of(two)] == pytest.approx([row.value * 1.2 for row in rows])
    assert rows_of(two)[-1].after == pytest.approx(two.reached)


def test_unfolded_heads_stand_under_their_attention_and_by_size_in_its_place() -> None:
    made = read(5, (7, 8))
    names = [row.name for row in rows_of(made, {3})]
    assert names == ["embedding", "L1 attention", "L1 MLP", "L2 attention", "L2 h1", "L2 h2", "L2 MLP"]
    by_size = rows_of(made, set(ATTENTIONS), by_size=True)
    assert [row.name for row in by_size][:2] == ["L2 MLP", "L2 h1"]
    assert "L2 attention" not in [row.name for row in by_size]
    assert sum(row.value for row in by_size) == pytest.approx(made.reached)
    sizes = [abs(row.value) for row in by_size]
    assert sizes == sorted(sizes, reverse=True)


def test_what_an_attention_adds_without_heads_is_a_row_where_it_can_be_seen() -> None:
    made = read(5, (7,), rest=0.5)
    rows = list(head_rows(made, part_rows(made)[1]))
    assert [row.name for row in rows] == ["L1 h1", "L1 h2", "L1 no head"]
    assert sum(row.value for row in rows) == pytest.approx(1.5)
    assert [row.last for row in rows] == [False, False, True]
    assert len({row.key for row in rows}) == 3


def test_a_damaged_record_has_no_rows_rather_than_wrong_ones() -> None:
    made = read(5, (7,))
    attention = made.parts[1]
    parts = (
        replace(made.parts[0], logits=()),
        replace(attention, heads=replace(attention.heads, packed=b"12")),
    )
    assert [row.name for row in rows_of(replace(made, parts=parts), {0, 1})] == ["L1 attention"]


def test_two_writers_of_a_kind_in_a_layer_have_their_own_names() -> None:
    made = read(5, (7,))
    mlp = made.parts[2]
    shared = replace(made, parts=(replace(mlp, name="shared"), replace(mlp, name="experts\x1b")))
    assert [row.name for row in part_rows(shared)] == ["L1 MLP shared", "L1 MLP experts␛"]


def test_the_token_taken_is_compared_with_the_best_other_one() -> None:
    timeline = fakes.session(4).timeline()
    ids = [each.id for each in sorted(timeline.candidates, key=lambda each: each.rank)]
    taken = timeline.taken
    assert taken is not None
    best = next(id for id in ids if id != taken)
    assert compared(timeline) == (taken, best)
    assert ranked(timeline)[0] == taken
    assert set(ranked(timeline)) == set(ids)
    assert compared(timeline, ids[3]) == (ids[3], ids[0])
    assert compared(timeline, against=ids[4]) == (taken, ids[4])
    assert compared(timeline, against=taken) == (best, taken)
    timeline.select(0)
    assert compared(timeline) == (timeline.items[0].id,), "nothing is known of the first token's rivals"
