"""What the host gives to visitors of `inspector serve`: models that they may open, and the files that flags name."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from engine.confinement import Confinement
from engine.errors import EngineError
from engine.files import typed
from engine.models_on_disk.places import all_places

if TYPE_CHECKING:
    from engine.models_on_disk.facts import DiskModel

_MODELS = ("model", "draft_model", "against")
_FILES = ("adapter_path", "against_adapter", "prompt_cache_file", "blas")
"""Flags with a path that is read after the screen has begun, when visitors may read what is theirs alone."""
_FILES_AT_START = {
    "prompt_file": "--prompt-file", "messages": "--messages", "cached_prompt_file": "--cached-prompt-file",
    "json_schema": "--json-schema", "grammar_file": "--grammar", "against_chat_template": "--against-chat-template",
}  # fmt: skip
"""Those with one, or with the text itself, that is read before."""
_HOSTS_OWN = ("trust_remote_code", "connect", "token_file", "hostfile", "ranks", "resume")
"""Flags that would have a visitor run code, use another machine, or write a session of the host."""


def check(args: Namespace) -> None:
    """Refuse the flags that no visitor may use.

    Raises:
        EngineError: One of them was given.
    """
    for name in _HOSTS_OWN:
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
            if os.path.islink(path):
                yield os.path.realpath(path)
