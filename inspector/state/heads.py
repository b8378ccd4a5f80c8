"""The roles of heads in words, for screen, command line and exports: which heads have one, or that none has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.protocol import HeadScore, HeadsScored
from inspector.scales import count, percent

NAMED = 0.4
"""The mean share from which on a head is named by what it does, as in ARENA's exercises."""
LISTED = 4
"""Heads of a name that are listed."""


class HeadRole(NamedTuple):
    """Something that heads are known to do."""

    name: str
    score: Callable[[HeadScore], float | None]


ROLES = (
    HeadRole("previous-token", lambda each: each.previous),
    HeadRole("induction", lambda each: each.induction),
    HeadRole("duplicate-token", lambda each: each.duplicate),
)


def names_of(score: HeadScore) -> tuple[str, ...]:
    """The roles of a head whose scores are above the threshold: `previous-token`."""
    return tuple(role.name for role in ROLES if (role.score(score) or 0.0) >= NAMED)


def measured_on(scored: HeadsScored) -> str:
    """The texts that heads were scored on."""
    if (texts := scored.texts) is None:
        return f"{count(scored.tokens)} tokens of this path"
    return (
        f"{count(texts.count)} text{'s' * (texts.count != 1)} of {count(texts.length)} random tokens, each "
        f"repeated once (seed {texts.seed})"
    )


def best_of(role: HeadRole, heads: Sequence[HeadScore]) -> list[tuple[float, HeadScore]]:
    """The heads that have a role's score, the highest first."""
    found = [(value, each) for each in heads if (value := role.score(each)) is not None]
    return sorted(found, key=lambda pair: -pair[0])


def found_words(scored: HeadsScored) -> tuple[str, ...]:
    """A sentence for each role: the heads above the threshold, or that there is none."""
    return tuple(_role_words(role, scored) for role in ROLES)


def _role_words(role: HeadRole, scored: HeadsScored) -> str:
    best = best_of(role, scored.heads)
    if not best:
        why = "nothing to score: no token occurs again" if scored.heads else "no head whose weights are known"
        return f"{role.name.capitalize()} heads: {why}."
    above = [pair for pair in best if pair[0] >= NAMED]
    if not above:
        where = "in this model" if scored.texts is not None else "on this text"
        return f"No {role.name} head {where}: at most {_head(*best[0])}, named from {percent(NAMED)} on."
    more = f" and {len(above) - LISTED} more" if len(above) > LISTED else ""
    listed = ", ".join(_head(*pair) for pair in above[:LISTED])
    if scored.texts is None:  # what it does on one text makes it no head of a kind
        return f"{role.name.capitalize()} attention on this text: {listed}{more}."
    return f"{role.name.capitalize()} head{'s' * (len(above) > 1)}: {listed}{more}."


def _head(value: float, each: HeadScore) -> str:
    return f"L{each.layer + 1} h{each.head + 1} ({percent(value)})"
