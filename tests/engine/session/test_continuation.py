"""Continuations beside a session: they draw what the session draws there, and it doesn't change."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.session.node_records import Continuation
from engine.session.session import Session
from engine.settings import Settings
from tests.engine.sessions import begun
from tests.zoo import Zoo

SETTINGS = Settings(temp=1.0, seed=4, repetition_penalty=1.2, max_tokens=8)


@pytest.fixture
def session(zoo: Zoo) -> Session:
    return begun(zoo.load("llama"), [5, 77, 300, 12], SETTINGS, steps=3)


def test_it_takes_what_the_session_takes(session: Session) -> None:
    path, node, nodes = Continuation.after(session, session.node, SETTINGS), session.node, len(session.tree)
    expected = []
    for _ in range(3):
        assert path.sample(session.logits).sampled.picked == session.next.picked
        path.take(session.next.picked)
        expected.append(session.step().id)
    assert path.ids == expected
    assert path.count == 3
    assert path.tree.tokens(path.begin) == session.tree.tokens(node)
    assert len(session.tree) == nodes + 3  # the session's own steps


def test_its_draws_are_those_of_its_reroll_count(session: Session) -> None:
    path = Continuation.after(session, session.node, SETTINGS)
    for count in range(4):
        assert path.rerolled(count).sample(session.logits).sampled.picked == session.reroll(count).picked


def test_several_begin_at_one_node_and_share_a_tree(session: Session) -> None:
    path = Continuation.after(session, session.node, SETTINGS)
    one, other = path.rerolled(0), path.rerolled(1)
    one.take(9)
    other.take(10)
    assert (one.ids, other.ids, path.ids) == ([9], [10], [])
    assert one.tree is other.tree


def test_it_stops_where_the_session_would(session: Session) -> None:
    path = Continuation.after(session, session.node, replace(SETTINGS, max_tokens=5))
    path.take(9)
    assert path.stop() is None
    path.take(9)
    assert (stop := path.stop()) is not None
    assert stop.reason == "length"
    prompt = Continuation(session.tokens, session.facts, SETTINGS, [5, 77])
    prompt.take(session.tokens.eos_ids[0])
    assert (stop := prompt.stop()) is not None
    assert stop.reason == "eos"


def test_a_character_that_the_path_left_unfinished_is_continued(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket"), "Once", SETTINGS)
    raws = {session.tokens.raw(token): token for token in range(session.tokens.vocabulary)}
    first, second = (raws[bytes([byte])] for byte in "é".encode())
    session.choose(first)
    path = Continuation.after(session, session.node, SETTINGS)
    assert path.pending == {path.node: "é".encode()[:1]}
    path.take(second)
    assert path.node not in path.pending
