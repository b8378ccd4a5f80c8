"""A training so far: live, or the recorded one that comes with the program. Pure; needs no MLX."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from engine.protocol import CheckpointSaved, NextToken, Record, TrainedStep, TrainingBegun, TrainingLook
from inspector.display import token_label, visible

RECORDING = Path(__file__).with_name("training.trace.zst")
"""A longer training: what `tests.make_demo.train` recorded."""
RECENT = 10
"""Steps whose mean is shown as the present figure."""


def next_label(token: NextToken) -> str:
    """A token on one line; its id if its bytes, which aren't known, are no character alone."""
    return f"‹id {token.id}›" if "�" in token.text else token_label(token.text)


class LookAt(Struct, frozen=True):
    """A look at the model's knowledge at a step."""

    step: int
    look: TrainingLook


class TrainingSoFar:
    """One training, as far as its records came."""

    def __init__(self) -> None:
        self.begun: TrainingBegun | None = None
        self.steps: list[TrainedStep] = []
        self.checkpoints: list[CheckpointSaved] = []
        """Checkpoints to go back to, the earliest first."""

    @property
    def step(self) -> int:
        """Steps made."""
        latest = self.steps[-1] if self.steps else self.begun
        return latest.step if latest is not None else 0

    @property
    def over(self) -> bool:
        """True if the last step is made."""
        return self.begun is not None and self.step >= self.begun.settings.steps

    @property
    def looks(self) -> list[LookAt]:
        """The looks so far."""
        return [LookAt(each.step, each.look) for each in self.steps if each.look is not None]

    def apply(self, record: Record) -> None:
        """Take in one record; one of something else changes nothing."""
        match record:
            case TrainingBegun():  # or a step of this training that was gone back to: forget what came after it
                last = record.step if self.begun is not None and record.step > 0 else -1
                self.begun = record
                self.steps = [each for each in self.steps if each.step <= last]
                self.checkpoints = [each for each in self.checkpoints if each.step <= last]
            case TrainedStep():
                self.steps.append(record)
            case CheckpointSaved():
                self.checkpoints = [each for each in self.checkpoints if each.step < record.step] + [record]


def part_label(name: str) -> str:
    """The name of a part as the screen has it, where layers count from 1: `L1`; printable."""
    kind, _, number = name.partition(" ")
    return f"L{int(number) + 1}" if kind == "layer" and number.isdecimal() else visible(name)


@cache
def whole_training() -> TrainingSoFar:
    """The training that comes with the program, up to its end."""
    made = TrainingSoFar()
    for record in recorded():
        made.apply(record)
    return made


def recorded() -> Iterator[Record]:
    """The records of the training that comes with the program."""
    from engine.recording import RecordingReader  # once it is played

    for entry in RecordingReader(RECORDING):
        assert isinstance(entry.value, Record)
        yield entry.value
