"""Which work a loaded model did already: the first of each kind is a cold start."""

from __future__ import annotations

from typing import Literal

Work = Literal["chunk", "token", "step"]
"""A chunk of a prompt, a prompt's last token, a step."""


class FirstUses:
    """The kinds of work that one loaded model did.

    What is done once may be in the first of a kind: kernels are compiled or chosen, memory is taken from the system,
    weights are read in. How much that is depends on the backend, so that the first is marked and left out of rates.
    """

    def __init__(self) -> None:
        self._done: set[Work] = set()

    def take(self, work: Work) -> bool:
        """Note that work is done; returns whether it is the first of its kind."""
        first = work not in self._done
        self._done.add(work)
        return first
