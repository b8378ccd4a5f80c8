"""Texts that the user gives: on the command line, in a file or through a pipe. Standard library alone."""

from __future__ import annotations

import sys

from engine.errors import PromptError
from engine.paths import shorter, told, typed

ESCAPES = {"\\n": "\n", "\\t": "\t"}


def unescaped(text: str) -> str:
    r"""A text of the command line, its \n and \t replaced by a newline and a tab."""
    for escape, char in ESCAPES.items():
        text = text.replace(escape, char)
    return text


def read_stdin(instead: str) -> bytes:
    """All of standard input.

    Args:
        instead: What to do where it can't be read, as a sentence.

    Raises:
        PromptError: It is closed, or can't be read.
    """
    if sys.stdin is None:
        raise PromptError("Standard input is closed.", instead)
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise PromptError(f"Standard input can't be read: {error.strerror}.", instead) from error


def read_file(name: str, kind: str = "file") -> bytes:
    """All of a file.

    Args:
        name: Its path.
        kind: What it is called in a message.

    Raises:
        PromptError: It isn't there, or can't be read.
    """
    try:
        return typed(name).read_bytes()
    except FileNotFoundError:
        raise PromptError(f"There is no {kind} {shorter(name)}.", "Check the path's spelling.") from None
    except OSError as error:
        raise PromptError(*told(f"The {kind} {name}", error)) from error


def decoded(raw: bytes, source: str) -> str:
    """Bytes as the UTF-8 text that they must be.

    Args:
        raw: What was read.
        source: Where, for the message.

    Raises:
        PromptError: They are no UTF-8.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        where = f"byte {raw[error.start]:#04x} at offset {error.start}"
        raise PromptError(
            f"{source} is not UTF-8 ({where}).", "Convert it first, with iconv for example."
        ) from None
