"""Where a visitor's program runs: the command, its environment, its folder, and the rights that the host gives."""

from __future__ import annotations

import os
import site
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import inspector
from engine.confinement import VARIABLE, Confinement
from engine.errors import EngineError, PathError
from engine.files import message_and_hint, typed
from engine.frozen import frozen
from engine.models_on_disk.places import all_places

if TYPE_CHECKING:
    from engine.models_on_disk.facts import DiskModel

_DROPPED = (
    "COLUMNS", "LINES", "TMUX", "STY", "SSH_CONNECTION", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TEXTUAL_DRIVER",
)  # fmt: skip
"""What an environment tells of the terminal in which the server was started: the visitor's is another one."""
_HOSTS_VARIABLES = (
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
            raise PathError(*message_and_hint(folder, error, "written")) from error
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
    kept = {name: value for name, value in _environment().items() if not name.startswith(_HOSTS_VARIABLES)}
    return Home({**kept, **own}, Path(folder))


def _environment() -> dict[str, str]:
    """This process's environment, as a program on another terminal gets it."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    # relative and empty entries would lead into a visitor's folder: what is saved there would be run as a module
    given = filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))
    path = (str(Path(inspector.__file__).parents[1]), *map(os.path.abspath, given))
    return {**kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": os.pathsep.join(path)}


# ---- what the host gives to visitors: models that they may open, and the files that flags name ---

_MODELS = ("model", "draft_model", "against")
_FILES = ("adapter_path", "against_adapter", "blas")
"""Flags with a path that is read after the screen has begun, when visitors may read what is theirs alone."""
_FILES_AT_START = {
    "prompt_file": "--prompt-file", "messages": "--messages",
    "json_schema": "--json-schema", "grammar_file": "--grammar", "against_chat_template": "--against-chat-template",
}  # fmt: skip
"""Those with one, or with the text itself, that is read before."""
_HOSTS_FLAGS = ("trust_remote_code", "connect", "token_file", "hostfile", "ranks", "resume")
"""Flags that would have a visitor run code, use another machine, or write a session of the host."""


def check_flags(args: Namespace) -> None:
    """Refuse the flags that no visitor may use.

    Raises:
        EngineError: One of them was given.
    """
    for name in _HOSTS_FLAGS:
        if getattr(args, name, None) not in (None, False):
            flag = name.replace("_", "-")
            raise EngineError(
                f"--{flag} is not for visitors, who have a folder and the models that you name, and nothing else.",
                "Leave it out, or give them your own rights with --unconfined.",
            )


def absolute(args: Namespace) -> list[str]:
    """The flags whose paths are relative to this directory, once more, so that they are found from a visitor's."""
    flags = {name: f"--{name.replace('_', '-')}" for name in (*_MODELS, *_FILES)} | _FILES_AT_START
    found = ((flag, getattr(args, name, None)) for name, flag in flags.items())
    return [
        f"{flag}={os.path.realpath(os.path.expanduser(value))}"
        for flag, value in found
        if value and value != "pocket" and os.path.lexists(os.path.expanduser(value))
    ]


def confinement_of(args: Namespace) -> Confinement:
    """What visitors may read and load beside their own folders: the bundled model is always offered.

    Raises:
        EngineError: A model is not on this machine.
    """
    named = (getattr(args, name, None) for name in _MODELS)
    models: dict[str, str] = {}
    for name in ("pocket", *filter(None, named), *args.offer):
        models |= _found(name)
    models |= _all(all_places(args.models)) if args.models else {}
    files = [os.path.realpath(typed(value)) for name in _FILES if (value := getattr(args, name, None))]
    return Confinement("", (*files, *_targets(models.values())), models)


def _found(name: str) -> dict[str, str]:
    """The directory of a model by its name."""
    if name != "pocket" and os.path.isdir(typed(name)):
        return _all(all_places((name,)))
    found = next(
        (each for each in all_places() if name in (each.name, each.hub_id) and not each.problem), None
    )
    if found is None:
        raise EngineError(
            f"The model {name} is not on this machine, and visitors download nothing.",
            "inspector models lists those that are; inspector with --model downloads one.",
        )
    return _all([found])


def _all(models: Iterable[DiskModel]) -> dict[str, str]:
    return {each.name: os.path.realpath(each.path) for each in models if not each.problem}


def _targets(directories: Iterable[str]) -> Iterator[str]:
    """The files that links in the models' directories lead to, as in the hub's cache."""
    for directory in directories:
        for entry in sorted(os.listdir(directory)):
            path = os.path.join(directory, entry)
            if os.path.islink(path) and os.path.isfile(path):
                yield os.path.realpath(path)
