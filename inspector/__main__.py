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
"""Milliseconds until an escape was the key, and no sequence follows it: Textual waits 100. Of 4,250 sequences that tmux
wrote on two busy cores none came in two parts."""
_COLLECT_AFTER = (100_000, 10, 10)
"""Objects more than at the last time after which garbage is looked for, until a screen is run. What is imported stays:
at 10,000, looking through it took 20 ms until the first distribution, at Python's own 700 a tenth of the start."""


def hasten(environment: MutableMapping[str, str]) -> None:
    """Set what Textual reads when it is imported, and what is set already stays.

    Changes are painted 120 times a second at most instead of 60: a dialog, which is painted two or three times until
    it is whole, opens 10 to 20 ms sooner. An escape is a key after 20 ms, except over a network, where the rest of a
    sequence may come in a packet of its own: tmux and screen, which read it there, write what they read whole.

    Args:
        environment: Of the process.
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
    # SIGINT in the place of the exit status, even where it is caught; the next string that is executed undoes that.
    exec("")
    return code


if __name__ == "__main__":
    sys.exit(main())
