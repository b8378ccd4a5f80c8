"""What multiplies the matrices, and in which type: steps, prefill and look-ahead of one model, each way in turn."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from engine.decoding.lookahead import look_ahead
from engine.model import blas
from engine.model.dtype import memory_available
from engine.model.load import Loaded, load
from engine.session.session import Session
from engine.settings import LoadSettings, Settings

PROMPT = 256
CANDIDATES, TOKENS = 5, 8
"""Of the look-ahead: its forwards run five rows at once."""


class Matrices:
    """The ways to multiply a model's matrices, and the figures of each.

    Args:
        loaded: The model; it and its sessions stay as they are.
        ids: Tokens of a prompt, `PROMPT` of them.
        steps: Single steps, whose median is the figure.
    """

    def __init__(self, loaded: Loaded, ids: list[int], steps: int) -> None:
        self._loaded, self._ids, self._steps = loaded, ids, steps
        self._models: dict[int, Loaded] = {}

    def ways(self) -> list[tuple[str, LoadSettings]]:
        """Name and settings of each way; none where this machine has but one.

        Raises:
            ValueError: There is no fast library, or no memory for the model a second time; the message says so.
        """
        settings, facts = self._loaded.settings, self._loaded.facts
        with self._kept():
            served = blas.install("auto")
        if not served.fast:
            raise ValueError("there is no fast BLAS here")
        free = memory_available()
        if free is not None and 8 * facts.parameters > free:
            raise ValueError("the memory doesn't hold its weights twice in float32")
        held = facts.stored or facts.quantization or facts.dtype
        larger = "dequantized" if facts.quantization or "-bit" in held else "float32"
        ways = [(held, "file", "bundled")] if held != "float32" else []
        ways += [(larger, larger, "bundled"), (larger, larger, "auto")]
        names = {"bundled": "bundled BLAS", "auto": served.name}
        return [
            (f"{name}, {names[which]}", replace(settings, dtype=dtype, blas=which, model=facts.path))
            for name, dtype, which in ways
        ]

    def measure(self, place: int) -> dict[tuple[str, str], float]:
        """The figures of one way, by name and unit.

        Args:
            place: Of the way, in the order of `ways`.
        """
        with self._kept():
            loaded = self._model(place)
            blas.install(loaded.settings.blas)
            session = Session(loaded, Settings(max_tokens=10**9))
            *_, prefilled = session.prefill("", self._ids, echo=False)
            steps = [session.step() for _ in range(self._steps)]
            ids = [candidate.id for candidate in steps[-1].choice.candidates[:CANDIDATES]]
            *_, ahead = look_ahead(session, steps[-1].parent, ids, TOKENS)
        return {
            ("a step", "ms"): statistics.median(step.ms.total for step in steps),
            (f"prefill of {PROMPT}", "tokens/s"): prefilled.prompt_tps,  # type: ignore[union-attr]
            (f"look-ahead {CANDIDATES} x {TOKENS}", "ms"): ahead.ms,
        }

    def _model(self, place: int) -> Loaded:
        if place not in self._models:
            _, settings = self.ways()[place]
            self._models[place] = load(settings)
        return self._models[place]

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Afterwards the library is again the one that the model was loaded with."""
        try:
            yield
        finally:
            blas.install(self._loaded.settings.blas)
