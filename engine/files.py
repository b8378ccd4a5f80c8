"""Files: paths that the user typed, files of other programs, files that are written whole. Standard library alone.

Both sides use this, for the command line, for dialogs, and for what is saved. Of other programs' files regular ones
alone are read, and no more of them than their reader can take: a named pipe would never answer, `/dev/zero` never end.
A refusal is an `OSError` like any other, whose `strerror` says why, so that each reader puts it into its own words. A
pipe is read from standard input, never by name.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from engine.errors import PathError

LONGEST = 160
"""Characters of a path in a message."""
PRIVATE, SHARED = 0o600, 0o666
"""Permissions of a new file: for its owner alone, or as the user's umask has them."""
OTHER = "Choose another name, or replace it with --force."
_HINTS = {
    errno.EACCES: "Check the permissions, or choose another place.",
    errno.EPERM: "Check the permissions, or choose another place.",
    errno.EROFS: "Choose another place.",
    errno.ENAMETOOLONG: "Give a shorter one.",
    errno.EFBIG: "Give a smaller one.",
    errno.ELOOP: "It is a link that leads in a circle; name the file itself.",
}
_SPECIAL = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def typed(text: str) -> Path:
    """The path that the user typed; there need be no such file.

    Args:
        text: As it was typed; `~` is a home directory.

    Raises:
        PathError: No file can have that name, or it can't be looked for.
    """
    try:
        path = Path(text).expanduser()
        path.stat()
    except RuntimeError:
        user = text.partition("/")[0]
        message = f"No home directory is known for {shorter(user)}."
        raise PathError(message, "Give the path in full.") from None
    except ValueError:  # a NUL, or half of a surrogate pair
        raise PathError(f"{shorter(text)!a} can't be the name of a file.", "Give another.") from None
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise PathError(*message_and_hint(text, error)) from error
    return path


def message_and_hint(
    path: Path | str, error: OSError, done: Literal["read", "written"] = "read"
) -> tuple[str, str]:
    """Message and hint of an error of the operating system, each one line.

    Args:
        path: Of the file.
        error: What was raised.
        done: What can't be done with the file.
    """
    message, number = f"{shorter(path)} can't be {done}: {error.strerror or error}.", error.errno or 0
    if done == "read":
        return message, _HINTS.get(number, "Check its name.")
    return message, _HINTS.get(number, "Make room there, or choose another place.")


def shorter(path: Path | str) -> str:
    """A path for a message, without its middle where it is long."""
    text = str(path)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}"


def here() -> Path:
    """The current directory.

    Raises:
        PathError: It was deleted.
    """
    try:
        return Path.cwd()
    except OSError:
        message = "The current directory is gone: it was deleted or moved."
        raise PathError(message, "Change to another one, then try again.") from None


# ---- files that are written -------------------------------------------------------------------


def free(path: Path, force: bool, other: str = OTHER) -> Path:
    """Check that a file may be written, before the work of making its content.

    Pipes, sockets and devices are refused also with `force`: a file appears whole or not at all, which none of them
    can promise, and a pipe without a reader would hold up the program for ever.

    Args:
        path: As `typed` gave it.
        force: True if a file that is there may be replaced.
        other: The hint if one is there and may not.

    Returns:
        The path.

    Raises:
        PathError: A file is there, or no file can be.
    """
    if not path.is_absolute():
        here()
    name = shorter(path)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        mode = 0
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise PathError(*message_and_hint(path, error, "written")) from error
    if stat.S_ISDIR(mode):
        raise PathError(f"{name} is a directory.", "Give the name of a file.")
    if not os.path.isdir(path.parent):
        raise PathError(f"There is no directory {shorter(path.parent)}.", "Create it, or choose another.")
    if not mode and path.is_symlink():
        message = f"{name} is a link to a file that doesn't exist."
        raise PathError(message, "Name that file, or choose another name.")
    if mode and not stat.S_ISREG(mode):
        kind = _SPECIAL.get(stat.S_IFMT(mode), "no file")
        raise PathError(f"{name} is {kind}: only a file can be written.", "Give the name of a file.")
    if mode and not force:
        raise PathError(f"{name} already exists.", other)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        raise PathError(*message_and_hint(path, denied, "written"))
    return path


@contextmanager
def replacing(path: Path, force: bool = True, mode: int = SHARED) -> Iterator[BinaryIO]:
    """A file to write into, which gets its name when it is complete: until then, and on an error, nothing changes.

    Args:
        path: Where; a link stays a link, and what is replaced keeps its permissions.
        force: True if a file that is there may be replaced, also one that comes meanwhile.
        mode: Permissions of a new file, `PRIVATE` or `SHARED`.

    Raises:
        PathError: It can't be written.
    """
    target = Path(os.path.realpath(free(path, force)))
    aside = target.with_name(f".{os.urandom(8).hex()}.part")
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            if target.exists():
                os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        free(path, force)  # something else may have come meanwhile
        os.replace(aside, target) if force else name_new(aside, target)
        _sync(target.parent)
    except FileExistsError:
        raise PathError(f"{shorter(path)} already exists.", OTHER) from None
    except OSError as error:
        raise PathError(*message_and_hint(path, error, "written")) from error
    finally:
        with suppress(OSError):  # the error that is shown is why it could not be written
            aside.unlink(missing_ok=True)


def name_new(aside: Path, path: Path) -> None:
    """Give a file its name, unless another file has it.

    Raises:
        FileExistsError: Another has.
        OSError: It can't get it.
    """
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        if path.exists():  # a file system without links: between this and the next line another may come
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        aside.rename(path)


def _sync(directory: Path) -> None:
    """Bring the new name to the disk, too, if the directory may be read."""
    with suppress(PermissionError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---- files that are read -----------------------------------------------------------------------

MIB = 2**20
CONFIG_LIMIT = 64 * MIB
"""Bytes of a file that describes a model at most. The largest tokenizer.json that is known, gemma3's, has 33 MB."""
TEXT_LIMIT = 16 * MIB
"""Bytes of a prompt or of a text to score at most: some 4 million tokens."""
_READ = {**_SPECIAL, stat.S_IFIFO: "a named pipe"}


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
    kind = _READ.get(stat.S_IFMT(found.st_mode), "something else")
    raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))


def _refuse_large(size: int, limit: int | None, path: Path | str) -> None:
    if limit is not None and size > limit:
        unit, name = (MIB, "MiB") if limit >= MIB else (1024, "KiB") if limit >= 1024 else (1, "bytes")
        raise OSError(errno.EFBIG, f"it has more than {limit // unit} {name}", str(path))
