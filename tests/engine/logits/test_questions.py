"""Questions about kept rows: why a token, what if, which tokens match."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from msgspec.structs import replace

from engine import protocol
from engine.errors import COMPUTE_AGAIN, Cancelled, SettingsError, StepError
from engine.logits.questions import Vocabulary, explain, find, what_if
from engine.model.tokens import Tokens
from engine.protocol import Candidate, FindTokens, TokensFound
from engine.sampling.pipeline import uniform
from engine.sampling.ranking import checked_logprobs, rank_of
from engine.session.run import run
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.task import never
from engine.token_texts import TokenQuery, read_query
from tests.engine.sessions import begun, go_back
from tests.engine.test_thread import Engine
from tests.zoo import Zoo

BASE = Settings(temp=0.9, top_p=0.92, min_p=0.02, top_k=40, seed=11, max_tokens=10**6, min_tokens=10**6)


def ran(zoo: Zoo, settings: Settings, steps: int, **load: int) -> Session:
    return begun(zoo.load("pocket", **load), "Once upon a time there was a", settings, steps)


@pytest.mark.parametrize("steps", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_at_the_settings_that_were_used_every_choice_is_reproduced(zoo: Zoo, steps: int) -> None:
    session = ran(zoo, replace(BASE, repetition_penalty=1.2, xtc_probability=0.3, candidates=5), steps)
    answer = what_if(session, session.settings, session.node)
    assert len(answer.steps) == steps
    assert all(step.same for step in answer.steps)
    assert answer.dropped == ()


OTHERS = [
    replace(BASE, temp=0.0),
    replace(BASE, temp=1.6),
    replace(BASE, top_p=0.5, sampler_order="llama.cpp"),
    replace(BASE, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.3),
    replace(BASE, xtc_probability=1.0, xtc_threshold=0.1),
    replace(BASE, logit_bias=((433, -100.0), (261, 3.0)), sampler_order="transformers"),
]


@pytest.fixture(scope="module")
def sixty(zoo: Zoo) -> Session:
    """A run of 60 steps, to be asked about and not moved."""
    return ran(zoo, BASE, 60)


@pytest.mark.wide(1)
@pytest.mark.parametrize("other", OTHERS, ids=range(len(OTHERS)))
def test_at_other_settings_it_equals_a_fresh_run_until_and_where_they_part(
    zoo: Zoo, sixty: Session, other: Settings
) -> None:
    session = sixty
    answer = what_if(session, other, session.node)
    fresh = ran(zoo, other, 0)
    for step in answer.steps:
        theirs = fresh.step().id
        assert step.same == (session.tree[step.node].token == theirs)
        if not step.same:
            assert step.picked == theirs
            break
    else:
        pytest.fail("they never parted")


def test_nothing_moves_while_asking(zoo: Zoo) -> None:
    session = ran(zoo, BASE, 20)
    before = (session.node, session.kv.offset, session.next)
    what_if(session, OTHERS[0], session.node)
    explain(session, session.tree[session.node].parent, OTHERS[1])
    assert (session.node, session.kv.offset, session.next) == before


def test_columns_tell_each_stage_in_its_order(zoo: Zoo) -> None:
    session = ran(zoo, replace(BASE, repetition_penalty=1.3, temp=0.8), 30)
    told = explain(session, session.node)
    assert told.used
    assert told.next == session.next
    assert [column.name for column in told.columns] == [
        "min-tokens", "repetition", "top-p", "min-p", "top-k", "temperature",
    ]  # fmt: skip
    assert [column.unit for column in told.columns] == ["logit"] * 2 + ["prob"] * 4
    assert [column.kept for column in told.columns] == sorted(
        (column.kept for column in told.columns), reverse=True
    )
    ids = [candidate.id for candidate in told.next.candidates]
    assert list(told.logits) == session.logits[ids].tolist()
    for place, candidate in enumerate(told.next.candidates):
        final = told.columns[-1].values[place]
        assert candidate.sampler_prob == pytest.approx(final or 0.0, abs=1e-6)
        cut_at = [column.name for column in told.columns if column.values[place] is None]
        assert candidate.cut_by == (cut_at[0] if cut_at else None)
    recent = session.tree.tokens(session.node)[-20:]
    depth = session.tree[session.node].depth
    for candidate, earlier in zip(told.next.candidates, told.earlier, strict=True):
        assert earlier == tuple(
            depth - 20 + place for place, token in enumerate(recent) if token == candidate.id
        )
        logit, penalised = (
            told.logits[ids.index(candidate.id)],
            told.columns[1].values[ids.index(candidate.id)],
        )
        if candidate.id not in session.tokens.eos_ids:
            assert (penalised != logit) == bool(earlier)


def test_the_settings_used_at_each_place_are_remembered(zoo: Zoo) -> None:
    session = ran(zoo, BASE, 5)
    node = session.tree[session.node].parent
    session.configure(replace(BASE, temp=0.0))
    assert explain(session, node).next.draw == pytest.approx(uniform(11, session.tree[node].depth, 0))
    assert explain(session, session.node).next.draw is None
    assert not explain(session, node, session.settings).used


def test_dropped_logits_are_said_and_can_be_recalled(zoo: Zoo) -> None:
    session = ran(zoo, replace(BASE, candidates=3), 80, kept_logits_mib=1)  # 64 rows of 4,096
    answer = what_if(session, OTHERS[1], session.node)
    assert len(answer.steps) + len(answer.dropped) == 80
    assert len(answer.dropped) >= 16
    parents = tuple(session.tree[node].parent for node in answer.dropped[:5])
    with pytest.raises(StepError, match="were dropped to stay within the memory limit"):
        explain(session, parents[0])
    offset = session.kv.offset
    session.recall(parents)
    assert session.kv.offset == offset
    assert session.kept_logits.nbytes <= session.kept_logits.budget == 2**20
    whole = ran(zoo, replace(BASE, candidates=3), 10)
    for node in parents:
        told, expected = explain(session, node), explain(whole, node)
        assert [c.id for c in told.next.candidates] == [c.id for c in expected.next.candidates]
        assert np.allclose(told.logits, expected.logits, atol=0.25)  # bfloat16


def test_asides_are_answered_between_the_steps_of_a_run() -> None:
    engine = Engine()
    engine.do(protocol.Load(LoadSettings()))
    engine.do(protocol.Configure(BASE))
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    run_ = engine.send(protocol.Run())
    engine.send(protocol.Explain(4))
    engine.send(protocol.WhatIf(replace(BASE, temp=0.0), 4))
    found: list[protocol.Record] = []
    while sum(isinstance(record, protocol.Ended) for record in found) < 2:
        found.append(engine.get())
    assert any(isinstance(record, protocol.Explained) for record in found)
    assert any(isinstance(record, protocol.WhatIfAnswered) for record in found)
    assert not any(isinstance(record, protocol.Ended) and record.command == "Run" for record in found)
    engine.cancel(run_)
    engine.until_ended(run_)
    assert engine.thread.close(10)


def test_the_same_seed_gives_the_same_text_after_any_detour(zoo: Zoo) -> None:
    straight = ran(zoo, BASE, 40)
    detour = ran(zoo, BASE, 10)
    tip = detour.node
    go_back(detour, 4)
    detour.choose(700)
    for _ in range(5):
        detour.step()
    go_back(detour, 8)
    list(detour.insert([5, 6]))
    detour.move(tip)
    taken = 0
    while taken < 30:
        taken += sum(1 for _, _ in zip(range(30 - taken), run(detour, never), strict=False))
    assert detour.tree.tokens(detour.node) == straight.tree.tokens(straight.node)


def test_a_draw_made_again_elsewhere_changes_nothing_of_the_branch_that_was_left(zoo: Zoo) -> None:
    session = ran(zoo, BASE, 10)
    tip = session.node
    fork = session.tree.nodes(tip)[-6]
    recorded = explain(session, fork).next
    session.move(fork)
    again = session.reroll()
    assert again.draw != recorded.draw
    other = session.step().node
    session.move(tip)
    assert all(step.same for step in what_if(session, session.settings, tip).steps)
    for here in (other, tip):  # each draw is told by its number, whichever branch the session stands on
        session.move(here)
        told = [explain(session, fork, reroll=count).next for count in (0, 1)]
        assert [(each.draw, each.picked) for each in told] == [
            (recorded.draw, recorded.picked),
            (again.draw, again.picked),
        ]


def test_a_draw_goes_back_to_an_earlier_one(zoo: Zoo) -> None:
    session = ran(zoo, BASE, 4)
    first, second = session.next, session.reroll()
    assert session.reroll().draw not in (first.draw, second.draw)
    assert session.reroll(0) == first
    assert session.reroll(1) == second
    assert session.reroll(0) == first
    assert session.step().choice == first


def test_a_bias_beyond_the_vocabulary_is_refused(zoo: Zoo) -> None:
    session = ran(zoo, BASE, 1)
    with pytest.raises(SettingsError, match="token id 4096 is outside the model's vocabulary of 4096"):
        session.configure(replace(BASE, logit_bias=((4096, 1.0),)))
    assert session.settings == BASE


def test_an_answer_comes_quickly_on_a_large_vocabulary() -> None:
    """A sanity bound; the measured figure is the benchmark's (tests/benchmarks/what_if.py)."""
    from engine.sampling.pipeline import sample
    from engine.sampling.ranking import Masses

    row = np.random.default_rng(0).standard_normal(150_000).astype(np.float32) * 3
    begun = time.perf_counter()
    sample(Masses(row), replace(BASE, repetition_penalty=1.1), 0.5)
    assert time.perf_counter() - begun < 0.5


# ---- the vocabulary ----------------------------------------------------------------------------

SAMPLED = Settings(temp=0.8, top_p=0.9, min_p=0.01, top_k=30, seed=5, repetition_penalty=1.2, candidates=10)


@pytest.fixture(scope="module")
def session(zoo: Zoo) -> Session:
    return ran(zoo, SAMPLED, 5)


@pytest.fixture(scope="module")
def vocabulary(session: Session) -> Vocabulary:
    return Vocabulary(session.tokens)


def search(session: Session, vocabulary: Vocabulary, query: str, limit: int = 5000) -> TokensFound:
    return find(session, vocabulary, FindTokens(session.node, query, limit))


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
    assert read_query(query) == read_as


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


@pytest.mark.parametrize("query", ["cat", " cat", "The"])
def test_the_token_itself_comes_first_then_those_that_begin_with_it(
    session: Session, vocabulary: Vocabulary, query: str
) -> None:
    found = [match.text for match in search(session, vocabulary, query).matches]
    own = [text for text in found if text.strip() == query.strip()]
    assert sorted(found[: len(own)]) == sorted(own)
    found = found if query == "The" else [text.lower() for text in found]
    own = [text for text in found if text.strip() == query.strip()]
    begins = [text for text in found if text.strip().startswith(query.strip())]
    assert own
    assert sorted(found[: len(own)]) == sorted(own)
    assert sorted(found[: len(begins)]) == sorted(begins)
    assert len(begins) < len(found) or query != "cat"


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


@pytest.mark.parametrize(("char", "query"), ["€€", "ЖЖ", "Жж"])
def test_after_half_a_character_the_tokens_that_finish_it_are_found_by_it(
    zoo: Zoo, char: str, query: str
) -> None:
    session = Session(zoo.load("pocket"), Settings())
    pieces = session.tokens.encode(char, bare=True)
    assert len(pieces) > 1, f"the model's tokenizer has {char} in one piece: take another character"
    list(session.prefill("", [*session.tokens.encode("It cost "), *pieces[:-1]], echo=False))
    found = search(session, Vocabulary(session.tokens), query)
    assert next(match.text for match in found.matches if match.id == pieces[-1]) == char


def test_rows_that_the_tokenizer_has_no_entry_for_are_found_by_id_alone(session: Session) -> None:
    wide = Tokens(session.tokens._wrapper, 5000)
    vocabulary = Vocabulary(wide)
    vocabulary.read()
    assert vocabulary.matching(read_query("#4999")) == [4999]
    assert len(vocabulary.matching(read_query(""))) == 5000
    assert max(vocabulary.matching(read_query("a"))) < 4096


# ---- the numbers ------------------------------------------------------------------------------


def test_each_match_has_the_numbers_of_model_and_sampler(session: Session, vocabulary: Vocabulary) -> None:
    look = session.position.node_logits
    logprobs = checked_logprobs(session.logits)
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
    probs = [match.prob for match in everything.matches if not match.text.lower().strip().startswith("e")]
    assert probs == sorted(probs, reverse=True)


def test_an_older_step_is_told_under_the_settings_that_were_used_there(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket"), "Once upon a time", SAMPLED)
    before, expected = session.node, session.next.candidates
    session.step()
    session.configure(replace(SAMPLED, temp=0.0, top_p=0.1))
    assert (
        find(session, Vocabulary(session.tokens), FindTokens(before, "", len(expected))).matches == expected
    )


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
        find(session, vocabulary, FindTokens(3, "the", 10))
    session.recall((3,))
    assert find(session, vocabulary, FindTokens(3, "time", 10)).matches[0].text == " time"
    with pytest.raises(StepError, match="The model predicts nothing for the first token"):
        find(session, vocabulary, FindTokens(0, "the", 10))
    with pytest.raises(StepError, match="no token number 77"):
        find(session, vocabulary, FindTokens(77, "the", 10))


def test_dropped_logits_are_said_to_be_dropped_but_never_those_at_hand(zoo: Zoo) -> None:
    session = Session(zoo.load("pocket", kept_logits_mib=0), Settings())
    vocabulary = Vocabulary(session.tokens)
    list(session.prefill("", session.tokens.encode("Once upon"), echo=False))
    before = session.node
    session.step()
    assert find(session, vocabulary, FindTokens(session.node, "the", 10)).total > 0
    with pytest.raises(StepError, match="dropped to stay within the memory limit") as error:
        find(session, vocabulary, FindTokens(before, "the", 10))
    assert error.value.hint.startswith(COMPUTE_AGAIN)


def test_a_first_search_that_is_stopped_goes_on_where_it_was(session: Session) -> None:
    vocabulary = Vocabulary(session.tokens)
    with pytest.raises(Cancelled):
        find(session, vocabulary, FindTokens(session.node, "the", 10), stopped=lambda: True)
    vocabulary.read(never)
    assert vocabulary.matching(read_query("#5")) == [5]
    assert find(session, vocabulary, FindTokens(session.node, "the", 10), stopped=lambda: True).total > 0


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
    assert failure.message == "There is no token number 99."
    assert engine.thread.close(10)
