"""The lessons that come with the program, and files of lessons by name."""

from __future__ import annotations

from pathlib import Path

from engine.errors import EngineError
from engine.files import typed
from engine.frozen import frozen
from inspector.lessons.lesson import Lesson
from inspector.lessons.reading import begins, read

FOLDER = Path(__file__).with_name("shipped")
ORDER = (
    "pieces", "one-loop", "the-draw", "filters-and-order", "the-cache", "repetition", "ending", "beams", "looking-back",
)  # fmt: skip
"""Ids in the order of the list."""
ENDING = ".trace.zst"
"""Of a recording's name."""
END = "end"
"""In the place of a lesson: end the one under way."""


@frozen
class Listed:
    """One lesson of the list."""

    number: int
    """From 1."""
    path: Path
    lesson: Lesson

    @property
    def trace(self) -> Path:
        """Its recording; it may not be there."""
        return recording_of(self.path)


def recording_of(path: Path) -> Path:
    """Where the recording of a lesson's file is."""
    return path.with_suffix(ENDING)


def of_recording(trace: Path) -> Listed | None:
    """The lesson that a trace is the recording of, by the file beside it; None where there is none."""
    path = trace.with_name(trace.name.removesuffix(ENDING) + ".md")
    if not trace.name.endswith(ENDING) or not path.is_file() or not begins(path):
        return None
    return next((each for each in shipped() if each.path == path.resolve()), None) or Listed(
        0, path, read(path)
    )


def is_name(name: str) -> bool:
    """Whether a name is one of a lesson: its number, its id or title, or a file's that ends in .md."""
    return name.endswith(".md") or _shipped(name) is not None


def shipped() -> list[Listed]:
    """The lessons that come with the program."""
    paths = (FOLDER / f"{id}.md" for id in ORDER)
    return [Listed(number, path, read(path)) for number, path in enumerate(paths, 1)]


def listed(path: Path) -> Listed:
    """A lesson of a file.

    Raises:
        EngineError: It can't be read, or is none.
    """
    return Listed(0, path, read(path))


def find(name: str) -> Listed:
    """A lesson by its number, its id or its title, as the list has them, or the path of its file.

    Raises:
        EngineError: There is none.
    """
    if (each := _shipped(name)) is not None:
        return each
    path = typed(name)
    if path.suffix == ".md":
        return listed(path)
    raise EngineError(
        f"There is no lesson {name}.", "inspector learn lists them; a file of your own ends in .md."
    )


def _shipped(name: str) -> Listed | None:
    """The lesson that comes with the program and is called so, in capitals or not; None where none is."""
    wanted = " ".join(name.casefold().split())
    names = ((each, (str(each.number), each.lesson.id, each.lesson.title.casefold())) for each in shipped())
    return next((each for each, own in names if wanted in own), None)
