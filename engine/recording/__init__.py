"""Recordings: everything that happened in a session, as data.

A recording has a header and an entry with a time for each record and each change of settings, in the order in which the
engine emitted them. Passed to the screen's timeline in this order, they give the same screen without MLX.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.protocol import MOST_PACKED, LogitsRow, ModelFacts, ModelVocabulary, PromptOpened
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
    """A complete recording in memory."""

    header: Header
    entries: list[Entry]
    torn: int
    """Bytes of a skipped incomplete last frame; 0 if there is none."""


def load(path: Path | str, torn_ok: bool = False) -> RecordedSession:
    """Read a complete recording; `RecordingReader` reads one entry at a time, so that a screen need not wait.

    Args:
        path: The file.
        torn_ok: True to accept an incomplete last frame.

    Raises:
        RecordingError: The file can't be read; `entry` is set if the error is about one entry.
    """
    reader = RecordingReader(path, torn_ok)
    with uncollected():
        entries = list(reader)
    return RecordedSession(reader.header, entries, reader.torn)


class Peek(Struct, frozen=True):
    """Summary of a recorded session for a list, read from the first entries of its file."""

    path: Path
    created: str
    model: str
    """Name of the model; empty if none was loaded."""
    prompt: str
    """The first prompt; empty if there is none."""
    size: int
    in_use: bool
    user_message: str = ""
    """The user's message in the first prompt, without the text added by the chat template."""
    model_path: str = ""
    """Directory of the model; empty if none was loaded."""


def peek(path: Path | str, most: int = 50) -> Peek:
    """Read the beginning of a recording.

    Args:
        path: The file.
        most: Maximum number of entries to read.

    Raises:
        RecordingError: The file can't be read.
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
"""Role names that templates write as text before a message; `_OWN` are the roles of the model's answers."""


def user_message(prompt: PromptOpened) -> str:
    """The user's last message in a prompt, without the chat template's text; the complete text of a raw prompt."""
    if not prompt.chat:
        return prompt.text
    runs = groupby(prompt.tokens, key=lambda token: token.special)
    texts = ("".join(token.text for token in run).strip() for special, run in runs if not special)
    messages = [message for text in texts if (message := _message(text))]
    return messages[-1] if messages else prompt.text


def _message(text: str) -> str:
    """The text between two special tokens without the role on its first line; empty if the role is the model's."""
    role, _, rest = text.partition("\n")
    role = role.strip().lower()
    if role in _OWN:
        return ""
    return rest.strip() if role in _ROLES else text


def worth_keeping(record: object) -> bool:
    """True if a record belongs in a recording.

    False for progress of a load or a restore, prompt previews, grammar readings, unfinished look-aheads, and views of
    the model's inside of more than `MOST_PACKED` bytes.
    """
    if getattr(record, "nbytes", 0) > MOST_PACKED:
        return False
    return not isinstance(
        record, protocol.Loading | protocol.Restoring | protocol.PromptPreview | protocol.GrammarExpected
    ) and not (isinstance(record, protocol.LookedAhead) and not record.last)


# ---- rows of logits, placed after the entries with their nodes ---------------------------------

_Place = tuple[int, int]
"""Number of a tree and one of its nodes; -1 instead of a node for its model's vocabulary."""
_VOCABULARY = -1


def placed(entries: Iterable[Entry]) -> list[Entry]:
    """Reorder entries: each row of logits after the first entry with its node, each vocabulary after its model.

    Args:
        entries: Entries in their original order; rows may come much later than their nodes, and some may occur twice.
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
            late = [rows.pop((tree, entry.value.node), None)]  # a row without an entry for its node
        elif isinstance(entry.value, ModelVocabulary):
            late = []
        else:
            found.append(entry)
            late = [rows.pop((tree, node), None) for node in _nodes_of(entry.value)]
        found += [replace(row, at=entry.at) for row in late if row is not None]
    return found


def _nodes_of(value: object) -> tuple[int, ...]:
    """Nodes with rows that are placed after an entry."""
    match value:
        case protocol.ModelFacts():
            return (_VOCABULARY,)
        case protocol.Prefilled():
            return tuple(token.node for token in value.tokens)
        case protocol.Step():
            return (value.node,)
    return ()
