"""Python's garbage collector, kept from pausing a long session.

Records are many, live long and are in no reference cycles: a collection that scans all of them frees nothing and
costs 0.5 s at 10,000 steps. What is left after a collection is therefore frozen (`gc.freeze`), so that the next one
scans only newer objects. Frozen objects are still freed when nothing refers to them.
"""

from __future__ import annotations

import gc

EVERY = 500
"""Steps between two collections; one takes about 5 ms."""


class GCPolicy:
    """Counts steps, and collects and freezes after every `EVERY` of them."""

    def __init__(self) -> None:
        self._steps = 0

    def count_step(self) -> None:
        """Count a step."""
        self._steps += 1
        if self._steps % EVERY == 0:
            collect_and_freeze()


def collect_all() -> None:
    """Collect all garbage, frozen objects included: a model that was dropped may be in cycles."""
    gc.unfreeze()
    gc.collect()


def set_aside() -> None:
    """Freeze all that is there: with a model its libraries, a hundred thousand objects that stay."""
    gc.freeze()


def collect_and_freeze() -> None:
    """Collect the cycles made since the last time, and freeze the rest."""
    gc.collect()
    gc.freeze()
