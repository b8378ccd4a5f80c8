"""What a person did in lessons: each beat that was revealed, with what they predicted and what the run gave.

A file of lines of JSON in the user's own place, written at each reveal and never changed afterwards: what is tried
again is one more line, so that a report can tell the first prediction from later ones. Nothing leaves the machine.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.errors import PathError
from engine.files import PRIVATE, message_and_hint, read_regular
from engine.frozen import frozen
from inspector import places
from inspector.config.files import alone, write

LARGEST = 4 * 2**20
"""Bytes of the file: some thousand beats. Beyond them the older half is dropped."""
LONGEST, MOST = 1000, 40
"""Characters of a text, and texts of a list, that are taken from a line."""


@frozen
class SeenBeat:
    """One beat that was gone through to its reveal."""

    when: str
    """Local time with its offset, as ISO 8601 writes it, to the second."""
    lesson: str
    """Id of the lesson."""
    title: str
    """Of the lesson."""
    beats: int
    """Of the lesson."""
    beat: int
    """From 1."""
    heading: str
    """Of the beat."""
    question: str = ""
    """Empty where nothing was asked."""
    predicted: str = ""
    """The option that was chosen; empty for none."""
    answer: str = ""
    """The option that held what the run gave; empty for none."""
    value: str = ""
    """What the run gave, with its unit."""
    right: bool | None = None
    """True if the prediction was the answer; None without one."""
    did: tuple[str, ...] = ()
    """What was done, as the lesson's file writes it."""
    why: tuple[str, ...] = ()
    """The reveal, with the run's values in it."""
    model: str = ""
    dtype: str = ""
    fingerprint: str = ""
    recorded: bool = False
    """True if the values came from the lesson's recording, not from a model on this machine."""
    program: str = ""
    """Which version of the program."""


def now() -> str:
    """The time of a beat that is revealed now."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def file() -> Path:
    """Where it is kept."""
    return places.state() / "lessons-seen.jsonl"


class LessonJournal:
    """All that was seen, in order.

    Args:
        path: The file; None for that of the user. It need not exist.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or file()

    def read(self) -> list[SeenBeat]:
        """All entries; none, where the file can't be read, and without lines that are none."""
        entries = (_entry(line) for line in self._lines())
        return [entry for entry in entries if entry is not None]

    def add(self, entries: Sequence[SeenBeat]) -> None:
        """Add some.

        Raises:
            PathError: The file can't be written.
        """
        raw = "".join(f"{json.dumps(asdict(each))}\n" for each in entries)
        if not raw:
            return
        with alone(self._path):
            try:
                if self._append(raw.encode()) > LARGEST:
                    lines = self._lines()
                    write(self._path, "".join(f"{line}\n" for line in lines[len(lines) // 2 :]))
            except OSError as error:
                raise PathError(*message_and_hint(self._path, error, "written")) from error

    def _append(self, raw: bytes) -> int:
        """Write at the end of the file, on a line of its own even if a program was killed while it wrote there.

        Returns:
            Bytes of the file then.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        with os.fdopen(os.open(self._path, flags, PRIVATE), "rb+", buffering=0) as own:
            found = os.fstat(own.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "It is no regular file", str(self._path))
            whole = not found.st_size or os.pread(own.fileno(), 1, found.st_size - 1) == b"\n"
            own.write(raw if whole else b"\n" + raw)
            return os.fstat(own.fileno()).st_size

    def _lines(self) -> list[str]:
        try:
            return read_regular(self._path, 2 * LARGEST).decode("utf-8", "replace").splitlines()
        except OSError:
            return []


def _entry(line: str) -> SeenBeat | None:
    """An entry of a line; None where it is none. What isn't as this version writes it is left out."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not all(_text(value, name) for name in ("when", "lesson", "title")):
        return None
    return SeenBeat(
        **{name: _text(value, name) for name in _TEXTS},
        beats=_count(value, "beats"),
        beat=_count(value, "beat"),
        right=value.get("right") if isinstance(value.get("right"), bool) else None,
        did=_texts(value, "did"),
        why=_texts(value, "why"),
        recorded=value.get("recorded") is True,
    )


_TEXTS = (
    "when", "lesson", "title", "heading", "question", "predicted", "answer", "value", "model", "dtype", "fingerprint",
    "program",
)  # fmt: skip


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    return text[:LONGEST] if isinstance(text, str) else ""


def _texts(value: dict[str, Any], name: str) -> tuple[str, ...]:
    found = value.get(name)
    texts = found[:MOST] if isinstance(found, list) else []
    return tuple(text[:LONGEST] for text in texts if isinstance(text, str))


def _count(value: dict[str, Any], name: str) -> int:
    number = value.get(name)
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 < number < 1000 else 1
