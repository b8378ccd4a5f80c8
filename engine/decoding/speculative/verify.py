"""Acceptance of drafted tokens: three rules, how often each accepts, and verifying them in one forward.

p is the distribution that the model draws from, q the draft's, both after the sampler. Each rule gives tokens
distributed as p, so they differ in how often they accept alone:

- position draw, the rule in force: one number u in [0, 1) a position. Drafter and target each invert their cumulative
  distribution at u, most probable token first. Accepted where both fall on the same token: the length of u in the
  intervals of that token in both, summed over tokens.
- rejection (Leviathan, Kalman, Matias 2023, arXiv:2211.17192, algorithm 1): d from q is accepted with probability
  min(1, p(d)/q(d)); else a token from the residual max(0, p - q), normalized. Accepted: sum of min(p, q), which no rule
  exceeds.
- match (mlx_lm.generate.speculative_generate_step): d from q, t from p, independent; accepted where d = t. Accepted:
  sum of p q.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from engine.cache.kinds import kind_of
from engine.errors import StepError
from engine.logits.node_sampler import NodeLogits
from engine.model.forward import CLEAR_EVERY, Runner
from engine.protocol import AcceptanceRates, KVReading, Origin, Step, StepTimes
from engine.sampling.ranking import Row, ranked, sum_of_products
from engine.session.node_records import memory
from engine.session.session import Session
from engine.timing import stall_times

Probs = npt.NDArray[np.float64]
"""A distribution, shape (vocabulary,); sums to 1."""

HEAD = 8192
"""Tokens whose intervals are compared: ordering 150,000 of them takes 25 ms, these 3. The rest of both distributions is
not counted, so that the rate is too low by at most their probability; of smaller vocabularies nothing is left out."""


# ---- how often each accepts ----------------------------------------------------------------------


def rates(p: Probs, q: Probs) -> AcceptanceRates:
    """The probability that a token drafted from q is accepted, by each rule."""
    return AcceptanceRates(position_draw_rate(p, q), float(np.minimum(p, q).sum()), sum_of_products(p, q))


def fixed_rates(p: float) -> AcceptanceRates:
    """As `rates`, of a draft that proposes one token whatever is drawn.

    Args:
        p: The model's probability of that token.
    """
    return AcceptanceRates(p, p, p)


def position_draw_rate(p: Probs, q: Probs) -> float:
    """The length of [0, 1) in which both distributions have the same token, each most probable token first."""
    (p_begin, p_end), (q_begin, q_end) = _intervals(p), _intervals(q)
    both = np.minimum(p_end, q_end) - np.maximum(p_begin, q_begin)
    return float(np.maximum(both, 0.0).sum())


def _intervals(probs: Probs) -> tuple[Probs, Probs]:
    """Where each token's share of the cumulative distribution begins and ends; empty outside of `HEAD`."""
    order = ranked(probs, min(HEAD, probs.size))
    begin, end = np.zeros(probs.size), np.zeros(probs.size)
    end[order] = np.cumsum(probs[order])
    begin[order] = end[order] - probs[order]
    return begin, end


# ---- verifying in one forward, and taking the KV of those that don't hold back: two makings ----
# A forward over several tokens rounds its sums in another order than forwards over one. Where two tokens are as near to
# each other as that, it can take the other one; `VerifySpeculation` says so with the difference.


class Verifier(Protocol):
    """Verifies the drafts of one round."""

    @property
    def note(self) -> str:
        """Why it costs more than a forward, a sentence; empty where it doesn't."""

    def forward(self, ids: Sequence[int]) -> Sequence[Row]:
        """Run the round's tokens after the current node.

        Returns:
            The logits after each, float32, shape (vocabulary,); none where there is nothing to verify.

        Raises:
            StepError: A cache can't be copied.
        """

    def take(self, logits: NodeLogits | None, token: int, origin: Origin, share: StepTimes) -> Step:
        """Go to the next of the tokens that were run.

        Args:
            logits: Those after the token, under any node's number; None where `forward` gave none.
            token: The token.
            origin: Its origin.
            share: The token's share of the round so far.
        """

    def settle(self) -> None:
        """Have the live cache hold the path to the current node, whatever was taken."""


def verifier(session: Session, count: int, *, paused: bool = False) -> Verifier:
    """What verifies a round here.

    Args:
        session: Its caches decide.
        count: Tokens of the round's forward.
        paused: Whether the person may do other things between verifying and taking.

    Raises:
        StepError: There is no KV cache.
    """
    if not session.cached:
        raise StepError(
            "Speculative decoding needs a KV cache, and this model was opened without one.",
            "Open the model without --no-kv-cache.",
        )
    kv = session.kv
    at = session.tree[session.node].depth
    if kv.chunks_matter or not kv.could_trim(at + count, at):
        return CopyVerifier(session)
    return TrimmingVerifier(session, session.runner.copy() if paused else session.runner)


class TrimmingVerifier:
    """Verifies in the live cache, and trims what doesn't hold: for kinds that can be trimmed whatever they took in.

    Args:
        session: It goes on.
        runner: The session's, or a copy of it, whose caches become the session's at the first token taken.
    """

    note = ""

    def __init__(self, session: Session, runner: Runner) -> None:
        self._session, self._runner = session, runner
        self._chunks = runner.kv.chunks

    def forward(self, ids: Sequence[int]) -> Sequence[Row]:
        """See `Verifier`."""
        kv = self._runner.kv
        rows = np.array(self._runner.forward_logits(ids))
        if kv.offset % CLEAR_EVERY < len(ids):
            mx.clear_cache()
        return list(rows)

    def take(self, logits: NodeLogits | None, token: int, origin: Origin, share: StepTimes) -> Step:
        """See `Verifier`; no forward."""
        assert logits is not None
        begun, stalls, session, kv = time.perf_counter(), stall_times(), self._session, self._runner.kv
        if self._runner is not session.runner:
            session.kv.adopt(kv.caches, kv.offset, kv.chunks)
            self._runner = session.runner
        before = session.position
        node = session.node_reader.add_token(session.node, token, origin)
        session.set_position(
            session.node_reader.position(replace(logits, node=node), session.settings.candidates)
        )
        reading = _without_end(session.kv_reading(), session.kv.offset - session.tree[node].depth)
        used, ms = memory(), (time.perf_counter() - begun) * 1000
        times = replace(
            share,
            total=share.total + logits.sample_ms + ms,
            sample=logits.sample_ms,
            inspect=ms,
            **stall_times(stalls)._asdict(),
        )
        return session.node_reader.step_record(before, session.position, origin, reading, times, used)

    def settle(self) -> None:
        """See `Verifier`; caches that give back other tokens than asked for are emptied, and filled again."""
        if self._runner is not self._session.runner:
            return  # nothing was taken, and the live cache was never written
        kv, depth = self._session.kv, self._session.tree[self._session.node].depth
        if kv.offset <= depth:
            return
        kv.rewind(depth)
        kv.set_offset(kv.offset, chunks=self._chunks)
        if any(kind_of(cache).held(cache) != kv.offset for cache in kv.caches):
            kv.clear()


class CopyVerifier:
    """Verifies in a copy of the cache, and runs what holds in the live one, token by token: exact whatever the kind.

    Args:
        session: It goes on.
    """

    note = (
        "These caches can't give tokens back: drafts are verified in a copy, and accepted tokens run once more,"
        " so that no time is saved."
    )

    def __init__(self, session: Session) -> None:
        self._session = session

    def forward(self, ids: Sequence[int]) -> Sequence[Row]:
        """See `Verifier`; the live cache doesn't change."""
        return list(np.array(self._copy().forward_logits(ids))) if len(ids) > 1 else []

    def _copy(self) -> Runner:
        live = self._session.runner
        try:
            copied = live.copy()
        except Exception as error:  # a class of the model's own code may refuse in any way
            raise _no_copy(live) from error
        if any(ours is theirs for ours, theirs in zip(live.kv.caches, copied.kv.caches, strict=True)):
            raise _no_copy(live)
        return copied

    def take(self, logits: NodeLogits | None, token: int, origin: Origin, share: StepTimes) -> Step:
        """See `Verifier`; a plain step, with its own times."""
        return self._session.step(token, origin)

    def settle(self) -> None:
        """See `Verifier`; the live cache holds the path at any time."""


def _no_copy(runner: Runner) -> StepError:
    names = ", ".join(sorted({type(cache).__name__ for cache in runner.kv.caches}))
    return StepError(
        f"These caches ({names}) can neither be trimmed nor copied, so drafts can't be verified.",
        "Step without speculation.",
    )


def _without_end(reading: KVReading, tokens: int) -> KVReading:
    """A reading of caches that hold more tokens than the path to a node, without these.

    Args:
        reading: Of caches that can be trimmed: each token has the same bytes in them.
        tokens: How many.
    """
    groups = tuple(
        replace(
            group,
            held=group.held - tokens,
            used_bytes=group.used_bytes - group.used_bytes // group.held * tokens,
        )
        if group.held
        else group
        for group in reading.groups
    )
    used = sum(group.used_bytes * len(group.layers) for group in groups)
    return replace(reading, offset=reading.offset - tokens, used_bytes=used, groups=groups)
