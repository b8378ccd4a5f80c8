"""A training as it goes: a line each time the model is looked at, or JSON lines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import TextIO

from engine import protocol
from engine.protocol import CheckpointSaved, TrainedStep, TrainingBegun, TrainingLook
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary, Writer
from inspector.cli.writers.generation import PlainText
from inspector.cli.writers.json_lines import JsonLines
from inspector.display import token_label, truncate, visible
from inspector.scales import amount, count, milliseconds, time_left

SHOWN = 3
"""Candidates after the prompt that a line names."""
TEXT_CELLS = 110
"""Of a sample, on a line of its own."""


def training_writer(request: CliRequest, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    return JsonLines(out, request) if request.jsonl else TrainingLooks(out, err, request)


class TrainingLooks(PlainText):
    """Writes what is trained, a few lines at each look, and where the checkpoints are."""

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest) -> None:
        super().__init__(out, err, request)
        self._begun: TrainingBegun | None = None
        self._saved: CheckpointSaved | None = None

    def take(self, record: protocol.Record, text: str) -> None:
        """Write a record."""
        match record:
            case TrainingBegun():
                self._begun = record
                self._put(opening_lines(record))
            case TrainedStep() if self._begun is not None:
                self._take_step(record, self._begun)
            case CheckpointSaved():
                self._saved = record
            case _:
                pass

    def _take_step(self, record: TrainedStep, begun: TrainingBegun) -> None:
        if record.look is not None:
            self._show("")
            self._put([step_line(record, record.look, begun), sample_line(record.look, begun)])
        left = time_left(record.left_ms) if record.step < begun.settings.steps else ""
        self._show(
            f"step {record.step}/{begun.settings.steps}  loss {record.loss:.3f}  {milliseconds(record.ms)}{left}"
        )

    def end(self, summary: Summary) -> None:
        """Write where it is."""
        self._show("")
        begun = self._begun
        if begun is not None and begun.step >= begun.settings.steps:
            self._say(
                f"{'over':<12}all {count(begun.settings.steps)} steps were made; --steps N gives it more\n"
            )
        if self._saved is None:
            return
        path = PurePath(self._saved.directory)
        self._say(
            f"{'saved':<12}{visible(str(path))}\n{'open it':<12}inspector --model {_typed(path)}\n"
            f"{'continue':<12}inspector train --resume {_typed(path.parent)}\n"
        )

    def _put(self, lines: Sequence[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()


def opening_lines(begun: TrainingBegun) -> list[str]:
    """Lines on the model that is trained, and its text."""
    settings = begun.settings
    made = (
        f"learned from it in {milliseconds(begun.tokenizer_ms)}"
        if begun.tokenizer_ms is not None
        else "its own"
    )
    taken_up = f", after {count(begun.step)} steps" if begun.step else ""
    return [
        f"{'text':<12}{visible(begun.text)}: {count(begun.tokens)} tokens, "
        f"and {count(begun.held_out_tokens)} held out",
        f"{'tokenizer':<12}{count(begun.vocabulary)} tokens, {made}",
        f"{'model':<12}llama, {settings.layers} layers of width {settings.width}, "
        f"{amount(begun.parameters)} parameters{taken_up}",
        f"{'training':<12}{count(settings.steps)} steps of {settings.rows} x {settings.row_tokens} tokens, "
        f"seed {settings.seed}; loss in nats, as a mean over tokens",
        "",
    ]


def step_line(record: TrainedStep, look: TrainingLook, begun: TrainingBegun) -> str:
    """The losses, the gradient and what comes next, on one line."""
    nexts = "  ".join(f"{token_label(each.text)} {each.prob:.0%}" for each in look.candidates[:SHOWN])
    norm = sum(each**2 for each in record.norms) ** 0.5
    width = len(str(begun.settings.steps))
    return (
        f"step {record.step:>{width}}  loss {record.loss:.3f}  held out {look.held_out_loss:.3f}  "
        f"gradient {norm:.2f}  rate {record.rate:.5f}  next {nexts}"
    )


def sample_line(look: TrainingLook, begun: TrainingBegun) -> str:
    """The text that it writes now."""
    return f"  {truncate(visible(begun.settings.prompt + look.sample), TEXT_CELLS)}"


def _typed(path: PurePath) -> str:
    """A path as a person types it to a shell."""
    return visible(shlex.quote(str(path)))
