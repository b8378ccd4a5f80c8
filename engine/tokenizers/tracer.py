"""Traces of a tokenizer: the words of a text, and the merges or pieces that give the tokens of each word.

The library itself finds the words: its added tokens, normalizer and pre-tokenizer run with a model that turns each byte
into a token. So none of them is reimplemented here, and the position of each word in the text is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from msgspec import Struct
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.processors import ByteLevel

from engine import pocket
from engine.errors import Cancelled, LoadError, PromptError, cutting, first_line
from engine.files import typed
from engine.model.directory import VALUES_OF_VOCABULARY, read_object
from engine.protocol import TakenApart, WordApart
from engine.token_texts import alphabet
from engine.tokenizers.algorithms import WordTrace, algorithm_of

MOST_CHARACTERS = 100_000
"""Maximum length of a text: as a single word it takes a second, and the answer some 300 bytes a character."""
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
            message = (
                f"The tokenizer's lists don't fit together ({type(error).__name__}: {first_line(error, 80)})."
            )
            raise LoadError(message, "Download its files again.") from error
        self._spells_bytes = "ByteLevel" in json.dumps(
            [file["pre_tokenizer"], file["normalizer"], file["decoder"]]
        )
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
            traced += self._records(word, known)
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

    def _records(self, word: _Word, known: dict[str, list[tuple[int, WordTrace]]]) -> Iterator[WordApart]:
        """Records of a word: one for an added token, otherwise one for each part."""
        if word.added:
            raw = word.text.encode("utf-8", "replace")
            yield WordApart(
                word.begins[0], word.ends[-1], (raw,), (), (), (), word.ids, word.token_ends, True
            )
            return
        place = token = 0
        for length, trace in known[word.text]:
            after, token_after = place + length, token + len(trace.ids)
            yield WordApart(
                word.begins[place],
                word.ends[after - 1],
                tuple(map(self._raw, trace.symbols)),
                trace.borders,
                trace.ranks,
                trace.ways,
                trace.ids,
                word.token_ends[token:token_after],
            )
            place, token = after, token_after

    def _raw(self, symbol: str) -> bytes:
        """Bytes that a symbol stands for."""
        if symbol in BYTES:
            return bytes([BYTES[symbol]])
        symbol = symbol.removeprefix(self._prefix).removesuffix(self._suffix)
        if self._spells_bytes:
            return b"".join(
                bytes([self._byte_of[char]]) if char in self._byte_of else char.encode() for char in symbol
            )
        return symbol.replace(SPACE, " ").encode("utf-8", "replace")


def _check(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise PromptError(
            f"The text has {len(text):,} characters; {MOST_CHARACTERS:,} at most can be taken apart.",
            "Give a part of it.",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"The text is not valid Unicode at character {error.start}."
        raise PromptError(message, "Save it as UTF-8 and try again.") from None


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
        raise LoadError(
            f"{path} can't be read as a tokenizer ({first_line(error, 160)}).",
            "Give the tokenizer.json of a model.",
        ) from error
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
        raise LoadError(
            f"The tokenizer of {model} isn't on this disk, and this word was not recorded.",
            "Continue live with the model, or choose a word that was recorded.",
        )
    return opened(file, name)
