"""The lessons that come with the program, files of lessons by name, and the learner's progress in each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from engine.errors import EngineError, PathError
from engine.files import read_regular, typed
from inspector import places
from inspector.config.files import locked, write
from inspector.display import visible

if TYPE_CHECKING:
    from inspector.lessons.lesson import Lesson

FOLDER = Path(__file__).with_name("shipped")
ORDER = (
    "pieces", "one-loop", "the-draw", "filters-and-order", "the-cache", "repetition", "ending", "beams", "looking-back",
    "grammar", "switch-off", "four-bits", "merges", "batching", "speculation", "steering", "learning",
)  # fmt: skip
"""Ids of the lessons, in the order of the list."""
ENDING = ".trace.zst"
"""Ending of a recording's name."""


class Listed(Struct, frozen=True):
    """One lesson of the list."""

    number: int
    """Its place in the list, from 1; 0 for a file of the user's own."""
    path: Path
    lesson: Lesson

    @property
    def trace(self) -> Path:
        """The path of its recording, which may not exist."""
        return recording_of(self.path)


def recording_of(path: Path) -> Path:
    """The path of a lesson's recording, beside its file."""
    return path.with_suffix(ENDING)


def of_recording(trace: Path) -> Listed | None:
    """The lesson of a recording, from the file beside it; None if it is not the recording of a lesson."""
    from inspector.lessons.reading import begins  # imported only if needed

    path = trace.with_name(trace.name.removesuffix(ENDING) + ".md")
    if not trace.name.endswith(ENDING) or not path.is_file() or not begins(path):
        return None
    return next((each for each in shipped() if each.path == path.resolve()), None) or listed(path)


def is_name(name: str) -> bool:
    """True if a name is a lesson's number, id or title, or the name of a file that ends in .md."""
    return name.endswith(".md") or named(name, shipped()) is not None


def shipped() -> list[Listed]:
    """The lessons that come with the program."""
    from inspector.lessons.reading import read

    paths = (FOLDER / f"{id}.md" for id in ORDER)
    return [Listed(number, path, read(path)) for number, path in enumerate(paths, 1)]


def listed(path: Path) -> Listed:
    """The lesson in a file.

    Raises:
        EngineError: It can't be read, or is not a lesson.
    """
    from inspector.lessons.reading import read

    return Listed(0, path, read(path))


def new_lesson(title: str) -> str:
    """The text of a first lesson for an author to change; it works as it is: two beats on the bundled model.

    Args:
        title: Title of the lesson.
    """
    text = Path(__file__).with_name("new.md").read_text(encoding="utf-8")
    return text.replace('"TITLE"', json.dumps(title, ensure_ascii=False))


def find(name: str) -> Listed:
    """A lesson by its number, its id or its title, as the list has them, or the path of its file.

    Raises:
        EngineError: There is no such lesson.
    """
    if (each := named(name, shipped())) is not None:
        return each
    path = typed(name)
    if path.suffix == ".md":
        return listed(path)
    from difflib import get_close_matches

    names = (text for each in shipped() for text in (each.lesson.title, each.lesson.id.replace("-", " ")))
    near = get_close_matches(name.casefold(), {each.casefold(): None for each in names}, 1)
    hint = f"Did you mean “{near[0]}”? " if near else ""
    hint += "inspector learn lists them; a file of your own ends in .md."
    raise EngineError(f"No lesson is called “{visible(name)}”.", hint)


def named(name: str, among: Iterable[Listed]) -> Listed | None:
    """The lesson with a number, id or title, ignoring case; None if there is no match."""
    wanted = " ".join(name.casefold().split())
    return next((each for each in among if wanted == str(each.number) or called(wanted, each.lesson)), None)


def called(name: str, lesson: Lesson) -> bool:
    """True if a name is a lesson's id, also with spaces instead of hyphens, or its title.

    Args:
        name: In lower case, with single spaces.
        lesson: The lesson.
    """
    return name in (lesson.id, lesson.id.replace("-", " "), lesson.title.casefold())


# ---- progress: kept between runs of the program, and never needed to begin a lesson --------------

LARGEST = 2**20
"""Most bytes of the file."""
MOST_LESSONS, MOST_BEATS = 500, 1000


class LessonProgress(Struct, frozen=True):
    """The learner's progress in one lesson."""

    beat: Annotated[int, Meta(ge=0, lt=MOST_BEATS)] = 0
    """The beat to continue with, from 0."""
    right: Mapping[int, bool] = field(default_factory=dict)
    """True for each beat whose last prediction was right."""
    done: bool = False
    """True if the lesson was completed once."""


def file() -> Path:
    """The file of the progress."""
    return places.state() / "lessons.json"


class Progress:
    """The progress of all lessons.

    Args:
        path: The file, which need not exist; None for the user's.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or file()

    def read(self) -> dict[str, LessonProgress]:
        """The progress in each lesson, by its id; empty if the file can't be read."""
        try:
            return msgspec.json.decode(read_regular(self._path, LARGEST), type=dict[str, LessonProgress])
        except (OSError, PathError, ValueError, msgspec.MsgspecError, RecursionError):
            return {}

    def keep(self, id: str, progress: LessonProgress) -> None:
        """Save the progress in a lesson; a lesson that was completed before stays so.

        Raises:
            PathError: The file can't be written.
        """
        with locked(self._path):
            kept = self.read()
            done = progress.done or kept.get(id, progress).done
            kept[id] = replace(progress, done=done)
            newest = dict(list(kept.items())[-MOST_LESSONS:])
            write(self._path, msgspec.json.format(msgspec.json.encode(newest)).decode())
