"""The cost of each layer when it alone has fewer bits, and which layers to keep in more: KL, measured, not estimated.

A layer's weights are replaced by what quantizing leaves of them, the texts are read, and the weights are put back: the
same arrays, so that the model is what it was, bit for bit. Readings are those of `DiffText`, of the model against
itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from engine.errors import Cancelled, LoadError, PromptError, first_line
from engine.frozen import frozen
from engine.lockstep.second import check_bits
from engine.lockstep.spans import (
    ChunkedRows,
    kl_nats,
    leading_marks,
    logprobs_of,
    one_by_one,
    window_size,
    windows,
)
from engine.memory import size_words
from engine.model.load import Loaded
from engine.model.weights import MEMORY_SHARE, free_bytes, quantization_plan
from engine.protocol import (
    BitMix,
    FixedLayer,
    LayerBits,
    LayerBitsEnded,
    MeasureLayerBits,
    Measuring,
    Ranking,
)
from engine.sampling.ranking import Row
from engine.task import Stopped

SAMPLE_TOKENS = 512
"""Tokens of a sequence in mlx_lm's estimate, as its own command has them."""
ESTIMATE_TAKES = 3
"""Times the weights that mlx_lm's estimate needs beside them: a copy, its gradients, and their sum."""
LayerBitsRecord = Measuring | LayerBits | BitMix | LayerBitsEnded


def layer_bits(loaded: Loaded, command: MeasureLayerBits, stopped: Stopped) -> Iterator[LayerBitsRecord]:
    """Measure every layer quantized alone, then mixes of bits.

    Args:
        loaded: A model of plain weights, which are put back.
        command: The texts and the bits.
        stopped: Polled before each chunk of a text.

    Yields:
        A `LayerBits` for each layer, a `BitMix` for each mix, and one `LayerBitsEnded`.

    Raises:
        LoadError: The model is quantized already, or has no layer that can be.
        PromptError: The texts have no token to score, or too many for the memory that is free.
        Cancelled: `stopped` returned True; the weights are put back.
    """
    run = LayerBitsRun(loaded, command, stopped)
    yield from run.begin()
    yield from run.alone()
    yield from run.estimate()
    yield from run.mixes()
    yield run.ended()


@frozen
class _Piece:
    """A window of a text, and what the model makes of it as it is."""

    ids: Sequence[int]
    first: int
    """Place of the first token that is scored."""
    rows: Sequence[Row]
    """Before each scored token."""
    ends: Sequence[int]
    """Where the chunks ended in which they ran."""


@frozen
class _Apart:
    """How far a changed model is from itself."""

    kl_nats: float
    kl_error: float
    same_top: float


class LayerBitsRun:
    """One measurement; see `layer_bits`."""

    def __init__(self, loaded: Loaded, command: MeasureLayerBits, stopped: Stopped) -> None:
        _check(loaded, command)
        self._loaded, self._command, self._stopped = loaded, command, stopped
        self._begun = time.perf_counter()
        plan = quantization_plan(loaded.model, command.group_size)
        self._modules = dict(loaded.model.named_modules())
        self._layers = {path: self._modules[path] for path, chosen in plan.items() if chosen is True}
        self._fixed = {path: chosen for path, chosen in plan.items() if chosen is not True}
        """What the model's family decides of a layer: its own parameters, or False for none."""
        if not self._layers:
            raise LoadError(
                f"No layer of this model can be divided into groups of {command.group_size}.",
                "Use smaller groups.",
            )
        self._stored: mx.Dtype | None = getattr(mx, loaded.facts.stored) if loaded.facts.stored else None
        """The type of the weights in the files, where they are computed in another one; it is those in the files that
        are quantized, as mlx_lm.convert does."""
        self._alone: dict[str, LayerBits] = {}
        self._sensitivities: dict[str, float] = {}
        self._notes: list[str] = []
        self._pieces: list[_Piece] = []
        self._readings, self._total = 0, 2 + len(self._layers) + 2 * len(command.shares)
        self._read_ms = 0.0

    # ---- readings ---------------------------------------------------------------------------

    def begin(self) -> Iterator[Measuring]:
        """Read the texts in the model as it is."""
        windows_of = [each for text in self._command.texts for each in self._windows(text)]
        count = sum(len(ids) - first for ids, first in windows_of)
        if not count:
            raise PromptError("The texts have no token to score.", "Give a longer text.")
        self._check_room(count)
        yield self._measuring("the model as it is")
        begun = time.perf_counter()
        for ids, first in windows_of:
            rows = self._rows(ids, None)
            self._pieces.append(
                _Piece(ids, first, [rows.after(place - 1) for place in range(first, len(ids))], rows.ends)
            )
        self._count(begun)

    def _windows(self, text: str) -> Iterator[tuple[Sequence[int], int]]:
        """The windows of a text, each with the place of its first token that is scored, as `DiffText` reads them."""
        tokens = self._loaded.tokens
        ids = tokens.encode(text)
        marks = leading_marks(tokens, ids)
        size = window_size(self._loaded.facts.context_window, self._command.window) - len(marks)
        for window in windows(one_by_one(len(ids)), size, size):
            before = marks if window.first else []
            scored = max(1, len(before) + window.scored - window.first)
            yield [*before, *ids[window.first : window.end]], scored

    def _check_room(self, count: int) -> None:
        free, row = free_bytes(), 4 * self._loaded.tokens.vocabulary
        if free is not None and count * row > MEMORY_SHARE * free:
            raise PromptError(
                f"The logits of {count:,} tokens take {size_words(count * row)}, more than half of what is free.",
                f"Give texts of {int(MEMORY_SHARE * free / row):,} tokens at most, or close other programs.",
            )

    def _rows(self, ids: Sequence[int], ends: Sequence[int] | None) -> ChunkedRows:
        return ChunkedRows(self._loaded.runner(), self._loaded.tokens.vocabulary, ids, self._stopped, ends)

    def _apart(self, weights: Mapping[str, mx.array]) -> _Apart:
        """How far the model is from itself with other weights in some of its modules, which are named by path."""
        begun, kl, same = time.perf_counter(), list[float](), 0
        with _replaced([(self._modules[path], each) for path, each in weights.items()]):
            for piece in self._pieces:
                rows = self._rows(piece.ids, piece.ends)
                for place, one in enumerate(piece.rows, piece.first):
                    other = rows.after(place - 1)
                    kl.append(kl_nats(logprobs_of(one), logprobs_of(other)))
                    same += bool(one.argmax() == other.argmax())
        self._count(begun)
        error = float(np.std(kl, ddof=1)) / math.sqrt(len(kl)) if len(kl) > 1 else 0.0
        return _Apart(math.fsum(kl) / len(kl), error, same / len(kl))

    def _count(self, begun: float) -> None:
        self._readings += 1
        self._read_ms += (time.perf_counter() - begun) * 1000

    def _measuring(self, detail: str) -> Measuring:
        left = self._read_ms / self._readings * (self._total - self._readings) if self._readings else None
        return Measuring(self._command.kind, self._readings, self._total, detail, left)

    # ---- layers and mixes -------------------------------------------------------------------

    def alone(self) -> Iterator[Measuring | LayerBits]:
        """Each layer quantized alone."""
        for path, module in self._layers.items():
            yield self._measuring(path)
            apart = self._apart({path: self._quantized(module, self._command.bits)})
            self._alone[path] = LayerBits(
                path, module.weight.size, apart.kl_nats, apart.kl_error, apart.same_top
            )
            yield self._alone[path]

    def _quantized(self, module: Any, bits: int, group_size: int | None = None) -> mx.array:
        """What quantizing leaves of a module's weights, in the type that it computes in."""
        group_size = group_size or self._command.group_size
        weight = module.weight
        stored = weight if self._stored is None else weight.astype(self._stored)
        packed, *scaling = mx.quantize(stored, group_size, bits)
        scales, biases = (each.astype(weight.dtype) for each in scaling)
        return mx.dequantize(packed, scales, biases, group_size, bits)

    def estimate(self) -> Iterator[Measuring]:
        """mlx_lm's own sensitivities, from one gradient of the model with all layers quantized."""
        from engine.measuring.sensitivities import estimated  # mlx_lm's trainer comes with it: half a second

        if why := self._short_of(ESTIMATE_TAKES):
            self._notes.append(f"mlx_lm's sensitivities are left out: they need {why}.")
            return
        samples = [ids for piece in self._pieces for ids in _samples(piece.ids)]
        yield self._measuring("mlx_lm's sensitivities")
        try:
            found = estimated(self._loaded.model, samples, self._command, self._stopped)
        except Cancelled:
            raise
        except Exception as error:  # a family may have no gradient, or layers that the groups don't divide
            self._notes.append(
                f"mlx_lm's sensitivities are left out: it can't estimate them here ({first_line(error)})."
            )
            return
        self._sensitivities = {path: found[path] for path in self._layers if path in found}

    def mixes(self) -> Iterator[Measuring | BitMix]:
        """All layers in few bits, then the best of each ranking in more."""
        if why := self._short_of(1):
            self._notes.append(f"Mixes of bits are left out: they need {why}.")
            return
        low = {path: self._quantized(module, self._command.bits) for path, module in self._layers.items()}
        own = {
            path: self._quantized(
                self._modules[path], chosen.get("bits", self._command.bits), chosen.get("group_size")
            )
            for path, chosen in self._fixed.items()
            if chosen
        }
        rankings: dict[Ranking, Mapping[str, float]] = {
            "kl": {path: each.kl_nats / each.parameters for path, each in self._alone.items()}
        }
        if self._sensitivities:
            rankings["mlx_lm"] = self._sensitivities
        self._total = self._readings + 1 + len(rankings) * len(self._command.shares)
        for share in (0.0, *self._command.shares):
            chosen_by: tuple[Ranking, ...] = tuple(rankings) if share else ("kl",)
            for by in chosen_by:
                yield self._measuring(f"{share:.0%} of the parameters at {self._command.high_bits} bits")
                high = self._best(rankings[by], share)
                raised = {path: self._quantized(self._layers[path], self._command.high_bits) for path in high}
                yield self._mix(by, share, high, self._apart(low | own | raised))

    def _best(self, worth: Mapping[str, float], share: float) -> tuple[str, ...]:
        """The layers that are worth most, as many as fit a share of the parameters."""
        room, taken = share * sum(each.parameters for each in self._alone.values()), []
        for path in sorted(worth, key=lambda path: -worth[path]):
            if (size := self._alone[path].parameters) <= room:
                room -= size
                taken.append(path)
        return tuple(taken)

    def _mix(self, by: Ranking, share: float, high: tuple[str, ...], apart: _Apart) -> BitMix:
        sizes = {path: each.parameters for path, each in self._alone.items()}
        raised, total = sum(sizes[path] for path in high), sum(sizes.values())
        bits = self._command.bits + (self._command.high_bits - self._command.bits) * raised / total
        stored = self._stored or getattr(mx, self._loaded.facts.dtype)
        scaling = 2 * 8 * stored.size / self._command.group_size
        return BitMix(by, share, high, raised, bits + scaling, apart.kl_nats, apart.kl_error, apart.same_top)

    def _short_of(self, times: float) -> str:
        """The memory that is needed beside the weights and what is free, where that is less; else empty."""
        free = free_bytes()
        needed = int(times * sum(module.weight.nbytes for module in self._layers.values()))
        return (
            f"{size_words(needed)}, and {size_words(free)} are free"
            if free is not None and needed > free
            else ""
        )

    def ended(self) -> LayerBitsEnded:
        """The last records of the measurement."""
        fixed = tuple(
            FixedLayer(path, *((chosen.get("bits"), chosen.get("group_size")) if chosen else (None, None)))
            for path, chosen in self._fixed.items()
        )
        tokens = sum(len(piece.rows) for piece in self._pieces)
        ms = (time.perf_counter() - self._begun) * 1000
        return LayerBitsEnded(tokens, tuple(self._sensitivities.items()), fixed, tuple(self._notes), ms)


def _check(loaded: Loaded, command: MeasureLayerBits) -> None:
    check_bits(command.bits, command.group_size)
    check_bits(command.high_bits, command.group_size)
    if command.high_bits <= command.bits:
        raise LoadError(
            f"{command.high_bits} bits are not more than {command.bits}.",
            "Give more bits for the best layers.",
        )
    if how := loaded.facts.quantized:
        raise LoadError(
            f"The weights of {loaded.facts.name} are quantized already ({how}).",
            "Open the model that it was made from.",
        )
    if loaded.settings.adapter_path is not None:
        raise LoadError(
            "The layers would be quantized without the model's adapter.",
            "Fuse it first (mlx_lm.fuse), and measure the fused model.",
        )


@contextmanager
def _replaced(weights: Sequence[tuple[Any, mx.array]]) -> Iterator[None]:
    """Other weights in some modules; afterwards those that they had."""
    before = [module.weight for module, _ in weights]
    try:
        for module, weight in weights:
            mx.eval(weight)
            module.weight = weight
        yield
    finally:
        for (module, _), weight in zip(weights, before, strict=True):
            module.weight = weight


def _samples(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for begin in range(0, len(ids), SAMPLE_TOKENS):
        yield ids[begin : begin + SAMPLE_TOKENS]
