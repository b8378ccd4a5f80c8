"""Value -> colour, glyph and unit: the metrics of a token and the formats of every number on screen."""

from __future__ import annotations

METRICS: tuple[str, ...] = ("off", "probability", "surprisal", "entropy", "rank")
