"""A cold start: what a model does first since it was loaded is marked, and in no rate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.decoding.run import run
from engine.model.first_uses import FirstUses
from engine.model.load import Loaded
from engine.protocol import PrefillChunk, Prefilled, Step
from engine.session.session import Session
from engine.session.uncached import open_session
from engine.settings import Settings
from engine.timing import tpot, warm
from tests.zoo import Zoo

PROMPT = list(range(7, 29))


def fresh(zoo: Zoo, **settings: object) -> Loaded:
    """A model as it is right after loading."""
    return replace(zoo.load("llama", **settings), first_uses=FirstUses())


def prefilled(session: Session, ids: list[int] = PROMPT) -> tuple[list[PrefillChunk], Prefilled]:
    """Read a prompt."""
    _, *chunks, end = session.prefill("", ids, echo=False)
    assert isinstance(end, Prefilled)
    return [chunk for chunk in chunks if isinstance(chunk, PrefillChunk)], end


def test_the_first_chunk_is_cold_and_the_rate_is_that_of_the_others(zoo: Zoo) -> None:
    chunks, end = prefilled(Session(fresh(zoo, prefill_step_size=7), Settings()))
    assert [chunk.cold for chunk in chunks] == [True, False, False]
    assert end.cold
    assert end.prompt_tps == pytest.approx(14 / sum(chunk.ms for chunk in chunks[1:]) * 1000)
    assert end.ttft_ms > sum(chunk.ms for chunk in chunks)


def test_a_short_first_prompt_has_no_rate_and_the_next_has_one(zoo: Zoo) -> None:
    loaded = fresh(zoo)
    assert prefilled(Session(loaded, Settings()), [7, 8, 9])[1].prompt_tps == 0
    (chunk,), end = prefilled(Session(loaded, Settings()), [7, 8, 9])
    assert (chunk.cold, end.cold) == (False, False)
    assert 0 < end.prompt_tps < 3 / chunk.ms * 1000


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("no_kv_cache", [False, True])
def test_the_first_step_alone_is_cold(zoo: Zoo, pipelined: bool, no_kv_cache: bool) -> None:
    loaded = fresh(zoo, no_kv_cache=no_kv_cache)
    for expected in ([True, False, False], [False, False, False]):
        session = open_session(loaded, Settings(max_tokens=3))
        prefilled(session)
        steps = list(run(session, lambda: False)) if pipelined else [session.step() for _ in range(3)]
        assert all(isinstance(step, Step) for step in steps)
        assert [step.ms.cold for step in steps] == expected


def test_no_mean_and_no_percentile_counts_a_cold_step(zoo: Zoo) -> None:
    session = Session(fresh(zoo), Settings())
    prefilled(session)
    first, *later = (session.step().ms for _ in range(4))
    slow = replace(first, total=10_000.0)
    assert slow.cold
    times = tpot(warm([slow, *later]))
    assert times is not None
    assert (times.steps, times.p95) == (3, max(ms.total for ms in later))
    assert tpot(warm([slow])) is None
