"""Start the programs of these tests on ranks of this machine, and find what processes they leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engine.ranks.hosts import hosts_of
from engine.settings import LoadSettings

MARK = "TESTED_MARK"
"""A variable by which processes are found."""
LONGEST = 400


def on_ranks(name: str, ranks: int, *given: object) -> dict[str, Any]:
    """Run the `main` of a module of these tests on each rank.

    Args:
        name: The module.
        ranks: How many.
        given: Arguments of `main`.

    Returns:
        What rank 0 printed, one JSON object.
    """
    call = f"from tests.engine.ranks.{name} import main; main(*{[str(each) for each in given]!r})"
    with TemporaryDirectory() as folder:
        command = hosts_of(LoadSettings(ranks=ranks)).command(Path(folder), call)
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        out, err = process.communicate("\n", timeout=LONGEST)
    line = next((line for line in out.splitlines() if line.startswith("{")), "")
    assert line, err[-3000:]
    found: dict[str, Any] = json.loads(line)
    return found


@contextmanager
def marked() -> Iterator[str]:
    """Mark the processes that are started meanwhile."""
    os.environ[MARK] = uuid.uuid4().hex
    try:
        yield os.environ[MARK]
    finally:
        del os.environ[MARK]


def left(mark: str) -> list[int]:
    """Marked processes that are there some time after their end; Linux alone tells."""
    until = time.monotonic() + 20
    while (
        found := [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _is_marked(folder, mark)]
    ) and (time.monotonic() < until):
        time.sleep(0.05)
    return found


def _is_marked(folder: Path, mark: str) -> bool:
    try:
        environment = (folder / "environ").read_bytes()
        state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return mark.encode() in environment and state != "Z"
