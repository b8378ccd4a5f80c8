"""`inspector models`, `sessions`, `doctor` and `completion`, and `inspector --keys` and `--plugins`.

Tab completion uses argcomplete: the shell's function runs the program with `_ARGCOMPLETE` set.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from engine.errors import EngineError
from engine.model.download import DownloadProgress, download
from engine.models_on_disk.models import listed
from engine.settings import BY_NAME
from inspector import keys
from inspector.blocks.blocks import Column, number
from inspector.cli import flags
from inspector.cli.arguments import load_settings
from inspector.cli.exit import INTERRUPTED, OK, leave_at_once, note, output, table, write
from inspector.cli.subcommands import show
from inspector.cli.writers.json_lines import json_line
from inspector.config import own_keys
from inspector.config.presets import Presets
from inspector.recordings import sessions
from inspector.scales import size

if TYPE_CHECKING:
    from inspector.widgets.actions import Action

ERASE = "\r\x1b[K"
"""Erases a line of progress."""
_NAME, _PROMPT = 60, 40
"""Most cells of a model's name, and of a prompt, in a table; JSON has all of them."""


def _listed(values: Iterable[object], lines: Iterable[str], jsonl: bool) -> int:
    """Write a list, as JSON lines or as a table."""
    return write(json_line(value).rstrip() for value in values) if jsonl else write(lines)


# ---- inspector models ------------------------------------------------------------------------


def models_parser() -> flags.Parser:
    """List the models on the disk: the bundled one, those of recent sessions, and those in the hub's cache
    (HF_HUB_CACHE, HF_HOME), in LM Studio's folders and in the directories of INSPECTOR_MODELS, which are separated as
    in PATH. Only config.json and the headers of the weights are read."""
    epilog = (
        "bits: those of most weights. KV/token: the memory that one more token takes in the cache, in the type of the "
        "files. fits: the longest context for which weights x 1.1 + KV fit into the memory that is free now; on a Mac, "
        "into the installed memory. To open one: inspector --model NAME, or its path. --get continues an interrupted "
        "download, and checks every file against the hash that the hub states."
    )
    return flags.command_parser("models", models_parser.__doc__, epilog, {
        "directories [DIR]": ("list only the models in these directories, two levels deep", {"nargs": "*"}),
        "--get ID": "download this model from the hub (HF_ENDPOINT) into the hub's cache",
        **flags.jsonl("table"),
    })  # fmt: skip


def run_models(args: Namespace) -> int:
    """Run `inspector models`.

    Raises:
        EngineError: A model can't be downloaded.
    """
    if args.get is not None:
        return _get(args.get, args.directories, args.jsonl)
    from engine.memory import memory_for_models
    from inspector.display import truncate, visible
    from inspector.documents.disk_models import COLUMNS, cells

    available = memory_for_models()
    models = listed(args.directories, () if args.directories else sessions.recent_models())
    if args.jsonl:
        values = (
            {**to_builtins(each, enc_hook=str), "available": available,
             "fits": None if each.problem else each.fits(available)}
            for each in models
        )  # fmt: skip
        return _listed(values, (), True)
    found = list(models)
    columns = Column("name", least=20), Column("family", priority=2), *map(number, COLUMNS[1:])
    rows = ((truncate(visible(each.name), _NAME), *cells(each, available).values()) for each in found)
    write(table(columns, rows, fit=True) if found else ())
    for model in found:
        for remark in (*filter(None, [model.problem]), *model.notes):
            note(f"{model.name}: {remark}")
    return OK


def _get(spec: str, directories: Sequence[str], jsonl: bool) -> int:
    """Download a model, and write the progress."""
    from inspector.documents.disk_models import far

    if directories:
        raise EngineError("--get downloads into the hub's cache.", "Leave the directories out.")
    shown = sys.stderr is not None and sys.stderr.isatty() and not jsonl

    def tell(progress: DownloadProgress) -> None:
        if jsonl:
            _listed([{"event": "DownloadProgress", **asdict(progress)}], (), True)
        elif shown:
            print(f"{ERASE}{far(progress)}", end="", file=sys.stderr, flush=True)

    try:
        path = download(spec, tell, lambda: False)
    except KeyboardInterrupt:
        note("Stopped. The files so far are kept: the same command resumes.")
        raise
    finally:
        if shown:
            sys.stderr.write(ERASE)
    return _listed([{"event": "Downloaded", "id": spec, "path": str(path)}], [str(path)], jsonl)


# ---- inspector sessions ----------------------------------------------------------------------


def sessions_parser() -> flags.Parser:
    """List the saved sessions, the most recently written one first."""
    epilog = (
        f"The last {sessions.MOST} are kept, within {sessions.MOST_BYTES // 2**20} MiB; the oldest go first, "
        "but never one with a mark of yours (a name, a bookmark, a note, a caption), nor one whose file you renamed. "
        "Continue one: inspector --resume NAME. Look at one: inspector replay NAME. Remove one: delete its file."
    )
    return flags.command_parser("sessions", sessions_parser.__doc__, epilog, flags.jsonl("table"))


def run_sessions(args: Namespace) -> int:
    found = sessions.saved_sessions()
    if args.jsonl or not found:
        values = ({"name": session.name, **to_builtins(session, enc_hook=str)} for session in found)
        return _listed(values, [f"No session is saved in {sessions.folder()}."], args.jsonl)
    rows = (
        (each.name, f"{datetime.fromtimestamp(each.changed):%Y-%m-%d %H:%M}", f"{each.tokens:,}",
         size(each.size), _about(each))
        for each in found
    )  # fmt: skip
    columns = Column("name"), Column("last written", priority=3), number("tokens"), number("size", 2)
    return write(table((*columns, Column("prompt", least=8)), rows, fit=True))


def _about(session: sessions.SavedSession) -> str:
    from inspector.display import truncate, visible

    if session.peek is None:
        return session.problem
    runs, made = "(runs) " * session.peek.in_use, f" · {session.made}" if session.made else ""
    return runs + truncate(visible(session.peek.user_message), _PROMPT) + made


# ---- inspector doctor ------------------------------------------------------------------------


def doctor_parser() -> flags.Parser:
    """List what a bug report needs of this machine: versions, devices, memory and terminal; and compare what the
    program computes here with mlx_lm: a prompt's forward pass, some steps, the KV cache with a fresh one, and two
    ranks. Each check has a line: ok, or the difference beside the one that rounding explains. The report has no path,
    prompt or token."""
    return flags.command_parser("doctor", doctor_parser.__doc__, f"{flags.EXIT_STATUS} 3 if a check fails.", {
        **flags.jsonl("lines", "one JSON object"),
        "model:": "",
        **flags.named("model", "adapter_path", "trust_remote_code", "float32_scales", "dtype", "blas"),
    })  # fmt: skip


def run_doctor(args: Namespace) -> int:
    """Run `inspector doctor`; raises as `inspector.cli.doctor.run`."""
    from inspector.cli.doctor import run

    try:
        return run(load_settings(args), args.jsonl)
    except KeyboardInterrupt:
        leave_at_once(INTERRUPTED)  # a forward pass may be under way


# ---- inspector --keys ------------------------------------------------------------------------


class ListedAction(Struct, frozen=True):
    """One action of the screen."""

    id: str
    keys: tuple[str, ...]
    where: str
    """Tab of the main screen, or else the title of the table that lists it."""
    label: str
    help: str
    own: bool
    """True if its keys are the user's own."""


def list_keys(jsonl: bool) -> int:
    """Run `inspector --keys`: all actions with their ids and keys, and what is wrong in keys.toml."""
    from inspector.main.key_table import key_table
    from inspector.views import TOOLS, plugins

    every = key_table((*TOOLS, *(each.tool for each in plugins() if each.tool is not None)))
    own = own_keys.read(every.places)
    keys.use(own.keys)

    def action(where: str, each: Action) -> ListedAction:
        names = tuple(map(keys.shown, each.names))
        return ListedAction(each.id, names, where, each.label, each.told, each.id in own.keys)

    listed = [
        action(f"{each.tabs[0]} {keys.TABS[each.tabs[0]]}" if each.tabs else "In every tab", each)
        for each in every.actions
    ]
    listed += [
        action(part.title, each)
        for part in every.tables
        for each in part.actions
        if each.id and (each.run is not None or each.id not in every)
    ]
    problems = [{"problem": each} for each in own.problems]
    return _listed((*listed, *problems), _key_lines(listed, own.problems), jsonl)


def list_plugins(jsonl: bool) -> int:
    """Run `inspector --plugins`: the views that installed packages bring, with their keys or what is wrong."""
    from inspector.views import plugins

    found = []
    for each in plugins():
        keys = ", ".join(action.way for action in each.tool.actions) if each.tool is not None else ""
        about = each.tool.actions[0].told if each.tool is not None else each.problem
        found.append({"name": each.name, "package": each.package, "keys": keys, "about": about})
    columns = map(Column, ("name", "package", "keys", "what it shows"))
    lines = table(columns, (each.values() for each in found))
    return _listed(found, lines if found else ["No package brings a view."], jsonl)


def _key_lines(listed: Sequence[ListedAction], problems: tuple[str, ...]) -> Iterator[str]:
    from inspector.display import pad

    ids = max(len(each.id) for each in listed)
    for where, actions in groupby(listed, key=lambda each: each.where):
        yield f"{where}:"
        for each in actions:
            yield f"  {pad(each.id, ids)}  {pad(' '.join(each.keys), 14)}  {each.help or each.label}"
        yield ""
    yield from problems


# ---- inspector completion: the code for a shell's start-up file --------------------------------

SHELLS = {
    "bash": 'eval "$(inspector completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(inspector completion zsh)" in ~/.zshrc, after compinit',
    "fish": "inspector completion fish | source in ~/.config/fish/config.fish",
}
"""The line in each shell's start-up file."""


def completion_parser() -> flags.Parser:
    ways = "; ".join(f"{shell}: {way}" for shell, way in SHELLS.items())
    description = "Print the code that makes a shell complete subcommands, flags, names of sessions and presets, and " \
                  f"other values with tab. Put one line into your shell's start-up file. {ways}."  # fmt: skip
    shell: flags.Flags = {"shell SHELL": ("the shell whose code to print", {"choices": SHELLS})}
    return flags.command_parser("completion", description, flags.EXIT_STATUS, shell)


def run_completion(args: Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    output().write(shellcode(["inspector"], shell=args.shell))
    return OK


# ---- answering the shell ----------------------------------------------------------------------


def complete(screen: ArgumentParser, *subcommands: ArgumentParser) -> None:
    """Answer a shell that asks for completions, and end the process; returns if no shell asks.

    Args:
        screen: The parser of `inspector` itself; the subcommands are added to it.
        subcommands: The parsers of the subcommands.
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
            if (values := KNOWN_VALUES.get(action.dest)) is not None and not action.choices:
                completer = lambda values=values, **_: list(values())  # noqa: E731 (argcomplete takes the prefix itself)
                setattr(action, "completer", completer)  # noqa: B010 (argcomplete's own attribute)
    # Flags are offered once a hyphen is typed; if nothing is offered, the shell itself completes file names.
    autocomplete(screen, always_complete_options=False, default_completer=SuppressCompleter())


KNOWN_VALUES: Mapping[str, Callable[[], Iterable[str]]] = {
    **{name: field.choices.keys for name, field in BY_NAME.items() if field.choices},
    "trace": sessions.names,
    "resume": sessions.names,
    "to": lambda: flags.DOCUMENTS,
    "preset": lambda: Presets().names,
    "model": lambda: ("pocket",),
    "views": lambda: (*show.VIEWS, *show.MEASURED),
}
"""Values to complete, by the name of their argument."""
