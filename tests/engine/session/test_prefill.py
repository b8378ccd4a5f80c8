"""The prompt's way in: chunks, prompt logprobs against a plain reference, cancelling, bounds."""

from __future__ import annotations

import math
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest

from engine.errors import Cancelled, PromptError, StepError
from engine.model.forward import ChunkSizer
from engine.records import PrefillChunk, Prefilled, PromptOpened, PromptToken
from engine.session.session import Session
from engine.settings import Settings
from tests.zoo import Zoo

TEXT = "Once upon a time there was a big dog. He liked to run and play in the park all day long."


def plain_logprobs(session: Session, ids: list[int]) -> np.ndarray:
    """Log-softmax in float64 of one forward over the whole prompt, with no cache."""
    logits = np.array(session.runner.model(mx.array([ids]))[0].astype(mx.float32)).astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    found: np.ndarray = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return found


@pytest.mark.parametrize("chunk", [None, 1, 5, 2048])
def test_prompt_logprobs_equal_a_plain_forward(zoo: Zoo, chunk: int | None) -> None:
    session = Session(zoo.load("llama", prefill_step_size=chunk), Settings())
    ids = session.tokens.encode(TEXT)
    *_, prefilled = session.prefill(TEXT, ids)
    assert isinstance(prefilled, Prefilled)
    expected = plain_logprobs(session, ids)
    first = prefilled.tokens[0]
    assert (first.logprob, first.rank, first.entropy_bits, first.candidates) == (None, None, None, ())
    for token, row in zip(prefilled.tokens[1:], expected, strict=False):
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
    told: list[PromptToken] = []
    for place, chunk in enumerate(chunks):
        assert isinstance(chunk, PrefillChunk)
        assert chunk.done == min(7 * (place + 1), len(ids) - 1)
        assert chunk.total == len(ids)
        assert chunk.kv.offset == chunk.done
        told += chunk.echo
    assert [token.position for token in told] == list(range(1, len(ids)))
    assert prefilled.tokens == (opened.tokens[0], *told)
    assert "".join(token.text for token in prefilled.tokens) == TEXT
    assert prefilled.kv.offset == len(ids)
    assert prefilled.echo_ms == pytest.approx(sum(chunk.echo_ms for chunk in chunks))  # type: ignore[union-attr]
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
    assert isinstance(prefilled, Prefilled)
    assert {token.logprob for token in prefilled.tokens} == {None}
    assert prefilled.echo_ms == 0 or prefilled.echo_ms < 0.5


def test_a_cancelled_prefill_goes_on(zoo: Zoo) -> None:
    loaded = zoo.load("llama", prefill_step_size=4)
    session = Session(loaded, Settings())
    ids = session.tokens.encode(TEXT)
    whole = list(Session(loaded, Settings()).prefill(TEXT, ids))
    seen: list[object] = []
    with pytest.raises(Cancelled):
        seen.extend(session.prefill(TEXT, ids, stopped=lambda: session.kv.offset >= 8))
    assert session.kv.offset == 8
    with pytest.raises(StepError, match="no prompt"):
        session.step()
    with pytest.raises(Cancelled):
        seen.extend(session.go_on_prefill(stopped=lambda: session.kv.offset >= 12))
    seen.extend(session.go_on_prefill())
    assert [each.done for each in seen if isinstance(each, PrefillChunk)] == [
        each.done for each in whole if isinstance(each, PrefillChunk)
    ]
    end, expected = seen[-1], whole[-1]
    assert isinstance(end, Prefilled)
    assert isinstance(expected, Prefilled)
    assert (end.text, end.tokens, end.next) == (TEXT, expected.tokens, expected.next)
    with pytest.raises(StepError, match="no prefill to go on with"):
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
    session = Session(zoo.load("pocket"), Settings())
    list(session.prefill("", [5, 6, 7]))
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
    assert chunks.size == 32
    chunks.learn(32, 10)
    assert chunks.size == 128  # at most fourfold
    chunks.learn(128, 400)
    assert chunks.size == 32
    chunks.learn(32, 10_000)
    assert chunks.size == 8
    fixed = ChunkSizer(100, 100)
    fixed.learn(100, 10_000)
    assert fixed.size == 100


def test_a_chunk_of_logits_is_bounded_while_they_are_read(zoo: Zoo) -> None:
    session = Session(zoo.load("llama"), Settings(candidates=1))
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    *chunks, _ = session.prefill("", [5] * 1200)
    largest = max(b.done - a.done for a, b in pairwise(chunks[1:]))  # type: ignore[union-attr]
    # logits in the model's type and 64 rows in float32, beside the cache and the forward's own arrays
    assert mx.get_peak_memory() - before < largest * 4096 * 4 * 2.5 + 32 * 2**20
