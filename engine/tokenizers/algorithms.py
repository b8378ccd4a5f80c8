"""Tokenizer algorithms on one word: byte-pair merges, a unigram's best segmentations, WordPiece's longest match.

They repeat the work of the `tokenizers` library, which returns tokens without the steps that lead to them; `tracer`
compares the tokens of each word with the library's. The time is O(n log n) in the characters of a word, so that texts
without a space can be traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from typing import Any, NamedTuple

from engine.errors import LoadError, PromptError
from engine.protocol import Segmentation, TokenizerKind

MOST_SEGMENTATIONS = 4
"""Number of segmentations that a unigram model reports for a word."""
MOST_TRIED = 4_000_000
"""Maximum number of pieces tried in one word, which takes two seconds. A word of 100,000 characters takes half as many
if the vocabulary's pieces have twenty different lengths."""
UNKNOWN_PENALTY = 10.0
"""Score of a character that no piece matches, below that of the least likely piece, as in sentencepiece."""


class WordTrace(NamedTuple):
    """Steps from one word to its tokens; see `engine.protocol.WordApart`."""

    symbols: tuple[str, ...]
    """Symbols before the first merge: characters as the model spells them, or bytes as `<0xE2>`."""
    borders: tuple[int, ...]
    ranks: tuple[int, ...]
    ways: tuple[Segmentation, ...]
    ids: tuple[int, ...]


def algorithm_of(model: Mapping[str, Any]) -> Algorithm:
    """The algorithm of a tokenizer.

    Each has its `kind`, the number of `merges` in its list, `unknown` (id of the token for text that no piece matches,
    None if there is no such token), and two methods. `trace` takes a word after normalizer and pre-tokenizer.
    `may_join` is False for two characters that no piece has next to each other, so that a word can be split between
    them.

    Args:
        model: The `model` object of a tokenizer.json, as the library writes it.

    Raises:
        LoadError: Its type can't be traced.
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


def _check_work(word: str, lengths: int) -> None:
    """Refuse a word that would take too long.

    Args:
        word: The word to trace.
        lengths: Number of different lengths of the pieces.

    Raises:
        PromptError: More than `MOST_TRIED` pieces would be tried.
    """
    if len(word) * lengths > MOST_TRIED:
        raise PromptError(
            f"A word of {len(word):,} characters takes too long with the long pieces of this tokenizer.",
            "Give a shorter text, or one with spaces.",
        )


def _byte_tokens(char: str, ids: Mapping[str, int]) -> list[tuple[str, int]]:
    """Byte tokens of a character, as (name, id); empty unless every byte has one."""
    names = [f"<0x{byte:02X}>" for byte in char.encode("utf-8", "replace")]
    return [(name, ids[name]) for name in names] if all(name in ids for name in names) else []


class BytePairs:
    """Byte-pair encoding (Sennrich et al. 2016): merge the pair with the lowest rank until no pair is in the list.

    Args:
        model: See `algorithm_of`.
    """

    kind: TokenizerKind = "bpe"

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._ids: dict[str, int] = model["vocab"]
        self._prefix = model.get("continuing_subword_prefix") or ""
        self._suffix = model.get("end_of_word_suffix") or ""
        self.unknown: int | None = self._ids.get(model.get("unk_token") or "")
        self._fuses_unknown, self._falls_back = model.get("fuse_unk"), model.get("byte_fallback")
        self._ignores_merges = model.get("ignore_merges")
        self._pairs = [_pair(merge) for merge in model["merges"]]
        self.merges = len(self._pairs)
        self._merge_of: dict[tuple[int, int], tuple[int, int]] = {}
        """Rank and merged id by pair of ids; a pair that is listed twice has its last rank, as in the library."""
        for rank, (left, right) in enumerate(self._pairs):
            new = self._ids[left + right[len(self._prefix) :]]
            self._merge_of[self._ids[left], self._ids[right]] = rank, new

    def trace(self, word: str) -> WordTrace:
        if self._ignores_merges and word in self._ids:
            return WordTrace((word,), (), (), (), (self._ids[word],))
        symbols = self._symbols(word)
        ids = [id for _, id in symbols]
        merged = self._merge(ids)
        borders, ranks = tuple(border for border, _ in merged), tuple(rank for _, rank in merged)
        return WordTrace(
            tuple(symbol for symbol, _ in symbols), borders, ranks, (), tuple(id for id in ids if id >= 0)
        )

    def may_join(self, left: str, right: str) -> bool:
        return bool(self._prefix or self._suffix) or (left, right) in self._neighbors

    @cached_property
    def _neighbors(self) -> frozenset[tuple[str, str]]:
        return frozenset((left[-1:], right[:1]) for left, right in self._pairs)

    def _symbols(self, word: str) -> list[tuple[str, int]]:
        """Symbols of a word and their ids; characters without a token are dropped, as in the library."""
        symbols: list[tuple[str, int]] = []
        unknown = ""
        for place, char in enumerate(word):
            spelled = (
                (self._prefix if place else "") + char + (self._suffix if place == len(word) - 1 else "")
            )
            id = self._ids.get(spelled)
            if id is None and self._falls_back and (bytes_ := _byte_tokens(spelled, self._ids)):
                symbols += bytes_  # earlier unknown characters come after them, as in the library
                continue
            if self.unknown is not None:
                if unknown and (id is not None or not self._fuses_unknown):
                    symbols.append((unknown, self.unknown))
                    unknown = ""
                unknown += "" if id is not None else char
            if id is not None:
                symbols.append((spelled, id))
        if unknown and self.unknown is not None:
            symbols.append((unknown, self.unknown))
        return symbols

    def _merge(self, ids: list[int]) -> list[tuple[int, int]]:
        """Merge pair after pair.

        Args:
            ids: Ids of the symbols, modified in place: a merged pair becomes its new id, then -1.

        Returns:
            For each merge the index of the symbol after the removed border, and its rank.
        """
        merged: list[tuple[int, int]] = []
        after, before = [*range(1, len(ids) + 1)], [*range(-1, len(ids) - 1)]
        queue = [
            (merge[0], place, merge[1])
            for place, pair in enumerate(pairwise(ids))
            if (merge := self._merge_of.get(pair))
        ]
        heapify(queue)
        while queue:
            _, place, new = heappop(queue)
            right = after[place]
            if ids[place] < 0 or right == len(ids):
                continue
            found = self._merge_of.get((ids[place], ids[right]))
            if found is None or found[1] != new:
                continue
            ids[place], ids[right], after[place] = new, -1, after[right]
            if after[right] < len(ids):
                before[after[right]] = place
            for first, second in ((before[place], place), (place, after[place])):
                if (
                    first >= 0
                    and second < len(ids)
                    and (merge := self._merge_of.get((ids[first], ids[second])))
                ):
                    heappush(queue, (merge[0], first, merge[1]))
            merged.append((right, found[0]))
        return merged


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


class Unigram:
    """A unigram language model (Kudo 2018): the segmentation with the highest sum of log probabilities.

    Args:
        model: See `algorithm_of`.
    """

    kind: TokenizerKind = "unigram"
    merges = 0

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._scores = {str(piece): float(score) for piece, score in model["vocab"]}
        self._ids = {str(piece): id for id, (piece, _) in enumerate(model["vocab"])}
        self.unknown: int | None = model.get("unk_id")
        self._falls_back = model.get("byte_fallback")
        self._sizes = sorted({1, *map(len, self._scores)} - {0}, reverse=True)
        """Different lengths of the pieces in characters, longest first."""
        self._unknown_score = min(self._scores.values(), default=0.0) - UNKNOWN_PENALTY

    def trace(self, word: str) -> WordTrace:
        ways = self._segmentations(word)
        ids: list[int] = []
        at = 0
        for length in ways[0].lengths if ways else ():
            piece = word[at : at + length]
            at += length
            if piece in self._ids:
                ids.append(self._ids[piece])
            elif self._falls_back and (bytes_ := _byte_tokens(piece, self._ids)):
                ids += [id for _, id in bytes_]
            elif self.unknown is not None:
                ids.append(self.unknown)
        return WordTrace(tuple(word), (), (), ways, tuple(ids))

    def may_join(self, left: str, right: str) -> bool:
        return (left, right) in self._neighbors

    @cached_property
    def _neighbors(self) -> frozenset[tuple[str, str]]:
        return frozenset(chain.from_iterable(map(pairwise, self._scores)))

    def _segmentations(self, word: str) -> tuple[Segmentation, ...]:
        """The best segmentations, best first; ties are in the order of the begin of their last piece."""
        _check_work(word, len(self._sizes))
        best: list[list[tuple[float, int, int]]] = [[(0.0, 0, 0)]]
        """Best segmentations up to each position: score, begin of the last piece, index among those to it."""
        for end in range(1, len(word) + 1):
            found: list[tuple[float, int, int]] = []
            for begin in (end - size for size in self._sizes if size <= end):
                score = self._scores.get(word[begin:end])
                if score is None and end - begin == 1:
                    score = self._unknown_score
                if score is not None:
                    found += [(way[0] + score, begin, place) for place, way in enumerate(best[begin])]
            found.sort(key=lambda way: -way[0])
            best.append(found[:MOST_SEGMENTATIONS])
        ways = best[-1] if word else ()
        return tuple(Segmentation(way[0], self._lengths(word, best, place)) for place, way in enumerate(ways))

    def _lengths(self, word: str, best: list[list[tuple[float, int, int]]], place: int) -> tuple[int, ...]:
        """Lengths of one segmentation's pieces; adjacent unknown characters are one piece, as in the library."""
        lengths: list[int] = []
        end, unknown_after = len(word), False
        while end:
            _, begin, place = best[end][place]
            unknown = word[begin:end] not in self._scores
            if unknown and unknown_after:
                lengths[-1] += end - begin
            else:
                lengths.append(end - begin)
            end, unknown_after = begin, unknown
        return tuple(reversed(lengths))


class WordPieces:
    """WordPiece, as in BERT: the longest piece at the beginning of the word, then the same for the rest.

    Args:
        model: See `algorithm_of`.
    """

    kind: TokenizerKind = "wordpiece"
    merges = 0

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._ids: dict[str, int] = model["vocab"]
        self._prefix = str(model["continuing_subword_prefix"])
        self.unknown: int = self._ids[model["unk_token"]]
        self._most_characters = int(model["max_input_chars_per_word"])
        self._longest = max(map(len, self._ids), default=1)

    def trace(self, word: str) -> WordTrace:
        if len(word) <= self._most_characters:
            _check_work(word, min(len(word), self._longest))
        lengths, ids, at = [], [], 0
        while at < len(word) <= self._most_characters:
            for end in range(min(len(word), at + self._longest), at, -1):
                id = self._ids.get((self._prefix if at else "") + word[at:end])
                if id is not None:
                    break
            else:
                break
            lengths.append(end - at)
            ids.append(id)
            at = end
        if at < len(word):
            lengths, ids = [len(word)], [self.unknown]
        return WordTrace(tuple(word), (), (), (Segmentation(None, tuple(lengths)),), tuple(ids))

    def may_join(self, left: str, right: str) -> bool:
        return True


Algorithm = BytePairs | Unigram | WordPieces
