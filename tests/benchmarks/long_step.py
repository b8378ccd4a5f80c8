"""What a step costs the engine's thread behind a path of 100,000 tokens beside one of 100, without the forward.

    python -m tests.benchmarks.long_step [TOKENS [ROUNDS]]

Both step in turns of ten, so that a busy machine slows both; the model's cache holds 64 tokens, so that its forward is
the same. The last line is the ratio of the rates, which is to be 0.95 or more.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace

from engine.patches.imports import import_mlx_lm
from engine.protocol import Grown, Restore
from engine.settings import LoadSettings, Settings
from tests.benchmarks.run import endless_run
from tests.zoo import CONFIGS

import_mlx_lm()
from engine.model.load import Loaded, load  # noqa: E402
from engine.session.handlers import restore  # noqa: E402
from engine.session.session import Session  # noqa: E402
from tests import synthetic  # noqa: E402

SHORT, EACH, BAR = 100, 10, 0.95
RING = LoadSettings(max_kv_size=64, prefill_step_size=1024)
SETTINGS = Settings(temp=1.0, max_tokens=10**9, candidates=20, seed=3)


def behind(loaded: Loaded, tokens: int) -> Session:
    """A session behind so many tokens, which ran in chunks as a prompt's do."""
    ids = random.Random(1)
    nodes = [
        Grown(place + 1, place, ids.randrange(300, 4000), "prompt", has_step=False) for place in range(tokens)
    ]
    session = Session(loaded, SETTINGS)
    restore(session, Restore(tuple(nodes), tokens), lambda record: None, lambda: False)
    return session


def main(tokens: str = "100000", rounds: str = "60") -> float:
    """Measure, print, and return the ratio."""
    with tempfile.TemporaryDirectory() as directory:
        config = {**CONFIGS["qwen2"], "max_position_embeddings": 2 * int(tokens)}  # a llama takes no ring
        model = str(synthetic.write(Path(directory) / "qwen2", config))
        loaded = load(replace(RING, model=model))
    runs = {length: endless_run(behind(loaded, length)) for length in (SHORT, int(tokens))}
    spent: dict[int, list[float]] = {length: [] for length in runs}
    for run in runs.values():
        for _ in range(2 * EACH):
            next(run)
    gc.freeze()
    for _ in range(int(rounds)):
        for length, run in runs.items():
            since = time.thread_time()
            for _ in range(EACH):
                next(run)
            spent[length].append((time.thread_time() - since) * 1000 / EACH)
    for length, times in spent.items():
        print(
            f"behind {length:9,} tokens: median {statistics.median(times):6.3f} ms a step, least {min(times):6.3f}"
        )
    short, long = (statistics.median(times) for times in spent.values())
    print(f"rate {short / long:.3f} (at least {BAR})")
    return short / long


if __name__ == "__main__":
    main(*sys.argv[1:])
