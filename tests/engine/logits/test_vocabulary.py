"""Searches of the vocabulary: what matches, and the numbers beside it, against their plain definitions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine import protocol
from engine.errors import COMPUTE_AGAIN, Cancelled, StepError
from engine.logits.vocabulary import Vocabulary, find
from engine.model.forward import never
from engine.model.tokens import Tokens
from engine.protocol import Candidate, TokensFound
from engine.sampling.ranking import log_softmax, rank_of
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.token_query import TokenQuery, read
from tests.engine.test_thread import Engine
from tests.zoo import Zoo

SAMPLED = Settings(temp=0.8, top_p=0.9, min_p=0.01, top_k=30, seed=5, repetition_penalty=1.2, candidates=10)


@pytest.fixture(scope="module")
def session(zoo: Zoo) -> Session:
    found = Session(zoo.load("pocket"), SAMPLED)
    list(found.prefill("", found.tokens.encode("Once upon a time there was a"), echo=False))
    for _ in range(5):
        found.step()
    return found


@pytest.fixture(scope="module")
def vocabulary(session: Session) -> Vocabulary:
    return Vocabulary(session.tokens)


def search(session: Session, vocabulary: Vocabulary, query: str, limit: int = 5000) -> TokensFound:
    return find(session, vocabulary, session.node, query, limit)


def texts(found: TokensFound) -> set[str]:
    return {match.text for match in found.matches}


# ---- reading a query --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "read_as"),
    [
        ("", TokenQuery("text", ("",))),
        ("toy", TokenQuery("text", ("toy",))),
        ("Toy", TokenQuery("text", ("Toy",), cased=True)),
        (" toy", TokenQuery("text", (" toy",))),
        ("␣toy", TokenQuery("text", ("␣toy", " toy"))),
        ("↵", TokenQuery("text", ("↵", "\n"))),
        (r".\n", TokenQuery("text", (r".\n", ".\n"))),
        ("#123", TokenQuery("id", id=123)),
        ("#", TokenQuery("text", ("#",))),
        ("#12a", TokenQuery("text", ("#12a",))),
        ("#" + "9" * 13, TokenQuery("text", ("#" + "9" * 13,))),
        ("0x e2 9c", TokenQuery("bytes", raw=b"\xe2\x9c")),
        ("0xE29C", TokenQuery("bytes", raw=b"\xe2\x9c")),
        ("0x e2 9", TokenQuery("bytes", raw=b"\xe2")),
        ("0x", TokenQuery("text", ("0x",))),
        ("0xe", TokenQuery("text", ("0xe",))),
        ("‹E2 9C›", TokenQuery("bytes", raw=b"\xe2\x9c")),
        ("²", TokenQuery("text", ("²",))),
    ],
)
def test_a_query_is_read(query: str, read_as: TokenQuery) -> None:
    assert read(query) == read_as


# ---- what matches -----------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["the", " the", "e", "ing", ".", "zq"])
def test_a_text_finds_the_tokens_that_contain_it_whatever_their_case(
    session: Session, vocabulary: Vocabulary, query: str
) -> None:
    tokens = session.tokens
    wanted = [each for each in range(tokens.vocabulary) if query in tokens.text(each)[0].lower()]
    found = search(session, vocabulary, query)
    assert found.total == len(wanted)
    assert sorted(match.id for match in found.matches) == wanted


def test_a_capital_letter_makes_case_matter(session: Session, vocabulary: Vocabulary) -> None:
    lower, upper = texts(search(session, vocabulary, "the")), texts(search(session, vocabulary, "The"))
    assert "The" in lower
    assert " the" in lower
    assert upper == {text for text in lower if "The" in text}
    assert " the" not in upper


def test_spaces_and_newlines_are_found_as_they_are_shown(session: Session, vocabulary: Vocabulary) -> None:
    assert texts(search(session, vocabulary, "␣little")) == texts(search(session, vocabulary, " little"))
    assert " little" in texts(search(session, vocabulary, "␣little"))
    newline = texts(search(session, vocabulary, "\n"))
    assert "\n" in newline
    assert texts(search(session, vocabulary, "↵")) == newline
    assert texts(search(session, vocabulary, r"\n")) == newline


def test_an_id_finds_its_token_alone(session: Session, vocabulary: Vocabulary) -> None:
    assert [match.id for match in search(session, vocabulary, "#339").matches] == [339]
    assert search(session, vocabulary, "#4096").total == 0
    assert search(session, vocabulary, "#999999999999").total == 0


def test_bytes_find_every_token_that_has_them(session: Session, vocabulary: Vocabulary) -> None:
    tokens = session.tokens
    for query, raw in (("0xe2", b"\xe2"), ("0x 20 74 68", b" th"), ("‹0A›", b"\n")):
        wanted = {each for each in range(tokens.vocabulary) if raw in tokens.raw(each)}
        assert {match.id for match in search(session, vocabulary, query).matches} == wanted
        assert wanted


def test_special_tokens_are_found_by_their_name(session: Session, vocabulary: Vocabulary) -> None:
    found = search(session, vocabulary, "<|im_end|>")
    assert [(match.id, match.special) for match in found.matches] == [(2, True)]


def test_after_half_a_character_the_tokens_that_finish_it_are_found_by_it(zoo: Zoo) -> None:
    session = Session(zoo.load("pocket"), Settings())
    euro = session.tokens.encode("€", bare=True)
    assert len(euro) > 1, "the model's tokenizer has € in one piece: take another character"
    list(session.prefill("", [*session.tokens.encode("It cost "), *euro[:-1]], echo=False))
    found = search(session, Vocabulary(session.tokens), "€")
    assert euro[-1] in [match.id for match in found.matches]
    assert next(match.text for match in found.matches if match.id == euro[-1]) == "€"


def test_rows_that_the_tokenizer_has_no_entry_for_are_found_by_id_alone(session: Session) -> None:
    wide = Tokens(session.tokens._wrapper, 5000)
    vocabulary = Vocabulary(wide)
    vocabulary.read()
    assert vocabulary.matching(read("#4999")) == [4999]
    assert len(vocabulary.matching(read(""))) == 5000
    assert max(vocabulary.matching(read("a"))) < 4096


# ---- the numbers ------------------------------------------------------------------------------


def test_each_match_has_the_numbers_of_model_and_sampler(session: Session, vocabulary: Vocabulary) -> None:
    look = session.position.node_logits
    logprobs = log_softmax(session.logits)
    found = search(session, vocabulary, "a")
    assert found.matches
    for match in found.matches:
        assert match.logprob == float(logprobs[match.id])
        assert match.prob == math.exp(match.logprob)
        assert match.rank == rank_of(logprobs, match.id)
        assert match.sampler_prob == look.sampled.probs[match.id]
        cut = look.sampled.cut[match.id]
        assert match.cut_by == (None if cut < 0 else look.sampled.names[cut])
    assert {match.cut_by for match in found.matches} >= {"top-p", None}
    assert found.mass == pytest.approx(sum(match.prob for match in found.matches), abs=1e-9)


def test_the_candidates_of_the_step_come_first_and_are_the_same(
    session: Session, vocabulary: Vocabulary
) -> None:
    listed: tuple[Candidate, ...] = session.next.candidates[: SAMPLED.candidates]
    assert search(session, vocabulary, "", limit=len(listed)).matches == listed


def test_no_more_than_the_limit_are_told_but_all_are_counted(
    session: Session, vocabulary: Vocabulary
) -> None:
    everything = search(session, vocabulary, "e")
    some = search(session, vocabulary, "e", limit=7)
    assert some.matches == everything.matches[:7]
    assert (some.total, some.mass) == (everything.total, everything.mass)
    probs = [match.prob for match in everything.matches]
    assert probs == sorted(probs, reverse=True)


def test_an_older_step_is_told_under_the_settings_that_were_used_there(zoo: Zoo) -> None:
    session = Session(zoo.load("pocket"), SAMPLED)
    list(session.prefill("", session.tokens.encode("Once upon a time"), echo=False))
    before, expected = session.node, session.next.candidates
    session.step()
    session.configure(replace(SAMPLED, temp=0.0, top_p=0.1))
    assert find(session, Vocabulary(session.tokens), before, "", len(expected)).matches == expected


def test_nothing_moves_while_searching(session: Session, vocabulary: Vocabulary) -> None:
    before = (session.node, session.kv.offset, session.next, len(session.tree))
    search(session, vocabulary, "toy")
    assert (session.node, session.kv.offset, session.next, len(session.tree)) == before


# ---- where there is nothing to tell -----------------------------------------------------------


def test_what_is_not_kept_is_said_and_can_be_computed(zoo: Zoo) -> None:
    session = Session(zoo.load("pocket"), Settings())
    vocabulary = Vocabulary(session.tokens)
    list(session.prefill("", session.tokens.encode("Once upon a time there was a"), echo=True))
    with pytest.raises(StepError, match="logits here were not kept"):
        find(session, vocabulary, 3, "the", 10)
    session.recall((3,))
    assert find(session, vocabulary, 3, "time", 10).matches[0].text == " time"
    with pytest.raises(StepError, match="Nothing is expected of the first token"):
        find(session, vocabulary, 0, "the", 10)
    with pytest.raises(StepError, match="no token number 77"):
        find(session, vocabulary, 77, "the", 10)


def test_dropped_logits_are_said_to_be_dropped_but_never_those_at_hand(zoo: Zoo) -> None:
    session = Session(zoo.load("pocket", kept_logits_mib=0), Settings())
    vocabulary = Vocabulary(session.tokens)
    list(session.prefill("", session.tokens.encode("Once upon"), echo=False))
    before = session.node
    session.step()
    assert find(session, vocabulary, session.node, "the", 10).total > 0
    with pytest.raises(StepError, match="dropped to hold the memory bound") as error:
        find(session, vocabulary, before, "the", 10)
    assert error.value.hint.startswith(COMPUTE_AGAIN)


def test_a_first_search_that_is_stopped_goes_on_where_it_was(session: Session) -> None:
    vocabulary = Vocabulary(session.tokens)
    with pytest.raises(Cancelled):
        find(session, vocabulary, session.node, "the", 10, stopped=lambda: True)
    vocabulary.read(never)
    assert vocabulary.matching(read("#5")) == [5]
    assert find(session, vocabulary, session.node, "the", 10, stopped=lambda: True).total > 0


# ---- through the thread -----------------------------------------------------------------------


def test_the_engine_answers_a_search_and_tells_what_fails() -> None:
    engine = Engine()
    engine.do(protocol.Load(LoadSettings()))
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    node = 4
    found, ended = engine.do(protocol.FindTokens(node, " toy", 10))
    assert isinstance(found, TokensFound)
    assert (found.node, found.query) == (node, " toy")
    assert " toys" in texts(found)
    assert ended == protocol.Ended("FindTokens")
    failure, _ = engine.do(protocol.FindTokens(99, "x"))
    assert isinstance(failure, protocol.Failure)
    assert failure.message == "There is no token number 99."
    assert engine.thread.close(10)
