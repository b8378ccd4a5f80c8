"""Texts and tokens: tokenizing, prompt previews, vocabulary searches, rows of logits, what a grammar allows, merges."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import ClassVar, Literal

from msgspec import Struct

from engine.grammar_settings import Grammar
from engine.protocol.base import Command, Count, Finite, Interleavable, Record
from engine.protocol.steps import (
    NO_OPTIONS,
    NO_SEGMENTS,
    Candidate,
    ChatOptions,
    GrammarReading,
    Message,
    PromptSegments,
)
from engine.settings import LoadSettings, Settings

# ---- texts and tokens ------------------------------------------------------------------------------


class Tokenize(Interleavable, frozen=True):
    """Tokenize a text without taking its tokens; answered by `Tokenized`, also between the steps of a run."""

    text: str


class PreviewPrompt(Interleavable, frozen=True):
    """Encode a prompt as a `Prefill` with the same fields would, without changing the session.

    Answered by `PromptPreview`, also between the steps of a run.
    """

    text: str
    chat: bool | None
    system: str | None = None
    messages: tuple[Message, ...] = ()
    options: ChatOptions = NO_OPTIONS
    most: Count = 400
    """Maximum number of tokens in the answer; a longer prompt is shortened to its first and last ones."""


class CutText(Command, frozen=True):
    """Tokenize a text with a model's tokenizer, without reading its weights; a loaded model stays as it is.

    Answered by `Loading` records and one `Tokenized`, whose text includes the chat template.
    """

    needs_model: ClassVar[bool] = False
    settings: LoadSettings
    text: str
    chat: bool = False
    """True to fill the model's chat template, with the text as a user's message."""
    system: str | None = None
    messages: tuple[Message, ...] = ()
    """A whole conversation instead of `text` and `system`; needs `chat`."""
    options: ChatOptions = NO_OPTIONS
    """Other values that the chat template gets."""


class FindTokens(Interleavable, frozen=True):
    """Search the vocabulary at a node with cached logits; answered by `TokensFound`.

    It is also answered between the steps of a run.
    """

    node: Count
    query: str
    """Part of the text of the tokens; `#123` for an id; `0x e2 9c` for bytes."""
    limit: Count = 100
    """Maximum number of matches in the answer."""
    settings: Settings | None = None
    """Settings for the probabilities after the sampler; None for the last ones that the session used at the node."""
    reroll: Count = 0
    """Number of repeats of the draw; it matters here because some stages of the sampler draw, too."""


class ReadGrammar(Interleavable, frozen=True):
    """Compute what a grammar expects after a node; answered by `GrammarExpected`, or `Failure` if the grammar is not
    valid.

    It is also answered between the steps of a run. A new grammar is tried in a separate process first, which takes 0.3
    to 2 s.
    """

    node: Count
    """Node that the grammar continues; the root (0) if there is no prompt yet."""
    grammar: Grammar | None = None
    """Grammar to try; None for the one in force."""


class ReadLogits(Command, frozen=True):
    """Emit cached rows of logits for a recording: a `LogitsRow` for each node, and a `ModelVocabulary` before the
    model's first one.

    A row that isn't cached, such as inside a prompt, must be computed with `Recall` before.
    """

    nodes: tuple[Count, ...] = ()
    """Nodes in the order of the answers; empty for all nodes with cached logits."""


class TokensFound(Record, frozen=True):
    """Tokens of the vocabulary that match a search, with their probabilities after one node."""

    lasting: ClassVar[bool] = False
    node: Count
    query: str
    matches: tuple[Candidate, ...]
    """The matches, at most as many as requested: the token that equals the text, then those that begin with it, then
    the others, each group by probability."""
    total: Count
    """Number of all matches."""
    mass: Finite
    """Total probability of all matches in the model's own distribution."""
    note: str = ""
    """A sentence if these numbers come from other prefill chunks than the path's; otherwise empty."""


class Piece(Struct, frozen=True):
    """One token of a text."""

    id: Count
    text: str
    """Characters that the token completes; empty while they are unfinished."""
    raw: bytes
    special: bool


class Tokenized(Record, frozen=True):
    """A text was tokenized; no token was taken."""

    lasting: ClassVar[bool] = False
    text: str
    pieces: tuple[Piece, ...]
    segments: PromptSegments = NO_SEGMENTS
    """Segments of the text: the role that each token belongs to, if a chat template was filled."""


class PromptPreview(Record, frozen=True):
    """A prompt as a prefill would encode it, chat template included; no token was taken."""

    lasting: ClassVar[bool] = False
    tokens: Count
    """Number of tokens of the prompt."""
    special: Count
    """Number of special tokens among them."""
    shared: Count
    """Number of tokens that the prompt and the current path have in common at the beginning."""
    first: tuple[Piece, ...]
    """First tokens of the prompt; all of them if `last` is empty."""
    last: tuple[Piece, ...]
    """Last tokens of a prompt that is longer than the requested maximum."""
    notes: tuple[str, ...]
    """Parts of the request that can't be met."""


class ExpectedBeginning(Struct, frozen=True):
    """A group of tokens that a grammar allows and that begin alike."""

    words: str
    """The common beginning in words: `a digit`, `“-”`, `the end`."""
    tokens: Count
    """Number of these tokens."""
    mass: Finite | None
    """Total probability of these tokens in the model's own distribution; None if the logits are not cached."""


class GrammarExpected(Record, frozen=True):
    """A valid grammar, and what it expects after a node."""

    lasting: ClassVar[bool] = False
    node: Count
    reading: GrammarReading | None
    """Reading of the grammar after the node; None before the grammar begins, and if the logits are not cached."""
    expected: tuple[ExpectedBeginning, ...]
    """Beginnings of the allowed tokens, largest mass first; empty if all tokens are allowed."""


# ---- the merges of a tokenizer ---------------------------------------------------------------------

TokenizerKind = Literal["bpe", "unigram", "wordpiece"]


class TakeApart(Command, frozen=True):
    """Trace how a tokenizer splits a text, merge by merge; answered by `TakenApart`. No weights are read."""

    needs_model: ClassVar[bool] = False
    text: str
    settings: LoadSettings | None = None
    """Settings that name the tokenizer's model, or a tokenizer.json; None for the loaded model."""
    begin: Count = 0
    """Words that end at or before this character index are left out of the answer."""
    end: Count | None = None
    """Words that begin at or after this character index are left out; None for no limit."""
    node: Count | None = None
    """Node of the token that the question is about, repeated in the answer; None if it is about none."""


class Segmentation(Struct, frozen=True):
    """One segmentation of a word, by a unigram or WordPiece model."""

    score: Finite | None
    """Sum of the pieces' log probabilities, natural logarithm; None for WordPiece, which has no probabilities."""
    lengths: tuple[Count, ...]
    """Number of symbols of each piece."""


class WordApart(Struct, frozen=True):
    """One word of a text after pre-tokenization, and the merges or segmentations that give its tokens."""

    begin: Count
    """Index of the first character in the text."""
    end: Count
    """Index after the last character."""
    symbols: tuple[bytes, ...]
    """Symbols before the first merge: the bytes of each character, or each byte of a character."""
    borders: tuple[Count, ...]
    """Index of the symbol after the border that a merge removes, for each merge in order."""
    ranks: tuple[Count, ...]
    """Index of each merge in the tokenizer's list, from 0. The possible merge with the lowest index is made first."""
    ways: tuple[Segmentation, ...]
    """The best segmentations of a unigram model, best first; the only one of a WordPiece model; empty for BPE."""
    ids: tuple[Count, ...]
    """Token ids of the word, equal to the tokenizer's own."""
    ends: tuple[Count, ...]
    """Index in the text after the last character of each of these tokens."""
    added: bool = False
    """True if the word is an added token, which is split off before all other words."""

    def pieces(self, merges: int | None = None) -> tuple[bytes, ...]:
        """The pieces of the word.

        Args:
            merges: Number of merges to apply; None for all.
        """
        return self.joined(self._lengths(merges))

    def joined(self, lengths: tuple[int, ...]) -> tuple[bytes, ...]:
        """Join the symbols into pieces of the given numbers of symbols."""
        ends = accumulate(lengths, initial=0)
        return tuple(b"".join(self.symbols[begin:end]) for begin, end in pairwise(ends))

    def _lengths(self, merges: int | None) -> tuple[int, ...]:
        if self.ways:
            return self.ways[0].lengths
        fallen = {*self.borders[:merges]}
        left = (place for place in range(len(self.symbols) + 1) if place not in fallen)
        return tuple(end - begin for begin, end in pairwise(left))


class TakenApart(Record, frozen=True):
    """Trace of how a tokenizer splits a text; the tokens of each word are checked against the tokenizer's own."""

    node: Count | None
    """Node of the token that the question is about; None if it is about none."""
    name: str
    """Name of the requested model or file; empty for the loaded model."""
    algorithm: TokenizerKind
    vocabulary: Count
    merges: Count
    """Number of merges in the tokenizer's list; 0 if it has none."""
    characters: Count
    """Number of characters of the text."""
    tokens: Count
    """Number of tokens of the text."""
    words: tuple[WordApart, ...]
    """The requested words."""
    unknown: Count | None = None
    """Id of the token for text that no piece matches; None if there is no such token."""
