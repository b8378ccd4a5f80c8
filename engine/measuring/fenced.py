"""The fenced profile of one step: the cost of its parts when nothing overlaps, and of the step without fences.

A fence itself costs time, and keeps MLX from overlapping the work of two parts: so the parts are compared with their
own total, and that total with the step without fences, both measured in turn in the same call.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from engine.errors import Cancelled, SettingsError
from engine.frozen import frozen
from engine.measuring.fences import FencedPlace, Fences, places
from engine.measuring.trial import RepeatedStep
from engine.model.forward import Stopped, never
from engine.protocol import Measuring, Profiled, ProfilePart
from engine.session.session import Session

WARM_UP = 2
"""Rounds that are not counted: the first copies the cache and may grow it."""
HOW = (
    "Fenced: before each part what it is given is evaluated, and what it gives is evaluated in it; mean of the {}"
    " middle ones of {} repeats after {} rounds of warm-up. The unfenced step took turns with it. Both are the"
    " forward, the sampler and the token's text, without the inspector's own readings, on a copy of the KV cache."
)
COPIED = " The kind of cache can't take a token off again, so each step copies it: the attention's share is too large."
UNCACHED = " There is no KV cache: the step runs the whole path."


@frozen
class _Round:
    """One measured step, in milliseconds."""

    parts: dict[FencedPlace, float]
    total: float


def profile(
    model: Any, session: Session, repeats: int = 5, stopped: Stopped = never
) -> Iterator[Measuring | Profiled]:
    """Measure the step that would be taken next; the session and its cache don't change.

    Args:
        model: The session's.
        session: Has read a prompt.
        repeats: Counted rounds, at least 1.
        stopped: Polled before each step.

    Yields:
        The progress, before each round, and the profile.

    Raises:
        SettingsError: `repeats` is below 1.
        StepError: There is no prompt, or no room for one more token.
        Cancelled: `stopped` returned True.
    """
    if repeats < 1:
        raise SettingsError("repeats", f"The repeats must be a whole number from 1 up, not {repeats}.")
    trial = RepeatedStep(session)
    fences = Fences(places(model, session.facts.vocabulary), trial.pending)
    fenced: list[_Round] = []
    plain: list[_Round] = []
    for turn in range(WARM_UP + repeats):
        yield Measuring("Profile", turn, WARM_UP + repeats, "warm-up" if turn < WARM_UP else "one step")
        for with_fences in ((True, False), (False, True))[turn % 2]:
            if stopped():
                raise Cancelled
            with fences.installed(model) if with_fences else nullcontext():
                measured = _round(session, trial, fences)
            (fenced if with_fences else plain).append(measured)
    yield _profiled(session, trial, fenced[WARM_UP:], plain[WARM_UP:])


def _round(session: Session, trial: RepeatedStep, fences: Fences) -> _Round:
    """One step: the forward, the draw of the token after it, and that token's text."""
    fences.take()
    begun = time.perf_counter()
    row = trial.forward()
    ran = time.perf_counter()
    node_logits = session.node_reader.sample(session.node, row, session.settings)
    drawn = time.perf_counter()
    session.tokens.text(node_logits.sampled.picked, session.pending.get(session.node, b""))
    ended = time.perf_counter()
    parts = fences.take()
    parts[FencedPlace("sampling", "sampling", None)] = (drawn - ran) * 1000
    parts[FencedPlace("detokenizing", "detokenizing", None)] = (ended - drawn) * 1000
    trial.undo()
    return _Round(parts, (ended - begun) * 1000)


def _profiled(
    session: Session, trial: RepeatedStep, fenced: Sequence[_Round], plain: Sequence[_Round]
) -> Profiled:
    middle, repeats = _middle(fenced), len(fenced)
    parts = [
        ProfilePart(
            place.name,
            place.role,
            place.layer,
            statistics.fmean(measured.parts.get(place, 0.0) for measured in middle),
        )
        for place in fenced[0].parts
    ]
    how = HOW.format(len(middle), repeats, WARM_UP) + (COPIED if trial.copies else "")
    return Profiled(
        node=session.node,
        tokens=session.tree[session.node].depth,
        repeats=repeats,
        parts=tuple(parts),
        fenced_ms=statistics.fmean(measured.total for measured in middle),
        unfenced_ms=statistics.fmean(measured.total for measured in _middle(plain)),
        how=how + ("" if session.cached else UNCACHED),
    )


def _middle(rounds: Sequence[_Round]) -> Sequence[_Round]:
    """The middle half by total, at least one: as steady as a median, with all parts from the same rounds."""
    ordered, cut = sorted(rounds, key=lambda measured: measured.total), len(rounds) // 4
    return ordered[cut : len(ordered) - cut]
