"""What is known of what might come: what is asked, what is kept, and what is forgotten."""

from __future__ import annotations

from msgspec.structs import replace

from engine.protocol import AheadLine, Candidate, LookAhead, LookedAhead
from inspector.state.lookahead import TOKENS, LookAheadLines, wanted
from tests.inspector.fakes import Session, facts


def told(node: int, *lines: AheadLine, last: bool = True, note: str = "") -> LookedAhead:
    return LookedAhead(node, lines, TOKENS, last, 12.0, note)


def line(id: int, tokens: int = TOKENS, ended: bool = False) -> AheadLine:
    return AheadLine(id, tuple(range(tokens)), " and so on"[: tokens + 2], -3.0, ended)


def switched_on(nodes: int = 4) -> LookAheadLines:
    ahead = LookAheadLines(nodes)
    ahead.switch()
    return ahead


def test_nothing_is_asked_or_shown_while_it_is_off() -> None:
    ahead = LookAheadLines()
    assert ahead.question(3, (1, 2)) is None
    ahead.receive(told(3, line(1)))
    assert ahead.lines(3) == {}
    ahead.switch()
    assert ahead.lines(3) == {1: line(1)}


def test_only_what_is_not_known_is_asked() -> None:
    ahead = switched_on()
    asked = ahead.question(3, (1, 2))
    assert asked == LookAhead(3, (1, 2), TOKENS)
    ahead.receive(told(3, line(1), line(2)))
    ahead.ended(asked, cancelled=False)
    assert ahead.question(3, (1, 2)) is None
    assert ahead.question(3, (1, 2, 7)) == LookAhead(3, (7,), TOKENS)
    assert ahead.question(4, (1,)) == LookAhead(4, (1,), TOKENS)


def test_a_candidate_waits_for_its_line_until_the_first_token() -> None:
    ahead = switched_on()
    asked = ahead.question(3, (1, 2))
    assert asked is not None
    assert ahead.waited_for(3) == {1, 2}
    assert ahead.waited_for(4) == frozenset()
    ahead.receive(told(3, line(1, 1), line(2, 1), last=False))
    assert ahead.waited_for(3) == frozenset()
    ahead.ended(asked, cancelled=True)
    assert ahead.waited_for(3) == frozenset()


def test_what_was_cancelled_stays_and_is_asked_again_without_going_back() -> None:
    ahead = switched_on()
    asked = ahead.question(3, (1, 2))
    assert asked is not None
    ahead.receive(told(3, line(1, 5), line(2, 2, ended=True), last=False))
    ahead.ended(asked, cancelled=True)
    assert ahead.question(3, (1, 2)) == LookAhead(3, (1,), TOKENS)
    ahead.receive(told(3, line(1, 1), last=False))
    assert ahead.lines(3)[1] == line(1, 5)
    ahead.receive(told(3, line(1, 6), last=False))
    assert ahead.lines(3)[1] == line(1, 6)


def test_a_failure_is_not_asked_for_again_until_it_is_switched_on_anew() -> None:
    ahead = switched_on()
    asked = ahead.question(3, (1,))
    assert asked is not None
    ahead.ended(asked, cancelled=False)
    assert ahead.question(3, (1,)) is None
    ahead.switch()
    ahead.switch()
    assert ahead.question(3, (1,)) is not None


def test_a_question_that_is_left_unanswered_is_asked_again_of_another_model_only() -> None:
    """As where a recording is on show: nothing behind it can answer."""
    ahead = switched_on()
    asked = ahead.question(3, (1,))
    assert asked is not None
    ahead.ended(asked, cancelled=False)
    assert ahead.question(3, (1,)) is None
    ahead.receive(facts())
    assert ahead.question(3, (1,)) is not None


def test_so_many_nodes_are_kept_and_the_one_least_looked_at_goes() -> None:
    ahead = switched_on(nodes=2)
    for node in (3, 4):
        ahead.receive(told(node, line(1), note="again"))
    assert ahead.question(3, (1,)) is None  # it was looked at
    ahead.receive(told(5, line(1)))
    assert ahead.lines(3)
    assert not ahead.lines(4)
    assert ahead.note(4) == ""
    assert ahead.question(4, (1,)) is not None


def test_another_prompt_has_other_nodes() -> None:
    ahead = switched_on()
    ahead.receive(told(3, line(1), note="again"))
    ahead.receive(Session().begin())
    assert ahead.on
    assert (ahead.lines(3), ahead.note(3)) == ({}, "")
    assert ahead.question(3, (1,)) is not None


def test_the_best_and_the_highlighted_are_wanted() -> None:
    first = Candidate(10, " a", b" a", False, -1.0, 0.3, 1, 0.3, None)
    rows = [replace(first, id=10 + place) for place in range(8)]
    assert wanted(rows, rows[2]) == (10, 11, 12, 13, 14)
    assert wanted(rows, rows[6]) == (10, 11, 12, 13, 14, 16)
    assert wanted(rows[:2], None) == (10, 11)
    assert wanted([], None) == ()
