"""Layers quantized alone, and mixes of bits: tables, or JSON lines; and a mix as mlx_lm takes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TextIO

from engine import protocol
from engine.protocol import BitMix, LayerBits, LayerBitsEnded, MeasureLayerBits
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary, Writer
from inspector.cli.writers.generation import JsonLines, PlainText, figures
from inspector.display import pad, visible
from inspector.scales import amount, count, percent, time_left
from inspector.state.record_json import Json, number, pick, record_json

FIGURES = ("model",)
LISTED = 12
"""Layers that the table names: those that cost most. JSON lines have all."""
BY = {"kl": "KL alone", "mlx_lm": "mlx_lm"}
NAT = 1 / math.log(2)
"""Bits."""


def writer(request: CliRequest, out: TextIO, err: TextIO | None, reading: BitsReading) -> Writer:
    """The writer that a request asks for; the records are taken in by `reading`."""
    return BitsLines(out, request, reading) if request.jsonl else BitsTables(out, err, request, reading)


class BitsReading:
    """The measurements so far.

    Args:
        command: The bits.
    """

    def __init__(self, command: MeasureLayerBits) -> None:
        self.command = command
        self.layers: list[LayerBits] = []
        self.mixes: list[BitMix] = []
        self.ended: LayerBitsEnded | None = None

    def take(self, record: protocol.Record) -> None:
        """Take in a record."""
        match record:
            case LayerBits():
                self.layers.append(record)
            case BitMix():
                self.mixes.append(record)
            case LayerBitsEnded():
                self.ended = record

    @property
    def dearest(self) -> list[LayerBits]:
        """The layers, those first that cost most for each parameter: the order in which they are raised."""
        return sorted(self.layers, key=lambda layer: -layer.kl_nats / layer.parameters)

    @property
    def ranks(self) -> dict[str, int]:
        """The layers' ranks by mlx_lm's sensitivities, from 1; empty without them."""
        known = dict(self.ended.sensitivities) if self.ended else {}
        return {path: place for place, path in enumerate(sorted(known, key=lambda path: -known[path]), 1)}

    @property
    def correlation(self) -> float | None:
        """Spearman's, of the KL for each parameter and mlx_lm's sensitivities; None without these."""
        ranks, count = self.ranks, len(self.layers)
        if count < 2 or len(ranks) != count:
            return None
        off = sum((place - ranks[layer.path]) ** 2 for place, layer in enumerate(self.dearest, 1))
        return 1 - 6 * off / (count * (count**2 - 1))

    def plan(self, share: float) -> dict[str, object] | None:
        """The mix of the lower KL as the `quantization` of mlx_lm's config.json has it.

        Args:
            share: Of the parameters that are raised.

        Returns:
            None where it was not measured.
        """
        mixes = [each for each in self.mixes if each.share == share]
        mix = min(mixes, key=lambda each: each.kl_nats, default=None)
        if mix is None or self.ended is None:
            return None
        command = self.command
        made: dict[str, object] = {
            "group_size": command.group_size, "bits": command.bits, "mode": "affine",
            **{path: {"group_size": command.group_size, "bits": command.high_bits} for path in mix.high},
        }  # fmt: skip
        for layer in self.ended.fixed:
            own = {
                name: value for name, value in pick(layer, "group_size", "bits").items() if value is not None
            }
            made[layer.path] = own or False
        return made


# ---- JSON lines -------------------------------------------------------------------------------


class BitsLines(JsonLines):
    """Writes the events `model`, a `layer` for each, a `mix` for each, and `bits`."""

    def __init__(self, out: TextIO, request: CliRequest, reading: BitsReading) -> None:
        super().__init__(out, request)
        self._reading = reading

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the event of a record, if it has one."""
        self._reading.take(record)
        match record:
            case protocol.ModelFacts():
                super().take(record, text)
            case LayerBits():
                self._write("layer", pick(record, "path", "parameters", "same_top"), _kl(record))
            case BitMix():
                own = pick(record, "by", "share", "high", "parameters", "bits_per_weight", "same_top")
                self._write("mix", own, _kl(record))
            case _:
                pass

    def end(self, summary: Summary) -> None:
        """Write what else there is; `complete` is false where it was stopped."""
        reading = self._reading
        rest = record_json(reading.ended) if reading.ended else {}
        self._write(
            "bits", {"complete": reading.ended is not None, "spearman": number(reading.correlation)}, rest
        )


def _kl(record: LayerBits | BitMix) -> Json:
    return {"kl_bits": [number(record.kl_nats * NAT), number(record.kl_error * NAT)]}


# ---- tables -----------------------------------------------------------------------------------


class BitsTables(PlainText):
    """Writes the layers that cost most and the mixes once they are measured, or as far as they were."""

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest, reading: BitsReading) -> None:
        super().__init__(out, err, request)
        self._reading = reading
        self._told = False

    def take(self, record: protocol.Record, text: str) -> None:
        """Take in a record, and show how far it is."""
        self._reading.take(record)
        match record:
            case protocol.Measuring():
                self._tell(record)
                self._show(f"{record.done}/{record.total} {record.detail}{time_left(record.left_ms)}")
            case LayerBitsEnded():
                self._notes += record.notes
            case _:
                super().take(record, "")

    def _tell(self, record: protocol.Measuring) -> None:
        """Say once how long it will take, where no progress is shown, too."""
        if record.left_ms is not None and not self._told:
            self._told = True
            self._say(f"{'readings':<12}{record.total} of the text{time_left(record.left_ms)}\n")

    def end(self, summary: Summary) -> None:
        """Write the tables."""
        self._show("")
        reading = self._reading
        tables = [*layer_table(reading), *mix_table(reading)]
        self._out.write("".join(f"{line}\n" for line in tables))
        self._out.flush()
        stopped = [] if reading.ended else [("stopped", "the tables have what was measured until then")]
        tokens = [("tokens", count(reading.ended.tokens))] if reading.ended else []
        self._sum_up([*figures(summary, self._request, FIGURES), *tokens, *stopped])


def layer_table(reading: BitsReading) -> Iterator[str]:
    """The layers that cost most for each parameter."""
    if not reading.layers:
        return
    command, ranks = reading.command, reading.ranks
    yield f"Each layer alone in {command.bits} bits, those that cost most per parameter first"
    width = max(len(layer.path) for layer in reading.layers)
    more = "  mlx_lm's rank" if ranks else ""
    yield f"{pad('layer', width)}  {'parameters':>10}  {'KL, bits':>21}  {'same top':>8}{more}"
    for layer in reading.dearest[:LISTED]:
        rank = f"  {ranks[layer.path]:>13}" if ranks else ""
        yield (
            f"{pad(visible(layer.path), width)}  {amount(layer.parameters):>10}  {_with_error(layer):>21}  "
            f"{percent(layer.same_top):>8}{rank}"
        )
    if (left := len(reading.layers) - LISTED) > 0:
        yield f"and {left} more, which --jsonl has"
    if reading.ended is not None and (fixed := len(reading.ended.fixed)):
        yield f"{fixed} layers keep the bits that the model's family, or the size of their rows, requires"
    if (found := reading.correlation) is not None:
        yield f"Spearman's correlation with mlx_lm's sensitivities: {found:.2f}"


def mix_table(reading: BitsReading) -> Iterator[str]:
    """The mixes, beside one another."""
    if not reading.mixes:
        return
    command = reading.command
    yield ""
    yield f"All layers in {command.bits} bits, some in {command.high_bits}"
    yield f"{'raised':>6}  {'chosen by':<9}  {'bits a weight':>13}  {'KL, bits':>21}  {'same top':>8}"
    for mix in reading.mixes:
        by = BY[mix.by] if mix.high else ""
        yield (
            f"{mix.share:>6.0%}  {by:<9}  {mix.bits_per_weight:>13.2f}  {_with_error(mix):>21}  "
            f"{percent(mix.same_top):>8}"
        )


def _with_error(of: LayerBits | BitMix) -> str:
    return f"{of.kl_nats * NAT:.6f} ± {of.kl_error * NAT:.6f}"
