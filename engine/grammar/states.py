"""A grammar over one vocabulary, its state after each node of a tree, and the trial of a grammar in a child process.

A state is a function of the grammar and the path: it is cached, and never saved. The matchers of the most recently used
nodes are kept, so that a step costs one copy (2 KiB) and one token; a move to a node without a matcher continues from
the nearest ancestor that has one. llguidance refuses grammars that it can't compile, and stops if a step takes too
much; its messages and its log are never written to the terminal.
"""

from __future__ import annotations

import signal
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from engine import processes
from engine.errors import EngineError, SettingsError, StepError
from engine.grammar.source import NO_TOKEN, in_words, llguidance_source, refusal
from engine.grammar_settings import Grammar
from engine.processes import limited
from engine.protocol import ExpectedBeginning, GrammarReading
from engine.sampling.ranking import Row
from engine.token_texts import TokenTexts
from engine.tree import TokenPaths

MOST_ITEMS = 10_000
"""Largest number of rules that may be active at one place. Three levels of `anyOf`, 6 each, around objects have 2,376,
and llguidance's own bound is 2,000; 5,632 take 10 ms per token."""
MOST_MATCHERS = 4096
"""Largest number of matchers that are kept for one tree: 9 MiB."""
MOST_STATES = 64
"""Largest number of states that are kept with their masks: a mask of 150,000 tokens takes 150 KiB."""
MOST_GRAMMARS = 8
"""Largest number of compiled grammars that are kept."""
Mask = npt.NDArray[np.bool_]
"""True for the tokens that are allowed, shape (vocabulary,)."""
Outside = Literal["left", "ended"]
"""Why a grammar no longer applies: a token was taken that it forbids, or its text ended with an end of sequence."""


class GrammarVocabulary:
    """A vocabulary in the form that `llguidance.LLTokenizer` takes.

    Building it takes 30 ms for 4,096 tokens and 0.5 s for 150,000, so it is made once, when the first grammar is set.
    If there is no end-of-sequence token, an extra id stands for it that is in no mask.

    Args:
        tokens: The bytes of each token; empty for an id without a token.
        special: Ids of special tokens, which a grammar never allows as text.
        eos_ids: Ids that end the sequence.
    """

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], special: Iterable[int], eos_ids: tuple[int, ...]) -> None:
        from llguidance import LLTokenizer
        from llguidance._tokenizer import TokenizerWrapper

        self.size, self.eos_ids = len(tokens), eos_ids
        self.tokens = [*tokens, *([] if eos_ids else [b"<end>"])]
        self.eos_token_ids = list(eos_ids) or [self.size]
        self.special_token_ids = sorted({*special, *self.eos_token_ids})
        self.eos_token_id = self.eos_token_ids[0]
        self.own: Any = LLTokenizer(TokenizerWrapper(self), eos_token=self.eos_token_ids)

    def __call__(self, text: bytes | str) -> list[int]:
        """No encoder: llguidance never asks for the tokens of a forced text (see `source.NO_FORCING`)."""
        return []


def byte_vocabulary() -> GrammarVocabulary:
    """The 256 bytes and an end of sequence: the vocabulary with which a grammar is tried."""
    return GrammarVocabulary([*(bytes([byte]) for byte in range(256)), b"<end>"], (), (256,))


@lru_cache(maxsize=1)
def vocabulary_of(tokens: TokenTexts) -> GrammarVocabulary:
    """A model's vocabulary; the last one is kept, since the next tree of the model uses it, too."""
    raws = [tokens.raw(token) for token in range(tokens.vocabulary)]
    # some tokenizers list sentencepiece's single bytes as special: they are text
    special = (token for token, raw in enumerate(raws) if tokens.is_special(token) and len(raw) != 1)
    return GrammarVocabulary(raws, special, tokens.eos_ids)


class Matcher:
    """A grammar after some tokens.

    Args:
        own: `llguidance.LLMatcher`.
        vocabulary: Its vocabulary.
        grammar: The grammar, for messages.
    """

    def __init__(self, own: Any, vocabulary: GrammarVocabulary, grammar: Grammar) -> None:
        self._own, self.vocabulary, self._grammar = own, vocabulary, grammar

    @classmethod
    def begin(cls, grammar: Grammar, vocabulary: GrammarVocabulary) -> Matcher:
        """The grammar before any token.

        Raises:
            SettingsError: The grammar is invalid or too complex, or no text matches it.
        """
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(verbose_errors=False, max_items_in_row=MOST_ITEMS)
        own = LLMatcher(vocabulary.own, llguidance_source(grammar), log_level=0, limits=limits)
        if own.is_error():
            raise refusal(in_words(own.get_error(), grammar))
        return cls(own, vocabulary, grammar)

    def copy(self) -> Matcher:
        """A copy at the same place; it takes 2 KiB and some microseconds."""
        return Matcher(self._own.deep_copy(), self.vocabulary, self._grammar)

    def allows(self, token: int) -> bool:
        """True if a token may follow; an end of sequence may if the text may end."""
        if token in self.vocabulary.eos_ids and self.accepting:
            return True  # if the text must end, llguidance allows only the first of several end tokens
        return bool(self._own.validate_tokens([token]) == 1)

    def take(self, token: int) -> None:
        """Continue after a token that the grammar allows.

        Raises:
            StepError: The grammar became too complex.
        """
        if not self._own.consume_token(token) or (self._own.is_error() and not self.complete):
            raise self._error()

    def mask(self) -> Mask:
        """The tokens that may follow, end-of-sequence if the text may end, shape (vocabulary,).

        Raises:
            StepError: The grammar became too complex; or, before any token, no text matches it.
        """
        bits = np.frombuffer(self._own.compute_bitmask(), np.uint8)
        if self._own.is_error():
            raise self._error()
        return np.unpackbits(bits, bitorder="little", count=self.vocabulary.size).view(np.bool_)

    def allowed_ids(self) -> list[int]:
        """Ids of the tokens that may follow, in ascending order."""
        return [int(token) for token in np.flatnonzero(self.mask())]

    @property
    def accepting(self) -> bool:
        """True if the text may end here."""
        return bool(self._own.is_accepting())

    @property
    def complete(self) -> bool:
        """True if the text must end here."""
        return self.accepting and bool(self._own.is_stopped())

    def forced(self) -> bytes:
        """The bytes with which every text of the grammar continues."""
        return bytes(self._own.compute_ff_bytes())

    def why(self) -> str:
        """The reason why the grammar can't continue, without a full stop."""
        return in_words(self._own.get_error(), self._grammar)

    def _error(self) -> StepError:
        message = f"The grammar allows no token here: {self.why()}."
        return StepError(message, "Remove the grammar, or change it.")


# ---- trying a grammar in a child process -------------------------------------------------------
# llguidance limits compiling and steps, but its limits are counts: `(a{1000}){1000}` stays within them and takes 2.7 s
# and 270 MiB at its first token, in one call that nothing can interrupt. A trial takes 0.2 s, once per grammar.

MEMORY = 1024 * 2**20
"""Largest address space of the process in bytes; numpy and llguidance take 300 MB of it. Not limited on macOS."""
SECONDS = 1
"""Largest processor time, in addition to the 0.2 s of the imports."""
STEPS = 64
"""Largest number of bytes of the text along which masks are computed."""
_ENDED = {
    -signal.SIGSEGV: "it is nested too deeply",
    -signal.SIGBUS: "it is nested too deeply",
    -signal.SIGABRT: "it takes too much memory",
    -signal.SIGKILL: "it takes too much time or memory",
    -signal.SIGXCPU: "it takes too much time",
}
"""Why a trial ended, by its exit status; llguidance recurses into nested rules until the stack overflows."""


def trial(given: dict[str, str]) -> dict[str, str]:
    """Compute masks along a text that a grammar allows, over single bytes; called in the child.

    Args:
        given: `kind` and `text` of the grammar.

    Returns:
        `refusal`, a message; empty if the grammar is valid.
    """
    try:
        step, matcher = 0, Matcher.begin(Grammar(**given), byte_vocabulary())  # type: ignore[arg-type]
        while step < STEPS and (allowed := [byte for byte in matcher.allowed_ids() if byte < 256]):
            matcher.take(allowed[step * 7919 % len(allowed)])
            step += 1
    except StepError as failed:  # every byte is a token: if none may be the first, no text matches
        why = "no text matches it" if matcher.why() == NO_TOKEN else matcher.why()
        return {"refusal": failed.message if step else refusal(why).message}
    except EngineError as refused:
        return {"refusal": refused.message}
    return {"refusal": ""}


@lru_cache(maxsize=256)
def try_out(grammar: Grammar) -> None:
    """Try a grammar in a child process; a valid one is not tried again.

    Raises:
        SettingsError: The grammar is invalid, or takes too much time or memory.
    """
    given = {"kind": grammar.kind, "text": grammar.text}
    try:
        answer = limited("engine.grammar.states:trial", given, MEMORY, SECONDS)
    except OSError as error:
        message = f"The grammar can't be checked: {error.strerror}."
        raise SettingsError("grammar", message, "Close other programs, and try again.") from error
    if message := answer.get("refusal", ""):
        raise SettingsError("grammar", message, "Change it, or remove it.")
    if "error" in answer:
        raise refusal(answer["error"])
    if (ended := answer.get("ended", 0)) is None:
        raise SettingsError(
            "grammar",
            f"The grammar can't be checked: the process that tries it gave no answer in {processes.PATIENCE:g} s.",
            "Try again when the machine is less busy, or take a simpler one.",
        )
    if "ended" in answer:
        raise refusal(_ENDED.get(ended, f"the process that tries it {processes.ending_of(ended)}"))


# ---- states ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GrammarState:
    """The state of a grammar after a node; its properties are computed when they are first used."""

    matcher: Matcher | None
    """The grammar after the node; None if it no longer applies."""
    outside: Outside | None = None

    @cached_property
    def allowed(self) -> Mask | None:
        """Mask of the tokens that may follow, shape (vocabulary,); None for all, also if the text must end and there is
        no token that ends it.

        Raises:
            StepError: The grammar became too complex.
        """
        if self.matcher is None:
            return None
        mask = self.matcher.mask()
        # empty only at the end: if the text may not end, llguidance fails
        return mask if mask.any() else None

    @cached_property
    def count(self) -> int:
        """Number of tokens that it allows; 0 if the text must end and no token ends it."""
        assert self.matcher is not None
        return 0 if self.allowed is None else int(np.count_nonzero(self.allowed))

    @property
    def complete(self) -> bool:
        """True if the text must end here."""
        return self.matcher is not None and self.matcher.complete

    @cached_property
    def certain(self) -> bool:
        """True if the grammar leaves no choice: one token, or one text, however it is tokenized."""
        return self.matcher is not None and (self.count == 1 or bool(self.matcher.forced()))

    def allows(self, token: int) -> bool:
        """True if a token may follow."""
        return self.allowed is None or bool(self.allowed[token])

    def after(self, token: int) -> GrammarState:
        """The state after one more token, without its mask.

        Raises:
            StepError: The grammar became too complex.
        """
        if self.matcher is None:
            return self
        if not self.matcher.allows(token):
            return GrammarState(None, "left")
        if token in self.matcher.vocabulary.eos_ids:
            return GrammarState(None, "ended")
        matcher = self.matcher.copy()
        matcher.take(token)
        return GrammarState(matcher)

    def first_forbidden(self, tokens: Sequence[int], eos_ids: Collection[int]) -> int | None:
        """The index of the first of some following tokens that the grammar forbids; None if it allows all."""
        if self.matcher is None:
            return None
        matcher = self.matcher.copy()
        for place, token in enumerate(tokens):
            if not matcher.allows(token):
                return place
            if token in eos_ids:  # after it everything is allowed
                return None
            matcher.take(token)
        return None

    def mass(self, logprobs: Row) -> float:
        """The total probability of the allowed tokens in the model's own distribution.

        Args:
            logprobs: The model's log-softmax, float32, shape (vocabulary,).
        """
        if self.allowed is None:
            return 1.0
        return min(1.0, float(np.exp(logprobs) @ self.allowed))

    def reading(self, logprobs: Row) -> GrammarReading:
        """The record of the state.

        Args:
            logprobs: See `mass`.
        """
        if self.matcher is None:
            return GrammarReading(logprobs.size, 1.0, self.outside or "left")
        state: Literal["complete", "accepting", "open"] = "accepting" if self.matcher.accepting else "open"
        state = "complete" if self.complete else state
        mass = self.mass(logprobs) if self.count else 0.0
        return GrammarReading(self.count, mass, state, self.matcher.forced())


class GrammarStates:
    """The states of every grammar that was set, over one tree."""

    def __init__(self, tokens: TokenTexts, tree: TokenPaths) -> None:
        self._tree = tree
        matchers: Matchers = OrderedDict()
        # cached functions, not methods: caches of methods would keep this object alive until garbage collection
        self.compiled = lru_cache(MOST_GRAMMARS)(partial(_compile, tokens))
        self._state = lru_cache(MOST_STATES)(partial(_follow, tree, matchers))

    def at(self, grammar: Grammar | None, node: int) -> GrammarState | None:
        """The state of a grammar after a node; None without a grammar, and before it begins.

        Raises:
            SettingsError: The grammar is invalid.
            StepError: The grammar became too complex at that node.
        """
        if grammar is None:
            return None
        first = self.compiled(grammar)
        at = self._tree[node]
        # number of tokens of the path before the text that must match
        begin = max(at.start, grammar.begin or 0)
        return None if at.depth < begin else self._state(grammar, first, node, begin)


Matchers = OrderedDict[tuple[Grammar, int, int], GrammarState]
"""States without masks, by grammar, node and begin: a token of a completion may become one of a prompt later, and vice
versa."""


def _compile(tokens: TokenTexts, grammar: Grammar) -> GrammarState:
    """The state of a grammar before any token; a new grammar is tried in a child process first.

    Raises:
        SettingsError: The grammar is invalid.
    """
    try_out(grammar)
    vocabulary = vocabulary_of(tokens)  # type: ignore[arg-type]  # no protocol is hashable to mypy
    return GrammarState(Matcher.begin(grammar, vocabulary))


def _follow(
    tree: TokenPaths, matchers: Matchers, grammar: Grammar, first: GrammarState, node: int, begin: int
) -> GrammarState:
    """Continue from the nearest ancestor whose matcher is kept, or from the first state."""
    path: list[int] = []
    state = first
    for ancestor in (node, *tree.ancestors(tree[node].parent)):
        if tree[ancestor].depth <= begin:
            break
        if (kept := matchers.get((grammar, ancestor, begin))) is not None:
            state = kept
            break
        path.append(ancestor)
    for following in reversed(path):
        state = state.after(tree[following].token)
        matchers[grammar, following, begin] = state
        if len(matchers) > MOST_MATCHERS:
            matchers.popitem(last=False)
    # a new object: those in `matchers` never compute their masks, and stay small
    return GrammarState(state.matcher, state.outside)


# ---- what a grammar expects, in a few words ----------------------------------------------------

_NAMED = {" ": "a space", "\n": "a line break", "\t": "a tab", "\r": "a carriage return"}
_END, _MARK, _PART, _NOTHING = "the end", "a special token", "part of a character", "a token without text"
_FEW = 4
"""Largest number of characters of a kind that are named one by one."""


@lru_cache(maxsize=1)
def _first_characters(tokens: TokenTexts) -> tuple[tuple[str, ...], npt.NDArray[np.intp]]:
    """The distinct first characters of a vocabulary's tokens, and each token's index in them; 0.3 s for 150,000."""

    def first(token: int) -> str:
        if token in tokens.eos_ids:
            return _END
        raw = tokens.raw(token)
        if tokens.is_special(token) and len(raw) != 1:
            return _MARK
        text = raw[:4].decode("utf-8", "ignore")
        whole = text and raw.startswith(text[0].encode())
        return text[0] if whole else _PART if raw else _NOTHING

    indices: dict[str, int] = {}
    firsts = map(first, range(tokens.vocabulary))
    of_tokens = np.fromiter((indices.setdefault(each, len(indices)) for each in firsts), np.intp)
    return tuple(indices), of_tokens


def beginnings(
    tokens: TokenTexts, allowed: Mask, logprobs: Row | None, most: int = 12
) -> tuple[ExpectedBeginning, ...]:
    """The first characters of the allowed tokens, grouped by kind if there are many.

    Args:
        tokens: The vocabulary.
        allowed: True for allowed tokens, shape (vocabulary,).
        logprobs: The model's log-softmax, same shape; None if it isn't known.
        most: Largest number of beginnings; the rest are left out.
    """
    firsts, of_tokens = _first_characters(tokens)  # type: ignore[arg-type]  # no protocol is hashable to mypy
    ids = np.flatnonzero(allowed)
    counts = np.bincount(of_tokens[ids], minlength=len(firsts))
    masses = None if logprobs is None else np.bincount(of_tokens[ids], np.exp(logprobs[ids]), len(firsts))
    kinds: dict[str, list[int]] = {}
    for index in np.flatnonzero(counts).tolist():
        kinds.setdefault(_kind(firsts[index]), []).append(index)
    found: list[ExpectedBeginning] = []
    for kind, every in kinds.items():
        groups = [(kind, every)]
        if len(every) <= _FEW and len(firsts[every[0]]) == 1:  # one by one
            groups = [(_NAMED.get(firsts[index], f"“{firsts[index]}”"), [index]) for index in every]
        for words, group in groups:
            mass = None if masses is None else float(masses[group].sum())
            found.append(ExpectedBeginning(words, int(counts[group].sum()), mass))
    found.sort(key=lambda each: (-(each.mass or 0.0), -each.tokens))
    return tuple(found[:most])


def _kind(first: str) -> str:
    if len(first) > 1:
        return first
    if first.isalpha():
        cased = {(True, False): "a lowercase letter", (False, True): "an uppercase letter"}
        return cased.get((first.islower(), first.isupper()), "a letter")
    return "a digit" if first.isdigit() else "white space" if first.isspace() else "a sign"
