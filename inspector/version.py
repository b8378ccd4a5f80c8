"""The version of the program. Standard library alone."""

from __future__ import annotations


def version() -> str:
    """The installed version; `from a checkout` if the program isn't installed."""
    from importlib import metadata  # slow to import, and only needed here

    try:
        return metadata.version("mlx-inspector")
    except metadata.PackageNotFoundError:
        return "from a checkout"


def program() -> str:
    """Name and version, as written in the program's files."""
    return f"mlx-inspector {version()}"
