"""What inspection costs: steps a second with all readings against mlx_lm's own loop, on one model in one run.

    python -m engine.measuring.bench                 the bundled model
    python -m engine.measuring.bench --model 100m    a llama of 103 million random weights, made for it
    python -m engine.measuring.bench --model 152k    one of 2 layers and 152,000 token ids; 256k: of 256,000
    python -m engine.measuring.bench --model DIR     any model

The loops alternate, so that a machine that slows down slows all of them; the ratio of a run is printed last. Before it
stands what prompt logprobs cost: the first token comes as soon with them, and they are read after it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import make_sampler

from engine.decoding.run import run
from engine.frozen import frozen
from engine.model import synthetic
from engine.model.load import Loaded, load
from engine.protocol import Step
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.task import never

MADE: Mapping[str, Mapping[str, Any]] = {
    "100m": synthetic.LLAMA_100M,
    "152k": synthetic.wide(152_000),
    "256k": synthetic.wide(256_000),
}
"""Models of random weights that are made for it, by name."""
PROMPT_TOKENS = 480
"""Of a prompt whose logprobs are read: it fits into the bundled model's window."""
PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."


GREEDY, SAMPLED = Settings(), Settings(temp=0.8, top_p=0.95)
"""How the token is taken in the loops that are compared."""


def mlx_lm_seconds(loaded: Loaded, ids: list[int], steps: int, settings: Settings = GREEDY) -> float:
    """Seconds that mlx_lm's generate_step takes for `steps` tokens after the first."""
    sampler = make_sampler(settings.temp, settings.top_p)
    tokens = generate_step(mx.array(ids), loaded.model, max_tokens=steps + 1, sampler=sampler)
    next(tokens)
    begun = time.perf_counter()
    for _ in range(steps):
        next(tokens)
    elapsed = time.perf_counter() - begun
    tokens.close()
    return elapsed


def our_seconds(
    loaded: Loaded,
    ids: list[int],
    steps: int,
    candidates: int,
    settings: Settings = GREEDY,
    *,
    pipelined: bool = True,
) -> float:
    """Seconds that `steps` inspected steps take: candidates, entropy, ranks, KV readings, times."""
    session = Session(loaded, replace(settings, candidates=candidates, max_tokens=10**9))
    for _ in session.prefill("", ids, echo=False):
        pass
    taken = endless_run(session) if pipelined else iter(session.step, None)
    next(taken)  # like mlx_lm's, a run has one forward under way when it yields a step
    begun = time.perf_counter()
    for _ in islice(taken, steps):
        pass
    return time.perf_counter() - begun


def first_token_seconds(loaded: Loaded, ids: list[int], echo: bool) -> tuple[float, float]:
    """Seconds until the first token of a prompt, and those in which its logprobs are read after that."""
    session = Session(loaded, Settings())
    begun = time.perf_counter()
    for _ in session.prefill("", ids, echo=echo):
        pass
    there = time.perf_counter()
    while session.unread.read() is not None:
        pass
    return there - begun, time.perf_counter() - there


def endless_run(session: Session) -> Iterator[Step]:
    """Steps of one run after another: a run ends at end-of-sequence, mlx_lm's loop doesn't."""
    while True:
        yield from run(session, never)


def alternate(loops: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Time some loops in turn, after one uncounted round; the order rotates every round.

    Returns:
        Seconds of each round, for each loop.
    """
    seconds: list[list[float]] = [[] for _ in loops]
    for loop in loops:
        loop()
    for turn in range(rounds):
        for place in range(len(loops)):
            which = (turn + place) % len(loops)
            seconds[which].append(loops[which]())
    return seconds


@frozen
class BenchFigures:
    """Medians of one model."""

    of_run: float
    """A run's rate against mlx_lm's, of the ratios within a round, whose loops ran within seconds of each other."""
    of_sampled: float
    """The same of runs that draw their tokens, against mlx_lm's with its sampler."""
    of_steps: float
    """The same of single steps."""
    step_ms: float
    """Of a run."""
    first_ms: float
    """Until the first token of a prompt of `PROMPT_TOKENS`."""
    first_with_ms: float
    """With prompt logprobs."""


def report(loaded: Loaded, rounds: int, steps: int, candidates: int) -> BenchFigures:
    """Measure and print the table."""
    ids = loaded.tokens.encode(PROMPT)
    loops = {
        "mlx_lm generate_step": lambda: mlx_lm_seconds(loaded, ids, steps),
        "inspected, a run": lambda: our_seconds(loaded, ids, steps, candidates),
        "inspected, single steps": lambda: our_seconds(loaded, ids, steps, candidates, pipelined=False),
        "generate_step, sampled": lambda: mlx_lm_seconds(loaded, ids, steps, SAMPLED),
        "a run, sampled": lambda: our_seconds(loaded, ids, steps, candidates, SAMPLED),
    }
    seconds = alternate(list(loops.values()), rounds)
    facts = loaded.facts
    print(
        f"{facts.name}: {facts.family}, {facts.parameters / 1e6:.1f} M parameters, {facts.dtype}, {facts.backend}"
    )
    print(
        f"{rounds} rounds of {steps} steps, prompt of {len(ids)} tokens, {candidates} candidates, greedy, "
        f"or sampled with temperature {SAMPLED.temp} and top-p {SAMPLED.top_p}"
    )
    for name, times in zip(loops, seconds, strict=True):
        rates = sorted(steps / elapsed for elapsed in times)
        print(f"  {name:24} {statistics.median(rates):8.1f} steps/s   ({rates[0]:.1f} to {rates[-1]:.1f})")
    theirs, of_run, of_steps, theirs_sampled, of_sampled = seconds
    first = _report_prompt(loaded, (ids * (PROMPT_TOKENS // len(ids) + 1))[:PROMPT_TOKENS], rounds)
    step_ms = statistics.median(of_run) / steps * 1000
    ratios = _ratio(theirs, of_run), _ratio(theirs_sampled, of_sampled), _ratio(theirs, of_steps)
    return BenchFigures(*ratios, step_ms, *first)


def _report_prompt(loaded: Loaded, ids: list[int], rounds: int) -> tuple[float, float]:
    read: list[float] = []

    def with_logprobs() -> float:
        first, after = first_token_seconds(loaded, ids, echo=True)
        read.append(after)
        return first

    loops = (lambda: first_token_seconds(loaded, ids, echo=False)[0], with_logprobs)
    without, with_them = (statistics.median(seconds) * 1000 for seconds in alternate(loops, rounds))
    print(
        f"  prompt of {len(ids)} tokens: first token after {without:.0f} ms, with prompt logprobs "
        f"{with_them:.0f} ms, which are read in {statistics.median(read) * 1000:.0f} ms more"
    )
    return without, with_them


def _ratio(theirs: Sequence[float], mine: Sequence[float]) -> float:
    return statistics.median(peer_s / own_s for peer_s, own_s in zip(theirs, mine, strict=True))


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; the ratio is the last line."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.measuring.bench", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--model", default="pocket", help=f"pocket, {', '.join(MADE)}, a directory or a hub id"
    )
    parser.add_argument("--rounds", type=int, default=15, help="counted rounds of each loop")
    parser.add_argument("--steps", type=int, default=50, help="steps a round")
    parser.add_argument("--candidates", type=int, default=20, help="candidates recorded a step")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as directory:
        spec = arguments.model
        if spec in MADE:
            spec = str(synthetic.write(Path(directory) / f"llama-{spec}", MADE[spec], dtype=mx.bfloat16))
        loaded = load(LoadSettings(model=spec))
        measured = report(loaded, arguments.rounds, arguments.steps, arguments.candidates)
    print(f"single steps: ratio {measured.of_steps:.3f}, a sampled run: ratio {measured.of_sampled:.3f}")
    print(f"ratio {measured.of_run:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
