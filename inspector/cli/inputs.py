"""Texts that the user gives: on the command line, in a file or through a pipe. Standard library alone."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from engine.errors import PromptError
from engine.files import TEXT_LIMIT, read_at_most
from inspector.texts import decoded as decoded
from inspector.texts import read_text_file

ESCAPES = {"\\n": "\n", "\\t": "\t"}
STDIN = "-"
"""Standard input in the place of a file or a text."""


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
        PromptError: It is closed, can't be read, or has more than `TEXT_LIMIT` bytes.
    """
    if sys.stdin is None:
        raise PromptError("Standard input is closed.", instead)
    try:
        content = read_at_most(sys.stdin.buffer, TEXT_LIMIT)
    except OSError as error:
        raise PromptError(f"Standard input can't be read: {error.strerror}.", instead) from error
    if len(content) > TEXT_LIMIT:
        raise PromptError(f"Standard input has more than {TEXT_LIMIT >> 20} MiB.", "Give a shorter text.")
    return content


def read_file(name: str, kind: str = "file", mend: str = "Check the path's spelling.") -> bytes:
    """All of a file; of standard input where the path leads there, as /dev/stdin does.

    Args:
        name: Its path.
        kind: What it is called in a message.
        mend: What to do where it isn't there, as a sentence.

    Raises:
        PromptError: It isn't there, can't be read, is no regular file, or has more than `TEXT_LIMIT` bytes.
    """
    with suppress(OSError, ValueError):
        if name.startswith("/dev/") and os.path.samestat(os.stat(name), os.fstat(0)):
            return read_stdin("Give the text in a file.")
    return read_text_file(name, kind, mend, "Give a regular file, or pipe it into standard input (-).")


def given_text(file: str | None, typed: str | None, command: str, purpose: str, flag: str = "") -> str:
    """The text that a command reads, from a file, from standard input (`-`) or as typed.

    Args:
        file: Its path.
        typed: With escapes.
        command: Named where the text is missing: `inspector score`.
        purpose: What is done with it: `score`.
        flag: That names the file; empty where it is a positional argument.

    Raises:
        EngineError: None was given, or two; it can't be read, or is empty.
    """
    if (file is None) == (typed is None):
        which = "No text was given." if file is None else f"{flag or 'A FILE'} and --prompt were both given."
        named = f"Name a file with {flag}" if flag else "Name a file"
        raise PromptError(which, f"{named}, or - for standard input, or give the text with -p TEXT.")
    if STDIN in (file, typed):
        text = decoded(
            read_stdin(f"Give the text as a file: {f'{command} {flag}'.rstrip()} FILE."), "Standard input"
        )
    elif typed is not None:
        text = unescaped(typed)
    else:
        assert file is not None
        mend = f"Check the path's spelling, or give the text itself: {command} -p TEXT."
        text = decoded(read_file(file, mend=mend), file)
    if not text:
        raise PromptError(f"The text is empty: there is nothing to {purpose}.", "Give some text.")
    return text
