"""The draw of a step, as a mark on the cumulative distribution that the sampler drew from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.protocol import Candidate, Distribution
from inspector.display import token_label
from inspector.widgets.ruler import places

_LEAST = 10
"""Cells of a scale that can still be read."""
_DRAWN, _TAKEN, _OTHER, _EDGE = "●", "━", "─", "┆"


def draw_line(
    distribution: Distribution, by_hand: bool, width: int, inks: Mapping[str, Style], concealed: bool = False
) -> list[Segment]:
    """`draw 0.417 ▕──●──┆──▏ fell on ␣toys`, as much of it as the width allows.

    Args:
        distribution: What was, or will be, drawn from.
        by_hand: Whether another token than the picked one was taken.
        width: Cells available.
        inks: Named styles: `muted`, `accent`, `strong`, `faint`.
        concealed: Whether it is to be predicted where the draw fell.
    """
    picked = next((c for c in distribution.candidates if c.id == distribution.picked), None)
    label = token_label(picked.text, picked.raw) if picked else f"id {distribution.picked}"
    label = "?" if concealed else label
    if distribution.draw is None:
        words = f"greedy: no draw; the most probable is {label}" if by_hand else "greedy: no draw"
        return [Segment(words, inks["muted"])]
    row = [Segment("draw ", inks["muted"]), Segment(f"{places(distribution)[0]} ", inks["accent"])]
    again = f" (re-roll {distribution.reroll})" if distribution.reroll else ""
    end = f"{again} fell on "
    room = width - cell_len("draw 0.000 ") - 2
    if room - cell_len(end + label) >= _LEAST:
        scale = _scale(distribution, room - cell_len(end + label), inks, concealed)
        return [*row, *scale, Segment(end, inks["muted"]), Segment(label, inks["strong"])]
    return [*row, *_scale(distribution, max(1, room), inks, concealed)]


def _scale(
    distribution: Distribution, cells: int, inks: Mapping[str, Style], concealed: bool
) -> list[Segment]:
    """The distribution laid end to end, best first: where each share ends, and where the draw fell."""
    chars = [_OTHER] * cells
    for edge in _edges(distribution.candidates):
        if (at := int(edge * cells)) < cells:
            chars[at] = _EDGE
    low, high = distribution.draw_from or 0.0, distribution.draw_to or 0.0
    taken = range(int(low * cells), max(int(low * cells) + 1, int(high * cells)))
    drawn = min(cells - 1, int((distribution.draw or 0.0) * cells))
    if concealed:
        taken, drawn = range(0), -1
    return [
        Segment("▕", inks["faint"]),
        *(
            Segment(_DRAWN, inks["accent"]) if at == drawn
            else Segment(_TAKEN, inks["data"]) if at in taken
            else Segment(char, inks["faint"])
            for at, char in enumerate(chars)
        ),
        Segment("▏", inks["faint"]),
    ]  # fmt: skip


def _edges(candidates: Sequence[Candidate]) -> list[float]:
    """Where the shares end, laid end to end by the sampler's probability."""
    shares = sorted((c.sampler_prob for c in candidates if c.sampler_prob > 0), reverse=True)
    return list(accumulate(shares))
