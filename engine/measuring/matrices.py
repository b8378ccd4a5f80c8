"""What multiplies the matrices, and in which type: steps, prefill and look-ahead of one model, each way in turn."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from engine.decoding.lookahead import look_ahead
from engine.errors import LoadError
from engine.frozen import frozen
from engine.memory import memory_available
from engine.model import blas
from engine.model.forward import Stopped
from engine.model.load import Loaded, load
from engine.session.session import Session
from engine.settings import Settings

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
            served = blas.install(wished)
        if not served.fast:
            raise ValueError("there is no fast BLAS here")
        free = memory_available()
        if free is not None and 8 * facts.parameters > free:
            raise ValueError("the memory doesn't hold its weights twice in float32")
        window = facts.context_window
        if window is not None and PROMPT + self._steps + TOKENS > window:
            raise ValueError(f"its context window holds no {PROMPT} tokens and the steps after them")
        held = facts.stored or facts.quantization or facts.dtype
        larger = "dequantized" if facts.quantization or "-bit" in held else "float32"
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
            blas.install(way.blas)
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
            blas.install(self._loaded.settings.blas)
