"""The engine against mlx_lm's own loop: the same ids, and the same logits bit for bit."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from mlx_lm.generate import generate_step

from engine.logits.node_sampler import NodeLogits, NodeSampler, chosen_candidates, echoes
from engine.model.load import Loaded
from engine.protocol import Candidate, Distribution, PromptToken
from engine.sampling.pipeline import Sampled, sample
from engine.sampling.ranking import Masses, Row, checked_logprobs
from engine.session.session import Session
from engine.settings import Settings
from engine.tree import TokenTree
from tests.engine.sampling.test_reference import rows
from tests.engine.sessions import begun
from tests.zoo import Zoo

STEPS = 24
PROMPT = (
    "Once upon a time, there was a little girl named Lily. She had a red ball and a big dog. One day they"
)

CASES: dict[str, dict[str, Any]] = {
    "pocket": {},
    "llama": {},
    "llama:bfloat16": {},
    "llama:float16": {},
    "llama:4bit": {},
    "llama-sliding": {},
    "qwen2": {},
    "qwen3": {},
    "gemma3": {},
    "gpt2": {},
    "phi3": {},
    "mixtral": {},
    "gpt-oss": {},
    "mamba2": {},
    "lfm2": {},
    "qwen3-next": {},
    "deepseek-v2": {},
    "llama kv8": {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0},
    "llama kv4 late": {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 30},
    "phi3 window": {"max_kv_size": 24},
}


class Spy:
    """The model as mlx_lm sees it, which keeps the last row of every forward's logits."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.rows: list[mx.array] = []

    def __call__(self, *args: Any, **keywords: Any) -> mx.array:
        logits: mx.array = self._model(*args, **keywords)
        self.rows.append(logits[0, -1].astype(mx.float32))
        return logits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def reference(
    loaded: Loaded, ids: list[int], chunk: int
) -> tuple[list[int], list[np.ndarray], list[np.ndarray]]:
    """Greedy ids of mlx_lm's generate_step, the logits that its forwards gave, and its own logprobs."""
    spy, settings = Spy(loaded.model), loaded.settings
    steps = generate_step(
        mx.array(ids),
        spy,
        max_tokens=STEPS,
        prefill_step_size=chunk,
        max_kv_size=settings.max_kv_size,
        kv_bits=settings.kv_bits,
        kv_group_size=settings.kv_group_size,
        quantized_kv_start=settings.quantized_kv_start,
    )
    found = [(token, np.array(logprobs.astype(mx.float32))) for token, logprobs in steps]
    prefill_chunks = -(-(len(ids) - 1) // chunk)
    rows = [np.array(row) for row in spy.rows[prefill_chunks : prefill_chunks + STEPS]]
    return [token for token, _ in found], rows, [logprobs for _, logprobs in found]


def rounding(loaded: Loaded, logits: np.ndarray, logprobs: np.ndarray) -> np.ndarray:
    """How far mlx_lm's logprobs may lie from the true ones.

    It subtracts in the model's own type, so half a unit in the last place of the log of the sum and of the
    difference; and it sums the vocabulary in float32, whose error is at most terms x 2**-24.
    """
    half_unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(loaded.facts.dtype, 2.0**-24)
    log_sum = abs(float((logits.astype(np.float64) - logprobs).max()))
    return half_unit * (1 + log_sum + np.abs(logprobs)) + logits.size * 2.0**-24


@pytest.mark.wide(4)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chunk", [7, 2048])
def test_greedy_ids_and_logits_equal_mlx_lm(zoo: Zoo, case: str, chunk: int) -> None:
    loaded = zoo.load(case.split()[0], prefill_step_size=chunk, **CASES[case])
    ids = loaded.tokens.encode(PROMPT)
    expected, rows, logprobs = reference(loaded, ids, chunk)

    session = Session(loaded, Settings())
    list(session.prefill(PROMPT, ids))
    for place in range(STEPS):
        assert np.array_equal(session.logits, rows[place]), f"logits differ at step {place}"
        mine = checked_logprobs(session.logits)
        assert np.all(np.abs(mine - logprobs[place]) <= rounding(loaded, session.logits, mine))
        assert session.step().id == expected[place]


def test_the_adaptive_chunk_gives_the_same_ids(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    ids = loaded.tokens.encode(PROMPT * 3)
    expected, _, _ = reference(loaded, ids, 2048)
    session = Session(loaded, Settings())
    list(session.prefill(PROMPT, ids))
    assert [session.step().id for _ in range(STEPS)] == expected


def test_logprobs_are_the_float32_log_softmax_of_the_logits(zoo: Zoo) -> None:
    session = begun(zoo.load("gpt2"), PROMPT, echo=None)
    wide = session.logits.astype(np.float64)
    true = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    assert np.abs(checked_logprobs(session.logits) - true).max() <= 2.0**-24 * 2 * np.abs(true).max()


# ---- numbers -----------------------------------------------------------------------------------

TOKENS: Any = SimpleNamespace(
    text=lambda token, pending: (str(token), b""),
    raw=lambda token: b"%d" % token,
    is_special=lambda _: False,
    known={},
)


def distribution(row: Row, sampled: Sampled, k: int) -> Distribution:
    """What the record has of a row after the root."""
    logits = NodeLogits(0, Masses(row), sampled, 0.0)
    return NodeSampler(TOKENS, TokenTree(), {}).position(logits, k).next


def true(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Logprobs and probabilities in float64."""
    wide = row.astype(np.float64) - float(row.max())
    logprobs = wide - np.log(np.exp(wide).sum())
    return logprobs, np.exp(logprobs)


def check_candidates(row: Row, candidates: tuple[Candidate, ...]) -> None:
    """Logprob, probability and rank of each, and their order."""
    logprobs, _ = true(row)
    for candidate in candidates:
        wanted = logprobs[candidate.id]
        if not math.isinf(wanted):
            assert abs(candidate.logprob - wanted) <= 2.0**-23 * (1 + abs(wanted))
        assert candidate.prob == math.exp(candidate.logprob)
        assert candidate.rank == 1 + int((row > row[candidate.id]).sum())


def near(value: float, wanted: float) -> None:
    """Within 2e-6 of it: the rounding of float32 logprobs of 0 to -16, which hold all but a millionth."""
    assert abs(value - wanted) <= 2e-6 * abs(wanted) + 1e-9


@given(rows(), st.integers(1, 40), st.sampled_from([0.0, 1.0, 0.7]), st.sampled_from([1.0, 0.8]))
@budget(max_examples=60, deadline=None)
def test_every_number_of_a_distribution(row: Row, k: int, temp: float, top_p: float) -> None:
    sampled = sample(Masses(row), Settings(temp=temp, top_p=top_p), 0.9)
    record = distribution(row, sampled, k)
    wanted, probs = true(row)
    check_candidates(row, record.candidates)
    first = [candidate.id for candidate in record.candidates[:k]]
    assert first == sorted(range(row.size), key=lambda token: (-row[token], token))[:k]
    live = probs > 0
    near(record.entropy_bits, -float((probs[live] * wanted[live]).sum()) / math.log(2))
    drawn = sampled.probs[sampled.probs > 0]
    near(record.sampler_entropy_bits, max(0.0, -float((drawn * np.log2(drawn)).sum())))
    rest = np.ones(row.size, bool)
    rest[[candidate.id for candidate in record.candidates]] = False
    assert record.others == rest.sum()
    near(record.others_prob, float(probs[rest].sum()))
    assert record.others_sampler_prob == pytest.approx(float(sampled.probs[rest].sum()), rel=1e-12, abs=0)
    if record.draw is not None and record.draw_to is not None and record.draw_from is not None:
        share = sampled.probs[sampled.picked]
        assert record.draw_to - record.draw_from == pytest.approx(share, abs=1e-12)
        assert sampled.probs[sampled.probs > share].sum() <= record.draw_from + 1e-12


@given(rows(), st.integers(0, 15))
@budget(max_examples=40, deadline=None)
def test_every_number_of_a_prompt_token(row: Row, token: int) -> None:
    bare = PromptToken(1, 0, token, "", b"", False)
    record = next(echoes(TOKENS, [(bare, b"")], [row], 5))
    wanted, probs = true(row)
    check_candidates(row, record.candidates)
    assert record.logprob is not None
    assert record.entropy_bits is not None
    assert record.others_prob is not None
    if not math.isinf(wanted[token]):
        assert abs(record.logprob - wanted[token]) <= 2.0**-23 * (1 + abs(wanted[token]))
    assert record.prob == math.exp(record.logprob)
    assert record.rank == 1 + int((row > row[token]).sum())
    near(record.entropy_bits, -float((probs[probs > 0] * wanted[probs > 0]).sum()) / math.log(2))
    near(record.others_prob, float(np.delete(probs, [candidate.id for candidate in record.candidates]).sum()))


def test_logits_that_one_logprob_stands_for_have_ranks_of_their_own() -> None:
    row = np.array([1e-8, 2e-8, 3e-8, 0], np.float32)
    logprobs = checked_logprobs(row)
    assert len(set(logprobs.tolist())) == 1  # rounded
    sampled = sample(Masses(row), Settings(), 0)
    found = distribution(row, sampled, 4).candidates
    assert [(candidate.id, candidate.rank) for candidate in found] == [(2, 1), (1, 2), (0, 3), (3, 4)]
    chosen = chosen_candidates(TOKENS, Masses(row), np.array([0, 2]), b"", sampled)
    assert [candidate.rank for candidate in chosen] == [3, 1]


@pytest.mark.parametrize("gap", [40.0, 60.0])
def test_others_that_are_rare_are_no_rounding_of_what_is_not(gap: float) -> None:
    row = np.zeros(1000, np.float32)
    row[3] = gap
    record = distribution(row, sample(Masses(row), Settings(temp=1), 0), 1)
    assert record.others_prob == pytest.approx(999 * math.exp(-gap), rel=1e-5)
    assert record.others_sampler_prob == pytest.approx(999 * math.exp(-gap), rel=1e-5)
