"""Which candidates there are at a token, and which of them are in view."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import Candidate, Step
from inspector.state.timeline import Phase, Timeline
from inspector.widgets.canvas import why_empty


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
    """The candidates of the selected slot, and its own token where that is not among them.

    Under a grammar those that it allows come first: as a rule it cuts what the model finds most probable.
    """
    candidates, item = timeline.candidates, timeline.selected
    if timeline.distribution is not None and timeline.distribution.grammar is not None:
        candidates = tuple(sorted(candidates, key=lambda each: each.cut_by == "grammar"))
    if not candidates or item is None or any(candidate.id == item.id for candidate in candidates):
        return candidates
    if item.prob is None or item.logprob is None or item.rank is None:
        return candidates
    sampler = item.sampler_prob if isinstance(item, Step) else item.prob
    own = Candidate(
        item.id, item.text, item.raw, item.special, item.logprob, item.prob, item.rank, sampler, None
    )
    return (*candidates, own)


def why_no_candidates(timeline: Timeline | None) -> tuple[str, str]:
    """Why there are none: the reason and the advice."""
    if timeline is None or timeline.phase in (Phase.LOADING, Phase.FAILED, Phase.EMPTY) or not timeline.items:
        return why_empty(timeline, "The candidates for each token appear here.")
    if timeline.following:
        return why_empty(timeline, "The candidates for the first token appear here.")
    if timeline.slot == 0:
        return (
            "This is the first token: the model had nothing to expect it from.",
            "Press → for the next one.",
        )
    if timeline.prompts.opened is not None and not timeline.prompts.opened.echo:
        return (
            "Prompt logprobs are off, so what the model thought of the prompt is not known.",
            "They are on for prompts of up to 2,048 tokens, unless --no-prompt-logprobs turns them off.",
        )
    if timeline.slot < timeline.held:
        return (
            "What the model thought of this token of the prompt is not read yet.",
            "It is read once nothing else is to be done.",
        )
    return (
        "This token of the prompt has not gone through the model yet.",
        "Its candidates come with its chunk.",
    )
