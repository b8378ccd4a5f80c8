"""What a grammar did is in a trace, and questions about it are answered from one as from the live session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import protocol
from engine.grammar_settings import Grammar
from engine.settings import LoadSettings, Settings
from engine.trace import load, save_as
from inspector import demo
from tests.engine.logits.recording import Recording, answer

GRAMMAR = Grammar("regex", " (yes|no), [a-z]{3}")
DEMONSTRATION = Path(demo.__file__).with_name("demonstration.trace.zst")
"""Recorded before."""
SETTINGS = Settings(temp=1.0, seed=4, grammar=GRAMMAR)


@pytest.fixture(scope="module")
def recording() -> Recording:
    made = Recording(LoadSettings(record_logits=True))
    made.do(protocol.Configure(SETTINGS))
    made.do(protocol.Prefill("Once upon a time", chat=False))
    made.do(protocol.Run())
    return made


def test_a_trace_has_the_grammar_its_readings_and_its_end(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "grammar.jsonl"
    save_as(path, recording.entries, "test")
    values = [entry.value for entry in load(path).entries]
    assert SETTINGS in values
    steps = [value for value in values if isinstance(value, protocol.Step)]
    assert [step.choice.grammar for step in steps] == [step.choice.grammar for step in recording.steps]
    last = steps[-1].next.grammar
    assert last is not None
    assert last.state == "complete"
    assert [value for value in values if isinstance(value, protocol.Finished)] == [
        protocol.Finished(steps[-1].node, "grammar", GRAMMAR.summary)
    ]
    assert not any(isinstance(value, protocol.GrammarExpected) for value in values)


def test_the_samplers_best_are_among_the_candidates() -> None:
    made = Recording(LoadSettings())
    made.do(protocol.Configure(replace(SETTINGS, candidates=8, grammar=Grammar("regex", " [xyz][a-z]{5,}"))))
    made.do(protocol.Prefill("Once upon a time", chat=False))
    session, cut_before = made._worker._desk.session, 0
    for _ in range(4):
        position = session.position
        candidates, probs = position.next.candidates, position.node_logits.sampled.probs
        best = [int(id) for id in np.argsort(-probs, kind="stable")[:5] if probs[id] > 0]
        assert {*best, position.next.picked} <= {each.id for each in candidates}
        larger = [int((session.logits > session.logits[each.id]).sum()) for each in candidates[:8]]
        assert [each.rank for each in candidates[:8]] == [
            1 + count for count in larger
        ]  # in bfloat16 some are equal
        assert larger == sorted(larger)
        assert larger[-1] < 8
        assert len(candidates) == len({each.id for each in candidates}) <= 8 + 5 + 1
        assert sum(
            each.sampler_prob for each in candidates
        ) + position.next.others_sampler_prob == pytest.approx(1)
        cut_before += all(each.cut_by for each in candidates[:8])
        made.do(protocol.TakeStep())
    assert cut_before  # else the model's own best would have done
    made.do(protocol.Configure(replace(SETTINGS, candidates=8, grammar=None)))
    assert len(session.position.next.candidates) <= 9


def test_a_trace_from_before_there_were_grammars_is_read() -> None:
    steps = [entry.value for entry in load(DEMONSTRATION).entries if isinstance(entry.value, protocol.Step)]
    assert steps
    assert all(step.choice.grammar is None for step in steps)


@pytest.mark.parametrize("place", [0, 2, -1])
def test_a_replay_answers_as_the_live_session(recording: Recording, tmp_path: Path, place: int) -> None:
    recorded, step = recording.read(tmp_path), recording.steps[place]
    other = replace(SETTINGS, grammar=Grammar("choices", " yes, abc\n no"))
    for question in (
        protocol.Explain(step.parent),
        protocol.Explain(step.parent, other),
        protocol.ReadGrammar(step.parent),
        protocol.ReadGrammar(step.parent, other.grammar),
        protocol.ReadGrammar(step.node),
        protocol.WhatIf(other, recording.steps[-1].node),
        protocol.WhatIf(replace(SETTINGS, grammar=None), recording.steps[-1].node),
    ):
        assert answer(recorded, question) == recording.ask(question)


def test_it_expects_what_the_allowed_tokens_begin_with(recording: Recording) -> None:
    first = recording.steps[0].parent
    told = recording.ask(protocol.ReadGrammar(first))
    assert isinstance(told, protocol.GrammarExpected)
    assert told.reading == recording.steps[0].choice.grammar
    assert [each.words for each in told.expected] == ["a space"]
    assert told.reading is not None
    assert sum(each.tokens for each in told.expected) == told.reading.allowed
    told = recording.ask(protocol.ReadGrammar(first, Grammar("regex", "[a-z]{3}")))
    assert isinstance(told, protocol.GrammarExpected)
    assert [each.words for each in told.expected] == ["a lowercase letter"]
    end = recording.ask(protocol.ReadGrammar(recording.steps[-1].node))
    assert isinstance(end, protocol.GrammarExpected)
    assert [(each.words, each.tokens) for each in end.expected] == [("the end", 2)]
    signs = recording.ask(protocol.ReadGrammar(first, Grammar("regex", r"[-+]?[0-9]+|true|\n")))
    assert isinstance(signs, protocol.GrammarExpected)
    assert {each.words for each in signs.expected} == {"“-”", "“+”", "a digit", "“t”", "a line break"}
    masses = [each.mass for each in signs.expected]
    assert masses == sorted(masses, reverse=True, key=lambda mass: mass or 0.0)


def test_a_question_about_a_grammar_that_cannot_be_used_says_why(recording: Recording) -> None:
    told = recording.ask(protocol.ReadGrammar(recording.steps[0].parent, Grammar("regex", "[0-9")))
    assert isinstance(told, protocol.Failure)
    assert "column 1: unclosed character class" in told.message
    assert told.expected
