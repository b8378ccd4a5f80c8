"""Where a visitor's program runs: the command, its environment, and the folder and rights that it has."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import inspector
from engine.confinement import VARIABLE, Confinement
from engine.errors import PathError
from engine.files import told
from engine.frozen import frozen

_DROPPED = (
    "COLUMNS", "LINES", "TMUX", "STY", "SSH_CONNECTION", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TEXTUAL_DRIVER",
)  # fmt: skip
"""What an environment tells of the terminal in which the server was started: the visitor's is another one."""
_HOSTS_OWN = (
    "HF_", "HUGGING", "TRANSFORMERS_CACHE", "XDG_", "TEXTUAL_LOG", "TEXTUAL_SCREENSHOT", "INSPECTOR_MODELS",
)  # fmt: skip
"""How variables begin that hold places and secrets of the host, for which no visitor has a use."""
_PLACES = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "TMPDIR")


@frozen
class Home:
    """Of one visitor."""

    environment: Mapping[str, str]
    folder: Path | None = None
    """In which the program runs; None for the server's own."""


def program(*arguments: str) -> tuple[str, ...]:
    """The command that runs this very program: the same interpreter, the same files, whatever lies in the directory."""
    return (sys.executable, "-P", "-m", "inspector", *arguments)


def as_host(number: int) -> Home:
    """Every visitor has the host's own rights and places.

    Args:
        number: Of the visitor.
    """
    return Home(_environment())


def in_folders(parent: Path, confinement: Confinement) -> Callable[[int], Home]:
    """Every visitor has a folder of their own, and reaches nothing else.

    Args:
        parent: The folders are made in it, by the visitors' numbers.
        confinement: What they may read besides.
    """

    def home(number: int) -> Home:
        folder = parent / f"visitor-{number}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise PathError(*told(folder, error, "written")) from error
        real = os.path.realpath(folder)
        return _confined(real, Confinement(real, confinement.readable, confinement.models))

    return home


def watching(folder: Path, file: Path) -> Home:
    """A watcher reads one recording, and writes nothing.

    Args:
        folder: An empty one.
        file: The recording.
    """
    return _confined(
        os.path.realpath(folder), Confinement("", (os.path.realpath(file), os.path.realpath(folder)))
    )


def _confined(folder: str, confinement: Confinement) -> Home:
    own = {**dict.fromkeys(_PLACES, folder), VARIABLE: confinement.as_json(), "HF_HUB_OFFLINE": "1"}
    own["PYTHONUSERBASE"] = site.getuserbase()  # which follows from HOME
    kept = {name: value for name, value in _environment().items() if not name.startswith(_HOSTS_OWN)}
    return Home({**kept, **own}, Path(folder))


def _environment() -> dict[str, str]:
    """This process's environment, as a program on another terminal gets it."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    path = (str(Path(inspector.__file__).parents[1]), *filter(None, [kept.get("PYTHONPATH")]))
    return {**kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": os.pathsep.join(path)}
