"""What multiplies a model's matrices: the bundled model with each BLAS, and 0.6 B in 4 bits packed and unpacked.

    python -m tests.benchmarks.matrices [--count ROUNDS]

The first takes the median of single steps with all readings, a prompt's prefill, and a look-ahead, whose forwards run
five rows. Of the second a step and a prefill are timed by the processor, of all threads.
"""

from __future__ import annotations

import statistics
import time

from engine.decoding.lookahead import lines_ahead
from engine.model.load import Loaded, load
from engine.patches import blas
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.benchmarks import run
from tests.benchmarks.vocabularies import Asked, Figures, by_command
from tests.engine.sessions import begun

PROMPT = 256
CANDIDATES, TOKENS = 5, 8
"""Of the look-ahead: its forwards run five rows at once."""
STEPS = 50
"""Single steps, whose median is a figure."""


KINDS = {"packed": "file", "unpacked": "dequantized"}


def ids_of(loaded: Loaded) -> list[int]:
    """Tokens of a prompt."""
    text = loaded.tokens.encode(run.PROMPT + " ")
    return (text * (PROMPT // len(text) + 1))[:PROMPT]


def ways_of(loaded: Loaded) -> dict[str, tuple[str, str]]:
    """By name, the dtype and the BLAS of each way to multiply the model's matrices.

    Raises:
        ValueError: There is no BLAS but MLX's own.
    """
    fast = blas.install()
    if not fast.name:
        raise ValueError("there is no fast BLAS here")
    held = loaded.facts.stored or loaded.facts.dtype
    return {
        f"{held}, bundled BLAS": ("file", "bundled"),
        "float32, bundled BLAS": ("float32", "bundled"),
        f"float32, {fast.name}": ("float32", "auto"),
    }


def measured(loaded: Loaded) -> dict[str, float]:
    """The figures of one way, which is installed."""
    session = Session(loaded, Settings(max_tokens=10**9))
    *_, prefilled = session.prefill("", ids_of(loaded), echo=False)
    steps = [session.step() for _ in range(STEPS)]
    ids = [candidate.id for candidate in steps[-1].choice.candidates[:CANDIDATES]]
    *_, ahead = lines_ahead(session, steps[-1].parent, ids, TOKENS)
    return {
        "a step": statistics.median(step.ms.total for step in steps),
        f"prefill of {PROMPT}": prefilled.prompt_tps,  # type: ignore[union-attr]
        f"look-ahead {CANDIDATES} x {TOKENS}": ahead.ms,
    }


def libraries(rounds: int) -> Figures:
    """Each way to multiply the bundled model's matrices, in turns; the first round isn't counted."""
    ways, found = ways_of(load(LoadSettings())), dict[tuple[int, str], list[float]]()
    models = {dtype: load(LoadSettings(dtype=dtype)) for dtype, _ in ways.values()}
    for turn in range(rounds + 1):
        for place, (dtype, library) in enumerate(ways.values()):
            blas.install(library)
            for what, value in measured(models[dtype]).items():
                found.setdefault((place, what), []).extend([value] * bool(turn))
    blas.install()
    figures: Figures = {}
    for (place, what), values in found.items():
        figures[f"way {place} {what}"] = middle = statistics.median(values)
        print(f"{[*ways][place]:32} {what:20} {middle:8.1f}")
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
