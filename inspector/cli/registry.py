"""The table of subcommands. A new one is one line here and its own file."""

from __future__ import annotations

from collections.abc import Mapping

from inspector.cli.subcommand import Subcommand
from inspector.cli.subcommands import (
    batch,
    beam,
    bench,
    completion,
    diff,
    engine,
    export,
    generate,
    inside,
    keys,
    learn,
    lesson,
    models,
    notes,
    profile,
    race,
    replay,
    score,
    serve,
    sessions,
    tokens,
)

SUBCOMMANDS: Mapping[str, Subcommand] = {
    "generate": generate.SUBCOMMAND,
    "batch": batch.SUBCOMMAND,
    "bench": bench.SUBCOMMAND,
    "race": race.SUBCOMMAND,
    "profile": profile.SUBCOMMAND,
    "beam": beam.SUBCOMMAND,
    "inside": inside.SUBCOMMAND,
    "score": score.SUBCOMMAND,
    "diff": diff.SUBCOMMAND,
    "tokens": tokens.SUBCOMMAND,
    "engine": engine.SUBCOMMAND,
    "replay": replay.SUBCOMMAND,
    "serve": serve.SUBCOMMAND,
    "learn": learn.SUBCOMMAND,
    "lesson": lesson.SUBCOMMAND,
    "notes": notes.SUBCOMMAND,
    "models": models.SUBCOMMAND,
    "sessions": sessions.SUBCOMMAND,
    "keys": keys.SUBCOMMAND,
    "export": export.SUBCOMMAND,
    "completion": completion.SUBCOMMAND,
}
"""By name, in the order of the help."""
