"""What a step costs the stepping thread itself, without the forward that MLX's thread computes: by size of vocabulary.

    python -m tests.benchmarks.own_time [--count STEPS]

Milliseconds of the thread's CPU time a step of a run, median and mean, greedy and with temperature 0.8 and top-p 0.95.
Building and starting the graph of the next forward is in it: 1.2 ms of two layers, whatever the vocabulary.
"""

from __future__ import annotations

import statistics
import time

from engine.model.load import Loaded, load
from engine.settings import LoadSettings, Settings
from tests.benchmarks.run import PROMPT, endless_run
from tests.benchmarks.vocabularies import MODELS, Asked, Figures, by_command
from tests.engine.sessions import begun

UNCOUNTED = 8
SETTINGS = {
    "greedy": Settings(candidates=20, max_tokens=10**9),
    "sampled": Settings(temp=0.8, top_p=0.95, candidates=20, max_tokens=10**9),
}


def own_ms(loaded: Loaded, settings: Settings, steps: int) -> list[float]:
    """Milliseconds of this thread in each step of a run."""
    taken, times = endless_run(begun(loaded, PROMPT, settings)), []
    for _ in range(UNCOUNTED):
        next(taken)
    for _ in range(steps):
        since = time.thread_time()
        next(taken)
        times.append((time.thread_time() - since) * 1000)
    return times


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each(*MODELS):
        loaded = load(LoadSettings(model=model))
        for kind, settings in SETTINGS.items():
            times = own_ms(loaded, settings, asked.times(200))
            figures[f"{name} {kind} ms"] = middle = statistics.median(times)
            print(f"{name:12} {kind:8} {middle:6.2f} ms a step, mean {statistics.mean(times):6.2f}")
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
