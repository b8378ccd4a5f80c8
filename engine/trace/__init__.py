"""Save, load and continue traces: everything that happened in a session, as data.

A trace is lines of JSON: a header, then one line for each record in the order of the engine's output, settings in force
among them, with its time. Feeding them to the screen's timeline in order gives the same screen. The format is described
in `inspector/help/trace-format.md`. Standard library alone (before Python 3.14 `backports.zstd` for files that end in
`.zst`), so that a replay needs no MLX.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from engine.errors import TraceError
from engine.frozen import frozen, slotted
from engine.protocol import (
    GrammarExpected,
    Loading,
    LookedAhead,
    ModelFacts,
    PromptOpened,
    PromptPreview,
    Restoring,
)
from engine.trace.candidates import pack
from engine.trace.file import TraceReader, save_as, uncollected
from engine.trace.journal import Journal, TraceChanged, in_use
from engine.trace.lines import Entry, Header, Unknown, placed
from engine.trace.schema import Kept
from engine.trace.values import INSIDE_LIMIT

__all__ = [
    "Entry",
    "Header",
    "Journal",
    "Kept",
    "Peek",
    "Trace",
    "TraceChanged",
    "TraceReader",
    "Unknown",
    "in_use",
    "load",
    "pack",
    "peek",
    "placed",
    "save_as",
    "worth_keeping",
]


@slotted
class Trace:
    """A whole trace in memory."""

    header: Header
    entries: list[Entry]
    torn: int
    """Bytes of an incomplete last line that were left out."""
    problems: list[TraceError]
    """Errors in parts that are decoded late; it grows then. Only a file made to mislead has such."""


def load(path: Path | str, torn_ok: bool = False) -> Trace:
    """Read a whole trace. `TraceReader` gives the same one entry at a time, so that a screen need not wait.

    Args:
        path: The file.
        torn_ok: Whether the last line may be incomplete.

    Raises:
        TraceError: With the line, where it is about one.
    """
    reader = TraceReader(path, torn_ok)
    with uncollected():
        entries = list(reader)
    return Trace(reader.header, entries, reader.torn, reader.problems)


@frozen
class Peek:
    """The entry of a session in a list of sessions, read from the first lines of its file."""

    path: Path
    created: str
    model: str
    """Its name, empty where no model was loaded."""
    prompt: str
    """The first prompt, empty where there is none."""
    size: int
    """Bytes of the file."""
    in_use: bool
    user_message: str = ""
    """The person's message in that prompt: without what the chat template added around it."""
    model_path: str = ""
    """Where the model was, empty where none was loaded."""


def peek(path: Path | str, lines: int = 50) -> Peek:
    """Read the beginning of a trace.

    Args:
        path: The file.
        lines: Entries to read, at most.

    Raises:
        TraceError: It can't be read.
    """
    model = prompt = words = place = ""
    with TraceReader(path, torn_ok=True) as reader:
        for _, entry in zip(range(lines), reader, strict=False):
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
    """The person's last message in a prompt, without what the chat template added around it.

    Of a raw prompt it is the whole text, also where there is no message.
    """
    if not prompt.chat:
        return prompt.text
    runs = groupby(prompt.tokens, key=lambda token: token.special)
    texts = ("".join(token.text for token in run).strip() for special, run in runs if not special)
    messages = [message for text in texts if (message := _message(text))]
    return messages[-1] if messages else prompt.text


def _message(text: str) -> str:
    """A text between special tokens without the role on its first line; empty where it isn't a person's."""
    role, _, rest = text.partition("\n")
    role = role.strip().lower()
    if role in _OWN:
        return ""
    return rest.strip() if role in _ROLES else text


def worth_keeping(record: object) -> bool:
    """True if a record belongs in a journal: progress does not, nor what was asked of a prompt that was not
    given, or of a grammar.

    Nor does a view of the model's inside of more than `INSIDE_LIMIT` bytes.
    """
    if getattr(record, "nbytes", 0) > INSIDE_LIMIT:
        return False
    return not isinstance(record, Loading | Restoring | PromptPreview | GrammarExpected) and not (
        isinstance(record, LookedAhead) and not record.last
    )
