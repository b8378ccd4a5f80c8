"""What looking inside costs: each view against a plain step, in one run; memory; steps while it is closed.

    python -m tests.benchmarks.inside [--count ROUNDS]

Ratios are of medians. The first table has what a person waits for, from the command to the record: each view runs the
token once plainly and once under taps, on a copy of the cache. The second has the tapped forward alone.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import mlx.core as mx

from engine.inside.attention import read_attention
from engine.inside.lens import attribute, read_lens
from engine.inside.patching import sweep_heads
from engine.inside.view import capture
from engine.model.load import load
from engine.protocol import Attribute, ReadAttention, ReadLens, SweepHeads
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.benchmarks.vocabularies import SMALL, Asked, Figures, by_command
from tests.engine.inside.looking import answer

PROMPT = "Once upon a time, there was a little girl named Lily. One day, she went to the park with"
ROUNDS = 15
LONG = 2000


def session_of(settings: LoadSettings, prompt: str | list[int]) -> Session:
    """A session that read a prompt and took two steps."""
    session = Session(load(settings), Settings())
    ids = session.encode(prompt) if isinstance(prompt, str) else prompt
    list(session.prefill("", ids))
    session.step()
    session.step()
    return session


def median_ms(work: Callable[[], object], rounds: int) -> float:
    """Median of the rounds after one that doesn't count."""
    times = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        work()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times[1:])


def views(session: Session, rounds: int) -> dict[str, float]:
    """Print the views' costs; returns them in plain steps."""
    node = session.node
    top = [candidate.id for candidate in session.next.candidates[:2]]
    plain, steps = median_ms(session.step, rounds), dict[str, float]()
    node = session.node
    print(f"a plain step: {plain:.2f} ms\n\nfrom the command to the record")
    for name, work in {
        "attention of all heads": lambda: answer(read_attention(session, ReadAttention(node))),
        "lens of this token": lambda: answer(read_lens(session, ReadLens(node, positions=1))),
        "lens of 12 positions": lambda: answer(read_lens(session, ReadLens(node))),
        "contributions to two tokens": lambda: answer(attribute(session, Attribute(node, tuple(top)))),
        "all units switched off, one by one": lambda: list(sweep_heads(session, SweepHeads(node))),
    }.items():
        took = median_ms(work, rounds)
        steps[name] = took / plain
        print(f"  {name:<38}{took:9.1f} ms {took / plain:7.2f} steps")
    print("\nthe forward under taps against the plain one next to it")
    for name, attention, parts in (
        ("hidden states", False, False),
        ("and attention", True, False),
        ("and parts", True, True),
    ):
        taken = [capture(session, node, attention=attention, parts=parts) for _ in range(rounds)]
        ratio = statistics.median(each.ms for each in taken) / statistics.median(
            each.step_ms for each in taken
        )
        print(f"  {name:<38}{ratio:9.2f}")
    return steps


def closed(session: Session, rounds: int) -> None:
    """Print the steps before and after looking, taken in turns: what is closed costs nothing."""
    before, after = [], []
    for _ in range(rounds):
        before.append(_steps(session))
        answer(read_attention(session, ReadAttention(session.node)))
        after.append(_steps(session))
    ratio = statistics.median(after) / statistics.median(before)
    print(f"\nten steps after a look against ten before one: {ratio:.3f}")


def _steps(session: Session) -> float:
    begun = time.perf_counter()
    for _ in range(10):
        session.step()
    return time.perf_counter() - begun


def memory(model: str) -> dict[str, float]:
    """Print what a look takes at a long context, beyond what was held; returns MiB."""
    taken: dict[str, float] = {}
    session = session_of(LoadSettings(model=model), [(n * 7) % 500 + 1 for n in range(LONG)])
    print(f"\nbytes that are taken at {LONG} tokens, 14 layers of 12 heads")
    for name, work in {
        "a plain step": lambda: session.step(),
        "attention": lambda: answer(read_attention(session, ReadAttention(session.node))),
        "lens": lambda: answer(read_lens(session, ReadLens(session.node))),
    }.items():
        gc.collect()
        mx.clear_cache()
        held = mx.get_active_memory()
        mx.reset_peak_memory()
        work()
        taken[name] = (mx.get_peak_memory() - held) / 2**20
        print(f"  {name:<38}{taken[name]:9.1f} MiB")
    return taken


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each(*SMALL):
        print(f"\n---- {name}")
        session = session_of(LoadSettings(model=model), PROMPT)
        figures |= {f"{name} {view}": steps for view, steps in views(session, asked.times(ROUNDS)).items()}
        closed(session, asked.times(ROUNDS))
    if not asked.models:
        held = memory(asked.path("bench-100m-float32"))
        figures |= {f"{view} MiB": mib for view, mib in held.items()}
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
