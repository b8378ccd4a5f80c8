"""Stepping without a KV cache: the same ids as with one, nothing held between steps, every way of going on works."""

from __future__ import annotations

import numpy as np
import pytest

from engine import protocol
from engine.decoding.beam import search
from engine.decoding.lookahead import lines_ahead
from engine.errors import Cancelled, SettingsError
from engine.model.forward import Runner
from engine.session.run import run
from engine.session.session import Session
from engine.setting import check
from engine.settings import BeamSettings, LoadSettings, Settings
from engine.task import never
from tests.engine.sessions import begun
from tests.engine.unthreaded import Unthreaded
from tests.zoo import CONFIGS, Zoo

PROMPT = list(range(7, 27))
SAMPLED = Settings(temp=0.9, top_p=0.95, seed=3, max_tokens=10**6, candidates=5)
TOLERANCE = 2e-3
"""Of float32 logits whose largest are about 30: what another order of sums makes of them."""


def opened(zoo: Zoo, name: str, *, cached: bool, settings: Settings = SAMPLED) -> Session:
    """A session that has read the prompt."""
    return begun(zoo.load(name, no_kv_cache=not cached), PROMPT, settings)


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", ["pocket", *CONFIGS])
def test_the_same_ids_and_logits_with_and_without_a_cache(zoo: Zoo, name: str) -> None:
    with_cache, without = opened(zoo, name, cached=True), opened(zoo, name, cached=False)
    assert not without.cached
    tolerance = 0.5 if name == "pocket" else TOLERANCE  # pocket computes in bfloat16: 8 bits of mantissa
    for _ in range(24):  # beyond the sliding windows of 32
        one, other = with_cache.step(), without.step()
        assert one.id == other.id
        assert np.abs(with_cache.logits - without.logits).max() < tolerance


def test_nothing_is_held_and_the_reading_tells_what_the_pass_took(zoo: Zoo) -> None:
    session, cached = opened(zoo, "llama", cached=False), opened(zoo, "llama", cached=True)
    for _ in range(3):
        step, other = session.step(), cached.step()
        assert (step.kv.offset, step.kv.used_bytes, step.kv.allocated_bytes) == (0, 0, 0)
        assert step.kv.passed_tokens == step.position + 1 == other.kv.offset
        assert step.kv.passed_bytes == other.kv.used_bytes
        assert (other.kv.passed_tokens, other.kv.passed_bytes) == (0, 0)
    assert session.kv.offset == 0
    assert all(cache.empty() for cache in session.kv.caches)


def test_the_prompt_is_read_with_its_logprobs_and_nothing_stays_of_it(zoo: Zoo) -> None:
    session = Session(zoo.load("llama", no_kv_cache=True), SAMPLED)
    *_, end = session.prefill("", PROMPT, echo=True)
    assert isinstance(end, protocol.Prefilled)
    read = []
    while (more := session.unread.read()) is not None:
        read += more.tokens
    assert len(read) == len(PROMPT) - 1
    assert all(token.logprob is not None for token in read)
    assert (end.kv.offset, end.kv.passed_tokens) == (0, len(PROMPT))


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba2", "qwen3-next"])
def test_moving_choosing_and_inserting(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name, cached=False)
    start = session.node
    steps = [session.step() for _ in range(6)]
    moved = session.move(steps[2].node)
    assert (moved.kept, moved.restored, moved.recomputed) == (0, 0, 0)
    row = session.logits
    assert session.choose(steps[3].id).node == steps[3].node
    list(session.insert([11, 12, 13]))
    session.kept_logits = type(session.kept_logits)(0)
    again = session.move(steps[2].node)
    assert again.recomputed == len(PROMPT) + 3
    assert "without a KV cache" in again.note
    assert np.array_equal(session.logits, row)
    assert session.move(start).kv.offset == 0


def test_verify_sets_it_against_the_cached_path(zoo: Zoo) -> None:
    session = opened(zoo, "llama", cached=False)
    for _ in range(4):
        session.step()
    found = session.verify()
    assert found.tokens == len(PROMPT) + 4
    assert found.largest_difference < TOLERANCE
    assert found.same_order


def test_a_run_takes_single_steps(zoo: Zoo) -> None:
    settings = Settings(max_tokens=5)
    with_cache = opened(zoo, "llama", cached=True, settings=settings)
    without = opened(zoo, "llama", cached=False, settings=settings)
    one, other = list(run(with_cache, never)), list(run(without, never))
    assert [step.id for step in one] == [step.id for step in other]
    assert not any(step.ms.pipelined for step in other)


def test_a_recalled_row_is_the_row_that_was_there(zoo: Zoo) -> None:
    session = opened(zoo, "llama", cached=False)
    steps = [session.step() for _ in range(3)]
    row = session.kept_logits.get(steps[0].node)
    session.kept_logits = type(session.kept_logits)(2**20)
    session.recall((steps[0].node,))
    assert row is not None
    assert np.array_equal(session.kept_logits.get(steps[0].node), row)


def test_a_long_pass_goes_in_chunks_and_can_be_stopped(zoo: Zoo) -> None:
    loaded = zoo.load("llama", no_kv_cache=True)
    whole = Runner(loaded.model, loaded.settings).forward_uncached(PROMPT)
    loaded = zoo.load("llama", no_kv_cache=True, prefill_step_size=6)
    asked: list[int] = []

    def count() -> bool:
        asked.append(1)
        return False

    runner = Runner(loaded.model, loaded.settings)
    assert np.abs(runner.forward_uncached(PROMPT, count) - whole).max() < TOLERANCE
    assert len(asked) == 4
    with pytest.raises(Cancelled):
        runner.forward_uncached(PROMPT, lambda: True)
    assert runner.kv.offset == 0


@pytest.mark.parametrize(("name", "value"), [("kv_bits", 8), ("max_kv_size", 64)])
def test_settings_that_need_a_cache_are_refused(name: str, value: int) -> None:
    with pytest.raises(SettingsError, match=f"no KV cache for --{name.replace('_', '-')}"):
        check(LoadSettings(no_kv_cache=True, **{name: value}))


def test_the_worker_says_so_and_steps(zoo: Zoo) -> None:
    engine = Unthreaded(LoadSettings(str(zoo.path("llama")), no_kv_cache=True), prompt="Once upon")
    step = engine.one(protocol.TakeStep(), protocol.Step)
    (facts,) = engine.of(protocol.ModelFacts)
    assert any("KV cache is off" in note for note in facts.notes)
    assert (step.kv.offset, step.kv.kept_budget, step.kv.passed_tokens) == (0, 0, step.position + 1)


def test_beams_run_on_a_cache_of_their_own(zoo: Zoo) -> None:
    settings = BeamSettings(width=3, max_tokens=5)
    found = [list(search(opened(zoo, "llama", cached=cached), settings))[-1] for cached in (True, False)]
    one, other = (end for end in found if isinstance(end, protocol.BeamEnded))
    assert [each.ids for each in one.ranking] == [each.ids for each in other.ranking]


def test_a_look_ahead_runs_on_a_cache_of_its_own(zoo: Zoo) -> None:
    lines = []
    for cached in (True, False):
        session = opened(zoo, "llama", cached=cached)
        session.step()
        ids = tuple(each.id for each in session.next.candidates[:3])
        *_, last = lines_ahead(session, session.node, ids, 4)
        lines.append([line.ids for line in last.lines])
    assert lines[0] == lines[1]
