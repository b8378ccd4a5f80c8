"""Common borders of two cuts, and windows over them."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.lockstep.spans import Span, by_bytes, byte_ends, one_by_one, windows
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
    assert [place for each in cut for place in range(each.scored, each.end)] == list(range(count))
    for number, each in enumerate(cut):
        assert each.end - each.first <= size
        assert (each.scored - each.first >= size // 2 - 1) if number else each.scored == each.first == 0
    assert len(cut) == 1 or count > size


def test_a_tokenizer_is_the_same_as_itself(zoo: Zoo) -> None:
    from engine.lockstep.spans import first_difference

    assert first_difference(zoo.load("llama").tokens, zoo.load("gpt2").tokens) is None
