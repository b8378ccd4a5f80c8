"""Python's garbage collector, kept from pausing a long session.

Records are many, live long and refer to nothing that refers back: to look through all of them again and again finds
nothing and costs 0.5 s at 10,000 steps. What is there after a look is therefore set aside (`gc.freeze`), so that the
next look sees only what came since. Set-aside objects are still freed when nothing refers to them.
"""

from __future__ import annotations

import gc

EVERY = 500
"""Steps between two looks; one takes about 5 ms."""


class GCPolicy:
    """Counts steps, and tidies up now and then."""

    def __init__(self) -> None:
        self._steps = 0

    def stepped(self) -> None:
        """Note a step."""
        self._steps += 1
        if self._steps % EVERY == 0:
            tidy()


def free() -> None:
    """Free what nothing refers to, also of what was set aside: a model that was let go of may be in cycles."""
    gc.unfreeze()
    gc.collect()


def tidy() -> None:
    """Free the cycles that came since the last time, and set the rest aside."""
    gc.collect()
    gc.freeze()
