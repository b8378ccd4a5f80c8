"""The draft that needs no model: what followed the path's last tokens where they stood before (prompt lookup)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.decoding.speculative.draft import Proposal, Proposed
from engine.decoding.speculative.draft_paths import DraftPaths
from engine.model.forward import Stopped
from engine.settings import Settings

LONGEST_SUFFIX = 3
"""Tokens that are looked for at first; fewer where they stood nowhere before. As transformers' prompt lookup."""


class LookupDraft:
    """Copies from the path itself."""

    weight_bytes = 0
    note = ""

    def propose(
        self, paths: DraftPaths, node: int, count: int, settings: Settings, stopped: Stopped
    ) -> Proposal:
        """See `Drafter`; no forward, and no probabilities."""
        ids, matched = look_up(paths.tokens(node), count)
        tokens: list[Proposed] = []
        for token in ids:
            node = paths.add(node, token)
            tokens.append(Proposed(token, node, None))
        return Proposal(tuple(tokens), matched)


def look_up(ids: Sequence[int], count: int) -> tuple[list[int], int]:
    """The tokens after the latest earlier occurrence of the longest suffix of up to three tokens.

    Args:
        ids: A path.
        count: Tokens at most.

    Returns:
        The tokens, and the length of the suffix; none and 0 where no suffix stood anywhere before.
    """
    path = np.asarray(ids)
    for length in range(min(LONGEST_SUFFIX, path.size - 1), 0, -1):
        begins = path.size - length  # an occurrence that ends before the path does
        same = np.ones(begins, bool)
        for place in range(length):
            same &= path[place : place + begins] == path[begins + place]
        if (places := np.flatnonzero(same)).size:
            first = int(places[-1]) + length
            return list(ids[first : first + count]), length
    return [], 0
