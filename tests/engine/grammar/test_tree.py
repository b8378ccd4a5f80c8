"""A grammar over the tree: at every node the mask is that of a fresh matcher which was fed the same ids."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as budget
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as walk

from engine.beam_settings import BeamSettings
from engine.decoding.beam import search
from engine.decoding.lookahead import look_ahead
from engine.decoding.run import run
from engine.errors import StepError
from engine.grammar import states
from engine.grammar.matcher import Matcher
from engine.grammar_settings import Grammar
from engine.model.forward import never
from engine.model.load import Loaded
from engine.protocol import Grown, Restore
from engine.session.restore import restore
from engine.session.session import Session
from engine.settings import Settings
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
            prepared = states._vocabulary(loaded.tokens)
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
            self.session.back(count)

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
            *_, last = look_ahead(self.session, self.session.node, ids, tokens)
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
            restore(self.session, Restore(grown, current), lambda record: None, never)

        @invariant()
        def the_mask_is_that_of_a_fresh_matcher(self) -> None:
            session = self.session
            state, allowed = expected(session, self.grammar, self.first, session.node)
            reading = session.next.grammar
            if state == "before":
                assert reading is None
                return
            assert reading is not None
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
    walk(
        machine(zoo.load("llama"), 60),
        settings=budget(
            max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.slow
def test_the_mask_after_a_long_walk_is_that_of_a_fresh_matcher(zoo: Zoo) -> None:
    walk(
        machine(zoo.load("llama"), 200),
        settings=budget(
            max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
