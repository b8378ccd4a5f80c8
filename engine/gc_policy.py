"""Python's garbage collector, kept from pausing a long session; and freed memory, given back to the system.

Records are many, live long and are in no reference cycles: a collection that scans all of them frees nothing and
costs 0.5 s at 10,000 steps. What is left after a collection is therefore frozen (`gc.freeze`), so that the next one
scans only newer objects. Frozen objects are still freed when nothing refers to them.

The arrays of a KV cache are replaced by longer ones as it grows. The C library fills what they leave with the rows of
logits that are kept, and so has no room for the next longer ones: at 6,000 steps of the bundled model half as much was
free as was in use.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

EVERY = 500
"""Steps between two collections; one takes about 5 ms."""
TRIM_EVERY = 2000
"""Steps between two times at which freed memory is given back; one takes 4 to 7 ms, and gave back 17 to 57 MiB."""


class GCPolicy:
    """Counts steps, and collects and freezes after every `EVERY` of them."""

    def __init__(self) -> None:
        self._steps = 0

    def count_step(self) -> None:
        """Count a step."""
        self._steps += 1
        if self._steps % EVERY == 0:
            collect_and_freeze()
        if self._steps % TRIM_EVERY == 0:
            trim()


def _trimmer() -> Callable[[], object]:
    """The function that gives freed memory back to the system: that of glibc; elsewhere one that does nothing."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda: None
    malloc_trim.argtypes = (ctypes.c_size_t,)
    return lambda: malloc_trim(0)


trim = _trimmer()
"""Gives freed memory back to the system; all threads may go on."""


def collect_all() -> None:
    """Collect all garbage, frozen objects included: a model that was dropped may be in cycles."""
    gc.unfreeze()
    gc.collect()
    trim()


def set_aside() -> None:
    """Freeze all that is there: with a model its libraries, a hundred thousand objects that stay."""
    gc.freeze()


def collect_and_freeze() -> None:
    """Collect the cycles made since the last time, and freeze the rest."""
    gc.collect()
    gc.freeze()
