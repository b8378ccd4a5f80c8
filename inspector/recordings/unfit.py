"""Entries of a file that contradict those before them, beyond what the file's reader checks."""

from __future__ import annotations

from engine.errors import TraceError

UNFIT = (LookupError, ValueError, TypeError, AttributeError, AssertionError, StopIteration)
"""What the views of a timeline raise when records contradict each other."""


def unfit(number: int, value: object, error: Exception) -> TraceError:
    """The error of an entry that raised one of `UNFIT`.

    Args:
        number: Of the entry, from 1.
        value: What it tells.
        error: What was raised.
    """
    return TraceError(
        f"Entry {number:,} ({type(value).__name__}) doesn't fit with those before it: {error!r}.",
        "The file was damaged or edited; take another copy of it.",
    )
