"""Start the programs of these tests, each a rank 0 with ranks of its own, and look for what they leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

MARK = "TESTED_MARK"
"""A variable by which a program's processes are found."""
LONGEST = 400


class Program:
    """A program of `tests.engine.ranks`.

    Args:
        name: Of the module.
        given: Its arguments.
        variables: Of its environment.
    """

    def __init__(self, name: str, *given: object, stderr: int = subprocess.PIPE, **variables: str) -> None:
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"tests.engine.ranks.{name}", *map(str, given)],
            env={**os.environ, MARK: self.mark, **variables},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def lines(self) -> list[dict[str, Any]]:
        """What it printed until its end, which must be a good one."""
        out, err = self.process.communicate(timeout=LONGEST)
        assert self.process.returncode == 0, err[-3000:] if err else out[-1000:]
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

    def line(self) -> dict[str, Any]:
        """The next line that it prints."""
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def processes(self) -> list[int]:
        """Those of its processes that are there, itself among them; Linux alone tells."""
        return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if self._marked(folder)]

    def left(self) -> list[int]:
        """Those that are there some time after its end."""
        until = time.monotonic() + 20
        while (found := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def _marked(self, folder: Path) -> bool:
        try:
            environment = (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return self.mark.encode() in environment and state != "Z"
