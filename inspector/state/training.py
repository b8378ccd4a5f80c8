"""The state of a training, live or the recorded one that comes with the program. Pure; needs no MLX."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from engine.protocol import CheckpointSaved, NextToken, Record, TrainedStep, TrainingBegun, TrainingLook
from inspector.display import token_label, visible

RECORDING = Path(__file__).with_name("training.trace.zst")
"""A longer training, recorded by `tests.make_demo.train`."""
RECENT = 10
"""Number of last steps whose mean is shown as the current figure."""


def next_label(token: NextToken) -> str:
    """A token on one line; its id if its bytes, which aren't known, aren't whole characters."""
    return f"‹id {token.id}›" if "�" in token.text else token_label(token.text)


class LookAt(Struct, frozen=True):
    """The state of the model's learning at a step."""

    step: int
    look: TrainingLook


class TrainingSoFar:
    """One training, as far as its records have arrived."""

    def __init__(self) -> None:
        self.begun: TrainingBegun | None = None
        self.steps: list[TrainedStep] = []
        self.checkpoints: list[CheckpointSaved] = []
        """Checkpoints to go back to, the earliest first."""

    @property
    def step(self) -> int:
        """Number of steps made."""
        latest = self.steps[-1] if self.steps else self.begun
        return latest.step if latest is not None else 0

    @property
    def over(self) -> bool:
        """True if the last step is made."""
        return self.begun is not None and self.step >= self.begun.settings.steps

    @property
    def looks(self) -> list[LookAt]:
        return [LookAt(each.step, each.look) for each in self.steps if each.look is not None]

    def apply(self, record: Record) -> None:
        """Apply one record; a record that isn't about the training changes nothing."""
        match record:
            case TrainingBegun():  # also sent when this training goes back to a step: drop everything after it
                last = record.step if self.begun is not None and record.step > 0 else -1
                self.begun = record
                self.steps = [each for each in self.steps if each.step <= last]
                self.checkpoints = [each for each in self.checkpoints if each.step <= last]
            case TrainedStep():
                self.steps.append(record)
            case CheckpointSaved():
                self.checkpoints = [each for each in self.checkpoints if each.step < record.step] + [record]


def part_label(name: str) -> str:
    """The name of a part as shown on the screen, with layers counted from 1: `L1`; printable."""
    kind, _, number = name.partition(" ")
    return f"L{int(number) + 1}" if kind == "layer" and number.isdecimal() else visible(name)


@cache
def whole_training() -> TrainingSoFar:
    """The training that comes with the program, with all its records."""
    made = TrainingSoFar()
    for record in recorded():
        made.apply(record)
    return made


def recorded() -> Iterator[Record]:
    """The records of the training that comes with the program."""
    from engine.recording import RecordingReader  # imported only if the recording is played

    for entry in RecordingReader(RECORDING):
        assert isinstance(entry.value, Record)
        yield entry.value
