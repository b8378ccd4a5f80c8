"""What the colour and the number of a cell can be: probability, rank of the final token, entropy."""

from __future__ import annotations

from collections.abc import Callable

from engine.frozen import frozen
from engine.protocol import LensCell

CERTAIN = 0.995
"""From here on a whole percent would be 100."""


def share(value: float) -> str:
    """A probability in at most four cells: `97 %`, and never rounded to certainty or to nothing."""
    if value >= CERTAIN:
        return "100%" if value >= 1 else ">99%"
    return f"{value * 100:.0f} %" if value >= 1 - CERTAIN else "<1 %"


def place(rank: int) -> str:
    """A rank in at most four cells: `#12`, `#48k`."""
    return f"#{rank}" if rank < 1_000 else f"#{rank // 1_000}k" if rank < 100_000 else f"{rank // 1_000}k"


def short_bits(value: float) -> str:
    """Bits in at most four cells: `3.1`."""
    return f"{max(0.0, value):.1f}"


@frozen
class CellMeasure:
    """One number of a cell; the deeper its colour, the nearer the layer is to an answer."""

    name: str
    says: str
    """What the number is, for the legend."""
    number: Callable[[LensCell], str]
    """In at most four cells."""
    step: Callable[[LensCell], int]
    """Of the colour, 0 for none to 5."""
    edges: tuple[str, ...]
    """Where each step begins."""


_SHARES, _RANKS, _BITS = (0.05, 0.15, 0.35, 0.65, 0.9), (1_000, 100, 10, 3, 1), (8, 6, 4, 2, 1)
MEASURES = (
    CellMeasure(
        "probability", "its probability, from (%)", lambda cell: share(cell.top[0].prob) if cell.top else "",
        lambda cell: sum(cell.top[0].prob >= edge for edge in _SHARES) if cell.top else 0,
        tuple(f"{edge * 100:.0f}" for edge in _SHARES),
    ),
    CellMeasure(
        "rank of the final token", "the rank of the column's final token, up to", lambda cell: place(cell.final_rank),
        lambda cell: sum(cell.final_rank <= edge for edge in _RANKS), tuple(map(str, _RANKS)),
    ),
    CellMeasure(
        "entropy", "the entropy in bits, below", lambda cell: short_bits(cell.entropy_bits),
        lambda cell: sum(cell.entropy_bits < edge for edge in _BITS), tuple(map(str, _BITS)),
    ),
)  # fmt: skip
"""In the order in which a key goes through them."""
