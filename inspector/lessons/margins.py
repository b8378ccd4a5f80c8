"""How far a token is from not having been picked: another machine rounds otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import Distribution

NEAREST_DRAW = 0.005
"""A draw that is nearer to a border than this may fall on another token where numbers are rounded otherwise."""
NEAREST_TOP = 0.02
"""The same of the probabilities of the two most probable tokens."""


def margin(distribution: Distribution) -> str:
    """How far the picked token is from another one, in words."""
    if (nearest := _nearest(distribution)) is not None:
        return f"draw {nearest:.3f} from a border"
    first, second = (*[each.prob for each in distribution.candidates], 0.0)[:2]
    return f"top two {first - second:.3f} apart"


def _nearest(distribution: Distribution) -> float | None:
    """From the draw to the nearest border of the picked token's share; None for greedy."""
    draw, low, high = distribution.draw, distribution.draw_from, distribution.draw_to
    if draw is None or low is None or high is None:
        return None
    return min(draw - low if low > 0 else 1.0, high - draw if high < 1 else 1.0)


def near_draw(distribution: Distribution) -> str:
    """Why another machine might pick another token; empty where it is safe."""
    nearest = _nearest(distribution)
    if nearest is None:
        greedy = distribution.picked == distribution.candidates[0].id  # else penalties decided, not these
        return near_top([each.prob for each in distribution.candidates]) if greedy else ""
    if nearest >= NEAREST_DRAW:
        return ""
    return f"the draw {distribution.draw:.3f} is {nearest:.4f} from a border; {NEAREST_DRAW} is the least"


def near_top(probs: Sequence[float]) -> str:
    """Why the most probable token isn't safe; empty where it is."""
    first, second = (*sorted(probs, reverse=True)[:2], 0.0, 0.0)[:2]
    if first - second >= NEAREST_TOP:
        return ""
    return f"the two most probable tokens are {first - second:.4f} apart; {NEAREST_TOP} is the least"
