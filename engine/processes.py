"""Child processes: with this process's module path, or with limits of time and memory."""

from __future__ import annotations

import importlib
import json
import math
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from subprocess import DEVNULL, PIPE, TimeoutExpired, run
from typing import Any

# ---- a function with limits of memory and processor time, enforced by the kernel ---------------
# For work that depends on a file or on the user's input and that this process could not interrupt: one call into C may
# take minutes or gigabytes. The child runs this file as a script: a JSON object in, a JSON object out.

PATIENCE = 6.0
"""Seconds after which the process is killed, even if it got little processor time."""


def limited(function: str, given: Mapping[str, Any], nbytes: int, seconds: int) -> dict[str, Any]:
    """Call a function in a separate process, within limits of memory and time.

    Args:
        function: `module:name`. The function takes `given` and returns a dict; importing the module imports everything
            that it needs.
        given: Values that can be written as JSON.
        nbytes: Maximum address space in bytes. macOS has no such limit; there only the time is limited.
        seconds: Maximum processor time after the imports.

    Returns:
        The function's result. If it took too much memory, `error` with a message without full stop; if the process
        ended without a result, `ended` with its exit status, or None if it took too long.

    Raises:
        OSError: No process can be started.
    """
    asked = {"path": sys.path, "function": function, "given": given, "bytes": nbytes, "seconds": seconds}
    try:
        # in a new session, so that Ctrl-C in the terminal reaches only this process
        pipes: dict[str, Any] = {"input": json.dumps(asked).encode(), "stdout": PIPE, "stderr": DEVNULL}
        done = run([sys.executable, "-I", "-S", __file__], **pipes, timeout=PATIENCE, start_new_session=True)
        answer: dict[str, Any] = json.loads(done.stdout)
    except TimeoutExpired:
        return {"ended": None}
    except ValueError:  # it wrote nothing, or only a part
        return {"ended": done.returncode}
    return answer


def answer() -> None:
    """Read the call (in the child process) from standard input and write its result to standard output."""
    asked = json.load(sys.stdin)
    sys.path[:] = asked["path"]
    module, _, name = asked["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    used = math.ceil(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))  # by the imports
    seconds = asked["seconds"] + used
    limits = ((resource.RLIMIT_AS, asked["bytes"]), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0))
    for kind, value in limits:
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))
    try:
        written = json.dumps(function(asked["given"]))
    except MemoryError:
        written = json.dumps({"error": f"it takes more than {asked['bytes'] >> 20} MiB of memory"})
    sys.stdout.write(written)


# ---- processes with this process's modules -----------------------------------------------------


def python_command(call: str) -> list[str]:
    """The command that starts this process's Python with the same module search path.

    Args:
        call: The statements to execute, on one line.
    """
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {call}"]


def ending_of(status: int) -> str:
    """The end of a process in words: `ended with status 1`, `was ended by SIGKILL`.

    Args:
        status: Return code from `subprocess`; negative if a signal ended the process.
    """
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


if __name__ == "__main__":
    answer()
