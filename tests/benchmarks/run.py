"""A run and single steps against mlx_lm's own loop, by model: `engine.measuring.bench` on each size of vocabulary.

python -m tests.benchmarks.run [ROUNDS]
"""

from __future__ import annotations

import sys

from engine.measuring.bench import report
from engine.model.load import load
from engine.settings import LoadSettings
from tests.benchmarks import vocabularies

STEPS, CANDIDATES = 50, 20


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    for name, model in vocabularies.with_pocket():
        of_run, of_steps = report(load(LoadSettings(model=model)), rounds, STEPS, CANDIDATES)
        print(f"{name:12} ratio of a run {of_run:.3f}, of single steps {of_steps:.3f}", flush=True)


if __name__ == "__main__":
    main()
