"""Processes that the engine starts: with the modules of this one, and with limits of time and memory."""

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

# ---- a function of the program, which the kernel limits in memory and in processor time --------
# For work that a file or the user chose and that nothing in this process could interrupt: one call of C may take
# minutes or gigabytes. The child runs this file as a script: a JSON object in, a JSON object out.

PATIENCE = 6.0
"""Seconds until the process is ended on a machine that gives it little processor time."""


def limited(function: str, given: Mapping[str, Any], nbytes: int, seconds: int) -> dict[str, Any]:
    """Call a function in a process of its own, within limits of memory and time.

    Args:
        function: `module:name`; the module imports all that the function needs. It takes `given` and returns a dict.
        given: Values that JSON has.
        nbytes: Bytes of address space. macOS has no such limit; there the time bounds what can be built.
        seconds: Processor time after the imports.

    Returns:
        The function's result. If it took too much memory, the sentence without its full stop as `error`; if the process
        was ended first, its exit status as `ended`, None if it took too long.

    Raises:
        OSError: No process can be started.
    """
    asked = {"path": sys.path, "function": function, "given": given, "bytes": nbytes, "seconds": seconds}
    try:
        # in a session of its own: a Ctrl-C of the terminal is answered here
        pipes: dict[str, Any] = {"input": json.dumps(asked).encode(), "stdout": PIPE, "stderr": DEVNULL}
        done = run([sys.executable, "-I", "-S", __file__], **pipes, timeout=PATIENCE, start_new_session=True)
        answer: dict[str, Any] = json.loads(done.stdout)
    except TimeoutExpired:
        return {"ended": None}
    except ValueError:  # it has written nothing, or a part
        return {"ended": done.returncode}
    return answer


def answer() -> None:
    """Answer standard input, in the child."""
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


# ---- processes of our own ----------------------------------------------------------------------


def python_command(call: str) -> list[str]:
    """The command that starts the Python of this process with the places of modules that this one has.

    Args:
        call: The statements to execute, on one line.
    """
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {call}"]


def ending_of(status: int) -> str:
    """The end of a process in words: `ended with status 1`, `was ended by SIGKILL`.

    Args:
        status: The status that `subprocess` returns: a signal's number is negative.
    """
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


if __name__ == "__main__":
    answer()
