"""The ways to an engine: an address, or a process of our own; where one listens, and the token that it wants to see."""

from __future__ import annotations

import ipaddress
import os
import secrets
import signal
import socket
import stat
import subprocess
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from engine.errors import EngineError, PathError
from engine.files import PRIVATE, message_and_hint, replacing, shorter, typed
from engine.frozen import frozen
from engine.processes import ending_of, python_command

FORMS = "Write unix:PATH, 127.0.0.1:PORT or [::1]:PORT."
_LONGEST_PATH = 100
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
        """True if nothing that is sent there leaves this machine."""
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
            raise PathError(
                f"The engine can't listen at {shorter(str(self))}: {why}.", "Choose another."
            ) from None
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
                raise PathError(
                    f"{shorter(self.path)} exists already and is not a socket.", "Choose another."
                )
        except FileNotFoundError:
            return
        try:
            self.connect().close()
        except ConnectionRefusedError:
            self.remove()
            return
        except OSError:
            pass
        raise PathError(
            f"An engine listens at {shorter(self.path)} already.", "End it, or choose another path."
        )


def parsed(text: str) -> Address:
    """The address that a person typed.

    Raises:
        PathError: It is none.
    """
    if text.startswith("unix:"):
        path = str(typed(text.removeprefix("unix:")))
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise PathError(
                f"The path of the socket is longer than {_LONGEST_PATH} bytes.", "Give a shorter one."
            )
        if path == ".":
            raise PathError("unix: names no file.", FORMS)
        return Address(path=path)
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise PathError(f"{shorter(text)!r} is not an address.", FORMS)
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
        raise PathError(*message_and_hint(path.parent, error, "written")) from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PathError(
            f"Others can reach the directory {shorter(path.parent)}.",
            f"chmod 700 {shorter(path.parent)}, or choose another.",
        )


# ---- the secret that a client shows before an engine answers it --------------------------------

_BYTES = 32
_LONGEST_TOKEN = 200


def made_or_read_token(path: Path) -> str:
    """The token of a file; where there is no such file, a fresh one in a new file.

    Raises:
        PathError: It can't be read or written, or others can read it.
    """
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise PathError(*message_and_hint(path, error, "written")) from None
        with replacing(path, force=False, mode=PRIVATE) as file:
            file.write(secrets.token_urlsafe(_BYTES).encode() + b"\n")
    return read_token(path)


def read_token(path: Path) -> str:
    """The token of a file.

    Raises:
        PathError: It can't be read, holds none, or others can read it.
    """
    name = shorter(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            mode, content = os.fstat(descriptor).st_mode, file.read(_LONGEST_TOKEN + 1)
    except FileNotFoundError:
        raise PathError(
            f"There is no token in {name}.", "Copy the engine's there, or name it: --token-file."
        ) from None
    except OSError as error:
        raise PathError(*message_and_hint(path, error)) from None
    if mode & 0o077:
        raise PathError(f"Others can read the token in {name}.", f"chmod 600 {name}, or make a new one.")
    token = content.decode("ascii", "replace").strip()
    if not token or len(content) > _LONGEST_TOKEN or not token.isprintable():
        raise PathError(f"{name} holds no token.", "Remove it: the engine makes a new one.")
    return token


# ---- the ways ----------------------------------------------------------------------------------

LAST_WORDS = 400
"""Characters of what a process wrote last."""


class Link(Protocol):
    """A way to one engine."""

    where: str
    """As a person reads it."""
    token: str
    far: bool
    """True if the engine may be on another machine."""
    returns: bool
    """True if the same engine may be there again after a connection was lost."""

    def open(self) -> socket.socket:
        """A new connection.

        Raises:
            OSError: Nothing is there.
            EngineError: Nothing can be.
        """

    def ending(self, why: str) -> str:
        """A sentence on a connection that ended for good.

        Args:
            why: As the connection says it, without a full stop.
        """

    def close(self, timeout: float) -> bool:
        """Let go of it, once its connection is closed; returns whether nothing is left of it."""


class AddressLink:
    """An engine that listens at an address.

    Args:
        address: The address.
        token: Shown first.
        returns: Whether to come back after a connection was lost.
    """

    far = True

    def __init__(self, address: Address, token: str, returns: bool = True) -> None:
        self._address, self.token, self.returns = address, token, returns
        self.where = str(address)

    def open(self) -> socket.socket:
        """A new connection.

        Raises:
            OSError: Nothing listens there.
        """
        return self._address.connect()

    def ending(self, why: str) -> str:
        """A sentence on a connection that ended for good."""
        return f"The engine at {self.where} is lost: {why}."

    def close(self, timeout: float) -> bool:
        """Nothing: the engine stays for whoever comes next."""
        return True


class ProcessLink:
    """An engine in a process of our own, which ends with its connection.

    Args:
        program: Version of the program.
    """

    where = "a process of its own"
    token = ""
    far = returns = False

    def __init__(self, program: str) -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._words: deque[bytes] = deque(maxlen=20)

    def open(self) -> socket.socket:
        """Start a fresh process, once the one before has ended.

        Raises:
            EngineError: The system starts none.
        """
        self.close(0.0)
        ours, theirs = socket.socketpair()
        given = f"{theirs.fileno()}, {self._program!r}"
        call = f"from engine.remote.server import serve_inherited; serve_inherited({given})"
        try:
            self._process = subprocess.Popen(
                python_command(call),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a Ctrl-C of the terminal is answered here
            )
        except OSError as error:
            ours.close()
            raise EngineError(
                f"No process can be started for the engine: {error.strerror}.", "End other programs."
            ) from error
        finally:
            theirs.close()
        self._words.clear()
        self._reader = threading.Thread(target=self._read, args=(self._process,), name="stderr", daemon=True)
        self._reader.start()
        return ours

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Keep the last lines that the process writes, and keep them from the screen."""
        assert process.stderr is not None
        with process.stderr as errors:
            while line := errors.readline(4096):
                self._words.append(line)

    def ending(self, why: str) -> str:
        """A sentence with the last line that the process wrote, or by which signal it ended."""
        words, process = self._last_words().rstrip("."), self._process
        if process is not None and process.poll() is None:
            return f"The engine's process hangs ({why}), and was ended."
        return f"The engine's process has ended{words and ': '}{words}."

    def _last_words(self) -> str:
        process = self._process
        if process is None:
            return ""
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        if self._reader is not None:
            self._reader.join(0.5)
        lines = [line.decode("utf-8", "replace").strip() for line in self._words]
        said = next((line for line in reversed(lines) if line), "")[-LAST_WORDS:]
        return said or (f"it {ending_of(process.returncode)}" if process.returncode else "")

    def close(self, timeout: float) -> bool:
        """Give the process some seconds to end, then end it and all that it started; nothing is left."""
        process, self._process = self._process, None
        if process is None:
            return True
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # also those that it started, where it ended without them
        process.wait()
        if self._reader is not None:
            self._reader.join(0.5)
        return True
