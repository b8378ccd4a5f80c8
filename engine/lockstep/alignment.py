"""Where two cuts of one text have common borders, and whether two tokenizers have the same tokens. No MLX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from engine.model.tokens import Tokens


class Span(NamedTuple):
    """The tokens of both cuts between two borders: places from `first` to before `end`."""

    first: int
    end: int
    other_first: int
    other_end: int


def one_by_one(count: int, other: int = 0) -> list[Span]:
    """The spans of a text that has the same tokens in both, `other` places later in the second."""
    return [Span(place, place + 1, place + other, place + other + 1) for place in range(count)]


def by_bytes(ends: Sequence[int], other_ends: Sequence[int]) -> list[Span]:
    """The spans between the common borders of two cuts.

    Args:
        ends: Bytes of the text up to the end of each token; marks that a tokenizer adds have none.
        other_ends: The other cut's.
    """
    borders, other_borders = _borders(ends), _borders(other_ends)
    common = [end for end in borders if end in other_borders and end > 0]
    spans, first, other_first = [], borders.get(0, 0), other_borders.get(0, 0)
    for end in common:
        spans.append(Span(first, borders[end], other_first, other_borders[end]))
        first, other_first = borders[end], other_borders[end]
    return spans


def _borders(ends: Sequence[int]) -> dict[int, int]:
    """By byte, how many tokens are before a border there: marks without bytes belong to what is before them."""
    return {end: place + 1 for place, end in enumerate(ends)}


def byte_ends(raws: Sequence[bytes], text: bytes) -> list[int] | None:
    """Bytes of a text up to the end of each of its tokens; None where the tokens don't spell the text.

    Not the text's own are the marks that a tokenizer adds at both ends, and the space that sentencepiece puts before
    the first word.
    """
    joined, ends = b"".join(raws), list(accumulate(map(len, raws)))
    starts = [0, *ends]
    places = (place for start in starts for place in (start, start + joined.startswith(b" ", start)))
    begin = next((place for place in places if joined.startswith(text, place)), None)
    if begin is None:
        return None
    return [min(max(end - begin, 0), len(text)) for end in ends]


def first_difference(one: Tokens, other: Tokens) -> int | None:
    """The first id that is another token in two tokenizers; None where all are the same.

    One may have more rows than the other as long as no token of its own has them: they are padding.
    """
    for token in range(max(one.vocabulary, other.vocabulary)):
        mine = one.raw(token) if token < one.vocabulary else b""
        theirs = other.raw(token) if token < other.vocabulary else b""
        if mine != theirs or one.is_special(token) != other.is_special(token):
            return token
    return None


class Window(NamedTuple):
    """Some spans that are read together."""

    first: int
    scored: int
    """The first span that wasn't read in the window before."""
    end: int


def windows(spans: Sequence[Span], size: int, other_size: int) -> Iterator[Window]:
    """Cut a text into windows that overlap by half, so that what is scored has at least as much before it.

    Args:
        spans: Of the whole text.
        size: Tokens of the first cut in a window at most.
        other_size: Of the second.

    Yields:
        One window where the text fits.
    """
    first = scored = 0
    while scored < len(spans):
        end = scored + 1  # a span of more tokens than a window is read all the same
        while end < len(spans) and _fits(spans[first], spans[end], size, other_size):
            end += 1
        yield Window(first, scored, end)
        scored, half = end, (spans[end - 1].end - spans[first].first) // 2
        while first < scored - 1 and spans[scored - 1].end - spans[first].first > half:
            first += 1


def _fits(first: Span, last: Span, size: int, other_size: int) -> bool:
    return last.end - first.first <= size and last.other_end - first.other_first <= other_size
