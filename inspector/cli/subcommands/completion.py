"""`inspector completion`: what a shell's start-up file runs, so that tab completes; and the answers to the shell.

By argcomplete, which is imported for these two alone: the shell's function runs the program with `_ARGCOMPLETE` set.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping

from engine.settings import BY_NAME
from inspector.cli import flags
from inspector.cli.exit import OK, output
from inspector.cli.subcommands import show

SHELLS = {
    "bash": 'eval "$(inspector completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(inspector completion zsh)" in ~/.zshrc, after compinit',
    "fish": "inspector completion fish | source in ~/.config/fish/config.fish",
}
"""The line in each shell's start-up file."""


def completion_parser() -> flags.Parser:
    """The parser of `inspector completion`."""
    ways = "; ".join(f"{shell}: {way}" for shell, way in SHELLS.items())
    made = flags.command_parser(
        "completion",
        "Print the code that makes a shell complete subcommands, flags, names of sessions and presets, and other "
        "values "
        f"with tab. Put one line into your shell's start-up file. {ways}.",
    )
    made.add_argument("shell", choices=SHELLS, help="the shell whose code to print")
    return made


def run_completion(args: Namespace) -> int:
    """Run `inspector completion`."""
    from argcomplete.shell_integration import shellcode

    output().write(shellcode(["inspector"], shell=args.shell))
    return OK


# ---- the shell asks ---------------------------------------------------------------------------


def complete(screen: ArgumentParser, *subcommands: ArgumentParser) -> None:
    """Answer a shell that asks what may come next, and end the process; returns if none asks.

    Args:
        screen: The parser of `inspector` alone; the subcommands are put under it.
        subcommands: Their parsers.
    """
    from argcomplete import autocomplete
    from argcomplete.completers import SuppressCompleter

    under, words = screen.add_subparsers(), os.environ.get("COMP_LINE", "").split()[:3]
    names = {made: made.prog.split() for made in subcommands}
    chosen = {name[1]: made for made, name in names.items() if len(name) == 2 or name == words}
    for name, made in chosen.items():
        if len(names[made]) == 3:
            made.add_argument("view")  # the second word of `show race`
        under.add_parser(name, parents=[made], add_help=False)
    for each in (screen, *subcommands):
        for action in each._actions:
            if (values := _known(action.dest)) is not None and not action.choices:
                completer = lambda values=values, **_: list(values())  # noqa: E731 (argcomplete takes the prefix itself)
                setattr(action, "completer", completer)  # noqa: B010 (argcomplete's own attribute)
    # Flags once a hyphen is typed; where nothing is offered, the shell itself completes files.
    autocomplete(screen, always_complete_options=False, default_completer=SuppressCompleter())


def _known(name: str) -> Callable[[], Iterable[str]] | None:
    """The values of an argument that are known beforehand."""
    field = BY_NAME.get(name)
    return field.choices.keys if field is not None and field.choices else VALUES.get(name)


def _sessions() -> Iterable[str]:
    from inspector.recordings import sessions

    return sessions.names()


def _presets() -> Iterable[str]:
    from inspector.config.presets import Presets

    return Presets().names


VALUES: Mapping[str, Callable[[], Iterable[str]]] = {
    "trace": _sessions,
    "resume": _sessions,
    "preset": _presets,
    "model": lambda: ("pocket",),
    "views": lambda: (*show.VIEWS, "race", "profile"),
}
"""Values that are known beforehand, beside those of settings, by the name of their argument."""
