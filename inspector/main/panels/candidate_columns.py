"""The columns of the candidates, by the room there is."""

from __future__ import annotations

from engine.frozen import frozen
from inspector.main.panels.lookahead_lines import ENOUGH, LEAST, MOST

MARK, PERCENT, SAMPLER, RANK, ID, JOINT = 3, 8, 9, 7, 8, 9
"""Cells of the columns, their left gap included (the marks have none)."""
WORDS = 22
"""Cells that a token's text gets at most, and about half of that at least before a column is dropped."""

LEAST_BAR = 4
"""Cells that a bar keeps where the tokens are long."""


@frozen
class CandidateColumns:
    """Which columns fit, and how wide those are that give way."""

    token: int
    bar: int
    sampler: bool
    rank: bool
    id: bool
    joint: bool = False
    """The probability of a look ahead."""


def columns(width: int, sampler: bool, longest: int = 0) -> CandidateColumns:
    """The columns for a width: the id goes first, then the rank, then what the sampler made of it.

    Args:
        width: Cells available.
        sampler: Whether there is a sampler's column at all.
        longest: Cells of the longest token's text: it has room before the bar has.
    """
    extra = {"sampler": SAMPLER if sampler else 0, "rank": RANK, "id": ID}
    for dropped in ("", "id", "rank", "sampler"):
        extra.pop(dropped, None)
        free = width - MARK - PERCENT - sum(extra.values())
        if free >= 20:
            break
    token = max(6, min(WORDS, max(free // 2, min(longest, free - LEAST_BAR - 1))))
    return CandidateColumns(
        token, max(0, free - token - 1), sampler and "sampler" in extra, "rank" in extra, "id" in extra
    )


def columns_behind(width: int, sampler: bool) -> CandidateColumns:
    """The columns where look-ahead is drawn behind the tokens: its text has room first, then the present numbers.

    Args:
        width: Cells available.
        sampler: Whether there is a sampler's column at all.
    """
    free = width - MARK - PERCENT
    fits: dict[str, bool] = {}
    for name, cells, least in (
        ("joint", JOINT, LEAST), ("sampler", SAMPLER, ENOUGH), ("rank", RANK, MOST), ("id", ID, MOST),
    ):  # fmt: skip
        fits[name] = free - cells >= least and (name != "sampler" or sampler)
        free -= cells if fits[name] else 0
    token = min(MOST, free - 1)
    return CandidateColumns(token, max(0, free - token - 1), **fits)
