"""What a person chose in the screen of positions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PositionChoices:
    """What a person chose, kept from opening to opening."""

    row: int = 0
    offsets: list[int] = field(default_factory=lambda: [-1, 1, 100, 100])
    """Of the rows between the first and the last: three of the token, one of the path."""
