"""Files: paths typed by the user, files of other programs, and atomic writes. Uses only the standard library.

Both the engine and the screen use this module, for the command line, dialogs and saved files. Only regular files are
read, up to a limit of size: a named pipe may never answer, and `/dev/zero` never ends. A refusal is an `OSError` with
the reason as its `strerror`, so that each reader can word its own message. Pipes are read only as standard input.
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
"""Maximum number of characters of a path in a message."""
PRIVATE, SHARED = 0o600, 0o666
"""Permissions of a new file: only for its owner, or as the user's umask allows."""
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
    """Convert a path typed by the user; the file need not exist.

    Args:
        text: The typed text; `~` is a home directory.

    Raises:
        PathError: The name is not a valid file name, or the path can't be looked up.
    """
    try:
        path = Path(text).expanduser()
        path.stat()
    except RuntimeError:
        user = text.partition("/")[0]
        message = f"No home directory is known for {shorter(user)}."
        raise PathError(message, "Give the path in full.") from None
    except ValueError:  # a null byte, or a lone surrogate
        raise PathError(f"{shorter(text)!a} can't be the name of a file.", "Give another.") from None
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise PathError(*message_and_hint(text, error)) from error
    return path


def message_and_hint(
    path: Path | str, error: OSError, done: Literal["read", "written"] = "read"
) -> tuple[str, str]:
    """Message and hint for an error of the operating system, each one line.

    Args:
        path: Path of the file.
        error: The error.
        done: The operation that failed.
    """
    message, number = f"{shorter(path)} can't be {done}: {error.strerror or error}.", error.errno or 0
    if done == "read":
        return message, _HINTS.get(number, "Check its name.")
    return message, _HINTS.get(number, "Make room there, or choose another place.")


def shorter(path: Path | str) -> str:
    """A path for a message; a long one is shortened in the middle."""
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
        raise PathError(message, "Change to a directory that exists, then try again.") from None


# ---- files that are written -------------------------------------------------------------------


def free(path: Path, force: bool, other: str = OTHER) -> Path:
    """Check that a file may be written, before its content is made.

    Pipes, sockets and devices are refused even with `force`: they can't be written atomically, and a pipe without a
    reader would block the program forever.

    Args:
        path: Path as returned by `typed`.
        force: True if an existing file may be replaced.
        other: Hint if the file exists and may not be replaced.

    Returns:
        The path.

    Raises:
        PathError: The file exists and may not be replaced, or no file can be written there.
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
    """Write a file atomically: it gets its name when it is complete, and after an error nothing has changed.

    Args:
        path: Path of the file. A link stays a link, and a replaced file keeps its permissions.
        force: True if an existing file may be replaced, also one that is created in the meantime.
        mode: Permissions of a new file, `PRIVATE` or `SHARED`.

    Raises:
        PathError: The file can't be written.
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
        free(path, force)  # it may have been created in the meantime
        os.replace(aside, target) if force else name_new(aside, target)
        _sync(target.parent)
    except FileExistsError:
        raise PathError(f"{shorter(path)} already exists.", OTHER) from None
    except OSError as error:
        raise PathError(*message_and_hint(path, error, "written")) from error
    finally:
        with suppress(OSError):  # the first error is the one to report
            aside.unlink(missing_ok=True)


def name_new(aside: Path, path: Path) -> None:
    """Rename a file, unless the new name exists.

    Args:
        aside: The file.
        path: Its new name.

    Raises:
        FileExistsError: The new name exists.
        OSError: The file can't be renamed.
    """
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        if path.exists():  # no hard links on this file system: a file created after this check is replaced
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        aside.rename(path)


def _sync(directory: Path) -> None:
    """Flush the new name to the disk, too, if the directory is readable."""
    with suppress(PermissionError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---- files that are read -----------------------------------------------------------------------

MIB = 2**20
CONFIG_LIMIT = 64 * MIB
"""Maximum size in bytes of a file that describes a model. The largest known tokenizer.json, gemma3's, has 33 MB."""
TEXT_LIMIT = 16 * MIB
"""Maximum size in bytes of a prompt or of a text to score: about 4 million tokens."""
_READ = {**_SPECIAL, stat.S_IFIFO: "a named pipe"}


def open_regular(path: Path | str) -> io.BufferedReader:
    """Open a file for reading, without ever waiting for a writer.

    Args:
        path: A regular file, or a link to one.

    Returns:
        The open file; the caller closes it.

    Raises:
        OSError: The file doesn't exist, can't be read, or is not a regular file.
    """
    try:
        _refuse_special(os.stat(path), path)  # before opening: to open a device may already act on it
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a null byte, or a lone surrogate
        raise OSError(errno.EINVAL, "no file can have such a name", str(path)) from error
    try:
        _refuse_special(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(path: Path | str, limit: int | None = None) -> None:
    """Check a file that a library is about to open by its name.

    Args:
        path: A regular file, or a link to one.
        limit: Maximum size in bytes; None for any.

    Raises:
        OSError: See `open_regular`; or the file is too large.
    """
    with open_regular(path) as file:
        _refuse_large(os.fstat(file.fileno()).st_size, limit, path)


def read_regular(path: Path | str, limit: int) -> bytes:
    """Read a whole file.

    Args:
        path: A regular file, or a link to one.
        limit: Maximum size in bytes.

    Raises:
        OSError: See `open_regular`; or the file is too large.
    """
    with open_regular(path) as file:
        _refuse_large(os.fstat(file.fileno()).st_size, limit, path)
        content = read_at_most(file, limit)  # files in /proc report no size
    _refuse_large(len(content), limit, path)
    return content


def read_at_most(file: BinaryIO, limit: int) -> bytes:
    """Read a file or a pipe to its end, or `limit` + 1 bytes if it is longer."""
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
