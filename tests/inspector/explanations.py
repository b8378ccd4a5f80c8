"""What the engine tells of the sampler, made by hand to go with a distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from engine.protocol import (
    Candidate,
    Candidates,
    Distribution,
    Explained,
    StageColumn,
    StageReading,
    WhatIfAnswered,
    WhatIfStep,
)
from inspector.state.timeline import Timeline


def candidate(id: int, text: str, prob: float, final: float = 0.0, cut_by: str | None = None) -> Candidate:
    """A candidate; ranks are given by `distribution`."""
    return Candidate(
        id, text, text.encode("utf-8", "surrogatepass"), False, math.log(prob), prob, 1, final, cut_by
    )


def distribution(
    candidates: Sequence[Candidate],
    picked: int,
    draw: float | None = None,
    stages: Sequence[StageReading] = (),
    node: int = 5,
) -> Distribution:
    """A distribution whose draw, if there is one, lies on the picked token's share."""
    ranked = tuple(replace(each, rank=rank) for rank, each in enumerate(candidates, 1))
    ordered = sorted(ranked, key=lambda each: -each.sampler_prob)
    place = next(n for n, each in enumerate(ordered) if each.id == picked)
    start = sum(each.sampler_prob for each in ordered[:place])
    bounds = (None, None) if draw is None else (start, start + ordered[place].sampler_prob)
    return Distribution(
        node, node, Candidates(ranked), 1.5, 1.0, 4096 - len(ranked), 1 - sum(each.prob for each in ranked), 0.0,
        tuple(stages), picked, draw, *bounds, 0,
    )  # fmt: skip


def explained(
    told: Distribution,
    columns: Sequence[StageColumn] | None = None,
    earlier: Sequence[Sequence[int]] | None = None,
    used: bool = True,
) -> Explained:
    """How the sampler came to a distribution: its stages cut, and change nothing else unless columns say so."""
    logits = tuple(10 + each.logprob for each in told.candidates)
    return Explained(
        told.node, logits, tuple(columns if columns is not None else _columns(told)),
        tuple(tuple(each) for each in earlier or [()] * len(told.candidates)), told, used,
    )  # fmt: skip


def _columns(told: Distribution) -> list[StageColumn]:
    ran: list[str] = []
    found = []
    for stage in told.stages:
        if stage.name == "greedy":
            continue
        ran.append(stage.name)
        values = tuple(None if each.cut_by in ran else each.prob for each in told.candidates)
        found.append(StageColumn(stage.name, stage.kept, stage.removed_mass, "prob", values))
    return found


def answered(timeline: Timeline, others: Sequence[int], dropped: Sequence[int] = ()) -> WhatIfAnswered:
    """An answer for the whole path: the steps with these indices would have been another token."""
    steps = tuple(
        WhatIfStep(step.node, 9 if step.index in others else step.id, " other", step.index not in others)
        for step in timeline.steps
        if step.index not in dropped
    )
    missing = tuple(step.node for step in timeline.steps if step.index in dropped)
    return WhatIfAnswered(timeline.tip, steps, missing, 3.0)
