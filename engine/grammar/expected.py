"""What a grammar expects, in a few words: the first characters of the tokens that it allows, by their kinds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.grammar.matcher import GrammarTokens, Mask
from engine.protocol import ExpectedBeginning
from engine.sampling.ranking import Row

_NAMED = {" ": "a space", "\n": "a line break", "\t": "a tab", "\r": "a carriage return"}
_END, _MARK, _PART, _NOTHING = "the end", "a special token", "part of a character", "a token without text"
_FEW = 4
"""Characters of a kind that are named one by one."""


class Beginnings:
    """The first character of every token: made once for a vocabulary, 0.3 s for 150,000 tokens.

    Args:
        tokens: The vocabulary.
    """

    def __init__(self, tokens: GrammarTokens) -> None:
        self.tokens = tokens
        places: dict[str, int] = {}
        firsts = (self._first(token) for token in range(tokens.vocabulary))
        self._place = np.fromiter((places.setdefault(first, len(places)) for first in firsts), np.intp)
        self._firsts = tuple(places)

    def _first(self, token: int) -> str:
        if token in self.tokens.eos_ids:
            return _END
        raw = self.tokens.raw(token)
        if self.tokens.is_special(token) and len(raw) != 1:
            return _MARK
        text = raw[:4].decode("utf-8", "ignore")
        whole = text and raw.startswith(text[0].encode())
        return text[0] if whole else _PART if raw else _NOTHING

    def of(self, allowed: Mask, logprobs: Row | None, most: int = 12) -> tuple[ExpectedBeginning, ...]:
        """What the allowed tokens begin with.

        Args:
            allowed: Which are allowed, shape (vocabulary,).
            logprobs: The model's log-softmax, same shape; None where it isn't known.
            most: How many are named; the rest are left out.
        """
        ids = np.flatnonzero(allowed)
        size, places = len(self._firsts), self._place[ids]
        counts = np.bincount(places, minlength=size)
        masses: npt.NDArray[np.float64] | None = None
        if logprobs is not None:
            masses = np.bincount(places, np.exp(logprobs[ids]), size).astype(np.float64)
        kinds: dict[str, list[int]] = {}
        for place in np.flatnonzero(counts).tolist():
            kinds.setdefault(_kind(self._firsts[place]), []).append(place)
        found = [
            ExpectedBeginning(
                words, int(counts[group].sum()), None if masses is None else float(masses[group].sum())
            )
            for kind, group in kinds.items()
            for words, group in self._named(kind, group)
        ]
        found.sort(key=lambda each: (-(each.mass or 0.0), -each.tokens))
        return tuple(found[:most])

    def _named(self, kind: str, places: list[int]) -> list[tuple[str, list[int]]]:
        """A kind's characters one by one where they are few."""
        if len(places) > _FEW or len(self._firsts[places[0]]) > 1:
            return [(kind, places)]
        return [(_NAMED.get(self._firsts[place], f"“{self._firsts[place]}”"), [place]) for place in places]


def _kind(first: str) -> str:
    if len(first) > 1:
        return first
    if first.isdigit():
        return "a digit"
    if first.isalpha():
        return (
            "a lowercase letter"
            if first.islower()
            else "an uppercase letter"
            if first.isupper()
            else "a letter"
        )
    return "white space" if first.isspace() else "a sign"
