"""Why a token was chosen, and which one other settings would choose: from kept logits, same draw, no forward."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from engine.errors import Cancelled
from engine.logits.source import LogitsSource, Stopped, check_node, draw_reroll, kept_row, never
from engine.protocol import Candidate, Explained, StageColumn, StageReading, WhatIfAnswered, WhatIfStep
from engine.sampling.ranking import Row
from engine.sampling.stages import Stage
from engine.settings import Settings, check


def explain(source: LogitsSource, node: int, settings: Settings | None = None) -> Explained:
    """Explain the sampler's result after a node, stage by stage.

    Args:
        source: Provides tree and kept logits; not changed.
        node: The node whose distribution is explained.
        settings: To try, with the same draw; None for those that were used there.

    Raises:
        StepError: There is no such node, or its logits were dropped to hold the memory bound.
        SettingsError: A setting is out of its range.
    """
    row = kept_row(source, node)
    used = source.settings_at.get(node, source.settings)
    settings = check(settings or used, source.facts.vocabulary)
    reroll = draw_reroll(source, node)
    stage_rows: list[tuple[Stage, Row]] = []
    node_logits = source.node_reader.sample(
        node, row, settings, lambda stage, run: stage_rows.append((stage, run.row)), reroll
    )
    position = source.node_reader.position(node_logits, settings.candidates)
    ids = np.array([candidate.id for candidate in position.next.candidates])
    context = source.node_reader.context(node, settings, reroll)
    return Explained(
        node=node,
        logits=tuple(row[ids].tolist()),
        columns=tuple(
            _column(stage, left, reading, ids)
            for (stage, left), reading in zip(stage_rows, position.next.stages, strict=False)
        ),
        earlier=_earlier(position.next.candidates, context.path, source.tree[node].depth),
        next=position.next,
        used=settings == used,
    )


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


def what_if(source: LogitsSource, settings: Settings, tip: int, stopped: Stopped = never) -> WhatIfAnswered:
    """What the same draws would have picked under other settings, at each step of a path, with the path unchanged.

    Args:
        source: Provides tree and kept logits; not changed.
        settings: To try.
        tip: The last node of the path.
        stopped: Polled before each step.

    Raises:
        StepError: There is no such node.
        SettingsError: A setting is out of its range.
        Cancelled: `stopped` returned True.
    """
    check(settings, source.facts.vocabulary)
    check_node(source, tip)
    begun = time.perf_counter()
    answers: list[WhatIfStep] = []
    dropped: list[int] = []
    for node in source.tree.nodes(tip):
        at = source.tree[node]
        if not at.has_step:
            continue
        if stopped():
            raise Cancelled
        row = source.row_at(at.parent)
        if row is None:
            dropped.append(node)
            continue
        picked = source.node_reader.sample(at.parent, row, settings, reroll=at.drawn_reroll).sampled.picked
        text = source.tokens.text(picked, source.pending.get(at.parent, b""))[0]
        answers.append(WhatIfStep(node, picked, text, picked == at.token))
    return WhatIfAnswered(tip, tuple(answers), tuple(dropped), (time.perf_counter() - begun) * 1000)
