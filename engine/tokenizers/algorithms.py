"""The work of a tokenizer's model on one word: byte-pair merges, a unigram's best segmentation, a WordPiece's longest.

As the `tokenizers` library does it, which hands out tokens and not how it came to them; `apart` checks each word's
tokens against the library's. A word of n characters takes n log n at most, so that one without end can be taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from typing import Any, NamedTuple, Protocol

from engine.errors import LoadError, PromptError
from engine.protocol import Segmentation, TokenizerKind

WAYS = 4
"""Segmentations of a word that a unigram model tells."""
TRIED = 4_000_000
"""Beginnings and ends of pieces that are tried in one word at most: two seconds. One of 100,000 characters takes half
as many with the twenty lengths of piece that a vocabulary has."""
UNKNOWN_PENALTY = 10.0
"""What a character that no piece has costs more than the least likely piece, as in sentencepiece."""


class Ladder(NamedTuple):
    """The steps from one word to its tokens."""

    symbols: tuple[str, ...]
    """What it was before: characters as the model spells them, or bytes as `<0xE2>`."""
    borders: tuple[int, ...]
    ranks: tuple[int, ...]
    ways: tuple[Segmentation, ...]
    ids: tuple[int, ...]


class Algorithm(Protocol):
    """A tokenizer's model."""

    kind: TokenizerKind
    merges: int
    """In its list."""
    unknown: int | None
    """The token for what no piece stands for."""

    def make(self, word: str) -> Ladder:
        """Take one word apart: as the model sees it, after normalizer and pre-tokenizer."""

    def joins(self, left: str, right: str) -> bool:
        """True if a piece may have these two characters beside each other; where it may not, a word can be halved."""


def algorithm_of(model: Mapping[str, Any]) -> Algorithm:
    """The algorithm of a tokenizer.

    Args:
        model: That of its tokenizer.json, as the library writes it.

    Raises:
        LoadError: It is of a kind that can't be taken apart.
    """
    match model["type"]:
        case "BPE" if model.get("dropout"):
            raise LoadError(
                "This tokenizer leaves out merges at random (dropout), so the same text gives other tokens each time.",
                "Set dropout to null in its tokenizer.json.",
            )
        case "BPE":
            return BytePairs(model)
        case "Unigram":
            return Unigram(model)
        case "WordPiece":
            return WordPieces(model)
        case kind:
            raise LoadError(
                f"A tokenizer of kind {kind} can't be taken apart: it looks whole words up and cuts none.",
                "BPE, unigram and WordPiece can be.",
            )


def _bound(word: str, lengths: int) -> None:
    """Refuse a word that takes too long.

    Args:
        word: The word.
        lengths: How many lengths a piece may have.

    Raises:
        PromptError: It does.
    """
    if len(word) * lengths > TRIED:
        raise PromptError(
            f"A word of {len(word):,} characters takes too long with the long pieces of this tokenizer.",
            "Give a shorter text, or one with spaces.",
        )


# ---- byte-pair encoding --------------------------------------------------------------------------


class BytePairs:
    """Byte-pair encoding (Sennrich et al. 2016): the pair of the lowest rank is merged, again and again.

    Args:
        model: See `algorithm_of`.
    """

    kind: TokenizerKind = "bpe"

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._ids: dict[str, int] = model["vocab"]
        self._prefix = model.get("continuing_subword_prefix") or ""
        self._suffix = model.get("end_of_word_suffix") or ""
        self.unknown: int | None = self._ids.get(model.get("unk_token") or "")
        self._fuses, self._falls_back = model.get("fuse_unk"), model.get("byte_fallback")
        self._ignores = model.get("ignore_merges")
        self._pairs = [_pair(each) for each in model["merges"]]
        self.merges = len(self._pairs)
        self._found: dict[tuple[int, int], tuple[int, int]] = {}
        """Rank and token by the pair; of a pair that is listed twice those of the last, as in the library."""
        for rank, (left, right) in enumerate(self._pairs):
            new = self._ids[left + right[len(self._prefix) :]]
            self._found[self._ids[left], self._ids[right]] = rank, new

    def make(self, word: str) -> Ladder:
        """See `Algorithm`."""
        if self._ignores and word in self._ids:
            return Ladder((word,), (), (), (), (self._ids[word],))
        begun = [*self._begin(word)]
        ids = [id for _, id in begun]
        merged = [*self._merge(ids)]
        symbols = tuple(symbol for symbol, _ in begun)
        borders, ranks = tuple(border for border, _ in merged), tuple(rank for _, rank in merged)
        return Ladder(symbols, borders, ranks, (), tuple(id for id in ids if id >= 0))

    def joins(self, left: str, right: str) -> bool:
        """See `Algorithm`."""
        return bool(self._prefix or self._suffix) or (left, right) in self._touching

    @cached_property
    def _touching(self) -> frozenset[tuple[str, str]]:
        return frozenset((left[-1:], right[:1]) for left, right in self._pairs)

    def _begin(self, word: str) -> Iterator[tuple[str, int]]:
        """The symbols of a word and their ids; characters that nothing stands for are dropped, as in the library."""
        unknown = ""
        for place, char in enumerate(word):
            spelt = (self._prefix if place else "") + char + (self._suffix if place == len(word) - 1 else "")
            if (id := self._ids.get(spelt)) is not None:
                yield from self._unknowns(unknown)
                unknown = ""
                yield spelt, id
            elif spelled := self._bytes(spelt):
                yield from spelled
            elif self.unknown is not None:
                if unknown and not self._fuses:
                    yield from self._unknowns(unknown)
                    unknown = ""
                unknown += char
        yield from self._unknowns(unknown)

    def _unknowns(self, text: str) -> Iterator[tuple[str, int]]:
        if text and self.unknown is not None:
            yield text, self.unknown

    def _bytes(self, char: str) -> list[tuple[str, int]]:
        """The bytes of a character as tokens; none where not all of them have one."""
        if not self._falls_back:
            return []
        names = [f"<0x{byte:02X}>" for byte in char.encode("utf-8", "replace")]
        return [(name, self._ids[name]) for name in names] if all(name in self._ids for name in names) else []

    def _merge(self, ids: list[int]) -> Iterator[tuple[int, int]]:
        """Merge pair after pair, and tell each: the symbol before which a border fell, and the rank.

        Args:
            ids: Of the symbols; a merged one has the new id in its first place, and -1 in the others.
        """
        after, before = [*range(1, len(ids) + 1)], [*range(-1, len(ids) - 1)]
        waiting = [
            (*found, place) for place, pair in enumerate(pairwise(ids)) if (found := self._found.get(pair))
        ]
        queue = [(rank, place, new) for rank, new, place in waiting]
        heapify(queue)
        while queue:
            _, place, new = heappop(queue)
            right = after[place]
            if ids[place] < 0 or right == len(ids):
                continue
            found = self._found.get((ids[place], ids[right]))
            if found is None or found[1] != new:
                continue
            ids[place], ids[right], after[place] = new, -1, after[right]
            if after[right] < len(ids):
                before[after[right]] = place
            for first, second in ((before[place], place), (place, after[place])):
                if first >= 0 and second < len(ids) and (next_ := self._found.get((ids[first], ids[second]))):
                    heappush(queue, (next_[0], first, next_[1]))
            yield right, found[0]


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


# ---- unigram -------------------------------------------------------------------------------------


class Unigram:
    """A unigram language model (Kudo 2018): the segmentation whose pieces are the likeliest together.

    Args:
        model: See `algorithm_of`.
    """

    kind: TokenizerKind = "unigram"
    merges = 0

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._scores = {str(piece): (float(score), id) for id, (piece, score) in enumerate(model["vocab"])}
        self.unknown: int | None = model.get("unk_id")
        self._falls_back = model.get("byte_fallback")
        self._sizes = sorted({1, *map(len, self._scores)} - {0}, reverse=True)
        """Characters that pieces have, the most first."""
        self._least = min((score for score, _ in self._scores.values()), default=0.0) - UNKNOWN_PENALTY

    def make(self, word: str) -> Ladder:
        """See `Algorithm`."""
        ways = [*self._ways(word)]
        ids: list[int] = []
        at = 0
        for length in ways[0].lengths if ways else ():
            ids += self._ids_of(word[at : at + length])
            at += length
        return Ladder(tuple(word), (), (), tuple(ways), tuple(ids))

    def joins(self, left: str, right: str) -> bool:
        """See `Algorithm`."""
        return (left, right) in self._touching

    @cached_property
    def _touching(self) -> frozenset[tuple[str, str]]:
        return frozenset(chain.from_iterable(map(pairwise, self._scores)))

    def _ways(self, word: str) -> Iterator[Segmentation]:
        """The best segmentations, the best first; of equal ones that whose last piece begins first."""
        _bound(word, len(self._sizes))
        best: list[list[tuple[float, int, int]]] = [[(0.0, 0, 0)]]
        """By end: score, begin of the last piece, and which of the ways to that begin it goes on from."""
        for end in range(1, len(word) + 1):
            found = []
            for begin in (end - size for size in self._sizes if size <= end):
                score = self._score(word[begin:end])
                if score is not None:
                    found += [(way[0] + score, begin, place) for place, way in enumerate(best[begin])]
            found.sort(key=lambda way: -way[0])
            best.append(found[:WAYS])
        for place, (score, _, _) in enumerate(best[-1] if word else ()):
            yield Segmentation(score, tuple(self._lengths(word, best, place)))

    def _score(self, piece: str) -> float | None:
        known = self._scores.get(piece)
        if known is not None:
            return known[0]
        return self._least if len(piece) == 1 else None

    def _lengths(self, word: str, best: list[list[tuple[float, int, int]]], place: int) -> list[int]:
        """The pieces of one way; unknown characters beside each other are one, as in the library."""
        lengths: list[int] = []
        end, unknown = len(word), False
        while end:
            _, begin, place = best[end][place]
            another = word[begin:end] not in self._scores
            if unknown and another:
                lengths[-1] += end - begin
            else:
                lengths.append(end - begin)
            end, unknown = begin, another
        return lengths[::-1]

    def _ids_of(self, piece: str) -> list[int]:
        if (known := self._scores.get(piece)) is not None:
            return [known[1]]
        names = [f"<0x{byte:02X}>" for byte in piece.encode("utf-8", "replace")]
        if self._falls_back and all(name in self._scores for name in names):
            return [self._scores[name][1] for name in names]
        return [] if self.unknown is None else [self.unknown]


# ---- WordPiece -----------------------------------------------------------------------------------


class WordPieces:
    """WordPiece, as BERT cuts: the longest piece that the word begins with, then that of the rest.

    Args:
        model: See `algorithm_of`.
    """

    kind: TokenizerKind = "wordpiece"
    merges = 0

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._ids: dict[str, int] = model["vocab"]
        self._prefix = str(model["continuing_subword_prefix"])
        self._no_piece: int = self._ids[model["unk_token"]]
        self.unknown: int | None = self._no_piece
        self._most = int(model["max_input_chars_per_word"])
        self._longest = max(map(len, self._ids), default=1)

    def make(self, word: str) -> Ladder:
        """See `Algorithm`."""
        if len(word) <= self._most:
            _bound(word, min(len(word), self._longest))
        lengths, ids, at = [], [], 0
        while at < len(word) <= self._most:
            ends = range(min(len(word), at + self._longest), at, -1)
            spelt = ((end, (self._prefix if at else "") + word[at:end]) for end in ends)
            if (found := next((each for each in spelt if each[1] in self._ids), None)) is None:
                break
            lengths.append(found[0] - at)
            ids.append(self._ids[found[1]])
            at = found[0]
        if at < len(word):
            lengths, ids = [len(word)], [self._no_piece]
        return Ladder(tuple(word), (), (), (Segmentation(None, tuple(lengths)),), tuple(ids))

    def joins(self, left: str, right: str) -> bool:
        """See `Algorithm`."""
        return True
