"""The roofline: prefill and decode of this model against the limits of this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from engine.cache.kinds import kind_named
from engine.errors import Cancelled
from engine.measuring import machine_rates, work
from engine.measuring.trial import RepeatedStep
from engine.model.forward import Runner, Stopped, never
from engine.model.load import Loaded
from engine.protocol import Measuring, RooflineMeasured, Work
from engine.session.session import Session

REPEATS = 7
LEAST_TOKENS, MOST_TOKENS = 16, 256
"""Of the prefill."""
PREFILL_MS = 1000.0
"""Estimated time of one prefill at most, as if its tokens took as long as decode steps: it is faster."""
NO_HEADS = "The attention heads aren't known: the operations of attention are not counted."
NOISY = 1.25
"""Median over best from which on a person is told: on quiet machines 1.02 to 1.15 was seen."""
BUSY = (
    "The machine was busy: half of the measurements of {} took {:.1f} times as long as the best or longer. "
    "The figures are of the best; measure again when nothing else runs."
)
ABOVE = (
    "{} is at {:.0%} of the roof: what it reads fits into the processor's caches, which are faster than the memory "
    "that the roof was measured with, or the machine was busy meanwhile."
)
HOW = (
    "Decode: the forward of the next step on a copy of the cache, without sampling, best of {} after a warm-up, "
    "waited for to its end. "
)
HOW_PREFILL = (
    "Prefill: one forward of the path's first {} tokens from nothing, with the logits of all, best of {} after a "
    "warm-up. "
)


def roofline(
    loaded: Loaded, session: Session, stopped: Stopped = never
) -> Iterator[Measuring | RooflineMeasured]:
    """Measure decode, prefill and the machine; the session and its cache don't change.

    Args:
        loaded: The session's model.
        session: Has read a prompt.
        stopped: Polled between two measurements.

    Raises:
        StepError: There is no prompt, or no room for one more token.
        Cancelled: `stopped` returned True.
    """
    begun, run = time.perf_counter(), Roofline(loaded, session, stopped)
    yield _progress(0, "decode")
    decode = run.decode()
    yield _progress(1, "prefill")
    prefill, repeats = run.prefill(decode.ms)
    yield _progress(2, "memory bandwidth")
    bandwidth = machine_rates.bandwidth(stopped)
    yield _progress(3, "matrix product")
    matmul = machine_rates.matmul(loaded.model, loaded.facts, stopped)
    measured = RooflineMeasured(
        node=session.node,
        bandwidth_gbs=bandwidth.value,
        bandwidth_how=bandwidth.how,
        matmul_gflops=matmul.value,
        matmul_how=matmul.how,
        decode=decode,
        prefill=prefill,
        active_parameters=run.weights.parameters,
        how=(
            HOW.format(REPEATS) + (HOW_PREFILL.format(prefill.tokens, repeats) if prefill else "") + work.HOW
        ),
        notes=(*run.notes(), *_busy(decode, prefill, bandwidth, matmul)),
        ms=(time.perf_counter() - begun) * 1000,
    )
    yield replace(measured, notes=(*measured.notes, *_above(measured)))


def _busy(decode: Work, prefill: Work | None, *rates: machine_rates.Rate) -> Iterator[str]:
    """What to know of a machine that had other things to do."""
    spreads = {
        "decode": decode.median_ms / decode.ms,
        "prefill": prefill.median_ms / prefill.ms if prefill else 1.0,
        "the machine's own rates": max(rate.value / rate.median for rate in rates),
    }
    what = max(spreads, key=lambda name: spreads[name])
    if spreads[what] >= NOISY:
        yield BUSY.format(what, spreads[what])


def _above(measured: RooflineMeasured) -> Iterator[str]:
    """What to know of a forward that is faster than the machine seems to allow."""
    for name, forward in (("Decode", measured.decode), ("Prefill", measured.prefill)):
        if forward is not None and (share := measured.share(forward)) > 1:
            yield ABOVE.format(name, share)


def _progress(done: int, detail: str) -> Measuring:
    return Measuring("MeasureRoofline", done, 4, detail)


class Roofline:
    """The two forwards of one model; see `roofline`."""

    def __init__(self, loaded: Loaded, session: Session, stopped: Stopped) -> None:
        self._loaded = loaded
        self._session = session
        self._stopped = stopped
        self.weights = work.weights(loaded.model)

    def notes(self) -> tuple[str, ...]:
        """What the formulas leave out for this model."""
        facts = self._loaded.facts
        attends = any(kind_named(name).attended for name in facts.cache_kinds)
        unknown = attends and not (facts.heads and facts.head_size)
        return (*self.weights.notes, *((NO_HEADS,) if unknown else ()))

    def decode(self) -> Work:
        """The step that would be taken next; without a KV cache that is a pass over the whole path."""
        session, trial = self._session, RepeatedStep(self._session)
        times: list[float] = []
        for _ in range(REPEATS + 1):
            times.append(self._ms(trial.forward))
            read = trial.bytes_read()
            trial.undo()
        held = session.tree[session.node].depth
        return (
            self._work(1, held, read, times[1:])
            if session.cached
            else self._work(held + 1, 0, read, times[1:])
        )

    def prefill(self, decode_ms: float) -> tuple[Work | None, int]:
        """A forward of the path's first tokens, as many as the time allows; returns it and the number of repeats."""
        affordable = int(PREFILL_MS / max(decode_ms, 0.01))
        path = self._session.tree.tokens(self._session.node)
        ids = path[: max(LEAST_TOKENS, min(MOST_TOKENS, affordable))]
        if len(ids) < 2:
            return None, 0
        settings = replace(self._loaded.settings, kv_bits=None, max_kv_size=None, prefill_step_size=None)
        runner = Runner(self._loaded.model, settings)
        times = [self._ms(lambda: runner.forward_uncached(ids))]
        while len(times) < 2 or (len(times) < 4 and sum(times) < PREFILL_MS):
            times.append(self._ms(lambda: runner.forward_uncached(ids)))
        return self._work(len(ids), 0, runner.kv.last_pass[1], times[1:]), len(times) - 1

    def _work(self, tokens: int, before: int, kv_bytes: int, times: Sequence[float]) -> Work:
        groups = self._session.kv.reading().groups
        flops = 2 * self.weights.parameters * tokens
        flops += work.attention(self._loaded.facts, groups, before, tokens)
        read = self.weights.read(tokens)
        return Work(tokens, before + tokens, read, kv_bytes, flops, min(times), statistics.median(times))

    def _ms(self, run: Callable[[], object]) -> float:
        if self._stopped():
            raise Cancelled
        begun = time.perf_counter()
        run()
        return (time.perf_counter() - begun) * 1000
