"""Why a token was chosen, and which one other settings would choose: from kept logits, same draw, no forward."""

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
from engine.settings import Settings, check
from engine.tree import ROOT


def explain(session: Session, node: int, settings: Settings | None = None) -> Explained:
    """Explain the sampler's result after a node, stage by stage.

    Args:
        session: Provides tree and kept logits; not changed.
        node: The node whose distribution is explained.
        settings: To try, with the same draw; None for those that were used there.

    Raises:
        StepError: There is no such node, or its logits were dropped to hold the memory bound.
        SettingsError: A setting is out of its range.
    """
    row = kept_row(session, node)
    used = session.settings_at.get(node, session.settings)
    settings = check(settings or used, session.facts.vocabulary)
    reroll = draw_reroll(session, node)
    stage_rows: list[tuple[Stage, Row]] = []
    node_logits = session.node_reader.sample(
        node, row, settings, lambda stage, run: stage_rows.append((stage, run.row)), reroll
    )
    position = session.node_reader.position(node_logits, settings.candidates)
    ids = np.array([candidate.id for candidate in position.next.candidates])
    context = session.node_reader.context(node, settings, reroll)
    return Explained(
        node=node,
        logits=tuple(row[ids].tolist()),
        columns=tuple(
            _column(stage, left, reading, ids)
            for (stage, left), reading in zip(stage_rows, position.next.stages, strict=False)
        ),
        earlier=_earlier(position.next.candidates, context.path, session.tree[node].depth),
        next=position.next,
        used=settings == used,
    )


def draw_reroll(session: Session, node: int) -> int:
    """The re-roll count of the draw after a node: of the token taken there, or at the current node of the next one."""
    at = session.tree[node]
    return at.reroll if node == session.node or at.latest is None else session.tree[at.latest].drawn_reroll


def kept_row(session: Session, node: int) -> Row:
    """The kept logits after a node, float32, shape (vocabulary,); the current node always has some.

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
    row = session.logits if node == session.node else session.kept_logits.get(node)
    if row is None and node not in session.settings_at:
        raise StepError("The logits here were not kept.", f"{COMPUTE_AGAIN}.")
    if row is None:
        raise StepError(
            "The logits of this step were dropped to hold the memory bound.",
            f"{COMPUTE_AGAIN}, or start with more --kept-logits-mib.",
        )
    return row


def _column(stage: Stage, row: Row, reading: StageReading, ids: npt.NDArray[np.intp]) -> StageColumn:
    """The values of some tokens after a stage: their logits, or their share of what is left."""
    left = row[ids].astype(np.float64)
    if not stage.changes_logits:
        top = row.max()
        left = np.exp(left - float(top)) / float(np.exp(row - top).sum(dtype=np.float64))
    values = tuple(
        None if gone else value
        for value, gone in zip(left.tolist(), np.isneginf(row[ids]).tolist(), strict=True)
    )
    return StageColumn(
        reading.name, reading.kept, reading.removed_mass, "logit" if stage.changes_logits else "prob", values
    )


def _earlier(
    candidates: tuple[Candidate, ...], path: tuple[int, ...], depth: int
) -> tuple[tuple[int, ...], ...]:
    """Positions of each candidate among the last tokens of the path."""
    first = depth - len(path)
    return tuple(
        tuple(first + place for place, token in enumerate(path) if token == candidate.id)
        for candidate in candidates
    )


def what_if(session: Session, settings: Settings, tip: int, stopped: Stopped = never) -> WhatIfAnswered:
    """What the same draws would have picked under other settings, at each step of a path, with the path unchanged.

    Args:
        session: Provides tree and kept logits; not changed.
        settings: To try.
        tip: The last node of the path.
        stopped: Polled before each step.

    Raises:
        StepError: There is no such node.
        SettingsError: A setting is out of its range.
        Cancelled: `stopped` returned True.
    """
    check(settings, session.facts.vocabulary)
    if tip not in session.tree:
        raise StepError(f"There is no token number {tip}.", "Begin with a prompt.")
    begun = time.perf_counter()
    answers: list[WhatIfStep] = []
    dropped: list[int] = []
    for node in session.tree.nodes(tip):
        at = session.tree[node]
        if not at.has_step:
            continue
        if stopped():
            raise Cancelled
        row = session.kept_logits.get(at.parent)
        if row is None:
            dropped.append(node)
            continue
        picked = session.node_reader.sample(at.parent, row, settings, reroll=at.drawn_reroll).sampled.picked
        text = session.tokens.text(picked, session.pending.get(at.parent, b""))[0]
        answers.append(WhatIfStep(node, picked, text, picked == at.token))
    return WhatIfAnswered(tip, tuple(answers), tuple(dropped), (time.perf_counter() - begun) * 1000)
