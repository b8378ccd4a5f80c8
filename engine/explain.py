"""Why a token was chosen, and what would have been: from kept logits, with the same draw and no forward."""

from __future__ import annotations

import time

import numpy as np

from engine.errors import Cancelled, StepError
from engine.ranking import Row
from engine.records import Candidate, Explained, StageColumn, WhatIfAnswered, WhatIfStep
from engine.runner import Stopped, never
from engine.sampling import Passage
from engine.session import Session
from engine.settings import Settings
from engine.stages import Stage, pipeline


def explain(session: Session, node: int, settings: Settings | None = None) -> Explained:
    """Tell the sampler's work after a node, stage by stage.

    Args:
        session: Whose tree and kept logits are used; it does not move.
        node: The node whose distribution is told.
        settings: To try, with the draw of that place; None for those that were used there.

    Raises:
        StepError: There is no such node, or its logits were dropped to hold the memory bound.
    """
    row = _row(session, node)
    used = session.used.get(node, session.settings)
    settings = settings or used
    look = session.looker.look(node, row, settings)
    here = session.looker.show(look, settings.candidates)
    ids = np.array([candidate.id for candidate in here.next.candidates])
    context = session.looker.context(node, settings)
    passage, columns = Passage(row, look.logprobs), []
    for stage in pipeline(settings, context):
        passage.through(stage)
        columns.append(_column(stage, passage, ids))
    return Explained(
        node=node,
        logits=tuple(row[ids].tolist()),
        columns=tuple(columns),
        earlier=_earlier(here.next.candidates, context.path, session.tree[node].depth),
        next=here.next,
        used=settings == used,
    )


def _row(session: Session, node: int) -> Row:
    if node not in session.tree:
        raise StepError(f"There is no token number {node}.", "Begin with a prompt.")
    row = session.kept.get(node)
    if row is None:
        raise StepError(
            "The logits of this step were dropped to hold the memory bound.",
            "Compute them again, or start with more --kept-logits-mib.",
        )
    return row


def _column(stage: Stage, passage: Passage, ids: np.ndarray) -> StageColumn:
    """How a stage left some tokens: their logits, or their share of what is left."""
    reading = passage.readings[-1]
    row = passage.row if stage.shapes else np.exp(_normalized(passage.row))
    cut = np.isneginf(passage.row[ids])
    values = tuple(
        None if gone else value for value, gone in zip(row[ids].tolist(), cut.tolist(), strict=True)
    )
    unit = "logit" if stage.shapes else "prob"
    return StageColumn(reading.name, reading.kept, reading.removed_mass, unit, values)  # type: ignore[arg-type]


def _normalized(row: Row) -> np.ndarray:
    wide = (row - row.max()).astype(np.float64)
    shifted: np.ndarray = wide - np.log(np.exp(wide).sum())
    return shifted


def _earlier(
    candidates: tuple[Candidate, ...], path: tuple[int, ...], depth: int
) -> tuple[tuple[int, ...], ...]:
    """Positions at which each candidate stood in the last tokens of the path."""
    first = depth - len(path)
    return tuple(
        tuple(first + place for place, token in enumerate(path) if token == candidate.id)
        for candidate in candidates
    )


def what_if(session: Session, settings: Settings, tip: int, stopped: Stopped = never) -> WhatIfAnswered:
    """What the same draws would have picked under other settings, at each step of a path as it stands.

    Args:
        session: Whose tree and kept logits are used; it does not move.
        settings: To try.
        tip: The last node of the path.
        stopped: Asked before each step.

    Raises:
        StepError: There is no such node.
        Cancelled: `stopped` said so.
    """
    if tip not in session.tree:
        raise StepError(f"There is no token number {tip}.", "Begin with a prompt.")
    begun = time.perf_counter()
    found: list[WhatIfStep] = []
    dropped: list[int] = []
    for node in session.tree.nodes(tip)[session.tree[tip].start :]:
        if stopped():
            raise Cancelled
        at = session.tree[node]
        row = session.kept.get(at.parent)
        if row is None:
            dropped.append(node)
            continue
        picked = session.looker.look(at.parent, row, settings).sampled.picked
        text = session.tokens.text(picked, session.pending.get(at.parent, b""))[0]
        found.append(WhatIfStep(node, picked, text, picked == at.token))
    return WhatIfAnswered(tip, tuple(found), tuple(dropped), (time.perf_counter() - begun) * 1000)
