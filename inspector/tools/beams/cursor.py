"""Which beam the cursor is on once the beams are others: a step later, a step earlier, or after the ranking."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.state.beams import BeamHistory
from inspector.tools.beams.entries import BeamEntry


def follow(listed: Sequence[BeamEntry], node: int | None, beams: BeamHistory) -> tuple[int, int | None]:
    """Keep the cursor on its beam, or on what grew from it, or on what it grew from; else on the best one.

    Args:
        listed: The beams that are shown.
        node: Last token of the beam that the cursor was on, None for the best one.
        beams: Every token that a beam reached.

    Returns:
        The cursor's place in the list, and the node to follow from there; None for the best one.
    """
    for place, entry in enumerate(listed):
        if entry.node == node:
            return place, node
    for place, entry in enumerate(listed):
        if entry.kind != "fell" and any(beam.node == node for beam in entry.path):
            return place, entry.node
    before = {beam.node for beam in beams.path(node)} if node is not None else set()
    for place, entry in enumerate(listed):
        if entry.node in before:
            return place, node
    return 0, None
