"""Cache kinds: one of a test's own making behind the type map, one that nobody registered, and all that mlx_lm has."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm.models import cache as caches
from mlx_lm.models.cache import ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache
from msgspec.structs import replace

import engine
from engine.cache.kinds import GENERAL, KINDS, Kind, Snapshot, kind_named, kind_of, pick_rows
from engine.decoding.rows import BatchedRows, SequentialRows, rows_of
from engine.model.forward import Runner
from engine.model.load import Loaded, load
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.tree import prompt_chunks
from tests import synthetic
from tests.engine.session.test_walks import run_walk, walk
from tests.engine.sessions import begun, go_back
from tests.zoo import BASE, CONFIGS, Zoo

PROMPT = list(range(10, 30))


class OwnCaches:
    """A model with other caches than it makes for itself."""

    def __init__(self, model: Any, make: Callable[[], Any]) -> None:
        self._model, self._make = model, make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def make_cache(self) -> list[Any]:
        return [self._make() for _ in self._model.layers]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self._model(*args, **keywords)


def with_caches(loaded: Loaded, make: Callable[[], Any]) -> Loaded:
    """A loaded model that makes such caches."""
    return replace(loaded, model=OwnCaches(loaded.model, make))


def opened(loaded: Loaded, steps: int = 10) -> Session:
    """A session some steps behind its prompt."""
    return begun(loaded, PROMPT, Settings(candidates=8), steps=steps)


def walked(loaded: Loaded) -> None:
    """Steps, moves, runs and beam searches in any order, each against mlx_lm with fresh caches."""
    run_walk(walk(loaded, 1e-4), 4, 12)


# ---- a kind of a test's own making --------------------------------------------------------------


class StackedCache:
    """Keys and values in one array of shape (rows, 2, heads, tokens, head size), as long as the tokens held."""

    both: mx.array | None = None

    @property
    def offset(self) -> int:
        return 0 if self.both is None else self.both.shape[3]

    @property
    def state(self) -> tuple[mx.array | None]:
        return (self.both,)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.append(mx.stack([keys, values], axis=1))
        return self.both[:, 0], self.both[:, 1]

    def append(self, new: mx.array) -> None:
        self.both = new if self.both is None else mx.concatenate([self.both, new], axis=3)

    def make_mask(self, *args: Any, **keywords: Any) -> Any:
        return caches.create_attention_mask(*args, offset=self.offset, **keywords)

    def is_trimmable(self) -> bool:
        return True

    def trim(self, count: int) -> int:
        self.both = self.both[..., : self.offset - count, :]
        return count


class Stacked(Kind):
    """The kind of `StackedCache`: all that the engine learns of it."""

    name = "stacked"  # type: ignore[assignment]
    cache_class = StackedCache
    has_snapshots = partial_restore = True
    lazy = False

    def bytes_per_token(self, cache: Any) -> int:
        return int(cache.both.nbytes // cache.offset)

    def trims_at(self, cache: Any, offset: int) -> bool:
        return True

    def snapshot(self, cache: Any, start: int, end: int) -> Snapshot:
        return Snapshot((mx.array(cache.both[..., start:end, :]),), start=start)

    def restore(self, cache: Any, saved: Any, at: int, end: int) -> int:
        cache.trim(cache.offset - at)
        column = saved.copies[0][..., at - saved.start : end - saved.start, :]
        cache.append(column)
        return int(column.nbytes)

    def pick(self, cache: Any, rows: mx.array) -> None:
        cache.both = pick_rows(cache.both, rows)


@pytest.fixture
def stacked(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """A model whose caches are of that kind, which has its line in the type map."""
    monkeypatch.setitem(KINDS, StackedCache, Stacked())
    return with_caches(zoo.load("llama"), StackedCache)


def keys_and_values(loaded: Loaded, ids: list[int]) -> list[np.ndarray]:
    """What mlx_lm's own caches hold after one prefill of some tokens."""
    fresh = caches.make_prompt_cache(loaded.model)
    mx.eval(loaded.model(mx.array([ids]), cache=fresh))
    return [
        np.array(mx.stack([cache.state[0], cache.state[1]], axis=1)[..., : len(ids), :]) for cache in fresh
    ]


def test_a_new_kind_is_one_class_and_one_line(zoo: Zoo, stacked: Loaded) -> None:
    session, plain = opened(stacked), opened(zoo.load("llama"))
    assert session.kv.kinds() == ("stacked", "stacked")
    assert session.tree.tokens(session.node) == plain.tree.tokens(plain.node)
    mine, theirs = session.kv_reading(), plain.kv_reading()
    assert (mine.offset, mine.used_bytes) == (theirs.offset, theirs.used_bytes)
    assert session.kv.bytes_per_token() == plain.kv.bytes_per_token() == 1024
    assert session.can_pipeline

    tip = session.node
    assert (go_back(session, 6).kept, session.choose(77).kv.offset) == (24, 25)
    moved = session.move(tip)
    assert (moved.kept, moved.restored, moved.recomputed) == (24, 6, 0)
    for each, expected in zip(
        session.kv.caches, keys_and_values(zoo.load("llama"), session.tree.tokens(tip)), strict=True
    ):
        assert np.abs(np.array(each.both) - expected).max() < 1e-4
    assert session.verify().largest_difference < 1e-4


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turns=st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(3, 4000)), min_size=1, max_size=4), max_size=4
    )
)
def test_its_rows_are_those_of_a_plain_cache(
    zoo: Zoo, stacked: Loaded, turns: list[list[tuple[int, int]]]
) -> None:
    runners = [Runner(loaded.model, loaded.settings) for loaded in (stacked, zoo.load("llama"))]
    for runner in runners:
        runner.forward_path(PROMPT, prompt_chunks(len(PROMPT)))
    mine, theirs = map(rows_of, runners)
    assert isinstance(mine, BatchedRows)
    count = 1
    for turn in turns:
        parents, tokens = [parent % count for parent, _ in turn], [token for _, token in turn]
        mine.keep(parents)
        theirs.keep(parents)
        for one, two in zip(mine.forward(tokens), theirs.forward(tokens), strict=True):
            assert np.abs(one - two).max() < 1e-4
        count = len(turn)


@pytest.mark.slow
def test_walks_over_a_new_kind_show_what_a_fresh_prefill_gives(stacked: Loaded) -> None:
    walked(stacked)


# ---- the general case ---------------------------------------------------------------------------


class Untrimmable(StackedCache):
    """Of a class that nobody registered, and nothing can be taken off it."""

    def is_trimmable(self) -> bool:
        return False

    def trim(self, count: int) -> int:
        raise AssertionError("it says that it can't be trimmed")


@pytest.mark.parametrize("cache", [StackedCache, Untrimmable])
def test_a_kind_that_nobody_registered_is_read_and_recomputed(zoo: Zoo, cache: type) -> None:
    session, plain = opened(with_caches(zoo.load("llama"), cache)), opened(zoo.load("llama"))
    assert kind_of(session.kv.caches[0]) is GENERAL
    assert session.kv.kinds() == ("other", "other")
    reading = session.kv_reading()
    assert reading.used_bytes == reading.allocated_bytes == plain.kv_reading().used_bytes
    assert [(group.kind, group.held, group.limit) for group in reading.groups] == [("other", 30, None)]
    assert session.kv.bytes_per_token() is None
    assert not session.can_pipeline
    sequential = rows_of(session.runner, session.logits)
    assert isinstance(sequential, SequentialRows)
    assert f"of kind other ({cache.__name__})" in sequential.note
    assert list(sequential.begin([(), ()])) == []
    assert [row.tolist() for row in sequential.logits] == [session.logits.tolist()] * 2

    tip, back = session.node, go_back(session, 3)
    trimmed = cache is StackedCache
    assert (back.kept, back.restored, back.recomputed) == ((27, 0, 0) if trimmed else (0, 0, 27))
    assert back.note == ("" if trimmed else "a other cache can't be trimmed")
    moved = session.move(tip)
    assert (moved.kept, moved.restored, moved.recomputed) == (27, 0, 3)
    assert moved.note == "the branches of a other cache can't be kept"
    assert session.verify().largest_difference < 1e-4


@pytest.mark.wide(1)
@pytest.mark.parametrize("cache", [StackedCache, Untrimmable])
def test_walks_over_the_general_case_show_what_a_fresh_prefill_gives(zoo: Zoo, cache: type) -> None:
    walked(with_caches(zoo.load("llama"), cache))


def test_a_trim_that_moves_its_count_alone_is_not_trusted(zoo: Zoo) -> None:
    """mlx_lm's `ConcatenateKVCache` keeps the keys of the tokens that it was to drop."""
    session = opened(with_caches(zoo.load("llama"), caches.ConcatenateKVCache))
    assert session.kv.kinds() == ("other", "other")
    back = go_back(session, 3)
    assert (back.kept, back.recomputed) == (0, 27)
    assert back.note == "the trim of ConcatenateKVCache leaves its arrays as they were"
    session.choose(77)
    assert session.verify().largest_difference < 1e-4
    inside = opened(with_caches(zoo.load("llama"), InList))
    go_back(inside, 3)
    inside.choose(77)
    assert inside.verify().largest_difference < 1e-4


@pytest.mark.wide(1)
@pytest.mark.parametrize("cache", [caches.ConcatenateKVCache, lambda: InList()])
def test_walks_over_it_show_what_a_fresh_prefill_gives(zoo: Zoo, cache: Callable[[], Any]) -> None:
    walked(with_caches(zoo.load("llama"), cache))


# ---- caches made of caches: no model of the zoo has them ----------------------------------------


class InList(caches.CacheList):
    """A cache of a class that nobody registered, alone in a list."""

    def __init__(self) -> None:
        super().__init__(caches.ConcatenateKVCache())

    def __getattr__(self, name: str) -> Any:
        if name in ("caches", "keys", "values") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.caches[0], name)


class WithState(caches.CacheList):
    """A cache for an attention layer, and a state that each token replaces."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, caches.ArraysCache(1))

    def __getattr__(self, name: str) -> Any:
        if name in ("caches", "keys", "values") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.caches[0], name)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        self.caches[1][0] = keys[..., -1:, :] + 0
        return self.caches[0].update_and_fetch(keys, values)


INNER: dict[str, Callable[[], Any]] = {
    "plain": caches.KVCache,
    "rotating": lambda: caches.RotatingKVCache(16),
    "unknown": Untrimmable,
}


@pytest.mark.slow
@pytest.mark.parametrize("inner", INNER)
def test_walks_over_composite_caches_show_what_a_fresh_prefill_gives(zoo: Zoo, inner: str) -> None:
    walked(with_caches(zoo.load("llama"), lambda: WithState(INNER[inner]())))


@pytest.mark.parametrize("inner", INNER)
def test_a_composite_cache_goes_back_and_forth_as_its_inner_caches_can(zoo: Zoo, inner: str) -> None:
    session = opened(with_caches(zoo.load("llama"), lambda: WithState(INNER[inner]())))
    assert session.kv.kinds() == ("list", "list")
    known, tip = inner != "unknown", session.node
    states = [np.array(cache.caches[1][0]) for cache in session.kv.caches]
    back = go_back(session, 5)
    assert (back.kept, back.recomputed) == ((25, 0) if known else (0, 25))
    moved = session.move(tip)
    assert (moved.kept, moved.restored, moved.recomputed) == ((25, 5, 0) if known else (25, 0, 5))
    for cache, state in zip(session.kv.caches, states, strict=True):
        assert np.abs(np.array(cache.caches[1][0]) - state).max() < 1e-4


def filled(cache: Any, tokens: int) -> Any:
    """A cache that some tokens of two heads went into."""
    if isinstance(cache, caches.ArraysCache):
        cache[0] = mx.zeros((1, 2, 32))
    else:
        cache.update_and_fetch(mx.zeros((1, 2, tokens, 32)), mx.zeros((1, 2, tokens, 32)))
    return cache


LEAVES: list[Callable[[], Any]] = [
    caches.KVCache,
    lambda: caches.QuantizedKVCache(32, 8),
    lambda: caches.RotatingKVCache(8),
    lambda: caches.ArraysCache(1),
    lambda: caches.ChunkedKVCache(8),
]


@settings(max_examples=40, deadline=None)
@given(makers=st.lists(st.sampled_from(LEAVES), min_size=1, max_size=4), tokens=st.integers(1, 20))
def test_a_composite_reads_as_its_inner_caches_together(makers: list[Callable[[], Any]], tokens: int) -> None:
    leaves = [filled(make(), tokens) for make in makers]
    whole = caches.CacheList(*leaves)
    kind, kinds = kind_of(whole), [kind_of(leaf) for leaf in leaves]
    pairs = list(zip(kinds, leaves, strict=True))
    assert kind.held(whole) == max(each.held(leaf) for each, leaf in pairs)
    assert kind.read(whole)[3] == sum(each.read(leaf)[3] for each, leaf in pairs)
    assert kind.bytes_per_token(whole) == sum(each.bytes_per_token(leaf) for each, leaf in pairs)
    assert kind.can_snapshot(whole) == all(each.can_snapshot(leaf) for each, leaf in pairs)
    assert (kind.record_undo(whole) is None) == any(each.record_undo(leaf) is None for each, leaf in pairs)


# ---- the map ------------------------------------------------------------------------------------

OF_MODELS = dict.fromkeys(CONFIGS, ("plain",)) | {
    "llama-sliding": ("plain", "rotating"),
    "gemma3": ("plain", "rotating"),
    "gpt-oss": ("plain", "rotating"),
    "mamba2": ("recurrent",),
    "lfm2": ("plain", "recurrent"),
    "qwen3-next": ("plain", "recurrent"),
}
CLASSES = {
    caches.KVCache: "plain", caches.QuantizedKVCache: "quantized", caches.RotatingKVCache: "rotating",
    caches.ArraysCache: "recurrent", caches.ChunkedKVCache: "chunked", caches.CacheList: "list",
}  # fmt: skip


@pytest.mark.wide(5)
@pytest.mark.parametrize("name", CONFIGS)
def test_the_caches_of_every_model_have_a_kind(zoo: Zoo, name: str) -> None:
    made = caches.make_prompt_cache(zoo.load(name).model)
    assert tuple(sorted({kind_of(cache).name for cache in made})) == OF_MODELS[name]
    for cache in made:
        assert KINDS[type(cache)] is kind_of(cache)
        assert kind_of(cache).can_snapshot(cache)


def test_the_map_has_a_line_for_each_class() -> None:
    assert {each: kind.name for each, kind in KINDS.items()} == CLASSES
    for each, kind in KINDS.items():
        assert kind.cache_class is each
        assert kind_named(kind.name) is kind
        assert "cache_class" in vars(type(kind))
    assert kind_named("other") is GENERAL


@pytest.mark.parametrize("base", CLASSES)
def test_a_subclass_is_of_its_bases_kind_but_nothing_of_it_is_kept(base: type) -> None:
    derived = type("Derived", (base,), {})
    cache = derived.__new__(derived)
    cache.caches = (caches.KVCache(),)
    assert kind_of(cache) is KINDS[base]
    # of a list the inner caches decide
    assert kind_of(cache).can_snapshot(cache) == (base is caches.CacheList)


def test_a_chunked_cache_is_trimmed_as_far_as_it_reaches() -> None:
    cache = filled(caches.ChunkedKVCache(8), 20)
    cache.maybe_trim_front()
    kind = kind_of(cache)
    assert kind.read(cache)[:3] == ("chunked", 8, 8)
    assert (kind.trim_refusal(cache, 16), kind.trims_at(cache, 20), kind.record_undo(cache)) == (
        "",
        False,
        None,
    )
    for dropped in (12, 13, 15):  # the next token attends from 8 on, and the cache begins at 12
        assert kind.trim_refusal(cache, dropped) == "a chunked cache has dropped its beginning"


LLAMA4: dict[str, Any] = {
    "model_type": "llama4",
    "text_config": {
        **BASE, "num_hidden_layers": 4, "head_dim": 16, "attention_chunk_size": 8, "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 128, "num_local_experts": 2, "num_experts_per_tok": 1, "use_qk_norm": True,
        "attention_bias": False, "attn_temperature_tuning": False, "floor_scale": 8192, "attn_scale": 0.1,
        "rope_scaling": None, "model_type": "llama4_text",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def llama4(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """A model of chunked caches."""
    return load(LoadSettings(str(synthetic.write(tmp_path_factory.mktemp("llama4") / "model", LLAMA4))))


@pytest.mark.parametrize(
    "ends", [(13,), pytest.param(range(8, 18), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_a_chunked_cache_goes_back_only_where_its_chunk_begins(llama4: Loaded, ends: Iterable[int]) -> None:
    """Each way back over two chunks, against a fresh prefill with mlx_lm's own caches."""
    for steps in ends:
        session = opened(llama4, steps)
        end = session.node
        for back in range(1, 12):
            session.move(end)
            go_back(session, back)
            session.choose(77)
            assert session.verify().largest_difference < 1e-4, (steps, back)


def test_walks_over_chunked_caches_show_what_a_fresh_prefill_gives(llama4: Loaded) -> None:
    walked(llama4)


# ---- nobody else asks ---------------------------------------------------------------------------

NAMES = {
    name
    for name, each in vars(caches).items()
    if inspect.isclass(each) and name.endswith(("Cache", "CacheList"))
}
WORDS = {*CLASSES.values(), "other"}
ROOT = Path(engine.__file__).parent


def kinds_asked_for(source: str) -> list[int]:
    """Lines that name a cache class of mlx_lm, or compare something with the name of a kind."""
    found = []
    for node in ast.walk(ast.parse(source)):
        name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", None)
        compared = [*ast.walk(node)] if isinstance(node, ast.Compare) else []
        words = {each.value for each in compared if isinstance(each, ast.Constant)}
        if name in NAMES or words & WORDS:
            found.append(getattr(node, "lineno", 0))
    return found


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(cache, caches.KVCache)",
        "type(cache) in (caches.RotatingKVCache, int)",
        "from mlx_lm.models.cache import CacheList",
        "kind_of(cache) == 'plain'",
        "kind in ('plain', 'quantized')",
    ],
)
def test_such_a_line_is_found(line: str) -> None:
    assert kinds_asked_for(line)


def test_no_other_part_of_the_engine_tells_cache_kinds_apart() -> None:
    known = [ROOT / "cache" / name for name in ("kind.py", "kinds.py", "padded.py")]
    known.append(ROOT / "protocol" / "model.py")  # says it of a recorded model, from the names alone
    files = [path for path in ROOT.rglob("*.py") if path not in known]
    found = {str(path): lines for path in files if (lines := kinds_asked_for(path.read_text("utf-8")))}
    assert len(files) > 50
    assert found == {}


# ---- which token each key that a cache returns belongs to: the keys of these tests say it themselves ----

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


def test_a_snapshot_leaves_no_gap_and_kinds_without_one_refuse() -> None:
    cache = KVCache()
    cache.update_and_fetch(*[mx.ones((1, 1, 6, 8))] * 2)
    kind = kind_of(cache)
    saved = kind.snapshot(cache, 2, 6)
    cache.trim(3)
    with pytest.raises(ValueError, match="a cache of 3 tokens can't continue from 4"):
        kind.restore(cache, saved, 4, 6)
    kind.restore(cache, saved, 3, 6)
    assert cache.offset == 6
    refused = "no snapshot of a .* cache can be taken", "can be restored", "is gone"
    calls = (lambda: GENERAL.snapshot(cache, 0, 1), lambda: GENERAL.restore(cache, saved, 0, 1),
             lambda: GENERAL.take_back(cache, 1))  # fmt: skip
    for call, said in zip(calls, refused, strict=True):
        with pytest.raises(NotImplementedError, match=said):
            call()
