"""One grammar over one vocabulary, at one place of a text. llguidance and numpy.

llguidance refuses what it can't compile, and stops where a step takes too much, by itself; its messages, and those of
its log, are never written to the terminal.
"""

from __future__ import annotations

import signal
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine import processes
from engine.errors import SettingsError, StepError
from engine.grammar.source import in_words, llguidance_source, refusal
from engine.grammar_settings import Grammar
from engine.processes import answer_of

MOST_ITEMS = 10_000
"""Rules that may go on at one place. Three levels of `anyOf`, 6 each, around objects have 2,376, and llguidance's own
bound is 2,000; 5,632 take 10 ms a token."""
Mask = npt.NDArray[np.bool_]
"""Which tokens are allowed, shape (vocabulary,)."""


class GrammarTokens(Protocol):
    """What a grammar needs of a vocabulary."""

    @property
    def vocabulary(self) -> int:
        """How many ids there are."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end the sequence."""

    def raw(self, token: int) -> bytes:
        """A token's own bytes; empty for an id without a token."""

    def is_special(self, token: int) -> bool:
        """True if it is a mark of the format rather than text: a grammar never allows it as text."""


class ByteVocabulary:
    """The 256 bytes and an end of sequence: what a grammar is tried on."""

    vocabulary = 257
    eos_ids = (256,)

    def raw(self, token: int) -> bytes:
        """The byte."""
        return bytes([token]) if token < 256 else b"<end>"

    def is_special(self, token: int) -> bool:
        """True if it is the end of sequence."""
        return token == 256


class _TokenizerForLLGuidance:
    """A vocabulary as `llguidance.LLTokenizer` takes it.

    Where the model has no end-of-sequence token one more id stands for it, which no mask shows.
    """

    bos_token_id = None

    def __init__(self, tokens: GrammarTokens) -> None:
        size = tokens.vocabulary
        self.tokens = [tokens.raw(token) for token in range(size)]
        # some tokenizers list sentencepiece's single bytes as special: they are text
        special = {
            token for token in range(size) if tokens.is_special(token) and len(self.tokens[token]) != 1
        }
        self.special_token_ids = sorted(special | set(tokens.eos_ids))
        self.eos_token_ids = list(tokens.eos_ids)
        if not tokens.eos_ids:
            self.tokens.append(b"<end>")
            self.special_token_ids.append(size)
            self.eos_token_ids = [size]
        self.eos_token_id = self.eos_token_ids[0]

    def __call__(self, text: bytes | str) -> list[int]:
        """No encoder: which tokens spell a forced text is never asked (see `source.NO_FORCING`)."""
        return []


class GrammarVocabulary:
    """A model's vocabulary, in the form in which grammars are matched against it.

    It takes some 30 ms for 4,096 tokens and 0.5 s for 150,000: made once, when the first grammar is set.
    """

    def __init__(self, tokens: GrammarTokens) -> None:
        from llguidance import LLTokenizer
        from llguidance._tokenizer import TokenizerWrapper

        given = _TokenizerForLLGuidance(tokens)
        self.size = tokens.vocabulary
        self.eos_ids = tokens.eos_ids
        self.own: Any = LLTokenizer(TokenizerWrapper(given), eos_token=given.eos_token_ids)


class Matcher:
    """A grammar after some tokens.

    Args:
        own: `llguidance.LLMatcher`.
        vocabulary: Its vocabulary.
        grammar: For messages.
    """

    def __init__(self, own: Any, vocabulary: GrammarVocabulary, grammar: Grammar) -> None:
        self._own, self._vocabulary, self._grammar = own, vocabulary, grammar

    @classmethod
    def of(cls, grammar: Grammar, tokens: GrammarTokens) -> Matcher:
        """The grammar before any token, over a vocabulary of its own; see `begin`."""
        return cls.begin(grammar, GrammarVocabulary(tokens))

    @classmethod
    def begin(cls, grammar: Grammar, vocabulary: GrammarVocabulary) -> Matcher:
        """The grammar before any token.

        Raises:
            SettingsError: It can't be read, no text matches it, or it takes too much.
        """
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(verbose_errors=False, max_items_in_row=MOST_ITEMS)
        own = LLMatcher(vocabulary.own, llguidance_source(grammar), log_level=0, limits=limits)
        if own.is_error():
            raise refusal(in_words(own.get_error(), grammar))
        return cls(own, vocabulary, grammar)

    def copy(self) -> Matcher:
        """The same place, to go on from elsewhere: 2 KiB and some microseconds."""
        return Matcher(self._own.deep_copy(), self._vocabulary, self._grammar)

    def allows(self, token: int) -> bool:
        """True if a token may follow: an end of sequence where the text may end."""
        if token in self._vocabulary.eos_ids and self.accepting:
            return True  # where it must end, llguidance takes the first of several ends alone
        return bool(self._own.validate_tokens([token]) == 1)

    def take(self, token: int) -> None:
        """Go on after a token that the grammar allows.

        Raises:
            StepError: The grammar became too complex.
        """
        if not self._own.consume_token(token) or (self._own.is_error() and not self.complete):
            self._fail()

    def mask(self) -> Mask:
        """Which tokens may follow, end-of-sequence where the text may end, shape (vocabulary,).

        Raises:
            StepError: The grammar became too complex; or, before any token, no text matches it.
        """
        bits = np.frombuffer(self._own.compute_bitmask(), np.uint8)
        if self._own.is_error():
            self._fail()
        return np.unpackbits(bits, bitorder="little", count=self._vocabulary.size).view(np.bool_)

    def allowed_ids(self) -> list[int]:
        """Ids of the tokens that may follow, in their order."""
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
        """The bytes that every text of the grammar has next."""
        return bytes(self._own.compute_ff_bytes())

    def why(self) -> str:
        """Why the grammar can't go on."""
        return in_words(self._own.get_error(), self._grammar)

    def _fail(self) -> None:
        raise StepError(
            f"The grammar allows no token here: {self.why()}.", "Remove the grammar, or change it."
        )


# ---- trying a grammar in a process of its own --------------------------------------------------
# llguidance bounds what compiling and a step may take, but its bounds are counts: `(a{1000}){1000}` stays within them
# and takes 2.7 s and 270 MiB at its first token, in one call that nothing can interrupt. A trial takes some 0.2 s, once
# a grammar.

MEMORY = 1024 * 2**20
"""Bytes of address space of the process; some 300 MB are numpy's and llguidance's own. Not bounded on macOS."""
SECONDS = 1
"""Of processor time, beside the 0.2 that the imports take."""
_SCRIPT = Path(__file__).with_name("trial_process.py")
_ENDED = {
    -signal.SIGSEGV: "it is nested too deeply",
    -signal.SIGBUS: "it is nested too deeply",
    -signal.SIGABRT: "it takes too much memory",
    -signal.SIGKILL: "it takes too much time or memory",
    -signal.SIGXCPU: "it takes too much time",
}
"""Why a trial was ended, by its exit status: llguidance calls itself for what is nested, until the stack is full."""


@lru_cache(maxsize=256)
def _error(kind: str, text: str) -> str:
    """Why a grammar can't be used, empty where it can; only an answer is kept, since a busy machine may give none.

    Raises:
        SettingsError: The process was ended, or none can be started.
    """
    given = {"kind": kind, "text": text, "bytes": MEMORY, "seconds": SECONDS}
    try:
        answer = answer_of(_SCRIPT, given)
    except OSError as error:
        raise SettingsError(
            "grammar",
            f"The grammar can't be checked: {error.strerror}.",
            "Close other programs, and try again.",
        ) from error
    if "error" in answer:
        return str(answer["error"])
    if (ended := answer.get("ended")) is None:
        raise SettingsError(
            "grammar",
            f"The grammar can't be checked: the process that tries it gave no answer in {processes.PATIENCE:g} s.",
            "Try again when the machine is less busy, or take a simpler one.",
        )
    raise refusal(_ENDED.get(ended, f"the process that tries it {processes.ending_of(ended)}"))


def try_out(grammar: Grammar) -> None:
    """Try a grammar.

    Raises:
        SettingsError: It can't be used, or takes too much time or memory.
    """
    if error := _error(grammar.kind, grammar.text):
        raise SettingsError("grammar", error, "Change it, or remove it.")
