"""A small model that is trained while one looks on: its beginning, its steps and its checkpoints."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from engine.protocol.base import Command, Count, Finite, Record
from engine.settings import TrainingSettings


class BeginTraining(Command, frozen=True):
    """Read the text, train a tokenizer and make a model of random weights; answered by one `TrainingBegun`.

    The model that was trained before is dropped; that of the session stays.
    """

    needs_model: ClassVar[bool] = False
    settings: TrainingSettings


class ResumeTraining(Command, frozen=True):
    """Go on from a checkpoint, or back to it; answered by one `TrainingBegun`."""

    needs_model: ClassVar[bool] = False
    checkpoint: str
    """Its directory."""
    steps: Count | None = None
    """Of the whole training from now on; None for those that it was begun with."""


class Train(Command, frozen=True):
    """Make steps, until the last of the training; answered by a `TrainedStep` each, and `CheckpointSaved`."""

    needs_model: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    steps: Count = 1
    directory: str = ""
    """Where checkpoints go, each into a directory of its own; empty for none. The last one is written when the steps
    are made, and also when the command is cancelled."""
    save_every: Count = 0
    """Steps between two checkpoints besides; 0 for none."""


class SaveCheckpoint(Command, frozen=True):
    """Write the model as it is, with its tokenizer, as mlx_lm loads it; answered by `CheckpointSaved`."""

    needs_model: ClassVar[bool] = False
    directory: str
    """The checkpoint becomes a directory in this one, which is made if it isn't there."""


class TrainingBegun(Record, frozen=True):
    """A model is there to be trained."""

    lasting: ClassVar[bool] = False
    settings: TrainingSettings
    text: str
    """What it learns from, in a few words."""
    step: Count
    """Steps made until now: 0, or those of the checkpoint."""
    parameters: Count
    vocabulary: Count
    """Tokens of its tokenizer: fewer than were asked for where the text has no more pairs to merge."""
    tokens: Count
    """Of the text, without those held out."""
    held_out_tokens: Count
    """At the end of the text, which it never learns from."""
    parts: tuple[str, ...]
    """Names of the parts whose gradient norms each step has."""
    tokenizer_ms: Finite | None
    """For which the tokenizer was trained; None for that of a checkpoint."""
    blas: str = ""
    """What multiplies matrices on a CPU; empty for what MLX brings."""


class Continuation(Struct, frozen=True):
    """A token that may come next."""

    id: Count
    text: str
    prob: float


class TrainingLook(Struct, frozen=True):
    """A report on the model after some step."""

    held_out_loss: float
    """Mean over tokens that it never learns from, in nats."""
    candidates: tuple[Continuation, ...]
    """The most probable tokens after the prompt, best first."""
    sample: str
    """How it goes on after the prompt, drawn at temperature 0.8 with the training's seed."""
    ms: Finite


class TrainedStep(Record, frozen=True):
    """One step of the training."""

    lasting: ClassVar[bool] = False
    step: Count
    """Steps made, with this one."""
    loss: float
    """Mean over the batch before the step, in nats."""
    rate: Finite
    """The learning rate."""
    norms: tuple[float, ...]
    """Norm of the gradient in each part, in the order of `TrainingBegun.parts`, before it is clipped."""
    tokens: Count
    """Learned from until now, repeats included."""
    ms: Finite
    """Without the look."""
    left_ms: Finite
    """Estimated time to the end of the training, looks included, by how long the last steps took."""
    look: TrainingLook | None = None
    """Every few steps, after the first one and after the last one."""


class CheckpointSaved(Record, frozen=True):
    """A checkpoint was written."""

    lasting: ClassVar[bool] = False
    step: Count
    directory: str
    """Absolute: what opens as a model."""
