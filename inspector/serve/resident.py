"""How much memory groups of processes take: from /proc where there is one, else from ps."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_GROUP, _PAGES = 2, 21
"""Places in /proc/N/stat after the name, which is in brackets and may have anything in it."""


def resident() -> Mapping[int, int]:
    """Resident bytes of each group of processes, by the group's number; 0 for those that there are not."""
    found: Counter[int] = Counter()
    for group, size in _told_by_proc() if (_PROC / "self/stat").exists() else _told_by_ps():
        found[group] += size
    return found


def _told_by_proc() -> Iterator[tuple[int, int]]:
    page = os.sysconf("SC_PAGE_SIZE")
    for name in os.listdir(_PROC):
        if name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile
                fields = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
                yield int(fields[_GROUP]), int(fields[_PAGES]) * page


def _told_by_ps() -> Iterator[tuple[int, int]]:
    listed = subprocess.run(["ps", "-axo", "pgid=,rss="], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        group, kilobytes = line.split()
        yield int(group), int(kilobytes) * 1024
