"""What going back to a kept branch of 500 tokens costs, against decode steps on the same model, for each kind of cache.

    python -m tests.benchmarks.moves

The goal is less than two decode steps; the largest ratio is printed last.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from engine.session.session import Session
from engine.settings import Settings
from tests.zoo import Zoo

BRANCH = 500
KINDS = {
    "plain (pocket)": ("pocket", {}),
    "plain": ("llama", {}),
    "quantized 8 bits": ("llama", {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}),
    "quantized 4 bits": ("llama", {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0}),
    "rotating, not yet full": ("phi3", {"max_kv_size": 1024}),
    "rotating, wrapped": ("phi3", {"max_kv_size": 256}),
    "sliding beside global": ("gemma3", {}),
    "recurrent": ("mamba2", {}),
    "hybrid": ("qwen3-next", {}),
}


def measure(walked: Session, kept: bool = True) -> tuple[float, float, str]:
    """Median milliseconds of a move back to a branch that was left and of a step, and why it recomputed if it did."""
    list(walked.prefill("", [5, 6, 7, 8], echo=False))
    fork = walked.node
    steps = [walked.step().ms.total for _ in range(BRANCH)]
    tip, moves = walked.node, []
    for turn in range(7):
        walked.move(fork)
        walked.choose(300 + turn)
        moved = walked.move(tip)
        assert (moved.restored, moved.recomputed) == (BRANCH, 0) or not kept, moved
        moves.append(moved.ms)
    return statistics.median(moves), statistics.median(steps[-100:]), moved.note


def session(zoo: Zoo, name: str, options: dict[str, int]) -> Session:
    """A session on a model whose context window ends nothing here."""
    loaded = zoo.load(name, **options)
    facts = replace(loaded.facts, context_window=None)
    return Session(replace(loaded, facts=facts), Settings(candidates=20))


def main() -> None:
    """Measure and print."""
    largest = 0.0
    with tempfile.TemporaryDirectory() as directory:
        zoo = Zoo(Path(directory))
        for kind, (name, options) in KINDS.items():
            move_ms, step_ms, _ = measure(session(zoo, name, options))
            largest = max(largest, move_ms / step_ms)
            told = f"back to {BRANCH} tokens {move_ms:6.2f} ms   a step {step_ms:6.2f} ms"
            print(f"{kind:24} {told}   {move_ms / step_ms:.2f}")
        for kind in ("plain (pocket)", "rotating, wrapped", "recurrent"):
            name, options = KINDS[kind]
            move_ms, step_ms, why = measure(session(zoo, name, options | {"kept_kv_mib": 0}), kept=False)
            print(f"{kind:24} budget 0: {move_ms / step_ms:.1f} steps; {why}")
    print(f"largest ratio {largest:.2f}")


if __name__ == "__main__":
    main()
