"""A run back to back tells what single steps tell, for every kind of cache, whenever it is broken off."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from threading import Event

import numpy as np
import pytest
from msgspec.structs import replace

from engine import protocol
from engine.breakpoints import CONDITIONS, REACH, UNSURE, Breakpoints
from engine.errors import SettingsError
from engine.protocol import Distribution, Record, Step
from engine.sampling.ranking import rank_of
from engine.session.run import (
    PATIENCE_MS,
    BreakpointEvaluator,
    TextTail,
    _against,
    _share_against,
    margin,
    run,
)
from engine.session.session import Session
from engine.setting import check
from engine.settings import LoadSettings, Settings
from engine.task import never
from tests.engine import sessions
from tests.engine.session.test_walks import KINDS
from tests.engine.unthreaded import Unthreaded
from tests.zoo import Zoo

PROMPT = [5, 77, 300, 12, 9, 1000, 44, 8]


def plain(step: Step) -> Step:
    """A step without what differs from run to run: times and memory."""
    return replace(step, ms=None, memory=None)  # type: ignore[arg-type]


def begun(zoo: Zoo, kind: str, **settings: object) -> Session:
    name, options, _ = KINDS[kind]
    return sessions.begun(zoo.load(name, **options), PROMPT, Settings(**settings))  # type: ignore[arg-type]


@pytest.mark.wide(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temp", [0.0, 1.0])
def test_a_run_tells_what_steps_tell(zoo: Zoo, kind: str, temp: float) -> None:
    settings = {"temp": temp, "top_p": 0.95, "seed": 3, "max_tokens": 30}
    by_steps, by_run = begun(zoo, kind, **settings), begun(zoo, kind, **settings)
    steps = [by_steps.step() for _ in range(30)]
    ran = list(run(by_run, never))
    assert len(ran) == 30 or ran[-1].id in by_run.tokens.eos_ids
    assert [plain(step) for step in ran] == [plain(step) for step in steps[: len(ran)]]
    assert np.array_equal(by_run.kv.reading().offset, len(PROMPT) + len(ran))


@pytest.mark.wide(1)
@pytest.mark.parametrize("kind", ["plain float32", "quantized 8 bits", "rotating", "recurrent"])
def test_a_run_broken_off_anywhere_goes_on_as_steps(zoo: Zoo, kind: str) -> None:
    expected = [begun(zoo, kind, temp=1.0, seed=5)]
    steps = [expected[0].step() for _ in range(12)]
    for cut in range(1, 8):
        session = begun(zoo, kind, temp=1.0, seed=5)
        taken = list(islice(run(session, never), cut))  # closed while the next forward is under way
        assert session.kv.offset == len(PROMPT) + cut
        taken += [session.step() for _ in range(12 - cut)]
        assert [plain(step) for step in taken] == [plain(step) for step in steps]


def test_a_run_ends_at_a_stop_and_goes_on_past_it(zoo: Zoo) -> None:
    session = begun(zoo, "plain float32", max_tokens=4)
    assert [step.index for step in run(session, never)] == [0, 1, 2, 3]
    assert [step.index for step in run(session, never)] == [4, 5, 6, 7]


def test_a_pace_is_kept_and_a_cancel_cuts_the_wait_short(zoo: Zoo) -> None:
    session, cancel = begun(zoo, "plain float32"), Event()
    steps = run(session, cancel.is_set, None, 0.01, cancel.wait)
    next(steps)
    cancel.set()
    assert list(steps) == []  # would wait 100 s


# ---- breakpoints -------------------------------------------------------------------------------

STORY = "Once upon a time"


def story(zoo: Zoo, **settings: object) -> Session:
    """The pocket model at the beginning of a story that was drawn."""
    own = Settings(**{"temp": 0.8, "seed": 3, "max_tokens": 200, **settings})  # type: ignore[arg-type]
    return sessions.begun(zoo.load("pocket"), STORY, own)


def first(steps: list[Step], holds: Callable[[Distribution, Step], bool]) -> int:
    """How many steps are taken until something holds of what is to come."""
    return next(n for n, step in enumerate(steps, 1) if holds(step.next, step))


def picked(coming: Distribution) -> protocol.Candidate:
    return next(each for each in coming.candidates if each.id == coming.picked)


def lead(coming: Distribution) -> float:
    return coming.candidates[0].prob - coming.candidates[1].prob


HOLDS: dict[str, tuple[Breakpoints, Callable[[Distribution, Step], bool]]] = {
    "entropy": (Breakpoints(entropy_above=4.5), lambda coming, _: coming.entropy_bits > 4.5),
    "probability": (Breakpoints(prob_below=0.03), lambda coming, _: picked(coming).prob < 0.03),
    "rank": (Breakpoints(rank_above=9), lambda coming, _: picked(coming).rank > 9),
    "margin": (Breakpoints(margin_below=0.03), lambda coming, _: lead(coming) < 0.03),
    "tokens": (Breakpoints(tokens=5), lambda _, step: step.index == 4),
    "two, any": (
        Breakpoints(entropy_above=5, margin_below=0.03),
        lambda coming, _: coming.entropy_bits > 5 or lead(coming) < 0.03,
    ),
    "two, all": (
        Breakpoints(entropy_above=4, margin_below=0.05, all_of=True),
        lambda coming, _: coming.entropy_bits > 4 and lead(coming) < 0.05,
    ),
}


@pytest.fixture(scope="module")
def stepped(zoo: Zoo) -> list[Step]:
    """Single steps of the story."""
    session = story(zoo)
    return [session.step() for _ in range(60)]


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", HOLDS)
def test_a_run_stops_at_the_first_step_after_which_a_condition_holds(
    zoo: Zoo, stepped: list[Step], name: str
) -> None:
    points, holds = HOLDS[name]
    expected = stepped[: first(stepped, holds)]
    for pace in (None, 1000.0):
        session = story(zoo)
        breaking = BreakpointEvaluator(session, [points])
        ran = list(run(session, never, breaking, pace))
        assert [plain(step) for step in ran] == [plain(step) for step in expected]
        assert breaking.hits
        assert session.node == expected[-1].node
        assert len(session.tree) == session.tree[session.node].depth + 1  # nothing was grown beyond


@pytest.mark.wide(2)
@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_stands_where_the_run_stopped(zoo: Zoo, kind: str) -> None:
    by_steps, session = begun(zoo, kind, temp=1.0, seed=5), begun(zoo, kind, temp=1.0, seed=5)
    steps = [by_steps.step() for _ in range(9)]
    breaking = BreakpointEvaluator(session, [Breakpoints(tokens=6)])
    taken = list(run(session, never, breaking))
    assert session.kv.offset == session.tree[session.node].depth == by_steps.tree[by_steps.node].depth - 3
    taken += [session.step() for _ in range(3)]
    assert [plain(step) for step in taken] == [plain(step) for step in steps]


def test_the_sentences_have_the_figures_that_are_shown(zoo: Zoo) -> None:
    session = story(zoo)
    everything = Breakpoints(entropy_above=0, prob_below=1, rank_above=1, margin_below=1, tokens=1)
    while True:
        breaking = BreakpointEvaluator(session, [everything])
        list(run(session, never, breaking))
        if picked(session.next).rank > 1:
            break
    coming, own = session.next, picked(session.next)
    assert breaking.hits == (
        f"entropy {coming.entropy_bits:.2f} bits is above 0",
        f"probability {own.prob * 100:.3g} % is below 100 %",
        f"rank {own.rank} is above 1",
        f"margin {lead(coming) * 100:.3g} % between first and second is below 100 %",
        "1 token was taken",
    )


def test_figures_are_told_so_that_they_differ_from_their_limit() -> None:
    figures = [_against(bits, 3.0) for bits in (3.21, 3.004, 3.00012, 3.000000001)]
    assert figures == ["3.21", "3.004", "3.0001", "3.000000001"]
    assert _against(1e-20, 0.0) == "1e-20"
    shares = [_share_against(share, 0.05) for share in (0.0368, 0.04999, 0.049999999999)]
    assert shares == ["3.68 %", "4.999 %", "4.9999999999 %"]


def test_running_again_at_a_breakpoint_goes_on(zoo: Zoo) -> None:
    session = story(zoo)
    for _ in range(3):
        assert list(run(session, never, BreakpointEvaluator(session, [Breakpoints(entropy_above=0)])))
    assert session.tree[session.node].depth - session.tree[session.node].start == 3


def test_a_text_is_found_however_tokens_cut_it_and_only_when_it_is_new(zoo: Zoo, stepped: list[Step]) -> None:
    steps = stepped
    text = "".join(step.text for step in steps)
    wanted = steps[20].text[-2:] + steps[21].text + steps[22].text[:2]
    end, length, count = text.index(wanted) + len(wanted), 0, 0
    while length < end:
        length, count = length + len(steps[count].text), count + 1
    session = story(zoo)
    breaking = BreakpointEvaluator(session, [Breakpoints(text=wanted)])
    assert len(list(run(session, never, breaking))) == count
    assert breaking.hits == (f"the text now contains “{wanted}”",)
    again = BreakpointEvaluator(session, [Breakpoints(text=wanted, tokens=2)])
    list(run(session, never, again))
    assert again.hits == ("2 tokens were taken",)


def test_the_prompts_text_does_not_count(zoo: Zoo) -> None:
    session = story(zoo)
    breaking = BreakpointEvaluator(session, [Breakpoints(text="time", tokens=4)])
    list(run(session, never, breaking))
    assert breaking.hits == ("4 tokens were taken",)


def test_a_regular_expression_stops_where_it_comes_to_match(zoo: Zoo) -> None:
    session = story(zoo)
    breaking = BreakpointEvaluator(session, [Breakpoints(regex=r"\bnamed\s+([A-Z]\w+)")])
    steps = list(run(session, never, breaking))
    name = steps[-1].text.strip()
    assert steps[-2].text == " named"
    assert breaking.hits == (rf"the text now matches /\bnamed\s+([A-Z]\w+)/ with “named {name}”",)


def test_texts_hold_from_when_they_came_where_all_must_hold(zoo: Zoo) -> None:
    session = story(zoo)
    breaking = BreakpointEvaluator(session, [Breakpoints(text="named", tokens=30, all_of=True)])
    assert len(list(run(session, never, breaking))) == 30
    assert breaking.hits == ("30 tokens were taken", "the text now contains “named”")


def test_the_end_of_the_sequence_stops_before_it_is_taken(zoo: Zoo) -> None:
    session = story(zoo, logit_bias=((zoo.load("pocket").facts.eos_ids[0], 12.0),))  # so that it comes soon
    breaking = BreakpointEvaluator(session, [Breakpoints(eos=True)])
    steps = list(run(session, never, breaking))
    assert session.next.picked in session.tokens.eos_ids
    assert not {step.id for step in steps} & set(session.tokens.eos_ids)
    assert breaking.hits[0].startswith("end of sequence comes next: <|")
    assert [
        step.id for step in run(session, never, BreakpointEvaluator(session, [Breakpoints(eos=True)]))
    ] == [session.tokens.eos_ids[0]]


# ---- the end of the text ------------------------------------------------------------------------


class Fed:
    """The newest text of a completion that is fed by hand."""

    def __init__(self, session: Session) -> None:
        self.newest, self.session = TextTail(session), session

    def take(self, text: str) -> None:
        self.newest._raw = lambda _: text.encode()
        self.newest.add(0)

    def match(self, pattern: str) -> str:
        import regex

        return self.newest.match(regex.compile(pattern))


def test_a_beginning_is_the_completions_own_even_when_it_was_let_go(zoo: Zoo) -> None:
    fed = Fed(story(zoo))
    fed.take("ab")
    assert fed.match("^a") == "a"
    fed.take("a")
    assert fed.match("^a") == ""
    for _ in range(3 * REACH):
        fed.take("a")
        assert fed.match("^a+") == ("" if fed.newest._cut else fed.match("^a+"))
    assert fed.newest._cut
    assert len(fed.newest._text) <= 2 * REACH + 1


def test_a_match_reaches_back_so_far_and_no_further(zoo: Zoo) -> None:
    for far, found in ((REACH, True), (REACH + 1, False)):
        fed = Fed(story(zoo))
        fed.take("<" + "." * (far - 1))
        fed.take(">")
        assert bool(fed.match("<[^>]*>")) is found


def test_a_character_counts_when_it_is_finished(zoo: Zoo) -> None:
    newest = TextTail(story(zoo))
    newest._raw = lambda token: bytes([token])
    for byte in "€".encode()[:-1]:
        newest.add(byte)
        assert not newest.contains("€")
    newest.add("€".encode()[-1])
    assert newest.contains("€")


def test_a_pattern_that_would_take_for_ever_stops_the_run_in_time(zoo: Zoo) -> None:
    session = story(zoo)
    breaking = BreakpointEvaluator(session, [Breakpoints(regex=r"(x+x+)+(?=y)")])
    breaking._tail._text = "x" * 900  # type: ignore[union-attr]
    begun_at = time.perf_counter()
    assert len(list(run(session, never, breaking))) == 1
    assert time.perf_counter() - begun_at < 10 * PATIENCE_MS / 1000 + 1
    assert breaking.hits == (r"/(x+x+)+(?=y)/ took more than 50 ms at this text: make it simpler",)


# ---- what is asked ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "typed", "message"),
    [
        ("entropy_above", "-1", "entropy above must be a number of bits, at least 0, not -1"),
        ("entropy_above", "nan", "entropy above must be a number of bits, at least 0, not nan"),
        ("entropy_above", "much", "entropy above must be a number of bits, at least 0, not 'much'"),
        ("prob_below", "1.5", "probability below must be a number from 0 to 1, or 0 % to 100 %, not 1.5"),
        ("prob_below", "130 %", "probability below must be a number from 0 to 1, or 0 % to 100 %, not 1.3"),
        ("rank_above", "0", "rank above must be a whole number of at least 1, not 0"),
        ("rank_above", "2.5", "rank above must be a whole number of at least 1, not '2.5'"),
        ("margin_below", "-0.1", "margin below must be a number from 0 to 1, or 0 % to 100 %, not -0.1"),
        ("tokens", "0", "tokens must be a whole number of at least 1, not 0"),
        ("text", "x" * 201, "text must be a text of 1 to 200 characters, not 201 characters"),
        ("regex", "(", "regular expression can't be read: missing ), unterminated subpattern at position 0"),
        ("regex", "a*", "regular expression matches the empty text"),
        ("regex", "a{99999999999}", "regular expression can't be read: the repetition number is too large"),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_with_its_range(name: str, typed: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        next(each for each in CONDITIONS if each.name == name).parse(typed)
    assert caught.value.message == message + "."
    assert caught.value.field == name


def test_values_are_read_as_they_are_written() -> None:
    values = {"entropy_above": 2.5, "prob_below": 0.05, "rank_above": 3, "margin_below": 0.1, "mass_below": 0.2,
              "tokens": 7, "text": " a\n", "regex": r"\d+", "eos": True,
              "segment": "thinking ends"}  # fmt: skip
    for each in CONDITIONS:
        if each.kind != "flag":
            assert each.parse(each.format(values[each.name])) == values[each.name]
            assert each.parse("") is None
    assert CONDITIONS[1].parse("5 %") == CONDITIONS[1].parse("5%") == 0.05
    assert check(Breakpoints(**values)).conditions == (  # type: ignore[arg-type]
        "entropy > 2.5", "p < 5 %", "rank > 3", "margin < 10 %", "mass < 20 %", "end of sequence", "7 tokens",
        "“ a\n”", "thinking ends", r"/\d+/",
    )  # fmt: skip
    assert Breakpoints().conditions == ()


def test_the_margin_is_that_of_the_two_most_probable(zoo: Zoo) -> None:
    session = story(zoo)
    assert margin(session.position.node_logits.logprobs) == pytest.approx(lead(session.next), abs=1e-9)
    assert margin(np.zeros(1, np.float32)) == 1.0
    assert margin(np.log(np.array([0.2, 0.4, 0.4], np.float32))) == pytest.approx(0.0)
    assert rank_of(session.position.node_logits.logprobs, session.next.candidates[1].id) == 2


# ---- through the worker -------------------------------------------------------------------------


def works(*sent: protocol.Command, stop_after: int | None = None) -> list[Record]:
    """The records of some commands on the pocket model; the first run is cancelled after so many steps."""
    engine = Unthreaded(LoadSettings(), Settings(temp=0.8, seed=3, max_tokens=20))
    engine.do(protocol.Prefill(STORY, chat=False, echo=False))
    engine.cancel_when = lambda record: len(engine.of(Step)) == stop_after
    engine.do(*sent)
    return engine.records


def test_a_hit_is_told_and_the_run_counts_as_done() -> None:
    records_ = works(protocol.Run(until=Breakpoints(tokens=3)))
    steps = [record for record in records_ if isinstance(record, Step)]
    assert len(steps) == 3
    assert records_[-2:] == [
        protocol.BreakpointHit(steps[-1].node, ("3 tokens were taken",)),
        protocol.Ended("Run"),
    ]


def test_a_stop_and_a_hit_may_both_come() -> None:
    told = works(protocol.Run(until=Breakpoints(tokens=20, prob_below=1, all_of=True)))
    assert [type(record).__name__ for record in told[-4:]] == ["Step", "Finished", "BreakpointHit", "Ended"]


def test_skipping_stops_where_the_token_to_come_is_not_sure() -> None:
    told = works(protocol.Run(over_sure=True), protocol.Run(over_sure=True, until=Breakpoints(tokens=1)))
    steps = [record for record in told if isinstance(record, Step)]
    hits = [record for record in told if isinstance(record, protocol.BreakpointHit)]
    assert all(picked(step.next).prob >= 0.5 for step in steps[:-2])
    assert hits[0].conditions == (f"probability {picked(steps[-2].next).prob * 100:.3g} % is below 50 %",)
    assert "1 token was taken" in hits[1].conditions
    assert Breakpoints(prob_below=0.5) == UNSURE


def test_a_run_taken_up_at_another_pace_keeps_its_count() -> None:
    until = Breakpoints(tokens=8)
    told = works(
        protocol.Run(until=until), protocol.Run(1000.0, until, goes_on=True), protocol.Run(1000.0, until), stop_after=3
    )  # fmt: skip
    hits = [record for record in told if isinstance(record, protocol.BreakpointHit)]
    taken = [step.index for step in told if isinstance(step, Step)]
    assert taken == list(range(16))
    assert [hit.conditions for hit in hits] == [("8 tokens were taken",)] * 2


def test_a_run_that_was_broken_while_its_pace_changed_does_not_go_past_the_breakpoint() -> None:
    until = Breakpoints(tokens=3)
    told = works(protocol.Run(until=until), protocol.Run(until=until, goes_on=True), stop_after=3)
    assert sum(isinstance(record, Step) for record in told) == 3
    assert told[-2] == protocol.BreakpointHit(told[-2].node, ("3 tokens were taken",))  # type: ignore[union-attr]


def test_breakpoints_that_cannot_hold_are_refused() -> None:
    told = works(protocol.Run(until=Breakpoints(rank_above=0)))
    assert [record.message for record in told if isinstance(record, protocol.Failure)] == [
        "rank above must be a whole number of at least 1, not 0."
    ]
