"""Rotary position embeddings of a forward on a CPU: MLX's numbers to the last bit, made once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.models.cache import make_prompt_cache

from engine.cache import padded
from engine.decoding.rows import PaddedRows
from engine.errors import LoadError
from engine.model.forward import Runner
from engine.patches import rotary
from engine.patches.rotary import (
    BLOCK,
    MOST_BLOCKS,
    MOST_FREQUENCIES,
    RotaryBlocks,
    rope,
    shared_rotary_factors,
)
from tests.engine.inside.looking import PROMPT, loaded
from tests.families import FAMILIES
from tests.zoo import Zoo

pytestmark = pytest.mark.skipif(
    mx.default_device() != mx.Device(mx.cpu), reason="a GPU's kernel is used as it is"
)
QUICK = ("llama", "qwen3", "gemma3_text", "cohere2", "deepseek_v3")


def bits(array: mx.array) -> tuple[Any, ...]:
    return array.dtype, array.shape, bytes(mx.contiguous(array).view(mx.uint8))


def numbers(shape: tuple[int, ...], dtype: mx.Dtype, seed: int) -> mx.array:
    return (mx.random.normal(shape, key=mx.random.key(seed)) * 10).astype(dtype)


@given(
    half=st.sampled_from((1, 4, 13, 64)), heads=st.integers(1, 3), tokens=st.sampled_from((1, 2, 5, 33)),
    rows=st.sampled_from((None, 1, 3)), dtype=st.sampled_from((mx.float32, mx.bfloat16, mx.float16)),
    traditional=st.booleans(), own=st.booleans(), base=st.sampled_from((10.0, 1e4, 5e5)),
    scale=st.sampled_from((1.0, 0.25, 3.0)), offset=st.sampled_from((0, 1, 77, 4095, 131_072)),
    seed=st.integers(0, 2**16),
)  # fmt: skip
def test_every_bit_is_mlxs(
    half: int, heads: int, tokens: int, rows: int | None, dtype: mx.Dtype, traditional: bool, own: bool,
    base: float, scale: float, offset: int, seed: int,
) -> None:  # fmt: skip
    freqs = mx.random.uniform(1, 1e5, (half,), key=mx.random.key(seed)) if own else None
    how: dict[str, Any] = {"traditional": traditional, "base": None if own else base, "scale": scale}
    how |= {"offset": offset, "freqs": freqs}
    front = () if rows is None else (rows,)
    queries = mx.moveaxis(numbers((*front, tokens, heads, 2 * half), dtype, seed), -3, -2)
    keys = numbers((*front, 1, tokens, 2 * half), dtype, seed + 1)
    with shared_rotary_factors():
        assert mx.fast.rope is not rope
        found = [mx.fast.rope(each, 2 * half, **how) for each in (queries, keys, queries)]
    for each, plain in zip(found, (queries, keys, queries), strict=True):
        assert bits(each) == bits(rope(plain, 2 * half, **how))


@given(
    offsets=st.lists(st.integers(-3, 5000), min_size=1, max_size=4), tokens=st.sampled_from((1, 7)),
    traditional=st.booleans(), seed=st.integers(0, 2**16),
)  # fmt: skip
def test_rows_have_offsets_of_their_own(
    offsets: list[int], tokens: int, traditional: bool, seed: int
) -> None:
    how: dict[str, Any] = {"traditional": traditional, "base": 1e4, "scale": 1.0}
    heads = [numbers((len(offsets), count, tokens, 16), mx.float32, seed + count) for count in (4, 2)]
    with shared_rotary_factors():  # the second array often comes to lie where the first was
        found = [
            mx.fast.rope(each, 16, offset=mx.array(offsets) + 2 * place, **how)
            for place, each in enumerate(heads)
        ]
    for place, each in enumerate(heads):
        assert bits(found[place]) == bits(rope(each, 16, offset=mx.array(offsets) + 2 * place, **how))


@given(
    half=st.sampled_from((1, 4, 13, 64)), traditional=st.booleans(), own=st.booleans(), rows=st.integers(1, 2),
    positions=st.lists(st.sampled_from((0, 1, 63, 64, 65, 4094, 4095, 131_072, 2**23 + 1)), max_size=12),
    base=st.sampled_from((1e4, 5e5)), scale=st.sampled_from((1.0, 0.25)), seed=st.integers(0, 2**16),
)  # fmt: skip
def test_positions_of_steps_are_those_of_their_block(
    half: int,
    traditional: bool,
    own: bool,
    rows: int,
    positions: list[int],
    base: float,
    scale: float,
    seed: int,
) -> None:
    freqs = mx.random.uniform(1, 1e5, (half,), key=mx.random.key(seed)) if own else None
    how: dict[str, Any] = {"traditional": traditional, "scale": scale, "freqs": freqs}
    queries, keys = (numbers((rows, heads, 1, 2 * half), mx.float32, seed + heads) for heads in (4, 2))
    blocks = RotaryBlocks()
    for position in positions:
        for at in ({"offset": position, "base": None if own else each} for each in (base, 2 * base)):
            with shared_rotary_factors(blocks):
                found = [mx.fast.rope(each, 2 * half, **how, **at) for each in (queries, keys, queries)]
            for each, plain in zip(found, (queries, keys, queries), strict=True):
                assert bits(each) == bits(rope(plain, 2 * half, **how, **at))


def test_a_block_is_made_by_the_second_step_in_it_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, int]] = []

    def watched(a: mx.array, *args: Any, **how: Any) -> mx.array:
        made.append((how["offset"], a.shape[-2]))
        return rope(a, *args, **how)

    def step(position: int) -> None:
        with shared_rotary_factors(blocks):
            for heads in (numbers((1, count, 1, 16), mx.float32, count) for count in (4, 2)):
                mx.eval(mx.fast.rope(heads, 16, offset=position, traditional=False, base=1e4, scale=1.0))

    blocks = RotaryBlocks()
    monkeypatch.setattr(rotary, "rope", watched)
    monkeypatch.setattr(mx.fast, "rope", watched)
    for position in range(3 * BLOCK):
        step(position)
    assert made == [each for begin in (0, BLOCK, 2 * BLOCK) for each in ((begin, 1), (begin, BLOCK))]
    made.clear()
    for block in range(3, MOST_BLOCKS + 1):
        step(block * BLOCK)
        step(block * BLOCK)
    made.clear()
    step(BLOCK)
    assert not made
    step(0)  # the oldest went
    assert made == [(0, 1)]


def test_layers_with_equal_frequencies_share_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def watched(a: mx.array, *args: Any, **how: Any) -> mx.array:
        made.append(a.shape[-2])
        return rope(a, *args, **how)

    monkeypatch.setattr(rotary, "rope", watched)
    monkeypatch.setattr(mx.fast, "rope", watched)
    blocks, heads = RotaryBlocks(), numbers((1, 4, 1, 16), mx.float32, 3)
    layers = [mx.arange(1.0, 9.0) * (1 + layer % 2) for layer in range(40)]
    for position in range(4):
        how: dict[str, Any] = {"offset": position, "traditional": False, "base": None, "scale": 1.0}
        with shared_rotary_factors(blocks):
            found = [mx.fast.rope(heads, 16, freqs=freqs, **how) for freqs in layers]
        for each, freqs in zip(found, layers, strict=True):
            assert bits(each) == bits(rope(heads, 16, freqs=freqs, **how))
    assert made == [1, 1, BLOCK, BLOCK]  # of two kinds of layers: the first step's, and a block of each


def test_frequencies_that_a_model_makes_in_every_forward_are_not_collected() -> None:
    blocks, heads = RotaryBlocks(), numbers((1, 4, 1, 16), mx.float32, 3)
    for position in range(2 * MOST_FREQUENCIES):
        freqs = mx.arange(1.0, 9.0) + position
        how: dict[str, Any] = {"offset": 5, "traditional": False, "base": None, "scale": 1.0, "freqs": freqs}
        with shared_rotary_factors(blocks):
            found = mx.fast.rope(heads, 16, **how)
        assert bits(found) == bits(rope(heads, 16, **how))
    assert len(blocks._frequencies) == MOST_FREQUENCIES
    assert len(blocks._blocks) == MOST_BLOCKS


@pytest.mark.parametrize(("dims", "offset"), [(8, 3), (16, mx.array(3)), (16, mx.array([3]))], ids=str)
def test_what_is_not_known_here_is_left_to_mlx(dims: int, offset: Any) -> None:
    heads = numbers((2, 1, 4, 16), mx.float32, 7)
    how: dict[str, Any] = {"traditional": False, "base": 1e4, "scale": 1.0, "offset": offset}
    with shared_rotary_factors():
        found = mx.fast.rope(heads, dims, **how)
    assert bits(found) == bits(rope(heads, dims, **how))


def test_it_ends_with_its_block_also_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), shared_rotary_factors():
        1 / 0  # noqa: B018
    assert mx.fast.rope is rope


def test_who_watches_the_calls_sees_each(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = lambda *args, **how: rope(*args, **how)  # noqa: E731
    monkeypatch.setattr(mx.fast, "rope", watch)
    with shared_rotary_factors():
        assert mx.fast.rope is watch


def test_another_thread_has_mlxs_own() -> None:
    """A notebook may run mlx_lm beside an engine's forward: arrays of one thread are of no use in another."""
    heads = numbers((1, 2, 3, 16), mx.float32, 7)
    how: dict[str, Any] = {"traditional": False, "base": 1e4, "scale": 1.0, "offset": 3}
    plain = bits(rope(heads, 16, **how))

    def run() -> tuple[Any, ...]:
        with mx.stream(mx.new_stream(mx.cpu)):
            return bits(mx.fast.rope(heads, 16, **how))

    with shared_rotary_factors(), ThreadPoolExecutor() as pool:
        assert bits(mx.fast.rope(heads, 16, **how)) == plain
        assert pool.submit(run).result() == plain


@pytest.mark.parametrize("family", [pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES])
def test_the_layers_of_a_batch_have_equal_offsets(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded, "share_offsets", lambda rows: None)
    try:
        model = loaded(tmp_path, family)
    except LoadError as error:
        pytest.skip(str(error))
    runner = Runner(model.model, model.settings)
    if any(map(padded.refusal, runner.kv.caches)):
        pytest.skip("its caches have no form of several rows")
    if family == "gpt_bigcode":
        pytest.skip("mlx_lm's model reads the offset as one number")
    rows = PaddedRows(runner)
    list(rows.begin([PROMPT, PROMPT[:5]]))
    rows.forward([9, 10])
    list(rows.begin([PROMPT[:7]]))
    rows.keep([2, 0])
    rows.forward([9, 10])
    offsets = [part.offset.tolist() for part in padded.counted(rows.caches)]
    assert offsets == [[8, 14]] * len(offsets)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=str)
@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FAMILIES]
)
def test_a_forward_has_the_logits_of_the_model_alone_bit_for_bit(
    tmp_path: Path, family: str, dtype: mx.Dtype
) -> None:
    try:
        model = loaded(tmp_path, family, dtype)
    except LoadError as error:
        pytest.skip(str(error))
    runner, caches = Runner(model.model, model.settings), make_prompt_cache(model.model)
    assert bits(runner.forward_chunk(PROMPT)) == bits(model.model(mx.array([PROMPT]), cache=caches))
    for token in (9, 10, 11, 12):
        alone = model.model(mx.array([[token]]), cache=caches)[0, -1].astype(mx.float32)
        assert runner.forward(token).tobytes() == bytes(alone)


def test_the_layers_of_a_forward_share_them(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def counted(*args: Any, **how: Any) -> mx.array:
        calls.append(how["offset"])
        return rope(*args, **how)

    model = zoo.load("llama")
    runner = Runner(model.model, model.settings)
    monkeypatch.setattr(rotary, "rope", counted)
    monkeypatch.setattr(mx.fast, "rope", counted)
    runner.forward_chunk([5, 6, 7, 8])
    for token in (9, 10, 11):
        runner.forward(token)
    assert calls == [0, 4, 0]  # the chunk's, the first step's, and those of a block of steps
    mx.eval(model.model(mx.array([[5]]), cache=make_prompt_cache(model.model)))
    assert calls == [0, 4, 0] + 2 * len(model.model.layers) * [0]
    calls.clear()
    rows = PaddedRows(runner)
    list(rows.begin([[5, 6, 7], [8, 9]]))
    for token in (10, 11):
        rows.forward([token, token])
    assert [each.tolist() for each in calls[-2:]] == [[3, 2], [4, 3]]


def test_it_is_switched_off_with_the_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSPECTOR_PATCHES", "none")
    with shared_rotary_factors():
        assert mx.fast.rope is rope
