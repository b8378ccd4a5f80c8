"""Make MLX's group of this process and the other ranks; each of them calls this at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.ranks import keeper

KEPT_SECONDS = 15.0
"""After which rank 0, waiting for a rank that does not come, is woken. They meet within 0.1 to 3 s."""


def join(rank: int, backend: str, files: Mapping[str, str], variables: Mapping[str, str]) -> Any:
    """Join the ranks' group.

    Args:
        rank: This one.
        backend: Of MLX.
        files: Contents of files by the variable that names the file to MLX; they are there while it reads them.
        variables: What else MLX reads of the environment.

    Returns:
        MLX's group.

    Raises:
        RuntimeError: Another rank did not come.
    """
    with tempfile.TemporaryDirectory(prefix="inspector-") as folder:
        set_here = {**variables, "MLX_RANK": str(rank)}
        for name, content in files.items():
            path = Path(folder, name)
            path.write_text(content)
            set_here[name] = str(path)
        before = {name: os.environ.get(name) for name in set_here}
        os.environ.update(set_here)
        try:
            return mx.distributed.init(strict=True, backend=backend.removesuffix("-ring"))
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@contextmanager
def kept_from_waiting(addresses: Sequence[tuple[str, int]]) -> Iterator[None]:
    """Have this process woken where it waits in `join` too long.

    Args:
        addresses: Where it listens.
    """
    given = [str(part) for address in addresses for part in address]
    command = [sys.executable, "-I", "-S", keeper.__file__, str(KEPT_SECONDS), *given]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        process.communicate()  # its stdin ends, and it with that
