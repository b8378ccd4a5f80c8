"""Keep what MLX's ring writes to a terminal off the screen: some 20 lines, by threads of C++, when a rank is lost."""

from __future__ import annotations

import io
import os
import sys
import tempfile

_kept: list[object] = []
"""The file, as long as the process."""


def keep_off_terminal() -> None:
    """Send what is written to descriptor 2 to a file without a name, where it is a terminal's.

    Python's own `sys.stderr` goes on to the terminal, by another descriptor: the objects that others hold of it, too.
    """
    buffer = getattr(sys.__stderr__, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if _kept or not os.isatty(2) or not isinstance(raw, io.FileIO) or raw.fileno() != 2:
        return
    file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
    _kept.append(file)
    raw.__init__(os.dup(2), "wb", closefd=False)  # type: ignore[misc]
    os.dup2(file.fileno(), 2)
