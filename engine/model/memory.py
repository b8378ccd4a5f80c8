"""How much memory is free on this machine."""

from __future__ import annotations

from pathlib import Path


def memory_available() -> int | None:
    """Bytes that a program can take without swapping, as Linux estimates them; None where that isn't known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(found) * 1024 if found is not None else None
