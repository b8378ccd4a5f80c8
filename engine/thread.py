"""The one thread that owns MLX: commands in, records out.

MLX's streams, random state and unevaluated arrays belong to the thread that made them, so import, load, prefill and
decode all happen here. This module itself imports the standard library alone: the thread imports MLX once it is
started, so that a screen can paint before.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections import deque
from collections.abc import Callable

from engine.errors import PathError
from engine.files import here
from engine.protocol import Cancel, Command, Ended, Failure, Loading, Record
from engine.task import Task

QUIET_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}
"""Variables that keep the libraries from writing over the screen; set unless the person has set them."""
OPEN_FILES = 4096
"""The hard limit that mlx_lm sets when it is imported; it may lower that of the process to it, not raise it."""
WITHOUT_MLX = "`inspector replay` and `inspector learn` need no MLX."
"""Ends the hint of every failure of a command where MLX can't be imported."""
SWITCH_INTERVAL = 1e-4
"""Seconds for which one thread may keep the interpreter while another waits for it. A step acquires it several times;
with Python's own 5 ms a step during a frame waits until the frame ends: the slowest 5 % of a run took 27 to 32 ms on
the bundled model, with this 21."""


class Inbox:
    """A queue of tasks, whose first can be inspected without taking it. None means the end."""

    def __init__(self) -> None:
        self._waiting: deque[Task | None] = deque()
        self._arrived = threading.Condition()

    def put(self, task: Task | None) -> None:
        """Add a task."""
        with self._arrived:
            self._waiting.append(task)
            self._arrived.notify()

    @property
    def waiting(self) -> bool:
        """Whether a task waits, or the end."""
        return bool(self._waiting)

    def get(self, meanwhile: Callable[[], bool]) -> Task | None:
        """Wait for the next task.

        Args:
            meanwhile: Called until a task has come or it returns False; each call delays the task by its time.
        """
        while not self._waiting and meanwhile():
            pass
        with self._arrived:
            self._arrived.wait_for(lambda: self._waiting)
            return self._waiting.popleft()

    def aside(self) -> Task | None:
        """Take the first task if there is one and it can be answered between two steps; else None."""
        with self._arrived:
            first = self._waiting[0] if self._waiting else None
            return self._waiting.popleft() if first is not None and first.command.aside else None


class EngineThread:
    """Runs commands one after another in a separate thread.

    Args:
        emit: Receives each record, in the engine's thread; it must be quick and must not raise.
    """

    def __init__(self, emit: Callable[[Record], None]) -> None:
        self._receive = emit
        self._inbox = Inbox()
        self._closing = threading.Event()
        self._tasks: dict[int, Task] = {}
        """Queued and running tasks by their commands' ids. Threads share it: every access is one atomic call."""
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to import MLX and to wait for commands; from now on threads switch more often."""
        sys.setswitchinterval(SWITCH_INTERVAL)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Queue a command, or execute a `Cancel` at once: it overtakes the queue, and its target may still be in it.

        Args:
            command: Its records follow in order, with `Ended` as the last; none follow a `Cancel`.

        Raises:
            ValueError: A command of the same id has not ended yet.
        """
        if isinstance(command, Cancel):
            if (target := self._tasks.get(command.target)) is not None:
                target.cancel.set()
            return
        task = Task(command, closing=self._closing)
        if self._tasks.setdefault(command.id, task) is not task:
            raise ValueError(f"{command.kind} can't be sent: command {command.id} has not ended")
        self._inbox.put(task)

    def close(self, timeout: float = 2.0) -> bool:
        """Cancel the running and the queued commands, and join the thread.

        Args:
            timeout: Seconds to wait; the longest wait is for one forward or one import.

        Returns:
            True when the thread ended in time. Otherwise the process should end by `os._exit`, since a thread
            that still uses MLX while the interpreter shuts down aborts it.
        """
        self._closing.set()
        for task in list(self._tasks.values()):
            task.cancel.set()
        self._inbox.put(None)
        if self._thread.ident is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _emit(self, record: Record) -> None:
        """Emit a record. A task is removed before its `Ended` is emitted: no later `Cancel` finds it."""
        if isinstance(record, Ended):
            self._tasks.pop(record.request, None)
        self._receive(record)

    def _work(self) -> None:
        for name, value in QUIET_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._emit(Loading("import", 0, 0, "mlx"))
        try:
            self._serve()
        except Exception as error:  # the import itself failed: answer every command with a failure
            self._fail_commands(error)
        finally:
            if (mlx := sys.modules.get("mlx.core")) is not None:
                # MLX requires it of every thread that used it: without it the interpreter's exit aborts.
                mlx.clear_streams()

    def _serve(self) -> None:
        import mlx.core  # noqa: F401  # fails by itself, where only MLX is the matter

        from engine.libraries import check_private, import_mlx_lm

        import_mlx_lm()  # before any module of ours does
        from engine.worker import Worker

        check_private()
        inbox = self._inbox
        worker = Worker(self._emit, inbox.aside, lambda: inbox.waiting)
        try:
            while not self._closing.is_set() and (task := inbox.get(worker.use_idle_time)) is not None:
                worker.carry_out(task)
        finally:
            worker.close()

    def _fail_commands(self, error: Exception) -> None:
        while not self._closing.is_set() and (task := self._inbox.get(lambda: False)) is not None:
            kind, id = task.command.kind, task.command.id
            self._emit(Failure(kind, *_cause(error), request=id))
            self._emit(Ended(kind, request=id))


def _cause(error: Exception) -> tuple[str, str]:
    """Why MLX can't be imported, and what to do."""
    try:
        here()  # what is imported asks for it
    except PathError as gone:
        return gone.message, gone.hint
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES:
        return (
            f"mlx_lm needs to be allowed {OPEN_FILES:,} open files, and the hard limit here is {hard:,}.",
            f"Raise it where it was set: ulimit -Hn {OPEN_FILES}. {WITHOUT_MLX}",
        )
    from engine.libraries import unsupported

    if (other := unsupported(error)) is not None:
        return other[0], f"{other[1]} {WITHOUT_MLX}"
    return f"MLX can't be started: {error}.", f"On Linux install mlx[cpu]; then try again. {WITHOUT_MLX}"
