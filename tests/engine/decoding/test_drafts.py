"""Drafts: what a lookup finds, that a model follows the session, and which models are refused."""

from __future__ import annotations

import random
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from msgspec.structs import replace

from engine.decoding.speculation import DraftPaths, ModelDraft, check_vocabulary, look_up, make_draft
from engine.errors import LoadError, SettingsError
from engine.model.load import Loaded
from engine.model.tokens import Tokens
from engine.setting import check
from engine.settings import Settings, SpeculationSettings
from engine.task import never
from tests.engine.decoding.prophet import PROMPT, rounds
from tests.engine.sessions import begun
from tests.zoo import Zoo


def ignore(_: object) -> None:
    """Nobody watches it load."""


def test_a_lookup_copies_what_followed_the_longest_suffix_last() -> None:
    assert look_up([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], 2) == ([8, 1], 3)
    assert look_up([7, 3, 5, 2, 3, 6, 3], 4) == ([6, 3], 1)
    assert look_up([4, 4], 3) == ([4], 1)
    assert look_up([1, 2, 3], 3) == look_up([1], 3) == ([], 0)


def test_a_lookup_is_that_of_a_plain_search() -> None:
    numbers = random.Random(2)
    for _ in range(300):
        ids = [numbers.randrange(4) for _ in range(numbers.randrange(1, 30))]
        found: tuple[list[int], int] = ([], 0)
        for length in range(min(3, len(ids) - 1), 0, -1):
            places = [at for at in range(len(ids) - length) if ids[at : at + length] == ids[-length:]]
            if places:
                found = ids[places[-1] + length :][:4], length
                break
        assert look_up(ids, 4) == found


def test_the_same_model_as_a_draft_is_always_accepted_wherever_the_session_goes(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    session = begun(loaded, PROMPT, Settings(temp=1.0, seed=2, repetition_penalty=1.2, top_p=0.9))
    draft = ModelDraft(loaded, session.tokens.vocabulary)
    steps, found = rounds(session, draft, 12)
    for node in (steps[4].node, steps[7].node):  # back, and on along another branch
        session.move(node)
        session.choose(17)
        _, more = rounds(session, draft, 8)
        found += more
    session.move(steps[3].node)
    session.reroll()
    found += rounds(session, draft, 8)[1]
    drafts = [each for one in found for each in one.drafts]
    assert {each.fate for each in drafts} <= {"accepted", "unseen"}
    assert sum(each.fate == "accepted" for each in drafts) > 15
    assert all(each.draft_prob == pytest.approx(each.target_prob, abs=1e-4) for each in drafts if each.rank)


def test_a_draft_follows_the_path_as_a_fresh_one_reads_it(zoo: Zoo) -> None:
    target, other = zoo.load("llama"), zoo.load("mamba2")  # one can be trimmed, the other starts over
    for loaded in (target, other):
        session = begun(target, PROMPT, Settings(temp=0.7, seed=1))
        paths, followed = DraftPaths(session), ModelDraft(loaded, session.tokens.vocabulary)
        steps = [session.step() for _ in range(6)]
        for node in (steps[5].node, steps[2].node, steps[4].node):
            fresh = ModelDraft(loaded, session.tokens.vocabulary)
            ours, theirs = (
                draft.propose(paths, node, 3, session.settings, never)[0] for draft in (followed, fresh)
            )
            assert [each.id for each in ours] == [each.id for each in theirs]
            for one, two in zip(ours, theirs, strict=True):
                assert one.probs is not None
                assert two.probs is not None
                assert np.abs(one.probs - two.probs).max() < 1e-5


def test_a_draft_proposes_no_more_than_its_positions_take(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    session = begun(loaded, PROMPT, Settings(temp=0.7, seed=1))
    for room in (0, 1, 3):
        facts = replace(loaded.facts, hard_window=True, context_window=len(PROMPT) + room)
        draft = ModelDraft(replace(loaded, facts=facts), session.tokens.vocabulary)
        proposed, _ = draft.propose(DraftPaths(session), session.node, 6, session.settings, never)
        assert len(proposed) == room + 1


def test_the_models_own_four_bits_leave_the_model_as_it_is(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    before = {name: np.array(array) for name, array in _weights(loaded)}
    draft = make_draft(SpeculationSettings("self-4bit"), loaded, ignore, Event())
    assert isinstance(draft, ModelDraft)
    assert draft.weight_bytes == loaded.facts.weight_bytes  # of the file; the packed ones are smaller
    after = dict(_weights(loaded))
    assert before.keys() == after.keys()
    assert all((np.array(after[name]) == array).all() for name, array in before.items())
    session = begun(loaded, PROMPT, Settings())
    [proposed, *_] = draft.propose(DraftPaths(session), session.node, 2, session.settings, never)[0]
    assert proposed.probs is not None


def _weights(loaded: Loaded) -> list[tuple[str, mx.array]]:
    return cast(list[tuple[str, mx.array]], tree_flatten(loaded.model.parameters()))


def test_a_quantized_model_is_no_draft_of_itself(zoo: Zoo) -> None:
    with pytest.raises(LoadError, match="quantized already"):
        make_draft(SpeculationSettings("self-4bit"), zoo.load("llama:4bit"), ignore, Event())


def tokens(*raw: bytes) -> Tokens:
    """What is asked of a tokenizer."""
    named: Any = SimpleNamespace(vocabulary=len(raw), raw=raw.__getitem__)
    return cast(Tokens, named)


def test_other_tokens_are_refused_with_the_first_difference() -> None:
    with pytest.raises(LoadError, match="id 1 is “ dog” here and “ cat” there"):
        check_vocabulary(tokens(b"a", b" dog", b"x"), tokens(b"a", b" cat", b"y"))
    with pytest.raises(LoadError, match="id 2 is no token here and “z” there"):
        check_vocabulary(tokens(b"a", b"b"), tokens(b"a", b"b", b"z"))
    check_vocabulary(tokens(b"a", b"b"), tokens(b"a", b"b", b"", b""))  # rows that fill an embedding up


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (SpeculationSettings(num_draft_tokens=0), "from 1 to 16, not 0"),
        (SpeculationSettings("model"), "needs a draft model"),
        (SpeculationSettings("lookup", "pocket"), "has no draft model"),
        (replace(SpeculationSettings(), draft=cast(Any, "medusa")), "one of lookup, self-4bit, model"),
    ],
)
def test_settings_out_of_range_are_refused(wrong: SpeculationSettings, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        check(wrong)


def test_a_prompt_of_one_token_is_enough(zoo: Zoo) -> None:
    session = begun(zoo.load("llama"), PROMPT[:1], Settings())
    draft = make_draft(SpeculationSettings("lookup"), zoo.load("llama"), ignore, Event())
    steps, _ = rounds(session, draft, 5)
    assert len(steps) == 5
