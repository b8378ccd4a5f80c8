"""The commands that train a small model beside the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx

from engine import protocol
from engine.errors import Cancelled, StepError
from engine.files import typed
from engine.model import blas
from engine.protocol import CheckpointSaved, Record, TrainingBegun
from engine.session.context import Context
from engine.setting import check
from engine.task import Task
from engine.training.checkpoints import TakenUp, save, take_up
from engine.training.learner import Learner
from engine.training.text import encode, read_text, train_tokenizer


class _Kept:
    training: TakenUp | None = None


def begin_training(context: Context, command: protocol.BeginTraining, task: Task) -> Iterator[Record]:
    """Begin a training."""
    settings = check(command.settings)
    text = read_text(settings.texts)
    served = _prepare(context)
    tokenizer, ms = train_tokenizer(text, settings.vocabulary)
    learner = Learner(settings, tokenizer, encode(text, tokenizer, settings, task.cancel.is_set))
    training = context.of_session(_Kept).training = TakenUp(learner, text)
    yield _begun(training, served, ms)


def resume_training(context: Context, command: protocol.ResumeTraining, task: Task) -> Iterator[Record]:
    """Continue a training from a checkpoint."""
    served = _prepare(context)
    training = context.of_session(_Kept).training = take_up(typed(command.checkpoint), command.steps)
    yield _begun(training, served)


def _begun(training: TakenUp, served: str, tokenizer_ms: float | None = None) -> TrainingBegun:
    learner = training.learner
    return TrainingBegun(
        settings=learner.settings,
        text=training.text.name,
        step=learner.step,
        parameters=learner.parameters,
        vocabulary=learner.config["vocab_size"],
        tokens=len(learner.tokens.train),
        held_out_tokens=len(learner.tokens.held_out),
        parts=learner.parts,
        tokenizer_ms=tokenizer_ms,
        blas=served,
    )


def _prepare(context: Context) -> str:
    """Prepare MLX as for a model that is loaded; returns the name of what multiplies its matrices."""
    if context.loaded is not None:
        return context.loaded.facts.blas
    if mx.default_device() == mx.Device(mx.cpu):
        mx.disable_compile()  # see `engine.model.load.prepare`
    return blas.install().name


def _training(context: Context) -> TakenUp:
    training = context.of_session(_Kept).training
    if training is None:
        raise StepError("No training was begun.", "Begin one.")
    return training


def train(context: Context, command: protocol.Train, task: Task) -> Iterator[Record]:
    """Take steps of the training."""
    training, directory = _training(context), command.directory and typed(command.directory)
    learner, unsaved = training.learner, False
    for _ in range(command.steps):
        if learner.done or task.cancel.is_set():
            break
        yield learner.learn()
        unsaved = True
        if directory and command.save_every and learner.step % command.save_every == 0:
            yield _saved(training, directory)
            unsaved = False
    if directory and unsaved:
        yield _saved(training, directory)
    if task.cancel.is_set():
        raise Cancelled


def save_checkpoint(context: Context, command: protocol.SaveCheckpoint, task: Task) -> Iterator[Record]:
    """Save a checkpoint."""
    yield _saved(_training(context), typed(command.directory))


def _saved(training: TakenUp, directory: Path) -> CheckpointSaved:
    path = save(training.learner, training.text, directory)
    return CheckpointSaved(training.learner.step, str(path))
