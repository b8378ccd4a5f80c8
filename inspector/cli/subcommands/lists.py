"""`inspector models` and `sessions`, and `inspector --keys`: lists, as tables or JSON lines."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from engine.errors import EngineError
from inspector.cli import flags
from inspector.cli.exit import OK, note, output, write

if TYPE_CHECKING:
    from engine.models_on_disk.download import DownloadProgress
    from engine.models_on_disk.models import DiskModel
    from inspector.recordings.sessions import SavedSession
    from inspector.widgets.actions import Action

ERASE = "\r\x1b[K"
"""Takes a line of progress away."""
_NAME = 60
"""Cells of a name at most; the path follows in JSON."""
_PROMPT = 40
"""Characters of a prompt that the table of sessions shows."""


def _listed(values: Iterable[object], lines: Iterable[str], jsonl: bool) -> int:
    """Write a list, as JSON lines or as a table."""
    from inspector.cli.writers.json_lines import json_line

    return write(json_line(value).rstrip() for value in values) if jsonl else write(lines)


# ---- inspector models ------------------------------------------------------------------------


def models_parser() -> flags.Parser:
    """List the models on the disk: the bundled one, those of recent sessions, and those in the hub's cache
    (HF_HUB_CACHE, HF_HOME), in LM Studio's folders and in the directories of INSPECTOR_MODELS, which are separated as
    in PATH. Only config.json and the headers of the weights are read."""
    made = flags.command_parser(
        "models",
        models_parser.__doc__,
        "bits: those of most weights. KV/token: the memory that one more token takes in the cache, in the type of the "
        "files. fits: the longest context for which weights x 1.1 + KV fit into the memory that is free now; on a Mac, "
        "into the installed memory. To open one: inspector --model NAME, or its path. The same command continues an "
        "interrupted download; every file is checked against the hash that the hub states.",
    )
    directories = "list only the models in these directories, two levels deep"
    made.add_argument("directories", metavar="DIR", nargs="*", help=directories)
    get = "download this model from the hub (HF_ENDPOINT) into the hub's cache"
    made.add_argument("--get", metavar="ID", help=get)
    flags.add_jsonl(made, "table")
    return made


def run_models(args: Namespace) -> int:
    """Run `inspector models`.

    Raises:
        EngineError: A model can't be downloaded.
    """
    if args.get is not None:
        return _get(args.get, args.directories, args.jsonl)
    from engine.memory import memory_for_models
    from engine.models_on_disk.models import listed
    from inspector.recordings.sessions import recent_models

    available = memory_for_models()
    models = listed(args.directories, () if args.directories else recent_models())
    if args.jsonl:
        return _listed((_model_values(model, available) for model in models), (), True)
    found = list(models)
    write(_model_lines(found, available))
    for model in found:
        for remark in (*filter(None, [model.problem]), *model.notes):
            note(f"{model.name}: {remark}")
    return OK


def _model_values(model: DiskModel, available: int | None) -> dict[str, Any]:
    fits = None if model.problem else model.fits(available)
    return {**to_builtins(model, enc_hook=str), "available": available, "fits": fits}


def _model_lines(found: Sequence[DiskModel], available: int | None) -> Iterator[str]:
    from inspector.display import pad, visible  # drawn with characters; not needed for --help
    from inspector.documents.disk_models import cells

    rows = [{"name": visible(model.name), **cells(model, available)} for model in found]
    rows = [{column: column for column in rows[0]}, *rows] if rows else []
    widths = {column: min(_NAME, max(len(row[column]) for row in rows)) for column in (rows or [{}])[0]}
    for row in rows:
        cells_of = ((row[each], width, each not in ("name", "family")) for each, width in widths.items())
        yield "  ".join(pad(text, width, right=right) for text, width, right in cells_of).rstrip()


def _get(spec: str, directories: Sequence[str], jsonl: bool) -> int:
    """Download a model, and write how far it is."""
    from engine.models_on_disk.download import download
    from inspector.cli.writers.json_lines import json_line
    from inspector.documents.disk_models import far

    if directories:
        raise EngineError("--get downloads into the hub's cache.", "Leave the directories out.")
    out, shown = output(), sys.stderr is not None and sys.stderr.isatty() and not jsonl

    def tell(progress: DownloadProgress) -> None:
        if jsonl:
            out.write(json_line({"event": "DownloadProgress", **asdict(progress)}))
            out.flush()
        elif shown:
            sys.stderr.write(f"{ERASE}{far(progress)}")
            sys.stderr.flush()

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
    from inspector.recordings import sessions

    made = flags.command_parser(
        "sessions",
        sessions_parser.__doc__,
        f"The last {sessions.MOST} are kept, within {sessions.MOST_BYTES // 2**20} MiB; the oldest go first, "
        "but never one with a mark of yours (a name, a bookmark, a note, a caption), nor one whose file you renamed. "
        "Continue one: inspector --resume NAME. Look at one: inspector replay NAME. Remove one: delete its file.",
    )
    flags.add_jsonl(made, "table")
    return made


def run_sessions(args: Namespace) -> int:
    """Run `inspector sessions`."""
    from inspector.recordings.sessions import saved_sessions

    listed = saved_sessions()
    values = ({"name": session.name, **to_builtins(session, enc_hook=str)} for session in listed)
    return _listed(values, _session_lines(listed), args.jsonl)


def _session_lines(listed: Sequence[SavedSession]) -> Iterator[str]:
    from inspector.display import pad, visible
    from inspector.recordings import sessions

    if not listed:
        yield f"No session is saved in {sessions.folder()}."
        return
    names = max(len("name"), *(len(visible(s.name)) for s in listed))
    yield f"{pad('name', names)}  {'last written':16}  {'tokens':>7}  {'size':>9}  prompt"
    for s in listed:
        when = datetime.fromtimestamp(s.changed).strftime("%Y-%m-%d %H:%M")
        yield f"{pad(visible(s.name), names)}  {when}  {s.tokens:7,}  {s.size / 1024:7,.0f} K  {_about(s)}"


def _about(session: SavedSession) -> str:
    from inspector.display import truncate, visible

    if session.peek is None:
        return session.problem
    runs, made = "(runs) " * session.peek.in_use, f" · {session.made}" if session.made else ""
    return runs + truncate(visible(session.peek.user_message), _PROMPT) + made


# ---- inspector --keys ------------------------------------------------------------------------


class ListedAction(Struct, frozen=True):
    """One action of the screen."""

    id: str
    keys: tuple[str, ...]
    where: str
    """Group of the main screen, or else its place."""
    label: str
    help: str
    own: bool
    """True if its keys are the user's own."""


def list_keys(jsonl: bool) -> int:
    """Run `inspector --keys`: all actions with their ids and keys, and what is wrong in keys.toml."""
    from inspector import keys
    from inspector.config import own_keys
    from inspector.main.key_table import key_table
    from inspector.views import TOOLS

    table = key_table(TOOLS)
    own = own_keys.read(list(table.places()))
    keys.use(own.keys)

    def action(where: str, each: Action) -> ListedAction:
        names = tuple(map(keys.shown, each.names))
        return ListedAction(each.id, names, where, each.label, each.told, each.id in own.keys)

    listed = [
        action(f"{each.tabs[0]} {keys.TABS[each.tabs[0]]}" if each.tabs else "In every tab", each)
        for each in table.actions
    ]
    listed += [
        action(part.title, each)
        for part in table.tables
        for each in part.actions
        if each.id and (each.run is not None or each.id not in table)
    ]
    problems = [{"problem": each} for each in own.problems]
    return _listed((*listed, *problems), _key_lines(listed, own.problems), jsonl)


def _key_lines(listed: Sequence[ListedAction], problems: tuple[str, ...]) -> Iterator[str]:
    from inspector.display import pad

    ids = max(len(each.id) for each in listed)
    for where, actions in groupby(listed, key=lambda each: each.where):
        yield f"{where}:"
        for each in actions:
            yield f"  {pad(each.id, ids)}  {pad(' '.join(each.keys), 14)}  {each.help or each.label}"
        yield ""
    yield from problems
