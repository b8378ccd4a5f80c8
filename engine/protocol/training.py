"""Live training of a small model: its start, its steps and its checkpoints."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from engine.protocol.base import Command, Count, Finite, Record, Stoppable
from engine.settings import TrainingSettings


class BeginTraining(Command, frozen=True):
    """Read the text, train a tokenizer and make a model with random weights; answered by one `TrainingBegun`.

    The model of an earlier training is dropped; the session's model stays.
    """

    needs_model: ClassVar[bool] = False
    settings: TrainingSettings


class ResumeTraining(Command, frozen=True):
    """Continue from a checkpoint, or go back to one; answered by one `TrainingBegun`."""

    needs_model: ClassVar[bool] = False
    checkpoint: str
    """Directory of the checkpoint."""
    steps: Count | None = None
    """New number of steps of the whole training; None to keep the checkpoint's."""


class Train(Stoppable, frozen=True):
    """Train for some steps, at most up to the last one; answered by a `TrainedStep` for each, and `CheckpointSaved`."""

    needs_model: ClassVar[bool] = False
    steps: Count = 1
    directory: str = ""
    """Directory for checkpoints, each in its own subdirectory; empty for none. A last checkpoint is written after the
    steps, even if the command is cancelled."""
    save_every: Count = 0
    """Interval of additional checkpoints, in steps of the whole training; 0 for none."""


class SaveCheckpoint(Command, frozen=True):
    """Write the model with its tokenizer, in mlx_lm's format; answered by `CheckpointSaved`."""

    needs_model: ClassVar[bool] = False
    directory: str
    """Parent of the checkpoint's directory; made if it doesn't exist."""


class TrainingBegun(Record, frozen=True):
    """A model is ready to be trained."""

    lasting: ClassVar[bool] = False
    settings: TrainingSettings
    text: str
    """Short description of the training text."""
    step: Count
    """Number of steps made so far: 0, or the checkpoint's."""
    parameters: Count
    vocabulary: Count
    """Number of tokens of the tokenizer: fewer than requested if the text has no more pairs to merge."""
    tokens: Count
    """Number of tokens of the text, without the held-out ones."""
    held_out_tokens: Count
    """Number of tokens at the end of the text that are held out of training."""
    parts: tuple[str, ...]
    """Names of the parts of the model, in the order of `TrainedStep.norms`."""
    tokenizer_ms: Finite | None
    """Time to train the tokenizer; None for the tokenizer of a checkpoint."""
    blas: str = ""
    """Name and version of the fast library that multiplies matrices on a CPU; empty for MLX's own."""


class NextToken(Struct, frozen=True):
    """A possible next token."""

    id: Count
    text: str
    prob: float


class TrainingLook(Struct, frozen=True):
    """A report on the model after a step."""

    held_out_loss: float
    """Mean loss over held-out tokens, in nats."""
    candidates: tuple[NextToken, ...]
    """Most probable tokens after the prompt, best first."""
    sample: str
    """Continuation of the prompt, drawn at temperature 0.8 with the training's seed."""
    ms: Finite


class TrainedStep(Record, frozen=True):
    """One step of the training."""

    lasting: ClassVar[bool] = False
    step: Count
    """Number of steps made, including this one."""
    loss: float
    """Mean loss over the batch, before the update, in nats."""
    rate: Finite
    """Learning rate of the step."""
    norms: tuple[float, ...]
    """Gradient norm of each part, in the order of `TrainingBegun.parts`, before clipping."""
    tokens: Count
    """Number of tokens trained on so far, including repeats."""
    ms: Finite
    """Time of the step, without the report."""
    left_ms: Finite
    """Estimated time to the end of the training, including reports, from the times of the last steps."""
    look: TrainingLook | None = None
    """Report, made every few steps and after the first and the last one; otherwise None."""


class CheckpointSaved(Record, frozen=True):
    """A checkpoint was written."""

    lasting: ClassVar[bool] = False
    step: Count
    directory: str
    """Absolute path of the checkpoint, which can be opened as a model."""
