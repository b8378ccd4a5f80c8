"""Processes of our own beside this one: what starts them with this one's modules, and how they ended, in words."""

from __future__ import annotations

import signal
import sys


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
