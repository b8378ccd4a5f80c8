"""What rounds came to, from their records."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields, replace

from engine.protocol import DraftRound, Ended, SpeculationVerified
from inspector.state.capability import MOST
from inspector.state.speculation import FATE_SIGNS, RULES, Speculation, figures, proof, share, verdict
from tests.engine.recording.made_records import made
from tests.inspector.fakes import Session
from tests.inspector.views.drafts.made import draft_round


def told(*fates: str, plain: float = 10.0, ms: float = 30.0) -> Speculation:
    state = Speculation()
    state.plain = [plain]
    for place, each in enumerate(fates):
        state.apply(draft_round(place, place + 1, each, ms=ms))
    return state


def test_totals_are_those_of_the_rounds() -> None:
    totals = told("ARU", "AAA", "R").totals
    assert (totals.rounds, totals.taken, totals.drafted) == (3, 7, 7)
    assert (totals.looked, totals.accepted) == ((3, 2, 1), (2, 1, 1))
    assert totals.acceptance == pytest.approx(4 / 6)
    assert totals.tokens_a_forward == pytest.approx(7 / 3)
    assert totals.token_ms == pytest.approx(90 / 7)
    assert totals.slower == pytest.approx(9 / 7)
    assert totals.saved_ms == pytest.approx(70 - 90)
    assert totals.rates is not None
    assert totals.rates.rejection == pytest.approx(0.8)


def test_before_the_first_round_there_is_nothing_to_sum() -> None:
    totals = Speculation().totals
    assert (totals.rounds, totals.taken, totals.drafted) == (0, 0, 0)
    assert (totals.looked, totals.accepted) == ((), ())


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (60.0, "Here drafting is 1.5 times slower: a round costs 6.00 steps"),
        (20.0, "Here drafting is 2.0 times faster: a round"),
        (40.4, "Here drafting is as fast as plain steps: "),
    ],
)
def test_the_verdict_says_whether_it_paid(ms: float, words: str) -> None:
    assert verdict(told("AAA", ms=ms).totals).startswith(words)
    assert verdict(Speculation().totals) == ""


def test_the_parts_of_the_verdict_make_up_its_result() -> None:
    """Under load too, where some steps and rounds take many times as long as others."""
    state = told("AAA", "R", "R", ms=30.0)
    state.plain = [10.0, 10.0, 10.0, 14.0]
    state.apply(draft_round(3, 4, "R", ms=210.0))
    totals = state.totals
    assert totals.plain_ms is not None
    assert totals.slower == pytest.approx(totals.round_ms / totals.plain_ms / totals.tokens_a_forward)
    said = verdict(totals)
    result, steps, tokens = (float(each) for each in re.findall(r"([0-9.]+) (?:times|steps \(|tokens)", said))
    assert said.startswith(f"Here drafting is {steps / tokens:.1f} times slower")
    assert result == pytest.approx(steps / tokens, abs=0.05)


def test_times_of_a_busy_machine_give_no_verdict() -> None:
    state = told("accepted", "refused")
    state.plain = [10.0, 10.0, 10.0, 90.0]
    assert verdict(state.totals).startswith(
        "Too uneven to tell whether drafting pays: plain steps took 30.0 ms on average, where 10.0 ms is usual."
    )
    assert state.totals.saved_ms is None


def test_plain_steps_are_those_outside_of_rounds() -> None:
    session, state = Session(), Speculation()
    for record in (*session.load(), *session.open(), *session.steps(4)):
        state.apply(record)
    assert len(state.plain) == 4
    state.plain = []
    state.apply(SpeculationVerified(1, 2, 1, 0, None, None, "", 0.0, 8.0))
    assert state.plain == [8.0]


def test_other_settings_count_anew_and_a_stage_is_no_round() -> None:
    state = told("AAA")
    state.apply(draft_round(5, 5, "DDD", "proposed"))
    assert len(state.rounds) == 1
    assert state.ghost_words(5).count(FATE_SIGNS["drafted"]) == 3
    assert state.ghost_words(6) == ""
    state.apply(Ended("TakeRound"))
    state.forget()
    assert (state.rounds, state.begin, state.totals.slower) == ([], None, None)


def mended(value: Any) -> Any:
    """A record of a file without the numbers for which a replay leaves it out."""
    if isinstance(value, tuple):
        return tuple(map(mended, value))
    if isinstance(value, Struct):
        return replace(value, **{each.name: mended(getattr(value, each.name)) for each in fields(value)})
    if isinstance(value, float):
        return 0.0 if math.isnan(value) else min(abs(value), MOST)
    return min(abs(value), 10**15) if type(value) is int else value


@settings(max_examples=60, deadline=None)
@given(st.lists(made(DraftRound), max_size=4), st.lists(made(SpeculationVerified), max_size=1))
def test_whatever_a_file_holds_can_be_told(
    rounds: list[DraftRound], proofs: list[SpeculationVerified]
) -> None:
    state = Speculation()
    state.plain = [1.0]
    for record in map(mended, (*rounds, *proofs)):
        assert Speculation.sound(record)
        state.apply(record)
        assert state.ghost_words(getattr(record, "end", 0)).isprintable()
    totals = state.totals
    assert all(map(str.isprintable, (verdict(totals), *(value for _, value in figures(totals)))))
    for _, field, _ in RULES if totals.rates is not None else ():
        assert share(getattr(totals.rates, field)).endswith(" %")
    if state.verified is not None:
        assert proof(state.verified).isprintable()
