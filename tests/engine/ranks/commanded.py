"""Commands of all kinds on two ranks, through the engine's thread; run as a program.

    python -m tests.engine.ranks.commanded

Prints one JSON object of what was found.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from engine import protocol
from engine.protocol import Command, Received, Record
from engine.settings import LoadSettings
from engine.thread import EngineThread
from tests.engine.test_commands import SAMPLES

IDLE_SECONDS = 4.0


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Driven:
    """An engine, and the records of each command."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[Received] = SimpleQueue()
        self.engine = EngineThread(self._inbox.put)
        self.engine.start()
        self._sent = 0

    def do(self, command: Command) -> list[Record]:
        """The records of a command, without its end."""
        self._sent += 1
        self.engine.send(protocol.Sent(command, self._sent))
        found: list[Record] = []
        while not isinstance(record := self._inbox.get().record, protocol.Ended):
            found.append(record)
        return found

    def failure(self, command: Command) -> str:
        """What it fails with; empty where it doesn't."""
        found = [each for each in self.do(command) if isinstance(each, protocol.Failure)]
        return f"{found[0].message} {found[0].hint}{found[0].trace}" if found else ""


def main() -> None:
    """Print what was found."""
    driven, found = Driven(), dict[str, Any]()
    two = LoadSettings(ranks=2)
    opened = next(each for each in driven.do(protocol.Load(two)) if isinstance(each, protocol.RanksLoaded))
    others = [rank.pid for rank in opened.ranks[1:]]
    found["opened"] = [opened.sharding, [rank.layers for rank in opened.ranks]]
    driven.do(protocol.Prefill("Once upon a time, there was", chat=False))
    steps = [
        each for _ in range(12) for each in driven.do(protocol.TakeStep()) if isinstance(each, protocol.Step)
    ]
    before = [processor_seconds(pid) for pid in others]
    time.sleep(IDLE_SECONDS)
    found["idle"] = max(
        (processor_seconds(pid) - then) / IDLE_SECONDS for pid, then in zip(others, before, strict=True)
    )
    measured = next(
        each for each in driven.do(protocol.MeasureRanks(3)) if isinstance(each, protocol.RanksMeasured)
    )
    found["measured"] = {
        "ranks": len(measured.ranks),
        "tokens": measured.tokens,
        "kv": sum(rank.kv_used_bytes for rank in measured.ranks) == steps[-1].kv.used_bytes,
        "weights": [rank.weight_bytes for rank in measured.ranks],
        "memory": min(rank.memory_bytes for rank in measured.ranks),
        "least_ms": min(min(each.compute_ms, each.communication_ms) for each in measured.times),
        "slowest": measured.times[measured.slowest].compute_ms
        == max(each.compute_ms for each in measured.times),
    }
    found["refused"] = {cls.kind: driven.failure(cls) for cls in SAMPLES if not cls.over_ranks}
    found["step"] = driven.failure(protocol.TakeStep())
    found["race"] = driven.failure(protocol.Race(2, 6))
    found["three"] = driven.failure(protocol.Load(LoadSettings(ranks=3)))
    found["again"] = driven.failure(protocol.Load(two))
    found["alone"] = driven.failure(protocol.Load(LoadSettings()))
    found["attention"] = driven.failure(protocol.Prefill("Once", chat=False)) + driven.failure(
        protocol.ReadAttention(1)
    )
    found["no ranks"] = driven.failure(protocol.MeasureRanks())
    found["back"] = driven.failure(protocol.Load(two)) + driven.failure(protocol.Prefill("Once", chat=False))
    begun = time.perf_counter()
    found["closed"] = driven.engine.close(5.0)
    found["close_seconds"] = time.perf_counter() - begun
    print(json.dumps(found))


if __name__ == "__main__":
    main()
