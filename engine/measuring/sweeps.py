"""Sweeps: TTFT over the prompt's length, TPOT over the context's, throughput over batch size, the cost of inspection.

A round measures all points of a sweep once, one after another, and the rounds repeat: a machine that slows down slows
all points alike. The first round isn't counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import islice

import mlx.core as mx
from mlx_lm.generate import BatchGenerator

from engine.decoding.lookahead import look_ahead
from engine.errors import Cancelled, LoadError
from engine.frozen import frozen
from engine.measuring import bench
from engine.measuring.machine import machine
from engine.measuring.roofline import bound
from engine.memory import memory_available
from engine.model import blas
from engine.model.load import Loaded, load
from engine.protocol import Figure, Measuring, SweepPoint, Swept
from engine.session.session import Session
from engine.settings import Settings
from engine.sweep_settings import SweepName, SweepSettings, check_sweeps
from engine.task import Stopped

# ---- the ways to multiply a model's matrices, each in turn -------------------------------------

PROMPT = 256
CANDIDATES, TOKENS = 5, 8
"""Of the look-ahead: its forwards run five rows at once."""


@frozen
class _Way:
    """One way to multiply a model's matrices."""

    name: str
    dtype: str
    blas: str


class Matrices:
    """The ways to multiply a model's matrices, and the figures of each.

    Args:
        loaded: The model; it and its sessions stay as they are.
        ids: Tokens of a prompt, `PROMPT` of them.
        steps: Single steps, whose median is the figure.
        stopped: Polled in the prefill and the look-ahead.
    """

    def __init__(self, loaded: Loaded, ids: list[int], steps: int, stopped: Stopped) -> None:
        self._loaded, self._ids, self._steps, self._stopped = loaded, ids, steps, stopped
        self._models: dict[str, Loaded] = {}
        """By dtype: the library is another one between two measurements, the weights are the same."""

    @cached_property
    def _ways(self) -> list[_Way]:
        settings, facts = self._loaded.settings, self._loaded.facts
        wished = "auto" if settings.blas == "bundled" else settings.blas
        with self._kept():
            served = blas.install(wished, settings.blas_threads)
        if not served.fast:
            raise ValueError("there is no fast BLAS here")
        free = memory_available()
        if free is not None and 8 * facts.parameters > free:
            raise ValueError("the memory doesn't hold its weights twice in float32")
        window = facts.context_window
        if window is not None and PROMPT + self._steps + TOKENS > window:
            raise ValueError(f"its context window holds no {PROMPT} tokens and the steps after them")
        held = facts.stored or facts.quantization or facts.dtype
        larger = "dequantized" if facts.quantized else "float32"
        as_filed = [_Way(f"{held}, bundled BLAS", "file", "bundled")] if held != larger else []
        return [
            *as_filed,
            _Way(f"{larger}, bundled BLAS", larger, "bundled"),
            _Way(f"{larger}, {served.name}", larger, wished),
        ]

    def names(self) -> list[str]:
        """The name of each way.

        Raises:
            ValueError: There is but one here; the message says why.
        """
        return [way.name for way in self._ways]

    def measure(self, place: int) -> dict[tuple[str, str], float]:
        """The figures of one way, by name and unit.

        Args:
            place: Of the way, in the order of `names`.

        Raises:
            ValueError: There is but one way here, or the model can't be loaded in that type; the message says why.
            Cancelled: `stopped` returned True.
        """
        way = self._ways[place]
        with self._kept():
            loaded = self._model(way.dtype)
            blas.install(way.blas, self._loaded.settings.blas_threads)
            session = Session(loaded, Settings(max_tokens=10**9))
            *_, prefilled = session.prefill("", self._ids, echo=False, stopped=self._stopped)
            steps = [session.step() for _ in range(self._steps)]
            ids = [candidate.id for candidate in steps[-1].choice.candidates[:CANDIDATES]]
            *_, ahead = look_ahead(session, steps[-1].parent, ids, TOKENS, self._stopped)
        return {
            ("a step", "ms"): statistics.median(step.ms.total for step in steps),
            (f"prefill of {PROMPT}", "tokens/s"): prefilled.prompt_tps,  # type: ignore[union-attr]
            (f"look-ahead {CANDIDATES} x {TOKENS}", "ms"): ahead.ms,
        }

    def _model(self, dtype: str) -> Loaded:
        if dtype not in self._models:
            settings = replace(self._loaded.settings, model=self._loaded.facts.path, dtype=dtype)
            try:
                self._models[dtype] = load(settings)
            except LoadError as error:
                raise ValueError(str(error)) from error
        return self._models[dtype]

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Afterwards the library is again the one that the model was loaded with."""
        try:
            yield
        finally:
            blas.install(self._loaded.settings.blas, self._loaded.settings.blas_threads)


# ---- sweeps ------------------------------------------------------------------------------------

HOW: dict[SweepName, str] = {
    "ttft": "the whole prompt's forward in chunks and the first draw, without prompt logprobs, on empty caches; "
    "prompt tokens are a text repeated",
    "tpot": "median step of a pipelined run with all readings, right after a prompt of that length",
    "batch": "mlx_lm's BatchGenerator, greedy: tokens of all sequences over the time from each one's first token "
    "to the last; KV bytes as allocated by its caches",
    "inspection": "mlx_lm's generate_step and our runs and single steps in turn, the same greedy tokens; times is "
    "our ms over mlx_lm's within a round",
    "blas": "the model loaded again in each type; median of single steps with all readings, a prompt's prefill, and "
    "the look-ahead, whose forwards run five rows",
}
_TEXT = bench.PROMPT + " "
_BATCH_PROMPT = 16
Values = dict[tuple[str, str], float]
"""By name and unit."""


@frozen
class _Place:
    """One place to measure."""

    sweep: SweepName
    at: int
    measure: Callable[[int], Values]
    label: str = ""


def sweep(loaded: Loaded, settings: SweepSettings, stopped: Stopped) -> Iterator[Measuring | Swept]:
    """Measure all points, with progress and the results so far; sessions on the same model don't change.

    Args:
        loaded: The model.
        settings: What to measure.
        stopped: Polled between two measurements, and in prefills between chunks.

    Raises:
        SettingsError: A setting is out of its range.
        Cancelled: `stopped` returned True.
    """
    check_sweeps(settings)
    begun, taken = time.perf_counter(), _SweepResults()
    at = _SweepPoints(loaded, settings, stopped)
    places = at.places()
    total, facts = (settings.rounds + 1) * len(places), loaded.facts
    if "ttft" in settings.sweeps:
        taken.notes += bound(facts)
    swept = Swept(
        machine(facts), facts.name, facts.family, facts.parameters, facts.dtype, facts.quantization,
        settings.rounds, (), tuple((name, HOW[name]) for name in HOW if name in settings.sweeps), (), 0.0, False,
    )  # fmt: skip
    for turn in range(total):
        place, counted = places[turn % len(places)], turn >= len(places)
        if stopped():
            raise Cancelled
        left_ms = taken.expected_ms(turn, total, places) if counted else None
        where = place.label or f"at {place.at:,}"
        yield Measuring("Sweep", turn, total, f"{place.sweep} {where}", left_ms)
        taken.measure(place, counted)
        if counted:
            ms, last = (time.perf_counter() - begun) * 1000, turn == total - 1
            yield replace(swept, points=taken.points(), notes=tuple(taken.notes), ms=ms, last=last)


class _SweepResults:
    """The figures so far."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._values: dict[_Place, dict[tuple[str, str], list[float]]] = {}
        self._failed: set[SweepName] = set()
        self._took_ms: dict[_Place, float] = {}
        """The last measurement at each place."""

    def expected_ms(self, turn: int, total: int, places: Sequence[_Place]) -> float:
        """How long the turns from `turn` to `total` will take, by the last one at each place."""
        return sum(self._took_ms[places[each % len(places)]] for each in range(turn, total))

    def measure(self, place: _Place, counted: bool) -> None:
        """Measure at a place; a sweep that fails with this model is skipped from there on, with a note."""
        begun, figures = time.perf_counter(), dict[tuple[str, str], float]()
        if place.sweep not in self._failed:
            try:
                figures = place.measure(place.at)
            except (ValueError, TypeError, NotImplementedError, AttributeError) as error:
                self._failed.add(place.sweep)
                self.notes.append(f"{place.sweep} can't be measured with this model: {error}")
        self._took_ms[place] = (time.perf_counter() - begun) * 1000
        if counted and figures:
            lists = self._values.setdefault(place, {})
            for key, value in figures.items():
                lists.setdefault(key, []).append(value)

    def points(self) -> tuple[SweepPoint, ...]:
        """The points in the order in which they were first measured."""
        return tuple(
            SweepPoint(
                place.sweep,
                place.at,
                tuple(_figure(*key, taken) for key, taken in values.items()),
                place.label,
            )
            for place, values in self._values.items()
            if place.sweep not in self._failed
        )


def _figure(name: str, unit: str, values: list[float]) -> Figure:
    return Figure(name, unit, tuple(values))  # type: ignore[arg-type]  # the units below are Figure's


class _SweepPoints:
    """Measures on one model."""

    def __init__(self, loaded: Loaded, settings: SweepSettings, stopped: Stopped) -> None:
        self._loaded, self._settings, self._stopped = loaded, settings, stopped
        self._text = loaded.tokens.encode(_TEXT)
        self._matrices = Matrices(loaded, self._ids(PROMPT), settings.steps, stopped)

    def places(self) -> list[_Place]:
        """All places, in the order of a round."""
        settings, window = self._settings, self._loaded.facts.context_window or 10**9
        ways: dict[SweepName, tuple[list[int], Callable[[int], Values]]] = {
            "ttft": (_doubling(16, min(settings.longest, window)), self.ttft),
            "tpot": (_doubling(16, min(settings.longest, window - settings.steps - 1)), self.tpot),
            "batch": (_doubling(1, settings.largest_batch), self.batch),
            "inspection": ([settings.steps], self.inspection),
        }
        places = [
            _Place(name, at, measure)
            for name, (places, measure) in ways.items()
            if name in settings.sweeps
            for at in places
        ]
        return [*places, *self._ways()] if "blas" in settings.sweeps else places

    def _ways(self) -> list[_Place]:
        """One place for each way to multiply matrices; where there is but one, a place that says so."""
        try:
            names = self._matrices.names()
        except ValueError:
            return [_Place("blas", 0, self._matrices.measure)]
        return [_Place("blas", at, self._matrices.measure, name) for at, name in enumerate(names)]

    def _ids(self, count: int) -> list[int]:
        return [self._text[place % len(self._text)] for place in range(count)]

    def _read(self, count: int) -> tuple[Session, float]:
        """A session that has read `count` tokens, and its TTFT in milliseconds."""
        session = Session(self._loaded, Settings(max_tokens=10**9))
        *_, prefilled = session.prefill("", self._ids(count), echo=False, stopped=self._stopped)
        return session, prefilled.ttft_ms  # type: ignore[union-attr]  # the last record of a prefill

    def ttft(self, prompt: int) -> Values:
        """Time to first token after a prompt of `prompt` tokens."""
        session, ms = self._read(prompt)
        return {
            ("TTFT", "ms"): ms,
            ("prefill", "tokens/s"): prompt / ms * 1000,
            ("KV used", "bytes"): session.kv_reading().used_bytes,
        }

    def tpot(self, context: int) -> Values:
        """Time per output token with `context` tokens in the context."""
        session, _ = self._read(context)
        times = sorted(step.ms.total for step in islice(bench.endless_run(session), self._settings.steps))
        middle = times[len(times) // 2]
        return {("TPOT", "ms"): middle, ("decode", "tokens/s"): 1000 / middle}

    def batch(self, size: int) -> Values:
        """Throughput of `size` sequences at once, by mlx_lm's own `BatchGenerator`."""
        steps, prompt = self._settings.steps, self._ids(_BATCH_PROMPT)
        generator = BatchGenerator(self._loaded.model, completion_batch_size=size, prefill_batch_size=size)
        try:
            generator.insert([prompt] * size, [steps + 1] * size)
            first = generator.next_generated()
            begun, count, kv = time.perf_counter(), 0, 0
            while len(first) == size and (more := generator.next_generated()):
                count, kv = count + len(more), max(kv, generator.prompt_cache_nbytes)
            seconds = time.perf_counter() - begun
        finally:
            generator.close()
        mx.clear_cache()
        if not count:
            raise ValueError("its sequences did not run together")
        return {
            ("throughput", "tokens/s"): count / seconds,
            ("TPOT of each", "ms"): seconds * 1000 * size / count,
            ("KV allocated", "bytes"): kv,
        }

    def inspection(self, steps: int) -> Values:
        """What inspection adds to mlx_lm's own loop."""
        ids, loaded = self._ids(_BATCH_PROMPT), self._loaded
        theirs = bench.mlx_lm_seconds(loaded, ids, steps) / steps * 1000
        run = bench.our_seconds(loaded, ids, steps, 20) / steps * 1000
        single = bench.our_seconds(loaded, ids, steps, 20, pipelined=False) / steps * 1000
        return {
            ("generate_step", "ms"): theirs,
            ("inspected run", "ms"): run,
            ("single steps", "ms"): single,
            ("run", "times"): run / theirs,
            ("steps", "times"): single / theirs,
        }


def _doubling(first: int, last: int) -> list[int]:
    """`first`, its doubles below `last`, and `last` itself."""
    sizes = []
    while first < last:
        sizes.append(first)
        first *= 2
    return [*sizes, last] if last > 0 else sizes
