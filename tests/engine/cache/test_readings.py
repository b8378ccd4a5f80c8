"""KV readings and bytes against the arrays they are read off, for every kind of cache."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import cache as caches
from msgspec.structs import replace

from engine.cache import live
from engine.cache.live import KV, PIECE
from engine.model.forward import Runner
from engine.patches.rotary import RotaryBlocks
from engine.protocol import KVReading
from engine.session.session import Session, run_at
from engine.settings import Settings
from engine.tree import prompt_chunks
from tests.engine.sessions import begun, go_back, go_forward
from tests.zoo import Zoo

PROMPT = list(range(10, 30))


def stepped(zoo: Zoo, name: str, steps: int = 12, **load: Any) -> tuple[Session, list[KVReading]]:
    session = begun(zoo.load(name, **load), PROMPT, Settings(candidates=1))
    return session, [session.step().kv for _ in range(steps)]


def test_a_plain_cache_uses_what_the_formula_says(zoo: Zoo) -> None:
    session, readings = stepped(zoo, "llama")
    facts = session.facts
    per_token = 2 * facts.layers * (facts.kv_heads or 0) * (facts.head_size or 0) * 4
    assert facts.kv_bytes_per_token == per_token
    for place, reading in enumerate(readings):
        assert reading.offset == len(PROMPT) + place + 1
        assert reading.used_bytes == per_token * reading.offset
        assert reading.allocated_bytes == per_token * 256  # one block holds them all
        assert [(group.kind, group.held, group.limit) for group in reading.groups] == [
            ("plain", reading.offset, None)
        ]
        assert reading.groups[0].layers == (0, 1)


def test_a_quantized_cache_uses_packed_values_scales_and_biases(zoo: Zoo) -> None:
    session, readings = stepped(zoo, "llama", kv_bits=4, kv_group_size=32, quantized_kv_start=0)
    heads, size, layers = 2, 32, 2
    per_token = 2 * layers * heads * (size * 4 // 8 + 2 * 4 * size // 32)
    assert session.facts.kv_bytes_per_token == per_token
    assert readings[-1].used_bytes == per_token * readings[-1].offset
    assert readings[-1].groups[0].kind == "quantized"


def test_a_rotating_cache_holds_its_window_and_no_more(zoo: Zoo) -> None:
    _, readings = stepped(zoo, "phi3", max_kv_size=24)
    held = [reading.groups[0].held for reading in readings]
    assert held == [21, 22, 23] + [24] * 9
    assert {reading.groups[0].limit for reading in readings} == {24}
    assert readings[-1].offset == len(PROMPT) + 12
    assert readings[-1].used_bytes == readings[-1].allocated_bytes


def test_a_recurrent_state_is_constant(zoo: Zoo) -> None:
    session, readings = stepped(zoo, "mamba2")
    assert len({reading.used_bytes for reading in readings}) == 1
    assert readings[0].used_bytes == readings[0].allocated_bytes > 0
    assert session.facts.kv_bytes_per_token is None
    assert readings[0].groups[0].kind == "recurrent"


def test_mixed_caches_are_grouped_by_kind(zoo: Zoo) -> None:
    session, readings = stepped(zoo, "gemma3", steps=20)
    assert session.facts.cache_kinds == ("rotating", "plain")
    assert {group.kind: group.layers for group in readings[-1].groups} == {"rotating": (0,), "plain": (1,)}


def test_trimming_gives_nothing_back(zoo: Zoo) -> None:
    session, readings = stepped(zoo, "llama")
    moved = go_back(session, 10)
    assert moved.kv.offset == readings[1].offset
    assert moved.kv.used_bytes == readings[1].used_bytes
    assert moved.kv.allocated_bytes == readings[-1].allocated_bytes
    assert (moved.kept, moved.recomputed) == (22, 0)


@pytest.mark.parametrize("name", ["mamba2", "qwen3-next", "lfm2"])
def test_a_cache_that_cannot_be_trimmed_goes_back_through_kept_states(zoo: Zoo, name: str) -> None:
    session, readings = stepped(zoo, name)
    tip = session.node
    back = go_back(session, 5)
    assert (back.kept, back.restored, back.recomputed) == (27, 0, 0)
    assert back.kv.used_bytes == readings[6].used_bytes
    forth = session.move(tip)
    assert (forth.kept, forth.restored, forth.recomputed) == (27, 5, 0)


@pytest.mark.parametrize(
    ("name", "why"),
    [("mamba2", "a recurrent cache can't be trimmed"), ("gpt-oss", "a rotating cache can't be trimmed")],
)
def test_without_a_budget_it_recomputes_and_says_why(zoo: Zoo, name: str, why: str) -> None:
    session, _ = stepped(zoo, name, steps=20, kept_kv_mib=0)
    moved = go_back(session, 2)
    assert (moved.kept, moved.restored, moved.recomputed) == (0, 0, 38)
    assert moved.note == why
    assert session.mover.store.nbytes == 0


@pytest.mark.parametrize("name", ["gpt-oss", "mamba2"])
def test_over_more_tokens_than_can_be_undone_it_recomputes(
    zoo: Zoo, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_UNDO", 10)
    session, _ = stepped(zoo, name, steps=20)
    near = go_back(session, 10)
    assert near.recomputed == 0
    for _ in range(12):
        session.step()
    store = session.mover.store
    assert len(store._undoable) == 10
    assert store.nbytes == sum(size for _, size in store._entries.values())
    far = go_back(session, 15)
    assert far.recomputed > 0
    session.step()
    assert session.verify().largest_difference < 1e-4


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", ["llama", "gpt-oss", "mamba2", "qwen3-next"])
def test_a_branch_that_was_left_comes_back_without_a_forward(zoo: Zoo, name: str) -> None:
    session, _ = stepped(zoo, name, steps=30)
    tip, logits = session.node, session.logits
    go_back(session, 25)
    session.choose(77)
    for _ in range(20):
        session.step()
    moved = session.move(tip)
    assert (moved.kept, moved.restored, moved.recomputed) == (25, 25, 0)
    assert np.array_equal(session.logits, logits)
    assert session.step().kv.offset == 51
    assert session.verify().largest_difference < 1e-4


def test_a_state_is_restored_once_whatever_else_is_saved_on_the_way_to_it(zoo: Zoo) -> None:
    session, _ = stepped(zoo, "mamba2")
    go_back(session, 12)
    first = go_forward(session, 12)
    for _ in range(10):
        session.step()
    go_back(session, 22)
    moved = go_forward(session, 22)
    assert (moved.kept, moved.restored, moved.recomputed) == (20, 22, 0)
    assert moved.restored_bytes == first.restored_bytes > 0


# ---- branches in the arrays of the live cache ---------------------------------------------------


def columns(kv: KV) -> list[np.ndarray]:
    """The keys and values that are held, bit for bit."""
    return [np.array(side[..., : kv.offset, :]) for cache in kv.caches for side in (cache.keys, cache.values)]


def came_back(session: Session, node: int, held: list[np.ndarray]) -> None:
    """Move to a node without a forward, to the same keys and values."""
    assert session.move(node).recomputed == 0
    assert all(np.array_equal(*each) for each in zip(columns(session.kv), held, strict=True))


def test_a_branch_stays_in_the_arrays_until_it_is_written_over(zoo: Zoo) -> None:
    session, _ = stepped(zoo, "llama", steps=80)
    tip, held, store = session.node, columns(session.kv), session.mover.store
    each = session.facts.kv_bytes_per_token
    assert each is not None
    go_back(session, 70)
    assert (store.nbytes, [(left.begin, left.end) for left in session.kv.stale]) == (0, [(30, 100)])
    came_back(session, tip, held)
    go_back(session, 70)
    list(session.insert([77] * (PIECE + 1)))
    assert store.nbytes == 2 * PIECE * each
    assert [(left.begin, left.end) for left in session.kv.stale] == [(30 + 2 * PIECE, 100)]
    moved = session.move(tip)
    assert (moved.kept, moved.restored, moved.restored_bytes) == (30, 70, 70 * each)
    came_back(session, tip, held)


def test_several_branches_stay_in_the_arrays(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PIECE", 3)
    session, _ = stepped(zoo, "llama", steps=40)
    ends = [(session.node, columns(session.kv))]
    for back, token in ((30, 101), (10, 102), (12, 103)):
        go_back(session, back)
        list(session.insert([token] * 15))
        ends.append((session.node, columns(session.kv)))
    for place in (0, 3, 1, 0, 2, 3, 0):
        came_back(session, *ends[place])
    between = session.tree.nodes(ends[0][0])[35]
    came_back(session, *ends[1])
    assert session.move(between).recomputed == 0
    go_back(session, 8)  # what the other branch wrote lies between what is held and what is left of the first
    came_back(session, *ends[0])
    assert session.move(between).recomputed == 0
    list(session.insert([104] * 4))
    for end in ends:
        came_back(session, *end)


def test_a_branch_in_the_arrays_is_saved_before_they_go(zoo: Zoo) -> None:
    session, _ = stepped(zoo, "llama")
    tip, held = session.node, columns(session.kv)
    go_back(session, 5)
    list(session.prefill("", [7, 8, 9]))  # which shares nothing
    assert session.kv.stale == []
    came_back(session, tip, held)
    session, _ = stepped(zoo, "llama")
    go_back(session, 5)
    session.kv.adopt(session.runner.copy().kv.caches, session.kv.offset, session.kv.chunks)
    came_back(session, tip, held)


def test_a_copy_has_what_is_in_the_arrays_too(zoo: Zoo) -> None:
    session, _ = stepped(zoo, "llama")
    tip, held = session.node, columns(session.kv)
    go_back(session, 5)
    copied = run_at(session, tip)
    assert copied.recomputed == 0
    assert all(np.array_equal(*each) for each in zip(columns(copied.runner.kv), held, strict=True))
    short = session.runner.copy()
    short.forward(77)  # over the branch, in arrays of its own
    assert session.mover.store.nbytes == 0
    came_back(session, tip, held)


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"kept_kv_mib": 0}, "no KV of branches is kept: the budget is 0"),
        ({"kept_kv_mib": 1}, "its KV is not kept any more: the budget is 1 MiB"),
        ({"kept_logits_mib": 0}, "the logits after it are not kept any more"),
    ],
)
def test_what_is_computed_again_says_why(zoo: Zoo, options: dict[str, int], why: str) -> None:
    session, _ = stepped(zoo, "llama", steps=30, **options)
    tip = session.node
    for branch in range(1 if "kept_kv_mib" not in options else 6):
        session.move(session.tree.nodes(tip)[25])
        session.choose(100 + branch)
        for _ in range(200 if options == {"kept_kv_mib": 1} else 1):
            session.step()
    moved = session.move(tip)
    assert moved.recomputed == (1 if "kept_logits_mib" in options else 24)
    assert moved.note == why


def test_a_branch_from_before_the_quantizing_is_not_put_over_a_cache_that_was_emptied(zoo: Zoo) -> None:
    session = begun(zoo.load("llama", kv_bits=8, kv_group_size=32, quantized_kv_start=12), PROMPT[:5])
    early = session.choose(100).node
    go_back(session)
    list(session.insert([101, 102, 103, 104, 105, 106, 107, 108]))
    assert session.kv.kinds()[0] == "quantized"
    moved = session.move(early)
    assert (moved.kept, moved.restored, moved.recomputed) == (0, 0, 6)
    session.step()
    assert session.verify().largest_difference == 0


def test_what_is_kept_stays_within_the_budget(zoo: Zoo) -> None:
    session = begun(zoo.load("llama", kept_kv_mib=1), PROMPT * 20, Settings(candidates=4))
    fork = session.node
    for branch in range(5):
        list(session.prefill("", range(100 + branch, 300 + branch), parent=fork))
        assert session.mover.store.nbytes <= 2**20
    assert session.mover.store.nbytes > 2**19


class Broken:
    """A model whose forward fails after some layers have written their keys."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.armed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **keywords: Any) -> mx.array:
        logits: mx.array = self._model(*args, **keywords)
        if self.armed:
            for cache in keywords["cache"][:1]:
                if hasattr(cache, "offset"):
                    cache.offset -= 1  # as if the first layer had not got there
            raise RuntimeError("out of memory")
        return logits


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba2"])
def test_after_a_forward_that_failed_the_session_goes_on(zoo: Zoo, name: str) -> None:
    loaded = zoo.load(name)
    broken = Broken(loaded.model)
    session = begun(replace(loaded, model=broken), PROMPT, steps=3)
    broken.armed = True
    with pytest.raises(RuntimeError, match="out of memory"):
        session.step()
    assert session.kv.offset == (len(PROMPT) + 3) * (name == "llama")  # others can't be trimmed
    broken.armed = False
    step = session.step()
    assert step.kv.offset == len(PROMPT) + 4
    assert session.verify().largest_difference < 1e-4


def test_a_reading_of_an_empty_cache_is_zero(zoo: Zoo) -> None:
    for name in ("llama", "gemma3", "mamba2"):
        loaded = zoo.load(name)
        reading = KV(loaded.model, loaded.settings).reading()
        assert (reading.offset, reading.used_bytes, reading.allocated_bytes) == (0, 0, 0)


# ---- bytes at every step, against the cache's own arrays and the framework's memory ------------

STEPS = 30
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (name, {})
    for name in (
        "pocket", "llama", "llama-sliding", "qwen2", "qwen3", "gemma3", "gpt2", "phi3", "mixtral", "gpt-oss",
        "mamba2", "lfm2", "qwen3-next", "deepseek-v2",
    )
} | {
    "quantized 8 bits": ("llama", {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}),
    "quantized 4 bits from 30": ("llama", {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 30}),
    "rotating, wraps": ("phi3", {"max_kv_size": 32}),
}  # fmt: skip


def arrays(cache: Any) -> list[mx.array]:
    """Everything that a cache of mlx_lm owns."""
    if isinstance(cache, caches.CacheList):
        return [array for each in cache.caches for array in arrays(each)]
    if isinstance(cache, caches.ArraysCache):
        return [array for array in cache.cache if array is not None]
    pair = [cache.keys, cache.values]
    flat = [array for each in pair for array in (each if isinstance(each, tuple | list) else [each])]
    return [array for array in flat if array is not None]


def holding(cache: Any) -> int:
    """Bytes of its arrays that hold tokens, by slicing them as the cache itself does."""
    if isinstance(cache, caches.CacheList):
        return sum(holding(each) for each in cache.caches)
    if isinstance(cache, caches.ArraysCache):
        return sum(array.nbytes for array in arrays(cache))
    # a chunk of the prompt leaves a ring longer than its window until the next token
    ring = isinstance(cache, caches.RotatingKVCache) and cache.offset > cache.max_size
    return sum(array[..., : array.shape[2] if ring else cache.offset, :].nbytes for array in arrays(cache))


@pytest.mark.wide(2)
@pytest.mark.parametrize("kind", MODELS)
def test_bytes_are_those_of_the_arrays_at_every_step(zoo: Zoo, kind: str) -> None:
    name, options = MODELS[kind]
    session = begun(zoo.load(name, **options), PROMPT, Settings(temp=1.0, seed=3, candidates=1))
    for step in range(STEPS):
        if step == 20:
            go_back(session, 5)
        reading = session.step().kv
        live = session.kv.caches
        assert reading.used_bytes == sum(map(holding, live)), step
        assert reading.allocated_bytes == sum(array.nbytes for cache in live for array in arrays(cache)), step
        assert reading.used_bytes <= reading.allocated_bytes


@pytest.mark.wide(3)
@pytest.mark.parametrize("kind", MODELS)
def test_allocated_bytes_are_what_the_framework_gained(zoo: Zoo, kind: str) -> None:
    name, options = MODELS[kind]
    loaded = zoo.load(name, **options)
    runner = Runner(loaded.model, loaded.settings)
    runner.forward_path(
        PROMPT, prompt_chunks(len(PROMPT))
    )  # what the model makes for itself at its first call is no cache
    runner = Runner(loaded.model, loaded.settings)
    mx.clear_cache()
    before = mx.get_active_memory()
    runner.forward_path([*PROMPT, *range(40, 80)], prompt_chunks(len(PROMPT)))
    # what takes the last token off again is kept beside the cache, and so are the factors of positions
    runner.undo, runner._rotary_blocks = None, RotaryBlocks()
    mx.eval(runner.kv.state())
    gained = mx.get_active_memory() - before
    # a convolution's state is a view that keeps the few columns alive that it was cut from
    assert runner.kv.reading().allocated_bytes == pytest.approx(gained, rel=0.02, abs=3 * 2**10)
