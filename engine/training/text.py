"""What a model learns from: a person's own texts, or the stories that come with the program; and its tokenizer."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.errors import Cancelled, PathError
from engine.files import MIB, TEXT_LIMIT, message_and_hint, read_regular, shorter, typed
from engine.settings import TrainingSettings
from engine.task import Stopped, never

STORIES = Path(__file__).parent / "stories.txt.gz"
"""What `tests.make_pocket.distill` wrote."""
END_OF_TEXT = "<|endoftext|>"
"""Separates two texts of a file; the token of that name stands before each text."""
END_ID = 0
SUFFIXES = (".txt", ".md")
"""Of the files of a folder that are read."""
MOST_FILES = 1000
"""Of a folder."""
MOST_ENTRIES = 20_000
"""Of a folder and those in it that are looked at."""
TOKENIZER_TEXT = 2 * MIB
"""Characters that the tokenizer is trained on: pairs that are frequent there are so in the rest."""
PIECE = 3000
"""Characters of a text that are encoded at once. A text without a blank is one word to the tokenizer: to train it on a
million random letters takes 1.4 s in such pieces, 3.7 s in those of 10,000."""
HELD_OUT_SHARE = 0.05
LEAST_ROWS = 2
"""Rows of tokens that must be held out."""
CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": None,
    "eos_token": END_OF_TEXT,
    "clean_up_tokenization_spaces": False,
}
"""tokenizer_config.json: nothing that asks for transformers, which takes seconds to import."""


class TrainingText(Struct, frozen=True):
    """The text that a model learns from."""

    name: str
    """In a few words."""
    documents: tuple[str, ...]
    digest: str
    """SHA-256, by which a checkpoint knows its text again."""


def read_text(paths: Sequence[str]) -> TrainingText:
    """Read the texts.

    Args:
        paths: Files, or folders whose `.txt` and `.md` files are read, those in folders below, too; none for the
            stories that come with the program.

    Raises:
        PathError: One isn't there, can't be read or is no UTF-8, or there is too much or nothing to read.
    """
    if not paths:
        documents = _documents(gzip.decompress(STORIES.read_bytes()).decode())
        return TrainingText(
            f"{len(documents)} stories told by the pocket model", documents, _digest(documents)
        )
    files = [file for path in paths for file in _files(typed(path))]
    documents, size = (), 0
    for file in files:
        text = _read(file, TEXT_LIMIT - size)
        size += len(text.encode())
        documents += _documents(text)
    if not documents:
        raise PathError(f"There is no text in {shorter(paths[0])}.", "Give a file with some text in it.")
    name = shorter(files[0].name) if len(files) == 1 else f"{len(files)} files"
    return TrainingText(name, documents, _digest(documents))


def _files(path: Path) -> list[Path]:
    """The files that a path stands for: itself, or those of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    found = sorted(_in_folder(path))
    if not found:
        hint = f"Give a folder with {' or '.join(SUFFIXES)} files, or a file."
        raise PathError(f"There is no text in {shorter(path)}.", hint)
    if len(found) > MOST_FILES:
        message = f"{shorter(path)} has {len(found):,} texts, more than {MOST_FILES:,}."
        raise PathError(message, "Give a smaller folder, or put them into one file.")
    return found


def _in_folder(path: Path) -> Iterator[Path]:
    seen, folders = 0, [path]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(folder.iterdir())
        except OSError as error:
            raise PathError(*message_and_hint(folder, error)) from error
        seen += len(entries)
        if seen > MOST_ENTRIES:
            message = f"{shorter(path)} has more than {MOST_ENTRIES:,} files in it."
            raise PathError(message, "Give a smaller folder, or a file.")
        for entry in entries:
            if entry.is_symlink() or entry.name.startswith("."):
                continue
            if entry.is_dir():
                folders.append(entry)
            elif entry.suffix.lower() in SUFFIXES:
                yield entry


def _read(path: Path, most: int) -> str:
    try:
        return read_regular(path, max(0, most)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{shorter(path)} is not UTF-8 (at byte {error.start:,})."
        raise PathError(message, "Convert it first, with iconv for example.") from None
    except OSError as error:
        raise PathError(*message_and_hint(path, error)) from error


def _documents(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(END_OF_TEXT) if part.strip())


def _digest(documents: Sequence[str]) -> str:
    return sha256(END_OF_TEXT.join(documents).encode()).hexdigest()


# ---- the tokenizer ------------------------------------------------------------------------------


def train_tokenizer(text: TrainingText, vocabulary: int) -> tuple[Any, float]:
    """A byte-level BPE tokenizer learned from a text: any text at all can be encoded with it.

    Args:
        text: Its first `TOKENIZER_TEXT` characters count.
        vocabulary: Tokens at most.

    Returns:
        The tokenizer, and the ms for which it was trained.
    """
    started = time.perf_counter()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_pieces(text, TOKENIZER_TEXT), trainer)
    return tokenizer, (time.perf_counter() - started) * 1000


def _pieces(text: TrainingText, most: int) -> Iterator[str]:
    for document in text.documents:
        for start in range(0, len(document), PIECE):
            if most <= 0:
                return
            piece = document[start : start + min(PIECE, most)]
            most -= len(piece)
            yield piece


class TrainingTokens(Struct, frozen=True):
    """The token ids of a text, one long row each."""

    train: np.ndarray[Any, Any]
    held_out: np.ndarray[Any, Any]
    """The end of the text."""


def encode(
    text: TrainingText, tokenizer: Any, settings: TrainingSettings, stopped: Stopped = never
) -> TrainingTokens:
    """The ids of a text, each document behind the token that ends the one before.

    Raises:
        Cancelled: `stopped` returned True.
        PathError: The text is too short.
    """
    ids: list[int] = []
    for document in text.documents:
        ids.append(END_ID)
        for start in range(0, len(document), PIECE):
            if stopped():
                raise Cancelled
            ids += tokenizer.encode(document[start : start + PIECE], add_special_tokens=False).ids
    row = settings.row_tokens + 1
    held_out = max(LEAST_ROWS * row, round(len(ids) * HELD_OUT_SHARE))
    if len(ids) < held_out + 2 * row:
        message = f"The text has {len(ids):,} tokens, too few for rows of {settings.row_tokens}."
        raise PathError(message, "Give a longer text, or shorter rows (--batch 8x16).")
    whole = np.array(ids, np.int32)
    return TrainingTokens(whole[:-held_out], whole[-held_out:])


def write_tokenizer(tokenizer: Any, directory: Path) -> None:
    """Write the files from which mlx_lm loads it."""
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
