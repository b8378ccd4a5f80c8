"""The base of commands that look inside a forward, and what their records have in common."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command
from engine.protocol.numbers import Finite


class Inside(Command, frozen=True):
    """Base of the commands that look inside; the session doesn't move and nothing is added to its tree."""

    over_ranks: ClassVar[bool] = False


class Look(Inside, frozen=True, kw_only=True):
    """Base of those that only look: at the session's model, or at the second one beside it (`OpenLockstep`)."""

    second: bool = False
    """True if the engine looks into the second model, along the session's path, in place of the session's own."""


Scope = Literal["token", "context"]
"""`token`: this token's forward alone is changed, and the KV before it is the model's own. `context`: the path goes
through the changed model, all of it or from a position on."""
CheckName = Literal[
    "forward",
    "session",
    "attention",
    "rows",
    "lens",
    "parts",
    "scores",
    "weights",
    "experts",
    "keys",
    "single",
    "same",
    "restored",
    "derivative",
    "swaps",
    "complete",
    "zero",
]


class Check(Struct, frozen=True):
    """One comparison that a capture made with what the model itself computes, and how far off it was.

    - `forward`: the logits of the tapped forward and of a plain one; no tap may change them.
    - `session`: the logits of the plain one, and those that the session computed for the same token; relative.
    - `attention`: the values under the recomputed weights, and what the fused attention returned; relative.
    - `rows`: the sum of each row of weights (with its sink), and 1.
    - `lens`: the lens of the last layer, and the logits; relative.
    - `parts`: the sum of all contributions, and the logits; relative.
    - `scores`: the sums of all writers' shares, and a head's scores; relative.
    - `weights`: the weights that a softmax makes of these sums, and the head's own.
    - `experts`: the experts' outputs under the weights that are shown, and what the mixture returned; relative.
    - `keys`: the keys that an attention saw with a position changed, and without; a count.
    - `single`: one of several interventions in a batch, and the same one alone; relative.
    - `same`: the effect of activations before the first difference of two paths, and 0.
    - `restored`: the effect of the last layer's activation at the last position, and all of it.
    - `derivative`: the gradient along two directions, and finite differences; as a share of its length.
    - `swaps`: how far another token moves the logit in a place whose gradient is next to 0; relative.
    - `complete`: the sum of integrated gradients, and what lies between baseline and text; relative.
    - `zero`: the logits with a direction added at strength 0, and those of the model itself.
    """

    name: CheckName
    error: float
    """The largest difference; infinite where it could not be computed."""
    bound: Finite
    where: str = ""
    """Of the largest difference: `layer 3`; or why there is none."""

    @property
    def passed(self) -> bool:
        """True if what was checked can be shown."""
        return self.error <= self.bound


class CaptureFacts(Struct, frozen=True):
    """The facts that come with each view of a capture."""

    checks: tuple[Check, ...]
    ms: Finite
    """From the command to the record."""
    step_ms: Finite
    """Of one plain forward of the same token, for comparison."""
    family: str
    """The model's architecture, which a failed check names."""
    note: str = ""
    """Why a part of the path was recomputed, or left out; empty where none was."""
    model: str = ""
    """The title of the second model, where the engine looked into that; empty for the session's model."""

    @property
    def failed(self) -> Check | None:
        """The first check that failed: its view is not shown."""
        for check in self.checks:
            if not check.passed:
                return check
        return None
