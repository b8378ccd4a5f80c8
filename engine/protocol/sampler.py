"""Commands and records of the sampler: how a token was chosen, and what other settings would have taken."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Record
from engine.protocol.numbers import Count, Finite
from engine.protocol.steps import Distribution
from engine.settings import Settings


class Explain(Command, frozen=True):
    """Explain the sampler stage by stage after a node, from kept logits; answered by `Explained`.

    An aside: it is answered between the steps of a run.
    """

    aside: ClassVar[bool] = True
    node: Count
    """The node before the token in question: its distribution is explained."""
    settings: Settings | None = None
    """Other settings to try with the same draw; None for those that the session was at the node with last."""
    reroll: Count = 0
    """How often that draw was repeated, as the `Distribution` that the token was taken from has it: other tokens after
    the same node may come of other draws."""
    also: tuple[Count, ...] = ()
    """Tokens that are listed beside the most probable ones, such as the one that was taken."""


class WhatIf(Command, frozen=True):
    """Which steps up to a node would have picked other tokens under other settings; answered by `WhatIfAnswered`.

    An aside: it is answered between the steps of a run.
    """

    aside: ClassVar[bool] = True
    settings: Settings
    tip: Count


class StageColumn(Struct, frozen=True):
    """The candidates of one step after one stage of the sampler."""

    name: str
    kept: Count
    """Tokens of the whole vocabulary still in after it."""
    removed_mass: Finite
    unit: Literal["logit", "prob"]
    """Of the values: logits after a stage that changes them, probabilities among what is left after a filter."""
    values: tuple[float | None, ...]
    """One for each candidate, in their order; None once it is cut."""


class Explained(Record, frozen=True):
    """The sampler's distribution after one node, stage by stage, from kept logits."""

    node: Count
    logits: tuple[float, ...]
    """The model's own, one for each candidate of `next`, in their order."""
    columns: tuple[StageColumn, ...]
    """The stages that ran, in the order in which they ran."""
    earlier: tuple[tuple[Count, ...], ...]
    """For each candidate, its earlier positions in the context, as far back as the penalties look."""
    next: Distribution
    """The distribution under the requested settings, with the same draw."""
    used: bool
    """True if these are the settings with which the distribution was stepped."""
    model: str = ""
    """The title of the second model, where its distribution is explained; empty for the session's model."""


class WhatIfStep(Struct, frozen=True):
    """The token that the same draw would have picked at one step of the path under other settings."""

    node: Count
    """The step's own node."""
    picked: Count
    text: str
    same: bool
    """True if that is the token that was taken."""


class WhatIfAnswered(Record, frozen=True):
    """The steps of a path under other settings: each after the unchanged path before it."""

    lasting: ClassVar[bool] = False
    tip: Count
    steps: tuple[WhatIfStep, ...]
    """Those whose logits are kept, in the path's order."""
    dropped: tuple[Count, ...]
    """Nodes of steps whose logits were dropped to hold the memory bound: they can be recalled."""
    ms: Finite
