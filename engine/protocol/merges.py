"""The command that takes a tokenizer apart, and its record: words with the merges that made their tokens."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Record
from engine.protocol.numbers import Count, Finite
from engine.settings import LoadSettings

TokenizerKind = Literal["bpe", "unigram", "wordpiece"]


class TakeApart(Command, frozen=True):
    """Take apart how a tokenizer cuts a text; answered by `TakenApart`. No weights are read."""

    needs_model: ClassVar[bool] = False
    text: str
    settings: LoadSettings | None = None
    """The model whose tokenizer it is, or as its name a tokenizer.json; None for the loaded one's."""
    begin: Count = 0
    """Words that end up to this character are left out of the answer."""
    end: Count | None = None
    """And those that begin at this one or later; None for none."""
    node: Count | None = None
    """The token that is looked at, which the answer is about; None for none."""


class Segmentation(Struct, frozen=True):
    """One way in which a unigram model could cut a word."""

    score: Finite | None
    """Sum of the pieces' log probabilities, natural logarithm; None for a WordPiece, which has none."""
    lengths: tuple[Count, ...]
    """Symbols of each piece."""


class WordApart(Struct, frozen=True):
    """A word, as the tokenizer sees it, and how its tokens came about."""

    begin: Count
    """First character of the text."""
    end: Count
    """The character after the last one."""
    symbols: tuple[bytes, ...]
    """What a merge begins with: the bytes of each character, or of each byte of one."""
    borders: tuple[Count, ...]
    """Of each merge, in its order, the symbol before which a border fell."""
    ranks: tuple[Count, ...]
    """Of each merge the place in the tokenizer's list, from 0: the lowest that is there goes first."""
    ways: tuple[Segmentation, ...]
    """Of a unigram model the best ones, the best first; of a WordPiece the only one; of a BPE none."""
    ids: tuple[Count, ...]
    """Its tokens, as the tokenizer itself cuts it."""
    ends: tuple[Count, ...]
    """The character of the text behind each of these."""
    added: bool = False
    """True if it is a token beside the vocabulary, cut out of the text before all others."""

    def pieces(self, merges: int | None = None) -> tuple[bytes, ...]:
        """The pieces of the word.

        Args:
            merges: How many were made; None for all.
        """
        return self.joined(self._lengths(merges))

    def joined(self, lengths: tuple[int, ...]) -> tuple[bytes, ...]:
        """The symbols joined to pieces of so many symbols each."""
        ends = accumulate(lengths, initial=0)
        return tuple(b"".join(self.symbols[begin:end]) for begin, end in pairwise(ends))

    def _lengths(self, merges: int | None) -> tuple[int, ...]:
        if self.ways:
            return self.ways[0].lengths
        fallen = {*self.borders[:merges]}
        left = (place for place in range(len(self.symbols) + 1) if place not in fallen)
        return tuple(end - begin for begin, end in pairwise(left))


class TakenApart(Record, frozen=True):
    """How a tokenizer cuts a text; each word's tokens were checked against those of the tokenizer itself."""

    node: Count | None
    """The token that it is about; None where it is about none."""
    name: str
    """Of the model or the file; empty for the loaded model's."""
    algorithm: TokenizerKind
    vocabulary: Count
    merges: Count
    """In the tokenizer's list; 0 where it has none."""
    characters: Count
    """Of the text."""
    tokens: Count
    """Of the text."""
    words: tuple[WordApart, ...]
    """Those that were asked for."""
    unknown: Count | None = None
    """The token for what no piece stands for; None where there is none."""
