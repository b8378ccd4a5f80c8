"""What tests ask the system about processes: the same on Linux and on macOS, without a library for it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def peak(who: int = resource.RUSAGE_SELF) -> int:
    """The most bytes that this process had in memory so far, or any child that has ended.

    Args:
        who: `resource.RUSAGE_SELF` or `resource.RUSAGE_CHILDREN`.
    """
    return bytes_of(resource.getrusage(who))


def bytes_of(usage: resource.struct_rusage) -> int:
    """The most memory of what was used, in bytes: macOS counts bytes there, and Linux KiB."""
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that are there."""
    command = ["ps", "-A", "-o", "pid=,ppid="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ps:
        told = ps.communicate()[0]
    listed = [tuple(map(int, line.split())) for line in told.splitlines()]
    return [child for child, parent in listed if parent == pid and child != ps.pid]


def alive(pid: int) -> bool:
    """Whether a process is there; one that has ended is, until whoever started it asks for its status."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def descriptors() -> int:
    """How many files this process has open, the one to count them with among them."""
    return len(os.listdir("/dev/fd"))


def short_directory() -> Path:
    """A new directory for sockets, whose paths have 100 characters at most: macOS's own temporary one has 50."""
    return Path(tempfile.mkdtemp(prefix="inspector-", dir="/tmp"))


BLOCKED = """
import sys
asked = []
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED}:
            asked.append(name)
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Block())
"""


def python(
    program: str, *arguments: str, timeout: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """What a process of its own made of a program in Python."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)


def without_mlx(program: str, *arguments: str, also: tuple[str, ...] = ()) -> list[str]:
    """The lines that a program prints where MLX and what reads models is not there: it asks for none, not even in vain.

    Args:
        program: In Python; `asked` has what it asked for until then.
        arguments: Of it.
        also: Other packages that are not there.
    """
    names = {"mlx", "mlx_lm", "transformers", "tokenizers", "safetensors", "torch", *also}
    code = BLOCKED.replace("{BLOCKED}", repr(names)) + program + "\nprint(*asked)"
    done = python(code, *arguments, timeout=600)
    assert done.returncode == 0, done.stderr
    *lines, asked = done.stdout.splitlines()
    assert asked == ""
    return lines
