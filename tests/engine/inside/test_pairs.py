"""Patching over a set of pairs of texts: the means are those of the single pairs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

import pytest

from engine.errors import Cancelled, StepError
from engine.inside.patching import PLACES, patch_activations, patch_pairs, places_of
from engine.model.load import Loaded, load
from engine.protocol import (
    ActivationsPatched,
    Measuring,
    PairsPatched,
    PatchActivations,
    PatchPair,
    PatchPairs,
)
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.engine.sessions import begun

LOST = "Lily lost her toy. She felt very"
PAIRS = (
    PatchPair(LOST, "Lily found her toy. She felt very", " happy", " sad"),
    PatchPair(LOST, "Lily got a new toy. She felt very", " happy", " sad"),
    PatchPair("Tim had a red ball. He", "Sue had a red ball. She"),
)


@pytest.fixture(scope="module")
def model() -> Loaded:
    return load(LoadSettings(dtype="float32"))


def patched(model: Loaded, pairs: Sequence[PatchPair]) -> PairsPatched:
    *progress, last = patch_pairs(Session(model, Settings()), PatchPairs(tuple(pairs)))
    now = [record for record in progress if isinstance(record, Measuring)]
    assert list(dict.fromkeys(each.done for each in now)) == [*range(len(pairs))]
    assert any(each.detail == f"pair {len(pairs)}, L8" for each in now), "and how far a pair is"
    assert isinstance(last, PairsPatched)
    assert last.facts.failed is None
    return last


@pytest.mark.slow
def test_the_means_are_those_of_the_single_pairs(model: Loaded) -> None:
    found = patched(model, PAIRS[:2])
    assert [(each.token, each.other, each.failure) for each in found.pairs] == [(" happy", " sad", "")] * 2
    single = []
    for pair in PAIRS[:2]:
        session = begun(model, pair.text, echo=None)
        node = session.node
        list(session.prefill(pair.source, session.tokens.encode(pair.source)))
        ids = [session.tokens.encode(text, bare=True)[0] for text in (" happy", " sad")]
        *_, one = patch_activations(session, PatchActivations(node, session.node, *ids))
        assert isinstance(one, ActivationsPatched)
        single.append(one)
    assert [each.place for each in found.places] == ["last changed", "after", "last"] or found.places[
        0
    ].place == "changed"
    for place in found.places:
        having = [each for each in single if places_of(each)[place.place]]
        assert place.pairs == len(having)
        for row in range(len(found.layers)):
            shares = [
                fmean(each.shares.row(row)[at] for at in places_of(each)[place.place]) for each in having
            ]
            assert place.means[row] == pytest.approx(fmean(shares), abs=1e-5)
            assert place.spreads[row] == pytest.approx(stdev(shares) if len(shares) > 1 else 0.0, abs=1e-5)
    last = next(each for each in found.places if each.place == "last")
    assert last.means[-1] == pytest.approx(1.0, abs=1e-4)
    assert last.spreads[-1] == pytest.approx(0.0, abs=1e-4)


def test_without_answers_those_are_followed_that_tell_the_texts_apart(model: Loaded) -> None:
    (pair,) = patched(model, PAIRS[2:]).pairs
    assert pair.token != pair.other
    assert pair.source_difference > pair.difference


def test_a_pair_that_can_not_be_patched_is_left_out_with_the_reason(model: Loaded) -> None:
    wrong = [
        PatchPair(LOST, LOST),
        PatchPair("", LOST),
        PatchPair(LOST, "x", " happy"),
        PatchPair(LOST, "x", " happy", " two of them"),
        PatchPair("word " * 600, LOST),
    ]
    found = patched(model, [*wrong, PAIRS[0]])
    failures = [each.failure for each in found.pairs]
    said = ("same tokens", "", "Only one of the two answers", "tokens, not one", "Give one of 1 to 512")
    assert [words in failure for words, failure in zip(said, failures, strict=False)] == [True] * 5
    assert all(failures[:-1])
    assert failures[-1] == ""
    assert {each.pairs for each in found.places} == {1}
    with pytest.raises(StepError, match="No pair could be patched"):
        patched(model, wrong)


def test_too_many_none_and_a_stop(model: Loaded) -> None:
    for pairs in ((), PAIRS[:1] * 201):
        with pytest.raises(StepError, match="Give 1 to 200"):
            patched(model, pairs)
    with pytest.raises(Cancelled):
        list(patch_pairs(Session(model, Settings()), PatchPairs(PAIRS), lambda: True))


def test_every_class_is_told_apart(model: Loaded) -> None:
    session = begun(model, "One day Lily lost her toy. She felt very", echo=None)
    node = session.node
    text = "One day Tim found a toy. She felt very"
    list(session.prefill(text, session.tokens.encode(text)))
    *_, one = patch_activations(session, PatchActivations(node, session.node, 300, 400))
    assert isinstance(one, ActivationsPatched)
    classes = places_of(one)
    assert tuple(classes) == PLACES
    texts = {place: [one.columns[at].text for at in columns] for place, columns in classes.items()}
    assert texts["last"] == [" very"]
    assert texts["last changed"] == [" her"]
    assert texts["changed"][-1] == " lost"
    assert " toy" in texts["after"]
