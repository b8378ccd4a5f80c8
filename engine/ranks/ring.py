"""The ranks of this process: numbered operations out, answers in, and what is done when one of them is lost.

Every operation goes to all ranks and is answered by each with its number, before the next one is sent. Rank 0
computes its own part meanwhile, in the engine's thread, where it may be blocked in a collective that a lost rank
never enters. So a thread reads each rank's answers, and one watches the time: the first sign that a rank is lost ends
all the others, after which MLX's collective fails within two seconds and the operation raises a `RankError`.

MLX makes one group a process and keeps it: after a loss this process can't have ranks again, and what it loads next
over ranks uses those that are here.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct

from engine.errors import EngineError, LoadError, RankError
from engine.ranks.hosts import RankHosts, RankProcess

T = TypeVar("T")
Answer = Mapping[str, Any]
PATIENCE = 60.0
"""Seconds without an answer after which a rank counts as lost. To import MLX and say so takes 1 s here, but a cold disk
or a busy machine may take many."""
WATCH_SECONDS = 0.25
"""Between two looks at the time."""
PING_SECONDS = 1.0
"""For a rank that computes to say that it runs: a thread of it answers."""
WORK_UNIT = 100
"""Tokens of work, in an operation, for which a rank gets `PATIENCE` once more."""
ERROR_SECONDS = 3.0
"""For this rank to finish its part of an operation that has failed on another one."""
QUIT_SECONDS = 1.0
AGAIN = "Start the program again; the session can be saved before."


class Loss(Struct, frozen=True):
    """Which rank was lost, and why."""

    rank: int
    cause: str


class Ranks:
    """The other ranks' processes.

    Args:
        hosts: Where they run; the first is this process.

    Raises:
        LoadError: One can't be started.
        RankError: One didn't come up.
    """

    def __init__(self, hosts: RankHosts) -> None:
        self.hosts = hosts
        self.size = len(hosts.ranks)
        self.loss: Loss | None = None
        self.joined = False
        """True if MLX's group of them was made."""
        self.group: Any = None
        """That group."""
        self.released: deque[tuple[str, int]] = deque()
        """What ranks need not keep any more, by what it is and its number; sent with the next operation."""
        self._numbers = 0
        self._named = 0
        self._changed = threading.Condition()
        self._answers: dict[int, Answer] = {}
        self._pongs: set[int] = set()
        self._due: float | None = None
        self._over = threading.Event()
        self.processes: list[RankProcess] = []
        try:
            for rank, host in enumerate(hosts.ranks[1:], 1):
                self.processes.append(RankProcess(rank, host, self._arrived))
        except OSError as error:
            self.close()
            raise LoadError(
                f"A rank can't be started ({error}).", "Free some memory or processes."
            ) from error
        threading.Thread(target=self._watch, name="ranks", daemon=True).start()
        self.together("hello", lambda: None, size=self.size)

    def name_one(self) -> int:
        """A number for a cache or a snapshot, which all ranks know it by."""
        self._named += 1
        return self._named

    # ---- operations -------------------------------------------------------------------------

    def together(
        self, op: str, own: Callable[[], T], *, work: int = 0, **fields: Any
    ) -> tuple[T, list[Answer]]:
        """Have all ranks execute an operation, and this one its part of it.

        Args:
            op: Its name.
            own: This rank's part.
            work: Tokens that it computes, by which ranks have more time.
            fields: What else the others need.

        Returns:
            The result of this rank's part, and the others' answers in their order.

        Raises:
            RankError: A rank was lost, now or before.
            Exception: What `own` raised, where the operation failed on every rank alike or was given up here.
        """
        self.check()
        self._numbers += 1
        released = [self.released.popleft() for _ in range(len(self.released))]
        message = {"n": self._numbers, "op": op, **fields, **({"released": released} if released else {})}
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self._answers = {}
        self._due = time.monotonic() + PATIENCE * (1 + work / WORK_UNIT)
        try:
            for rank, process in enumerate(self.processes, 1):
                process.send(self._for(rank, line))
            failed: Exception | None = None
            try:
                result = own()
            except Exception as error:
                failed = error
            answers = self._collect()
            if failed is not None:
                self._explain(failed, answers)
                raise failed
            self._check_answers(answers)
            return result, answers
        finally:
            self._due = None

    def _for(self, rank: int, line: bytes) -> bytes:
        """The line for one rank: a place where tests put faults in."""
        return line

    def _collect(self) -> list[Answer]:
        with self._changed:
            self._changed.wait_for(lambda: self.loss is not None or len(self._answers) == self.size - 1)
        self.check()
        return [self._answers[rank] for rank in range(1, self.size)]

    def _check_answers(self, answers: list[Answer]) -> None:
        for rank, answer in enumerate(answers, 1):
            if "error" in answer:
                self.lose(rank, f"failed in operation {self._numbers} ({answer['error']})")
            elif answer.get("n") != self._numbers:
                self.lose(rank, f"answered operation {answer.get('n')} in the place of {self._numbers}")
        self.check()

    def _explain(self, failed: Exception, answers: list[Answer]) -> None:
        """A failure that all ranks had, or that this one chose, leaves them in step; any other ends them."""
        if isinstance(failed, EngineError) or all("error" in answer for answer in answers):
            return
        self.lose(0, f"failed in operation {self._numbers} ({type(failed).__name__}: {failed})")
        self.check()

    # ---- loss -------------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse to go on once a rank is lost.

        Raises:
            RankError: Naming the rank, the cause, and its last words.
        """
        if (loss := self.loss) is None:
            return
        process = self.processes[loss.rank - 1] if loss.rank else None
        name = process.name.capitalize() if process else "Rank 0, this process,"
        words = process.last_words() if process else ""
        cause = loss.cause
        if process is not None and not cause:
            cause = process.ended(2.0) or "closed its answers"
        said = f" Its last words: {words}" if words and words not in cause else ""
        raise RankError(f"{name} was lost: it {cause}.{said}".rstrip(".") + ".", AGAIN, loss.rank)

    def lose(self, rank: int, cause: str) -> None:
        """A rank is lost: end all others, so that what waits for them fails. Only the first loss counts.

        Args:
            rank: Which one.
            cause: What it did, with its verb; empty where its process ended.
        """
        with self._changed:
            if self.loss is not None or self._over.is_set():
                return
            if not cause and rank:
                cause = self.processes[rank - 1].ended(1.0)
            self.loss = Loss(rank, cause)
            self._changed.notify_all()
        for process in self.processes:
            process.kill()

    def _arrived(self, rank: int, answer: Answer | None) -> None:
        """Take an answer, in a thread of its rank."""
        if answer is None:
            self.lose(rank, "")
            return
        with self._changed:
            if "pong" in answer:
                self._pongs.add(rank)
            else:
                self._answers[rank] = answer
                if (
                    "error" in answer and self._due is not None
                ):  # does this rank fail alike, or is it held up now?
                    self._due = min(self._due, time.monotonic() + ERROR_SECONDS)
            self._changed.notify_all()

    def _watch(self) -> None:
        while not self._over.wait(WATCH_SECONDS) and self.loss is None:
            due = self._due
            if due is not None and time.monotonic() > due:
                self._overdue(due)

    def _overdue(self, due: float) -> None:
        """Find out which rank holds the others up: one that failed, that does not run, or that has no answer yet."""
        self._pongs.clear()
        for process in self.processes:
            process.send(b'{"ping":1}\n')
        with self._changed:
            self._changed.wait_for(lambda: len(self._pongs) == self.size - 1, PING_SECONDS)
            silent = [rank for rank in range(1, self.size) if rank not in self._pongs]
            late = [rank for rank in range(1, self.size) if rank not in self._answers]
        if self._due != due:  # it came after all
            return
        failed = [(rank, answer["error"]) for rank, answer in self._answers.items() if "error" in answer]
        if failed:
            self.lose(failed[0][0], f"failed in operation {self._numbers} ({failed[0][1]})")
        elif late and set(silent) & set(late):
            self.lose(min(set(silent) & set(late)), "gave no answer in its time, and does not run")
        else:
            self.lose(late[0] if late else 0, "did not finish an operation in its time")

    # ---- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        """End the ranks."""
        self._over.set()
        for process in self.processes:
            process.close_input()
        until = time.monotonic() + QUIT_SECONDS
        for process in self.processes:
            if not process.ended(max(0.0, until - time.monotonic())):
                process.kill()
                process.ended(QUIT_SECONDS)


class ProcessRing:
    """The ranks that this process has or had: MLX makes one group a process."""

    def __init__(self) -> None:
        self.ranks: Ranks | None = None

    def opened(self, hosts: RankHosts) -> Ranks:
        """The ranks, started unless they are there.

        Raises:
            LoadError: This process has others, or lost its own.
            RankError: One didn't come up.
        """
        ranks = self.ranks
        if ranks is not None and not ranks.joined and (ranks.loss is not None or ranks.hosts != hosts):
            ranks.close()  # MLX has no group yet
            ranks = None
        if ranks is not None:
            if ranks.loss is not None:
                raise LoadError("This process lost a rank and can't have others.", AGAIN)
            if ranks.hosts != hosts:
                raise LoadError(
                    f"This process has {ranks.size} ranks, and can't have others after them.",
                    "Start the program again for other ranks.",
                )
            return ranks
        self.ranks = None
        self.ranks = Ranks(hosts)
        return self.ranks

    def unload(self) -> None:
        """Have the ranks drop their parts of a model; a loss that shows now is reported by what needs them next."""
        if self.ranks is not None and self.ranks.joined and self.ranks.loss is None:
            with suppress(RankError):
                self.ranks.together("unload", lambda: None)

    def close(self) -> None:
        """End the ranks."""
        if self.ranks is not None:
            self.ranks.close()


RING = ProcessRing()
"""That of this process."""
