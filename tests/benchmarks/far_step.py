"""What a step costs more with the engine behind a socket than beside the caller.

    python -m tests.benchmarks.far_step [--count STEPS]

The engines take turns step by step in one run, so that a busy machine slows all of them: a model in this process, in a
thread behind a socket, and in a process of its own.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from statistics import median

from engine import protocol, wire
from engine.protocol import Command, Ended, Record, Step
from engine.remote.client import RemoteEngine
from engine.remote.link import ProcessLink
from engine.remote.server import EngineServer
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from tests.benchmarks.vocabularies import SMALL, Asked, Figures, by_command

STEPS, UNCOUNTED, CODED = 280, 20, 1000


class Beside:
    """A link to a server in this process."""

    where, token, far, returns = "this process", "", False, False

    def __init__(self) -> None:
        self.server = EngineServer("", "benchmark")
        self.server.start()

    def open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        threading.Thread(target=self.server.meet, args=(theirs,), daemon=True).start()
        return ours

    def ending(self, why: str) -> str:
        return why

    def close(self, timeout: float) -> bool:
        return self.server.close(timeout)


class Timed:
    """An engine that is stepped."""

    def __init__(
        self, model: str, make: Callable[[Callable[[Record], None]], EngineThread | RemoteEngine]
    ) -> None:
        self.queue: SimpleQueue[Record] = SimpleQueue()
        self.engine = make(self.queue.put)
        self.engine.start()
        self.took: list[float] = []
        for given in (
            protocol.Load(LoadSettings(model=model)),
            protocol.Configure(Settings(temp=0.8, seed=3, max_tokens=10**6, min_tokens=10**6)),
            protocol.Prefill("Once upon a time", chat=False),
        ):
            self.do(given)

    def do(self, command: Command) -> list[Record]:
        self.engine.send(command)
        found: list[Record] = []
        while not (found and isinstance(ended := found[-1], Ended) and ended.request == command.id):
            found.append(self.queue.get())
        return found

    def step(self) -> Step:
        began = time.perf_counter()
        found = self.do(protocol.TakeStep())
        self.took.append(time.perf_counter() - began)
        return next(record for record in found if isinstance(record, Step))


def measure(label: str, model: str, steps: int) -> Figures:
    """Measure one model and print."""
    engines = {
        "in this process": Timed(model, EngineThread),
        "behind a socket": Timed(model, lambda emit: RemoteEngine(emit, Beside(), "benchmark")),
        "in its own process": Timed(
            model, lambda emit: RemoteEngine(emit, ProcessLink("benchmark"), "benchmark")
        ),
    }
    for _ in range(steps + UNCOUNTED):
        for timed in engines.values():
            step = timed.step()
    plain = engines["in this process"].took[UNCOUNTED:]
    figures: Figures = {f"{label} ms": median(plain) * 1e3}
    for name, timed in engines.items():
        took = timed.took[UNCOUNTED:]
        more = median(one - other for one, other in zip(took, plain, strict=True))
        figures[f"{label} {name}"] = ratio = 1 + more / median(plain)
        times = f"{median(took) * 1e3:.2f} ms, {more * 1e6:+.0f} us by pairs, x{ratio:.3f}"
        print(f"{label}: a step {name}: {times}")
    data = wire.encode(step)
    for name, work in (("to bytes", lambda: wire.encode(step)), ("and back", lambda: wire.decode(data))):
        began = time.process_time()
        for _ in range(CODED):
            work()
        micros = (time.process_time() - began) / CODED * 1e6
        print(f"{label}: a record of {len(data):,} bytes {name}: {micros:.0f} us of CPU")
    for timed in engines.values():
        timed.engine.close(10)
    return figures


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for label, model in asked.each(*SMALL):
        figures |= measure(label, model, asked.times(STEPS))
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
