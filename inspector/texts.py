"""Texts in files that the user names: read whole, within bounds, as UTF-8; and lists of names in messages."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import PromptError
from engine.files import TEXT_LIMIT, read_regular, shorter, typed


def read_text_file(name: str, kind: str, mend: str, otherwise: str) -> str:
    """The text of a file.

    Args:
        name: Its path.
        kind: What it is called in a message.
        mend: What to do if it is missing, as a sentence.
        otherwise: What to do if it can't be read, as a sentence.

    Raises:
        PromptError: It isn't there, can't be read, is no regular file in UTF-8, or has more than `TEXT_LIMIT` bytes.
    """
    try:
        return decoded(read_regular(typed(name), TEXT_LIMIT), name)
    except FileNotFoundError:
        raise PromptError(f"There is no {kind} {shorter(name)!r}.", mend) from None
    except OSError as error:
        message = f"The {kind} {shorter(name)} can't be read: {error.strerror}."
        raise PromptError(message, otherwise) from error


def decoded(raw: bytes, source: str) -> str:
    """Bytes as the UTF-8 text that they must be.

    Args:
        raw: The bytes.
        source: Their file, for the message.

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
