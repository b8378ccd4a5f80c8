"""Spans of two cuts of a text, and how far two distributions are apart."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import StepError
from engine.lockstep.spans import (
    Span,
    by_bytes,
    byte_ends,
    entropy_bits,
    kl_nats,
    logprobs_of,
    one_by_one,
    windows,
)
from tests.zoo import Zoo

CUTS = st.lists(st.integers(1, 4), min_size=1, max_size=40)


def ends(sizes: list[int]) -> list[int]:
    return list(accumulate(sizes))


@given(CUTS, CUTS)
def test_spans_cover_both_cuts_in_order_and_have_the_same_bytes(one: list[int], other: list[int]) -> None:
    if short := sum(one) - sum(other):
        (other if short > 0 else one).append(abs(short))
    mine, theirs = ends(one), ends(other)
    spans = by_bytes(mine, theirs)
    assert (spans[0].first, spans[0].other_first) == (0, 0)
    assert (spans[-1].end, spans[-1].other_end) == (len(one), len(other))
    for span in spans:
        assert sum(one[span.first : span.end]) == sum(other[span.other_first : span.other_end]) > 0
    assert all(a.end == b.first and a.other_end == b.other_first for a, b in pairwise(spans))
    assert {mine[span.end - 1] for span in spans} == set(mine) & set(theirs)


def test_marks_without_bytes_stay_out_in_front_and_join_what_is_before_them() -> None:
    assert by_bytes([0, 3, 5], [2, 3, 5, 5]) == [Span(1, 2, 0, 2), Span(2, 3, 2, 4)]
    assert by_bytes([3], [2]) == []


def test_bytes_of_the_text_alone_count() -> None:
    assert byte_ends([b"<s>", b" On", b"ce"], b"Once") == [0, 2, 4]
    assert byte_ends([b"On", b"ce", b"</s>"], b"Once") == [2, 4, 4]
    assert byte_ends([b"on", b"ce"], b"Once") is None


@given(st.integers(1, 300), st.integers(4, 80))
def test_windows_score_each_span_once_with_half_a_window_before_it(count: int, size: int) -> None:
    cut = list(windows(one_by_one(count), size, 10**9))
    assert [place for _, scored, end in cut for place in range(scored, end)] == list(range(count))
    for number, (first, scored, end) in enumerate(cut):
        assert end - first <= size
        assert (scored - first >= size // 2 - 1) if number else scored == first == 0
    assert len(cut) == 1 or count > size


def test_a_tokenizer_is_the_same_as_itself(zoo: Zoo) -> None:
    from engine.lockstep.spans import first_difference

    assert first_difference(zoo.load("llama").tokens, zoo.load("gpt2").tokens) is None


# ---- divergence --------------------------------------------------------------------------------


def written_out(one: list[float], other: list[float]) -> float:
    """KL(P||Q) of two rows of logits, number by number."""
    totals = [math.fsum(math.exp(value) for value in row) for row in (one, other)]
    pairs = [(math.exp(a) / totals[0], math.exp(b) / totals[1]) for a, b in zip(one, other, strict=True)]
    return math.fsum(p * math.log(p / q) for p, q in pairs if p)


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
def test_kl_is_the_sum_over_all_tokens(scale: float) -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        one, other = (random.normal(0, scale, 500).astype(np.float32) for _ in range(2))
        expected = written_out(one.tolist(), other.tolist())
        assert kl_nats(logprobs_of(one), logprobs_of(other)) == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_equal_rows_have_none_at_all_and_rounding_gives_no_negative_one() -> None:
    random = np.random.default_rng(4)
    rows = [random.normal(0, 5, 4096).astype(np.float32) for _ in range(50)]
    assert all(kl_nats(logprobs_of(row), logprobs_of(row.copy())) == 0 for row in rows)
    assert all(kl_nats(logprobs_of(row), logprobs_of(row + np.float32(1e-6))) >= 0 for row in rows)


def test_what_only_the_second_bars_is_infinitely_far() -> None:
    row = np.array([1, 2, 3], np.float32)
    barred = np.array([1, 2, -np.inf], np.float32)
    assert kl_nats(logprobs_of(row), logprobs_of(barred)) == math.inf
    assert kl_nats(logprobs_of(barred), logprobs_of(row)) == pytest.approx(
        written_out([1, 2, -math.inf], [1, 2, 3])
    )
    assert entropy_bits(logprobs_of(barred)) == pytest.approx(0.8399, abs=1e-4)
    assert entropy_bits(logprobs_of(np.zeros(8, np.float32))) == pytest.approx(3)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(StepError, match="not numbers"):
        logprobs_of(np.array([1, np.nan], np.float32))
