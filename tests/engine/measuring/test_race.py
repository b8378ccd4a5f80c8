"""The race: the same ids in both lanes, the session untouched, and a difference is told where it is."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from engine import protocol
from engine.errors import Cancelled, StepError
from engine.measuring.caches import race
from engine.model.forward import Runner
from engine.protocol import RaceEnded, RaceOpened, RaceStep
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.engine.measuring.rig import measure
from tests.engine.sessions import begun
from tests.engine.unthreaded import Unthreaded
from tests.zoo import Zoo

PROMPT = list(range(7, 19))
SAMPLED = Settings(temp=0.9, top_p=0.95, seed=3, candidates=3)
KINDS = ["llama", "gemma3", "mamba2", "qwen3-next"]


def opened(zoo: Zoo, name: str, steps: int = 0, *, settings: Settings = SAMPLED, **load: object) -> Session:
    """A session some steps behind its prompt."""
    return begun(zoo.load(name, **load), PROMPT, settings, steps=steps)


def raced(zoo: Zoo, session: Session, name: str, first: int, last: int) -> list[RaceStep]:
    """The steps of a race that reaches its end."""
    found = list(measure(race, zoo.load(name), session, protocol.Race(first, last)))
    assert isinstance(found[-1], RaceEnded)
    return [record for record in found if isinstance(record, RaceStep)]


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", KINDS)
def test_both_lanes_take_the_tokens_that_the_session_takes(zoo: Zoo, name: str) -> None:
    session, twin = opened(zoo, name, 3), opened(zoo, name)
    before, node = session.logits.copy(), session.node
    steps = raced(zoo, session, name, 13, 36)
    assert [step.tokens for step in steps] == list(range(14, 37))
    assert all(step.equal for step in steps)
    taken = [twin.step().id for _ in range(24)]  # with the session's settings and draws
    assert [step.id for step in steps] == taken[1:]
    assert (session.node, len(session.tree)) == (node, len(PROMPT) + 4)
    assert np.array_equal(session.logits, before)
    assert session.verify().same_order


def test_the_sums_add_up_and_the_bytes_are_those_of_both_lanes(zoo: Zoo) -> None:
    steps = raced(zoo, opened(zoo, "llama"), "llama", 12, 24)
    for before, step in itertools.pairwise(steps):
        assert step.cached_total_ms == pytest.approx(before.cached_total_ms + step.cached_ms)
        assert step.uncached_total_ms == pytest.approx(before.uncached_total_ms + step.uncached_ms)
        assert step.kv_bytes == step.passed_bytes == before.kv_bytes // before.tokens * step.tokens


def test_a_race_follows_the_path_as_far_as_it_reaches(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    session.choose(1234)
    list(session.insert([40, 50]))
    found = list(measure(race, zoo.load("llama"), session, protocol.Race(8, 20)))
    begun = next(record for record in found if isinstance(record, RaceOpened))
    ids = [record.id for record in found if isinstance(record, RaceStep)]
    assert (begun.node, begun.given) == (session.node, 15)
    assert ids[:7] == [*PROMPT[8:], 1234, 40, 50]
    assert ids[7] == session.next.picked


def test_a_short_path_is_gone_on_with_to_the_first_length(zoo: Zoo) -> None:
    session, twin = opened(zoo, "llama"), opened(zoo, "llama")
    steps = raced(zoo, session, "llama", 20, 26)
    taken = [twin.step().id for _ in range(14)]
    assert [step.id for step in steps] == taken[8:]


def test_end_of_sequence_does_not_end_it(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    ends = session.tokens.eos_ids
    session.configure(Settings(logit_bias=tuple((token, 100.0) for token in ends)))
    steps = raced(zoo, session, "llama", 12, 20)
    assert len(steps) == 8
    assert {step.id for step in steps} <= set(ends)


def test_a_difference_is_told_where_it_is(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Runner.forward_uncached

    def wrong(self: Runner, ids: list[int], *rest: object) -> np.ndarray:
        row = whole(self, ids)
        if len(ids) in (15, 17):
            row[77] = row.max() + 5
        return row

    monkeypatch.setattr(Runner, "forward_uncached", wrong)
    session = opened(zoo, "llama", settings=Settings())
    found = list(measure(race, zoo.load("llama"), session, protocol.Race(12, 20)))
    end = found[-1]
    assert end.differences == (15, 17)
    assert end.largest_difference > 5
    steps = [record for record in found if isinstance(record, RaceStep)]
    assert [step.tokens for step in steps if not step.equal] == [15, 17]
    assert steps[2].uncached_pick == 77 != steps[3].id == steps[2].cached_pick


def test_without_a_cache_the_session_can_race_too(zoo: Zoo) -> None:
    session = opened(zoo, "llama", no_kv_cache=True)
    found = list(measure(race, zoo.load("llama", no_kv_cache=True), session, protocol.Race(12, 18)))
    assert all(record.equal for record in found if isinstance(record, RaceStep))
    assert session.kv.offset == 0


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        (0, 9, "can't go from 0 to 9"),
        (9, 9, "can't go from 9 to 9"),
        (16, 513, "context window of 512. Race to 512 tokens or fewer"),
    ],
)
def test_lengths_that_do_not_hold_are_refused(zoo: Zoo, first: int, last: int, said: str) -> None:
    session = opened(zoo, "pocket")
    with pytest.raises(StepError) as raised:
        next(measure(race, zoo.load("pocket"), session, protocol.Race(first, last)))
    assert said in str(raised.value)


def test_it_needs_a_prompt_and_can_be_stopped(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    with pytest.raises(StepError, match="no prompt"):
        next(measure(race, loaded, Session(loaded, SAMPLED), protocol.Race(4, 8)))
    stop = False
    found = measure(race, loaded, opened(zoo, "llama"), protocol.Race(12, 200), lambda: stop)
    for record in found:
        stop = stop or isinstance(record, RaceStep)
        if stop:
            break
    with pytest.raises(Cancelled):
        next(found)


@pytest.mark.slow
def test_the_cache_is_flat_and_the_pass_grows(zoo: Zoo) -> None:
    """The shape of it, generously: this machine may be busy with other things, so the best of eight rounds holds."""
    session = opened(zoo, "llama")
    for _ in range(8):
        begin, *_, end = _thirds(raced(zoo, session, "llama", 12, 150))
        flat, grown = end[0] / begin[0], end[1] / begin[1]
        if flat < 1.5 < 2 < grown:
            break
    assert flat < 1.5
    assert grown > 2


def _thirds(steps: list[RaceStep]) -> list[tuple[float, float]]:
    size = len(steps) // 3
    parts = [steps[n * size : (n + 1) * size] for n in range(3)]
    # the quickest of a third is that which was disturbed least
    return [(min(s.cached_ms for s in part), min(s.uncached_ms for s in part)) for part in parts]


def test_the_worker_races_and_a_cancel_ends_it(zoo: Zoo) -> None:
    engine = Unthreaded(LoadSettings(str(zoo.path("llama"))), prompt="Once upon a time there was")
    engine.cancel_when = lambda record: len(engine.of(RaceStep)) == 3
    begun = time.perf_counter()
    found = engine.do(protocol.Race(12, 400))
    assert time.perf_counter() - begun < 5
    assert found[-1] == protocol.Ended("Race", cancelled=True)
    assert len(engine.of(RaceStep)) == 3
    engine.cancel_when = lambda record: False
    assert isinstance(engine.do(protocol.TakeStep())[0], protocol.Step)
