"""`python -m inspector` and the command `inspector`: both begin here, so that an early Ctrl-C is no traceback."""

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
    except KeyboardInterrupt:
        return _INTERRUPTED
    return run()


if __name__ == "__main__":
    sys.exit(main())
