"""A run and single steps against mlx_lm's own loop, by model: `engine.measuring.bench`.

python -m tests.benchmarks.run [--count ROUNDS]
"""

from __future__ import annotations

from engine.measuring import bench
from engine.model.load import load
from engine.settings import LoadSettings
from tests.benchmarks.vocabularies import LARGE, VOCABULARIES, Asked, Figures, by_command

STEPS, CANDIDATES = 50, 20
OF_BENCH = ("bench-100m", "bench-152k", "bench-256k")


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each("pocket", *OF_BENCH, *VOCABULARIES, *LARGE):
        rounds, steps = (3, 10) if name in LARGE else (7, STEPS)  # a step of these takes a third of a second
        found = bench.report(load(LoadSettings(model=model)), asked.times(rounds), steps, CANDIDATES)
        print(
            f"{name:12} ratio of a run {found.of_run:.3f}, sampled {found.of_sampled:.3f}, "
            f"of single steps {found.of_steps:.3f}"
        )
        figures |= {
            f"{name} run": found.of_run, f"{name} sampled": found.of_sampled, f"{name} single": found.of_steps,
            f"{name} step ms": found.step_ms,
            f"{name} first ms": found.first_ms, f"{name} first with ms": found.first_with_ms,
        }  # fmt: skip
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
