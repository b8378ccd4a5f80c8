"""`python -m inspector` and the command `inspector`: both begin here, so that an early Ctrl-C is no traceback.

A Ctrl-C before this module, while Python itself starts, and after it, while Python ends, is Python's own to answer.
"""

from __future__ import annotations

import gc
import sys
from threading import Timer

_INTERRUPTED = 130
_COLLECT_AFTER = (10_000, 10, 10)
"""Objects more than at the last time after which garbage is looked for: at Python's own pace, 700, that took a tenth of
the start and a seventh of opening dialogs."""
_BEGUN = 2.0
"""Seconds in which a program has begun."""


def collect_rarely() -> None:
    """Look for garbage in cycles less often than Python does by itself, and not while the program begins: what it
    imports stays, and looking through that took 20 ms until the first distribution."""
    gc.set_threshold(*_COLLECT_AFTER)
    gc.disable()
    begun = Timer(_BEGUN, gc.enable)
    begun.daemon = True
    try:
        begun.start()
    except RuntimeError:  # no thread can be started: what needs one says so
        gc.enable()


def main() -> int:
    """Run the command line.

    Returns:
        The exit status.
    """
    try:
        collect_rarely()
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
