"""Prefill: chunks, prompt logprobs, cold starts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from msgspec.structs import replace

from engine.errors import Cancelled, PromptError, StepError
from engine.logits.node_sampler import echoes
from engine.model.forward import ChunkSizer
from engine.model.load import Loaded, load
from engine.patches import allowed
from engine.protocol import PrefillChunk, Prefilled, PromptOpened, PromptReadings, PromptToken, Step
from engine.session.prefill import PIECE_BYTES, UnreadRows
from engine.session.run import run
from engine.session.session import KeptLogits, Session
from engine.settings import LoadSettings, Settings
from engine.timing import tpot, warm
from tests import synthetic
from tests.engine.inside.looking import loaded
from tests.engine.sessions import begun
from tests.zoo import CONFIGS, Zoo

TEXT = "Once upon a time there was a big dog. He liked to run and play in the park all day long."


def plain_logprobs(session: Session, ids: list[int]) -> np.ndarray:
    """Log-softmax in float64 of one forward over the whole prompt, with no cache."""
    logits = np.array(session.runner.model(mx.array([ids]))[0].astype(mx.float32)).astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    found: np.ndarray = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return found


def read_all(session: Session) -> list[PromptToken]:
    """The prompt logprobs that are still to be read."""
    read: list[PromptToken] = []
    waiting = len(session.unread)
    while (some := session.unread.read()) is not None:
        read += some.tokens
        assert some.left == len(session.unread) == waiting - len(read)
    return read


@pytest.mark.wide(2)
@pytest.mark.parametrize("chunk", [None, 1, 5, 2048])
def test_prompt_logprobs_equal_a_plain_forward(zoo: Zoo, chunk: int | None) -> None:
    session = Session(zoo.load("llama", prefill_step_size=chunk), Settings())
    ids = session.tokens.encode(TEXT)
    *_, prefilled = session.prefill(TEXT, ids)
    assert prefilled.unread == len(ids) - 1
    expected = plain_logprobs(session, ids)
    for token in prefilled.tokens:
        assert (token.logprob, token.rank, token.entropy_bits, token.candidates) == (None, None, None, ())
    read = read_all(session)
    assert [token.node for token in read] == [token.node for token in prefilled.tokens[1:]]
    for token, row in zip(read, expected, strict=False):
        assert token.logprob == pytest.approx(row[token.id], abs=1e-4)
        assert token.rank == (row > row[token.id]).sum() + 1
        assert token.entropy_bits == pytest.approx(-(np.exp(row) * row).sum() / math.log(2), abs=1e-4)
        assert token.candidates[0].id == row.argmax()


def test_chunks_are_told_and_add_up(zoo: Zoo) -> None:
    session = Session(zoo.load("llama", prefill_step_size=7), Settings())
    ids = session.tokens.encode(TEXT)
    opened, *chunks, prefilled = session.prefill(TEXT, ids)
    assert isinstance(opened, PromptOpened)
    assert isinstance(prefilled, Prefilled)
    for place, chunk in enumerate(chunks):
        assert isinstance(chunk, PrefillChunk)
        assert chunk.done == min(7 * (place + 1), len(ids) - 1)
        assert chunk.total == len(ids)
        assert chunk.kv.offset == chunk.done
    assert [token.position for token in read_all(session)] == list(range(1, len(ids)))
    assert prefilled.tokens == opened.tokens
    assert "".join(token.text for token in prefilled.tokens) == TEXT
    assert prefilled.kv.offset == len(ids)
    assert prefilled.ttft_ms > sum(chunk.ms for chunk in chunks)  # type: ignore[union-attr]


def test_prompt_logprobs_are_on_up_to_2048_tokens_and_on_request_beyond(zoo: Zoo) -> None:
    session = Session(zoo.load("qwen3"), Settings(candidates=1))
    for count, asked, expected in [(2048, None, True), (2048, False, False), (1500, True, True)]:
        opened = next(iter(session.prefill("", [5] * count, echo=asked)))
        assert isinstance(opened, PromptOpened)
        assert opened.echo is expected
    session.facts = zoo.load("mamba2").facts  # no window
    opened = next(iter(session.prefill("", [5] * 2049)))
    assert isinstance(opened, PromptOpened)
    assert opened.echo is False


def test_without_prompt_logprobs_nothing_is_read_and_nothing_spent(zoo: Zoo) -> None:
    session = Session(zoo.load("llama"), Settings())
    *_, prefilled = session.prefill(TEXT, session.tokens.encode(TEXT), echo=False)
    assert {token.logprob for token in prefilled.tokens} == {None}
    assert prefilled.unread == 0
    assert session.unread.read() is None


def test_a_cancelled_prefill_goes_on(zoo: Zoo) -> None:
    loaded = zoo.load("llama", prefill_step_size=4)
    session = Session(loaded, Settings())
    ids = session.tokens.encode(TEXT)
    other = Session(loaded, Settings())
    whole, expected_readings = list(other.prefill(TEXT, ids)), read_all(other)
    seen: list[object] = []
    with pytest.raises(Cancelled):
        seen.extend(session.prefill(TEXT, ids, stopped=lambda: session.kv.offset >= 8))
    assert session.kv.offset == 8
    with pytest.raises(StepError, match="no prompt"):
        session.step()
    readings = read_all(session)  # of what went through so far
    assert len(readings) == 8
    with pytest.raises(Cancelled):
        seen.extend(session.go_on_prefill(stopped=lambda: session.kv.offset >= 12))
    seen.extend(session.go_on_prefill())
    assert readings + read_all(session) == expected_readings
    assert [each.done for each in seen if isinstance(each, PrefillChunk)] == [
        each.done for each in whole if isinstance(each, PrefillChunk)
    ]
    end, expected = seen[-1], whole[-1]
    assert isinstance(end, Prefilled)
    assert isinstance(expected, Prefilled)
    assert (end.text, end.tokens, end.next) == (TEXT, expected.tokens, expected.next)
    with pytest.raises(StepError, match="no prefill to continue"):
        next(session.go_on_prefill())


def test_chunks_can_be_resized_on_the_way(zoo: Zoo) -> None:
    session = Session(zoo.load("llama"), Settings())
    ids = session.tokens.encode(TEXT)
    seen: list[object] = []
    with pytest.raises(Cancelled):
        seen.extend(session.prefill(TEXT, ids, step_size=3, stopped=lambda: session.kv.offset >= 6))
    seen += session.go_on_prefill(5)
    assert [each.done for each in seen if isinstance(each, PrefillChunk)][:4] == [3, 6, 11, 16]
    assert session.verify().largest_difference < 1e-4


def test_where_chunks_change_the_numbers_they_stay(zoo: Zoo) -> None:
    session = Session(zoo.load("llama", kv_bits=8, kv_group_size=32, quantized_kv_start=0), Settings())
    ids = session.tokens.encode(TEXT)
    chunks = [each for each in session.prefill(TEXT, ids, step_size=3) if isinstance(each, PrefillChunk)]
    assert [each.done for each in chunks] == [len(ids) - 1]


def test_after_a_cancelled_prefill_another_prompt_begins_anew(zoo: Zoo) -> None:
    session = Session(zoo.load("llama", prefill_step_size=4), Settings())
    ids = session.tokens.encode(TEXT)
    seen: list[object] = []
    with pytest.raises(Cancelled):
        seen.extend(session.prefill(TEXT, ids, stopped=lambda: session.kv.offset >= 8))
    list(session.prefill(TEXT, ids))
    assert session.step().position == len(ids)


def test_a_prompt_longer_than_the_window_is_refused_and_nothing_lost(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket"), [5, 6, 7], echo=None)
    with pytest.raises(PromptError, match="The prompt has 513 tokens, the model's context window holds 512"):
        list(session.prefill("", [5] * 513))
    assert session.step().position == 3


def test_of_a_prompt_far_beyond_the_window_the_beginning_is_encoded_alone(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(zoo.load("pocket"), Settings())
    encode, lengths = session.tokens.encode, []

    def noted(text: str, *, bare: bool = False) -> list[int]:
        lengths.append(len(text))
        return encode(text, bare=bare)

    monkeypatch.setattr(session.tokens, "encode", noted)
    with pytest.raises(PromptError, match=r"has 2000000 characters, many more than fit .* of 512 tokens"):
        session.encode("dog " * 500_000)
    assert sum(lengths) < 10_000
    text = "dog " * 2000  # not so far beyond: the tokens are counted
    assert session.encode(text) == encode(text)


def test_one_token_is_a_prompt(zoo: Zoo) -> None:
    session = Session(zoo.load("llama"), Settings())
    _, prefilled = session.prefill("", [5])
    assert isinstance(prefilled, Prefilled)
    assert prefilled.kv.offset == 1


def test_chunks_adapt_to_the_time_they_take() -> None:
    chunks = ChunkSizer()
    chunks.learn(32, 0.0)  # the clock may be coarse
    assert chunks.size == 32
    chunks.learn(32, 10)
    assert chunks.size == 128  # at most fourfold
    chunks.learn(128, 160)
    assert chunks.size == 80
    chunks.learn(80, 400)
    assert chunks.size == 64  # each chunk reads all weights: smaller ones would take longer together
    chunks.learn(64, 1_300)
    assert chunks.size == 48
    chunks.learn(48, 10_000)
    assert chunks.size == 8
    fixed = ChunkSizer(100, 100)
    fixed.learn(100, 10_000)
    assert fixed.size == 100


def big(path: Path, **more: Any) -> Session:
    """A llama of 50,000 ids."""
    config = {**CONFIGS["llama"], "vocab_size": 50_000, **more}
    return Session(
        load(LoadSettings(model=str(synthetic.write(path / "wide", config)))), Settings(candidates=5)
    )


def test_what_is_read_after_the_first_token_takes_a_few_rows_at_a_time(tmp_path: Path) -> None:
    session, ids = big(tmp_path), [5 + place % 4000 for place in range(600)]
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    *_, prefilled = session.prefill("", ids)
    kept = mx.get_peak_memory() - before
    assert kept < 600 * 50_000 * 4 / 4  # the logits of the prompt would be 120 MB
    assert prefilled.unread == len(session.unread) == 599
    assert len(read_all(session)) == 599
    assert mx.get_peak_memory() - before < kept + 4 * PIECE_BYTES
    assert len(session.unread) == 0


def test_chunks_are_as_large_with_prompt_logprobs_as_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, sizes = big(tmp_path), []

    def learn(sizer: ChunkSizer, tokens: int, ms: float) -> None:
        sizes.append(tokens)
        sizer.size = min(4 * sizer.size, sizer._limit)

    monkeypatch.setattr(ChunkSizer, "learn", learn)
    for echo in (False, True):
        list(session.prefill("", [7 + echo] * 1900, echo=echo))
    assert sizes == [32, 128, 512, 1227] * 2


def test_the_readings_are_those_of_whole_rows_bit_for_bit(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cut into pieces: each row of a piece read alone, and it is that of the model's own logits.

    To the last bit but one: some kernels of OpenBLAS add up a row of a product in an order that its height decides.
    """
    pieces, logits_of = list[np.ndarray](), UnreadRows.logits

    def seen(rows: UnreadRows, count: int) -> mx.array:
        logits = logits_of(rows, count)
        pieces.extend(np.array(logits.astype(mx.float32)))
        return logits

    monkeypatch.setattr(UnreadRows, "logits", seen)
    session = Session(zoo.load("llama", prefill_step_size=16), Settings())
    ids = session.tokens.encode(TEXT)
    opened, *_ = list(session.prefill(TEXT, ids))
    assert isinstance(opened, PromptOpened)
    read = read_all(session)
    assert read == [*echoes(session.tokens, [(token, b"") for token in opened.tokens[1:]], pieces, 20)]
    runner, rows = session.runner.fresh(), list[np.ndarray]()
    while runner.kv.offset < len(ids) - 1:
        chunk = ids[runner.kv.offset : min(runner.kv.offset + 16, len(ids) - 1)]
        rows += list(np.array(runner.forward_chunk(chunk)[0].astype(mx.float32)))
    np.testing.assert_allclose(pieces, rows, atol=1e-5)


@pytest.mark.parametrize(
    "asked", [{}, {"no_kv_cache": True}, {"max_kv_size": 16}, {"kv_bits": 8, "kv_group_size": 32}]
)
def test_what_is_kept_is_read_the_same_after_the_cache_went_on(
    zoo: Zoo, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.session.prefill.PIECE_MS", 1e9)  # pieces of the same sizes both times
    at_once, later = (Session(zoo.load("llama", **asked), Settings()) for _ in range(2))
    ids = at_once.tokens.encode(TEXT)
    for session in (at_once, later):
        list(session.prefill(TEXT, ids))
    expected = read_all(at_once)
    for _ in range(5):
        later.step()
    later.move(later.tree.nodes(later.node)[4])
    assert read_all(later) == expected


def test_a_prompt_too_long_to_keep_is_read_on_the_way(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.session.prefill.UNREAD_BYTES", 64 * 40)
    session = Session(zoo.load("llama", prefill_step_size=8), Settings())
    records = list(session.prefill("", [5 + place for place in range(100)], echo=True))
    read = [token for each in records if isinstance(each, PromptReadings) for token in each.tokens]
    assert len(read) > 80
    assert [token.position for token in read + read_all(session)] == list(range(1, 100))


def test_a_family_whose_end_can_t_run_alone_is_read_from_its_logits(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    session, other = Session(replace(loaded, tail=None), Settings()), Session(loaded, Settings())
    ids = session.tokens.encode(TEXT)
    for each in (session, other):
        list(each.prefill(TEXT, ids))
    for whole, alone in zip(read_all(session), read_all(other), strict=True):
        assert (whole.node, whole.id, whole.text) == (alone.node, alone.id, alone.text)
        assert whole.logprob == pytest.approx(alone.logprob, abs=1e-5)
        assert whole.entropy_bits == pytest.approx(alone.entropy_bits, abs=1e-5)
        assert whole.others_prob == pytest.approx(alone.others_prob, abs=1e-5)


@pytest.mark.parametrize("family", ["hunyuan", "rwkv7"])
def test_prompt_logprobs_of_layers_that_return_more_than_the_residual_stream(
    tmp_path: Path, family: str
) -> None:
    session = Session(loaded(tmp_path, family), Settings())
    ids = list(range(5, 17))
    list(session.prefill("", ids))
    expected = plain_logprobs(session, ids)
    assert [token.logprob for token in read_all(session)] == pytest.approx(
        [expected[place, id] for place, id in enumerate(ids[1:])], abs=1e-3
    )


@pytest.mark.parametrize("kept", [True, False])
def test_the_last_known_token_of_a_prompt_runs_again_only_without_its_row(zoo: Zoo, kept: bool) -> None:
    session = begun(zoo.load("llama"), [5, 6, 7])
    if not kept:
        session.kept_logits = KeptLogits(0)
    *_, end = session.prefill("", [5, 6, 7, 8, 9])
    assert isinstance(end, Prefilled)
    assert end.note == ("" if kept else "token 3 recomputed, for the logits after it")
    assert [token.position for token in read_all(session)] == [3, 4]


# ---- cold starts -------------------------------------------------------------------------------

PROMPT = list(range(7, 29))


def fresh(zoo: Zoo, **settings: object) -> Loaded:
    """A model as it is right after loading."""
    return replace(zoo.load("llama", **settings), done=set())


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
        session = Session(loaded, Settings(max_tokens=3))
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
    assert (times.steps, times.p95) == (3, max(ms.total for ms in later))
    assert tpot(warm([slow])) is None


def test_a_prefill_in_many_chunks_computes_of_its_last_layer_what_it_does_without_prompt_logprobs(
    tmp_path: Path,
) -> None:
    """The rest waits with the readings: half of the work of a model of two layers."""
    config = {**CONFIGS["llama"], "num_key_value_heads": 4, "head_dim": 128}
    model = str(synthetic.write(tmp_path / "model", config))
    session = Session(load(LoadSettings(model=model, prefill_step_size=32)), Settings())
    list(session.prefill("", [5 + place for place in range(1400)], echo=True))
    copied = sum(4096 * -(-chunk * 32 // 256) * 256 for chunk in range(1, 44)) + 4096 * 1536
    copied += (
        43 * 2 * 32 * 128 * 4 * (mx.default_device() == mx.Device(mx.cpu) and allowed("rotary"))
    )  # cosines and sines of each chunk
    assert copied <= session.unread.held < 1.01 * copied, (
        "and what else the last layer's rows are computed from"
    )


def test_rows_of_a_recurrent_model_count_what_they_keep_alive(zoo: Zoo) -> None:
    """A model without KV had none counted, and kept gigabytes for a long prompt."""
    session = Session(zoo.load("mamba2", prefill_step_size=64), Settings())
    mx.clear_cache()
    before = mx.get_active_memory()
    list(session.prefill("", [5 + place for place in range(1000)], echo=True))
    kept = mx.get_active_memory() - before
    assert kept > 2**20
    assert session.unread.held == pytest.approx(kept, rel=0.1)


def test_beyond_a_bound_the_last_layer_is_computed_on_the_way(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = zoo.load("llama", prefill_step_size=4)
    session, other = Session(loaded, Settings()), Session(loaded, Settings())
    ids = session.tokens.encode(TEXT)
    list(other.prefill(TEXT, ids))
    assert other.unread.held > 2**19
    monkeypatch.setattr("engine.session.prefill.HELD_BYTES", 2**18)
    list(session.prefill(TEXT, ids))
    assert session.unread.held <= 2**18
    assert read_all(session) == read_all(other)
