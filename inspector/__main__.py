"""`python -m inspector` and the command `inspector`: both begin here, so that an early Ctrl-C is no traceback.

A Ctrl-C before this module, while Python itself starts, and after it, while Python ends, is Python's own to answer.
"""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> int:
    """Run the command line.

    Returns:
        The exit status.
    """
    try:
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
