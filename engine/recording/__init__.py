"""Recordings: everything that happened in a session, as data.

A recording is a header and an entry for each record in the order in which the engine emitted them, settings in force
among them, each with its time. Feeding them to the screen's timeline in order gives the same screen, without MLX.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import (
    MOST_PACKED,
    GrammarExpected,
    Loading,
    LogitsRow,
    LookedAhead,
    ModelFacts,
    ModelVocabulary,
    Prefilled,
    PromptOpened,
    PromptPreview,
    Restoring,
    Step,
)
from engine.recording.file import (
    Entry,
    Header,
    Kept,
    RecordingReader,
    as_json,
    asked,
    question,
    save_as,
    uncollected,
)
from engine.recording.journal import Journal, RecordingChanged, in_use

__all__ = [
    "Entry", "Header", "Journal", "Kept", "Peek", "RecordedSession", "RecordingChanged", "RecordingReader", "as_json",
    "asked", "in_use", "load", "peek", "placed", "question", "save_as", "worth_keeping",
]  # fmt: skip


class RecordedSession(Struct):
    """A whole recording in memory."""

    header: Header
    entries: list[Entry]
    torn: int
    """Bytes of an incomplete last frame that were left out."""


def load(path: Path | str, torn_ok: bool = False) -> RecordedSession:
    """Read a whole recording. `RecordingReader` gives the same one entry at a time, so that a screen need not wait.

    Args:
        path: The file.
        torn_ok: Whether the last frame may be incomplete.

    Raises:
        RecordingError: With the entry, if it is about one.
    """
    reader = RecordingReader(path, torn_ok)
    with uncollected():
        entries = list(reader)
    return RecordedSession(reader.header, entries, reader.torn)


class Peek(Struct, frozen=True):
    """The entry of a session in a list of sessions, read from the first entries of its file."""

    path: Path
    created: str
    model: str
    """Name of the model; empty if none was loaded."""
    prompt: str
    """The first prompt, empty if there is none."""
    size: int
    """Bytes of the file."""
    in_use: bool
    user_message: str = ""
    """The user's message in that prompt: without what the chat template added around it."""
    model_path: str = ""
    """Directory of the model; empty if none was loaded."""


def peek(path: Path | str, most: int = 50) -> Peek:
    """Read the beginning of a recording.

    Args:
        path: The file.
        most: Entries to read at most.

    Raises:
        RecordingError: It can't be read.
    """
    model = prompt = words = place = ""
    with RecordingReader(path, torn_ok=True) as reader:
        for _, entry in zip(range(most), reader, strict=False):
            if isinstance(entry.value, ModelFacts):
                model, place = entry.value.name, entry.value.path
            if isinstance(entry.value, PromptOpened):
                prompt, words = entry.value.text, user_message(entry.value)
                break
        size = reader.path.stat().st_size
    return Peek(reader.path, reader.header.created, model, prompt, size, in_use(path), words, place)


_OWN = ("assistant", "model")
_ROLES = (*_OWN, "user", "system", "human")
"""Words that templates write before a message, as text; those before the model's answer are `_OWN`."""


def user_message(prompt: PromptOpened) -> str:
    """The user's last message in a prompt, without what the chat template added; of a raw prompt the whole text."""
    if not prompt.chat:
        return prompt.text
    runs = groupby(prompt.tokens, key=lambda token: token.special)
    texts = ("".join(token.text for token in run).strip() for special, run in runs if not special)
    messages = [message for text in texts if (message := _message(text))]
    return messages[-1] if messages else prompt.text


def _message(text: str) -> str:
    """A text between special tokens without the role on its first line; empty if it isn't a user's."""
    role, _, rest = text.partition("\n")
    role = role.strip().lower()
    if role in _OWN:
        return ""
    return rest.strip() if role in _ROLES else text


def worth_keeping(record: object) -> bool:
    """True if a record belongs in a recording.

    Progress does not, nor what was asked of a prompt that was not given, or of a grammar; nor a view of the model's
    inside of more than `MOST_PACKED` bytes.
    """
    if getattr(record, "nbytes", 0) > MOST_PACKED:
        return False
    return not isinstance(record, Loading | Restoring | PromptPreview | GrammarExpected) and not (
        isinstance(record, LookedAhead) and not record.last
    )


# ---- rows of logits, put behind the entries that name their nodes ------------------------------

_Place = tuple[int, int]
"""The number of a tree, and a node of it; -1 for its model's vocabulary."""
_VOCABULARY = -1


def placed(entries: Iterable[Entry]) -> list[Entry]:
    """The entries with each row after the first one that brings its node, and each vocabulary after its model.

    Args:
        entries: In their order; rows that were asked for afterwards come late in it, and some perhaps twice.
    """
    numbered, tree = [], 0
    for entry in entries:
        tree += isinstance(entry.value, ModelFacts) or (
            isinstance(entry.value, PromptOpened) and entry.value.new_tree
        )
        numbered.append((tree, entry))
    rows: dict[_Place, Entry] = {}
    models = [tree for tree, entry in numbered if isinstance(entry.value, ModelFacts)]
    for tree, entry in numbered:
        if isinstance(entry.value, LogitsRow):
            rows.setdefault((tree, entry.value.node), entry)
        elif isinstance(entry.value, ModelVocabulary):
            model = max((begun for begun in models if begun <= tree), default=0)
            rows.setdefault((model, _VOCABULARY), entry)
    found: list[Entry] = []
    for tree, entry in numbered:
        if isinstance(entry.value, LogitsRow):
            late = [rows.pop((tree, entry.value.node), None)]  # of a node that no other entry has
        elif isinstance(entry.value, ModelVocabulary):
            late = []
        else:
            found.append(entry)
            late = [rows.pop((tree, node), None) for node in _nodes_of(entry.value)]
        found += [replace(row, at=entry.at) for row in late if row is not None]
    return found


def _nodes_of(value: object) -> tuple[int, ...]:
    """The nodes that an entry brings."""
    match value:
        case ModelFacts():
            return (_VOCABULARY,)
        case Prefilled():
            return tuple(token.node for token in value.tokens)
        case Step():
            return (value.node,)
    return ()
