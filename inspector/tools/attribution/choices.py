"""What a person chose in the contributions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class AttributionChoices:
    """What a person chose, kept from opening to opening."""

    node: int | None = None
    """The token at which tokens were chosen: elsewhere they are the usual ones."""
    token: int | None = None
    """The token whose logit it is; None for the one that was taken."""
    against: int | None = None
    """The one that it is compared with; None for the best other candidate."""
    alone: bool = False
    """Whether one token is looked at by itself."""
    by_size: bool = False
    unfolded: set[int] = field(default_factory=set)
    """Parts whose heads are shown, by their place in the record."""
    row: tuple[int, int | None] | None = None
    """The row that is looked at; None for the largest."""

    def at(self, node: int) -> AttributionChoices:
        """The same, its tokens forgotten where they were chosen at another node."""
        if node != self.node:
            self.node, self.token, self.against = node, None, None
        return self
