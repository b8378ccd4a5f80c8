"""What an answer costs by the size of the vocabulary: one step under other settings, from kept logits.

    python -m tests.benchmarks.what_if [--count ROUNDS]

Prints the milliseconds of `explain` (stages, columns, candidates, the draw) for a few settings; the slowest last.
"""

from __future__ import annotations

import statistics
import time

from msgspec.structs import replace

from engine.logits.questions import explain
from engine.model.load import load
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.benchmarks.vocabularies import VOCABULARIES, Asked, Figures, by_command
from tests.engine.sessions import begun

ROUNDS = 30
TRIED = {
    "greedy": Settings(),
    "temperature 1": Settings(temp=1.0),
    "top-p 0.9": Settings(temp=0.8, top_p=0.9),
    "top-k 40": Settings(temp=0.8, top_k=40),
    "all stages": Settings(
        temp=0.8, top_p=0.95, min_p=0.02, top_k=50, xtc_probability=1.0, repetition_penalty=1.1,
        presence_penalty=0.2, frequency_penalty=0.1, logit_bias=((5, -3.0),),
    ),
    "all stages, llama.cpp's order": Settings(
        temp=0.8, top_p=0.95, min_p=0.02, top_k=50, xtc_probability=1.0, repetition_penalty=1.1,
        sampler_order="llama.cpp",
    ),
}  # fmt: skip


def session(model: str) -> Session:
    """A session that took a few steps."""
    return begun(load(LoadSettings(model=model)), list(range(5, 40)), steps=3)


def milliseconds(of: Session, settings: Settings, rounds: int) -> list[float]:
    """Times of some answers, the first not counted."""
    times = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        explain(of, of.node, replace(settings, seed=len(times)))
        times.append((time.perf_counter() - begun) * 1000)
    return times[1:]


def measure(name: str, model: str, rounds: int) -> float:
    """Measure one model and print; returns the slowest."""
    slowest, asked = 0.0, session(model)
    for tried, settings in TRIED.items():
        times = sorted(milliseconds(asked, settings, rounds))
        middle = statistics.median(times)
        slowest = max(slowest, middle)
        print(f"{name:12} {tried:32} {middle:6.1f} ms   ({times[0]:.1f} to {times[-1]:.1f})")
    print(f"{name:12} slowest {slowest:.1f} ms")
    return slowest


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each(*VOCABULARIES):
        figures[name] = measure(name, model, asked.times(ROUNDS))
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
