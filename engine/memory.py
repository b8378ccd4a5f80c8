"""How much memory there is for a model, without MLX: as the operating system tells it. Standard library alone."""

from __future__ import annotations

import os
from pathlib import Path


def memory_available() -> int | None:
    """Bytes that a program can take without swapping, as Linux estimates them; None where that isn't known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(found) * 1024 if found is not None else None


def memory_installed() -> int | None:
    """Bytes of memory that the machine has, None where that isn't known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def memory_for_models() -> int | None:
    """Bytes that a model may take: what is free, else, where the system doesn't tell that, what is installed."""
    return memory_available() or memory_installed()
