"""The training under way and the recorded one, the commands to the engine, and the keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import (
    BeginTraining,
    CheckpointSaved,
    Record,
    ResumeTraining,
    SaveCheckpoint,
    Train,
    TrainedStep,
)
from engine.settings import TrainingSettings, for_model
from inspector import places
from inspector.keys import bare_key_for
from inspector.main.tool import ToolActions
from inspector.session.client import Request
from inspector.session.requests import Job
from inspector.state.training import TrainingSoFar, recorded
from inspector.widgets.actions import Action, back, note, screen_table

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

SAVE_EVERY = 200
"""Steps between two checkpoints of a run, each of 5.5 MB."""


class RecordedTraining:
    """The training that comes with the program, as far as it is played."""

    def __init__(self) -> None:
        self.so_far = TrainingSoFar()
        self.playing = False
        self._left: Iterator[Record] = recorded()
        self.advance()

    def advance(self, to_look: bool = False) -> None:
        """Show the next record; with `to_look` all up to the next look at the model."""
        for record in self._left:
            self.so_far.apply(record)
            if not to_look or (isinstance(record, TrainedStep) and record.look is not None):
                break
        self.playing = self.playing and not self.so_far.over

    def go_to(self, step: int) -> None:
        """Play up to a step, unless that is passed already."""
        while self.so_far.step < step and not self.so_far.over:
            self.advance(to_look=True)


class TrainingControl(ToolActions):
    """Trains, pauses, goes back, and opens what was trained; or plays the recorded training."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.settings = TrainingSettings()
        self.job = Job(self.controller.client, BeginTraining, ResumeTraining, Train)
        self.live = TrainingSoFar()
        self.recording: RecordedTraining | None = None
        """The recorded training, while it is shown."""
        self._directory = ""

    def point(self, *place: int) -> None:
        """Show the recorded training up to a step."""
        self.pause()
        self.recording = RecordedTraining()
        self.recording.go_to(place[0])

    @property
    def so_far(self) -> TrainingSoFar:
        """The training on show."""
        return self.recording.so_far if self.recording is not None else self.live

    @property
    def running(self) -> bool:
        """True if it continues by itself."""
        return self.recording.playing if self.recording is not None else self.job.running

    @property
    def can_train(self) -> bool:
        """True if there is an engine: none is asked while a recorded session is shown."""
        return not self.controller.transport.recorded

    @property
    def verb(self) -> str:
        """The word for the key that trains, or pauses."""
        return "pause" if self.running else "play" if self.recording is not None else "train"

    def turn(self) -> str:
        """Show the recorded training, or one's own again; returns why it can't, if so."""
        if self.recording is None:
            self.job.stop()
            self.recording = RecordedTraining()
        elif self.can_train:
            self.recording = None
        else:
            return "A training of your own needs a live engine"
        return ""

    def pause(self) -> None:
        """Pause."""
        self.job.stop()
        if self.recording is not None:
            self.recording.playing = False

    def toggle(self) -> None:
        """Train, or pause; a training that is over starts again."""
        if self.recording is not None:
            if self.recording.so_far.over:
                self.recording = RecordedTraining()
            self.recording.playing = not self.recording.playing
        elif not self.job.stop():
            if self.live.over:
                self.anew()
            self._train(self.settings.steps, save=True)

    def step(self) -> None:
        """Make one step; of a recorded training show the next look."""
        if self.recording is not None:
            self.recording.playing = False
            self.recording.advance(to_look=True)
        elif not self.job.stop() and not self.live.over:
            self._train(1, save=False)

    def _train(self, steps: int, save: bool) -> None:
        if self.live.begun is None:
            self._directory = str(places.state() / "trained" / time.strftime("%Y-%m-%d %H.%M.%S"))
            self.job.start(BeginTraining(self.settings), each=self._take)
        self.job.start(Train(steps, self._directory if save else "", SAVE_EVERY), each=self._take)

    def anew(self) -> None:
        """Forget the training; the next one has other weights and other batches."""
        if self.recording is not None:
            self.recording = RecordedTraining()
            return
        self.job.stop()
        self.job.failures.clear()
        if self.live.begun is not None:
            self.settings = replace(self.settings, seed=self.settings.seed + 1)
        self.live = TrainingSoFar()

    @property
    def earlier(self) -> CheckpointSaved | None:
        """The checkpoint that can be gone back to: the last one before the present step."""
        before = [each for each in self.live.checkpoints if each.step < self.live.step]
        return before[-1] if before else None

    def go_back(self) -> str:
        """Go back to the checkpoint before; returns why it can't, if so."""
        if self.recording is not None:
            return f"A recorded training only plays forward: {bare_key_for('training.anew')} begins it again"
        if (checkpoint := self.earlier) is None:
            return f"There is no earlier checkpoint: a run saves one every {SAVE_EVERY} steps, and where it pauses"
        self.job.stop()
        self.job.start(ResumeTraining(checkpoint.directory), each=self._take)
        return ""

    def open_model(self) -> str:
        """Save the model as it is, and open it as a session; returns why it can't, if so."""
        if self.recording is not None or self.live.begun is None:
            return "There is no model to open: a training of your own makes one"
        self.job.stop()
        self.controller.client.do(SaveCheckpoint(self._directory), self._opened, self._take)
        self.host.to_main()
        return ""

    def _opened(self, request: Request[SaveCheckpoint]) -> None:
        if (saved := request.reply(CheckpointSaved)) is not None:
            self.controller.setup.open(for_model(self.controller.setup.load, saved.directory))
        elif request.failure is not None:
            self.job.failures[request.command.kind] = request.failure

    def _take(self, record: Record) -> None:
        self.live.apply(record)


TRAINING_SCREEN = screen_table(
    "While a model learns",
    Action("training.step", "Step", "Make one step; in the recorded training show the next report.",
           lambda own: own.control.step(), worth=9, hint=lambda own: "" if own.control.running else "step"),
    Action("training.run", "Run", "Train, or pause.", lambda own: own.control.toggle(), worth=10,
           hint=lambda own: own.control.verb),
    Action("training.back", "Previous checkpoint", "Go back to the previous checkpoint.",
           lambda own: own.say(own.control.go_back()), worth=5,
           hint=lambda own: "back to a checkpoint" if own.control.earlier else ""),
    Action("training.open", "Open", "Save the model as it is and open it as a session, with all tools.",
           lambda own: own.say(own.control.open_model()), worth=7,
           hint=lambda own: "open" if own.control.live.steps else ""),
    Action("training.anew", "Start anew", "Begin again with another seed.", lambda own: own.control.anew(),
           worth=4, hint=lambda own: "anew" if own.control.so_far.steps else ""),
    Action("training.recorded", "Recorded", "Play a longer training that was recorded, or show your own again.",
           lambda own: own.say(own.control.turn()), worth=6,
           hint=lambda own: "your own" if own.control.recording else "recorded"),
    note("up down", "Scroll.", "scroll", 3, place=-1),
    back("training.leave", "Go back; a training under way pauses."),
    text="`inspector train --text FILE` learns from a text of your own.",
)  # fmt: skip
