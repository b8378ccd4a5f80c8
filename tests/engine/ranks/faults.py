"""A session over ranks of which one has a fault, driven through the engine's thread; run as a program.

    python -m tests.engine.ranks.faults RANKS

Prints a line for each command: its kind, its seconds, and its failure.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import count
from queue import SimpleQueue

from engine import protocol
from engine.protocol import Command, Received
from engine.ranks import hosts, ring
from engine.settings import LoadSettings
from engine.thread import EngineThread


def main(ranks: int) -> None:
    """Load, prefill, step, move back and recompute, quit."""
    hosts.MODULE = "tests.engine.ranks.faulty"
    inbox: SimpleQueue[Received] = SimpleQueue()
    engine = EngineThread(inbox.put)
    engine.start()
    ids = count(1)

    def tell(**values: object) -> None:
        print(json.dumps(values), flush=True)

    def do(command: Command) -> bool:
        begun, failure = time.perf_counter(), None
        engine.send(protocol.Sent(command, next(ids)))
        while not isinstance(record := inbox.get().record, protocol.Ended):
            if isinstance(record, protocol.Failure):
                failure = [record.message, record.hint, record.lost_rank, record.trace]
        tell(command=command.kind, seconds=time.perf_counter() - begun, failure=failure)
        return failure is None

    load = LoadSettings(
        ranks=ranks,
        kept_logits_mib=0,
        kept_kv_mib=0,
    )
    patience = float(os.environ.get("TESTED_PATIENCE", "60"))
    ring.PATIENCE = max(20.0, patience)  # a rank imports MLX first
    loaded = do(protocol.Load(load))
    ring.PATIENCE = patience
    path: list[Command] = [
        protocol.Prefill("Once upon a time, there was a little girl", chat=False, echo=False),
    ]
    path += [protocol.TakeStep() for _ in range(5)]
    path += [protocol.MoveTo(8), protocol.MoveTo(12)]
    all(do(command) for command in path if loaded)
    if os.environ.get("TESTED_FAULT", "").startswith("wait"):
        tell(command="waiting", seconds=0, failure=None)
        time.sleep(1000)
    again = [protocol.TakeStep(), protocol.Load(load), protocol.Load(LoadSettings()), protocol.Verify()]
    if os.environ.get("TESTED_AGAIN"):
        for command in again:
            do(command)
    begun = time.perf_counter()
    closed = engine.close(5.0)
    tell(command="close", seconds=time.perf_counter() - begun, failure=None if closed else ["not closed"])


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)
