"""The version of the program. Standard library alone."""

from __future__ import annotations


def version() -> str:
    """The installed version; `from a checkout` where the program was not installed."""
    from importlib import metadata  # slow to import, and only wanted here

    try:
        return metadata.version("mlx-inspector")
    except metadata.PackageNotFoundError:
        return "from a checkout"


def program() -> str:
    """Name and version, as in the files that the program writes."""
    return f"mlx-inspector {version()}"
