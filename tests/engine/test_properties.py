"""What records compute of their own fields."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from engine.protocol import (
    AttentionRead,
    Failure,
    HeadsSwept,
    Loading,
    LockstepSpan,
    ModelFacts,
    NamedPart,
    ScoreRead,
    SteeredStrength,
    StrengthsSwept,
    ends_model,
)
from engine.timing import Tpot
from tests.engine.recording.made_records import made

once = settings(max_examples=3, deadline=None)


@given(made(LockstepSpan))
@once
def test_a_span_compares_what_both_models_scored(span: LockstepSpan) -> None:
    both = replace(
        span, tokens=2, scored=2, other_tokens=1, other_scored=1, logprob=-3.0, other_logprob=-1.0, rank=3,
        other_rank=5, kl_nats=math.log(4),
    )  # fmt: skip
    assert (both.whole, both.kl_bits, both.logprob_change, both.rank_change) == (True, 2.0, 2.0, 2)
    for lacks in ({"scored": 1}, {"other_scored": 0}, {"tokens": 0, "scored": 0}):
        assert replace(both, **lacks).logprob_change is None
    assert (
        replace(both, logprob=None).logprob_change is replace(both, other_logprob=None).logprob_change is None
    )
    assert replace(both, rank=None).rank_change is replace(both, other_rank=None).rank_change is None
    assert replace(both, kl_nats=None).kl_bits is None


@given(made(SteeredStrength), made(StrengthsSwept))
@once
def test_a_strength_is_beyond_the_band_of_random_directions(
    each: SteeredStrength, swept: StrengthsSwept
) -> None:
    for change, beyond in (-1.1, True), (-1.0, False), (0.0, False), (2.0, False), (2.1, True):
        assert replace(each, change_low=-1.0, change_high=2.0, change=change).beyond == beyond
    one, two = replace(each, strength=1.0), replace(each, strength=2.0)
    swept = replace(swept, strengths=(one, two), norm=3.0, stream_norm=2.0)
    assert (swept.at(2.0), swept.at(1.5), swept.share) == (two, None, 1.5)
    assert replace(swept, stream_norm=0.0).share == 0.0


@given(made(HeadsSwept))
@once
def test_swept_units_are_sorted_by_what_they_change(swept: HeadsSwept) -> None:
    changes = [unit.kl_bits for unit in swept.by_kl]
    assert changes == sorted((unit.kl_bits for unit in swept.units), reverse=True)


@given(made(AttentionRead), made(ScoreRead))
@once
def test_the_bytes_of_a_reading_are_those_of_its_numbers(read: AttentionRead, score: ScoreRead) -> None:
    assert read.nbytes == sum(len(layer.weights.packed) for layer in read.layers)
    numbers = (score.scores, score.weights, score.by_key, score.by_query, score.pair_scores)
    assert score.nbytes == sum(len(each.packed) for each in numbers)


@given(made(NamedPart))
@once
def test_the_place_of_a_named_part_counts_from_1(part: NamedPart) -> None:
    after, before = (replace(part.hook, part=name) for name in ("attention", "stream before"))
    assert NamedPart(after).place == ()
    assert (NamedPart(after, 3).place, NamedPart(after, 3, 0).place) == ((4,), (4, 1))
    assert NamedPart(before, 3).place == (3,)


@pytest.mark.parametrize(
    ("record", "ends"),
    [
        (Loading("import", 0, 0, ""), False),
        (Loading("weights", 0, 1, ""), True),
        (Failure("Load", "", ""), True),
        (Failure("Run", "", ""), False),
    ],
)
def test_what_ends_a_model(record: Loading | Failure, ends: bool) -> None:
    assert ends_model(record) == ends


@given(made(ModelFacts))
@once
def test_facts_without_layers_are_of_no_model(facts: ModelFacts) -> None:
    assert [replace(facts, layers=layers).ran for layers in (0, 1)] == [False, True]


def test_tokens_per_second_are_of_the_mean() -> None:
    assert [Tpot(2, mean, 1.0, 1.0).tps for mean in (0.0, 4.0)] == [0.0, 250.0]
