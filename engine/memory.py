"""Memory for a model, and memory of this process, as the operating system reports them: no MLX."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

CUDA = ("mlx-cuda-12", "mlx-cuda-13")
"""The distributions that bring MLX's CUDA backend."""
WIRED_SHARE = 2 / 3
"""Share of a Mac's memory that Metal recommends at least: 10.7 of 16 GiB, 21.3 of 32, more on larger ones, as users
report it; not measured here, and MLX gives the figure itself once it runs."""
MemoryOf = Literal["machine", "gpu", "metal"]
"""The memory that arrays take: the machine's, a GPU's own, or the part of the machine's that Metal recommends."""


class Room(Struct, frozen=True):
    """Memory that a model may take."""

    free: int | None
    """Bytes; None if unknown."""
    of: MemoryOf


SECONDS = 5
"""Time limit for a program that reports memory."""


def memory_of() -> MemoryOf:
    """The memory that a model will take, before MLX runs; see `engine.model.facts.memory_of_device`."""
    from importlib import metadata  # slow to import, and only wanted here

    for distribution in CUDA:
        with suppress(metadata.PackageNotFoundError):
            metadata.version(distribution)
            return "gpu"
    return "metal" if sys.platform == "darwin" else "machine"


def memory_available() -> int | None:
    """Bytes that a program can take without swapping, as Linux and macOS estimate them; None if unknown."""
    if sys.platform == "darwin":
        return _on_a_mac(_output("/usr/bin/vm_stat"))
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(found) * 1024 if found is not None else None


def memory_installed() -> int | None:
    """Bytes of memory that the machine has, None if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def memory_for_models() -> int | None:
    """Bytes that a model may take before MLX runs: an estimate of `engine.model.facts.free_bytes`.

    Where MLX computes on CUDA, what is free on the GPU; on a Mac what is free, and no more than Metal recommends; else
    what is free, and where the system doesn't tell that, what is installed.
    """
    of = memory_of()
    if of == "gpu":
        return _on_cuda()
    free, installed = memory_available(), memory_installed()
    if of == "metal" and installed is not None:
        wired = int(installed * WIRED_SHARE)
        return wired if free is None else min(free, wired)
    return free or installed


def _on_cuda() -> int | None:
    """Bytes free on the GPU that MLX takes, the first that is visible; None if its driver doesn't tell."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"
    asked = ("--query-gpu=memory.free", "--format=csv,noheader,nounits", f"--id={device}")
    output = _output("nvidia-smi", *asked).strip()
    return int(output) * 2**20 if output.isdecimal() else None


def _on_a_mac(output: str) -> int | None:
    """Bytes that are free or can be taken from what isn't in use, from what `vm_stat` prints."""
    page = re.search(r"page size of (\d+) bytes", output)
    pages = re.findall(r"^Pages (?:free|inactive|speculative):\s+(\d+)\.$", output, re.MULTILINE)
    return int(page[1]) * sum(map(int, pages)) if page is not None and len(pages) == 3 else None


def _output(*command: str) -> str:
    """The output of a program; empty if there is none, or it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""


# ---- resident memory of the process ------------------------------------------------------------
# On Linux one read of a file that stays open, about 2 us. macOS reports the current figure only through calls that
# need more than Python's own library; there it is the peak so far.

STATM = "/proc/self/statm"


def reader() -> Callable[[], int]:
    """Return the function that reads the resident bytes on this system."""
    try:
        file = os.open(STATM, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return _peak
    page = os.sysconf("SC_PAGE_SIZE")
    return lambda: int(os.pread(file, 128, 0).split()[1]) * page


def _peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


resident = reader()
"""Returns the bytes of this process that are in memory."""


# ---- memory that is free again ------------------------------------------------------------------


def trim() -> None:
    """Give freed memory back to the system, if its C library is glibc; all threads may continue."""
    import ctypes  # 1.4 ms, which the first screen doesn't need

    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def size_words(count: int) -> str:
    """Bytes of memory as a sentence has them."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
