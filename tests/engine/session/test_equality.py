"""The engine against mlx_lm's own loop: the same ids, and the same logits bit for bit."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step

from engine.model.load import Loaded
from engine.sampling.ranking import log_softmax
from engine.session.session import Session
from engine.settings import Settings
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


@pytest.mark.wide(10)
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
        mine = log_softmax(session.logits)
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
    session = Session(zoo.load("gpt2"), Settings())
    list(session.prefill(PROMPT, session.tokens.encode(PROMPT)))
    wide = session.logits.astype(np.float64)
    true = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    assert np.abs(log_softmax(session.logits) - true).max() <= 2.0**-24 * 2 * np.abs(true).max()
