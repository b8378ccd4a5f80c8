"""What a step is told of garbage collection and of the screen being drawn beside it."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from engine.decoding.run import run
from engine.session.session import Session
from engine.settings import Settings
from engine.task import never
from engine.timing import drawing, stall_times
from tests.zoo import Zoo


def test_collections_are_timed():
    before = stall_times()
    gc.collect()
    assert stall_times().since(before).collecting > 0


def test_drawing_is_timed_while_it_goes_on_and_once_however_deep():
    before = stall_times()
    with drawing, drawing:
        time.sleep(0.01)
        inside = stall_times().since(before).drawing
        time.sleep(0.01)
    after = stall_times().since(before).drawing
    assert 10 <= inside < after
    assert after >= 20
    time.sleep(0.01)
    assert stall_times().since(before).drawing == after


def test_a_collection_while_the_screen_is_drawn_is_told_once():
    knots = [[] for _ in range(200_000)]
    for knot in knots:
        knot.append(knot)
    del knots, knot
    before, begun = stall_times(), time.perf_counter()
    with drawing:
        gc.collect()
    told, took = stall_times().since(before), (time.perf_counter() - begun) * 1000
    assert told.collecting > 0.5 * took
    assert told.collecting + told.drawing <= took
    before = stall_times()
    gc.collect()
    assert stall_times().since(before).drawing == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("steps", ["single", "back to back"])
def test_a_step_tells_that_the_screen_was_drawn_beside_it(zoo: Zoo, steps: str) -> None:
    session = Session(zoo.load("llama"), Settings(max_tokens=8))
    list(session.prefill("", [1, 2, 3], echo=False))
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
