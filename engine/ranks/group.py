"""The group of all ranks: they execute the same commands, and agree on facts that only one of them can know.

Rank 0 receives the commands and sends each to all ranks. If something depends on time (was the command cancelled, is
another command waiting?), rank 0's answer counts; everything else each rank computes alike, from the same logits. A
failure that the ranks don't share ends the process of its rank, and `mlx.launch` then ends the others.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Event, Timer
from typing import Any, NoReturn, TypeVar

import mlx.core as mx
import numpy as np

from engine.errors import Cancelled, EngineError, LoadError, first_line
from engine.ranks.hosts import PEER_GONE

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds for which rank 0 waits for the others; then SIGALRM ends it, even if MLX holds the interpreter's lock."""
WORK_A_PATIENCE = 100
"""Number of tokens for which it waits that long again."""
FAILURE_SECONDS = 3.0
"""Seconds within which the other ranks must have the same failure."""
MESSAGE_BYTES = 4096
"""Size of an exchange of objects; longer objects take a second one."""


@cache
def joined() -> Group:
    """The group of this process, joined at the first call, in the thread that computes."""
    return Group()


class Group:
    """MLX's group of all ranks; `mlx.launch` started this process as one of them."""

    def __init__(self) -> None:
        self.rank = int(os.environ["MLX_RANK"])
        try:
            with self.patience():
                backend = "ring" if "MLX_HOSTFILE" in os.environ else "jaccl"
                self.mlx: Any = mx.distributed.init(strict=True, backend=backend)
        except RuntimeError as error:
            hint = "Check that the machines reach each other at these addresses."
            self.end(f"The ranks can't be joined ({first_line(error)}). {hint}")
        self.size = int(self.mlx.size())
        hosts = self.gather(socket.gethostname())
        self.names = [f"rank {rank}" + f" on {host}" * (host != hosts[0]) for rank, host in enumerate(hosts)]
        """Names of the ranks, each with its machine if that is not rank 0's."""

    # ---- exchanges ----------------------------------------------------------------------------

    def gather(self, own: Any, work: int = 0) -> list[Any]:
        """The objects of all ranks, in order; all ranks call it at the same point of the same work.

        Args:
            own: This rank's object.
            work: Work that the others may still have to do before they get here; see `patience`.
        """
        data = pickle.dumps(own)
        begins = self._gather_bytes(len(data).to_bytes(8) + data[: MESSAGE_BYTES - 8], MESSAGE_BYTES, work)
        lengths = [int.from_bytes(begin[:8]) for begin in begins]
        found = [begin[8:] for begin in begins]
        if max(lengths) > MESSAGE_BYTES - 8:
            found = self._gather_bytes(data, max(lengths))
        try:
            return [pickle.loads(each) for each in found]  # a pickle ends before the padding
        except Exception as error:  # bytes of another operation: a rank is at another point
            self.end(f"another rank failed ({first_line(error)})", PEER_GONE)

    def _gather_bytes(self, data: bytes, size: int, work: int = 0) -> list[bytes]:
        own = mx.array(np.frombuffer(data.ljust(size, b"\0"), np.uint8))
        everyone = self._evaluated(mx.distributed.all_gather(own, group=self.mlx), work)
        return [row.tobytes() for row in np.array(everyone).reshape(self.size, size)]

    def first(self, own: Any) -> Any:
        """Rank 0's object."""
        return self.gather(own if self.rank == 0 else None)[0]

    def first_flags(self, *own: bool) -> list[bool]:
        """Rank 0's flags; quicker than `first`."""
        given = sum(flag << place for place, flag in enumerate(own)) if self.rank == 0 else 0
        found: Any = self._evaluated(mx.distributed.all_sum(mx.array(given), group=self.mlx)).item()
        return [bool(found >> place & 1) for place in range(len(own))]

    def first_array(self, own: mx.array) -> mx.array:
        """Rank 0's array; all have the same shape and dtype."""
        given = own if self.rank == 0 else mx.zeros_like(own)
        return self._evaluated(mx.distributed.all_sum(given, group=self.mlx))

    def _evaluated(self, array: mx.array, work: int = 0) -> mx.array:
        try:
            with self.patience(work):
                mx.eval(array)
        except RuntimeError as error:
            self.end(_words(error), PEER_GONE)
        return array

    # ---- failures -----------------------------------------------------------------------------

    @contextmanager
    def patience(self, work: int = 0) -> Iterator[None]:
        """End rank 0 if this block takes too long: another rank hangs, or its machine is out of reach.

        Args:
            work: Number of tokens that are computed, or as much other work.
        """
        seconds = PATIENCE * (1 + work / WORK_A_PATIENCE)
        signal.setitimer(signal.ITIMER_REAL, 0 if self.rank else seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def agreed(self, own: Callable[[], T], work: int = 0) -> T:
        """Run a part of loading that a single rank may refuse, because its files differ; then all ranks refuse it.

        Args:
            own: This rank's part.
            work: See `gather`.

        Raises:
            EngineError: Refused here, or by rank 0.
            LoadError: Refused by another rank.
        """
        result: T
        refused: EngineError | None = None
        try:
            result = own()
        except EngineError as error:
            refused = error
        said = refused and (isinstance(refused, Cancelled), refused.message, refused.hint)
        refusals = self.gather(said, work)
        for rank, (cancelled, message, hint) in ((rank, each) for rank, each in enumerate(refusals) if each):
            if rank == 0:
                raise refused or (Cancelled() if cancelled else LoadError(message, hint))
            raise LoadError(f"The model can't be loaded by {self.names[rank]}: {message} {hint}".rstrip())
        return result

    def shared_failure(self, error: Exception) -> None:
        """Return if all ranks have a failure here; otherwise end, since they are no longer at the same point."""
        if "[ring]" in str(error):
            self.end(_words(error), PEER_GONE)
        waiting = Timer(FAILURE_SECONDS, self.end, (_words(error),))
        waiting.start()
        found = self._gather_bytes(b"failed", MESSAGE_BYTES)
        if not all(each.startswith(b"failed") for each in found):
            self.end(_words(error))
        waiting.cancel()

    def end(self, said: str, status: int = 1) -> NoReturn:
        """End this process.

        Args:
            said: Message to write to stderr.
            status: `PEER_GONE` if another rank is the cause.
        """
        print(f"rank {self.rank}: {said}", file=sys.stderr, flush=True)
        os._exit(status)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


class SharedCancel(Event):
    """Cancellation of a command on rank 0: all ranks ask at the same points, and get rank 0's answer.

    Args:
        own: Set when the command is cancelled; never set on the other ranks.
        known: The answer to the next question, if it came with another exchange; None to ask.
    """

    def __init__(self, own: Event, known: bool | None) -> None:
        super().__init__()
        self.own, self.known = own, known

    def is_set(self) -> bool:
        """True if rank 0's event is set, or was set at an exchange since the last question."""
        known, self.known = self.known, None
        return joined().first_flags(self.own.is_set())[0] if known is None else known

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a time, or on rank 0 until it is set."""
        self.known = None
        return self.own.wait(timeout)
