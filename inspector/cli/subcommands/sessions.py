"""`inspector sessions`: the sessions that were saved as they went, as a table or JSON lines."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from inspector.cli.exit import OK, output
from inspector.cli.flags import Parser, add_jsonl, command_parser
from inspector.cli.subcommand import Subcommand

if TYPE_CHECKING:
    from inspector.recordings.sessions import SavedSession

_PROMPT = 40
"""Characters of a prompt that the table shows."""


def parser() -> Parser:
    """The parser of `inspector sessions`."""
    from inspector.recordings import sessions

    made = command_parser(
        "sessions",
        "List the sessions that were saved as they went, the one last written to first.",
        f"The last {sessions.MOST} are kept, within {sessions.MOST_BYTES // 2**20} MiB; the oldest go first, "
        "but never one in which something was marked (a name, a bookmark, a note, a caption), nor one whose file "
        "you renamed. Go on with one: inspector --resume NAME. Look at one: inspector replay NAME. Put one away: "
        "delete its file.",
    )
    add_jsonl(made, "table")
    return made


def run(args: Namespace) -> int:
    """Run `inspector sessions`."""
    from inspector.recordings import sessions

    out, listed = output(), sessions.saved_sessions()
    for line in _objects(listed) if args.jsonl else _table(listed):
        out.write(line + "\n")
    return OK


SUBCOMMAND = Subcommand(parser, run, "the sessions that were saved as they went")


def _objects(listed: Sequence[SavedSession]) -> Iterator[str]:
    for session in listed:
        peek = session.peek
        changed = datetime.fromtimestamp(session.changed, UTC).isoformat(timespec="seconds")
        event = {
            "name": session.name,
            "path": str(session.path),
            "changed": changed,
            "created": peek.created if peek else None,
            "model": peek.model if peek else None,
            "prompt": peek.prompt if peek else None,
            "tokens": session.tokens,
            "made_with": session.made,
            "bytes": session.size,
            "in_use": bool(peek and peek.in_use),
            "problem": session.problem or None,
        }
        yield json.dumps(event, ensure_ascii=True)


def _table(listed: Sequence[SavedSession]) -> Iterator[str]:
    from inspector.display import pad, visible  # drawn with characters; not needed for --help
    from inspector.recordings import sessions

    if not listed:
        yield f"No session is saved in {visible(str(sessions.folder()))}."
        return
    names = max(len("name"), *(len(visible(s.name)) for s in listed))
    yield f"{pad('name', names)}  {'last written':16}  {'tokens':>7}  {'size':>9}  prompt"
    for s in listed:
        when = datetime.fromtimestamp(s.changed).strftime("%Y-%m-%d %H:%M")
        yield (f"{pad(visible(s.name), names)}  {when}  {s.tokens:7,}  {s.size / 1024:7,.0f} K  {_about(s)}")


def _about(session: SavedSession) -> str:
    from inspector.display import truncate, visible

    if session.peek is None:
        return visible(session.problem)
    runs = "(runs) " if session.peek.in_use else ""
    made = f" · {session.made}" if session.made else ""
    return runs + truncate(visible(session.peek.user_message), _PROMPT) + made
