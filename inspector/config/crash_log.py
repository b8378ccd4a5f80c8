"""Where the traceback of a fault of the program itself is kept, for a report."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path


def log_path() -> Path:
    """The log file, in the platform's own place for such."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Logs" / "mlx-inspector.log"
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "mlx-inspector" / "inspector.log"


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
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None
    return path
