"""The commands that train a small model beside the session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx

from engine import protocol
from engine.context import Capability, Handler
from engine.errors import Cancelled, StepError
from engine.files import typed
from engine.patches import blas
from engine.protocol import CheckpointSaved, Command, TrainingBegun
from engine.setting import check
from engine.task import Task
from engine.training.checkpoints import TakenUp, save, take_up
from engine.training.learner import Learner
from engine.training.text import encode, read_text, train_tokenizer


class TrainingCommands(Capability):
    """Handlers of a training, which keep the model that learns."""

    _taken: TakenUp | None = None

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.BeginTraining: self._begin,
            protocol.ResumeTraining: self._resume,
            protocol.Train: self._train,
            protocol.SaveCheckpoint: self._save,
        }

    def _begin(self, command: protocol.BeginTraining, task: Task) -> None:
        settings = check(command.settings)
        text = read_text(settings.texts)
        served = self._prepare()
        tokenizer, ms = train_tokenizer(text, settings.vocabulary)
        self._taken = TakenUp(
            Learner(settings, tokenizer, encode(text, tokenizer, settings, task.cancel.is_set)), text
        )
        self._tell(served, ms)

    def _resume(self, command: protocol.ResumeTraining, task: Task) -> None:
        served = self._prepare()
        self._taken = take_up(typed(command.checkpoint), command.steps)
        self._tell(served)

    def _tell(self, served: str, tokenizer_ms: float | None = None) -> None:
        learner = self._learning.learner
        self._context.emit(
            TrainingBegun(
                settings=learner.settings,
                text=self._learning.text.name,
                step=learner.step,
                parameters=learner.parameters,
                vocabulary=learner.config["vocab_size"],
                tokens=len(learner.tokens.train),
                held_out_tokens=len(learner.tokens.held_out),
                parts=learner.parts,
                tokenizer_ms=tokenizer_ms,
                blas=served,
            )
        )

    def _prepare(self) -> str:
        """Have MLX compute as for a model that is loaded; returns what multiplies its matrices."""
        if (loaded := self._context.loaded) is not None:
            return loaded.facts.blas
        if mx.default_device() == mx.Device(mx.cpu):
            mx.disable_compile()  # see `engine.model.load.prepare`
        return blas.install().name

    @property
    def _learning(self) -> TakenUp:
        if self._taken is None:
            raise StepError("No training was begun.", "Begin one.")
        return self._taken

    def _train(self, command: protocol.Train, task: Task) -> None:
        learner, directory = self._learning.learner, command.directory and typed(command.directory)
        unsaved = False
        for _ in range(command.steps):
            if learner.done or task.cancel.is_set():
                break
            self._context.emit(learner.learn())
            unsaved = True
            if directory and command.save_every and learner.step % command.save_every == 0:
                self._write(directory)
                unsaved = False
            self._context.answer_asides()
        if directory and unsaved:
            self._write(directory)
        if task.cancel.is_set():
            raise Cancelled

    def _save(self, command: protocol.SaveCheckpoint, task: Task) -> None:
        self._write(typed(command.directory))

    def _write(self, directory: Path) -> None:
        taken = self._learning
        path = save(taken.learner, taken.text, directory)
        self._context.emit(CheckpointSaved(taken.learner.step, str(path)))
