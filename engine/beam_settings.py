"""The settings of a beam search, and their bounds."""

from __future__ import annotations

import math

from engine.errors import SettingsError
from engine.frozen import frozen

WIDEST = 10
STEEPEST = 10.0


@frozen
class BeamSettings:
    """The settings of a beam search; the sampler's `min_tokens` applies, too."""

    width: int = 4
    """Beams that are followed at once."""
    length_penalty: float = 1.0
    """Score = logprob / length ** penalty: above 0 favours long hypotheses, below 0 short ones, 0 is the plain sum."""
    early_stopping: bool = False
    """True ends at `width` finished hypotheses; False goes on while a live beam could still be better."""
    max_tokens: int = 100
    """Tokens of a hypothesis at most."""


def check_beams(settings: BeamSettings) -> BeamSettings:
    """Check every setting.

    Returns:
        The same settings.

    Raises:
        SettingsError: One is out of its range.
    """
    if not 1 <= settings.width <= WIDEST:
        raise SettingsError("width", f"must be a whole number from 1 to {WIDEST}, not {settings.width}.")
    penalty = settings.length_penalty
    if not (math.isfinite(penalty) and abs(penalty) <= STEEPEST):
        raise SettingsError(
            "length_penalty", f"must be a number from -{STEEPEST:g} to {STEEPEST:g}, not {penalty:g}."
        )
    if settings.max_tokens < 1:
        raise SettingsError("max_tokens", f"must be a whole number from 1, not {settings.max_tokens}.")
    return settings
