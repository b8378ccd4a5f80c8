"""Every number of a step's record against float64 from the logits: none is further off than its float32 logprobs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from engine.logits.readings import RowReader
from engine.protocol import Candidate, PromptToken
from engine.sampling.pipeline import sample
from engine.sampling.ranking import Row, log_softmax
from engine.settings import Settings
from tests.engine.sampling.test_reference import rows

TOKENS: Any = SimpleNamespace(
    text=lambda token, pending: (str(token), b""), raw=lambda token: b"%d" % token, is_special=lambda _: False
)
READER = RowReader(TOKENS)


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
@budget(max_examples=200, deadline=None)
def test_every_number_of_a_distribution(row: Row, k: int, temp: float, top_p: float) -> None:
    logprobs = log_softmax(row)
    sampled = sample(row, logprobs, Settings(temp=temp, top_p=top_p), 0.9)
    record = READER.distribution(0, 0, row, logprobs, sampled, k, b"", 0)
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
@budget(max_examples=100, deadline=None)
def test_every_number_of_a_prompt_token(row: Row, token: int) -> None:
    bare = PromptToken(1, 0, token, "", b"", False)
    record = READER.echo(bare, row, 5, b"")
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
    logprobs = log_softmax(row)
    assert len(set(logprobs.tolist())) == 1  # rounded
    sampled = sample(row, logprobs, Settings(), 0)
    found = READER.distribution(0, 0, row, logprobs, sampled, 4, b"", 0).candidates
    assert [(candidate.id, candidate.rank) for candidate in found] == [(2, 1), (1, 2), (0, 3), (3, 4)]
    chosen = READER.chosen(row, logprobs, np.array([0, 2]), b"", sampled)
    assert [candidate.rank for candidate in chosen] == [3, 1]


@pytest.mark.parametrize("gap", [40.0, 60.0])
def test_others_that_are_rare_are_no_rounding_of_what_is_not(gap: float) -> None:
    row = np.zeros(1000, np.float32)
    row[3] = gap
    logprobs = log_softmax(row)
    record = READER.distribution(0, 0, row, logprobs, sample(row, logprobs, Settings(temp=1), 0), 1, b"", 0)
    assert record.others_prob == pytest.approx(999 * math.exp(-gap), rel=1e-5)
    assert record.others_sampler_prob == pytest.approx(999 * math.exp(-gap), rel=1e-5)
