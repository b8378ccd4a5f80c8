"""The sampler explained stage by stage, and the results of other settings with the same draws."""

from __future__ import annotations

from typing import Literal

from engine.frozen import frozen
from engine.records.answer import Answer
from engine.records.steps import Distribution


@frozen
class StageColumn:
    """The candidates of one step after one stage of the sampler."""

    name: str
    kept: int
    """Tokens of the whole vocabulary still in after it."""
    removed_mass: float
    unit: Literal["logit", "prob"]
    """Of the values: logits after a stage that changes them, probabilities among what is left after a filter."""
    values: tuple[float | None, ...]
    """One for each candidate, in their order; None once it is cut."""


@frozen
class Explained(Answer):
    """The sampler's distribution after one node, stage by stage, from kept logits."""

    node: int
    logits: tuple[float, ...]
    """The model's own, one for each candidate of `next`, in their order."""
    columns: tuple[StageColumn, ...]
    """The stages that ran, in the order in which they ran."""
    earlier: tuple[tuple[int, ...], ...]
    """For each candidate, its earlier positions in the context, as far back as the penalties look."""
    next: Distribution
    """The distribution under the requested settings, with the same draw."""
    used: bool
    """Whether these are the settings with which the distribution was stepped."""


@frozen
class WhatIfStep:
    """The token that the same draw would have picked at one step of the path under other settings."""

    node: int
    """The step's own node."""
    picked: int
    text: str
    same: bool
    """Whether that is the token that was taken."""


@frozen
class WhatIfAnswered(Answer):
    """The steps of a path under other settings: each after the unchanged path before it."""

    tip: int
    steps: tuple[WhatIfStep, ...]
    """Those whose logits are kept, in the path's order."""
    dropped: tuple[int, ...]
    """Nodes of steps whose logits were dropped to hold the memory bound: they can be recalled."""
    ms: float


@frozen
class Recalled(Answer):
    """The logits after some nodes were recomputed and are kept."""

    nodes: tuple[int, ...]
    ms: float
