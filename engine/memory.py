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
"""The distributions with MLX's CUDA backend."""
WIRED_SHARE = 2 / 3
"""Smallest share of a Mac's memory that Metal recommends: 10.7 of 16 GiB, 21.3 of 32, and more on larger Macs, as
reported by users. Not measured here; MLX reports the exact figure once it runs."""
MemoryOf = Literal["machine", "gpu", "metal"]
"""The memory that arrays use: the machine's, the GPU's own, or the part of the machine's that Metal recommends."""


class Room(Struct, frozen=True):
    """Memory that a model may take."""

    free: int | None
    """Bytes; None if unknown."""
    of: MemoryOf


SECONDS = 5
"""Time limit for a program that reports memory."""


def memory_of() -> MemoryOf:
    """The memory that a model will take, before MLX runs; see `engine.model.facts.memory_of_device`."""
    from importlib import metadata  # slow to import, and only needed here

    for distribution in CUDA:
        with suppress(metadata.PackageNotFoundError):
            metadata.version(distribution)
            return "gpu"
    return "metal" if sys.platform == "darwin" else "machine"


def memory_available() -> int | None:
    """Bytes that a program can use without swapping, as estimated by the system; None if unknown."""
    if sys.platform == "darwin":
        return _on_a_mac(_output("/usr/bin/vm_stat"))
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(found) * 1024 if found is not None else None


def memory_installed() -> int | None:
    """Bytes of memory that the machine has; None if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def memory_for_models() -> int | None:
    """Bytes that a model may take, before MLX runs: an estimate of `engine.model.facts.free_bytes`.

    With CUDA, the free memory of the GPU; on a Mac, the free memory up to the amount that Metal recommends; otherwise
    the free memory, or all installed memory if the system doesn't report it.
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
    """Free bytes on the GPU that MLX uses, the first visible one; None if the driver doesn't report them."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"
    asked = ("--query-gpu=memory.free", "--format=csv,noheader,nounits", f"--id={device}")
    output = _output("nvidia-smi", *asked).strip()
    return int(output) * 2**20 if output.isdecimal() else None


def _on_a_mac(output: str) -> int | None:
    """Bytes that are free or reclaimable, from the output of `vm_stat`; None if it can't be parsed."""
    page = re.search(r"page size of (\d+) bytes", output)
    pages = re.findall(r"^Pages (?:free|inactive|speculative):\s+(\d+)\.$", output, re.MULTILINE)
    return int(page[1]) * sum(map(int, pages)) if page is not None and len(pages) == 3 else None


def _output(*command: str) -> str:
    """The output of a program; empty if it isn't installed or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""


# ---- resident memory of the process ------------------------------------------------------------
# On Linux this is one read from a file that stays open, about 2 us. macOS reports the current figure only through calls
# that the standard library lacks; there the peak so far is returned.

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
"""Returns the resident bytes of this process."""


# ---- freed memory -------------------------------------------------------------------------------


def trim() -> None:
    """Return freed memory to the system if the C library is glibc; other threads keep running."""
    import ctypes  # takes 1.4 ms to import; not needed for the first screen

    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def size_words(count: int) -> str:
    """Bytes of memory for a sentence: `1.5 GiB`, `300 MiB`."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
