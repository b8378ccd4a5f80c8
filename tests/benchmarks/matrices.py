"""What multiplies a model's matrices: the bundled model with each BLAS, and 0.6 B in 4 bits packed and unpacked.

    python -m tests.benchmarks.matrices [--count ROUNDS]

The first is `inspector bench --sweeps blas`. Of the second a step and a prefill are timed by the processor,
of all threads.
"""

from __future__ import annotations

import statistics
import time

from engine.measuring import bench
from engine.measuring.sweeps import PROMPT, Matrices
from engine.model.load import Loaded, load
from engine.settings import LoadSettings
from engine.task import never
from tests.benchmarks.vocabularies import Asked, Figures, by_command
from tests.engine.sessions import begun

STEPS = 50
KINDS = {"packed": "file", "unpacked": "dequantized"}


def ids_of(loaded: Loaded) -> list[int]:
    """Tokens of a prompt."""
    text = loaded.tokens.encode(bench.PROMPT + " ")
    return (text * (PROMPT // len(text) + 1))[:PROMPT]


def libraries(rounds: int) -> Figures:
    """Each way to multiply the bundled model's matrices, in turns; the first round isn't counted."""
    loaded = load(LoadSettings())
    ways = Matrices(loaded, ids_of(loaded), STEPS, never)
    names, found = ways.names(), dict[tuple[int, str], list[float]]()
    for turn in range(rounds + 1):
        for place in range(len(names)):
            for (what, _), value in ways.measure(place).items():
                found.setdefault((place, what), []).extend([value] * bool(turn))
    figures: Figures = {}
    for (place, what), values in found.items():
        figures[f"way {place} {what}"] = middle = statistics.median(values)
        print(f"{names[place]:32} {what:20} {middle:8.1f}")
    return figures


def packed(model: str, rounds: int) -> Figures:
    """A step and a prefill of quantized weights, by the processor."""
    figures: Figures = {}
    for kind, dtype in KINDS.items():
        loaded = load(LoadSettings(model=model, dtype=dtype))
        since = time.process_time()
        session = begun(loaded, ids_of(loaded))
        figures[f"{kind} prefill"] = PROMPT / (time.process_time() - since)
        times = []
        for _ in range(rounds + 1):
            since = time.process_time()
            session.step()
            times.append((time.process_time() - since) * 1000)
        figures[f"{kind} step"] = statistics.median(times[1:])
        print(
            f"0.6 B in 4 bits, {kind:8} a step {figures[f'{kind} step']:7.0f} ms, "
            f"prefill {figures[f'{kind} prefill']:6.1f} tokens/s of the processor"
        )
    return figures


def main(asked: Asked) -> Figures:
    """Measure and print."""
    rounds = asked.times(5)
    return libraries(rounds) | packed(asked.path("600m-4bit"), rounds)


if __name__ == "__main__":
    by_command(main, __doc__)
