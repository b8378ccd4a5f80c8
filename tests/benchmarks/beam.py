"""What a step of eight beams costs beside eight single steps: pocket, large vocabularies, 103 million parameters.

    python -m tests.benchmarks.beam [--count ROUNDS]

Prints milliseconds (medians) and their ratio; that of the large model last, from files in bfloat16, as models are
published. With a fast BLAS on Linux both are computed in float32. On MLX's own, float32 gains next to nothing: eight
rows take it eight times as long as one.
"""

from __future__ import annotations

import statistics

from engine.decoding.beam import search
from engine.model.load import load
from engine.protocol import BeamStep
from engine.session.session import Session
from engine.settings import BeamSettings, LoadSettings, Settings
from tests.benchmarks.vocabularies import SMALL, Asked, Figures, by_command
from tests.engine.sessions import begun

WIDTH = 8
ROUNDS = 3
STEPS = 12


def ratio(name: str, model: str, rounds: int) -> float:
    """Measure one model and print a line; beams and single steps take turns."""
    session = begun(load(LoadSettings(model=model)), list(range(5, 69)), Settings(min_tokens=1000))
    start, beams, single = session.node, [], []
    for _ in range(rounds):
        beams += of_beams(session)
        single += [session.step().ms.total for _ in range(STEPS)]
        session.move(start)
    step, eight = statistics.median(beams), WIDTH * statistics.median(single)
    print(
        f"{name:18} step of {WIDTH} beams {step:7.1f} ms   {WIDTH} single steps {eight:7.1f} ms   "
        f"ratio {step / eight:.2f}"
    )
    return step / eight


def of_beams(session: Session) -> list[float]:
    """Times of the steps that ran eight sequences; a ninth, where greedy decoding is no beam, is taken off pro rata."""
    found = search(session, BeamSettings(width=WIDTH, max_tokens=STEPS + 1))
    steps = [record for record in found if isinstance(record, BeamStep)]
    return [step.ms * WIDTH / step.rows for step in steps if step.rows >= WIDTH][1:]


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each(*SMALL, "bench-100m-float32", "bench-100m"):
        figures[name] = ratio(name, model, asked.times(ROUNDS))
    print("goal for the last: 0.35 or less")
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
