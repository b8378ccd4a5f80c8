"""Forks itself for each line of standard input, a time limit and what `engine.processes.answer` reads: see forked.py.

Run as a script, whose arguments are the places of modules and what is to be imported.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable


def forked(main: Callable[[], None], given: str, patience: float) -> str:
    """Run `main` in a fork; returns what it wrote until it ended, or its time was over."""
    ours, theirs = os.pipe()
    if not (fork := os.fork()):
        try:
            sys.stdin, sys.stdout = io.StringIO(given), os.fdopen(theirs, "w", encoding="utf-8")
            main()
            sys.stdout.flush()
        finally:
            os._exit(0)
    os.close(theirs)
    end, written = time.monotonic() + patience, b""
    while select.select([ours], [], [], max(0.0, end - time.monotonic()))[0] and (
        part := os.read(ours, 2**20)
    ):
        written += part
    os.kill(fork, signal.SIGKILL)
    os.waitpid(fork, 0)
    os.close(ours)
    return written.decode(errors="replace")


if __name__ == "__main__":
    sys.path[:], modules = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    for name in modules:
        importlib.import_module(name)
    from engine.processes import answer

    for line in sys.stdin:
        patience, given = json.loads(line)
        print(json.dumps(forked(answer, given, patience)), flush=True)
