"""A batch with its readings against `mlx_lm.batch_generate`: tokens a CPU second, by model and lanes.

    python -m tests.benchmarks.batch [--count ROUNDS]

Both begin with the same prompts, decode greedily, stop at the same tokens, and take turns. CPU time is that of all
threads: on the CPU backend a forward runs beside Python, and the wall clock would hide what readings cost.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from types import SimpleNamespace

from mlx_lm.generate import batch_generate

from engine.decoding.batch import BatchRun, Lane
from engine.decoding.rows import PaddedRows
from engine.model.load import Loaded, load
from engine.protocol import LaneOpened
from engine.session.node_records import Continuation
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.benchmarks.run import PROMPT
from tests.benchmarks.vocabularies import MODELS, Asked, Figures, by_command

TOKENS, LANES = 64, (8, 32)


def ours(loaded: Loaded, prompts: Sequence[list[int]]) -> tuple[int, float]:
    """Tokens and CPU seconds of a batch with all readings."""
    session = Session(loaded, Settings(max_tokens=TOKENS))
    begun = time.process_time()
    run = BatchRun(PaddedRows(session.runner.fresh()), len(prompts))
    for number, ids in enumerate(prompts):
        path = Continuation(session.tokens, session.facts, session.settings, ids)
        run.add(Lane(LaneOpened(number, "", tuple(ids), 0, 0), path))
    for _ in run.run():
        pass
    return run.totals.tokens, time.process_time() - begun


def theirs(loaded: Loaded, prompts: Sequence[list[int]]) -> tuple[int, float]:
    """Tokens and CPU seconds of mlx_lm's."""
    stops = SimpleNamespace(eos_token_ids=set(loaded.tokens.eos_ids), decode=lambda ids: "")
    begun = time.process_time()
    found = batch_generate(
        loaded.model, stops, [list(ids) for ids in prompts], max_tokens=TOKENS, prefill_batch_size=len(prompts),
        return_token_ids=True,
    )  # fmt: skip
    return sum(map(len, found.token_ids)), time.process_time() - begun


def measure(name: str, loaded: Loaded, lanes: int, rounds: int) -> float:
    """Measure one model and print; returns the ratio."""
    ids = loaded.tokens.encode(PROMPT)
    prompts = [[100 + place, *ids[: 6 + place % (len(ids) - 5)]] for place in range(lanes)]
    ratios, rates = [], []
    for turn in range(rounds + 1):
        own, peer = ours(loaded, prompts), theirs(loaded, prompts)
        if turn:  # the first is not counted
            rates.append((own[0] / own[1], peer[0] / peer[1]))
            ratios.append(rates[-1][0] / rates[-1][1])
    mine, other = (statistics.median(each) for each in zip(*rates, strict=True))
    ratio = statistics.median(ratios)
    print(
        f"{name:12} {lanes:3} lanes: {mine:7.0f} tokens a CPU second, mlx_lm {other:7.0f}: "
        f"ratio {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    )
    return ratio


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each(*MODELS):
        loaded = load(LoadSettings(model=model))
        gc.freeze()  # as the program does once a model is loaded
        for lanes in LANES:
            figures[f"{name} {lanes} lanes"] = measure(name, loaded, lanes, asked.times(7))
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
