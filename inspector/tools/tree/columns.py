"""The numbers of a branch as text, and which of them have room."""

from __future__ import annotations

from collections.abc import Callable

from engine.frozen import frozen
from inspector import scales
from inspector.state.branches import Branch, Branches, Sums

NONE = "–"
"""Shown where a number isn't known."""


@frozen
class BranchColumn:
    """One column."""

    head: str
    cells: int
    text: Callable[[Branches, Branch], str]


def logprob(value: float | None) -> str:
    """A logprob, or a sum or mean of some: two decimals, fewer where it is large."""
    if value is None:
        return NONE
    return (
        f"{value:.2f}" if value > -999.995 else f"{value:,.0f}".replace(",", "\u2009").replace("-inf", "-∞")
    )


def perplexity(value: float | None) -> str:
    """A perplexity: two decimals, none where it is large."""
    if value is None:
        return NONE
    if value >= 99_999.5:
        return f"{value:.0e}".replace("e+", "e").replace("inf", "∞")
    return f"{value:.2f}" if value < 999.995 else scales.count(round(value))


def _completion(branches: Branches, branch: Branch) -> str:
    total = branches.completion(branch)
    return logprob(total.logprob if total.known else None)


COLUMNS = (
    BranchColumn("made", 12, Branches.made),
    BranchColumn("tokens", 8, lambda _, branch: scales.count(branch.sums.tokens)),
    BranchColumn("logprob", 9, lambda _, branch: logprob(branch.sums.logprob if branch.sums.known else None)),
    BranchColumn("mean", 8, lambda _, branch: logprob(branch.sums.mean)),
    BranchColumn("perplexity", 12, lambda _, branch: perplexity(branch.sums.perplexity)),
    BranchColumn("from start", 12, _completion),
)
"""Of the branch's own tokens, but for the last: that is the logprob of the completion up to the branch's end."""
_DROPPED = ("logprob", "perplexity", "mean", "made", "from start", "tokens")
"""The order in which columns give way to a narrow panel."""


def fitting(width: int, least: int) -> tuple[BranchColumn, ...]:
    """The columns that leave `least` cells of a width for tree and text."""
    kept = list(COLUMNS)
    for head in _DROPPED:
        if width - sum(column.cells for column in kept) >= least:
            break
        kept = [column for column in kept if column.head != head]
    return tuple(kept)


def sums_phrase(name: str, sums: Sums) -> str:
    """Sums in one phrase: `this branch 12 tokens, logprob -8.21, mean -0.68, perplexity 1.98`."""
    tokens = f"{scales.count(sums.tokens)} token{'s' * (sums.tokens != 1)}"
    if not sums.known:
        return f"{name} {tokens}"
    some = f" of the {scales.count(sums.known)} known" if sums.known < sums.tokens else ""
    return (
        f"{name} {tokens}, logprob{some} {logprob(sums.logprob)}, mean {logprob(sums.mean)}, "
        f"perplexity {perplexity(sums.perplexity)}"
    )
