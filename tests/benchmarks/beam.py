"""What a step of eight beams costs beside eight single steps: pocket, large vocabularies, 103 million parameters.

    python -m tests.benchmarks.beam

Prints milliseconds (medians) and their ratio; that of the large model last, from files in bfloat16, as models are
published. With a fast BLAS on Linux both are computed in float32. On MLX's own, float32 gains next to nothing: eight
rows take it eight times as long as one.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import mlx.core as mx

from engine.beam_settings import BeamSettings
from engine.decoding.beam import search
from engine.model import synthetic
from engine.model.load import load
from engine.protocol import BeamStep
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.benchmarks import vocabularies
from tests.engine.sessions import begun

WIDTH = 8
ROUNDS = 3
STEPS = 12


def ratio(name: str, model: str) -> float:
    """Measure one model and print a line; beams and single steps take turns."""
    session = begun(load(LoadSettings(model=model)), list(range(5, 69)), Settings(min_tokens=1000))
    start, beams, single = session.node, [], []
    for _ in range(ROUNDS):
        beams += of_beams(session)
        single += [session.step().ms.total for _ in range(STEPS)]
        session.move(start)
    step, eight = statistics.median(beams), WIDTH * statistics.median(single)
    print(f"{name:15} step of {WIDTH} beams {step:7.1f} ms   {WIDTH} single steps {eight:7.1f} ms", end="")
    print(f"   ratio {step / eight:.2f}", flush=True)
    return step / eight


def of_beams(session: Session) -> list[float]:
    """Times of the steps that ran eight sequences; a ninth, where greedy decoding is no beam, is taken off pro rata."""
    found = search(session, BeamSettings(width=WIDTH, max_tokens=STEPS + 1))
    steps = [record for record in found if isinstance(record, BeamStep)]
    return [step.ms * WIDTH / step.rows for step in steps if step.rows >= WIDTH][1:]


def main() -> None:
    """Measure and print."""
    for name, model in vocabularies.with_pocket():
        ratio(name, model)
    with tempfile.TemporaryDirectory() as directory:
        for dtype, name in ((mx.float32, "float32"), (mx.bfloat16, "bfloat16")):
            large = synthetic.write(Path(directory) / name, synthetic.LLAMA_100M, dtype=dtype)
            found = ratio(f"103 M {name}", str(large))
    print(f"ratio {found:.2f} (goal: 0.35 or less)")


if __name__ == "__main__":
    main()
