"""Reads files that somebody else made: regular ones alone, and no more of them than their reader can take.

A named pipe would never answer, `/dev/zero` never end. What is refused is an `OSError` like any other, whose
`strerror` says why, so that each reader puts it into its own words. A pipe is read from standard input, never by name.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import BinaryIO

MIB = 2**20
CONFIG_LIMIT = 64 * MIB
"""Bytes of a file that describes a model at most. The largest tokenizer.json that is known, gemma3's, has 33 MB."""
TEXT_LIMIT = 16 * MIB
"""Bytes of a prompt or of a text to score at most: some 4 million tokens."""
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path | str) -> io.BufferedReader:
    """Open a file for reading, without ever waiting for a writer.

    Args:
        path: A regular file, or a link to one.

    Returns:
        It, from its beginning; the caller closes it.

    Raises:
        OSError: It isn't there, can't be read, or is no regular file.
    """
    try:
        _refuse_special(os.stat(path), path)  # before it is opened: opening a device may already act on it
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a null byte, or half a surrogate pair
        raise OSError(errno.EINVAL, "no file can have such a name", str(path)) from error
    try:
        _refuse_special(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(path: Path | str, limit: int | None = None) -> None:
    """Refuse a file that another reader is about to open by its name.

    Args:
        path: A regular file, or a link to one.
        limit: Bytes at most; None for any number.

    Raises:
        OSError: As `open_regular`, or it is larger.
    """
    with open_regular(path) as file:
        _refuse_large(os.fstat(file.fileno()).st_size, limit, path)


def read_regular(path: Path | str, limit: int) -> bytes:
    """All of a file.

    Args:
        path: A regular file, or a link to one.
        limit: Bytes at most.

    Raises:
        OSError: As `open_regular`, or it is larger.
    """
    with open_regular(path) as file:
        _refuse_large(os.fstat(file.fileno()).st_size, limit, path)
        content = read_at_most(file, limit)  # files below /proc have no size
    _refuse_large(len(content), limit, path)
    return content


def read_at_most(file: BinaryIO, limit: int) -> bytes:
    """All that a file or a pipe holds up to its end, or `limit` bytes and one more where it holds more."""
    blocks, left = [], limit + 1
    while left and (block := file.read(min(left, MIB))):
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


def _refuse_special(found: os.stat_result, path: Path | str) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
    raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))


def _refuse_large(size: int, limit: int | None, path: Path | str) -> None:
    if limit is not None and size > limit:
        raise OSError(errno.EFBIG, f"it has more than {_amount(limit)}", str(path))


def _amount(limit: int) -> str:
    return (
        f"{limit // MIB} MiB"
        if limit >= MIB
        else f"{limit // 1024} KiB"
        if limit >= 1024
        else f"{limit} bytes"
    )
