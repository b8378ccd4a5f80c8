"""Another rank than 0: a process that executes numbered operations on its shard and its own caches.

Operations are read from stdin, one JSON object a line, and answered on stdout with their number. Between two it waits
on the pipe and takes no processor time; in a collective it would (measured: 2.95 s of 3.0 s). A thread reads the
pipe: it ends the process with its stdin, also while the other thread is blocked in a collective, and answers a ping.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any, BinaryIO

JOIN_SECONDS = 45
"""After which a rank that can't be joined is ended by the system: MLX tries to connect for 31 s, and waits for another
rank without a limit, with Python's interpreter locked."""


class AnswerPipe:
    """What is written to stdout, by two threads.

    Args:
        to: The pipe.
    """

    def __init__(self, to: BinaryIO) -> None:
        self._to, self._lock = to, threading.Lock()

    def give(self, answer: dict[str, Any]) -> None:
        """Write one answer."""
        line = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._to.write(line)
            self._to.flush()


def main(rank: int) -> None:
    """Execute operations until stdin ends.

    Args:
        rank: The number of this one.
    """
    answers = AnswerPipe(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    operations: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_read, args=(operations, answers), daemon=True).start()
    try:
        _serve(rank, operations, answers)
    except BaseException as error:
        import traceback

        traceback.print_exception(error)
        sys.stderr.flush()
        os._exit(1)


def _read(operations: SimpleQueue[dict[str, Any]], answers: AnswerPipe) -> None:
    for line in sys.stdin.buffer:
        operation = json.loads(line)
        if "ping" in operation:
            answers.give({"pong": operation["ping"]})
        else:
            operations.put(operation)
    os._exit(0)


def _serve(rank: int, operations: SimpleQueue[dict[str, Any]], answers: AnswerPipe) -> None:
    from engine.patches.imports import import_mlx_lm

    import_mlx_lm()
    from engine.ranks.mirror import Mirror

    mirror = Mirror(rank)
    while True:
        operation = operations.get()
        number = operation.pop("n")
        if operation["op"] == "join":
            signal.alarm(JOIN_SECONDS)  # its default action needs no interpreter
        try:
            answer = mirror.execute(operation)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            answer = {"error": f"{type(error).__name__}: {error}"}
        signal.alarm(0)
        answers.give({"n": number, **answer})


if __name__ == "__main__":
    main(int(sys.argv[1]))
