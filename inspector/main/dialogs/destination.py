"""The file that a dialog writes: checked as it is typed, and replaced on the second request alone."""

from __future__ import annotations

from pathlib import Path

from engine.errors import PathError
from engine.files import free, here, typed


class Destination:
    """The file that is typed in one dialog.

    Args:
        verb: What asks again: `Save` or `Export`.
    """

    def __init__(self, verb: str) -> None:
        self._again = f"{verb} again to replace it, or give another name."
        self._told = ""
        """The text whose file is there already, as the user was warned."""

    def check(self, text: str) -> tuple[Path, bool]:
        """See that a file can be written.

        Args:
            text: As it was typed.

        Returns:
            Its path, and whether a file that is there may be replaced.

        Raises:
            PathError: No file was named, none can be, or one is there and the user was not warned.
        """
        if not text:
            raise PathError("No file was named.", "Give a name.")
        path, known = typed(text), text == self._told
        if not known and path.is_file():
            self._told = text
        return free(path, known, self._again), known


def directory_hint() -> str:
    """The directory that a name alone is put into, in a sentence; or the reason that there is none."""
    try:
        return f"A name alone is put into {here()}"
    except PathError as error:
        return str(error)
