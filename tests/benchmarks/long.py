"""A session of 100,000 steps on the screen, recorded as it goes: what its last steps cost beside its first.

    python -m tests.benchmarks.long [STEPS [MODEL [DIRECTORY]]]

MODEL: `ring` (its cache holds 64 tokens), `mamba2` (a state that doesn't grow), or `llama`, whose forward grows
with the text. The session stays in DIRECTORY, for `long_keys`. A line every 1,000 steps of what one of them took:
milliseconds of the engine's thread apart from the forward, and of its part of the forward: building and starting the
graph, and copying the logits; of the screen's thread; of the journal's; KB in memory beside what KV takes, and bytes in
the file. The bars: the last 1,000 steps at 0.95 of the rate of the first 1,000 in the engine's thread apart from the
forward, and 5 KB a step.

A session takes minutes, in which the machine itself becomes faster or slower by a third: each line has what a loop of
additions took meanwhile, and the rates are compared by that, too. The last steps are also compared with the first ones
behind `FULL` steps: from there on kept rows and undo records go as new ones come, whose memory has left the processor's
cache, and the engine's part of the forward takes up to a fifth longer, in a session of any length.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.model.forward import PipelinedForward, Runner
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from tests.benchmarks.memory import PROMPT, resident
from tests.zoo import CONFIGS

EACH = 1000
WARM = 1000
"""Steps that are not counted: the model's first ones, and the widths of the panels settle."""
FULL = 5000
"""Steps behind which no store of the session grows that has a bound: rows of 16 KB and undo records, 4,096 of each."""
SETTINGS = Settings(temp=1.0, max_tokens=10**9, candidates=20)
FORWARD = (
    (Runner, "forward"),
    (PipelinedForward, "prepare"),
    (PipelinedForward, "launch"),
    (PipelinedForward, "collect"),
)
MODELS = {
    "ring": ("qwen2", LoadSettings(max_kv_size=64)),  # a llama of mlx_lm takes no ring
    "mamba2": ("mamba2", LoadSettings()),
    "llama": ("llama", LoadSettings()),
}


class Reading(Struct, frozen=True):
    """What a session had taken by a step."""

    steps: int
    engine: float
    """Seconds of the engine's thread apart from the forward."""
    forward: float
    """Those of its part of the forward."""
    screen: float
    journal: float
    wall: float
    held: float
    """KB in memory, without the KV cache and the KV of branches."""
    written: int
    """Bytes in the file."""
    loop: float
    """Seconds of a thread that `loop_seconds` took since the reading before, the median."""


def loop_seconds() -> float:
    """Seconds of this thread that a loop takes which needs no memory: how fast the machine is."""
    since, total = time.thread_time(), 0
    for number in range(2000):
        total += number
    return time.thread_time() - since


class ForwardClock:
    """Counts the seconds that a thread has in the forward: building it, starting it, and taking its logits."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count in the forwards of steps and runs."""
        with ExitStack() as stack:
            for owner, name in FORWARD:
                function = self._counted(getattr(owner, name))
                stack.enter_context(patch.object(owner, name, function))
            yield

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            since = time.thread_time()
            try:
                return function(*args)
            finally:
                self.seconds += time.thread_time() - since

        return counted


def clock(thread: Thread) -> float:
    """Seconds that a thread had of a processor."""
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def reading(app: InspectorApp, steps: int, forward: float, loop: float) -> Reading:
    """What the session has taken by now; called in the screen's thread. `forward` and `loop` as in `Reading`."""
    kv, journal = app.controller.timeline.kv, app.recorder.journal
    assert kv is not None
    assert journal is not None
    return Reading(
        steps,
        clock(app.engine._thread) - forward,  # type: ignore[attr-defined]
        forward,
        time.thread_time(),
        clock(journal._thread),
        time.perf_counter(),
        resident() - (kv.allocated_bytes + kv.kept_bytes) / 1024,
        journal.path.stat().st_size,
        loop,
    )


def told(before: Reading, after: Reading) -> str:
    """What each step between two readings took."""
    steps = after.steps - before.steps

    def each(name: str, scale: float = 1000) -> float:
        return float(getattr(after, name) - getattr(before, name)) / steps * scale

    return (
        f"{after.steps:8,} steps: engine {each('engine'):6.3f} ms a step, forward {each('forward'):6.3f}, "
        f"screen {each('screen'):6.3f}, journal {each('journal'):6.3f}, all {each('wall'):6.2f}; "
        f"{after.held / 1024:7.1f} MiB, {each('held', 1):6.2f} KB a step; "
        f"{each('written', 1):6,.0f} bytes a step in the file; a loop {after.loop * 1e6:4.0f} us"
    )


async def until_idle(app: InspectorApp) -> None:
    """Wait until the engine has done what it was asked."""
    client = app.controller.client
    while client.timeline.prompts.prefilled is None or client.outstanding:
        await asyncio.sleep(0.02)


async def measure(load: LoadSettings, steps: int, directory: Path, forward: ForwardClock) -> list[Reading]:
    """Run so many steps on the screen, and print as it goes."""
    app = InspectorApp(load, SETTINGS, protocol.Prefill(PROMPT, False), begins=Preferences(), save=directory)
    seen: list[Reading] = []
    loops: list[float] = []
    async with app.run_test(size=(120, 40)):
        await until_idle(app)
        client, timeline = app.controller.client, app.controller.timeline
        while not seen or seen[-1].steps < steps:
            if not client.outstanding:  # an end of sequence ended the run before
                client.do(protocol.Run())
            await asyncio.sleep(0.02)
            loops.append(loop_seconds())
            count = len(timeline.step_slots)
            if count >= (seen[-1].steps + EACH if seen else WARM):
                seen.append(reading(app, count, forward.seconds, statistics.median(loops)))
                loops.clear()
                if len(seen) > 1:
                    print(told(*seen[-2:]), flush=True)
        client.stop()
        await until_idle(app)
    return seen


def rates(seen: Sequence[Reading], place: int) -> float:
    """The rate of the last steps in the engine's thread, as a share of those between a reading and the next."""
    each: list[float] = [
        (after.engine - before.engine) / (after.steps - before.steps)
        for before, after in (seen[place : place + 2], seen[-2:])
    ]
    return each[0] / each[1]


def main(steps: str = "100000", name: str = "ring", directory: str = "") -> None:
    """Measure and print."""
    from engine.patches.imports import import_mlx_lm

    import_mlx_lm()
    from tests import synthetic

    config, load = MODELS[name]
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(directory or aside)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        model = str(synthetic.write(folder / name, CONFIGS[config]))
        forward, load = ForwardClock(), replace(load, model=model)
        with forward.watching():
            seen = asyncio.run(measure(load, int(steps), folder / "sessions", forward))
    full = next((place for place, each in enumerate(seen[:-2]) if each.steps >= FULL), 0)
    for words, place in (("first", 0), ("first behind full stores", full)):
        print(f"{words}: {told(*seen[place : place + 2])}")
        ratio, machine = rates(seen, place), seen[place + 1].loop / seen[-1].loop
        print(
            f"the last {EACH:,} at {ratio:.2f} of their rate in the engine's thread, and the loop at {machine:.2f}: "
            f"without the machine's own change at {ratio / machine:.2f}"
        )
    print(f"last: {told(*seen[-2:])}")
    print("all but the first", told(seen[min(len(seen) - 2, 10)], seen[-1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
