"""The settings of a benchmark. Standard library alone."""

from __future__ import annotations

from typing import Literal, get_args

from engine.errors import SettingsError
from engine.frozen import frozen

SweepName = Literal["ttft", "tpot", "batch", "inspection", "blas"]
SWEEPS: tuple[SweepName, ...] = get_args(SweepName)
USUAL: tuple[SweepName, ...] = ("ttft", "tpot", "batch", "inspection")
"""Without `blas`: it loads the model again, and there is but one way to multiply on most machines with a GPU."""
LARGEST_BATCH = 16


@frozen
class SweepSettings:
    """Which sweeps, how far and how often."""

    sweeps: tuple[str, ...] = USUAL
    rounds: int = 5
    """Counted measurements of every point; one more before them is the warm-up."""
    steps: int = 16
    """Tokens that are decoded for a figure."""
    longest: int = 2048
    """Tokens of the longest prompt or context, unless the context window ends before."""
    largest_batch: int = LARGEST_BATCH


def check_sweeps(settings: SweepSettings) -> SweepSettings:
    """Refuse what can't be measured.

    Raises:
        SettingsError: A setting is out of its range.
    """
    for name in settings.sweeps:
        if name not in SWEEPS:
            raise SettingsError("sweeps", f"there is no sweep {name!r}.", f"Choose from {', '.join(SWEEPS)}.")
    if not settings.sweeps:
        raise SettingsError("sweeps", "none was asked for.", f"Choose from {', '.join(SWEEPS)}.")
    bounds = {
        "rounds": (1, 1000),
        "steps": (1, 10_000),
        "longest": (32, 10**7),
        "largest_batch": (1, LARGEST_BATCH),
    }
    for name, (least, most) in bounds.items():
        if not least <= (value := getattr(settings, name)) <= most:
            raise SettingsError(name, f"must be from {least} to {most:,}, not {value:,}.", "Change it.")
    return settings
