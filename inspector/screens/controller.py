"""What the keys mean to the engine: which commands are sent, and which of them are still out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine import commands, records
from engine.breakpoints import Breakpoints
from engine.commands import (
    Choose,
    Command,
    Configure,
    GoOnPrefill,
    Load,
    MoveTo,
    Prefill,
    Recall,
    Reroll,
    Run,
    Step,
    Verify,
)
from engine.settings import LoadSettings, Settings
from inspector.replaying import Replay
from inspector.screens.breaks import Breaks
from inspector.screens.prefilling import Prefilling, Prompt
from inspector.screens.questions import Questions
from inspector.timeline import Phase, Timeline

PACES: tuple[float | None, ...] = (1, 2, 5, 10, 20, None)
"""Steps a second of a run, None for as fast as it goes."""
MAX_QUEUED_STEPS = 8
"""A held space bar queues no more than this, so that it doesn't step on long after it is let go."""


class Engine(Protocol):
    """What the screen asks of `engine.thread.EngineThread`."""

    def start(self) -> None: ...

    def send(self, command: Command) -> None: ...

    def close(self, timeout: float = 2.0) -> bool: ...


class Controller:
    """Sends commands and keeps the timeline; every method that a key calls returns what to tell the person.

    Args:
        engine: Takes the commands.
        load: The model to open.
        settings: Of the sampler.
        prompt: Prefilled as soon as the model is there; an empty one waits for the person.
    """

    def __init__(self, engine: Engine, load: LoadSettings, settings: Settings, prompt: Prompt) -> None:
        self.engine = engine
        self.load = load
        self.settings = settings
        self.prompt = prompt
        self.timeline = Timeline()
        self.outstanding: deque[Command] = deque()
        """Sent and not ended, in the order in which the engine does them."""
        self.pace: float | None = None
        self.prefilling = Prefilling(self._send, lambda: list(self.outstanding))
        self.questions = Questions(engine.send, settings)
        self.replay: Replay | None = None
        """The recording that is on show, None while a session is lived through."""
        self.takes: Callable[[records.Record], bool] = lambda record: False
        """Asked about each record of the engine first; what it takes goes no further."""
        self.breaks = Breaks()
        self.listeners: list[Callable[[records.Record], None]] = [self.breaks.receive]
        """Called with every record, after the timeline took it in and what ended is no longer outstanding."""
        self._again: Step | None = None
        """The step that was asked for by drawing again at an older token."""
        self._refused = False

    # ---- records in -------------------------------------------------------------------------

    def receive(self, record: records.Record) -> None:
        """Take in one record of the engine."""
        if self.takes(record):
            return
        if self.timeline.facts is not None and _ends_model(record):
            self.timeline = Timeline()
        self.timeline.apply(record)
        self.questions.receive(record, self.timeline)
        match record:
            case records.ModelFacts():
                self._prepare()
            case records.Step(parent=parent) if self._branches_at(parent):
                self.timeline.select(None)
            case records.Step() if self._again is not None and self.doing is self._again:
                self.timeline.select(len(self.timeline.items) - 1)
            case records.Failure(command="Configure"):
                self._refused = True
            case records.Ended():
                self._end(record)
            case _:
                pass
        for listener in self.listeners:
            listener(record)

    def tell(self, record: records.Record) -> None:
        """Take in one record of a recording: it is shown, and nothing follows from it."""
        self.timeline.apply(record)
        if isinstance(record, records.PromptOpened | records.Step):
            self.questions.receive(record, self.timeline)
        for listener in self.listeners:
            listener(record)

    def use(self, settings: Settings) -> None:
        """Settings were in force from here on in a recording."""
        self.settings = self.questions.in_force = settings

    @property
    def doing(self) -> Command | None:
        """The command that the engine is at, None while it waits."""
        return self.outstanding[0] if self.outstanding else None

    def _branches_at(self, node: int) -> bool:
        """Whether the engine is taking what was chosen after a node."""
        return isinstance(self.doing, Choose | commands.Take | commands.Insert) and self.doing.node == node

    def _prepare(self) -> None:
        self._send(Configure(self.settings))
        if self.prompt.text:
            self.prefilling.begin(self.prompt)

    def _end(self, ended: records.Ended) -> None:
        for command in self.outstanding:
            if type(command).__name__ == ended.command:
                self.outstanding.remove(command)
                if isinstance(command, Configure):
                    self._configured(command)
                break
        self.timeline.running = any(self._out(Run))

    def _configured(self, command: Configure) -> None:
        """Settings that the engine refused are not those that it samples with."""
        if not self._refused:
            self.questions.in_force = command.settings
        elif not self._out(Configure):
            self.settings = self.questions.in_force
        self._refused = False

    def _out(self, kind: type[Command]) -> list[Command]:
        return [command for command in self.outstanding if isinstance(command, kind)]

    def do(self, command: Command) -> None:
        """Pause the run, if there is one, and have the engine do something."""
        self.pause()
        self._send(command)

    def _send(self, command: Command) -> None:
        self._cancel(commands.LookAhead)  # asked for while nothing else was to be done
        self.outstanding.append(command)
        self.engine.send(command)

    # ---- model, prompt, settings ------------------------------------------------------------

    def open(self, load: LoadSettings) -> None:
        """Load a model; the prompt at hand is prefilled when it is there."""
        self.load = load
        self.timeline.load_failure = None
        self._cancel_all()
        self._send(Load(load))

    def give(self, prompt: Prompt) -> None:
        """Begin a new tree with a prompt, now or when the model is there."""
        self.prompt = prompt
        if self.timeline.facts is not None and not self._out(Load):
            self._cancel_all()
            self.prefilling.begin(prompt)

    def configure(self, settings: Settings) -> None:
        """Use other settings from here on; a run goes on with them."""
        self.settings = settings
        if self.timeline.facts is None:
            return  # sent with the model's facts
        running = self.timeline.running
        self._cancel(Run)
        self._send(Configure(settings))
        if running:
            self._run(goes_on=True)

    def apply(self, settings: Settings) -> None:
        """Go on with other settings: from the selected step on, where that is an older one."""
        node = self.timeline.before if self.applies_at is not None else None
        self.questions.try_out(self.timeline, None)
        if node is not None:
            self.pause()
            self.timeline.select(None)
            self._send(MoveTo(node))
        self.configure(settings)

    @property
    def applies_at(self) -> int | None:
        """Number of the older step, counted from 1, that `apply` picks anew; None at the tip and in the prompt."""
        item = self.timeline.selected
        return item.index + 1 if isinstance(item, records.Step) else None

    def recall(self) -> str:
        """Have the logits computed again that were dropped and are wanted."""
        nodes = self.questions.dropped(self.timeline)
        if not nodes:
            return "Nothing to compute again: the logits of what is shown are kept."
        if self.questions.recalled == frozenset(nodes):
            return "They were dropped again at once: there is no room. Start with more --kept-logits-mib."
        if not self._out(Recall):
            self.pause()
            self._send(Recall(nodes))
        return ""

    # ---- step and run -----------------------------------------------------------------------

    def step(self) -> str:
        """Pause a run, walk forward at an older token, or take one step at the tip."""
        if self.timeline.running:
            self.pause()
        elif self.prefilling.waits(self.timeline):
            self.prefilling.go_on()
        elif not self.timeline.following:
            self.walk(1)
        elif len(self._out(Step)) < MAX_QUEUED_STEPS:
            self._send(Step())
        return ""

    def run(self, over_sure: bool = False) -> str:
        """Start a run at the tip, over sure tokens alone if that is asked for, or pause the one under way."""
        if self.timeline.running:
            self.pause()
        elif self.prefilling.waits(self.timeline):
            self.prefilling.go_on()
        else:
            self.timeline.select(None)
            self.breaks.begin(over_sure)
            self._run()
        return ""

    def break_at(self, points: Breakpoints) -> None:
        """Set breakpoints; a run under way goes on with them."""
        self.breaks.points = points
        if self.timeline.running:
            self._cancel(Run)
            self._run()

    def pause(self) -> None:
        """Stop the run and the steps that were queued, at the next step."""
        self._cancel(Run, Step)

    def stop(self) -> bool:
        """Stop whatever can be stopped.

        Returns:
            Whether there was anything.
        """
        return self._cancel(
            Run,
            Step,
            Prefill,
            GoOnPrefill,
            Verify,
            Choose,
            MoveTo,
            Reroll,
            Recall,
            commands.Insert,
            commands.Take,
        )

    def leave(self) -> None:
        """Stop whatever the engine does: something else will be on show."""
        for command in self.outstanding:
            command.cancel.set()

    def change_pace(self, by: int) -> None:
        """Set the pace of runs `by` places further in `PACES`; one under way goes on at it."""
        place = PACES.index(self.pace) + by
        self.pace = PACES[max(0, min(len(PACES) - 1, place))]
        if self.timeline.running:
            self._cancel(Run)
            self._run(goes_on=True)

    def _run(self, goes_on: bool = False) -> None:
        until = self.breaks.points if self.breaks.points.active else None
        self._send(Run(self.pace, until, self.breaks.skipping, goes_on))
        self.timeline.running = True

    def _cancel(self, *kinds: type[Command]) -> bool:
        found = [command for command in self.outstanding if isinstance(command, kinds)]
        for command in found:
            command.cancel.set()
        return bool(found)

    def _cancel_all(self) -> None:
        kinds = (Load, Run, Step, Prefill, GoOnPrefill, Verify, Choose, MoveTo, Reroll, Recall)
        self._cancel(*kinds, commands.Insert, commands.Take)

    # ---- look around ------------------------------------------------------------------------

    def walk(self, by: int) -> None:
        """Look at the token `by` slots away, as far as the path goes."""
        self.timeline.select(max(0, self.timeline.slot + by))

    def first(self) -> None:
        """Look at the first token of the completion; from there, at the first of the prompt."""
        prompt = self.timeline.boundary  # less than the whole prompt where a branch leaves inside it
        self.timeline.select(0 if self.timeline.slot == prompt else prompt)

    def tip(self) -> None:
        """Follow the token to come."""
        self.timeline.select(None)

    def steps_range(self) -> tuple[int, int] | None:
        """Numbers of the first and the last step of the path, counted from 1; None where there is no step."""
        steps = self.timeline.steps
        return (steps[0].index + 1, steps[-1].index + 1) if steps else None

    def jump(self, number: int) -> None:
        """Look at the step of that number, counted from 1."""
        for slot, item in enumerate(self.timeline.items):
            if isinstance(item, records.Step) and item.index == number - 1:
                self.timeline.select(slot)

    # ---- branch -----------------------------------------------------------------------------

    def choose(self, token: int) -> str:
        """Take a token at the selected slot, and go on from it."""
        selected = self.timeline.selected
        if selected is not None and selected.id == token:
            return (
                "This token already stands here. Highlight another with ↑ ↓ to branch, or press end to go on."
            )
        self.pause()
        self._send(Choose(self.timeline.before, token))
        return ""

    def take_back(self) -> str:
        """Move the cache to before the last token of the completion."""
        node = self._standing()
        if not isinstance(self.timeline.nodes.get(node), records.Step):
            return "Nothing to take back: the completion is empty. Press p to change the prompt."
        self.pause()
        self.timeline.select(None)
        self._send(MoveTo(self.timeline.parent[node]))
        return ""

    def _standing(self) -> int:
        """Node where the cache will stand when what is out is done, so that quick presses add up."""
        last = self.outstanding[-1] if self.outstanding else None
        return last.node if isinstance(last, MoveTo) else self.timeline.tip

    def branch(self, by: int) -> str:
        """Go to the end of a neighbouring branch, and keep the place where they part selected."""
        if self.timeline.following and self.timeline.latest.get(self.timeline.tip) is not None:
            return self._go(self.timeline.tip, None)  # what was taken back
        slot, nodes = self._fork()
        if not nodes:
            return "No other branch here. Highlight a candidate with ↑ ↓ and press ⏎ to make one."
        place = nodes.index(self.timeline.items[slot].node) + by
        return self._go(nodes[place % len(nodes)], slot)

    def _go(self, node: int, slot: int | None) -> str:
        self.pause()
        self.timeline.select(slot)
        self._send(MoveTo(self.timeline.leaf(node)))
        return ""

    def _fork(self) -> tuple[int, list[int]]:
        """The selected slot and the nodes that stand in it, where there are several; at the tip the nearest."""
        timeline = self.timeline
        slots = range(len(timeline.items) - 1, -1, -1) if timeline.following else (timeline.slot,)
        for slot in slots:
            if len(nodes := timeline.siblings(slot)) > 1:
                return slot, nodes
        return timeline.slot, []

    def reroll(self) -> str:
        """Draw the token to come again; at an older step draw that one again, which makes a sibling of it."""
        if self.settings.temp == 0:
            return (
                "Greedy has no draw: it takes the most probable token. Press s and set a temperature above 0."
            )
        node = self.timeline.before if isinstance(self.timeline.selected, records.Step) else None
        self.pause()
        self.timeline.select(None)
        if node is None:
            self._send(Reroll())
        else:
            self._draw_again(node)
        return ""

    def _draw_again(self, node: int) -> None:
        self._send(MoveTo(node))
        self._send(Reroll())
        self._again = Step()
        self._send(self._again)

    def differing(self, by: int) -> str:
        """Look at the next (or, with -1, the last) step that the settings tried would have picked otherwise."""
        timeline = self.timeline
        slots = [slot for slot, item in enumerate(timeline.items) if timeline.other(item) is not None]
        here = [slot for slot in slots if (slot > timeline.slot if by > 0 else slot < timeline.slot)]
        if not here:
            return (
                f"No {'later' if by > 0 else 'earlier'} step would differ."
                if slots
                else "No step would differ."
            )
        timeline.select(here[0] if by > 0 else here[-1])
        return ""

    def verify(self) -> str:
        """Have the path recomputed from nothing and compared."""
        self.pause()
        self._send(Verify())
        return ""

    @property
    def stepping(self) -> bool:
        """Whether a prompt is in the cache, so that steps, moves and choices mean something."""
        return self.timeline.phase in (Phase.READY, Phase.RUNNING)


def _ends_model(record: records.Record) -> bool:
    """Whether the engine let go of the model that it had: another is on its way, or failed to come."""
    return isinstance(record, records.Loading) or (
        isinstance(record, records.Failure) and record.command == "Load"
    )
