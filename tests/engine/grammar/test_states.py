"""The state of a grammar after each node, live and recorded."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from engine import protocol
from engine.decoding.beam import search
from engine.decoding.lookahead import lines_ahead
from engine.errors import StepError
from engine.grammar import states
from engine.grammar.states import Matcher, beginnings, byte_vocabulary
from engine.grammar_settings import Grammar
from engine.model.load import Loaded
from engine.protocol import Grown, Restore
from engine.recording import load, save_as
from engine.session.context import Context
from engine.session.handlers import restore
from engine.session.run import run
from engine.session.session import Session
from engine.settings import BeamSettings, LoadSettings, Settings
from engine.task import Task, never
from engine.tree import ROOT, TokenTree
from inspector import demo
from tests.engine.logits.recording import Recording, answer
from tests.engine.session.test_walks import run_walk
from tests.engine.sessions import go_back
from tests.zoo import Zoo

PERSON = (
    '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}}, '
    '"required": ["name", "age"], "additionalProperties": false}'
)
GRAMMARS = (
    Grammar("json-schema", PERSON),
    Grammar("regex", "( ?[a-z]+,?){1,9}[.]"),
    Grammar("choices", "yes\nno\nnope\n there was a girl"),
    Grammar("lark", 'start: s\ns: "(" s ")" | " "? /[a-z]+/ s | '),
)


@pytest.fixture(autouse=True)
def few_matchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few are kept that most are dropped again; none of these grammars is hostile."""
    monkeypatch.setattr(states, "MOST_MATCHERS", 5)
    monkeypatch.setattr(states, "MOST_STATES", 3)
    monkeypatch.setattr(states, "try_out", lambda grammar: None)


def expected(session: Session, grammar: Grammar, first: Matcher, node: int) -> tuple[str, list[int] | None]:
    """The state after a node, from its ids alone, and what may follow; None where the grammar holds no more."""
    at, eos_ids = session.tree[node], session.tokens.eos_ids
    begin = max(at.start, grammar.begin or 0)
    if at.depth < begin:
        return "before", None
    matcher = first.copy()
    for token in session.tree.tokens(node)[begin:]:
        if token not in matcher.allowed_ids():
            return "left", None
        if token in eos_ids:
            return "ended", None
        matcher.take(token)
    state = "complete" if matcher.complete else "accepting" if matcher.accepting else "open"
    return state, matcher.allowed_ids()


def machine(loaded: Loaded, nodes: int) -> type[RuleBasedStateMachine]:
    class GrammarWalk(RuleBasedStateMachine):
        @initialize(place=st.integers(0, len(GRAMMARS) - 1), seed=st.integers(0, 2**32))
        def begin(self, place: int, seed: int) -> None:
            self.set_grammar(GRAMMARS[place])
            self.session = Session(loaded, Settings(temp=1.5, seed=seed, max_tokens=6, grammar=self.grammar))
            list(self.session.prefill("", self.session.tokens.encode("Once upon a time")))

        def set_grammar(self, grammar: Grammar) -> None:
            self.grammar = grammar
            prepared = states.vocabulary_of(loaded.tokens)
            self.first = Matcher.begin(grammar, prepared)

        @rule(count=st.integers(1, 4))
        def step(self, count: int) -> None:
            for _ in range(count):
                self.session.step()

        @rule()
        def steps(self) -> None:
            list(run(self.session, never))

        @rule(count=st.integers(1, 6))
        def back(self, count: int) -> None:
            go_back(self.session, count)

        @rule(data=st.data())
        def move(self, data: st.DataObject) -> None:
            node = data.draw(st.integers(1, len(self.session.tree) - 1))
            list(self.session.move_and_step(node))

        @rule(data=st.data())
        def choose_an_allowed_token(self, data: st.DataObject) -> None:
            state = self.session.position.node_logits.grammar
            if state is not None and state.allowed is not None:
                token = data.draw(st.sampled_from([int(id) for id in np.flatnonzero(state.allowed)]))
                self.session.choose(token)

        @rule(token=st.integers(3, 4095), leave=st.booleans())
        def choose_any(self, token: int, leave: bool) -> None:
            _, allowed = expected(self.session, self.grammar, self.first, self.session.node)
            if leave or allowed is None or token in allowed:
                self.session.choose(token, leave_grammar=leave)
            else:
                before = self.session.node, len(self.session.tree)
                with pytest.raises(StepError, match="The grammar forbids"):
                    self.session.choose(token)
                assert (self.session.node, len(self.session.tree)) == before

        @rule(width=st.integers(1, 3), tokens=st.integers(1, 4))
        @precondition(lambda self: len(self.session.tree) < nodes)
        def beams(self, width: int, tokens: int) -> None:
            begin = self.session.node
            with suppress(StepError):
                for record in search(self.session, BeamSettings(width=width, max_tokens=tokens)):
                    for beam in getattr(record, "live", ()):
                        self.follows(begin, self.session.tree.tail(beam.node, beam.length))

        @rule(data=st.data(), tokens=st.integers(1, 4))
        def ahead(self, data: st.DataObject, tokens: int) -> None:
            _, allowed = expected(self.session, self.grammar, self.first, self.session.node)
            ids = data.draw(st.lists(st.sampled_from(allowed or [5, 6]), min_size=1, max_size=3, unique=True))
            *_, last = lines_ahead(self.session, self.session.node, ids, tokens)
            for line in last.lines:
                self.follows(self.session.node, [line.id, *line.ids])

        def follows(self, node: int, ids: list[int]) -> None:
            """Each of some ids is allowed after those before it."""
            _, allowed = expected(self.session, self.grammar, self.first, node)
            matcher = self.first.copy()
            for token in self.session.tree.tokens(node)[self.session.tree[node].start :]:
                if allowed is None:
                    return
                matcher.take(token)
            for token in ids:
                assert token in matcher.allowed_ids()
                if token in self.session.tokens.eos_ids:
                    return
                matcher.take(token)

        @rule(place=st.integers(0, len(GRAMMARS) - 1))
        def another_grammar(self, place: int) -> None:
            self.set_grammar(GRAMMARS[place])
            self.session.configure(Settings(temp=1.5, max_tokens=6, grammar=self.grammar))

        @rule()
        @precondition(lambda self: len(self.session.tree) < nodes)
        def another_prompt(self) -> None:
            list(
                self.session.prefill(
                    "", self.session.tokens.encode(" and then", bare=True), parent=self.session.node
                )
            )

        @rule()
        @precondition(lambda self: len(self.session.tree) < nodes)
        def resume(self) -> None:
            tree, current = self.session.tree, self.session.node
            grown = tuple(
                Grown(node, at.parent, at.token, at.origin, at.has_step, at.prompt_begin)
                for node in range(1, len(tree))
                for at in [tree[node]]
            )
            context, command = Context(lambda received: None), Restore(grown, current)
            context.opened = self.session
            list(restore(context, command, Task(command)))

        @invariant()
        def the_mask_is_that_of_a_fresh_matcher(self) -> None:
            session = self.session
            state, allowed = expected(session, self.grammar, self.first, session.node)
            reading = session.next.grammar
            if state == "before":
                assert reading is None
                return
            assert reading.state == state
            if allowed is None:
                assert reading.mass == 1.0
                return
            assert reading.allowed == len(allowed)
            probs = np.exp(session.logits.astype(np.float64) - session.logits.max())
            assert reading.mass == pytest.approx(probs[allowed].sum() / probs.sum(), rel=1e-4)
            assert session.next.picked in allowed
            cut = session.position.node_logits.sampled
            assert {int(id) for id in np.flatnonzero(cut.probs)} <= set(allowed)
            assert cut.readings[0].name == "grammar"
            assert cut.readings[0].kept == len(allowed)

    return GrammarWalk


def test_the_mask_after_a_walk_is_that_of_a_fresh_matcher(zoo: Zoo) -> None:
    run_walk(machine(zoo.load("llama"), 60), 6, 15)


@pytest.mark.slow
def test_the_mask_after_a_long_walk_is_that_of_a_fresh_matcher(zoo: Zoo) -> None:
    run_walk(machine(zoo.load("llama"), 200), 100, 40)


# ---- recorded ----------------------------------------------------------------------------------

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
    path = tmp_path / "grammar.trace"
    save_as(path, recording.entries, "test")
    values = [entry.value for entry in load(path).entries]
    assert SETTINGS in values
    steps = [value for value in values if isinstance(value, protocol.Step)]
    assert [step.choice.grammar for step in steps] == [step.choice.grammar for step in recording.steps]
    last = steps[-1].next.grammar
    assert last.state == "complete"
    assert [value for value in values if isinstance(value, protocol.Finished)] == [
        protocol.Finished(steps[-1].node, "grammar", GRAMMAR.summary)
    ]
    assert not any(isinstance(value, protocol.GrammarExpected) for value in values)


def test_the_samplers_best_are_among_the_candidates() -> None:
    made = Recording(LoadSettings())
    made.do(protocol.Configure(replace(SETTINGS, candidates=8, grammar=Grammar("regex", " [xyz][a-z]{5,}"))))
    made.do(protocol.Prefill("Once upon a time", chat=False))
    session, cut_before = made._worker._context.session, 0
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
    assert told.reading == recording.steps[0].choice.grammar
    assert [each.words for each in told.expected] == ["a space"]
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


def test_tokens_of_a_part_of_a_character_and_of_no_text_are_called_so(recording: Recording) -> None:
    class Tokens:
        """Some bytes each, of which the last but one ends the sequence, and the last is a mark."""

        raws = (b"", b"\xe4\xb8", b"\xb8", "é".encode(), b"ab", b"\n", b"<eos>", b"<mark>")
        vocabulary, eos_ids = len(raws), (6,)

        def raw(self, token: int) -> bytes:
            return self.raws[token]

        def is_special(self, token: int) -> bool:
            return token > 5

    told = beginnings(Tokens(), np.ones(8, bool), None)  # type: ignore[arg-type]
    assert {each.words: each.tokens for each in told} == {
        "a token without text": 1, "part of a character": 2, "“é”": 1, "“a”": 1, "a line break": 1, "the end": 1,
        "a special token": 1,
    }  # fmt: skip


def test_a_question_about_a_grammar_that_cannot_be_used_says_why(recording: Recording) -> None:
    told = recording.ask(protocol.ReadGrammar(recording.steps[0].parent, Grammar("regex", "[0-9")))
    assert "column 1: unclosed character class" in told.message
    assert told.expected


def test_of_all_places_the_last_ones_keep_their_matcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "MOST_MATCHERS", 3)
    tree, grammar, matchers = TokenTree(), Grammar("regex", "a+"), states.Matchers()
    nodes = tree.add_prompt(ROOT, [97] * 8)
    first = states.GrammarState(Matcher.begin(grammar, byte_vocabulary()))
    for node in (nodes[4], nodes[-1]):
        state = states._follow(tree, matchers, grammar, first, node, 0)
        assert (state.allows(97), state.allows(98), state.outside) == (True, False, None)
    assert [node for _, node, _ in matchers] == nodes[-3:]
