"""What a search of the vocabulary costs, by its size: from the kept logits of one step.

    python -m tests.benchmarks.vocabulary

Prints the milliseconds of the first search, which reads every token, and of those after it; the slowest last.
"""

from __future__ import annotations

import statistics
import time

from engine.logits.questions import Vocabulary, find
from engine.model.load import load
from engine.settings import LoadSettings, Settings
from tests.benchmarks import vocabularies
from tests.engine.sessions import begun

ROUNDS = 20
QUERIES = ("", "e", " the", "The", "zzzz", "␣to", "狐", "#77", "0x e7 8b")
SAMPLED = Settings(temp=0.8, top_p=0.95, min_p=0.02, top_k=50, repetition_penalty=1.1)


def measure(name: str, model: str) -> None:
    """Measure one model and print."""
    slowest, asked = 0.0, begun(load(LoadSettings(model=model)), list(range(5, 40)), SAMPLED, steps=1)
    vocabulary = Vocabulary(asked.tokens)
    since = time.perf_counter()
    find(asked, vocabulary, asked.node, " the", 100)
    print(f"{name:12} the first search     {(time.perf_counter() - since) * 1000:6.0f} ms", flush=True)
    for query in QUERIES:
        times = []
        for _ in range(ROUNDS):
            since = time.perf_counter()
            found = find(asked, vocabulary, asked.node, query, 100)
            times.append((time.perf_counter() - since) * 1000)
        middle = statistics.median(times)
        slowest = max(slowest, middle)
        spread = f"{middle:6.1f} ms   ({min(times):.1f} to {max(times):.1f})"
        print(f"{name:12} {query!r:12} {found.total:7,} found {spread}", flush=True)
    print(f"{name:12} slowest {slowest:.1f} ms", flush=True)


def main() -> None:
    """Measure and print."""
    for name, model in vocabularies.each():
        measure(name, model)


if __name__ == "__main__":
    main()
