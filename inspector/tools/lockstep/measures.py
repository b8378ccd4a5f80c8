"""What the text of the lockstep is coloured by: divergence, change of logprob, change of rank. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable

from engine.frozen import frozen
from engine.protocol import LockstepSpan


@frozen
class Colouring:
    """One number of a span."""

    name: str
    unit: str
    value: Callable[[LockstepSpan], float | None]
    steps: tuple[float, ...]
    """Sizes from which on a token has the next colour."""
    form: str
    """How it is written."""

    def step(self, span: LockstepSpan | None) -> int:
        """The heat of a span, 0 to 5."""
        value = None if span is None else self.value(span)
        return 0 if value is None else sum(abs(value) >= edge for edge in self.steps)

    def written(self, span: LockstepSpan | None) -> str:
        """The number as it stands under a token; empty where there is none, or it is too small to be written."""
        value = None if span is None else self.value(span)
        if value is None or math.isnan(value) or abs(value) < self.steps[0]:
            return ""
        return format(value, self.form).replace("-", "−") if math.isfinite(value) else "∞"

    def size(self, span: LockstepSpan | None) -> float:
        """How large it is, for finding the largest; -1 where there is none."""
        value = None if span is None else self.value(span)
        return -1.0 if value is None or math.isnan(value) else abs(value)


MEASURES = (
    Colouring("KL(P||Q)", "bits", lambda span: span.kl_bits, (0.01, 0.05, 0.2, 0.5, 1.5), ".2f"),
    Colouring("change of logprob", "nats, Q less P",
            lambda span: span.logprob_change, (0.05, 0.2, 0.5, 1.0, 2.0), "+.1f"),
    Colouring("change of rank", "Q less P", lambda span: span.rank_change, (1, 2, 5, 20, 100), "+.0f"),
)  # fmt: skip
BY_BYTES = 1
"""The only one that models with different tokens have."""
