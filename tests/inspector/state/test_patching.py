"""Pairs and alignments as a person gives them."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.errors import PromptError
from engine.protocol import Candidate, PatchPair
from inspector.cli.subcommands.show import facing_from
from inspector.state.patching import faced_with, facing_words, pair, pairs_from
from tests.inspector.explanations import candidate

PLACES = st.lists(st.integers(0, 30), unique=True, max_size=12).map(sorted)
FACING = st.tuples(PLACES, PLACES).map(lambda sides: tuple(zip(*sides, strict=False)))


def ranked(*texts: tuple[int, float]) -> list[Candidate]:
    """Candidates by their ids and probabilities, the most probable first."""
    return [
        replace(candidate(id, f" {id}", prob), rank=place) for place, (id, prob) in enumerate(texts, start=1)
    ]


@pytest.mark.parametrize(
    ("own", "source", "found"),
    [
        (ranked((1, 0.6), (2, 0.3), (3, 0.1)), ranked((2, 0.7), (1, 0.2), (3, 0.1)), (2, 1)),
        (ranked((1, 0.6), (2, 0.4)), ranked((1, 0.9), (2, 0.1)), (1, 2)),
        (ranked((1, 0.6), (2, 0.4)), ranked((3, 0.7), (4, 0.3)), (3, 1)),
        (ranked((1, 0.6), (2, 0.4)), ranked((1, 0.7), (4, 0.3)), (1, 2)),
        (ranked((1, 0.6), (2, 0.3), (3, 0.1)), ranked((4, 0.6), (2, 0.2), (3, 0.15)), (4, 1)),
        (ranked((1, 1.0)), ranked((1, 1.0)), None),
        (ranked((1, 1.0)), [], None),
        ([], [], None),
    ],
)
def test_two_texts_are_told_apart_by_what_each_favours(
    own: list[Candidate], source: list[Candidate], found: tuple[int, int] | None
) -> None:
    """A token that only one side lists counts as the other's least probable."""
    assert pair(own, source) == found


@given(FACING.filter(bool))
def test_an_alignment_is_read_as_it_is_written(facing: tuple[tuple[int, int], ...]) -> None:
    assert facing_from(facing_words(facing)) == facing


@pytest.mark.parametrize(
    "text",
    ["", "5", "5:", "0:1", "1:0", "a:b", "5-3:1-0", "1-2:3", "1-2:3-5", "1:2,,3:4", "0-9999999:0-9999999"],
)
def test_what_is_no_alignment_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"write|same length|from 1"):
        facing_from(text)


@given(FACING, st.integers(0, 30), st.none() | st.integers(0, 30))
def test_a_changed_alignment_still_rises_on_both_sides(
    facing: tuple[tuple[int, int], ...], place: int, partner: int | None
) -> None:
    changed = faced_with(facing, place, partner)
    for one, other in pairwise(changed):
        assert one[0] < other[0]
        assert one[1] < other[1]
    assert dict(changed).get(place) == partner
    kept = set(changed) - {(place, partner)}
    assert kept <= set(facing)


def test_pairs_are_read_line_by_line() -> None:
    lines = [{"text": "a", "source": "b"}, {"text": "c", "source": "d", "token": " x", "other": " y"}]
    text = "\n\n".join(map(json.dumps, lines)) + "\n"
    assert pairs_from(text, "f") == (PatchPair("a", "b"), PatchPair("c", "d", " x", " y"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f has no pairs"),
        ("nonsense", "Line 1 of f is not JSON"),
        ("[" * 100_000, "Line 1 of f is not JSON"),
        ("[1]", "is not a pair of texts"),
        ('{"text": "a"}', "source is not a text"),
        ('{"text": 1, "source": "b"}', "text is not a text"),
        ('{"text": "a", "source": "b", "more": "c"}', "is not a pair of texts"),
        ('{"text": "a", "source": "b", "token": " x"}', "has only one of the two answers"),
        ('{"text": "a", "source": "b"}\n' * 201, "more than 200 pairs"),
    ],
)
def test_what_is_no_set_of_pairs_is_refused(text: str, said: str) -> None:
    with pytest.raises(PromptError, match=said):
        pairs_from(text, "f")
