"""Where an engine listens: a socket of files, or a port of this machine."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from engine.errors import PathError
from engine.files import shorter, told, typed
from engine.frozen import frozen

FORMS = "Write unix:PATH, 127.0.0.1:PORT or [::1]:PORT."
_LONGEST = 100
"""Bytes of the path of a socket: Linux takes 107, macOS 103."""
CONNECT_SECONDS = 5.0


@frozen
class Address:
    """A place to listen at or to connect to."""

    path: str = ""
    """Of a socket of files; empty for a port."""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"unix:{self.path}" if self.path else f"{host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether nothing that is sent there leaves this machine."""
        return bool(self.path) or self.host == "localhost" or _is_loopback(self.host)

    @property
    def _family(self) -> socket.AddressFamily:
        if self.path:
            return socket.AF_UNIX
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def _target(self) -> str | tuple[str, int]:
        return self.path or ("127.0.0.1" if self.host == "localhost" else self.host, self.port)

    def connect(self) -> socket.socket:
        """A socket that is connected to it.

        Raises:
            OSError: Nothing listens there.
        """
        made = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            made.settimeout(CONNECT_SECONDS)
            made.connect(self._target)
        except BaseException:
            made.close()
            raise
        return made

    def listen(self) -> socket.socket:
        """A socket that listens there; one of files is its owner's alone.

        Raises:
            PathError: None can, or another engine does already.
        """
        if self.path:
            _check_place(Path(self.path))
            self._remove_stale()
        made = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            if not self.path:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(self._target)
            if self.path:
                os.chmod(self.path, 0o600)  # until here the directory keeps others away
            made.listen(128)
        except (OSError, OverflowError) as error:
            made.close()
            why = getattr(error, "strerror", "") or error
            raise PathError(f"{shorter(str(self))} can't be listened at: {why}.", "Choose another.") from None
        return made

    def remove(self) -> None:
        """Remove the socket of files."""
        if self.path:
            with suppress(OSError):
                os.unlink(self.path)

    def _remove_stale(self) -> None:
        """Remove a socket of files that no engine listens at any more."""
        try:
            if not stat.S_ISSOCK(os.lstat(self.path).st_mode):
                raise PathError(f"{shorter(self.path)} is there already, and no socket.", "Choose another.")
        except FileNotFoundError:
            return
        try:
            self.connect().close()
        except ConnectionRefusedError:
            self.remove()
            return
        except OSError:
            pass
        raise PathError(f"An engine listens at {shorter(self.path)} already.", "End it, or choose another.")


def parsed(text: str) -> Address:
    """The address that a person typed.

    Raises:
        PathError: It is none.
    """
    if text.startswith("unix:"):
        path = str(typed(text.removeprefix("unix:")))
        if len(os.fsencode(path)) > _LONGEST:
            raise PathError(f"The path of the socket is longer than {_LONGEST} bytes.", "Give a shorter one.")
        if path == ".":
            raise PathError("unix: names no file.", FORMS)
        return Address(path=path)
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise PathError(f"{shorter(text)!r} is no address.", FORMS)
    return Address(host=host, port=int(port))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_place(path: Path) -> None:
    """See that nobody else can reach the directory of a socket of files; make it where it is missing.

    Raises:
        PathError: Others can, or it can't be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.parent.stat()
    except OSError as error:
        raise PathError(*told(path.parent, error, "written")) from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PathError(
            f"Others can reach the directory {shorter(path.parent)}.",
            f"chmod 700 {shorter(path.parent)}, or choose another.",
        )
