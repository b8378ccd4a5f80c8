"""Training text: the user's files or the bundled stories; and the tokenizer trained on it."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from msgspec import Struct
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.errors import Cancelled, PathError
from engine.files import MIB, TEXT_LIMIT, message_and_hint, read_regular, shorter, typed
from engine.settings import TrainingSettings
from engine.task import Stopped, never

STORIES = Path(__file__).parent / "stories.txt.gz"
"""Stories sampled by `tests.make_pocket.distill`."""
END_OF_TEXT = "<|endoftext|>"
"""Separator of the documents in a file; the token with this name precedes each document."""
END_ID = 0
SUFFIXES = (".txt", ".md")
"""Suffixes of the files to read in a folder."""
MOST_FILES = 1000
"""Maximum number of such files in a folder."""
MOST_ENTRIES = 20_000
"""Maximum number of entries in a folder and its subfolders."""
TOKENIZER_TEXT = 2 * MIB
"""Number of characters that the tokenizer is trained on: the pairs that are frequent there are also frequent in the
rest."""
PIECE = 3000
"""Maximum number of characters that are encoded at once. A text without a space is one word to the tokenizer: training
it on a million random letters takes 1.4 s in such pieces, 3.7 s in pieces of 10,000."""
HELD_OUT_SHARE = 0.05
LEAST_ROWS = 2
"""Minimum number of held-out rows of tokens."""
CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": None,
    "eos_token": END_OF_TEXT,
    "clean_up_tokenization_spaces": False,
}
"""Contents of tokenizer_config.json; they can be read without transformers, which takes seconds to import."""


class TrainingText(Struct, frozen=True):
    """The text that a model is trained on."""

    name: str
    """Short description for the user."""
    documents: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the documents, with which a checkpoint recognizes its text."""
        return sha256(END_OF_TEXT.join(self.documents).encode()).hexdigest()


def read_text(paths: Sequence[str]) -> TrainingText:
    """Read the training text.

    Args:
        paths: Files, or folders with `.txt` and `.md` files, also in subfolders; empty for the bundled stories.

    Raises:
        PathError: A path is missing, unreadable or not UTF-8, or there is too much or nothing to read.
    """
    if not paths:
        documents = _documents(gzip.decompress(STORIES.read_bytes()).decode())
        return TrainingText(f"{len(documents)} stories told by the pocket model", documents)
    files = [file for path in paths for file in _files(typed(path))]
    documents, size = (), 0
    for file in files:
        try:
            text = read_regular(file, max(0, TEXT_LIMIT - size)).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            message = f"{shorter(file)} is not UTF-8 (at byte {error.start:,})."
            raise PathError(message, "Convert it first, with iconv for example.") from None
        except OSError as error:
            raise PathError(*message_and_hint(file, error)) from error
        size += len(text.encode())
        documents += _documents(text)
    if not documents:
        raise PathError(f"There is no text in {shorter(paths[0])}.", "Give a file with some text in it.")
    return TrainingText(shorter(files[0].name) if len(files) == 1 else f"{len(files)} files", documents)


def _documents(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(END_OF_TEXT) if part.strip())


def _files(path: Path) -> list[Path]:
    """The files of a path: the file itself, or those of a folder, sorted by name."""

    def refuse(error: OSError) -> NoReturn:
        raise PathError(*message_and_hint(error.filename, error)) from error

    if not path.is_dir():
        return [path]
    found: list[Path] = []
    seen = 0
    for folder, folders, names in os.walk(path, onerror=refuse):
        seen += len(folders) + len(names)
        if seen > MOST_ENTRIES:
            message = f"{shorter(path)} has more than {MOST_ENTRIES:,} files in it."
            raise PathError(message, "Give a smaller folder, or a file.")
        folders[:] = [name for name in folders if not name.startswith(".")]
        files = [Path(folder, name) for name in names if not name.startswith(".")]
        found += [file for file in files if file.suffix.lower() in SUFFIXES and not file.is_symlink()]
    if not found:
        hint = f"Give a folder with {' or '.join(SUFFIXES)} files, or a file."
        raise PathError(f"There is no text in {shorter(path)}.", hint)
    if len(found) > MOST_FILES:
        message = f"{shorter(path)} has {len(found):,} texts, more than {MOST_FILES:,}."
        raise PathError(message, "Give a smaller folder, or put them into one file.")
    return sorted(found)


# ---- the tokenizer ------------------------------------------------------------------------------


def train_tokenizer(text: TrainingText, vocabulary: int) -> tuple[Any, float]:
    """Train a byte-level BPE tokenizer, which can encode any text.

    Args:
        text: The training text; only its first `TOKENIZER_TEXT` characters are used.
        vocabulary: Maximum number of tokens.

    Returns:
        The tokenizer, and the milliseconds of its training.
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
    tokenizer.train_from_iterator(_beginning(text, TOKENIZER_TEXT), trainer)
    return tokenizer, (time.perf_counter() - started) * 1000


def _beginning(text: TrainingText, characters: int) -> Iterator[str]:
    for document in text.documents:
        for piece in _pieces(document):
            if characters <= 0:
                return
            yield piece[:characters]
            characters -= len(piece)


def _pieces(document: str) -> Iterator[str]:
    return (document[start : start + PIECE] for start in range(0, len(document), PIECE))


def encode(
    text: TrainingText, tokenizer: Any, settings: TrainingSettings, stopped: Stopped = never
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Encode a text, each document after an end-of-text token.

    Returns:
        Token ids to train on, and held-out token ids from the end of the text; int32, shape (rows, tokens).

    Raises:
        Cancelled: `stopped` returned True.
        PathError: The text is too short.
    """
    ids: list[int] = []
    for document in text.documents:
        ids.append(END_ID)
        for piece in _pieces(document):
            if stopped():
                raise Cancelled
            ids += tokenizer.encode(piece, add_special_tokens=False).ids
    row = settings.row_tokens + 1
    held_out = max(LEAST_ROWS * row, round(len(ids) * HELD_OUT_SHARE))
    if len(ids) < held_out + 2 * row:
        message = f"The text has {len(ids):,} tokens, too few for rows of {settings.row_tokens}."
        raise PathError(message, "Give a longer text, or shorter rows (--batch 8x16).")
    encoded = np.array(ids, np.int32)
    return encoded[:-held_out], encoded[-held_out:]


def write_tokenizer(tokenizer: Any, directory: Path) -> None:
    """Write the files from which mlx_lm loads the tokenizer."""
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
