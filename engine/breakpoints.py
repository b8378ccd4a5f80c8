"""Where a run stops to let a person look: conditions on the token to come, on the text so far and on the count."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Breakpoints:
    """Conditions, each None where it is off; the first that holds stops the run."""

    entropy_above: float | None = None
    """Bits of the model's own distribution of the token to come."""
    prob_below: float | None = None
    """The model's probability of the token that the sampler picked to come."""
    rank_above: int | None = None
    """Of the token that the sampler picked to come."""
    margin_below: float | None = None
    """Probability of the most probable token less that of the second: a fork point."""
    text: str | None = None
    """The completion came to contain it."""
    regex: str | None = None
    """The completion came to match it somewhere."""
    tokens: int | None = None
    """So many were taken in this run."""
    eos: bool = False
    """The sampler picked an end-of-sequence token to come: stop before it is taken."""
