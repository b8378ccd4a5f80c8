"""The engine in a child process: commands and records go through a local pipe.

A model over ranks needs it: the loss of a rank ends the process that MLX joined to the group, and the screen stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any

from engine.processes import ending_of, python_command
from engine.protocol import Cancel, Command, Ended, Failure, Load, Received, Sent
from engine.thread import EngineThread

END_SECONDS = 1.0
"""Seconds for the engine's thread to end when the other side has closed the pipe."""
LAST_WORDS = 400
"""Characters of the last line that the process wrote."""


class EngineProcess:
    """An engine's thread in a child process, which ends with this one.

    After a loss, the next `Load` starts a new process.

    Args:
        emit: Receives each record, in a thread of this object.
        on_loss: Called in that thread with the reason when the process has ended or a rank was lost.
    """

    def __init__(
        self, emit: Callable[[Received], None], on_loss: Callable[[str], object] = lambda reason: None
    ) -> None:
        self.emit, self.on_loss = emit, on_loss
        self._lock = threading.Lock()
        """Guards all that follows."""
        self._process: subprocess.Popen[bytes] | None = None
        self._outgoing: SimpleQueue[Sent | None] = SimpleQueue()
        """Commands for the process; None tells it to end."""
        self._outstanding: dict[int, Command] = {}
        self._loss = ""
        """Why the last process was lost."""
        self._closing = False

    def start(self) -> None:
        """Start a process, unless one runs."""
        with self._lock:
            if self._process is not None:
                return
            ours, theirs = Pipe()
            errors = tempfile.TemporaryFile()  # noqa: SIM115 - read when the process has ended
            try:
                self._process = subprocess.Popen(
                    python_command(f"from engine.child import run; run({theirs.fileno()})"),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,  # a library that writes to the terminal would write over the screen
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C in the terminal must not end it
                )
            except OSError as error:
                self._loss = (
                    f"No process can be started for the engine: {error.strerror}. End other programs."
                )
            finally:
                theirs.close()
            process, outgoing = self._process, SimpleQueue[Sent | None]()
            self._outgoing = outgoing
        if process is None:
            ours.close()
            self.on_loss(self._loss)
            return
        threading.Thread(target=_write, args=(ours, outgoing), name="to the engine", daemon=True).start()
        arguments = (process, ours, errors)
        threading.Thread(target=self._read, args=arguments, name="from the engine", daemon=True).start()

    def send(self, sent: Sent) -> None:
        """Send a command; after a loss, a `Load` starts a new process and any other command fails."""
        command = sent.command
        if self._process is None and isinstance(command, Load):
            self.start()
        with self._lock:
            if self._process is not None:
                if not isinstance(command, Cancel):
                    self._outstanding[sent.id] = command
                self._outgoing.put(sent)
                return
        if not isinstance(command, Cancel):
            self.emit(Received(Failure(command.kind, self._loss, "Open the model again."), sent.id))
            self.emit(Received(Ended(command.kind, cancelled=True), sent.id))

    def close(self, timeout: float = 2.0) -> bool:
        """End the process and all that it started.

        Args:
            timeout: Seconds that it has to end by itself.

        Returns:
            True: nothing is left of it.
        """
        with self._lock:
            self._closing = True
            process = self._process
        if process is not None:
            self._outgoing.put(None)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout)
            _kill(process)
        return True

    def _read(self, process: subprocess.Popen[bytes], pipe: Connection[Any, Any], errors: Any) -> None:
        """Receive records until the process ends or a rank is lost."""
        loss = ""
        try:
            while not loss:
                received = pipe.recv()
                record = received.record
                if isinstance(record, Failure) and record.lost_rank is not None:
                    loss = record.message  # without its hint: a new process has all ranks again
                    break
                if isinstance(record, Ended):
                    with self._lock:
                        self._outstanding.pop(received.id, None)
                self.emit(received)
        except (EOFError, OSError):
            pass
        loss = loss or _ending(process, errors)
        _kill(process)
        pipe.close()
        with self._lock:
            if self._closing:
                return
            self._outgoing.put(None)
            self._process, self._loss = None, loss
            left, self._outstanding = self._outstanding, {}
        self.on_loss(loss)
        for id, command in left.items():
            if isinstance(command, Load):  # there is no model, and so no session to fall back to
                self.emit(Received(Failure(command.kind, loss, "Open it again."), id))
            self.emit(Received(Ended(command.kind, cancelled=True), id))


def _write(pipe: Connection[Any, Any], outgoing: SimpleQueue[Sent | None]) -> None:
    """Send what is queued, in a thread of its own: the pipe is full while the process hangs."""
    try:
        while True:
            command = outgoing.get()
            pipe.send(command)
            if command is None:
                return
    except OSError:  # the reader sees the end
        pass
    except TypeError:  # the reader closed the pipe while something was sent
        if not pipe.closed:
            raise


def _ending(process: subprocess.Popen[bytes], errors: Any) -> str:
    """A sentence on how the process ended, with its last line or its signal."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4 * LAST_WORDS))
    lines = [line.strip() for line in errors.read().decode("utf-8", "replace").splitlines()]
    said = next(filter(None, reversed(lines)), "")[-LAST_WORDS:].rstrip(".")
    if not said and process.returncode:
        said = f"it {ending_of(process.returncode)}"
    return f"The engine's process has ended{said and ': '}{said}."


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(descriptor: int) -> None:
    """Run an engine's thread in this process until the other side ends it or is gone.

    Args:
        descriptor: File descriptor of this side of the pipe.
    """
    pipe: Connection[Any, Any] = Connection(descriptor)

    def emit(received: Received) -> None:
        with suppress(OSError):  # the other side is gone, which the loop below notices
            pipe.send(received)

    engine = EngineThread(emit)
    engine.start()
    with suppress(EOFError, OSError):
        while (sent := pipe.recv()) is not None:
            engine.send(sent)
    engine.close(END_SECONDS)
    os._exit(0)  # a thread that still uses MLX would abort the interpreter's own way out
