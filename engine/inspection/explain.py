"""Why a token was chosen, and what would have been: from kept logits, with the same draw and no forward."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from engine.errors import COMPUTE_AGAIN, Cancelled, StepError
from engine.model.forward import Stopped, never
from engine.records import Candidate, Explained, StageColumn, StageReading, WhatIfAnswered, WhatIfStep
from engine.sampling.ranking import Row
from engine.sampling.stages import Stage
from engine.session.session import Session
from engine.settings import Settings
from engine.tree import ROOT


def explain(session: Session, node: int, settings: Settings | None = None) -> Explained:
    """Tell the sampler's work after a node, stage by stage.

    Args:
        session: Whose tree and kept logits are used; it does not move.
        node: The node whose distribution is told.
        settings: To try, with the draw of that place; None for those that were used there.

    Raises:
        StepError: There is no such node, or its logits were dropped to hold the memory bound.
    """
    row = kept_row(session, node)
    used = session.used.get(node, session.settings)
    settings = settings or used
    turn = turn_of(session, node)
    seen: list[tuple[Stage, Row]] = []
    look = session.looker.look(
        node, row, settings, lambda stage, passage: seen.append((stage, passage.row)), turn
    )
    here = session.looker.show(look, settings.candidates)
    ids = np.array([candidate.id for candidate in here.next.candidates])
    context = session.looker.context(node, settings, turn)
    return Explained(
        node=node,
        logits=tuple(row[ids].tolist()),
        columns=tuple(
            _column(stage, left, reading, ids)
            for (stage, left), reading in zip(seen, here.next.stages, strict=False)
        ),
        earlier=_earlier(here.next.candidates, context.path, session.tree[node].depth),
        next=here.next,
        used=settings == used,
    )


def turn_of(session: Session, node: int) -> int:
    """The re-roll count of the draw in question: of the token that stands there, or at the tip of the one to come."""
    at = session.tree[node]
    return at.reroll if node == session.node or at.latest is None else session.tree[at.latest].drawn


def kept_row(session: Session, node: int) -> Row:
    """The kept logits after a node; where the session stands there are always some.

    Raises:
        StepError: There is no such node, it is the root, or its logits aren't kept: dropped to hold the memory bound,
            or inside the prompt, whose chunks leave none behind.
    """
    if node not in session.tree:
        raise StepError(f"There is no token number {node}.", "Begin with a prompt.")
    if node == ROOT:
        raise StepError(
            "Nothing is expected of the first token: there is no text before it.", "Go to a later one."
        )
    row = session.logits if node == session.node else session.kept.get(node)
    if row is None and node not in session.used:
        raise StepError("The logits here were not kept.", f"{COMPUTE_AGAIN}.")
    if row is None:
        raise StepError(
            "The logits of this step were dropped to hold the memory bound.",
            f"{COMPUTE_AGAIN}, or start with more --kept-logits-mib.",
        )
    return row


def _column(stage: Stage, row: Row, reading: StageReading, ids: npt.NDArray[np.intp]) -> StageColumn:
    """How a stage left some tokens: their logits, or their share of what is left."""
    left = row[ids].astype(np.float64)
    if not stage.shapes:
        top = row.max()
        left = np.exp(left - float(top)) / float(np.exp(row - top).sum(dtype=np.float64))
    values = tuple(
        None if gone else value
        for value, gone in zip(left.tolist(), np.isneginf(row[ids]).tolist(), strict=True)
    )
    return StageColumn(
        reading.name, reading.kept, reading.removed_mass, "logit" if stage.shapes else "prob", values
    )


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
        picked = session.looker.look(at.parent, row, settings, reroll=at.drawn).sampled.picked
        text = session.tokens.text(picked, session.pending.get(at.parent, b""))[0]
        found.append(WhatIfStep(node, picked, text, picked == at.token))
    return WhatIfAnswered(tip, tuple(found), tuple(dropped), (time.perf_counter() - begun) * 1000)
