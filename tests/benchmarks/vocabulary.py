"""What a search of the vocabulary costs, by its size: from the kept logits of one step.

    python -m tests.benchmarks.vocabulary [--count ROUNDS]

Prints the milliseconds of the first search, which reads every token, and of those after it; the slowest last.
"""

from __future__ import annotations

import statistics
import time

from engine.logits.questions import Vocabulary, find
from engine.model.load import load
from engine.settings import LoadSettings, Settings
from tests.benchmarks.vocabularies import VOCABULARIES, Asked, Figures, by_command
from tests.engine.sessions import begun

ROUNDS = 20
QUERIES = ("", "e", " the", "The", "zzzz", "␣to", "狐", "#77", "0x e7 8b")
SAMPLED = Settings(temp=0.8, top_p=0.95, min_p=0.02, top_k=50, repetition_penalty=1.1)


def measure(name: str, model: str, rounds: int) -> float:
    """Measure one model and print; returns the slowest."""
    slowest, asked = 0.0, begun(load(LoadSettings(model=model)), list(range(5, 40)), SAMPLED, steps=1)
    vocabulary = Vocabulary(asked.tokens)
    since = time.perf_counter()
    find(asked, vocabulary, asked.node, " the", 100)
    print(f"{name:12} the first search     {(time.perf_counter() - since) * 1000:6.0f} ms")
    for query in QUERIES:
        times = []
        for _ in range(rounds):
            since = time.perf_counter()
            found = find(asked, vocabulary, asked.node, query, 100)
            times.append((time.perf_counter() - since) * 1000)
        middle = statistics.median(times)
        slowest = max(slowest, middle)
        spread = f"{middle:6.1f} ms   ({min(times):.1f} to {max(times):.1f})"
        print(f"{name:12} {query!r:12} {found.total:7,} found {spread}")
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
