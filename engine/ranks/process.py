"""One of the other ranks, as rank 0 sees it: a process with operations on its stdin and answers on its stdout.

What it writes to stderr goes to a file without a name, of mode 0600 in the directory for temporary files: nothing of it
is left behind whatever way a process ends, and its last lines are what the process said last. Standard library alone.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from engine.processes.python import ending_of, python_command
from engine.ranks.hosts import RankHost

MODULE = "engine.ranks.rank"
LAST_BYTES = 8192
"""Of its stderr, the end that is read."""
LONGEST = 240
"""Characters of its last words."""
_NOISE = re.compile(r"^\[ring\] ")
"""What MLX's ring writes when a peer is gone: an effect, not the cause."""

Arrived = Callable[[int, Mapping[str, Any] | None], None]
"""Takes a rank and its answer, or None once its stdout has ended; called in a thread."""


class RankProcess:
    """A rank that was started.

    Args:
        rank: Its number.
        host: Where it runs.
        arrived: Takes its answers.

    Raises:
        OSError: It can't be started.
    """

    def __init__(self, rank: int, host: RankHost, arrived: Arrived) -> None:
        self.rank, self.host = rank, host
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            _command(rank, host),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # a Ctrl-C of the terminal is answered by rank 0
        )
        self._arrived = arrived
        self._reader = threading.Thread(target=self._read, name=f"rank {rank}", daemon=True)
        self._reader.start()

    @property
    def name(self) -> str:
        """Its number, with its machine where that is another one."""
        return f"rank {self.rank}" + ("" if self.host.local else f" on {self.host.ssh}")

    @property
    def pid(self) -> int:
        """Of the process that was started here: ssh, for a rank on another machine."""
        return self._process.pid

    def send(self, line: bytes) -> None:
        """Send it a line; where it has ended, nothing happens, since `arrived` says so."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def close_input(self) -> None:
        """End its stdin, at which it ends itself."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()

    def kill(self) -> None:
        """End it at once, also where it was stopped; on another machine the end of its stdin ends it."""
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def ended(self, seconds: float) -> str:
        """Wait for its end.

        Returns:
            How it ended; empty where it has not.
        """
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return ""
        return ending_of(status)

    def last_words(self) -> str:
        """The last line of its stderr that says something, shortened; empty where there is none."""
        with suppress(OSError, ValueError):
            end = os.fstat(self._errors.fileno()).st_size
            text = os.pread(self._errors.fileno(), LAST_BYTES, max(0, end - LAST_BYTES))
            lines = [line.strip() for line in text.decode(errors="replace").splitlines()]
            said = [line for line in lines if line and not _NOISE.match(line)]
            return said[-1][:LONGEST] if said else ""
        return ""

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                answer = {"error": "it wrote what is no answer"}
            self._arrived(self.rank, answer if isinstance(answer, dict) else {"error": "no object"})
        self._arrived(self.rank, None)


def _command(rank: int, host: RankHost) -> list[str]:
    """What starts a rank: here with the modules of this process, elsewhere with the same Python and directory."""
    if host.local:
        return python_command(f"import {MODULE} as rank; rank.main({rank})")
    there = f"cd {shlex.quote(os.getcwd())} && exec {shlex.quote(sys.executable)} -m {MODULE} {rank}"
    return ["ssh", "-T", "-o", "BatchMode=yes", host.ssh, there]
