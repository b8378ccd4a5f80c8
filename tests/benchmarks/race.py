"""The same tokens with a KV cache and without one, on the bundled model in its file's type with MLX's own BLAS.

    python -m tests.benchmarks.race [--count TOKENS]

That is `inspector show race --from 16 --to 480 --seed 1 --dtype file --blas bundled`; it takes some eight minutes.
Tokens are those after the last step.
"""

from __future__ import annotations

from engine.measuring.caches import race
from engine.model.load import load
from engine.protocol import Race, RaceStep
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.benchmarks.key_to_paint import PROMPT
from tests.benchmarks.vocabularies import Asked, Figures, by_command
from tests.engine.measuring.rig import measure
from tests.engine.sessions import begun

FIRST, LAST = 16, 480


def main(asked: Asked) -> Figures:
    """Measure and print."""
    loaded = load(LoadSettings(dtype="file", blas="bundled"))
    session: Session = begun(loaded, PROMPT, Settings(seed=1))
    steps: list[RaceStep] = []
    for record in measure(race, loaded, session, Race(FIRST, asked.times(LAST))):
        if isinstance(record, RaceStep):
            steps.append(record)
            if record.tokens % 32 == 0:
                print(
                    f"{record.tokens:4} tokens: {record.cached_ms:6.1f} ms, without {record.uncached_ms:7.1f} ms"
                )
    first, last = steps[0], steps[-1]
    print(f"all: {last.cached_total_ms / 1000:.2f} s, without {last.uncached_total_ms / 1000:.0f} s")
    return {
        "cached first ms": first.cached_ms, "cached last ms": last.cached_ms,
        "uncached first ms": first.uncached_ms, "uncached last ms": last.uncached_ms,
        "cached s": last.cached_total_ms / 1000, "uncached s": last.uncached_total_ms / 1000,
        "steps": len(steps), "differing": sum(not step.equal for step in steps),
        "difference": max(step.largest_difference for step in steps),
    }  # fmt: skip


if __name__ == "__main__":
    by_command(main, __doc__)
