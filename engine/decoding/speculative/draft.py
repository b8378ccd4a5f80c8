"""What a draft is: it proposes tokens after a path. One file for each making."""

from __future__ import annotations

from typing import Protocol

from engine.decoding.speculative.draft_paths import DraftPaths
from engine.decoding.speculative.rules import Probs
from engine.frozen import frozen
from engine.model.forward import Stopped
from engine.settings import Settings


@frozen
class Proposed:
    """One drafted token."""

    id: int
    node: int
    """Its node in the `DraftPaths`."""
    probs: Probs | None
    """The distribution that it was drawn from; None where the draft has none."""


@frozen
class Proposal:
    """Tokens to verify."""

    tokens: tuple[Proposed, ...]
    matched: int = 0
    """Tokens at the end of the path that a lookup knew from before."""


class Drafter(Protocol):
    """Proposes what may follow."""

    @property
    def weight_bytes(self) -> int:
        """Of its model; 0 without one."""

    @property
    def note(self) -> str:
        """What to know of it, a sentence; empty for nothing."""

    def propose(
        self, paths: DraftPaths, node: int, count: int, settings: Settings, stopped: Stopped
    ) -> Proposal:
        """Propose tokens after a node.

        Args:
            paths: Get a node for each token.
            node: The last node of the path.
            count: Tokens to propose at most, 1 or more.
            settings: The session's sampler.
            stopped: Polled before each forward.

        Raises:
            Cancelled: `stopped` returned True.
        """
