"""A rank with a fault: what is started in the place of `engine.ranks.rank`, with the fault in the environment."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from engine.ranks import rank as real

FAULT = "TESTED_FAULT"
"""`WAY` or `WAY:OPERATION:COUNT`: on rank 1, at that occurrence of the operation, from 1."""


def _at(operation: dict[str, Any], name: str) -> bool:
    op = operation["op"]
    if op == "run":
        op = "chunk" if len(operation["ids"][0]) > 1 else "token"
    return op == name


def _install(way: str, name: str, count: int) -> None:
    from engine.ranks.mirror import Mirror

    seen = 0
    execute = Mirror.execute

    def faulty(self: Mirror, operation: dict[str, Any]) -> dict[str, Any]:
        nonlocal seen
        seen += _at(operation, name)
        if not _at(operation, name) or seen != count:
            return execute(self, operation)
        print("some words of rank 1", file=sys.stderr, flush=True)
        match way:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "hang":
                time.sleep(1000)
            case "raise":
                raise RuntimeError("no more memory here")
            case "disagree":
                answer = execute(self, operation)
                return {**answer, "print": [answer["print"][0] ^ 1, answer["print"][1] + 1]}
            case "short":
                answer = execute(self, operation)
                return {**answer, "offset": answer["offset"] - 1}
        return execute(self, operation)

    Mirror.execute = faulty  # type: ignore[method-assign]


def main(rank: int) -> None:
    """As `engine.ranks.rank.main`."""
    way, _, rest = os.environ.get(FAULT, "").partition(":")
    name, _, count = rest.partition(":")
    if rank == 1:
        if way == "import":
            sys.modules["mlx_lm"] = None  # type: ignore[assignment]
        if way == "silent":
            time.sleep(1000)
        if way == "number":
            give = real.Answers.give

            def wrong(self: real.Answers, answer: dict[str, Any]) -> None:
                give(self, {**answer, "n": answer["n"] - 1} if answer.get("n") == int(count) else answer)

            real.Answers.give = wrong  # type: ignore[method-assign]
        if way == "deaf":
            real._read = _deaf
        if name:
            serve = real._serve

            def serving(*given: Any) -> None:
                _install(way, name, int(count))
                serve(*given)

            real._serve = serving
    real.main(rank)


def _deaf(operations: Any, answers: real.Answers) -> None:
    """Read operations, and don't end with stdin."""
    import json

    for line in sys.stdin.buffer:
        operations.put(json.loads(line))
    time.sleep(1000)


if __name__ == "__main__":
    main(int(sys.argv[1]))
