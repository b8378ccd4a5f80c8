"""Random walks over the tree: what is shown after them equals what a fresh prefill of the same ids gives."""

from __future__ import annotations

import copy
import statistics
import time
import tracemalloc
from collections import deque
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache
from msgspec.structs import replace

from engine.cache import live
from engine.cache.live import KVStore
from engine.decoding.beam import search
from engine.errors import Cancelled, StepError
from engine.model.load import Loaded
from engine.protocol import PrefillChunk, Step
from engine.sampling.ranking import checked_logprobs, rank_of
from engine.session.prefill import ECHO_BYTES
from engine.session.run import run
from engine.session.session import KeptLogits, Session
from engine.settings import BeamSettings, Settings
from engine.tree import Chunks, cut_chunks, prompt_chunks
from inspector.state.timeline import Timeline
from tests.engine.sessions import begun, go_back, go_forward
from tests.zoo import Zoo

TOLERANCE = {"float32": 1e-4, "float16": 3e-2, "bfloat16": 0.25}
"""Largest difference of a logit (the largest are about 15) between a walk's cache and a fresh one's, by dtype.

On the CPU it is 0 with MLX's own BLAS, but for recurrent kinds (8e-6), whose chunks add up in another order; with
OpenBLAS the products of a chunk do, too, and it is up to 1.2e-5.
"""
VARIANTS = (
    "the bundled model",
    "the bundled model in its file's type",
    "plain bfloat16",
    "plain float16",
    "weights of 4 bits",
    "quantized from 12",
    "convolution",
    "no kept logits",
    "no kept KV",
    "no kept KV, hybrid",
    "sliding, window of 32",
)
"""Kinds whose caches are those of others: 60 rules a run instead of 150. The long walks have 1,500 for each kind."""
QUANTIZED = {8: 0.1, 4: 2.0}
"""Quantized KV against a fresh path that was prefilled and stepped alike, by bits, through a fast BLAS. There the chunk
of a longer prompt differs from that of a shorter one in the last bits, and a key at the border of two quanta falls on
its other side. One such value moves a logit by 2e-3 (8 bits) or 4e-2 (4 bits) in the median of 240, by 0.03 or 0.7 at
most; one wrong token of the path by 1.1 at least and by 5.7 and more in the median. A prefill of the whole is another
thing: mlx_lm lets the tokens of a chunk see each other before they are quantized."""

KINDS: dict[str, tuple[str, dict[str, Any], float]] = {
    "plain float32": ("llama", {}, TOLERANCE["float32"]),
    "plain bfloat16": ("llama:bfloat16", {}, TOLERANCE["bfloat16"]),
    "the bundled model": ("pocket", {}, TOLERANCE["float32"]),
    "the bundled model in its file's type": ("pocket", {"dtype": "file"}, TOLERANCE["bfloat16"]),
    "plain float16": ("llama:float16", {}, TOLERANCE["float16"]),
    "weights of 4 bits": ("llama:4bit", {}, TOLERANCE["float32"]),
    "quantized 8 bits": ("llama", {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}, 1e-4),
    "quantized 4 bits": ("llama", {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0}, 1e-4),
    "quantized from 12": ("llama", {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 12}, 1e-4),
    "rotating": ("phi3", {"max_kv_size": 16}, TOLERANCE["float32"]),
    "sliding beside global": ("gemma3", {}, TOLERANCE["float32"]),
    "recurrent": ("mamba2", {}, TOLERANCE["float32"]),
    "hybrid": ("qwen3-next", {}, TOLERANCE["float32"]),
    "convolution": ("lfm2", {}, TOLERANCE["float32"]),
    "no kept logits": ("llama", {"kept_logits_mib": 0}, TOLERANCE["float32"]),
    "no kept KV": ("llama", {"kept_kv_mib": 0}, TOLERANCE["float32"]),
    "no kept KV, hybrid": ("qwen3-next", {"kept_kv_mib": 0}, TOLERANCE["float32"]),
    "sliding, window of 32": ("gpt-oss", {}, TOLERANCE["float32"]),
}


class Reference:
    """What mlx_lm gives with fresh caches and none of our code.

    A prefill of all the ids; where its cut into chunks changes the numbers, of each prompt, and the rest token by
    token. There a path goes on from copies of the caches that its beginning left: 500 paths from nothing take minutes.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._model, self._options = loaded.model, loaded.settings
        self._alone = self._options.kv_bits is not None or self._options.max_kv_size is not None
        self._known: dict[tuple[Chunks, tuple[int, ...]], tuple[np.ndarray, list[Any]]] = {}

    def logits(self, ids: tuple[int, ...], chunks: Chunks) -> np.ndarray:
        """The float32 logits after a path."""
        last = len(ids) - 1
        key = cut_chunks(chunks if self._alone else prompt_chunks(len(ids)), last), ids
        if key not in self._known:
            first = next((first for first, end in key[0] if first < last <= end), last)
            cache = self._cache(ids[:first], key[0])
            if first < last:
                self._run(ids[first:-1], cache)
            self._known[key] = self._run(ids[-1:], cache), cache
        return self._known[key][0]

    def _cache(self, ids: tuple[int, ...], chunks: Chunks) -> list[Any]:
        if not ids:
            return make_prompt_cache(self._model, self._options.max_kv_size)
        self.logits(ids, chunks)
        return copy.deepcopy(self._known[cut_chunks(chunks, len(ids) - 1), ids][1])

    def _run(self, ids: tuple[int, ...], cache: list[Any]) -> np.ndarray:
        logits = self._model(mx.array([ids]), cache=cache)
        options = self._options
        if options.kv_bits is not None:
            maybe_quantize_kv_cache(cache, options.quantized_kv_start, options.kv_group_size, options.kv_bits)
        return np.array(logits[0, -1].astype(mx.float32))


def walk(loaded: Loaded, tolerance: float) -> type[RuleBasedStateMachine]:
    reference = Reference(loaded)

    class Walk(RuleBasedStateMachine):
        @initialize(
            prompt=st.lists(st.integers(3, 4000), min_size=1, max_size=20), seed=st.integers(0, 2**64 - 1)
        )
        def begin(self, prompt: list[int], seed: int) -> None:
            self.session = Session(loaded, Settings(temp=1.0, top_p=0.9, seed=seed, candidates=8))
            list(self.session.prefill("", prompt))
            self.moved = None

        @rule()
        def step(self) -> None:
            picked = self.session.next.picked
            step = self.session.step()
            assert step.id == picked
            assert step.node == self.session.node

        @rule(count=st.integers(1, 5))
        def run_and_break_off(self, count: int) -> None:
            taken: list[int] = []
            for step in run(self.session, lambda: len(taken) >= count):
                taken.append(step.id)  # noqa: PERF401 - the run asks for its length
            assert 1 <= len(taken) <= count + 1

        @rule(shared=st.integers(0, 25), ids=st.lists(st.integers(3, 4000), min_size=1, max_size=8))
        @precondition(lambda self: len(self.session.tree) < 200)
        def another_prompt(self, shared: int, ids: list[int]) -> None:
            path = self.session.tree.tokens(self.session.node)
            self.read(list(self.session.prefill("", [*path[:shared], *ids])), [*path[:shared], *ids])

        @rule(ids=st.lists(st.integers(3, 4000), min_size=1, max_size=8))
        @precondition(lambda self: len(self.session.tree) < 200)
        def turn(self, ids: list[int]) -> None:
            path = self.session.tree.tokens(self.session.node)
            self.read(list(self.session.prefill("", ids, parent=self.session.node)), [*path, *ids])

        def read(self, came: list[Any], path: list[int]) -> None:
            opened, *chunks, prefilled = came
            assert self.session.tree.tokens(self.session.node) == path
            assert opened.held == prefilled.kept + prefilled.restored
            assert [chunk.total for chunk in chunks] == [len(path)] * len(chunks)

        @rule(ids=st.lists(st.integers(3, 4000), min_size=3, max_size=9), data=st.data(), on=st.booleans())
        @precondition(lambda self: len(self.session.tree) < 200)
        def stopped_prompt(self, ids: list[int], data: st.DataObject, on: bool) -> None:
            polled: list[bool] = []

            def stopped() -> bool:
                polled.append(True)
                return len(polled) > 1

            with suppress(Cancelled):
                list(self.session.prefill("", ids, step_size=1, stopped=stopped))
            if self.session._prefill_run is not None and on:
                list(self.session.go_on_prefill())
            else:
                self.session.move(data.draw(st.integers(1, len(self.session.tree) - 1)))

        @rule(place=st.integers(0, 7))
        def choose(self, place: int) -> None:
            candidate = self.session.next.candidates[place]
            step = self.session.choose(candidate.id)
            assert (step.logprob, step.rank) == (candidate.logprob, candidate.rank)

        @rule(ids=st.lists(st.integers(0, 4095), min_size=1, max_size=4))
        def insert(self, ids: list[int]) -> None:
            assert [step.id for step in self.session.insert(ids)] == ids

        @rule(count=st.integers(1, 6))
        def back(self, count: int) -> None:
            go_back(self.session, count)

        @rule(count=st.integers(1, 6))
        def forward(self, count: int) -> None:
            go_forward(self.session, count)

        @rule(data=st.data())
        def move(self, data: st.DataObject) -> None:
            node = data.draw(st.integers(1, len(self.session.tree) - 1))
            self.go(node)

        def go(self, node: int) -> None:
            without_step = self.session.tree.without_step(node)
            moved, *steps = self.session.move_and_step(node)
            assert [step.node for step in steps] == without_step
            assert moved.node == (self.session.tree[without_step[0]].parent if without_step else node)
            depth = self.session.tree[moved.node].depth
            assert moved.kept + moved.restored + moved.recomputed == depth

        @rule(width=st.integers(1, 3), tokens=st.integers(1, 3), place=st.integers(0, 2))
        @precondition(lambda self: len(self.session.tree) < 200)
        def search(self, width: int, tokens: int, place: int) -> None:
            *_, end = search(self.session, BeamSettings(width=width, max_tokens=tokens))
            self.go(end.ranking[min(place, len(end.ranking) - 1)].node)

        @rule()
        @precondition(lambda self: len(self.session.tree) < 40)
        def reroll(self) -> None:
            before = self.session.next
            after = self.session.reroll()
            assert after.reroll == before.reroll + 1
            assert after.entropy_bits == before.entropy_bits

        @invariant()
        def shown_equals_a_fresh_prefill(self) -> None:
            session = self.session
            ids = session.tree.tokens(session.node)
            assert session.kv.offset == len(ids)
            assert session.kv.reading().offset == len(ids)
            fresh = reference.logits(tuple(ids), session.tree.chunks(session.node))
            assert np.abs(session.logits - fresh).max() <= tolerance
            logprobs = checked_logprobs(session.logits)
            for candidate in session.next.candidates:
                assert candidate.logprob == float(logprobs[candidate.id])
                assert candidate.rank == rank_of(session.logits, candidate.id)

    return Walk


def run_walk(machine: type[RuleBasedStateMachine], examples: int, rules: int) -> None:
    """Run a machine so many times, with at most so many rules each."""
    how = settings(
        max_examples=examples,
        stateful_step_count=rules,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=how)


def bound(loaded: Loaded, tolerance: float) -> float:
    """The largest difference of a logit that rounding explains, where the model itself needs `tolerance`."""
    bits, fast = loaded.settings.kv_bits, bool(loaded.facts.blas)
    flips = QUANTIZED[bits] if bits is not None and fast else 0.0
    return max(tolerance, TOLERANCE[loaded.facts.dtype], flips)


@pytest.mark.wide(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_walk_shows_what_a_fresh_prefill_gives(zoo: Zoo, kind: str) -> None:
    name, options, tolerance = KINDS[kind]
    loaded = zoo.load(name, **options)
    run_walk(walk(loaded, bound(loaded, tolerance)), 4, 10 if kind in VARIANTS else 20)


@pytest.mark.wide(1)
@pytest.mark.parametrize("piece", [1, 3])
def test_a_walk_over_branches_that_are_saved_piece_by_piece(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(live, "PIECE", piece)
    run_walk(walk(zoo.load("llama"), TOLERANCE["float32"]), 4, 20)


@pytest.mark.wide(2)
@pytest.mark.parametrize("kib", [6, 10, 24])
@pytest.mark.parametrize("name", ["llama", "gemma3", "lfm2"])
def test_a_walk_over_branches_that_have_to_make_room_for_each_other(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, name: str, kib: int
) -> None:
    monkeypatch.setattr("engine.session.session.KVStore", lambda budget: KVStore(kib * 1024))
    run_walk(walk(zoo.load(name), TOLERANCE["float32"]), 6, 40)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_walk_shows_what_a_fresh_prefill_gives(zoo: Zoo, kind: str) -> None:
    name, options, tolerance = KINDS[kind]
    loaded = zoo.load(name, **options)
    run_walk(walk(loaded, bound(loaded, tolerance)), 30, 50)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_branch_that_is_taken_again_behind_a_longer_prompt_is_that_of_the_prompt(
    zoo: Zoo, bits: int
) -> None:
    """The chunk of the longer prompt gives other numbers: keys that it read at once are quantized after that."""
    loaded = zoo.load("llama", kv_bits=bits, kv_group_size=32, quantized_kv_start=0)
    session, reference = Session(loaded, Settings(temp=0.0)), Reference(loaded)
    list(session.prefill("", [3, 250]))
    *_, fifth = session.insert([1, 1, 256])
    taken = session.choose(2686)
    before = session.logits.copy()
    list(session.prefill("", [3, 250, 1, 1, 256, 9]))
    session.move(fifth.node)
    again = session.choose(2686)
    assert again.node == taken.node
    path = session.tree.tokens(again.node), session.tree.chunks(again.node)
    assert path == ([3, 250, 1, 1, 256, 2686], ((0, 4),))
    assert np.abs(session.logits - reference.logits(tuple(path[0]), path[1])).max() <= 1e-4
    assert np.abs(session.logits - before).max() > 1e-3


@pytest.mark.parametrize("dropped", [False, True])
def test_a_return_does_not_look_at_the_branches_beside_its_way(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    loaded = zoo.load("llama")

    def looked(forks: int) -> int:
        """Common ancestors that a return asks for, after so many forks."""
        session, reference = begun(loaded, [3, 250, 1], steps=12), Reference(loaded)
        tip, middle = session.node, session.tree.nodes(session.node)[6]
        for token in range(40, 40 + forks):
            session.move(middle)
            session.choose(token)
            session.step()
        if dropped:
            session.kept_logits = KeptLogits(session.kept_logits.budget)
        with monkeypatch.context() as patch:
            asked = Mock(side_effect=session.tree.common_ancestor)
            patch.setattr(session.tree, "common_ancestor", asked)
            assert session.move(tip).recomputed == dropped
        assert len(session.mover.store.segments()) >= forks
        assert_follows(session, reference)
        return asked.call_count

    assert looked(5) == looked(40)


@pytest.mark.parametrize("kept", [1, 9, 25])
def test_branches_that_the_budget_can_not_hold_together_are_each_their_own(zoo: Zoo, kept: int) -> None:
    """What a return writes over is kept, and what is restored meanwhile may have to make room for it."""
    loaded = zoo.load("llama", kept_kv_mib=1)
    session, reference = begun(loaded, [3, 250, 1]), Reference(loaded)
    session.mover.store.budget = kept * (session.kv.bytes_per_token() or 0)
    middle, tips = session.node, []
    for token in (40, 60):
        session.move(middle)
        session.choose(token)
        for more in range(12):
            session.choose(token + more)
        tips.append(session.node)
    for tip in (*tips, *tips):
        assert session.move(tip).node == tip
        assert_follows(session, reference)
        session.move(tip)


@pytest.mark.parametrize("of", ["the cache", "the sampler"])
def test_the_current_node_goes_on_as_before_when_a_move_fails(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    loaded = zoo.load("llama")
    session, reference = begun(loaded, [3, 250, 1], steps=8), Reference(loaded)
    tip, middle = session.node, session.tree.nodes(session.node)[5]
    session.move(middle)
    for token in range(40, 46):
        session.choose(token)
    here = session.node
    failing = (live.KV, "set_offset") if of == "the cache" else (session.node_reader, "sample")
    with monkeypatch.context() as patch:
        patch.setattr(*failing, Mock(side_effect=StepError("No.", "Not here.")))
        with pytest.raises(StepError):
            session.move(tip)
    assert session.node == here
    assert_follows(session, reference)
    session.move(tip)
    assert_follows(session, reference)


def test_a_prompt_after_which_nothing_can_be_sampled_leaves_no_cache(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = zoo.load("llama")
    session, reference = begun(loaded, [3, 250, 1], steps=2), Reference(loaded)
    with monkeypatch.context() as patch:
        patch.setattr(session.node_reader, "sample", Mock(side_effect=StepError("No.", "Not here.")))
        with pytest.raises(StepError):
            list(session.prefill("", [3, 250, 9, 9]))
    with pytest.raises(StepError, match="There is no prefill to continue"):
        list(session.go_on_prefill())
    list(session.prefill("", [3, 250, 9, 9]))
    assert_follows(session, reference)


def assert_follows(session: Session, reference: Reference) -> None:
    """Take a token, and compare the logits after it with the reference's; they need all of the path's KV."""
    session.choose(5)
    ids, chunks = session.tree.tokens(session.node), session.tree.chunks(session.node)
    assert np.abs(session.logits - reference.logits(tuple(ids), chunks)).max() <= TOLERANCE["float32"]


def test_a_return_restores_what_reaches_furthest_and_not_what_was_kept_at_earlier_returns(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = zoo.load("llama")
    session, reference = begun(loaded, [3, 250, 1], steps=12), Reference(loaded)
    tip, middle = session.node, session.tree.nodes(session.node)[6]
    restored: list[int] = []
    plain = live.KV.restore

    def counted(kv: live.KV, saved: Any, at: int, end: int) -> int:
        restored[-1] += 1
        return plain(kv, saved, at, end)

    monkeypatch.setattr(live.KV, "restore", counted)
    for token in range(40, 60):
        session.move(middle)
        session.choose(token)
        restored.append(0)
        assert session.move(tip).recomputed == 0
        tip = session.choose(token).node
    assert len(session.mover.store.segments()) >= 20
    assert set(restored) == {1}
    assert_follows(session, reference)


# ---- long ones ---------------------------------------------------------------------------------

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
    new = begun(loaded, [5, 6, 7], Settings(temp=1.0, candidates=20, max_tokens=10**9))
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
