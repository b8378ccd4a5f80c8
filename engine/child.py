"""The engine in a child process, or over ranks in several: commands and records go through a local socket.

A model over ranks needs it: `mlx.launch` starts the ranks, the loss of one ends all of them, and the screen stays.
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
"""Seconds for the engine's thread to end when the other side has closed the socket."""
SHORTEST_NAP, LONGEST_NAP = 0.0005, 0.05
"""Seconds between two looks of a rank for a command: in a collective operation it would take a core to wait."""
REASON_SECONDS = 5.0
"""Seconds for mlx.launch to say which rank has ended, and to end the others."""


class _Running(Struct, eq=False):
    """A process of the engine, or mlx.launch with the ranks."""

    hosts: RankHosts | None
    """The places of the ranks; None for one process."""
    process: Popen[bytes]
    errors: Any
    """The file of its stderr."""
    outgoing: SimpleQueue[Sent | None]
    """Commands for the process; None tells it to end."""
    outstanding: dict[int, Command]


class EngineProcess:
    """An engine's thread in a child process, or one on each rank, which end with this process.

    The first command starts it, as does a `Load` after a loss or for other ranks.

    Args:
        emit: Receives each record, in a thread of this object.
        on_loss: Called in that thread with the reason when the process has ended or a rank was lost; if None, the
            commands that had not ended fail with it.
    """

    def __init__(
        self, emit: Callable[[Received], None], on_loss: Callable[[str], object] | None = None
    ) -> None:
        self.emit, self.on_loss = emit, on_loss
        self._lock = threading.Lock()
        """Guards all that follows."""
        self._running: _Running | None = None
        self._loss = ""
        """Why the last process was lost."""
        self._configure: Sent | None = None
        """The last settings, for a process to come; id 0 hides the end of the command."""

    def start(self) -> None:
        """Nothing is started before the first command, which may say over which ranks."""

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
        """End the process and all that it started.

        Args:
            timeout: Seconds that it has to end by itself.

        Returns:
            True: nothing is left of it.
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
        """Start the process or the ranks, unless they run.

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
        folder = TemporaryDirectory(prefix="inspector-")  # other users may not enter it
        address = str(Path(folder.name, "engine"))
        call = f"from engine.child import run; run({address!r}, {hosts is not None})"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(1)
        errors = TemporaryFile()  # noqa: SIM115 - read when the process has ended
        try:
            started = python_command(call) if hosts is None else hosts.command(Path(folder.name), call)
            # a library that writes to the terminal would write over the screen, and Ctrl-C in it must not end this
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
                        loss = record.message  # without its hint: a new process has all ranks again
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
            # after a load there is no model, and so no session to fall back to
            if self.on_loss is None or isinstance(command, Load):
                self.emit(Received(Failure(command.kind, loss, "Open it again."), id))
            self.emit(Received(Ended(command.kind, cancelled=True), id))


def _accepted(listener: socket.socket, process: Popen[bytes]) -> Connection[Any, Any] | None:
    """The connection of the process; None if it ends before."""
    with listener:
        listener.settimeout(0.1)
        while process.poll() is None:
            with suppress(TimeoutError):
                return Connection(listener.accept()[0].detach())
    return None


def _quieten(launcher: Popen[bytes]) -> None:
    """Have mlx.launch no longer watch if ranks take input: it would use a core for that.

    It stops once it fails to write to a rank, and each rank closes its stdin before it joins the others.
    """
    assert launcher.stdin is not None
    with suppress(OSError):
        launcher.stdin.write(b"\n")
        launcher.stdin.flush()


def _write(pipe: Connection[Any, Any], outgoing: SimpleQueue[Sent | None]) -> None:
    """Send what is queued, in a thread of its own: the pipe is full while the process hangs."""
    with suppress(OSError):  # the reader sees the end
        while (sent := outgoing.get()) is not None:
            pipe.send(sent)
        pipe.send(None)


def _ending(running: _Running) -> str:
    """A sentence on how the process ended, with its last line or its signal."""
    with suppress(TimeoutExpired):
        running.process.wait(1.0 if running.hosts is None else REASON_SECONDS)
    running.errors.seek(0)
    text = running.errors.read().decode("utf-8", "replace")
    status = running.process.poll()
    return process_ending(text, status) if running.hosts is None else running.hosts.ending(text, status)


def _kill(process: Popen[bytes]) -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# ---- the commands of all ranks -------------------------------------------------------------------


class RanksInbox(Inbox):
    """The tasks of all ranks: those that rank 0 receives.

    What needs neither the model nor its session, such as a training, stays on rank 0.
    """

    _alone = False
    """True while rank 0 executes a command that the others don't."""
    _running: Any = None
    """The `SharedCancel` of the command that all ranks execute."""

    def get(self, workers: Collection[Worker] = ()) -> Task | int | None:
        """Wait for rank 0's next task; only there idle time is used."""
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
        """See `Inbox`; rank 0's."""
        from engine.ranks.group import joined

        if self._alone:
            return None
        own, running = super().take_interleavable(session), self._running
        waits, running.known = joined().first_flags(own is not None, running.own.is_set())
        return self._of_all(own) if waits else None

    def _of_all(self, own: Task | None) -> Task:
        """A task of rank 0, sent to all ranks."""
        from engine.ranks.group import SharedCancel, joined

        command, id, cancelled = joined().first(own and (own.command, own.id, own.cancel.is_set()))
        return Task(command, id, SharedCancel(own.cancel if own else threading.Event(), cancelled))


def _of_all(command: Command) -> bool:
    return command.needs_model or isinstance(command, Load | Configure)


# ---- in the child process ----------------------------------------------------------------------


def run(address: str, over_ranks: bool) -> None:
    """Run an engine's thread in this process until the other side ends it or is gone.

    Args:
        address: The socket of the other side.
        over_ranks: True if this process is one of several ranks, of which the first alone connects.
    """
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    inbox = None
    if over_ranks:
        import_mlx_lm()  # a rank that can't must end: the engine's thread would continue, and say so to each command
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
    # A thread that still uses MLX would abort the interpreter's own way out; for another status than 0 mlx.launch ends
    # the other ranks.
    os._exit(over_ranks)
