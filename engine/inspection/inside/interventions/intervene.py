"""What the model predicts with units scaled or switched off, at one token or in the whole context."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from engine.errors import Cancelled, StepError
from engine.frozen import frozen
from engine.inspection.inside.capture import before_and_cost
from engine.inspection.inside.interventions.scaling import Scaling, Survey, check_interventions, edited
from engine.inspection.inside.taps import Edits
from engine.logits.readings import LN2, entropy_bits
from engine.model.forward import Runner, Stopped, never
from engine.model.rounding import rounding_of
from engine.protocol import CandidateChange, CaptureFacts, Check, Intervened, Intervention, Scope
from engine.sampling.ranking import Row, absolute_difference, checked_logprobs, ranked, sum_of_products
from engine.session.detached import copy_runner
from engine.session.session import Session

MOST_LISTED = 100
"""Candidates of each side at most."""


@frozen
class Ground:
    """A token that is about to go through the model, and what the model itself makes of it."""

    session: Session
    node: int
    token: int
    runner: Runner
    """Its cache holds the path without the token; copies of it run."""
    survey: Survey
    """What the token's forward went through."""
    plain: Row
    """The model's own logits after it."""
    check: Check
    """Whether taps that change nothing left the logits as they are."""
    recomputed: int
    """Tokens of the path that went through the model again."""
    note: str
    begun: float
    step_ms: float

    def row(self, edits: Edits) -> Row:
        """The logits after the token where its forward is changed."""
        with edited(self.session.runner.model, edits).set():
            return _row(copy_runner(self.runner), self.token)

    def facts(self, *checks: Check) -> CaptureFacts:
        """What accompanies a view."""
        ms, family = (time.perf_counter() - self.begun) * 1000, self.session.facts.family
        return CaptureFacts((self.check, *checks), ms, self.step_ms, family, self.note)


GROUND_RUNS = 2
"""Forwards of the token that `ground` takes: one plain, one under taps that change nothing."""


def ground(session: Session, node: int, stopped: Stopped = never) -> Ground:
    """Prepare a token for interventions; the session doesn't change.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    session.check_node(node)
    runner, recomputed, note = before_and_cost(session, node, stopped)
    if stopped():
        raise Cancelled
    token, survey = session.tree[node].token, Survey(session.runner.model)
    step_begun = time.perf_counter()
    plain = _row(copy_runner(runner), token)
    step_ms = (time.perf_counter() - step_begun) * 1000
    with edited(session.runner.model, survey).set():
        tapped = _row(copy_runner(runner), token)
    check = Check("forward", finite(absolute_difference(plain, tapped).max()), 0.0)
    return Ground(session, node, token, runner, survey, plain, check, recomputed, note, begun, step_ms)


def intervene(
    session: Session,
    node: int,
    interventions: Sequence[Intervention],
    scope: Scope = "token",
    top: int = 10,
    stopped: Stopped = never,
) -> Intervened:
    """Run a token again under interventions, and compare what comes after it.

    Args:
        session: Has read a prompt; not changed.
        node: The token's.
        interventions: What is scaled.
        scope: In this token's forward, or in the whole path's.
        top: Tokens that are listed of each side.
        stopped: Polled before each chunk and forward.

    Raises:
        StepError: There is no such node, layer, head or part, a scale is out of range, or the changed model's logits
            are not numbers.
        Cancelled: `stopped` returned True.
    """
    check_interventions(session.runner.model, interventions)
    at = ground(session, node, stopped)
    at.survey.check(interventions)
    edits = Scaling(session.runner.model, interventions)
    if scope == "token":
        row, run = at.row(edits), 1
    else:
        row, run = _whole_path(session, node, edits, stopped), session.tree[node].depth
    rounding = 0.0 if scope == "token" else rounding_of(at.plain, session.facts.dtype)
    return _compared(at, row, tuple(interventions), scope, top, rounding, at.recomputed + GROUND_RUNS + run)


def _whole_path(session: Session, node: int, edits: Edits, stopped: Stopped) -> Row:
    """The logits after a path that went through the changed model from its first token on."""
    tree = session.tree
    with edited(session.runner.model, edits).set():
        return session.runner.fresh().forward_path(tree.tokens(node), tree.chunks(node), stopped)


def _compared(
    at: Ground,
    row: Row,
    interventions: tuple[Intervention, ...],
    scope: Scope,
    top: int,
    rounding: float,
    run: int,
) -> Intervened:
    logprobs, changed = checked_logprobs(at.plain), changed_logprobs(row)
    difference = absolute_difference(at.plain, row)
    largest = int(difference.argmax())
    return Intervened(
        node=at.node,
        interventions=interventions,
        scope=scope,
        candidates=_candidates(at, row, logprobs, changed, top),
        kl_bits=kl_bits(logprobs, changed),
        largest_change=float(difference[largest]),
        largest_change_id=largest,
        largest_change_text=at.session.tokens.text(largest, b"")[0],
        entropy_before_bits=entropy_bits(logprobs),
        entropy_after_bits=entropy_bits(changed),
        rounding=rounding,
        tokens_run=run,
        note=_note(interventions, float(difference[largest]), rounding_of(at.plain, at.session.facts.dtype)),
        facts=at.facts(),
    )


def _candidates(at: Ground, row: Row, logprobs: Row, changed: Row, top: int) -> tuple[CandidateChange, ...]:
    count = max(1, min(top, MOST_LISTED))
    first, then = ranked(at.plain, count), ranked(row, count)
    ids = np.array([*first, *(id for id in then if id not in first)])
    read, pending = at.session.node_reader.row_reader.chosen, at.session.pending.get(at.node, b"")
    pairs = zip(
        read(at.plain, logprobs, ids, pending, None), read(row, changed, ids, pending, None), strict=True
    )
    return tuple(
        CandidateChange(before, after, float(at.plain[after.id]), float(row[after.id]))
        for before, after in pairs
    )


def _note(interventions: tuple[Intervention, ...], change: float, rounding: float) -> str:
    """Why a scale had no effect where an effect was to be expected."""
    scaled = [each for each in interventions if each.scale != 1]
    if not scaled or change > rounding or any(each.scale == 0 for each in scaled):
        return ""
    return (
        "Nothing changed: where a norm follows a part before it is added, as in some families, its scale is lost."
        " Scale 0 and the whole layer act there too."
    )


def changed_logprobs(row: Row) -> Row:
    """The log-softmax of a changed model's logits.

    Raises:
        StepError: They are not numbers.
    """
    if not np.isfinite(row.max()):
        raise StepError(
            "With this intervention the logits are not numbers.", "Use a scale nearer to 1, or 0."
        )
    return checked_logprobs(row)


def kl_bits(own: Row, changed: Row) -> float:
    """KL divergence of a changed distribution from the model's own, both as log-probabilities, in bits."""
    live = own > -np.inf
    wide, other = own[live].astype(np.float64), changed[live].astype(np.float64)
    return max(0.0, sum_of_products(np.exp(wide), wide - other) / LN2)


def finite(value: float) -> float:
    """An error of a check: infinite where it is not a number."""
    return float(value) if np.isfinite(value) else float("inf")


def _row(runner: Runner, token: int) -> Row:
    row: Row = np.array(runner.forward_logits([token])[0])
    return row
