"""What going back to a kept branch of 500 tokens costs, against decode steps on the same model, for each kind of
cache and by model.

    python -m tests.benchmarks.moves [--count TOKENS]

The goal is less than two decode steps; the largest ratio of the kinds is
returned. Tokens are those of the branch.
"""

from __future__ import annotations

import statistics

from msgspec.structs import replace

from engine.model.load import Loaded, load
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.benchmarks.vocabularies import MODELS, Asked, Figures, by_command
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


def measure(walked: Session, branch: int, kept: bool = True) -> tuple[float, float, str]:
    """Median milliseconds of a move back to a branch that was left and of a step, and why it recomputed if it did."""
    list(walked.prefill("", [5, 6, 7, 8], echo=False))
    fork = walked.node
    steps = [walked.step().ms.total for _ in range(branch)]
    tip, moves = walked.node, []
    for turn in range(7):
        walked.move(fork)
        walked.choose(300 + turn)
        moved = walked.move(tip)
        assert (moved.restored, moved.recomputed) == (branch, 0) or not kept, moved
        moves.append(moved.ms)
    return statistics.median(moves), statistics.median(steps[-100:]), moved.note


def session(loaded: Loaded) -> Session:
    """A session on a model whose context window ends nothing here."""
    facts = replace(loaded.facts, context_window=None)
    return Session(replace(loaded, facts=facts), Settings(candidates=20))


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    branch, zoo = asked.times(BRANCH), Zoo(asked.directory)

    def told(kind: str, loaded: Loaded) -> float:
        move_ms, step_ms, _ = measure(session(loaded), branch)
        ratio = move_ms / step_ms
        print(f"{kind:24} back to {branch} tokens {move_ms:6.2f} ms   a step {step_ms:6.2f} ms   {ratio:.2f}")
        return ratio

    if not asked.models:
        figures["largest"] = max(
            told(kind, zoo.load(name, **options)) for kind, (name, options) in KINDS.items()
        )
        for kind in ("plain (pocket)", "rotating, wrapped", "recurrent"):
            name, options = KINDS[kind]
            dropping = session(zoo.load(name, **options, kept_kv_mib=0))
            move_ms, step_ms, why = measure(dropping, branch, kept=False)
            print(f"{kind:24} budget 0: {move_ms / step_ms:.1f} steps; {why}")
        print(f"largest ratio {figures['largest']:.2f}")
    for name, model in asked.each(*MODELS):
        figures[f"{name} move"] = told(name, load(LoadSettings(model=model)))
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
