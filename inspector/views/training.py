"""A model in training: losses, texts, candidates after the prompt, and gradients, live or recorded."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.segment import Segment
from textual import getters
from textual.app import ComposeResult
from textual.timer import Timer

from engine import protocol
from engine.protocol import CheckpointSaved, Record, TrainedStep, TrainingBegun
from engine.settings import TrainingSettings, for_model
from inspector import places
from inspector.display import pad, truncate, visible
from inspector.keys import bare_key_for
from inspector.main.view import View
from inspector.scales import amount, count, counted, milliseconds, time_left
from inspector.session.client import Request
from inspector.state.training import RECENT, LookAt, TrainingSoFar, next_label, part_label, recorded
from inspector.widgets.actions import Action, ActionTable, back, note, screen_table
from inspector.widgets.canvas import Canvas, PageView, Row, paragraph, wrapped
from inspector.widgets.charts import axis, bar, curves, round_top, sample

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

SAVE_EVERY = 200
"""Steps between two checkpoints of a run, each of 5.5 MB."""
TICK_S = 0.1
"""Seconds between two records while the recording plays: its 800 records take a minute and a half."""
LEARNED, HELD_OUT = 0.2, 0.75
"""Colours of both losses, as levels of the scale."""
LEAST_CHART, MOST_CHART = 4, 12
ROOM = 1.5
"""Height of the chart in multiples of the present held-out loss: with room for the first steps, the curves would look
like one."""
TEXTS = 4
TEXT_ROWS = 3
"""Maximum lines of the latest text."""
TOKENS = 5
"""Tokens after the prompt whose probabilities are shown."""
TOKEN_CELLS, STEP_CELLS = 12, 7
NAME_CELLS, FIGURE_CELLS = 12, 8
SCALE_CELLS = 6
"""Cells of the numbers at the left of the chart."""


# ---- the page -----------------------------------------------------------------------------------


def training_page(
    on: Canvas, so_far: TrainingSoFar, begun: TrainingBegun, width: int, height: int
) -> list[Row]:
    """The page of a training.

    Args:
        on: Provides the inks.
        so_far: The training.
        begun: Its first record.
        width: Cells of a line.
        height: Rows available.
    """
    if not so_far.steps:
        among = f"{count(begun.vocabulary)} tokens: {math.log(begun.vocabulary):.2f} nats"
        return [[Segment(f"Loss of a guess among {among}", on.ink("muted"))]]
    rest = _gradients(on, so_far, begun, width)
    if so_far.looks:
        rest = [*_texts(on, so_far, begun, width), *_nexts(on, so_far, begun, width), *rest]
    chart = max(LEAST_CHART, min(MOST_CHART, height - len(rest) - 3))
    return [*_losses(on, so_far, begun, width, chart), *rest]


def _losses(on: Canvas, so_far: TrainingSoFar, begun: TrainingBegun, width: int, height: int) -> list[Row]:
    """Both losses over all steps of the training, with room for those still to come."""
    guess = math.log(begun.vocabulary)
    learned, held_out = [each.loss for each in so_far.steps], _spread(so_far)
    head: Row = [
        Segment("Loss  ", on.ink("primary")),
        Segment(f"{fmean(learned[-RECENT:]):.2f} train", on.data(LEARNED)),
        Segment("  "),
        Segment(f"{held_out[-1]:.2f} held out", on.data(HELD_OUT)),
        Segment(f"  {guess:.2f} a guess", on.ink("faint")),
    ]
    highest = max(each for each in (guess, *held_out) if math.isfinite(each))
    top = round_top(min(highest, ROOM * held_out[-1]) if math.isfinite(held_out[-1]) else highest)
    width -= SCALE_CELLS
    cells = max(2, min(width, round(width * so_far.step / begun.settings.steps)))
    inks = {None: None, 0: on.data(LEARNED), 1: on.data(HELD_OUT)}
    drawn = curves([learned, held_out], cells, height, top)
    faint, edges = on.ink("faint"), {0: f"{top:g}", len(drawn) - 1: "0"}
    rows = [
        [
            Segment(pad(edges.get(place, ""), SCALE_CELLS - 1, right=True) + " ", faint),
            *(Segment(cell.char, inks[cell.series]) for cell in line),
        ]
        for place, line in enumerate(drawn)
    ]
    foot = axis("0", count(begun.settings.steps), width, f"steps (nats, cut at {top:g})")
    return [head, *rows, [Segment(" " * SCALE_CELLS + foot, faint)]]


def _spread(so_far: TrainingSoFar) -> list[float]:
    """The held-out loss at each step, from the last look before it; at first from the first look."""
    looks = so_far.looks
    losses = [each.look.held_out_loss for each in looks] or [so_far.steps[0].loss]
    looked = [each.step for each in looks]
    return [losses[max(0, bisect_right(looked, each.step) - 1)] for each in so_far.steps]


def _texts(on: Canvas, so_far: TrainingSoFar, begun: TrainingBegun, width: int) -> list[Row]:
    rows: list[Row] = [[], [Segment("What it writes", on.ink("primary"))]]
    shown = _picked(so_far.looks, TEXTS)
    room = max(10, width - STEP_CELLS - 1)
    for each in shown:
        text, label = visible(begun.settings.prompt + each.look.sample), count(each.step)
        latest = each is shown[-1]
        for line in wrapped(text, room)[:TEXT_ROWS] if latest else [text]:
            step = Segment(pad(label, STEP_CELLS, right=True) + " ", on.ink("muted"))
            rows.append([step, Segment(truncate(line, room), on.ink("strong" if latest else "muted"))])
            label = ""
    return rows


def _nexts(on: Canvas, so_far: TrainingSoFar, begun: TrainingBegun, width: int) -> list[Row]:
    """Candidates after the prompt: a column for each look, a row for each token."""
    shown = _picked(so_far.looks, max(1, (width - TOKEN_CELLS) // STEP_CELLS))
    tokens = {each.id: next_label(each) for each in so_far.looks[-1].look.candidates[:TOKENS]}
    known = [{each.id: each.prob for each in at.look.candidates} for at in shown]
    prompt = truncate(visible(begun.settings.prompt), max(8, width - 20))
    steps = "".join(pad(count(each.step), STEP_CELLS, right=True) for each in shown)
    rows: list[Row] = [
        [],
        [Segment(f"What comes after “{prompt}”", on.ink("primary"))],
        [Segment(pad("step", TOKEN_CELLS) + steps, on.ink("muted"))],
    ]
    for id, name in tokens.items():
        label = pad(truncate(name, TOKEN_CELLS - 1), TOKEN_CELLS)
        rows.append([Segment(label, on.rich_style), *(_share(on, probs.get(id)) for probs in known)])
    return rows


def _share(on: Canvas, prob: float | None) -> Segment:
    if prob is None or not math.isfinite(prob):
        return Segment(pad("·", STEP_CELLS, right=True), on.ink("faint"))
    return Segment(pad(f"{prob:.0%}", STEP_CELLS, right=True), on.data(min(1.0, prob)))


def _gradients(on: Canvas, so_far: TrainingSoFar, begun: TrainingBegun, width: int) -> list[Row]:
    recent = so_far.steps[-RECENT:]
    norms = [fmean(each.norms[place] for each in recent) for place in range(len(begun.parts))]
    top = max((each for each in norms if math.isfinite(each)), default=0.0)
    room = max(4, width - NAME_CELLS - FIGURE_CELLS)
    rows: list[Row] = [
        [],
        [Segment("How strongly training changes each part: the norm of its gradient", on.ink("primary"))],
    ]
    for name, norm in zip(begun.parts, norms, strict=True):
        share = norm / top if top and math.isfinite(norm) else 0.0
        rows.append([
            Segment(pad(part_label(name), NAME_CELLS), on.ink("muted")),
            Segment(bar(share, room), on.data(0.45)),
            Segment(pad(f"{norm:.3f}", FIGURE_CELLS, right=True), on.rich_style),
        ])  # fmt: skip
    return rows


def _picked(looks: Sequence[LookAt], most: int) -> list[LookAt]:
    """The first look, the last one, and some between."""
    return [looks[0], *(looks[place] for place in sample(len(looks), most)[1:])] if most > 1 else [looks[-1]]


# ---- the view ---------------------------------------------------------------------------------


class RecordedTraining:
    """The training that comes with the program, as far as it has played."""

    def __init__(self) -> None:
        self.so_far = TrainingSoFar()
        self.playing = False
        self._left: Iterator[Record] = recorded()
        self.advance()

    def advance(self, to_look: bool = False) -> None:
        """Show the next record; with `to_look`, all records up to the next look at the model."""
        for record in self._left:
            self.so_far.apply(record)
            if not to_look or (isinstance(record, TrainedStep) and record.look is not None):
                break
        self.playing = self.playing and not self.so_far.over

    def go_to(self, step: int) -> None:
        """Play up to a step, unless that is passed already."""
        while self.so_far.step < step and not self.so_far.over:
            self.advance(to_look=True)


TRAINING_KEYS = screen_table(
    "While a model learns",
    Action("training.step", "Step", "Make one step; in the recorded training show the next report.",
           lambda own: own.step(), worth=9, hint=lambda own: "" if own.running else "step"),
    Action("training.run", "Run", "Train, or pause.", lambda own: own.toggle(), worth=10,
           hint=lambda own: "pause" if own.running else "play" if own.recording is not None else "train"),
    Action("training.back", "Previous checkpoint", "Go back to the previous checkpoint.",
           lambda own: own.go_back(), worth=5,
           hint=lambda own: "previous checkpoint" if own.earlier else ""),
    Action("training.open", "Open", "Save the model as it is and open it as a session, with all tools.",
           lambda own: own.open_model(), worth=7,
           hint=lambda own: "open" if own.live.steps else ""),
    Action("training.anew", "Start over", "Begin again with another seed.", lambda own: own.anew(),
           worth=4, hint=lambda own: "start over" if own.so_far.steps else ""),
    Action("training.recorded", "Recorded", "Play a longer training that was recorded, or show your own again.",
           lambda own: own.turn(), worth=6,
           hint=lambda own: "your own" if own.recording else "recorded"),
    note("up down", "Scroll.", "scroll", 3, place=-1),
    back("training.leave", "Go back; a training under way pauses."),
    text="`inspector train --text FILE` learns from a text of your own.",
)  # fmt: skip


class TrainingView(View):
    """Trains a model, pauses, goes back and opens the result; or plays the recorded training. The session stays as
    it is."""

    TOOL: ClassVar[str] = "training"
    WHOLE: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = TRAINING_KEYS
    STARTS = (protocol.BeginTraining, protocol.ResumeTraining, protocol.Train)
    AUTO_FOCUS = "#training-view"

    view = getters.query_one("#training-view", PageView)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.settings = TrainingSettings()
        self.live = TrainingSoFar()
        self.recording: RecordedTraining | None = None
        """The recorded training, while it is shown."""
        self._directory = ""
        self._asked = 0
        """The step at which the user was asked whether to forget the training."""
        self._clock: Timer

    def body(self) -> ComposeResult:
        yield PageView(id="training-view")

    def begin(self) -> None:
        """Show the recorded training if nothing can be trained; make the clock that runs while it plays."""
        self._clock = self.set_interval(TICK_S, self._tick, pause=True)
        if not self.can_train and self.recording is None:
            self.recording = RecordedTraining()

    def _tick(self) -> None:
        if self.recording is not None and self.recording.playing:
            self.recording.advance()
        self.changed()

    def let_go(self) -> None:
        self._clock.stop()
        self._pause()

    def _pause(self) -> None:
        self.job.stop()
        if self.recording is not None:
            self.recording.playing = False

    def point(self, *place: int) -> None:
        """Show the recorded training up to a step."""
        self._pause()
        self.recording = RecordedTraining()
        self.recording.go_to(place[0])

    @property
    def so_far(self) -> TrainingSoFar:
        """The training on show."""
        return self.recording.so_far if self.recording is not None else self.live

    @property
    def running(self) -> bool:
        """True if the training on show runs or plays."""
        return self.recording.playing if self.recording is not None else self.job.running

    @property
    def can_train(self) -> bool:
        """True if there is an engine to train with; not while a recorded session is shown."""
        return not self.controller.transport.recorded

    @property
    def earlier(self) -> CheckpointSaved | None:
        """The checkpoint that can be gone back to: the last one before the present step."""
        return next((each for each in reversed(self.live.checkpoints) if each.step < self.live.step), None)

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        recording, begun = self.recording, self.so_far.begun
        self._clock.resume() if recording is not None and recording.playing else self._clock.pause()
        self.view.put("Watch a model learn", self._draw)
        place = ""
        if begun is not None:
            model = f"llama {begun.settings.layers} × {begun.settings.width} · {amount(begun.parameters)} parameters"
            place = f"{model} · {count(begun.vocabulary)} tokens · {visible(begun.text)}"
        self.write(f"recorded · {place}" if place and recording is not None else place)

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        so_far, failure = self.so_far, self.job.failure
        if failure is not None and self.recording is None:
            message = paragraph(on.ink("bad"), width, visible(failure.message))
            return [*message, *paragraph(on.ink("muted"), width, visible(failure.hint))]
        if so_far.begun is None or (self.recording is not None and not so_far.steps):
            return self._about(on, width)
        return training_page(on, so_far, so_far.begun, width, height)

    def _about(self, on: Canvas, width: int) -> list[Row]:
        """The keys and what they do, before the first step."""
        run, step, recorded = map(bare_key_for, ("training.run", "training.step", "training.recorded"))
        settings = self.settings
        if self.recording is not None:
            does = [
                f"{run} plays a training that was recorded, from random weights to stories.",
                f"{step} goes a step further; {recorded} leaves it for a training of your own.",
            ]
        else:
            does = [
                f"{run} trains a llama of {settings.layers} layers on stories that come with the program: "
                "from random weights to first sentences in half a minute.",
                f"{step} makes a single step of the {count(settings.steps)}.",
                f"While it trains, the engine does nothing else: {run} pauses after the present step, and so does "
                "leaving this page.",
                f"{recorded} plays a longer training that was recorded.",
            ]
        loss = (
            "Loss is surprise: the mean surprisal of a token, in nats. It falls first for "
            "what is frequent, commas and the ends of words, then for names and phrases. When training loss keeps "
            "falling but held-out loss does not, the model is memorising."
        )
        own_text = "inspector train --text FILE learns from a text of your own."
        return [
            *paragraph(on.rich_style, width, *does, ""),
            *paragraph(on.ink("muted"), width, loss, "", own_text),
        ]

    def situation(self) -> str:
        """The state of the training, and the keys that matter now."""
        if self.job.failure is not None and self.recording is None:
            return visible(self.job.failure.message)
        so_far, run, opens = self.so_far, bare_key_for("training.run"), bare_key_for("training.open")
        recorded = bare_key_for("training.recorded")
        if so_far.begun is None:
            idle = f"{run} trains here, {recorded} plays a recorded training"
            return "Reading the text" if self.running else idle
        where = f"step {count(so_far.step)} of {count(so_far.begun.settings.steps)}"
        if self.recording is not None:
            return f"Playing {where}" if self.running else f"Recorded: {where}. Press {run} to play"
        if self.running:
            last = so_far.steps[-1] if so_far.steps else None
            pace = f", {milliseconds(last.ms)} each{time_left(last.left_ms)}" if last is not None else ""
            return f"Training: {where}{pace}"
        if so_far.over:
            return f"Trained: {where}. {opens} opens it as a session, {run} starts again"
        return f"Paused at {where}. {run} continues, {opens} opens it as a session"

    # ---- keys -------------------------------------------------------------------------------

    def turn(self) -> None:
        """Show the recorded training, or the user's own again."""
        if self.recording is None:
            self.job.stop()
            self.recording = RecordedTraining()
        elif self.can_train:
            self.recording = None
        else:
            self.say("A training of your own needs a live engine")

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
        """Make one step; in a recorded training, show the next look."""
        if self.recording is not None:
            self.recording.playing = False
            self.recording.advance(to_look=True)
        elif not self.job.stop() and not self.live.over:
            self._train(1, save=False)

    def _train(self, steps: int, save: bool) -> None:
        if self.live.begun is None:
            self._directory = str(places.state() / "trained" / time.strftime("%Y-%m-%d %H.%M.%S"))
            self.job.start(protocol.BeginTraining(self.settings), each=self.live.apply)
        self.job.start(
            protocol.Train(steps, self._directory if save else "", SAVE_EVERY), each=self.live.apply
        )

    def anew(self) -> None:
        """Forget the training; the next one has other weights and other batches."""
        if self.recording is not None:
            self.recording = RecordedTraining()
            return
        if 0 < self.live.step != self._asked and not self.live.over:
            self._asked = self.live.step
            again, made = bare_key_for("training.anew"), counted(self.live.step, "step")
            self.say(
                f"{again} again forgets this training of {made}; {bare_key_for('training.open')} saves it"
            )
            return
        self.job.stop()
        self.job.failures.clear()
        if self.live.begun is not None:
            self.settings = replace(self.settings, seed=self.settings.seed + 1)
        self.live = TrainingSoFar()

    def go_back(self) -> None:
        """Go back to the previous checkpoint."""
        if self.recording is not None:
            again = bare_key_for("training.anew")
            self.say(f"A recorded training only plays forward: {again} begins it again")
        elif (checkpoint := self.earlier) is None:
            self.say(
                f"There is no earlier checkpoint: a run saves one every {SAVE_EVERY} steps, and where it pauses"
            )
        else:
            self.job.stop()
            self.job.start(protocol.ResumeTraining(checkpoint.directory), each=self.live.apply)

    def open_model(self) -> None:
        """Save the model as it is, and open it as a session."""
        if self.recording is not None or self.live.begun is None:
            self.say("There is no model to open: a training of your own makes one")
            return
        self.job.stop()
        self.controller.client.do(protocol.SaveCheckpoint(self._directory), self._opened, self.live.apply)
        self.dismiss()

    def _opened(self, request: Request[protocol.SaveCheckpoint]) -> None:
        if (saved := request.reply(CheckpointSaved)) is not None:
            self.controller.setup.open(for_model(self.controller.setup.load, saved.directory))
        elif request.failure is not None:
            self.job.failures[request.command.kind] = request.failure
