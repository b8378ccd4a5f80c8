"""The engine in a child process, or in several ranks: commands and records go through a local socket.

A model over ranks needs this: `mlx.launch` starts the ranks and the loss of one ends all of them, but not the screen.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from queue import SimpleQueue
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine.errors import EngineError, LoadError
from engine.patches.imports import import_mlx_lm
from engine.processes import python_command
from engine.protocol import Cancel, Command, Configure, Ended, Failure, Load, Loading, Received, Sent
from engine.ranks.hosts import RankHosts, hosts_of, process_ending
from engine.task import Task
from engine.thread import EngineThread, Inbox

if TYPE_CHECKING:
    from engine.worker import Worker

END_SECONDS = 1.0
"""Seconds that the engine's thread has to end after the other side closed the socket."""
SHORTEST_NAP, LONGEST_NAP = 0.0005, 0.05
"""Shortest and longest sleep in seconds between a rank's polls for a command. Waiting inside a collective operation
would use a whole core."""
REASON_SECONDS = 5.0
"""Seconds that mlx.launch has to report which rank has ended and to end the others."""


class _Running(Struct, eq=False):
    """A process of the engine, or mlx.launch with the ranks."""

    hosts: RankHosts | None
    """Hosts of the ranks; None for a single process."""
    process: Popen[bytes]
    errors: Any
    """File with the process's stderr."""
    outgoing: SimpleQueue[Sent | None]
    """Commands for the process; None tells it to end."""
    outstanding: dict[int, Command]


class EngineProcess:
    """An engine thread in a child process, or one in each rank. The processes end with this one.

    The first command starts them; so does a `Load` after a loss or for other ranks.

    Args:
        emit: Receives each record, in a thread of this object.
        on_loss: Called in that thread with the reason when the process has ended or a rank is lost; if None, the
            commands that have not ended fail with that reason.
    """

    def __init__(
        self, emit: Callable[[Received], None], on_loss: Callable[[str], object] | None = None
    ) -> None:
        self.emit, self.on_loss = emit, on_loss
        self._lock = threading.Lock()
        """Guards the attributes below."""
        self._running: _Running | None = None
        self._loss = ""
        """Why the last process was lost."""
        self._configure: Sent | None = None
        """The last settings, for the next process; with id 0, the `Ended` of this command isn't passed on."""

    def start(self) -> None:
        """Do nothing: the first command starts the process, since it may name the ranks."""

    def send(self, sent: Sent) -> None:
        """Send a command; after a loss, a `Load` starts a new process and any other command fails."""
        command = sent.command
        if isinstance(command, Configure):
            self._configure = Sent(command, 0)
        try:
            if isinstance(command, Load):
                self._start(hosts_of(command.settings) if command.settings.divided else None, sent.id)
            elif self._running is None and not self._loss:
                self._start(None, 0)
        except EngineError as error:
            failure = Failure(command.kind, error.message, error.hint, error=type(error).__name__)
            self.emit(Received(failure, sent.id))
            self.emit(Received(Ended(command.kind), sent.id))
            return
        with self._lock:
            if (running := self._running) is not None:
                if not isinstance(command, Cancel):
                    running.outstanding[sent.id] = command
                running.outgoing.put(sent)
                return
        if not isinstance(command, Cancel):
            self.emit(Received(Failure(command.kind, self._loss, "Open the model again."), sent.id))
            self.emit(Received(Ended(command.kind, cancelled=True), sent.id))

    def close(self, timeout: float = 2.0) -> bool:
        """End the process and all processes that it started.

        Args:
            timeout: Seconds that it has to end by itself.

        Returns:
            Always True, since the processes are killed after the timeout.
        """
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.outgoing.put(None)
            with suppress(TimeoutExpired):
                running.process.wait(timeout)
            _kill(running.process)
        return True

    def _start(self, hosts: RankHosts | None, id: int) -> None:
        """Start the process or the ranks, unless they are running.

        Raises:
            LoadError: They can't be started.
        """
        if (running := self._running) is not None:
            if running.hosts == hosts:
                return
            self.close()
            for id_before, command in running.outstanding.items():
                self.emit(Received(Ended(command.kind, cancelled=True), id_before))
        if hosts is not None:
            self.emit(Received(Loading("ranks", 0, len(hosts.ranks) - 1, "starting"), id))
        folder = TemporaryDirectory(prefix="inspector-")  # other users have no access to it
        address = str(Path(folder.name, "engine"))
        call = f"from engine.child import run; run({address!r}, {hosts is not None})"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(1)
        errors = TemporaryFile()  # noqa: SIM115 - read after the process has ended
        try:
            started = python_command(call) if hosts is None else hosts.command(Path(folder.name), call)
            # no access to the terminal: a library could write over the screen, and Ctrl-C must not end the process
            process = Popen(started, stdin=PIPE, stdout=DEVNULL, stderr=errors, start_new_session=True)
        except OSError as error:
            message = f"No process can be started for the engine: {error.strerror}."
            raise LoadError(message, "End other programs.") from error
        running = _Running(hosts, process, errors, SimpleQueue(), {})
        if self._configure is not None:
            running.outgoing.put(self._configure)
        with self._lock:
            self._running, self._loss = running, ""
        arguments = (running, listener, folder)
        threading.Thread(target=self._read, args=arguments, name="from the engine", daemon=True).start()

    def _read(self, running: _Running, listener: socket.socket, folder: TemporaryDirectory[str]) -> None:
        """Receive records until the process ends or a rank is lost."""
        loss = ""
        pipe = _accepted(listener, running.process)
        folder.cleanup()
        if pipe is not None:
            arguments = (pipe, running.outgoing)
            threading.Thread(target=_write, args=arguments, name="to the engine", daemon=True).start()
            with suppress(EOFError, OSError):
                while not loss:
                    received = pipe.recv()
                    record = received.record
                    if isinstance(record, Failure) and record.lost_rank is not None:
                        loss = record.message  # the hint is dropped: a new process has all ranks again
                        break
                    if isinstance(record, Loading) and running.hosts is not None:
                        _quieten(running.process)
                    if isinstance(record, Ended):
                        with self._lock:
                            running.outstanding.pop(received.id, None)
                    if received.id or not isinstance(record, Ended):
                        self.emit(received)
        loss = loss or _ending(running)
        _kill(running.process)
        with self._lock:
            if self._running is not running:
                return
            running.outgoing.put(None)
            self._running, self._loss = None, loss
        if self.on_loss is not None:
            self.on_loss(loss)
        for id, command in running.outstanding.items():
            # if a load fails there is no model, so `on_loss` has no session to fall back to
            if self.on_loss is None or isinstance(command, Load):
                self.emit(Received(Failure(command.kind, loss, "Open it again."), id))
            self.emit(Received(Ended(command.kind, cancelled=True), id))


def _accepted(listener: socket.socket, process: Popen[bytes]) -> Connection[Any, Any] | None:
    """Wait for the process to connect; None if it ends before."""
    with listener:
        listener.settimeout(0.1)
        while process.poll() is None:
            with suppress(TimeoutError):
                return Connection(listener.accept()[0].detach())
    return None


def _quieten(launcher: Popen[bytes]) -> None:
    """Make mlx.launch stop polling whether the ranks accept input, which uses a whole core.

    It stops when a write to a rank fails, and each rank closes its stdin before it joins the group.
    """
    assert launcher.stdin is not None
    with suppress(OSError):
        launcher.stdin.write(b"\n")
        launcher.stdin.flush()


def _write(pipe: Connection[Any, Any], outgoing: SimpleQueue[Sent | None]) -> None:
    """Send the queued commands, in a separate thread, because the pipe blocks while the process hangs."""
    with suppress(OSError):  # the reading thread notices the end
        while (sent := outgoing.get()) is not None:
            pipe.send(sent)
        pipe.send(None)


def _ending(running: _Running) -> str:
    """A sentence about how the process ended, with its last line of output or its signal."""
    with suppress(TimeoutExpired):
        running.process.wait(1.0 if running.hosts is None else REASON_SECONDS)
    running.errors.seek(0)
    text = running.errors.read().decode("utf-8", "replace")
    status = running.process.poll()
    return process_ending(text, status) if running.hosts is None else running.hosts.ending(text, status)


def _kill(process: Popen[bytes]) -> None:
    """Kill a process and those that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# ---- the commands of all ranks -------------------------------------------------------------------


class RanksInbox(Inbox):
    """The tasks of all ranks, as received by rank 0.

    Commands that need neither the model nor its session, such as a training, run on rank 0 alone.
    """

    _alone = False
    """True while rank 0 executes a command that the others don't."""
    _running: Any = None
    """The `SharedCancel` of the command that all ranks execute."""

    def get(self, workers: Collection[Worker] = ()) -> Task | int | None:
        """Wait for rank 0's next task; only rank 0 uses its idle time."""
        from engine.ranks.group import joined  # with MLX, in the thread that computes

        group, nap = joined(), SHORTEST_NAP
        while True:
            if group.rank:
                time.sleep(nap)
            elif not self._waiting and not any(worker.use_idle_time() for worker in workers):
                with self._arrived:
                    self._arrived.wait_for(lambda: bool(self._waiting), nap)
            nap = min(1.1 * nap, LONGEST_NAP)
            task = self._waiting.popleft() if self._waiting else ...
            if task is None or isinstance(task, int):
                return task
            own = task if isinstance(task, Task) else None
            self._alone = own is not None and not _of_all(own.command)
            if self._alone:
                return own
            if group.first_flags(own is not None)[0]:
                task = self._of_all(own)
                self._running = task.cancel
                return task

    def take_interleavable(self, session: int) -> Task | None:
        """See `Inbox`; the item is rank 0's."""
        from engine.ranks.group import joined

        if self._alone:
            return None
        own, running = super().take_interleavable(session), self._running
        waits, running.known = joined().first_flags(own is not None, running.own.is_set())
        return self._of_all(own) if waits else None

    def _of_all(self, own: Task | None) -> Task:
        """Send a task of rank 0 to all ranks, and return it."""
        from engine.ranks.group import SharedCancel, joined

        command, id, cancelled = joined().first(own and (own.command, own.id, own.cancel.is_set()))
        return Task(command, id, SharedCancel(own.cancel if own else threading.Event(), cancelled))


def _of_all(command: Command) -> bool:
    return command.needs_model or isinstance(command, Load | Configure)


# ---- in the child process ----------------------------------------------------------------------


def run(address: str, over_ranks: bool) -> None:
    """Run an engine's thread in this process until the other side ends it or disconnects.

    Args:
        address: Path of the other side's socket.
        over_ranks: True if this process is one of several ranks; only the first one connects.
    """
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    inbox = None
    if over_ranks:
        import_mlx_lm()  # if it fails, the rank must end; the engine's thread would only answer each command with it
        inbox = RanksInbox()
        if os.environ["MLX_RANK"] != "0":
            engine = EngineThread(lambda received: None, inbox)
            engine.start()
            engine.join()
            os._exit(1)
    pipe: Connection[Any, Any] = Client(address, family="AF_UNIX")

    def emit(received: Received) -> None:
        with suppress(OSError):  # the other side is gone, which the loop below notices
            pipe.send(received)

    engine = EngineThread(emit, inbox)
    engine.start()
    with suppress(EOFError, OSError):
        while (sent := pipe.recv()) is not None:
            engine.send(sent)
    engine.close(END_SECONDS)
    # A normal exit would abort if a thread still used MLX. If the status isn't 0, mlx.launch ends the other ranks.
    os._exit(over_ranks)
