"""The thin path: attention and lens of the bundled model, with their checks, and a session that stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import Cancelled, StepError
from engine.inspection.inside.attention import read_attention
from engine.inspection.inside.lens import read_lens
from engine.model.load import load
from engine.session.session import Session
from engine.settings import LoadSettings, Settings

PROMPT = "Once upon a time, there was a little girl named"


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(load(LoadSettings()), Settings())
    for _ in session.prefill(PROMPT, session.encode(PROMPT)):
        pass
    session.step()
    return session


def test_every_head_of_every_layer_is_read_and_its_row_sums_to_one(session: Session) -> None:
    read = read_attention(session, session.node)
    assert read.facts.failed is None
    assert [layer.layer for layer in read.layers] == list(range(session.facts.layers))
    for layer in read.layers:
        assert layer.heads == session.facts.heads
        for head in range(layer.heads):
            row = layer.over(head, read.tokens)
            assert len(row) == read.tokens
            assert sum(row) == pytest.approx(1, abs=1e-5)


ROUNDING = 1e-4
"""Of a probability: the lens multiplies all its rows at once, the step one, and the BLAS of a processor with AVX-512
adds up the two in another order. A logit of some 20 is apart by 1.1e-5 there, six units of its last place."""


def test_the_last_layers_lens_is_the_models_own_distribution(session: Session) -> None:
    read = read_lens(session, session.node, positions=4, followed=(5,))
    assert read.facts.failed is None
    last = read.columns[-1].cells[-1]
    for token, candidate in zip(last.top, session.next.candidates, strict=False):
        assert token.id == candidate.id
        assert token.prob == pytest.approx(candidate.prob, rel=ROUNDING)
    assert last.final_rank == 1
    assert last.entropy_bits == pytest.approx(session.next.entropy_bits, rel=ROUNDING)
    assert len(read.columns) == 4
    assert len(read.columns[0].cells) == session.facts.layers + 1


def test_looking_changes_nothing(session: Session) -> None:
    before = session.kv_reading(), session.node, len(session.tree), session.logits.copy()
    read_attention(session, session.tree[session.node].parent)
    read_lens(session, session.node)
    assert (session.kv_reading(), session.node, len(session.tree)) == before[:3]
    assert np.array_equal(session.logits, before[3])
    assert session.step().index == 1


def test_a_cancel_and_a_node_that_is_not_there(session: Session) -> None:
    with pytest.raises(Cancelled):
        read_lens(session, session.node, stopped=lambda: True)
    with pytest.raises(StepError):
        read_attention(session, 10_000)
    with pytest.raises(StepError):
        read_attention(session, 0)
