"""A tokenizer taken apart: the words of a text as it sees them, and how each one's tokens came about.

The words are the library's own: its added tokens, normalizer and pre-tokenizer are run with a model in place of its
own whose tokens are the bytes of what reaches it. So nothing of them is written again here, and each word has its
place in the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

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
from engine.tokenizers.algorithms import Ladder, algorithm_of

MOST = 100_000
"""Characters of a text at most: a second of a word without end, and some 300 bytes of the answer each."""
BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
FIRST_BYTE = 2**31
"""Where bytes are tokens of their own, the id of the first: beyond those of all added tokens."""
SPACE = "▁"
"""How sentencepiece spells a space."""


class _Word(Struct, frozen=True):
    """A word as the model sees it."""

    text: str
    begins: tuple[int, ...]
    """Of each of its characters the first character of the text that it comes from."""
    ends: tuple[int, ...]
    ids: tuple[int, ...]
    """The library's tokens."""
    token_ends: tuple[int, ...]
    added: bool


class Apart:
    """A tokenizer that tells how it cuts.

    Args:
        tokenizer: As the library has it; it is not changed.
        name: For the records.

    Raises:
        LoadError: It can't be taken apart; the message says why.
    """

    def __init__(self, tokenizer: Tokenizer, name: str = "") -> None:
        written = tokenizer.to_str()
        file = json.loads(written)
        plain = not (file["truncation"] or file["padding"] or file["post_processor"])
        self._tokenizer, self._name = tokenizer if plain else _cutting(written), name
        try:
            self._algorithm = algorithm_of(file["model"])
        except (KeyError, TypeError, ValueError) as error:  # made by nobody's library
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
        self._words_alone = _cutting(written)
        vocabulary = {name: FIRST_BYTE + byte for name, byte in BYTES.items()}
        self._words_alone.model = BPE(vocab=vocabulary, merges=[], byte_fallback=True)

    def take(
        self,
        text: str,
        begin: int = 0,
        end: int | None = None,
        node: int | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> TakenApart:
        """Take apart how a text is cut.

        Args:
            text: As a raw prompt; without a beginning-of-sequence token.
            begin: See `TakeApart`.
            end: See `TakeApart`.
            node: See `TakeApart`.
            stopped: Whether nobody waits for it any more.

        Raises:
            PromptError: The text is too long, or isn't Unicode, or the tokenizer cuts a word otherwise than it says.
            Cancelled: `stopped` said so.
        """
        _check(text)
        words = [*self._words(text)]
        wanted = [word for word in words if word.ends[-1] > begin and (end is None or word.begins[0] < end)]
        made: list[WordApart] = []
        known: dict[str, list[tuple[int, Ladder]]] = {}
        for word in wanted:
            if stopped():
                raise Cancelled
            made += self._word(word, known)
        tokens = sum(len(word.ids) for word in words)
        size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        algorithm = self._algorithm
        figures = algorithm.kind, size, algorithm.merges, len(text), tokens
        return TakenApart(node, self._name, *figures, tuple(made), algorithm.unknown)

    # ---- words ------------------------------------------------------------------------------

    def _words(self, text: str) -> Iterator[_Word]:
        """The words of a text, and the library's tokens of each; those that come to nothing are left out."""
        with cutting():
            cut = self._tokenizer.encode(text, add_special_tokens=False)
            seen = self._words_alone.encode(text, add_special_tokens=False)
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

    def _word(self, word: _Word, known: dict[str, list[tuple[int, Ladder]]]) -> Iterator[WordApart]:
        """One word, or its parts where it is a whole text: see `_parts`.

        Args:
            word: The word.
            known: What became of words of this text, with the characters of each part; is written to.
        """
        if word.added:
            raw = word.text.encode("utf-8", "replace")
            yield WordApart(
                word.begins[0], word.ends[-1], (raw,), (), (), (), word.ids, word.token_ends, True
            )
            return
        if (parts := known.get(word.text)) is None:
            parts = known[word.text] = self._made(word.text, word.ids)
        place = token = 0
        for length, made in parts:
            last, tokens = place + length - 1, token + len(made.ids)
            yield WordApart(
                word.begins[place],
                word.ends[last],
                tuple(map(self._raw, made.symbols)),
                made.borders,
                made.ranks,
                made.ways,
                made.ids,
                word.token_ends[token:tokens],
            )
            place, token = last + 1, tokens

    def _made(self, word: str, ids: tuple[int, ...]) -> list[tuple[int, Ladder]]:
        """The ladder of a word, checked against the library's tokens.

        Raises:
            PromptError: It comes to other tokens.
        """
        for parts in (self._parts(word), [word]):
            made = [(len(part), self._algorithm.make(part)) for part in parts]
            if tuple(id for _, each in made for id in each.ids) == ids:
                return made
        raise PromptError(
            f"This tokenizer does not cut {word[:40]!r} as its own list of merges says: its merges can't be shown.",
            "Choose another word.",
        )

    def _parts(self, word: str) -> list[str]:
        """A word cut before spaces that no piece reaches over: nothing is merged across them.

        Files made by sentencepiece have no pre-tokenizer: there a whole text is one word.
        """
        begins = [
            place
            for place in range(1, len(word))
            if word[place] in (SPACE, " ") and word[place - 1] not in (SPACE, " ")
            and not self._algorithm.joins(word[place - 1], word[place])
        ]  # fmt: skip
        return [word[begin:end] for begin, end in zip([0, *begins], [*begins, len(word)], strict=True)]

    def _raw(self, symbol: str) -> bytes:
        """The bytes that a symbol stands for."""
        if symbol in BYTES:
            return bytes([BYTES[symbol]])
        symbol = symbol.removeprefix(self._prefix).removesuffix(self._suffix)
        if self._spells_bytes:
            return b"".join(
                bytes([self._byte_of[char]]) if char in self._byte_of else char.encode() for char in symbol
            )
        return symbol.replace(SPACE, " ").encode("utf-8", "replace")


def _check(text: str) -> None:
    if len(text) > MOST:
        raise PromptError(
            f"The text has {len(text):,} characters; {MOST:,} at most can be taken apart.",
            "Give a part of it.",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"The text is not valid Unicode at character {error.start}."
        raise PromptError(message, "Save it as UTF-8 and try again.") from None


def _cutting(written: str) -> Tokenizer:
    """A copy that cuts the whole of a text and adds nothing, and whose tokens have the spaces at their edges."""
    copy = Tokenizer.from_str(written)
    copy.no_truncation()
    copy.no_padding()
    copy.post_processor = ByteLevel(trim_offsets=False)
    return copy


def opened(path: Path, name: str) -> Apart:
    """The tokenizer of a file, without a model.

    Args:
        path: A tokenizer.json.
        name: For the records.

    Raises:
        LoadError: It can't be read, or taken apart.
    """
    read_object(path, VALUES_OF_VOCABULARY)  # its size, before the library reads it
    return Apart(_read(path), name)


@lru_cache(2)
def on_disk(model: str, name: str) -> Apart:
    """The tokenizer of a model on this disk, where there is no engine.

    Args:
        model: `pocket`, a directory with a tokenizer.json, or such a file.
        name: For the records.

    Raises:
        PathError: Nothing can be there.
        LoadError: There is none, or it can't be taken apart.
    """
    path = pocket.directory() if model == "pocket" else typed(model)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not (file.is_file() or model.endswith(".json")):
        raise LoadError(
            f"The tokenizer of {model} isn't on this disk, and this word was not recorded.",
            "Continue live with the model, or choose a word that was recorded.",
        )
    return opened(file, name)


def _read(file: Path) -> Any:
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises Exception itself
        raise LoadError(
            f"{file} can't be read as a tokenizer ({first_line(error, 160)}).",
            "Give the tokenizer.json of a model.",
        ) from error
