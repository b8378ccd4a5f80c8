"""The ways to an engine: an address, or a process of our own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections import deque
from contextlib import suppress
from typing import Protocol

from engine.errors import EngineError
from engine.processes import ending_of, python_command
from engine.remote.address import Address

LAST_WORDS = 400
"""Characters of what a process wrote last."""


class Link(Protocol):
    """A way to one engine."""

    where: str
    """As a person reads it."""
    token: str
    far: bool
    """Whether the engine may be on another machine."""
    returns: bool
    """Whether the same engine may be there again after a connection was lost."""

    def open(self) -> socket.socket:
        """A new connection.

        Raises:
            OSError: Nothing is there.
            EngineError: Nothing can be.
        """

    def ending(self, why: str) -> str:
        """A sentence on a connection that ended for good.

        Args:
            why: As the connection tells it, without a full stop.
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
        call = f"from engine.remote.child import main; main({theirs.fileno()}, {self._program!r})"
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
