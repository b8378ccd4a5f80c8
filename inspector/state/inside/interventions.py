"""Interventions in words."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import Intervention


def interventions_words(interventions: Sequence[Intervention]) -> str:
    """Units as a person reads them: `L6 h1 and L3 MLP off`, `L6 h1 x0.5`."""
    off = [each.label for each in interventions if not each.scale]
    scaled = [each.label for each in interventions if each.scale]
    return ", ".join(([" and ".join(off) + " off"] if off else []) + scaled)
