"""Which candidates there are at a token, and which of them are in view."""

from __future__ import annotations

from collections.abc import Sequence

from engine.records import Candidate, Step
from inspector.state.timeline import Timeline


def fitting_rows(top: int, pinned: Sequence[int], cells: Sequence[int], room: int) -> set[int]:
    """The candidates that are shown: those that always are, then as many as fit from `top` on.

    Args:
        top: Index of a candidate.
        pinned: Indices, the most important first; the first of them is shown whether it fits or not.
        cells: Rows that each candidate takes.
        room: Rows.
    """
    shown = {pinned[0]}
    left = room - cells[pinned[0]]
    for index in (*pinned[1:], *range(top, len(cells))):
        if index not in shown:
            if cells[index] > left:
                break
            shown.add(index)
            left -= cells[index]
    return shown


def rows_of(timeline: Timeline) -> tuple[Candidate, ...]:
    """The candidates of the selected slot, and its own token where that is not among them."""
    candidates, item = timeline.candidates, timeline.selected
    if not candidates or item is None or any(candidate.id == item.id for candidate in candidates):
        return candidates
    if item.prob is None or item.logprob is None or item.rank is None:
        return candidates
    sampler = item.sampler_prob if isinstance(item, Step) else item.prob
    own = Candidate(
        item.id, item.text, item.raw, item.special, item.logprob, item.prob, item.rank, sampler, None
    )
    return (*candidates, own)
