"""Reading text files that the user names, within a size limit and as UTF-8, and lists of names for messages."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import PromptError
from engine.files import TEXT_LIMIT, read_regular, shorter, typed


def read_text_file(name: str, kind: str, mend: str, otherwise: str) -> str:
    """The text of a file.

    Args:
        name: Path of the file.
        kind: What to call the file in a message.
        mend: A sentence on what to do if it is missing.
        otherwise: A sentence on what to do if it can't be read.

    Raises:
        PromptError: It is missing, can't be read, isn't a regular UTF-8 file, or has more than `TEXT_LIMIT` bytes.
    """
    try:
        return decoded(read_regular(typed(name), TEXT_LIMIT), name)
    except FileNotFoundError:
        raise PromptError(f"There is no {kind} {shorter(name)!r}.", mend) from None
    except OSError as error:
        message = f"The {kind} {shorter(name)} can't be read: {error.strerror}."
        raise PromptError(message, otherwise) from error


def decoded(raw: bytes, source: str) -> str:
    """Decode bytes as UTF-8.

    Args:
        raw: The bytes.
        source: Name of their file, for the message.

    Raises:
        PromptError: They are not UTF-8.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        where = f"byte {raw[error.start]:#04x} at offset {error.start}"
        raise PromptError(
            f"{source} is not UTF-8 ({where}).", "Convert it first, with iconv for example."
        ) from None


def few(names: Sequence[str], most: int) -> str:
    """The first names of a list, for a message, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
