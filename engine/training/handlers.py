"""Handlers of the commands that train a small model; the session isn't changed."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from engine import protocol
from engine.errors import Cancelled, StepError
from engine.files import typed
from engine.patches import blas
from engine.protocol import CheckpointSaved, Record, TrainingBegun
from engine.session.context import Context
from engine.setting import check
from engine.task import Task
from engine.training.learner import Learner, resume, save
from engine.training.text import read_text, train_tokenizer


class _CurrentTraining:
    learner: Learner | None = None


def begin_training(context: Context, command: protocol.BeginTraining, task: Task) -> Iterator[Record]:
    """Begin a training."""
    settings = check(command.settings)
    text = read_text(settings.texts)
    served = _prepare(context)
    tokenizer, ms = train_tokenizer(text, settings.vocabulary)
    learner = context.of_session(_CurrentTraining).learner = Learner(
        settings, text, tokenizer, task.cancel.is_set
    )
    yield _begun(learner, served, ms)


def resume_training(context: Context, command: protocol.ResumeTraining, task: Task) -> Iterator[Record]:
    """Continue a training from a checkpoint."""
    served = _prepare(context)
    learner = context.of_session(_CurrentTraining).learner = resume(typed(command.checkpoint), command.steps)
    yield _begun(learner, served)


def _begun(learner: Learner, served: str, tokenizer_ms: float | None = None) -> TrainingBegun:
    return TrainingBegun(
        settings=learner.settings,
        text=learner.text.name,
        step=learner.step,
        parameters=learner.parameters,
        vocabulary=learner.config["vocab_size"],
        tokens=len(learner.train),
        held_out_tokens=len(learner.held_out),
        parts=learner.parts,
        tokenizer_ms=tokenizer_ms,
        blas=served,
    )


def _prepare(context: Context) -> str:
    """Prepare MLX as for a loaded model; returns the name of the library that multiplies its matrices."""
    if context.loaded is not None:
        return context.loaded.facts.blas
    if mx.default_device() == mx.Device(mx.cpu):
        mx.disable_compile()  # see `engine.model.load.prepare`
    return blas.install().name


def _learner(context: Context) -> Learner:
    learner = context.of_session(_CurrentTraining).learner
    if learner is None:
        raise StepError("No training was begun.", "Begin one.")
    return learner


def train(context: Context, command: protocol.Train, task: Task) -> Iterator[Record]:
    """Take steps of the training."""
    learner, directory = _learner(context), command.directory and typed(command.directory)
    unsaved = False
    for _ in range(command.steps):
        if learner.done or task.cancel.is_set():
            break
        yield learner.learn()
        unsaved = True
        if directory and command.save_every and learner.step % command.save_every == 0:
            yield CheckpointSaved(learner.step, str(save(learner, directory)))
            unsaved = False
    if directory and unsaved:
        yield CheckpointSaved(learner.step, str(save(learner, directory)))
    if task.cancel.is_set():
        raise Cancelled


def save_checkpoint(context: Context, command: protocol.SaveCheckpoint, task: Task) -> Iterator[Record]:
    """Save a checkpoint."""
    learner = _learner(context)
    yield CheckpointSaved(learner.step, str(save(learner, typed(command.directory))))
