"""Times of steps, and what delays them."""

from __future__ import annotations

import gc
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from queue import SimpleQueue

import pytest

from engine import protocol
from engine.protocol import Command
from engine.session.run import run
from engine.settings import LoadSettings, Settings
from engine.task import never
from engine.thread import EngineThread
from engine.timing import drawing, stall_times
from tests.engine.sessions import begun
from tests.zoo import Zoo

TEXT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. " * 4
TRIES = 60
"""Another process may take the processor between the two clocks: at a load of ten it mostly does."""


class Stopwatch:
    """An engine, and the time that each command takes from its sending to its end."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[protocol.Received] = SimpleQueue()
        self.engine = EngineThread(self._inbox.put)
        self.engine.start()
        self._sent = 0

    def __call__(self, command: Command) -> tuple[list[protocol.Record], float]:
        """The records that answer a command, and its milliseconds."""
        found: list[protocol.Record] = []
        begun = time.perf_counter()
        self._sent += 1
        self.engine.send(protocol.Sent(command, self._sent))
        while not isinstance(record := self._inbox.get(timeout=60).record, protocol.Ended):
            found.append(record)
        return found, (time.perf_counter() - begun) * 1000


@pytest.fixture(scope="module")
def stopwatch() -> Iterator[Stopwatch]:
    """The pocket model, ready."""
    made = Stopwatch()
    made(protocol.Load(LoadSettings()))
    made(protocol.Configure(Settings(min_tokens=10**6, candidates=10)))
    made(protocol.Prefill(TEXT, chat=False, echo=False))
    yield made
    made.engine.close()


def within(share: float, measure: Callable[[], tuple[float, float]]) -> None:
    """Measure until both clocks agree within a share."""
    for _ in range(TRIES):
        told, outside = measure()
        if abs(told - outside) <= share * outside:
            return
    assert told == pytest.approx(outside, rel=share)


def test_ttft(stopwatch: Stopwatch) -> None:
    another = count().__next__  # the KV of a prompt that was read before is kept

    def measure() -> tuple[float, float]:
        found, outside = stopwatch(protocol.Prefill(f"{another()} {TEXT}", chat=False, echo=False))
        return next(each.ttft_ms for each in found if isinstance(each, protocol.Prefilled)), outside

    within(0.1, measure)  # of 30 ms, two switches of threads take a part that a run does not notice


def test_tpot_of_single_steps(stopwatch: Stopwatch) -> None:
    def measure() -> tuple[float, float]:
        told, outside = [], []
        for _ in range(12):
            found, took = stopwatch(protocol.TakeStep())
            told.append(next(each.ms.total for each in found if isinstance(each, protocol.Step)))
            outside.append(took)
        return statistics.median(told), statistics.median(outside)

    within(0.2, measure)  # machines are busy


@pytest.mark.parametrize(
    "settings",
    [Settings(min_tokens=10**6, max_tokens=20), Settings(max_tokens=20)],
    ids=["not guessed", "guessed"],
)
def test_tpot_of_a_run(stopwatch: Stopwatch, settings: Settings) -> None:
    """A pipelined step's time goes from token known to token known, whenever its forward began: the last readings
    stand outside of it."""
    stopwatch(protocol.Configure(settings))

    def measure() -> tuple[float, float]:
        stopwatch(protocol.Prefill("Once upon a time", chat=False, echo=False))
        found, outside = stopwatch(protocol.Run())
        steps = [each.ms.total for each in found if isinstance(each, protocol.Step)]
        assert len(steps) == 20
        return sum(steps) / 20, outside / 20

    within(0.05, measure)


# ---- stalls ------------------------------------------------------------------------------------


def test_collections_are_timed():
    before = stall_times()
    gc.collect()
    assert stall_times(before).collecting > 0


def test_drawing_is_timed_while_it_goes_on_and_once_however_deep():
    before = stall_times()
    with drawing, drawing:
        time.sleep(0.01)
        inside = stall_times(before).drawing
        time.sleep(0.01)
    after = stall_times(before).drawing
    assert 10 <= inside < after
    assert after >= 20
    time.sleep(0.01)
    assert stall_times(before).drawing == after


def test_a_collection_while_the_screen_is_drawn_is_told_once():
    knots = [[] for _ in range(200_000)]
    for knot in knots:
        knot.append(knot)
    del knots, knot
    before, begun = stall_times(), time.perf_counter()
    with drawing:
        gc.collect()
    told, took = stall_times(before), (time.perf_counter() - begun) * 1000
    assert told.collecting > 0.5 * took
    assert told.collecting + told.drawing <= 1.01 * took  # the clocks are read one after the other
    before = stall_times()
    gc.collect()
    assert stall_times(before).drawing == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("steps", ["single", "back to back"])
def test_a_step_tells_that_the_screen_was_drawn_beside_it(zoo: Zoo, steps: str) -> None:
    session = begun(zoo.load("llama"), [1, 2, 3], Settings(max_tokens=8))
    forward = (
        (lambda: [session.step() for _ in range(4)])
        if steps == "single"
        else lambda: list(run(session, never))
    )
    assert [step.ms.drawing for step in forward()[:4]] == [0.0] * 4
    session.move(session.tree.nodes(session.node)[2])
    told, drawn = threading.Event(), threading.Event()

    def draw() -> None:
        with drawing:
            drawn.set()
            told.wait()

    thread = threading.Thread(target=draw)
    thread.start()
    drawn.wait()
    taken = forward()[:4]
    told.set()
    thread.join()
    assert all(step.ms.drawing >= 0.9 * step.ms.total for step in taken)
