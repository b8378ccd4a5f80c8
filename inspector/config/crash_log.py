"""Where the traceback of a fault of the program itself is kept, for a report."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from inspector import places


def log_path() -> Path:
    """The log file, in the platform's own place for such."""
    return places.log()


def keep(command: str, trace: str) -> Path | None:
    """Append a traceback to the log.

    Args:
        command: What was being done.
        trace: The traceback.

    Returns:
        The log file, None where it can't be written.
    """
    try:
        path = log_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"{datetime.now().isoformat(timespec='seconds')} {command}\n{trace.rstrip()}\n\n")
    except OSError:
        return None
    return path
