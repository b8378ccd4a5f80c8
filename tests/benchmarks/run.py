"""What inspection costs: steps a second with all readings against mlx_lm's own loop, by model.

    python -m tests.benchmarks.run [--models MODEL ...] [--count ROUNDS]

The loops alternate, so that a machine that slows down slows all of them. With them is measured what prompt logprobs
cost: the first token comes as soon with them, and they are read after it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import make_sampler
from msgspec import Struct
from msgspec.structs import replace

from engine.model.load import Loaded, load
from engine.protocol import Step
from engine.session.run import run
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.task import never
from tests.benchmarks.vocabularies import LARGE, VOCABULARIES, Asked, Figures, by_command

STEPS, CANDIDATES = 50, 20
OF_BENCH = ("bench-100m", "bench-152k", "bench-256k")
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
    loaded: Loaded, ids: list[int], steps: int, settings: Settings = GREEDY, *, pipelined: bool = True
) -> float:
    """Seconds that `steps` inspected steps take: candidates, entropy, ranks, KV readings, times."""
    session = Session(loaded, replace(settings, candidates=CANDIDATES, max_tokens=10**9))
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


class BenchFigures(Struct, frozen=True):
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


def report(loaded: Loaded, rounds: int, steps: int) -> BenchFigures:
    """Measure and print the table."""
    ids = loaded.tokens.encode(PROMPT)
    loops = {
        "mlx_lm generate_step": lambda: mlx_lm_seconds(loaded, ids, steps),
        "inspected, a run": lambda: our_seconds(loaded, ids, steps),
        "inspected, single steps": lambda: our_seconds(loaded, ids, steps, pipelined=False),
        "generate_step, sampled": lambda: mlx_lm_seconds(loaded, ids, steps, SAMPLED),
        "a run, sampled": lambda: our_seconds(loaded, ids, steps, SAMPLED),
    }
    seconds = alternate(list(loops.values()), rounds)
    facts = loaded.facts
    print(
        f"{facts.name}: {facts.family}, {facts.parameters / 1e6:.1f} M parameters, {facts.dtype}, {facts.backend}"
    )
    print(
        f"{rounds} rounds of {steps} steps, prompt of {len(ids)} tokens, {CANDIDATES} candidates, greedy, "
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


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each("pocket", *OF_BENCH, *VOCABULARIES, *LARGE):
        rounds, steps = (3, 10) if name in LARGE else (7, STEPS)  # a step of these takes a third of a second
        found = report(load(LoadSettings(model=model)), asked.times(rounds), steps)
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
