"""The state of a grammar after each node of a tree. A function of the grammar and the path: kept, never stored.

A matcher is kept for the nodes asked last, so that a step costs one copy (2 KiB) and one token, and a move to a node
whose matcher was dropped goes on from the nearest ancestor that has one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from engine.grammar.matcher import GrammarTokens, GrammarVocabulary, Mask, Matcher, try_out
from engine.grammar_settings import Grammar
from engine.protocol import ExpectedBeginning, GrammarReading
from engine.sampling.ranking import Row
from engine.tree import TokenPaths

MOST_MATCHERS = 4096
"""Matchers that are kept: some 9 MiB."""
MOST_STATES = 64
"""States that are kept with their masks: a mask of 150,000 tokens takes 150 KiB."""
MOST_GRAMMARS = 8
"""Compiled grammars that are kept, with the matchers of their nodes."""
Key = TypeVar("Key")
Value = TypeVar("Value")
Outside = Literal["left", "ended"]
"""Why a grammar holds no more: a token was taken that it forbids, or its text ended with an end of sequence."""


@dataclass(frozen=True)
class GrammarState:
    """A grammar after a node. Its parts are computed when they are asked for."""

    matcher: Matcher | None
    """None where the grammar holds no more."""
    outside: Outside | None = None

    @cached_property
    def allowed(self) -> Mask | None:
        """Which tokens may follow, shape (vocabulary,); None for all, as where the text must end and no token ends it.

        Raises:
            StepError: The grammar became too complex.
        """
        if self.matcher is None:
            return None
        mask = self.matcher.mask()
        return mask if mask.any() else None  # llguidance fails where none may follow and the text may not end

    @cached_property
    def count(self) -> int:
        """How many tokens it allows: 0 where the text must end and no token ends it."""
        assert self.matcher is not None
        return 0 if self.allowed is None else int(np.count_nonzero(self.allowed))

    @property
    def complete(self) -> bool:
        """True if the text must end here."""
        return self.matcher is not None and self.matcher.complete

    @cached_property
    def certain(self) -> bool:
        """True if the grammar leaves no choice: one token, or one text however it is cut into tokens."""
        return self.matcher is not None and (self.count == 1 or bool(self.matcher.forced()))

    def allows(self, token: int) -> bool:
        """True if a token may follow."""
        return self.allowed is None or bool(self.allowed[token])

    def first_forbidden(self, tokens: Sequence[int], eos_ids: Collection[int]) -> int | None:
        """The place of the first of some following tokens that the grammar forbids, None where it allows all."""
        if self.matcher is None:
            return None
        matcher = self.matcher.copy()
        for place, token in enumerate(tokens):
            if not matcher.allows(token):
                return place
            if token in eos_ids:  # behind it everything is allowed
                return None
            matcher.take(token)
        return None

    def mass(self, logprobs: Row) -> float:
        """The probability of the allowed tokens together, of the model's own distribution.

        Args:
            logprobs: The model's log-softmax, float32, shape (vocabulary,).
        """
        if self.allowed is None:
            return 1.0
        return min(1.0, float(np.exp(logprobs) @ self.allowed))

    def reading(self, logprobs: Row) -> GrammarReading:
        """As a record.

        Args:
            logprobs: As for `mass`.
        """
        if self.matcher is None:
            return GrammarReading(logprobs.size, 1.0, self.outside or "left")
        state: Literal["complete", "accepting", "open"] = "accepting" if self.matcher.accepting else "open"
        state = "complete" if self.complete else state
        mass = self.mass(logprobs) if self.count else 0.0
        return GrammarReading(self.count, mass, state, self.matcher.forced())


class CompiledGrammar:
    """One grammar over one tree.

    Args:
        first: The matcher before any token.
        tree: The tree.
        eos_ids: Ids that end the sequence.
        begin: As in `Grammar`.
    """

    def __init__(self, first: Matcher, tree: TokenPaths, eos_ids: tuple[int, ...], begin: int | None) -> None:
        self._first, self._tree, self._eos_ids, self._begin = first, tree, eos_ids, begin
        # by node and begin: a token of a completion may become one of a prompt later, and the other way round
        self._matchers: OrderedDict[tuple[int, int], GrammarState] = OrderedDict()
        self._states: OrderedDict[tuple[int, int], GrammarState] = OrderedDict()

    def at(self, node: int) -> GrammarState | None:
        """The state after a node, None before the grammar begins.

        Raises:
            StepError: The grammar became too complex.
        """
        begin = self._begin_of(node)
        if self._tree[node].depth < begin:
            return None
        if (state := self._states.get((node, begin))) is None:
            state = self._follow(node, begin)
            _remember(self._states, (node, begin), state, MOST_STATES)
        return state

    def _begin_of(self, node: int) -> int:
        """Tokens of the path before the text that must match."""
        return max(self._tree[node].start, self._begin or 0)

    def _follow(self, node: int, begin: int) -> GrammarState:
        """Go on from the nearest ancestor whose matcher is kept, or from the first."""
        path: list[int] = []
        state = GrammarState(self._first)
        for ancestor in (node, *self._tree.ancestors(self._tree[node].parent)):
            if self._tree[ancestor].depth <= begin:
                break
            if (kept := self._matchers.get((ancestor, begin))) is not None:
                state = kept
                break
            path.append(ancestor)
        for following in reversed(path):
            state = self.after(state, self._tree[following].token)
            _remember(self._matchers, (following, begin), state, MOST_MATCHERS)
        # the masks of `_matchers` are never asked for: they stay small
        return GrammarState(state.matcher, state.outside)

    def after(self, state: GrammarState, token: int) -> GrammarState:
        """The state after one more token, wherever in a text.

        Raises:
            StepError: The grammar became too complex.
        """
        matcher = state.matcher
        if matcher is None:
            return state
        if not matcher.allows(token):
            return GrammarState(None, "left")
        if token in self._eos_ids:
            return GrammarState(None, "ended")
        matcher = matcher.copy()
        matcher.take(token)
        return GrammarState(matcher)


class GrammarStates:
    """The states of every grammar that was set, over one tree.

    Args:
        tokens: The model's tokens.
        tree: The tree.
    """

    def __init__(self, tokens: GrammarTokens, tree: TokenPaths) -> None:
        self._tokens, self._tree = tokens, tree
        self._compiled: OrderedDict[Grammar, CompiledGrammar] = OrderedDict()

    def at(self, grammar: Grammar | None, node: int) -> GrammarState | None:
        """The state of a grammar after a node; None without a grammar, and before it begins.

        Raises:
            SettingsError: The grammar can't be used.
            StepError: It became too complex at that node.
        """
        return None if grammar is None else self.compiled(grammar).at(node)

    def compiled(self, grammar: Grammar) -> CompiledGrammar:
        """A grammar, compiled; one that was not seen before is tried in a process of its own first.

        Raises:
            SettingsError: The grammar can't be used.
        """
        if (known := self._compiled.get(grammar)) is None:
            try_out(grammar)
            first = Matcher.begin(grammar, _vocabulary(self._tokens))
            known = CompiledGrammar(first, self._tree, self._tokens.eos_ids, grammar.begin)
            _remember(self._compiled, grammar, known, MOST_GRAMMARS)
        return known


_prepared: list[tuple[GrammarTokens, GrammarVocabulary]] = []
"""The vocabulary of the model in use, which the next tree has too."""


def _vocabulary(tokens: GrammarTokens) -> GrammarVocabulary:
    """The tokens' vocabulary, prepared for grammars; the last one is kept."""
    if not _prepared or _prepared[0][0] is not tokens:
        _prepared[:] = [(tokens, GrammarVocabulary(tokens))]
    return _prepared[0][1]


def _remember(kept: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
    kept[key] = value
    while len(kept) > most:
        kept.popitem(last=False)


# ---- what a grammar expects, in a few words ----------------------------------------------------

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
