"""Tables of measurements: a profile, a race, a training while it runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import PurePath

from engine import protocol
from engine.protocol import Record, TrainedStep, TrainingBegun, TrainingLook
from inspector.blocks.blocks import Block, Fact, sentences
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary
from inspector.cli.writers.generation import Report
from inspector.display import truncate, visible
from inspector.documents.costs import document
from inspector.documents.race import document as race_document
from inspector.documents.race import progress
from inspector.scales import amount, count, milliseconds, time_left
from inspector.state.measured import Measured
from inspector.state.training import next_label

SHOWN = 3
"""Number of candidates after the prompt in a line."""
TEXT_CELLS = 110
"""Most cells of a sample, which has its own line."""


class Measurements(Report):
    """The tables of each measurement, as soon as it is made."""

    def progress(self, record: Record) -> str | None:
        if isinstance(record, protocol.Step):
            return f"decoding: {record.index + 1} tokens"
        return super().progress(record)

    def lines(self, record: Record) -> Iterable[str]:
        """The tables of a measurement."""
        blocks: Iterable[Block] = ()
        match record:
            case protocol.Profiled() | protocol.RooflineMeasured() | protocol.KVCompared(last=True):
                blocks = document(record)
            case protocol.MetalCaptured():
                took = f"A step of {record.ms:.1f} ms, as Metal recorded it; Xcode opens the file."
                blocks = sentences([f"Metal wrote {visible(record.path)}", took], "")
            case _:
                return
        yield from (*self.drawn(blocks), "")


class RaceReport(Report):
    """Medians of windows, the chart and the verdict; for an interrupted race, of its steps so far."""

    names = ("model", "seed")
    measures = "race: "

    def __init__(self) -> None:
        self._state = Measured()

    def take(self, record: Record) -> None:
        self._state.apply(record)

    def progress(self, record: Record) -> str | None:
        if isinstance(record, protocol.RaceStep) and (race := self._state.race) is not None:
            return progress(race.opened, record)
        return super().progress(record)

    def rest(self) -> Iterable[str]:
        """The document of the race."""
        race = self._state.race
        if race is None or not race.steps:
            return ()
        return self.drawn(race_document(race.opened, race.steps))

    def costs(self, summary: Summary, request: CliRequest) -> list[Fact]:
        race = self._state.race
        over = race is not None and race.tokens >= race.opened.last
        return super().costs(summary, request) + ([] if over else [("race", "cancelled")])


class TrainingLooks(Report):
    """The model and its settings, a few lines at each evaluation, and the folder of the checkpoints."""

    _begun: TrainingBegun | None = None
    _saved: protocol.CheckpointSaved | None = None

    def take(self, record: Record) -> None:
        """Keep the beginning of the training, and the last checkpoint."""
        if isinstance(record, TrainingBegun):
            self._begun = record
        elif isinstance(record, protocol.CheckpointSaved):
            self._saved = record

    def progress(self, record: Record) -> str | None:
        if not isinstance(record, TrainedStep) or self._begun is None:
            return None
        steps = self._begun.settings.steps
        left = time_left(record.left_ms) if record.step < steps else ""
        return f"step {record.step}/{steps}  loss {record.loss:.3f}  {milliseconds(record.ms)}{left}"

    def lines(self, record: Record) -> Iterable[str]:
        """The model and its settings, and an evaluation."""
        if isinstance(record, TrainingBegun):
            return opening_lines(record)
        if not isinstance(record, TrainedStep) or record.look is None or self._begun is None:
            return ()
        sample = truncate(visible(self._begun.settings.prompt + record.look.sample), TEXT_CELLS)
        return step_line(record, record.look, self._begun), f"  {sample}"

    def costs(self, summary: Summary, request: CliRequest) -> list[Fact]:
        """The command that continues the training."""
        begun, lines = self._begun, []
        if begun is not None and begun.step >= begun.settings.steps:
            lines = [("over", f"all {count(begun.settings.steps)} steps were made; --steps N gives it more")]
        if self._saved is not None:
            path = PurePath(self._saved.directory)
            lines.append(("saved", str(path)))
            lines.append(("open it", f"inspector --model {shlex.quote(str(path))}"))
            lines.append(("continue", f"inspector train --resume {shlex.quote(str(path.parent))}"))
        return lines


def opening_lines(begun: TrainingBegun) -> list[str]:
    """Lines about the model that is trained, and its text."""
    settings, ms = begun.settings, begun.tokenizer_ms
    made = "its own" if ms is None else f"learned from it in {milliseconds(ms)}"
    taken_up = f", after {count(begun.step)} steps" if begun.step else ""
    facts = {
        "text": f"{visible(begun.text)}: {count(begun.tokens)} tokens, and {count(begun.held_out_tokens)} held out",
        "tokenizer": f"{count(begun.vocabulary)} tokens, {made}",
        "model": f"llama, {settings.layers} layers of width {settings.width}, {amount(begun.parameters)} parameters"
                 f"{taken_up}",
        "training": f"{count(settings.steps)} steps of {settings.rows} x {settings.row_tokens} tokens, seed "
                    f"{settings.seed}; loss in nats, as a mean over tokens",
    }  # fmt: skip
    return [*(f"{name:<12}{text}" for name, text in facts.items()), ""]


def step_line(record: TrainedStep, look: TrainingLook, begun: TrainingBegun) -> str:
    """The losses, the gradient and the most probable next tokens, on one line."""
    nexts = "  ".join(f"{next_label(each)} {each.prob:.0%}" for each in look.candidates[:SHOWN])
    norm = sum(each**2 for each in record.norms) ** 0.5
    width = len(str(begun.settings.steps))
    return (
        f"step {record.step:>{width}}  loss {record.loss:.3f}  held out {look.held_out_loss:.3f}  "
        f"gradient {norm:.2f}  rate {record.rate:.5f}  next {nexts}"
    )
