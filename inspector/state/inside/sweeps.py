"""Sweeps of one token in parts: the layers and their parts first, then the heads of one layer after another. Pure."""

from __future__ import annotations

from dataclasses import replace

from engine.protocol import Check, HeadsSwept, SweptUnit

_LAST = {"head": 0, "layer": 2}
"""The order of a layer's units: heads, parts, the layer."""


def heads_of(swept: HeadsSwept) -> int | None:
    """The layer whose heads a sweep has and nothing else; None for one with parts and layers."""
    layers = {each.intervention.layer for each in swept.units}
    only_heads = all(each.intervention.kind == "head" for each in swept.units)
    return next(iter(layers)) if only_heads and len(layers) == 1 else None


def joined(whole: HeadsSwept, more: HeadsSwept) -> HeadsSwept:
    """A sweep with the units of another one of the same node, and the worse of each check. Of two that follow other
    logits the later one that has parts.

    Args:
        whole: Has what both have in common.
        more: Its units are added, or take the place of the same ones.
    """
    if (whole.token, whole.other) != (more.token, more.other):
        return more if heads_of(more) is None else whole
    units = {each.intervention: each for each in (*whole.units, *more.units)}
    checks = {check.name: check for check in whole.facts.checks}
    for check in more.facts.checks:
        worse = checks.get(check.name)
        checks[check.name] = check if worse is None else max(worse, check, key=_excess)
    facts = replace(whole.facts, checks=tuple(checks.values()), ms=whole.facts.ms + more.facts.ms)
    run = whole.tokens_run + more.tokens_run
    return replace(whole, units=tuple(sorted(units.values(), key=_place)), facts=facts, tokens_run=run)


def _excess(check: Check) -> float:
    return check.error / check.bound if check.bound else check.error


def _place(unit: SweptUnit) -> tuple[int, int, int]:
    each = unit.intervention
    return each.layer, _LAST.get(each.kind, 1), each.head or 0
