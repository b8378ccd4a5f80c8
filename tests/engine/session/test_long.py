"""Long sessions and long prompts: memory within its bounds, steps no slower, and a cancel within a chunk."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections import deque
from dataclasses import replace

import mlx.core as mx
import pytest

from engine.errors import Cancelled
from engine.model.load import Loaded
from engine.protocol import PrefillChunk, Step
from engine.session.prefill import ECHO_BYTES
from engine.session.session import Session
from engine.settings import Settings
from inspector.state.timeline import Timeline
from tests.zoo import Zoo

RECORD_BYTES = 10 * 1024
"""A step's records with 20 candidates, in the engine's tree and in the timeline."""


def endless(loaded: Loaded) -> Loaded:
    return replace(loaded, facts=replace(loaded.facts, context_window=None, hard_window=False))


@pytest.mark.slow
def test_twenty_thousand_steps_stay_within_their_memory_and_their_time(zoo: Zoo) -> None:
    loaded = endless(zoo.load("mamba2", kept_logits_mib=8, kept_kv_mib=8))
    session, timeline = Session(loaded, Settings(temp=1.0, candidates=20, max_tokens=10**9)), Timeline()
    for record in session.prefill("", [5, 6, 7], echo=False):
        timeline.apply(record)
    tracemalloc.start()
    try:
        for _ in range(20_000):
            timeline.apply(session.step())
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 20_000 * RECORD_BYTES + session.kept_logits.budget
    assert session.kept_logits.nbytes <= session.kept_logits.budget
    assert session.mover.store.nbytes <= session.mover.store.budget
    # a recurrent state never grows, so that a session just begun is a fair measure for what became slower
    new = Session(loaded, Settings(temp=1.0, candidates=20, max_tokens=10**9))
    list(new.prefill("", [5, 6, 7], echo=False))
    pairs = [(session.step().ms.total, new.step().ms.total) for _ in range(500)]
    old_ms, new_ms = (statistics.median(each) for each in zip(*pairs, strict=True))
    assert old_ms < 1.3 * new_ms
    print(f"{held / 20_000 / 1024:.1f} KiB a step; {old_ms:.2f} ms against {new_ms:.2f} ms in a new session")


@pytest.mark.slow
@pytest.mark.parametrize("echo", [False, True])
def test_a_prompt_of_100000_tokens_holds_no_more_than_a_chunk_of_logits(zoo: Zoo, echo: bool) -> None:
    loaded = endless(zoo.load("mamba2"))
    session, chunks = Session(loaded, Settings(candidates=1)), 0
    ids = [5 + place % 4000 for place in range(100_000)]
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    for record in session.prefill("", ids, echo=echo):
        chunks += isinstance(record, PrefillChunk)
    # the logits, the largest intermediate states of a chunk, and room for what a softmax copies
    assert mx.get_peak_memory() - before < session.kv.reading().allocated_bytes + 6 * ECHO_BYTES
    assert chunks >= 100_000 // 2048
    assert isinstance(session.step(), Step)


def test_a_cancel_takes_effect_within_a_chunk(zoo: Zoo) -> None:
    session = Session(endless(zoo.load("mamba2")), Settings())
    asked: deque[float] = deque()

    def stopped() -> bool:
        if session.kv.offset > 3000:
            asked.append(time.perf_counter())
        return len(asked) > 1  # asked for before the chunk that is under way

    with pytest.raises(Cancelled):
        list(session.prefill("", [7] * 50_000, echo=False, stopped=stopped))
    assert session.kv.offset < 20_000
    assert asked[-1] - asked[0] < 5  # about 0.15 s; other work may have the machine
