"""Processes that the engine starts: with the modules of this one, and with limits of time and memory."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# ---- a script of the program, which the kernel limits in memory and in processor time ----------
# For work that a file or a person chose and that nothing in this process could interrupt: one call of C may take
# minutes or gigabytes. The script reads a JSON object from its standard input and writes one to its standard output.

PATIENCE = 6.0
"""Seconds until the process is ended on a machine that gives it little processor time."""


def answer_of(script: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Run a script.

    Args:
        script: It sets `sys.path` to the `path` that it is given, and calls `limit`.
        given: What it reads, of values that JSON has.

    Returns:
        What it wrote. If it was ended first, its exit status as `ended`; None if it took too long.

    Raises:
        OSError: No process can be started.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(script)],
            input=json.dumps({"path": sys.path, **given}).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            start_new_session=True,  # a Ctrl-C of the terminal is answered here
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"ended": None}
    except ValueError:  # it has written nothing, or a part
        return {"ended": done.returncode}
    return answer


def limit(nbytes: int, seconds: int) -> None:
    """Limit this process; called by the script once it has imported what it needs.

    Args:
        nbytes: Of address space. macOS has no such limit; there the time bounds what can be built.
        seconds: Of processor time since the process began.
    """
    limits = ((resource.RLIMIT_AS, nbytes), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0))
    for kind, value in limits:
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))


# ---- processes of our own ----------------------------------------------------------------------


def python_command(call: str) -> list[str]:
    """What starts the Python of this process with the places of modules that this one has.

    Args:
        call: The statements to execute, on one line.
    """
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {call}"]


def ending_of(status: int) -> str:
    """How a process ended: `ended with status 1`, `was ended by SIGKILL`.

    Args:
        status: As `subprocess` has it: a signal's number is negative.
    """
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
