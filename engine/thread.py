"""The one thread that owns MLX: commands in, records out.

MLX's streams, random state and unevaluated arrays belong to the thread that made them, so import, load, prefill and
decode all happen here. This module doesn't import MLX: the thread does so after it has started, so that the screen can
paint first.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.errors import FAULT, PathError, first_line
from engine.files import here
from engine.protocol import Cancel, Ended, Failure, Loading, Received, Sent
from engine.task import Task

if TYPE_CHECKING:
    from engine.model.load import Loaded
    from engine.settings import LoadSettings
    from engine.worker import Worker

QUIET_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}
"""Variables that keep the libraries from writing over the screen; the user's values are not replaced."""
OPEN_FILES = 4096
"""Hard limit on open files that mlx_lm sets on import; the import fails if the process's limit is lower."""
WITHOUT_MLX = "`inspector replay` and `inspector learn` need no MLX."
"""End of every hint if MLX can't be imported."""
ENDED = "The engine has ended.", "Start the program again.", False
SWITCH_INTERVAL = 1e-4
"""Seconds that one thread may keep the interpreter while another waits for it. A step acquires it several times; with
Python's default of 5 ms a step during a frame waits until the frame ends: the slowest 5 % of a run took 27 to 32 ms on
the bundled model, with this value 21 ms."""


class Inbox:
    """A queue of tasks; the first can be inspected without removing it.

    A number in the queue is a session to drop after its commands, which all come before it; None ends the thread.
    """

    def __init__(self) -> None:
        self._waiting: deque[Task | int | None] = deque()
        self._arrived = threading.Condition()

    def put(self, task: Task | int | None) -> None:
        with self._arrived:
            self._waiting.append(task)
            self._arrived.notify()

    def is_waiting(self) -> bool:
        """True if the queue has an item."""
        return bool(self._waiting)

    def get(self, workers: Collection[Worker] = ()) -> Task | int | None:
        """Wait for the next item and remove it.

        Args:
            workers: Workers that compute while the queue is empty; an item may have to wait for one piece of such work.
        """
        while not self._waiting and any(worker.use_idle_time() for worker in workers):
            pass
        with self._arrived:
            while not self._waiting:
                self._arrived.wait()
            return self._waiting.popleft()

    def take_interleavable(self, session: int) -> Task | None:
        """Remove and return the first item if it is a session's command that may run between two steps; else None."""
        with self._arrived:
            first = self._waiting[0] if self._waiting else None
            if not isinstance(first, Task) or not first.command.interleavable or first.session != session:
                return None
            self._waiting.popleft()
            return first


class EngineThread:
    """Runs commands one after another in a separate thread.

    Args:
        emit: Receives each record, in the engine's thread; it must be quick and must not raise.
        inbox: Queue of the thread; None for a new one, without ranks.
    """

    def __init__(self, emit: Callable[[Received], None], inbox: Inbox | None = None) -> None:
        self._receivers = {0: emit}
        """Receiver of the records, by session."""
        self._inbox = inbox or Inbox()
        self._closing = threading.Event()
        self._tasks: dict[tuple[int, int], Task] = {}
        """Queued and running tasks by session and id. Threads share it: each access is a single atomic call."""
        self._over = False
        """True once the thread accepts no more commands."""
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Start importing MLX and then wait for commands; from now on threads switch more often."""
        sys.setswitchinterval(SWITCH_INTERVAL)
        self._thread.start()

    def side_session(self, emit: Callable[[Received], None]) -> SideSession:
        """Make another session in this thread, with its own tree; it shares the models that the sessions load.

        Args:
            emit: Receives each of its records, under the same rules as the thread's `emit`.
        """
        session = max(self._receivers) + 1
        self._receivers[session] = emit
        return SideSession(self, session)

    def send(self, sent: Sent, session: int = 0) -> None:
        """Queue a command; a `Cancel` is executed at once, since its target may still be in the queue.

        Args:
            sent: The command and its id. Its records follow in order, `Ended` last; a `Cancel` has no records.
            session: Number of the session that runs it.

        Raises:
            ValueError: A command of the session with the same id has not ended.
        """
        if isinstance(sent.command, Cancel):
            if (target := self._tasks.get((session, sent.command.target))) is not None:
                target.cancel.set()
            return
        task = Task(sent.command, sent.id, session=session)
        if self._tasks.setdefault((session, sent.id), task) is not task:
            raise ValueError(f"{sent.command.kind} can't be sent: command {sent.id} has not ended")
        if self._closing.is_set():  # `close` has cancelled only the earlier tasks
            task.cancel.set()
        self._inbox.put(task)
        if self._over and not self._closing.is_set():
            self._fail_open(*ENDED)

    def close(self, timeout: float = 2.0) -> bool:
        """Cancel the running and the queued commands, and join the thread.

        Args:
            timeout: Seconds to wait; the longest wait is for one forward pass or one import.

        Returns:
            True if the thread ended in time. Otherwise the process should end with `os._exit`, since a thread that
            still uses MLX while the interpreter shuts down aborts it.
        """
        self._closing.set()
        for task in list(self._tasks.values()):
            task.cancel.set()
        self._inbox.put(None)
        if self._thread.ident is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    def end(self, session: int) -> None:
        """Cancel the commands of a side session, and drop it once they have ended."""
        for task in list(self._tasks.values()):
            if task.session == session:
                task.cancel.set()
        self._inbox.put(session)

    def _work(self) -> None:
        # BaseException here and below, because a panic in a Rust library is not an Exception
        try:
            for name, value in QUIET_ENVIRONMENT.items():
                os.environ.setdefault(name, value)
            self._receivers[0](Received(Loading("import", 0, 0, "mlx")))
            try:
                import mlx.core  # noqa: F401  # fails on its own if only MLX is broken

                from engine.patches.imports import import_mlx_lm

                import_mlx_lm()  # before any of our modules does
                from engine.worker import Worker
            except BaseException as error:
                why = _cause(error)
                while not self._closing.is_set() and self._inbox.get() is not None:
                    self._fail_open(*why)
            else:
                self._serve(Worker)
        except BaseException as error:
            self._fail_open(*_fault(error))
        finally:
            self._over = True
            if not self._closing.is_set():
                self._fail_open(*ENDED)
            if (core := sys.modules.get("mlx.core")) is not None:
                # MLX requires this in every thread that used it; otherwise the interpreter aborts on exit.
                core.clear_streams()

    def _serve(self, make: type[Worker]) -> None:
        inbox = self._inbox
        workers: dict[int, Worker] = {}

        def loaded(settings: LoadSettings) -> Loaded | None:
            return next(filter(None, (each.holds(settings) for each in workers.values())), None)

        def made(session: int) -> Worker:
            emit, take = self._receivers[session], partial(inbox.take_interleavable, session)
            # the command is removed before its `Ended`, so that no `Cancel` finds it later
            worker = make(
                emit, take, inbox.is_waiting, loaded, lambda id: self._tasks.pop((session, id), None)
            )
            workers[session] = worker
            return worker

        made(0)
        while not self._closing.is_set() and (task := inbox.get(workers.values())) is not None:
            try:
                if isinstance(task, int):
                    del self._receivers[task]
                    if (gone := workers.pop(task, None)) is not None:
                        gone.leave(last=not any(each.loaded for each in workers.values()))
                else:
                    (workers.get(task.session) or made(task.session)).carry_out(task)
            except BaseException as error:  # outside a command, or in its receiver: continue
                if isinstance(task, Task):
                    self._fail(task, *_fault(error))

    def _fail_open(self, *why: Any) -> None:
        """Answer each command that has not ended with a failure, since its caller may be waiting."""
        for task in list(self._tasks.values()):
            self._fail(task, *why)

    def _fail(self, task: Task, message: str, hint: str, expected: bool = True, trace: str = "") -> None:
        kind, id = task.command.kind, task.id
        emit = self._receivers.get(task.session)
        if self._tasks.pop((task.session, id), None) is not None and emit is not None:
            with suppress(BaseException):  # the receiver's own errors don't stop the thread
                emit(Received(Failure(kind, message, hint, expected, trace), id))
                emit(Received(Ended(kind), id))


class SideSession:
    """An additional session in an engine's thread, with the same methods as the thread.

    Args:
        thread: Thread that runs the commands of all its sessions, one after another.
        session: Number of this session in the thread.
    """

    def __init__(self, thread: EngineThread, session: int) -> None:
        self._thread, self._session = thread, session

    def start(self) -> None:
        """Do nothing: the thread is running already."""

    def send(self, sent: Sent) -> None:
        """See `EngineThread.send`."""
        self._thread.send(sent, self._session)

    def close(self, timeout: float = 0.0) -> bool:
        """Cancel its commands, and drop its tree; the thread, the other sessions and their models stay."""
        self._thread.end(self._session)
        return True


def _fault(error: BaseException) -> tuple[str, str, bool, str]:
    """Message, hint, `expected` (False) and traceback of a bug that is not the failure of one command."""
    trace = "".join(traceback.format_exception(error))
    return f"The engine failed: {type(error).__name__}: {first_line(error)}.", FAULT, False, trace


def _cause(error: BaseException) -> tuple[str, str]:
    """Message and hint for MLX that can't be imported."""
    try:
        here()  # the import needs the current directory
    except PathError as gone:
        return gone.message, gone.hint
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES:
        message = (
            f"mlx_lm needs to be allowed {OPEN_FILES:,} open files, and the hard limit here is {hard:,}."
        )
        return message, f"Raise it where it was set: ulimit -Hn {OPEN_FILES}. {WITHOUT_MLX}"
    return f"MLX can't be started: {error}.", f"On Linux install mlx[cpu]; then try again. {WITHOUT_MLX}"
