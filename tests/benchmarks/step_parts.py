"""What the next millisecond of a step is made of: the parts of single steps in the engine, and of steps on the screen.

    python -m tests.benchmarks.step_parts [--count STEPS]

Each part is timed without the parts inside it, by wrapping its function; an empty wrapper's own time is printed,
and was not taken off. The table has the mean of all steps. On the screen the engine's thread and the screen's share the
interpreter, so that a part may wait there for the other thread: those figures are of the wall clock.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import engine.session.session as session_module
from engine.cache.live import KV
from engine.model.forward import PipelinedForward, Runner
from engine.model.load import load
from engine.protocol import Prefill, Run
from engine.recording import Journal
from engine.session.node_records import NodeReader
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.main.screen import MainScreen
from inspector.recordings.recorder import Recorder
from inspector.session.client import EngineClient
from inspector.state.timeline import Timeline
from tests.benchmarks.vocabularies import MODELS, Asked, Figures, by_command

PROMPT = "Once upon a time, there was a little girl named Lily."
STEPS = 200
Part = tuple[Any, str, str]
"""An owner, its function, and what the table calls it."""

ENGINE: Sequence[Part] = (
    (Session, "step", "the rest of a single step"),
    (Runner, "forward", "evaluate the graph, copy the logits"),
    (Runner, "build_graph", "build the graph of the forward"),
    (PipelinedForward, "prepare", "go ahead of the sampler in a run"),
    (PipelinedForward, "collect", "wait for the forward of a run"),
    (PipelinedForward, "launch", "begin the forward of a run"),
    (KV, "undo_records", "what undoes the token"),
    (NodeReader, "sample", "log-softmax, sampler stages, draw"),
    (NodeReader, "position", "candidates, ranks, entropies"),
    (NodeReader, "step_record", "the step's record"),
    (Session, "kv_reading", "the KV cache's figures"),
    (session_module, "memory", "the memory's figures"),
)
SCREEN: Sequence[Part] = (
    (EngineClient, "receive", "the record's way to the parts of the screen"),
    (Timeline, "apply", "the timeline"),
    (Recorder, "receive", "the recorder"),
    (Journal, "write", "the session's file"),
    (MainScreen, "show", "draw the panels"),
    (MainScreen, "_compositor_refresh", "paint what changed"),
)


class Parts:
    """Times functions, each without those inside it, in every thread."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = defaultdict(float)
        self._open = threading.local()

    def timed(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is timed under a label."""

        def call(*args: Any, **kwargs: Any) -> Any:
            stack: list[float] = self._open.__dict__.setdefault("stack", [])
            stack.append(0.0)
            begun = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = (time.perf_counter() - begun) * 1000
                self.ms[label] += took - stack.pop()
                if stack:
                    stack[-1] += took

        return call

    @contextmanager
    def installed(self, parts: Sequence[Part]) -> Iterator[None]:
        """Time these functions in this block."""
        originals = [(owner, name, getattr(owner, name)) for owner, name, _ in parts if hasattr(owner, name)]
        for owner, name, label in parts:
            if hasattr(owner, name):
                setattr(owner, name, self.timed(label, getattr(owner, name)))
        try:
            yield
        finally:
            for owner, name, original in originals:
                setattr(owner, name, original)


def single_steps(model: str, steps: int) -> tuple[Parts, float]:
    """Single steps without a screen; returns the parts, and the milliseconds of all steps."""
    session = Session(load(LoadSettings(model=model)), Settings(temp=0.8, top_p=0.95, candidates=20))
    for _ in session.prefill(PROMPT, session.encode(PROMPT)):
        pass
    for _ in range(10):
        session.step()
    parts = Parts()
    with parts.installed(ENGINE):
        begun = time.perf_counter()
        for _ in range(steps):
            session.step()
    return parts, (time.perf_counter() - begun) * 1000


async def on_the_screen(model: str, steps: int) -> tuple[Parts, float]:
    """A run on the screen; returns the parts, and the milliseconds of all steps."""
    settings = Settings(temp=0.8, top_p=0.95, max_tokens=steps + 20)
    app = InspectorApp(LoadSettings(model=model), settings, Prefill(PROMPT, False), begins=Preferences())
    parts = Parts()
    async with app.run_test(size=(120, 40)):
        client = app.controller.client
        while app.controller.timeline.prompts.prefilled is None or client.outstanding:
            await asyncio.sleep(0.02)
        with parts.installed((*ENGINE, *SCREEN)):
            begun = time.perf_counter()
            client.do(Run())
            while client.outstanding and len(app.controller.timeline.steps) < steps:
                await asyncio.sleep(0.005)
            ms = (time.perf_counter() - begun) * 1000
            taken = len(app.controller.timeline.steps)
            client.stop()
            while client.outstanding:
                await asyncio.sleep(0.005)
    return parts, ms * steps / max(1, taken)


def table(title: str, steps: int, parts: Parts, ms: float) -> None:
    """Print the parts of a step, the largest first."""
    print(f"\n{title}: {ms / steps:.3f} ms a step")
    for label, spent in sorted(parts.ms.items(), key=lambda each: -each[1]):
        print(f"  {label:<46}{spent / steps:9.3f} ms {spent / ms:7.1%}")
    print(f"  {'what no part has':<46}{(ms - sum(parts.ms.values())) / steps:9.3f} ms")


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    steps = asked.times(STEPS)
    for name, model in asked.each(*MODELS):
        parts, ms = single_steps(model, steps)
        table(f"{name}: single steps in the engine", steps, parts, ms)
        figures[f"{name} ms"] = ms / steps
        parts, ms = asyncio.run(on_the_screen(model, steps))
        table(f"{name}: a run on the screen", steps, parts, ms)
        figures[f"{name} screen ms"] = ms / steps
    empty = Parts()
    nothing = empty.timed("", lambda: None)
    begun = time.perf_counter()
    for _ in range(10_000):
        nothing()
    print(f"\nan empty wrapper: {(time.perf_counter() - begun) * 100:.2f} us")
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
