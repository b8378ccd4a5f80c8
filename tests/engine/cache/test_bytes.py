"""Used and allocated bytes at every step, against the cache's own arrays and the framework's memory."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models import cache as caches

from engine.model.forward import Runner
from engine.session.session import Session
from engine.settings import Settings
from engine.tree import prompt_chunks
from tests.engine.session.moving import go_back
from tests.zoo import Zoo

PROMPT = list(range(10, 30))
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


@pytest.mark.wide(4)
@pytest.mark.parametrize("kind", MODELS)
def test_bytes_are_those_of_the_arrays_at_every_step(zoo: Zoo, kind: str) -> None:
    name, options = MODELS[kind]
    session = Session(zoo.load(name, **options), Settings(temp=1.0, seed=3, candidates=1))
    list(session.prefill("", PROMPT, echo=False))
    for step in range(STEPS):
        if step == 20:
            go_back(session, 5)
        reading = session.step().kv
        live = session.kv.caches
        assert reading.used_bytes == sum(map(holding, live)), step
        assert reading.allocated_bytes == sum(array.nbytes for cache in live for array in arrays(cache)), step
        assert reading.used_bytes <= reading.allocated_bytes


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
    runner.undo = None  # what takes the last token off again is kept beside the cache
    mx.eval(runner.kv.state())
    gained = mx.get_active_memory() - before
    # a convolution's state is a view that keeps the few columns alive that it was cut from
    assert runner.kv.reading().allocated_bytes == pytest.approx(gained, rel=0.02, abs=3 * 2**10)
