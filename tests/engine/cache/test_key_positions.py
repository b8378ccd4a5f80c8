"""Which token each key that a cache returns belongs to: the keys of these tests say it themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from engine.cache.kinds import kind_of

CHUNKS = st.lists(st.one_of(st.just(1), st.integers(1, 25)), min_size=1, max_size=40)
"""Tokens of each forward: most are steps."""
SIZE = 32


def keys(first: int, count: int) -> mx.array:
    """Keys of some tokens; each number of a key is its position."""
    positions = mx.arange(first, first + count).astype(mx.float32)
    return mx.broadcast_to(positions[None, None, :, None], (1, 1, count, SIZE))


def said(fetched: Any) -> list[int]:
    """The positions in the keys that a cache returned."""
    if isinstance(fetched, tuple):
        fetched = mx.dequantize(*fetched, group_size=SIZE, bits=8)
    return [round(position) for position in fetched[0, 0, :, 0].tolist()]


def run(cache: Any, chunks: list[int], before: Callable[[Any], None] = lambda _: None) -> None:
    """Some forwards; after each the kind says what the keys say."""
    for chunk in chunks:
        before(cache)
        added = keys(cache.offset, chunk)
        fetched = said(cache.update_and_fetch(added, added)[0])
        assert kind_of(cache).key_positions(cache, len(fetched)) == fetched


@settings(deadline=None, max_examples=60)
@given(CHUNKS, st.integers(2, 12), st.data())
def test_a_ring(chunks: list[int], window: int, data: st.DataObject) -> None:
    run(RotatingKVCache(window, keep=data.draw(st.integers(0, window - 1))), chunks)


@settings(deadline=None, max_examples=30)
@given(CHUNKS, st.integers(2, 40), st.integers(1, 10), CHUNKS)
def test_a_ring_that_was_trimmed(first: list[int], window: int, back: int, then: list[int]) -> None:
    cache = RotatingKVCache(window)
    run(cache, first)
    if cache.is_trimmable():
        cache.trim(back)
    run(cache, then)


@settings(deadline=None, max_examples=30)
@given(CHUNKS, st.integers(1, 12))
def test_a_ring_whose_last_tokens_were_undone(chunks: list[int], window: int) -> None:
    cache = RotatingKVCache(window)
    run(cache, chunks)
    kind = kind_of(cache)
    record = kind.record_undo(cache)
    run(cache, [1])
    assert record is not None
    kind.undo(cache, record)
    run(cache, [1, 1, 3, 1])


@settings(deadline=None, max_examples=20)
@given(CHUNKS, st.integers(0, 5), CHUNKS)
@pytest.mark.parametrize("make", [KVCache, lambda: QuantizedKVCache(group_size=SIZE, bits=8)])
def test_a_growing_cache(make: Callable[[], Any], chunks: list[int], back: int, then: list[int]) -> None:
    cache = make()
    run(cache, chunks)
    cache.trim(back)
    run(cache, then)


@settings(deadline=None, max_examples=30)
@given(CHUNKS, st.integers(1, 12))
def test_a_chunked_cache(chunks: list[int], size: int) -> None:
    run(ChunkedKVCache(size), chunks, lambda cache: cache.maybe_trim_front())


def test_another_number_of_keys_has_no_positions() -> None:
    for cache in (KVCache(), RotatingKVCache(4), RotatingKVCache(4, keep=1), ChunkedKVCache(4)):
        cache.update_and_fetch(keys(0, 3), keys(0, 3))
        cache.update_and_fetch(keys(3, 3), keys(3, 3))
        for count in (0, 2, 5, 7, 100):
            held = said(cache.keys_and_values()[0]) if hasattr(cache, "keys_and_values") else list(range(6))
            positions = kind_of(cache).key_positions(cache, count)
            assert positions is None or (count == len(held) and positions == held), (cache, count)
