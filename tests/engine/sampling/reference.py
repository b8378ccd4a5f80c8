"""The sampler written a second time, in float64 and from the definitions of the three programs, stage by stage.

It imports nothing of `engine.sampling`. A row is logits throughout; a filter sets them to minus infinity, and takes the
softmax itself where it needs probabilities. After each stage the caller says which tokens the sampler kept: sets that
differ must do so by tokens whose edge lies within the rounding, and the reference goes on with the sampler's.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.settings import Settings

Wide = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
UNIT = 2.0**-23
"""Twice the relative rounding of one float32 operation."""


def softmax(logits: Wide) -> Wide:
    """Probabilities, shape (vocabulary,)."""
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


class Reference:
    """One run of the stages.

    Args:
        row: The model's logits, shape (vocabulary,).
        settings: Of the sampler.
        path: The tokens before, newest last.
        barred: Ids barred by min tokens.
        spared: Ids that mlx_lm's XTC never cuts.
    """

    def __init__(
        self,
        row: npt.NDArray[Any],
        settings: Settings,
        path: tuple[int, ...] = (),
        barred: tuple[int, ...] = (),
        spared: tuple[int, ...] = (),
    ) -> None:
        self.logits = row.astype(np.float64)
        self.slack = 0.0
        """How far the sampler's float32 logits may be from these by rounding."""
        self.drawn_slack = 0.0
        """How much further its logprobs may be: like mlx_lm's, they are taken before a filter cuts."""
        self._settings, self._path, self._barred, self._spared = settings, path, barred, spared
        self._program = settings.sampler_order

    @property
    def kept(self) -> Mask:
        """Tokens that are left."""
        return np.asarray(self.logits > -np.inf)

    @property
    def probs(self) -> Wide:
        """What is drawn from."""
        return softmax(self.logits)

    def apply(self, stage: str, kept: Mask) -> None:
        """Apply a stage, and go on with the tokens that the sampler kept, if it may have kept them."""
        name = stage.replace("-", "_")
        filters = {"top_p", "min_p", "xtc", "top_k"}
        if name not in filters:
            getattr(self, f"_{name}")()
            self._round()
            assert np.array_equal(kept, self.kept), f"{stage} cuts"
            return
        mine = self.kept & getattr(self, f"_{name}")()
        differs = np.flatnonzero(mine != kept)
        assert not (kept & ~self.kept).any(), "a token came back"
        if differs.size:
            assert self._near(stage, differs, mine), f"{stage} keeps other tokens: {differs[:10]}"
        self.drawn_slack = max(self.drawn_slack, self._rounding())
        self.logits = np.where(kept, self.logits, -np.inf)

    def follow(self, stage: str) -> bool:
        """Apply a stage, and go on with the tokens that it keeps here; returns whether rounding has no say in which."""
        name = stage.replace("-", "_")
        if name not in {"top_p", "min_p", "xtc", "top_k"}:
            getattr(self, f"_{name}")()
            self._round()
            return True
        mine = self.kept & getattr(self, f"_{name}")()
        order = [token for token in self._order() if self.kept[token]]
        edges = [n for n, (one, other) in enumerate(pairwise(order)) if mine[one] != mine[other]]
        at_edge = {order[n + after] for n in edges for after in (0, 1)}
        sure = not any(self._near(stage, np.array([token]), mine) for token in at_edge)
        self.logits = np.where(mine, self.logits, -np.inf)
        return sure

    # ---- stages that change logits ----------------------------------------------------------

    def _logit_bias(self) -> None:
        for token, value in self._settings.logit_bias:
            self.logits[token] += value

    def _min_tokens(self) -> None:
        self.logits[list(self._barred)] = -np.inf

    def _repetition(self) -> None:
        penalty = self._settings.repetition_penalty
        for token in set(self._path[-self._settings.repetition_context_size :]):
            logit = self.logits[token]
            self.logits[token] = logit / penalty if logit > 0 else logit * penalty

    def _presence(self) -> None:
        for token in set(self._path[-self._settings.presence_context_size :]):
            self.logits[token] -= self._settings.presence_penalty

    def _frequency(self) -> None:
        for token in self._path[-self._settings.frequency_context_size :]:
            self.logits[token] -= self._settings.frequency_penalty
            self._round()

    def _temperature(self) -> None:
        self._round()  # of the logprobs that are scaled
        self.logits = self.logits / self._settings.temp
        self.slack /= self._settings.temp
        self.drawn_slack /= self._settings.temp

    def _round(self) -> None:
        """Count one rounding, of the logits and of the logprobs that mlx_lm's order draws from."""
        self.slack += self._rounding()

    def _rounding(self) -> float:
        """Of the logits and logprobs of the tokens that are left."""
        live = self.logits[self.kept]
        return UNIT * float(np.abs(live).max() + np.abs(live - live.max()).max() + np.log(live.size))

    # ---- filters ----------------------------------------------------------------------------

    def _order(self) -> npt.NDArray[np.intp]:
        """Ids, most probable first, of equals the lowest."""
        return np.lexsort((np.arange(self.logits.size), -self.logits))

    def _top_k(self) -> Mask:
        k = min(self._settings.top_k, self.logits.size)
        order = self._order()
        if self._program == "transformers":  # scores < topk(scores, k)[-1] are removed
            return np.asarray(self.logits >= self.logits[order[k - 1]])
        return self._only(order[:k])

    def _top_p(self) -> Mask:
        share, order, probs = self._settings.top_p, self._order(), self.probs
        if self._program == "transformers":
            # sorted rising, of equals the lowest id first; softmax().cumsum() <= 1 - top_p are removed, never the last
            rising = np.lexsort((np.arange(probs.size), probs))
            above = np.cumsum(probs[rising][::-1])[::-1] - probs[rising]  # 1 - cumsum, without its rounding
            removed = above >= share
            removed[-1] = False
            return self._only(rising[~removed])
        sums = np.cumsum(probs[order])
        count = int(np.searchsorted(sums, share)) + 1  # the first whose sum is the share or more
        kept = self._only(order[:count])
        if self._program == "llama.cpp":
            return kept
        return np.asarray(self.logits >= self.logits[kept].min())  # mlx_lm: with all that equal the last

    def _min_p(self) -> Mask:
        probs = self.probs
        passing = np.asarray(probs >= self._settings.min_p * probs.max())
        return passing | self._only(self._order()[: self._settings.min_tokens_to_keep])

    def _xtc(self) -> Mask:
        probs, threshold = self.probs, self._settings.xtc_threshold
        if self._program == "llama.cpp":  # sorted falling; all p >= threshold go but the last of them
            left = [token for token in self._order().tolist() if self.kept[token]]
            above = [token for token in left if probs[token] >= threshold]
            return ~self._only(np.array(above[:-1], int))
        mask = probs > np.where(probs > threshold, probs, np.inf).min()
        mask[list(self._spared)] = False
        return np.asarray(~mask)

    def _only(self, ids: npt.NDArray[np.intp]) -> Mask:
        mask = np.zeros(self.logits.size, bool)
        mask[ids] = True
        return mask

    # ---- how far rounding may reach -----------------------------------------------------------

    def _near(self, stage: str, differs: npt.NDArray[np.intp], mine: Mask) -> bool:
        """Whether rounding of the logits may move each of these tokens over the edge."""
        reach = 2 * self.slack + UNIT * 2
        probs, logits = self.probs, self.logits
        match stage:
            case "top-k":
                edge = logits[mine].min()
                return bool(reach > 2 * UNIT and np.all(np.abs(logits[differs] - edge) <= 2 * reach))
            case "top-p":
                grow = np.exp(2 * reach)
                most = np.array([probs[logits >= logits[token] - 2 * reach].sum() for token in differs])
                least = np.array([probs[logits > logits[token] + 2 * reach].sum() for token in differs])
                share = self._settings.top_p
                return bool(np.all((most * grow >= share) & (least / grow <= share)))
        # float32 logprobs and softmax
        spread = logits[self.kept]
        reach += UNIT * 4 * float(spread.max() - spread.min() + np.log(spread.size) + 1)
        logs = np.log(np.maximum(probs, 1e-300))
        if stage == "min-p":
            edges = [logs.max() + np.log(self._settings.min_p)]
            if (
                least := self._settings.min_tokens_to_keep
            ) > 1:  # rounded logprobs have ties that logits don't
                edges.append(logs[self._order()[min(least, logs.size) - 1]])
            return bool(np.all(np.min([np.abs(logs[differs] - edge) for edge in edges], axis=0) <= 2 * reach))
        if self._settings.xtc_threshold == 0 and ((probs > 0) & (probs < 1e-36)).any():
            return True  # a probability that float32 may not have
        threshold = np.log(max(self._settings.xtc_threshold, 1e-300))
        above = logs[logs >= threshold - 2 * reach]
        gaps = np.abs(np.subtract.outer(np.sort(above)[:50], above))
        return bool((np.abs(logs - threshold) <= 2 * reach).any() or ((gaps > 0) & (gaps <= 2 * reach)).any())
