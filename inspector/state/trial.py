"""How the sampler chose, as the engine explains it, and settings that are tried on the same draws."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine import protocol
from engine.frozen import frozen
from engine.protocol import Distribution, PromptToken, Step, WhatIfStep
from engine.settings import Settings


@frozen
class StageExplanation:
    """The engine's explanation of the sampler's work on one distribution."""

    of: Distribution
    """The distribution shown that the request was for."""
    settings: Settings | None
    """The sampler settings that it explains; None where they aren't known."""
    explained: protocol.Explained | None
    """None where the engine could not explain it."""
    failure: protocol.Failure | None = None
    """Why it could not."""


@dataclass(slots=True)
class Trial:
    """Settings that are tried, and what the same draws make of them."""

    settings: Settings
    last_explanation: StageExplanation | None = None
    """The one that came last."""
    answers: dict[int, WhatIfStep] = field(default_factory=dict)
    """By the step's node."""
    dropped: tuple[int, ...] = ()
    """Nodes of steps that can't be answered: their logits were dropped."""
    answered: int | None = None
    """Tip of the path that was answered for."""


def other(trial: Trial | None, item: PromptToken | Step) -> WhatIfStep | None:
    """What the settings that are tried would have picked in a step's place, where that is another token.

    A token that was chosen by hand doesn't depend on the settings.
    """
    if trial is None or not isinstance(item, Step) or item.origin not in ("sampled", "greedy"):
        return None
    answer = trial.answers.get(item.node)
    return answer if answer is not None and not answer.same else None
