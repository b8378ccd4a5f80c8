"""The logit lens: what the model's own end makes of the residual stream after each layer (nostalgebraist 2020)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from engine.errors import Cancelled, EngineError
from engine.inside.capture import Capture, capture, relative_error, tail
from engine.model.tokens import Tokens
from engine.protocol import Check, LensCell, LensColumn, LensRead, LensToken
from engine.sampling.ranking import Row, checked_logprobs, rank_of, ranked
from engine.session.session import Session
from engine.task import Stopped, never

ROWS = 64
"""Residual streams that go through the head at once: with 150,000 tokens a row is 0.6 MB."""
LN2 = float(np.log(2))


def read_lens(
    session: Session,
    node: int,
    positions: int = 12,
    top: int = 3,
    followed: Sequence[int] = (),
    stopped: Stopped = never,
) -> LensRead:
    """Run the last tokens of a path again and read every layer through the model's end.

    Args:
        session: Has read a prompt; not changed.
        node: The last token's.
        positions: How many tokens, at least 1.
        top: Tokens in each cell.
        followed: Tokens whose probability is read in each cell.
        stopped: Polled before each chunk and forward.

    Raises:
        StepError: There is no such node, or it is the root; the model's logits are not numbers.
        PromptError: The model has no embedding for a followed token.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    session.tokens.check(list(followed))
    taken = capture(session, node, tokens=max(1, positions), stopped=stopped)
    if not taken.taps[0].layers:
        return _unread(taken, begun, session, followed, "its layers are not called, their parts are")
    states = residual_streams(taken)
    cells, worst = [], 0.0
    for place in range(states.shape[-2]):
        try:
            rows = _through_the_end(session, taken, states[..., place, :], stopped)
        except EngineError:
            raise
        except Exception:  # whatever this family's code does after its layers doesn't fit these rows
            return _unread(taken, begun, session, followed, "its end needs more than the residual stream")
        truth = np.array(taken.logits[place])
        worst = max(worst, relative_error(rows[-1], truth))
        cells.append(tuple(_cell(session.tokens, row, int(truth.argmax()), top, followed) for row in rows))
    columns = tuple(map(LensColumn, taken.nodes, cells))
    check = Check("lens", worst, taken.bound, "the last layer")
    return LensRead(node, columns, tuple(followed), taken.facts(begun, session, check))


def _unread(taken: Capture, begun: float, session: Session, followed: Sequence[int], why: str) -> LensRead:
    """A lens without columns: its check could not be made."""
    check = Check("lens", float("inf"), taken.bound, why)
    return LensRead(taken.node, (), tuple(followed), taken.facts(begun, session, check))


def residual_streams(taken: Capture) -> mx.array:
    """The residual stream before the first layer and after each.

    Returns:
        Shape (layers + 1, tokens, size); where there are several, an axis before.
    """
    streams = []
    for taps in taken.taps:
        states = [taps.layers[index].state for index in sorted(taps.layers)]
        assert taps.embedded is not None
        streams.append(mx.concatenate([taps.embedded, *states], axis=-3))
    return mx.concatenate(streams, axis=-2)


def _through_the_end(session: Session, taken: Capture, states: mx.array, stopped: Stopped) -> list[Row]:
    rows: list[Row] = []
    for first in range(0, states.shape[-2], ROWS):
        if stopped():
            raise Cancelled
        logits = tail(session.runner.model, states[..., first : first + ROWS, :], taken.taps[0].layers)
        rows += list(np.array(logits))
    return rows


def _cell(tokens: Tokens, row: Row, final: int, top: int, followed: Sequence[int]) -> LensCell:
    logprobs = checked_logprobs(row)
    probs = np.exp(logprobs.astype(np.float64))
    some = probs > 0
    return LensCell(
        tuple(LensToken(int(id), tokens.text(int(id), b"")[0], float(probs[id])) for id in ranked(row, top)),
        float(-(probs[some] * logprobs[some]).sum() / LN2),
        rank_of(row, final),
        tuple(float(probs[id]) for id in followed),
        tuple(rank_of(row, id) for id in followed),
    )
