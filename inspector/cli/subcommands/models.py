"""`inspector models`: the models that are on the disk, as a table or JSON lines."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import to_builtins
from msgspec.structs import asdict

from engine.errors import EngineError
from inspector.cli.exit import OK, note, output
from inspector.cli.flags import Parser, Subcommand, add_jsonl, command_parser

if TYPE_CHECKING:
    from engine.models_on_disk.models import DiskModel

ERASE = "\r\x1b[K"
"""Takes a line of progress away."""
_NAME = 60
"""Cells of a name at most; the path follows in JSON."""


def models_parser() -> Parser:
    """The parser of `inspector models`."""
    made = command_parser(
        "models",
        "List the models on the disk: the bundled one, those of recent sessions, and those in the hub's cache "
        "(HF_HUB_CACHE, HF_HOME), in LM Studio's folders and in the directories of INSPECTOR_MODELS, which are "
        "separated as in PATH. Only config.json and the headers of the weights are read.",
        "bits: those of most weights. KV/token: the memory that one more token takes in the cache, in the type of the "
        "files. fits: the longest context for which weights x 1.1 + KV fit into the memory that is free now; on a Mac, "
        "into the installed memory. To open one: inspector --model NAME, or its path. The same command continues an "
        "interrupted download; every file is checked against the hash that the hub states.",
    )
    made.add_argument(
        "directories",
        metavar="DIR",
        nargs="*",
        help="list only the models in these directories, two levels deep",
    )
    made.add_argument(
        "--get", metavar="ID", help="download this model from the hub (HF_ENDPOINT) into the hub's cache"
    )
    add_jsonl(made, "table")
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
    from inspector.cli.writers.json_lines import json_line
    from inspector.recordings.sessions import recent_models

    recent = () if args.directories else recent_models()
    models, available, out = listed(args.directories, recent), memory_for_models(), output()
    if args.jsonl:
        for model in models:
            fits = None if model.problem else model.fits(available)
            known = to_builtins(model, enc_hook=str)
            out.write(json_line({**known, "available": available, "fits": fits}))
        return OK
    found = list(models)
    for line in _table(found, available):
        out.write(line + "\n")
    out.flush()
    for model in found:
        for remark in (*filter(None, [model.problem]), *model.notes):
            note(f"{model.name}: {remark}")
    return OK


MODELS = Subcommand("models", models_parser, run_models, "list the models on the disk; --get downloads one")


def _get(spec: str, directories: Sequence[str], jsonl: bool) -> int:
    """Download a model, and tell how far it is."""
    from engine.models_on_disk.download import DownloadProgress, download
    from inspector.cli.writers.json_lines import json_line
    from inspector.state.disk_models import far

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
    out.write(json_line({"event": "Downloaded", "id": spec, "path": str(path)}) if jsonl else f"{path}\n")
    out.flush()
    return OK


def _table(found: Sequence[DiskModel], available: int | None) -> Iterator[str]:
    from inspector.display import pad, visible  # drawn with characters; not needed for --help
    from inspector.state.disk_models import COLUMNS, cells

    rows = [{"name": visible(model.name), **cells(model, available)} for model in found]
    columns = ("name", *COLUMNS)
    widths = {c: min(_NAME, max(len(c), *(len(row[c]) for row in rows))) for c in columns} if rows else {}
    for row in ({c: c for c in columns}, *rows) if rows else ():
        yield "  ".join(pad(row[c], widths[c], right=c not in ("name", "family")) for c in columns).rstrip()
