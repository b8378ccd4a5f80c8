"""Stops: which one, when, and that one can go on past it."""

from __future__ import annotations

import mlx_lm
import pytest

from engine import pocket
from engine.breakpoints import Breakpoints
from engine.decoding.run import BreakpointEvaluator, run
from engine.errors import StepError
from engine.session.node_records import stop_reached
from engine.session.session import Session
from engine.settings import Settings
from engine.task import never
from tests.engine.session.moving import go_back
from tests.zoo import Zoo


def begun(zoo: Zoo, text: str = "Once upon a time", name: str = "pocket", **settings: object) -> Session:
    session = Session(zoo.load(name), Settings(**settings))  # type: ignore[arg-type]
    list(session.prefill(text, session.tokens.encode(text)))
    return session


def typed(session: Session, text: str) -> list[str | None]:
    """The reasons after each token of a text."""
    found = []
    for token in session.tokens.encode(text, bare=True):
        session.choose(token)
        stop = stop_reached(session, session.node)
        found.append(f"{stop.reason}:{stop.detail}" if stop else None)
    return found


def test_end_of_sequence_ends_and_one_can_go_on(zoo: Zoo) -> None:
    session = begun(zoo)
    session.choose(2)
    stop = stop_reached(session, session.node)
    assert stop is not None
    assert (stop.reason, stop.detail) == ("eos", "<|im_end|>")
    assert session.step().index == 1


@pytest.mark.wide(2)
@pytest.mark.parametrize("stop", ["loved", "oved to pl", " cat sat", "t.\n\nTh", "é"])
def test_a_stop_string_ends_on_the_token_that_completes_it(zoo: Zoo, stop: str) -> None:
    session = begun(zoo, stop=(stop,), max_tokens=1000)
    text = " and she loved to play. The cat sat.\n\nThen a café"
    reasons = typed(session, text)
    ids = session.tokens.encode(text, bare=True)
    complete = [stop in session.tokens.join(ids[: place + 1]) for place in range(len(ids))]
    assert reasons.index(f"stop:{stop}") == complete.index(True)
    assert reasons.count(f"stop:{stop}") == 1


def test_a_stop_string_in_the_prompt_does_not_count(zoo: Zoo) -> None:
    session = begun(zoo, "Once upon a time", stop=("time, there",), max_tokens=1000)
    assert typed(session, ", there was") == [None] * 3


def test_max_tokens_end_a_run_and_one_that_goes_on_after_as_many_more(zoo: Zoo) -> None:
    session = begun(zoo, max_tokens=3, min_tokens=100)
    ends = []
    for by_hand in (0, 0, 2, 0, 1):
        for _ in range(by_hand):
            session.step()
        ends.append(list(run(session, never))[-1].index + 1)
    assert ends == [3, 6, 11, 14, 18]


def test_steps_by_hand_reach_max_tokens_once(zoo: Zoo) -> None:
    session = begun(zoo, max_tokens=3)
    reasons = [stop_reached(session, session.step().node) for _ in range(6)]
    assert [stop.detail if stop else None for stop in reasons] == [None, None, "3 tokens", None, None, None]


@pytest.mark.parametrize(("points", "ends"), [
    (Breakpoints(tokens=5), 5), (Breakpoints(tokens=2), 2), (Breakpoints(entropy_above=30), 3),
    (Breakpoints(tokens=5, entropy_above=30, all_of=True), 3),
])  # fmt: skip
def test_a_run_of_more_tokens_than_max_tokens_takes_all_of_them(
    zoo: Zoo, points: Breakpoints, ends: int
) -> None:
    """Where other conditions must hold, too, max tokens still ends it: else nothing might."""
    session = begun(zoo, max_tokens=3, min_tokens=100)
    assert len(list(run(session, never, BreakpointEvaluator(session, [points])))) == ends


def test_min_tokens_bar_end_of_sequence_and_say_so(zoo: Zoo) -> None:
    session = begun(zoo, "The end.", min_tokens=5, candidates=4096, temp=1.0, seed=1)
    for _ in range(5):
        barred = [each for each in session.next.candidates if each.id in session.tokens.eos_ids]
        assert [each.cut_by for each in barred] == ["min-tokens"] * 2
        assert [each.sampler_prob for each in barred] == [0, 0]
        session.step()
    assert {each.cut_by for each in session.next.candidates} == {None}


def test_the_context_window_ends_a_run(zoo: Zoo) -> None:
    session = Session(zoo.load("pocket"), Settings(max_tokens=1000, min_tokens=1000, candidates=1))
    list(session.prefill("", [300] * 505, echo=False))
    steps = list(run(session, never))
    assert steps[-1].kv.offset == 512
    stop = stop_reached(session, session.node)
    assert stop is not None
    assert (stop.reason, stop.detail) == ("length", "context window of 512 tokens")
    assert session.step().kv.offset == 513  # positions are computed: one can go on


def test_learned_positions_end_for_good(zoo: Zoo) -> None:
    session = Session(zoo.load("gpt2"), Settings(max_tokens=1000, candidates=1))
    assert session.facts.hard_window
    list(session.prefill("", [300] * 255, echo=False))
    session.step()
    with pytest.raises(StepError, match="context window of 256 tokens is full"):
        session.step()
    assert go_back(session, 3).kv.offset == 253


def test_an_extra_eos_token_ends_where_mlx_lm_ends(zoo: Zoo) -> None:
    session = Session(zoo.load("pocket", dtype="file", extra_eos_token=(".",)), Settings(max_tokens=60))
    ids = session.tokens.encode("Once upon a time")
    list(session.prefill("", ids, echo=False))
    ran = list(run(session, never))
    stop = stop_reached(session, ran[-1].node)
    assert stop is not None
    assert (stop.reason, stop.detail) == ("eos", ".")
    model, tokenizer = mlx_lm.load(str(pocket.directory()))
    tokenizer.add_eos_token(".")
    theirs = [each.token for each in mlx_lm.stream_generate(model, tokenizer, ids, max_tokens=60)]
    assert [step.id for step in ran] == theirs
    assert session.facts.eos_ids == tuple(sorted(tokenizer.eos_token_ids))
