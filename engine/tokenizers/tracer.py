"""Traces of a tokenizer: the words of a text, and the merges or pieces that give the tokens of each word.

The library itself finds the words: its added tokens, normalizer and pre-tokenizer run with a model that turns each byte
into a token. So none of them is reimplemented here, and the position of each word in the text is known.

The algorithms repeat the work of the `tokenizers` library, which returns tokens without the steps that lead to them;
the tokens of each word are compared with the library's. The time is O(n log n) in the characters of a word, so that
texts without a space can be traced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.processors import ByteLevel

from engine import pocket
from engine.errors import Cancelled, LoadError, PromptError, cutting, first_line, not_unicode_at
from engine.files import typed
from engine.model.directory import VALUES_OF_VOCABULARY, read_object
from engine.protocol import Segmentation, TakenApart, TokenizerKind, WordApart
from engine.token_texts import alphabet

# ---- the algorithms on one word ----------------------------------------------------------------

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
            why = "it looks whole words up and cuts none"
            message = f"A tokenizer of kind {kind} can't be taken apart: {why}."
            raise LoadError(message, "BPE, unigram and WordPiece can be.")


def _check_work(word: str, lengths: int) -> None:
    """Refuse a word that would take too long.

    Args:
        word: The word to trace.
        lengths: Number of different lengths of the pieces.

    Raises:
        PromptError: More than `MOST_TRIED` pieces would be tried.
    """
    if len(word) * lengths > MOST_TRIED:
        message = f"A word of {len(word):,} characters takes too long with the long pieces of this tokenizer."
        raise PromptError(message, "Give a shorter text, or one with spaces.")


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
        self._pairs: list[tuple[str, str]] = [(left, right) for left, right in model["merges"]]
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
        borders, ranks = zip(*merged, strict=True) if (merged := self._merge(ids)) else ((), ())
        names = tuple(symbol for symbol, _ in symbols)
        return WordTrace(names, borders, ranks, (), tuple(id for id in ids if id >= 0))

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
            suffix = self._suffix if place == len(word) - 1 else ""
            spelled = f"{self._prefix if place else ''}{char}{suffix}"
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
        found = ((self._merge_of.get(pair), place) for place, pair in enumerate(pairwise(ids)))
        queue = [(merge[0], place, merge[1]) for merge, place in found if merge]
        heapify(queue)
        while queue:
            _, place, new = heappop(queue)
            right = after[place]
            if ids[place] < 0 or right == len(ids):
                continue
            known = self._merge_of.get((ids[place], ids[right]))
            if known is None or known[1] != new:
                continue
            ids[place], ids[right], after[place] = new, -1, after[right]
            if after[right] < len(ids):
                before[after[right]] = place
            for first, second in ((before[place], place), (place, after[place])):
                inside = first >= 0 and second < len(ids)
                if inside and (merge := self._merge_of.get((ids[first], ids[second]))):
                    heappush(queue, (merge[0], first, merge[1]))
            merged.append((right, known[0]))
        return merged


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


# ---- the words of a text -----------------------------------------------------------------------

MOST_CHARACTERS = 100_000
"""Maximum length of a text: as a single word it takes a second, and the answer some 300 bytes per character."""
BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
FIRST_BYTE = 2**31
"""Id of byte 0 in the model of single bytes: above the ids of all added tokens."""
SPACE = "▁"
"""Spelling of a space in sentencepiece."""


class _Word(Struct, frozen=True):
    """A word as the tokenizer's model gets it."""

    text: str
    begins: tuple[int, ...]
    """Index in the text of the first character that each of the word's characters comes from."""
    ends: tuple[int, ...]
    """Index in the text after the last character that each of the word's characters comes from."""
    ids: tuple[int, ...]
    """Token ids from the library."""
    token_ends: tuple[int, ...]
    added: bool
    """True if it is an added token."""


class TokenizerTracer:
    """Traces how a tokenizer splits texts.

    Args:
        tokenizer: The library's object; not modified.
        name: Name of the model or the file, for the records.

    Raises:
        LoadError: The tokenizer can't be traced; the message gives the reason.
    """

    def __init__(self, tokenizer: Tokenizer, name: str = "") -> None:
        written = tokenizer.to_str()
        file = json.loads(written)
        plain = not (file["truncation"] or file["padding"] or file["post_processor"])
        self._tokenizer, self._name = tokenizer if plain else _complete(written), name
        try:
            self._algorithm = algorithm_of(file["model"])
        except (KeyError, TypeError, ValueError) as error:  # a file that the library didn't write
            why = f"{type(error).__name__}: {first_line(error, 80)}"
            message = f"The tokenizer's lists don't fit together ({why})."
            raise LoadError(message, "Download its files again.") from error
        parts = [file["pre_tokenizer"], file["normalizer"], file["decoder"]]
        self._spells_bytes = "ByteLevel" in json.dumps(parts)
        self._prefix = str(file["model"].get("continuing_subword_prefix") or "")
        self._suffix = str(file["model"].get("end_of_word_suffix") or "")
        self._byte_of = alphabet() if self._spells_bytes else {}
        self._word_bytes = _complete(written)
        vocabulary = {name: FIRST_BYTE + byte for name, byte in BYTES.items()}
        self._word_bytes.model = BPE(vocab=vocabulary, merges=[], byte_fallback=True)

    def trace(
        self,
        text: str,
        begin: int = 0,
        end: int | None = None,
        node: int | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> TakenApart:
        """Trace how a text is split.

        Args:
            text: Text to split, as a raw prompt without a beginning-of-sequence token.
            begin: See `TakeApart`.
            end: See `TakeApart`.
            node: See `TakeApart`.
            stopped: Returns True once the answer is no longer needed.

        Raises:
            PromptError: The text is too long or not Unicode, or the traced tokens differ from the library's.
            Cancelled: `stopped` returned True.
        """
        _check(text)
        words = [*self._words(text)]
        traced: list[WordApart] = []
        known: dict[str, list[tuple[int, WordTrace]]] = {}
        for word in words:
            if word.ends[-1] <= begin or (end is not None and word.begins[0] >= end):
                continue
            if stopped():
                raise Cancelled
            if word.text not in known and not word.added:
                known[word.text] = self._traces(word.text, word.ids)
            traced += self._records(word, known.get(word.text, []))
        return TakenApart(
            node=node,
            name=self._name,
            algorithm=self._algorithm.kind,
            vocabulary=self._tokenizer.get_vocab_size(with_added_tokens=True),
            merges=self._algorithm.merges,
            characters=len(text),
            tokens=sum(len(word.ids) for word in words),
            words=tuple(traced),
            unknown=self._algorithm.unknown,
        )

    def _words(self, text: str) -> Iterator[_Word]:
        """The words of a text with the library's tokens; words that the normalizer empties are skipped."""
        with cutting():
            cut = self._tokenizer.encode(text, add_special_tokens=False)
            seen = self._word_bytes.encode(text, add_special_tokens=False)
        ids, ends = cut.ids, [end for _, end in cut.offsets]
        tokens = {word: [*places] for word, places in groupby(range(len(ids)), cut.word_ids.__getitem__)}
        bytes_seen, spans = seen.ids, seen.offsets
        for number, places in groupby(range(len(bytes_seen)), seen.word_ids.__getitem__):
            own = [*places]
            begin, end = spans[own[0]][0], spans[own[-1]][1]
            cuts = tokens.get(number, [])
            token_ids, token_ends = tuple(ids[place] for place in cuts), tuple(ends[place] for place in cuts)
            if bytes_seen[own[0]] < FIRST_BYTE:
                yield _Word(text[begin:end], (begin,), (end,), token_ids, token_ends, True)
                continue
            raw = bytes(bytes_seen[place] - FIRST_BYTE for place in own)
            chars = [place for place, byte in enumerate(raw) if byte & 0xC0 != 0x80]
            begins = tuple(spans[own[place]][0] for place in chars)
            char_ends = tuple(spans[own[place]][1] for place in chars)
            yield _Word(raw.decode("utf-8", "replace"), begins, char_ends, token_ids, token_ends, False)

    def _traces(self, word: str, ids: tuple[int, ...]) -> list[tuple[int, WordTrace]]:
        """Trace a word, in parts if that gives the library's tokens; returns the number of characters and the trace of
        each part.

        Raises:
            PromptError: The traced tokens differ from the library's.
        """
        for parts in (self._parts(word), [word]):
            traces = [(len(part), self._algorithm.trace(part)) for part in parts]
            if tuple(id for _, trace in traces for id in trace.ids) == ids:
                return traces
        raise PromptError(
            f"This tokenizer does not cut {word[:40]!r} as its own list of merges says: its merges can't be shown.",
            "Choose another word.",
        )

    def _parts(self, word: str) -> list[str]:
        """Split a word before spaces that never follow a character in any piece, since nothing is merged across them.

        Files made by sentencepiece have no pre-tokenizer, so that an entire text is one word.
        """
        begins = [
            place
            for place in range(1, len(word))
            if word[place] in (SPACE, " ") and word[place - 1] not in (SPACE, " ")
            and not self._algorithm.may_join(word[place - 1], word[place])
        ]  # fmt: skip
        return [word[begin:end] for begin, end in zip([0, *begins], [*begins, len(word)], strict=True)]

    def _records(self, word: _Word, traces: list[tuple[int, WordTrace]]) -> Iterator[WordApart]:
        """Records of a word: one for an added token, otherwise one for each part."""
        if word.added:
            raw = word.text.encode("utf-8", "replace")
            begin, end = word.begins[0], word.ends[-1]
            yield WordApart(begin, end, (raw,), (), (), (), word.ids, word.token_ends, True)
            return
        place = token = 0
        for length, trace in traces:
            after, token_after = place + length, token + len(trace.ids)
            begin, end = word.begins[place], word.ends[after - 1]
            symbols, ends = tuple(map(self._raw, trace.symbols)), word.token_ends[token:token_after]
            yield WordApart(begin, end, symbols, trace.borders, trace.ranks, trace.ways, trace.ids, ends)
            place, token = after, token_after

    def _raw(self, symbol: str) -> bytes:
        """Bytes that a symbol stands for."""
        if symbol in BYTES:
            return bytes([BYTES[symbol]])
        symbol = symbol.removeprefix(self._prefix).removesuffix(self._suffix)
        if self._spells_bytes:
            known = self._byte_of
            return b"".join(bytes([known[char]]) if char in known else char.encode() for char in symbol)
        return symbol.replace(SPACE, " ").encode("utf-8", "replace")


def _check(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        message = f"The text has {len(text):,} characters; {MOST_CHARACTERS:,} at most can be taken apart."
        raise PromptError(message, "Give a part of it.")
    if (place := not_unicode_at(text)) is not None:
        message = f"The text is not valid Unicode at character {place}."
        raise PromptError(message, "Save it as UTF-8 and try again.")


def _complete(written: str) -> Tokenizer:
    """Copy a tokenizer without truncation and padding, and with spaces at the edges of tokens included."""
    copy = Tokenizer.from_str(written)
    copy.no_truncation()
    copy.no_padding()
    copy.post_processor = ByteLevel(trim_offsets=False)
    return copy


def opened(path: Path, name: str) -> TokenizerTracer:
    """Open the tokenizer of a file, without a model.

    Args:
        path: A tokenizer.json.
        name: Name for the records.

    Raises:
        LoadError: The file can't be read or traced.
    """
    read_object(path, VALUES_OF_VOCABULARY)  # checks its size before the library reads it
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        message = f"{path} can't be read as a tokenizer ({first_line(error, 160)})."
        raise LoadError(message, "Give the tokenizer.json of a model.") from error
    return TokenizerTracer(tokenizer, name)


@lru_cache(2)
def on_disk(model: str, name: str) -> TokenizerTracer:
    """Open the tokenizer of a model on this disk, without an engine.

    Args:
        model: `pocket`, a directory with a tokenizer.json, or such a file.
        name: Name for the records.

    Raises:
        PathError: The path is not valid.
        LoadError: There is no tokenizer, or it can't be traced.
    """
    path = pocket.directory() if model == "pocket" else typed(model)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not (file.is_file() or model.endswith(".json")):
        message = f"The tokenizer of {model} isn't on this disk, and this word was not recorded."
        raise LoadError(message, "Continue live with the model, or choose a word that was recorded.")
    return opened(file, name)
