"""What going back to a kept branch of 500 tokens costs, against decode steps on the same model, for each kind of cache.

    python -m tests.benchmarks.moves

The goal is less than two decode steps; the largest ratio is printed last.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from engine.session import Session
from engine.settings import Settings
from tests.zoo import Zoo

BRANCH = 500
KINDS = {
    "plain (pocket)": ("pocket", {}),
    "plain": ("llama", {}),
    "quantized 8 bits": ("llama", {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}),
    "rotating": ("phi3", {"max_kv_size": 256}),
    "sliding beside global": ("gemma3", {}),
    "recurrent": ("mamba2", {}),
    "hybrid": ("qwen3-next", {}),
}


def measure(session: Session) -> tuple[float, float]:
    """Median milliseconds of a move back to a branch that was left, and of a step."""
    list(session.prefill("", [5, 6, 7, 8], echo=False))
    fork = session.node
    steps = [session.step().ms.total for _ in range(BRANCH)]
    tip, moves = session.node, []
    for turn in range(7):
        session.move(fork)
        session.choose(300 + turn)
        moved = session.move(tip)
        assert (moved.restored, moved.recomputed) == (BRANCH, 0), moved
        moves.append(moved.ms)
    return statistics.median(moves), statistics.median(steps[-100:])


def main() -> None:
    """Measure and print."""
    largest = 0.0
    with tempfile.TemporaryDirectory() as directory:
        zoo = Zoo(Path(directory))
        for kind, (name, options) in KINDS.items():
            loaded = zoo.load(name, **options)
            facts = replace(loaded.facts, context_window=None)
            move_ms, step_ms = measure(Session(replace(loaded, facts=facts), Settings(candidates=20)))
            largest = max(largest, move_ms / step_ms)
            told = f"back to {BRANCH} tokens {move_ms:6.2f} ms   a step {step_ms:6.2f} ms"
            print(f"{kind:24} {told}   {move_ms / step_ms:.2f}")
    print(f"largest ratio {largest:.2f}")


if __name__ == "__main__":
    main()
