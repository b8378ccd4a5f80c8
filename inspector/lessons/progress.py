"""How far a person is with the lessons: kept between runs of the program, and never needed to begin one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from engine.errors import PathError
from engine.files import read_regular
from engine.frozen import frozen
from inspector import places
from inspector.config.files import alone, write

LARGEST = 2**20
"""Bytes of the file."""
MOST_LESSONS, MOST_BEATS = 500, 1000


@frozen
class LessonProgress:
    """How far one lesson is."""

    beat: int = 0
    """The one to go on with, from 0."""
    right: Mapping[int, bool] = field(default_factory=dict)
    """By beat: whether the last prediction was right."""
    done: bool = False
    """Whether it was gone through to its end once."""


def file() -> Path:
    """Where it is kept."""
    return places.state() / "lessons.json"


class Progress:
    """The progress of all lessons.

    Args:
        path: The file; None for that of the user. It need not exist.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or file()

    def read(self) -> dict[str, LessonProgress]:
        """All that is known, by the lesson's id; nothing, where the file can't be read: it is only progress."""
        return {id: _progress(value) for id, value in self._content().items() if isinstance(value, dict)}

    def keep(self, id: str, progress: LessonProgress) -> None:
        """Keep how far a lesson is.

        Raises:
            PathError: The file can't be written.
        """
        with alone(self._path):
            content = self._content()
            done = progress.done or _progress(content.get(id)).done
            right = {str(beat): right for beat, right in progress.right.items()}
            content[id] = {"beat": progress.beat, "right": right, "done": done}
            write(self._path, json.dumps(dict(list(content.items())[-MOST_LESSONS:]), indent=1))

    def _content(self) -> dict[str, Any]:
        try:
            content = json.loads(read_regular(self._path, LARGEST))
        except (OSError, PathError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}


def _progress(value: Any) -> LessonProgress:
    """One lesson's; whatever isn't as this version writes it is left out."""
    if not isinstance(value, dict):
        return LessonProgress()
    beat, right = value.get("beat"), value.get("right")
    return LessonProgress(
        beat if isinstance(beat, int) and 0 <= beat < MOST_BEATS else 0,
        {
            int(number): bool(was)
            for number, was in (right.items() if isinstance(right, dict) else ())
            if number.isdecimal() and len(number) < 4
        },
        value.get("done") is True,
    )
