"""Directories that are no model's, or can't be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.broken_models.breaking import Change, put


def emptied(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


def replaced(make: Change) -> Change:
    """Something else in the directory's place."""

    def change(directory: Path) -> None:
        shutil.rmtree(directory)
        make(directory)

    return change


def closed(mode: int, name: str = "") -> Change:
    """Without permission, for all but root."""
    return lambda directory: os.chmod(directory / name, mode)


def copy_of(name: str) -> Change:
    """A file of its own in the place of a hard link, whose mode can be changed."""
    return lambda directory: put(directory, name, (directory / name).read_bytes())


def unreadable(name: str) -> Change:
    def change(directory: Path) -> None:
        copy_of(name)(directory)
        closed(0, name)(directory)

    return change


def one_level_down(directory: Path) -> None:
    (directory / "model").mkdir()
    for path in list(directory.iterdir()):
        if path.is_file():
            path.rename(directory / "model" / path.name)


def of_directories(directory: Path) -> None:
    names = [path.name for path in directory.iterdir()]
    emptied(directory)
    for name in names:
        (directory / name).mkdir()


def looped(directory: Path) -> None:
    emptied(directory)
    (directory / "a").symlink_to("b")
    (directory / "b").symlink_to("a")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (directory / name).symlink_to("a")


CLOSED = ("closed", "not-searchable", "config-unreadable", "weights-unreadable", "tokenizer-unreadable")
"""Those that root can read."""
PLACES: dict[str, Change] = {
    "empty": emptied,
    "gone": replaced(lambda directory: None),
    "a-file": lambda directory: None,
    "a-pipe": replaced(lambda directory: os.mkfifo(directory)),
    "to-itself": replaced(lambda directory: directory.symlink_to(directory.name)),
    "to-nothing": replaced(lambda directory: directory.symlink_to("nothing")),
    "to-dev-null": replaced(lambda directory: directory.symlink_to("/dev/null")),
    "to-proc": replaced(lambda directory: directory.symlink_to("/proc/self/fd")),
    "to-root": replaced(lambda directory: directory.symlink_to("/")),
    "one-level-down": one_level_down,
    "of-directories": of_directories,
    "of-links-in-a-circle": looped,
    "closed": closed(0),
    "not-searchable": closed(0o600),
    "config-unreadable": unreadable("config.json"),
    "weights-unreadable": unreadable("model.safetensors"),
    "tokenizer-unreadable": unreadable("tokenizer.json"),
}
