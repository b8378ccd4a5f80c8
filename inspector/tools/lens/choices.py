"""What a person chose in the logit lens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LensChoices:
    """What a person chose, kept from opening to opening."""

    measure: int = 0
    layer: int | None = None
    """The cell that is looked at; None for the last layer's."""
    followed: int | None = None
    """The token that is followed; None for the one that was taken next."""
    opened_at: int | None = None
    """The token at which it was chosen: elsewhere it starts with the one that was taken."""
