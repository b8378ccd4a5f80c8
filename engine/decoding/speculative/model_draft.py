"""The draft that is a model: its own cache follows the session along the tree."""

from __future__ import annotations

import numpy as np

from engine.decoding.speculative.draft import Proposal, Proposed
from engine.decoding.speculative.draft_paths import DraftPaths
from engine.model.forward import Runner, Stopped
from engine.model.load import Loaded
from engine.sampling.ranking import Row
from engine.settings import Settings
from engine.tree import common_prefix, prompt_chunks


class ModelDraft:
    """Draws as the session does, with the same random numbers, from its own distributions.

    Args:
        loaded: The model.
        vocabulary: The number of the session's tokens, which are this model's, too.
        note: What to know of it.
    """

    def __init__(self, loaded: Loaded, vocabulary: int, note: str = "") -> None:
        self._loaded, self._vocabulary = loaded, vocabulary
        self._runner = Runner(loaded.model, loaded.settings, loaded.first_uses)
        self._path: list[int] = []
        """The cache holds `kv.offset` tokens of it."""
        self.note = note

    @property
    def weight_bytes(self) -> int:
        """See `Drafter`."""
        return self._loaded.facts.weight_bytes

    def propose(
        self, paths: DraftPaths, node: int, count: int, settings: Settings, stopped: Stopped
    ) -> Proposal:
        """See `Drafter`; a forward for each token, and for what the path has that the last one had not."""
        ids, tokens = paths.tokens(node), list[Proposed]()
        for _ in range(self._within_window(len(ids), count)):
            row = self._row(ids, stopped)
            sampled = paths.sampler.sample(node, row, settings).sampled
            node = paths.add(node, sampled.picked)
            tokens.append(Proposed(sampled.picked, node, sampled.probs))
            if sampled.picked in self._loaded.tokens.eos_ids:
                break
            ids = [*ids, sampled.picked]
        return Proposal(tuple(tokens))

    def _row(self, ids: list[int], stopped: Stopped) -> Row:
        """The logits after a path, float32, shape (vocabulary of the session,)."""
        kv = self._runner.kv
        shared = min(common_prefix(self._path, ids), kv.offset, len(ids) - 1)
        kv.rewind(shared)  # where it can't be trimmed it is emptied, and all of the path runs
        self._path = ids
        row = self._runner.forward_path(ids, prompt_chunks(len(ids)), stopped)
        fitted = np.full(self._vocabulary, -np.inf, np.float32)
        count = min(row.size, self._vocabulary)
        fitted[:count] = row[:count]
        return fitted

    def _within_window(self, tokens: int, count: int) -> int:
        """How many more forwards the draft's positions allow."""
        window = self._loaded.facts.context_window
        if not self._loaded.facts.hard_window or window is None:
            return count
        return max(0, min(count, window - tokens + 1))
