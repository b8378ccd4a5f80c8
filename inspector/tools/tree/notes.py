"""Notes on a branch in a few signs or words: its marks, and what became of its beam."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import Marked
from inspector.display import truncate, visible
from inspector.state.beams import BeamNode
from inspector.state.session_tree import NOTE, STAR

_NAME = 24
"""Cells of a name further down in a branch."""


def beam_note(beam: BeamNode | None) -> tuple[str, bool]:
    """What became of a beam, and whether it fell out; nothing where it went on.

    Args:
        beam: The last token of a branch, where a beam reached it.
    """
    if beam is None:
        return "", False
    if beam.rank is not None:
        return f"rank {beam.rank}" + ", greedy" * beam.greedy, False
    if beam.fell is not None:
        return f"fell out at step {beam.fell}", True
    words = {"live": "live", "finished": "finished", "left": "left when the search ended", "greedy": "greedy"}
    return words.get(beam.state, ""), False


def signs_of(mark: Marked) -> list[str]:
    """The signs of a bookmark and of a note."""
    return [sign for sign, present in ((STAR, mark.bookmarked), (NOTE, mark.note or mark.caption)) if present]


def inner_note(marks: Sequence[Marked]) -> str:
    """Marks further down in a branch: the signs and the name of one, how many there are of several."""
    if len(marks) > 1:
        return f"{len(marks)} marks in it"
    return " ".join(
        part
        for mark in marks
        for part in (*signs_of(mark), truncate(visible(mark.name), _NAME), "in it")
        if part
    )
