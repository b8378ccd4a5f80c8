"""`python -m inspector` and the command `inspector`: both begin here, so that an early Ctrl-C is no traceback.

A Ctrl-C before this module, while Python itself starts, and after it, while Python ends, is Python's own to answer.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import MutableMapping

_INTERRUPTED = 130
_ESCAPE_DELAY = "20"
"""Milliseconds after which an escape is the key, if no sequence follows: Textual waits 100. Of 4,250 sequences that
tmux wrote on two busy cores none came in two parts."""
_COLLECT_AFTER = (100_000, 10, 10)
"""Threshold of Python's garbage collector until a screen is run. Imported objects stay: at 10,000, looking through them
took 20 ms until the first distribution, at Python's own 700 a tenth of the start."""


def hasten(environment: MutableMapping[str, str]) -> None:
    """Set the variables that Textual reads when it is imported, unless they are set already.

    Changes are painted 120 times a second at most instead of 60: a dialog, which is painted two or three times until
    it is whole, opens 10 to 20 ms sooner. An escape is a key after 20 ms, except over a network, where the rest of a
    sequence may come in a packet of its own: tmux and screen, which read it there, write what they read whole.

    Args:
        environment: The process's own.
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
        from inspector.cli.main import main as run  # takes a while, and Ctrl-C may come meanwhile

        code = run()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    # A KeyboardInterrupt that leaves an `exec` of a string, as every dataclass runs one, makes `python -m` end by
    # SIGINT instead of the exit status, even if it is caught; the next string that is executed undoes that.
    exec("")
    return code


if __name__ == "__main__":
    sys.exit(main())
