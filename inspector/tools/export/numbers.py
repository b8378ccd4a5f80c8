"""Numbers of the web page: as few digits as it shows."""

from __future__ import annotations

import math


def millionths(share: float | None) -> float | int | None:
    """As many digits of a probability as are shown of it in percent, and one more; two where it is next to nothing."""
    if share is None or not math.isfinite(share):
        return None
    digits = 6 if share >= 0.1 else 4 if share >= 0.01 else 3 if share >= 1e-4 else 2
    return number(float(f"{share * 1e6:.{digits}g}"), 6)


def number(value: float | None, digits: int) -> float | int | None:
    """A number rounded to `digits` digits after the point, as short as it goes; None where it is no number."""
    if value is None or not math.isfinite(value):
        return None
    short = round(value, digits)
    return int(short) if short == int(short) else short
