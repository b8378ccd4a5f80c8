"""Entry point of `python -m inspector` and the command `inspector`; an early Ctrl-C gives no traceback.

A Ctrl-C while Python itself starts or ends, outside this module, is handled by Python.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import MutableMapping

_INTERRUPTED = 130
_ESCAPE_DELAY = "20"
"""Milliseconds after which an escape without a following sequence is the key; Textual waits 100. Of 4,250 sequences
that tmux wrote on two busy cores, none came in two parts."""
_COLLECT_AFTER = (100_000, 10, 10)
"""Thresholds of Python's garbage collector until a screen runs. Imported objects stay: with 10,000, scanning them took
20 ms until the first distribution; with Python's default of 700, a tenth of the start."""


def hasten(environment: MutableMapping[str, str]) -> None:
    """Set the variables that Textual reads when it is imported, unless they are already set.

    Changes are painted at most 120 times a second instead of 60: a dialog, which is painted two or three times until
    it is complete, opens 10 to 20 ms sooner. An escape is a key after 20 ms, except over a network, where the rest of a
    sequence may come in its own packet; tmux and screen collect sequences there and pass them on whole.

    Args:
        environment: The environment of the process.
    """
    environment.setdefault("TEXTUAL_FPS", "120")
    if "SSH_CONNECTION" not in environment or {"TMUX", "STY"} & environment.keys():
        environment.setdefault("ESCDELAY", _ESCAPE_DELAY)


def main() -> int:
    """Run the command line.

    Returns:
        The exit status.
    """
    try:
        gc.set_threshold(*_COLLECT_AFTER)
        hasten(os.environ)
        from inspector.cli.main import main as run  # slow to import, and Ctrl-C may come meanwhile

        code = run()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    # After a KeyboardInterrupt inside an `exec` of a string, which every dataclass runs, `python -m` ends by SIGINT
    # instead of with the exit status, even if the interrupt is caught; executing another string undoes that.
    exec("")
    return code


if __name__ == "__main__":
    sys.exit(main())
