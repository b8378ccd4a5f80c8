"""One round of speculative decoding: propose, verify, take. The stages may be gone through one by one.

At a node the sampler has picked the next token, t0. The draft proposes d1, d2, ... after it. One forward over t0, d1,
d2, ... gives the logits after each; after t0 the session's sampler picks, with the draw of that position, and d1 is
accepted where it is what it picked; and so on. The first that isn't is refused, and what was picked in its place is
what a step takes next. The tokens taken are those of plain steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator

from msgspec import Struct

from engine.decoding.speculative import verify
from engine.decoding.speculative.drafts import Drafter, DraftPaths, Proposal, Proposed
from engine.decoding.speculative.verify import Verifier, verifier
from engine.logits.node_sampler import NodeLogits
from engine.protocol import (
    AcceptanceRates,
    DraftFate,
    DraftRound,
    DraftToken,
    Origin,
    Record,
    RoundStage,
    Step,
    StepTimes,
    TakenInstead,
)
from engine.sampling.ranking import rank_of
from engine.session.session import Session
from engine.settings import SpeculationSettings
from engine.task import Stopped
from engine.timing import stall_times

Taken = Callable[[Step], Generator[Record, None, bool]]
"""Yields the records of a step of the round, with the session at it; returns True if the round ends with it."""


class _Spent(Struct):
    """Milliseconds of a round."""

    draft: float = 0.0
    forward: float = 0.0
    sample: float = 0.0
    take: float = 0.0
    stalled: float = 0.0


class _Lap:
    """Measures from its making on."""

    def __init__(self) -> None:
        self._begun, self._stalls = time.perf_counter(), stall_times()

    def read(self) -> tuple[float, float]:
        """Milliseconds without stalls, and of stalls: garbage collection, and drawing the screen."""
        ms, stalls = (time.perf_counter() - self._begun) * 1000, sum(stall_times(self._stalls))
        stalled = min(ms, stalls)  # both stalls may be of one moment
        return ms - stalled, stalled


class Round:
    """One round at a session's current node.

    Args:
        session: It goes on by the tokens that hold.
        draft: Proposes.
        paths: Over the session's tree.
        settings: Those of the draft.
        paused: Whether the person may do other things between two stages.

    Raises:
        StepError: There is no prompt or no KV cache, the context is full, or the caches can't be verified on.
    """

    def __init__(
        self,
        session: Session,
        draft: Drafter,
        paths: DraftPaths,
        settings: SpeculationSettings,
        *,
        paused: bool = False,
    ) -> None:
        self._session, self._draft, self._paths = session, draft, paths
        self.settings = settings
        self.stage: RoundStage | None = None
        self._position = session.position
        session.prepare_step()
        self._count = _room(session, settings.num_draft_tokens)
        self._verifier: Verifier = verifier(session, 1 + self._count, paused=paused)
        self._node, self._end, self._taken = session.node, session.node, 0
        self._first = self._position.next.picked
        self._first_node = 0
        self._proposal = Proposal(())
        self._judged: list[NodeLogits] = []
        """After t0 and each draft that held, the logits that the forward gave there."""
        self._spent = _Spent()

    @property
    def over(self) -> bool:
        """True if the session is not where the round left it, or the round was taken."""
        return self.stage == "taken" or self._session.position is not self._position

    def advance(self, stopped: Stopped, taken: Taken) -> Iterator[Record]:
        """Go through the next stage; arguments and errors as for `rest`."""
        match self.stage:
            case None:
                self._propose(stopped)
            case "proposed":
                self._verify()
            case _:
                yield from self._take(taken)
        yield self.record()

    def rest(self, stopped: Stopped, taken: Taken) -> Iterator[Record]:
        """Go through the remaining stages.

        Args:
            stopped: Polled while drafting.
            taken: Yields the records of each step; if it returns True, the tokens after it are not taken.

        Yields:
            The records of the steps, and one of the round.

        Raises:
            Cancelled: `stopped` returned True; nothing was taken.
        """
        if self.stage is None:
            self._propose(stopped)
        if self.stage == "proposed":
            self._verify()
        yield from self._take(taken)
        yield self.record()

    # ---- stages -----------------------------------------------------------------------------

    def _propose(self, stopped: Stopped) -> None:
        lap = _Lap()
        self._paths.forget()
        self._first_node = self._paths.add(self._node, self._first)
        if self._count:
            self._proposal = self._draft.propose(
                self._paths, self._first_node, self._count, self._session.settings, stopped
            )
        self._spent.draft = self._ended(lap)
        self.stage = "proposed"

    def _verify(self) -> None:
        """The forward, and the sampler as far as the drafts hold."""
        lap = _Lap()
        try:
            rows = self._verifier.forward([self._first, *(each.id for each in self._proposal.tokens)])
            self._spent.forward, lap = self._ended(lap), _Lap()
            node, judged = self._first_node, list[NodeLogits]()
            for row, proposed in zip(rows, (*self._proposal.tokens, None), strict=False):
                judged.append(self._paths.sampler.sample(node, row, self._session.settings))
                if proposed is None or proposed.id != judged[-1].sampled.picked:
                    break
                node = proposed.node
        except BaseException:
            self._verifier.settle()
            raise
        self._spent.sample = self._ended(lap)
        self._judged = judged
        self.stage = "verified"

    def _take(self, taken: Taken) -> Iterator[Record]:
        """The tokens that held, a step each; afterwards the live cache holds the path to the last one."""
        session, lap = self._session, _Lap()
        ids = [self._first, *(each.id for each in self._proposal.tokens)]
        held: list[NodeLogits | None] = [*self._judged] or [None]
        share = self._share()
        try:
            for token, logits in zip(ids, held, strict=False):
                following = session.next
                if self._taken and token != following.picked:
                    break  # a copy of the cache accepted what the live one, rounded otherwise, doesn't take
                origin: Origin = "greedy" if following.draw is None else "sampled"
                step = self._verifier.take(logits, token, origin, share)
                self._end, self._taken = step.node, self._taken + 1
                self._spent.take += self._ended(lap)
                halted = yield from taken(step)
                lap = _Lap()  # what is done with a step is no part of the round
                if halted:
                    break
        finally:
            self._verifier.settle()
        self._spent.take += self._ended(lap)
        self.stage = "taken"

    def _ended(self, lap: _Lap) -> float:
        """Milliseconds of a lap without its stalls, which are counted apart."""
        ms, stalled = lap.read()
        self._spent.stalled += stalled
        return ms

    def _share(self) -> StepTimes:
        """What one of the tokens that held has of the drafting and of the forward."""
        count, spent = max(1, len(self._judged)), self._spent
        total, cold = (spent.draft + spent.forward) / count, self._session.runner.first_uses.take("step")
        return StepTimes(
            total, spent.forward / count, 0.0, 0.0, cold=cold, shared=count if self._proposal.tokens else 0
        )

    # ---- record -----------------------------------------------------------------------------

    def record(self) -> DraftRound:
        """The round as far as it went."""
        begun, tokens = _Lap(), self._session.tokens
        pending = self._session.pending.get(self._node, b"")
        first_text, pending = tokens.text(self._first, pending)
        drafts: list[DraftToken] = []
        for place, proposed in enumerate(self._proposal.tokens):
            text, pending = tokens.text(proposed.id, pending)
            drafts.append(self._drafted(place, proposed, text))
        spent = self._spent
        return DraftRound(
            node=self._node,
            end=self._end,
            stage=self.stage or "proposed",
            settings=self.settings,
            first=self._first,
            first_text=first_text,
            drafts=tuple(drafts),
            instead=self._instead(),
            matched=self._proposal.matched,
            taken=self._taken,
            verified=0 if self.stage == "proposed" else 1 + len(drafts),
            draft_ms=spent.draft,
            verify_ms=spent.forward + spent.sample,
            take_ms=spent.take,
            ms=spent.draft + spent.forward + spent.sample + spent.take,
            rates_ms=sum(begun.read()),
            stalled_ms=spent.stalled,
            note=self._verifier.note,
        )

    def _fate(self, place: int) -> DraftFate:
        if not self._judged:
            return "drafted"
        held = len(self._judged) - 1
        if place < (self._taken - 1 if self.stage == "taken" else held):
            return "accepted"
        halted = self.stage == "taken" and self._taken <= held
        return "refused" if place == held and not halted else "unseen"

    def _drafted(self, place: int, proposed: Proposed, text: str) -> DraftToken:
        fate, tokens = self._fate(place), self._session.tokens
        draft_prob = None if proposed.probs is None else float(proposed.probs[proposed.id])
        if fate not in ("accepted", "refused"):
            return DraftToken(proposed.id, text, tokens.raw(proposed.id), fate, draft_prob)
        logits = self._judged[place]
        target_prob, rank = (
            logits.sampled.prob(proposed.id),
            rank_of(logits.row, proposed.id),
        )
        return DraftToken(
            proposed.id,
            text,
            tokens.raw(proposed.id),
            fate,
            draft_prob,
            target_prob,
            rank,
            _rates(logits, proposed, target_prob),
        )

    def _instead(self) -> TakenInstead | None:
        """What was picked in the place of the refused draft, if one was."""
        place = len(self._judged) - 1
        if not 0 <= place < len(self._proposal.tokens) or self._fate(place) != "refused":
            return None
        sampled, proposed, tokens = (
            self._judged[place].sampled,
            self._proposal.tokens[place],
            self._session.tokens,
        )
        picked = sampled.picked
        draft_prob = None if proposed.probs is None else float(proposed.probs[picked])
        pending = self._session.pending.get(self._end, b"") if self.stage == "taken" else b""
        text = tokens.text(picked, pending)[0]
        return TakenInstead(picked, text, tokens.raw(picked), draft_prob, sampled.prob(picked))


def _rates(logits: NodeLogits, proposed: Proposed, target_prob: float) -> AcceptanceRates:
    if proposed.probs is None:
        return verify.fixed_rates(target_prob)
    return verify.rates(logits.sampled.probs, proposed.probs)


def _room(session: Session, count: int) -> int:
    """How many tokens to draft: none behind an end of sequence, the run's last token, or the context window."""
    at, window = session.tree[session.node], session.facts.context_window
    if session.next.picked in session.tokens.eos_ids:
        return 0
    most = session.settings.max_tokens
    left = most - (at.depth - at.start) % most
    if window is not None and at.depth < window:
        left = min(left, window - at.depth)
    return max(0, min(count, left - 1))
