"""The Python interface: sessions that are opened, run, branched and looked into from a program or a notebook.

    import mlx_inspector as mi

    with mi.open("pocket", prompt="Once upon a time", temp=0.8, seed=7) as s:
        for step in s.run(20):
            print(step.text, step.prob, step.rank, step.top(3))
        b = s.at(12).take(" cat").run(10)
        print(mi.compare(s, b))

It drives the engine that the screen drives, by the same commands, and returns what the same records say. One thread
computes for all sessions of a process; sessions on the same model share its weights. Any thread may call; the calls on
one session wait for each other. Every problem is an `EngineError`, with the words of the command line.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import fields

from engine import errors, protocol
from engine.breakpoints import Breakpoints
from engine.child import EngineProcess
from engine.errors import COMPUTE_AGAIN, EngineError, PromptError, StepError
from engine.files import free, replacing
from engine.processes import python_command
from engine.protocol import Command, Intervention, Received, Record
from engine.recording import Entry, save_as, worth_keeping
from engine.setting import check
from engine.settings import BY_NAME, MOST, LoadSettings, Settings, TrainingSettings, changed, with_defaults
from engine.thread import EngineThread
from inspector.border import checked, settings_of
from inspector.config.directions import name_of, read_direction
from inspector.display import quoted, visible
from inspector.documents import compare as comparison
from inspector.documents.gradients import baseline_of
from inspector.results import (
    Answer,
    Attention,
    Comparison,
    Contributions,
    Direction,
    Experts,
    Gradients,
    Lens,
    Merges,
    ModelMap,
    Moved,
    OtherPick,
    Sampler,
    Scores,
    Step,
    WhatIf,
    check_number,
    shown,
    table,
    tokens_html,
    top,
)
from inspector.scales import counted
from inspector.served.requests import conversation_of
from inspector.session.client import Backend, EngineClient, IdleBackend, Request
from inspector.state.segments import Segments
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.version import program

Reply = TypeVar("Reply", bound=Record)
OFTEN = 0.1
"""Minimum seconds between two updates of a run's progress."""
STOPS = ("eos", "stop", "grammar")
"""Reasons for the end of a text, not only of a run."""
CLOSED = "This session is closed.", "Open another one."
RECORDED = "This session is a recording: nothing is computed in it.", "Open its model, and its prompt."
FORKED = (
    "This process was forked from one that had MLX in it: nothing can be computed here.",
    'Start processes by "spawn": multiprocessing.get_context("spawn").Pool().',
)


class Fault(EngineError):
    """A fault of this program, not of its caller; `trace` holds the engine's traceback."""

    trace = ""


# ---- the engine --------------------------------------------------------------------------------


class _Engine:
    """The thread that computes for all sessions of the process; begun with the first, ended with the process."""

    def __init__(self) -> None:
        self._thread: EngineThread | None = None
        self._lock = threading.Lock()
        self._lines: weakref.WeakSet[_Line] = weakref.WeakSet()
        self.forked = False
        """True in a process that was forked from one with the thread, or with MLX, whose threads are missing here."""
        os.register_at_fork(after_in_child=self._after_fork)

    def session(self, line: _Line) -> Backend:
        """Open a session in the thread.

        Raises:
            StepError: The thread is another process's.
        """
        self.check()
        with self._lock:
            if self._thread is None:
                self._thread = EngineThread(lambda record: None)
                self._thread.start()
                atexit.register(self._close)
            self._lines.add(line)
            return self._thread.side_session(line._emit)

    def check(self) -> None:
        """Refuse to compute in a forked process, where nothing would ever answer.

        Raises:
            StepError: The thread is another process's.
        """
        if self.forked:
            raise StepError(*FORKED)

    def _after_fork(self) -> None:
        if self._thread is not None or sys.modules.get("mlx.core") is not None:
            self.forked, self._lock = True, threading.Lock()
            # the threads that held their locks, and the runs, are not in this process
            for line in self._lines:
                line.pending = None
                line.unlock()

    def _close(self) -> None:
        if self._thread is not None and not self.forked:
            self._thread.close()


_ENGINE = _Engine()


class _Line:
    """The connection of one session to the engine: one call at a time, and its records.

    The records are received in the engine's thread, so that Ctrl-C, which interrupts the thread that waits for them,
    can lose none.

    Args:
        load: Settings of the loading.
        settings: Settings of the sampler at first.
    """

    def __init__(self, load: LoadSettings, settings: Settings) -> None:
        self.unlock()
        self.own = object()
        """Identifies the steps of this session."""
        self.load, self.settings = load, settings
        self.client = EngineClient(IdleBackend())
        self.held: tuple[Intervention, ...] = ()
        """Interventions on the next tokens."""
        self.pending: Run | None = None
        """A run whose end was not waited for yet."""
        self.entries: list[Entry] = []
        """Entries of a recording of the session."""
        self.closed = False
        self._broken: BaseException | None = None
        """Error while a record was received, until it is raised in a caller's thread."""
        self._began = time.monotonic()

    def unlock(self) -> None:
        """Begin with new locks."""
        self.lock = threading.RLock()
        """Held by the call that is under way."""
        self.arrived = threading.Condition()
        """Held while a record is received, and while the timeline is read."""

    @property
    def timeline(self) -> Timeline:
        """The timeline of the records."""
        return self.client.timeline

    def connect(self, given: Collection[str]) -> None:
        """Load the model in the engine's thread, and set the sampler: the model's own settings, except those given."""
        _ENGINE.check()
        self.client.backend = EngineProcess(self._emit) if self.load.divided else _ENGINE.session(self)
        self.keep(self.load)
        facts = self.do(protocol.Load(self.load)).answer(protocol.ModelFacts)
        self.configure(with_defaults(self.settings, facts.sampling, given))

    def configure(self, settings: Settings) -> None:
        """Use other settings from here on."""
        self.do(protocol.Configure(settings))
        self.settings = settings
        self.keep(settings)

    def keep(self, value: Record | Settings | LoadSettings) -> None:
        """Add an entry to the recording."""
        self.entries.append(Entry(value, time.monotonic() - self._began))

    def do(self, command: Command) -> Request[Any]:
        """Carry out a command, once a run that is under way has ended, unless it can be answered meanwhile.

        Raises:
            EngineError: It failed, or the session is closed.
        """
        with self.lock:
            if not command.interleavable:
                self.settle()
            request = self.send(command, None)
            self.wait(request)
            if request.cancelled:  # by a thread that closed the session
                raise StepError(*CLOSED)
            return request

    def ask(self, command: Command, kind: type[Reply], at: int) -> Reply:
        """Ask for a record about a node; if its logits were dropped, they are computed again.

        Raises:
            EngineError: The engine refuses.
        """
        try:
            return self.do(command).answer(kind)
        except EngineError as error:
            if not error.hint.startswith(COMPUTE_AGAIN):
                raise
        self.do(protocol.Recall((at,)))
        return self.do(command).answer(kind)

    def view(self, command: Command, kind: type[Reply], what: str, hint: str = "") -> Reply:
        """Ask for a view of the inside.

        Raises:
            EngineError: The engine refuses, or what was read is not what the model computes: then with the hint.
        """
        read = self.do(command).answer(kind)
        facts: protocol.CaptureFacts = read.facts  # type: ignore[attr-defined]  # as all these have
        if (failed := facts.failed) is not None:
            where = f" ({failed.where})" if failed.where else ""
            raise StepError(
                f"The {what} of {facts.family} can't be shown: the check `{failed.name}` is off by "
                f"{failed.error:.2g}, and {failed.bound:.2g} is allowed{where}.",
                hint,
            )
        return read

    def send(self, command: Command, each: Callable[[Record], object] | None) -> Request[Any]:
        """Send a command.

        Raises:
            StepError: The session is closed, a recording, or another process's.
        """
        _ENGINE.check()
        if self.closed:
            raise StepError(*CLOSED)
        if self.timeline.recorded:
            raise StepError(*RECORDED)
        with self.arrived:
            return self.client.request(command, lambda request: None, each)

    def wait(self, request: Request[Any]) -> None:
        """Wait for the end of a command; an interruption, such as Ctrl-C, cancels it.

        Raises:
            EngineError: It failed.
        """
        try:
            self.until(lambda: request.done)
        except Fault:  # a record of it could not be received: its end may not come
            request.cancel()
            raise
        except BaseException:
            self.stop(request)
            raise
        if request.failure is not None:
            raise _error(request.failure)

    def stop(self, request: Request[Any]) -> None:
        """Cancel a command, and wait for its end."""
        request.cancel()
        self.until(lambda: request.done)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the records make a condition true."""
        with self.arrived:
            if not holds():
                _ENGINE.check()
            self.arrived.wait_for(lambda: holds() or self._broken is not None)
            broken, self._broken = self._broken, None
        if broken is not None:
            raise Fault(f"{type(broken).__name__}: {errors.first_line(broken)}.", errors.FAULT) from broken

    def _emit(self, received: Received) -> None:
        """Receive a record, in the engine's thread."""
        record = received.record
        with self.arrived:
            request = self.client.requests.get(received.id)
            try:
                self.client.receive(record, received.id)
                if worth_keeping(record):
                    self.keep(record)
                if isinstance(record, protocol.Step):
                    self.timeline.tree.settings[record.node] = self.settings
            except BaseException as error:
                self._broken = error
                if request is not None and isinstance(record, protocol.Ended):
                    request.done = True  # so that no thread waits for an end that came
            self.arrived.notify_all()

    def settle(self) -> None:
        """Wait for the end of a run that is still pending."""
        if (run := self.pending) is not None:
            run.wait()

    def stand(self, node: int) -> int:
        """Go to a node, under the interventions in force; returns the node to continue from.

        Raises:
            EngineError: The engine refuses.
        """
        self.settle()
        if self.timeline.tree.interventions.get(node, ()) != self.held:
            for record in self.do(protocol.HoldInterventions(node, self.held)).records:
                if isinstance(record, protocol.InterventionsHeld):
                    node = record.node
        elif self.timeline.tip != node:
            self.do(protocol.MoveTo(node))
        return node

    def close(self) -> None:
        """Release the tree, and the model if no other session has it."""
        if not self.closed:
            self.closed = True
            if not _ENGINE.forked:
                self.client.backend.close()


def _error(failure: protocol.Failure) -> EngineError:
    """The exception for a failure: of the engine's own class if that takes only a message and a hint."""
    if not failure.expected:
        fault = Fault(failure.message, failure.hint)
        fault.trace = failure.trace
        return fault
    kind = getattr(errors, failure.error, EngineError)
    if kind in (errors.SettingsError, errors.RankError):
        kind = EngineError
    made: EngineError = kind(failure.message, failure.hint)
    return made


# ---- branches ----------------------------------------------------------------------------------


class Branch:
    """A path through the tree of a session, from the prompt to a token: to run, to inspect, and to branch from.

    Nothing moves by making one: the engine goes there when something is done there.
    """

    def __init__(self, line: _Line, node: int, next_step: protocol.Step | None = None) -> None:
        self._line, self._node = line, node
        self._next_step = next_step
        """The step that follows on the branch of which this one is a part; None if it was not made by `at`."""

    # ---- tokens -----------------------------------------------------------------------------

    @property
    def node(self) -> int:
        """Its last token's number in the tree."""
        return self._node

    def _path(self) -> list[Item]:
        node = self.node
        with self._line.arrived:
            return self._line.timeline.tree.path(node)

    @property
    def steps(self) -> list[Step]:
        """Its tokens that were taken, prompts and turns aside."""
        path = self._path()
        with self._line.arrived:
            kinds = self._line.timeline.of(Segments).read(path).kinds
        pairs = zip(path, kinds, strict=True)
        return [Step(item, kind, self._line.own) for item, kind in pairs if isinstance(item, protocol.Step)]

    @property
    def ids(self) -> list[int]:
        """The ids of all its tokens, the prompt's first."""
        return [item.id for item in self._path()]

    @property
    def text(self) -> str:
        """The completion."""
        return "".join(step.text for step in self.steps)

    @property
    def logprob(self) -> float:
        """The sum of the logprobs of its steps."""
        return sum(step.logprob for step in self.steps)

    def _repr_html_(self) -> str:
        """The last tokens as a notebook shows them, the more surprising the darker their ground."""
        return tokens_html(self._path())

    def __repr__(self) -> str:
        step = self._next_step
        before = "" if step is None else f", before step {step.index + 1} {quoted(visible(step.text))}"
        shown = quoted(visible(self.text[-60:]))
        return f"<{type(self).__name__} of {counted(len(self.steps), 'step')}: {shown}{before}>"

    @property
    def finished(self) -> str | None:
        """The reason that its text has ended, in the words of mlx_lm; None if it has not."""
        found = self._line.timeline.finished.get(self.node)
        return found.reason if found is not None and found.reason in STOPS else None

    @checked
    def at(self, place: int | Step | OtherPick) -> Branch:
        """Go back to where a step was chosen.

        Args:
            place: A step of any branch of this session, or the number of one of this branch, from 1 as on the screen;
                -1 is the last one. One of `what_if().differing` is the number of its step.

        Raises:
            StepError: There is no such step, or it is one of another session.
        """
        step = self._step(place)
        return Branch(self._line, step.parent, step)

    def _step(self, place: int | Step | OtherPick) -> protocol.Step:
        """A step of this branch by its number, or any step of its session.

        Raises:
            StepError: There is none.
        """
        if isinstance(place, Step):
            if not place.is_of(self._line.own):
                hint = "Give one of this session, or a number."
                raise StepError("This is a step of another session.", hint)
            return place.record
        place = place.step if isinstance(place, OtherPick) else place
        steps = self.steps
        if not steps:
            raise StepError("There are no steps yet.", "Take some first: run(10).")
        if not place or not -len(steps) <= place <= len(steps):
            raise StepError(f"There is no step {place}.", f"There are steps from 1 to {len(steps)}.")
        return steps[place - (place > 0)].record

    # ---- continuations ----------------------------------------------------------------------

    @checked
    def run(self, count: int) -> Run:
        """Take tokens that the sampler picks, until there are `count` of them or the text ends.

        The engine begins at once. Looping over the run yields the steps as they come; leaving the loop stops the engine
        and keeps the steps that were yielded. Without a loop the next request waits for the end.

        Raises:
            EngineError: The engine refuses.
        """
        if count < 1:
            raise StepError(f"A run of {count} tokens can't be made.", "Give a number from 1.")
        line = self._line
        with line.lock:
            ended = self.finished is not None
            return Run(line, self._node if ended else line.stand(self.node), self, 0 if ended else count)

    @checked
    def take(self, token: int | str) -> Branch:
        """Take a token, or a text's tokens, whatever the sampler would pick.

        Args:
            token: An id, or a text.

        Returns:
            The branch that ends with it.

        Raises:
            EngineError: There is no such token, or the grammar forbids it.
        """
        line = self._line
        with line.lock:
            node = line.stand(self.node)
            taken = protocol.Take(node, (token,)) if isinstance(token, int) else protocol.Insert(node, token)
            steps = [each for each in line.do(taken).records if isinstance(each, protocol.Step)]
            end = steps[-1].node if steps else node
            self._went(end)
            return Branch(line, end)

    def _went(self, node: int) -> None:
        """Called with the end of what was taken from here; a session follows it, a branch stays."""

    @checked
    def off(self, units: str) -> AbstractContextManager[Branch]:
        """Switch parts of the model off inside the block, on every branch of the session.

        Args:
            units: `L6 h1` (a head), `L3 mlp`, `L4 attention`, `L2` (a layer), `L6 h1 x0.5` (scaled), or the name of a
                hook or a module, as `named_part` takes it: `blocks.5.attn.hook_z[0]`; several with commas between them.

        Raises:
            StepError: One of them is not so written, or names a layer that the model lacks.
        """
        try:
            held = protocol.units_from(units)
        except ValueError as error:
            raise StepError(f"{error}.") from None
        for name, unit in zip(units.split(","), held, strict=True):
            self._layer(unit.layer, name.strip())
        return self._under(held)

    @contextmanager
    def _under(self, held: tuple[Intervention, ...]) -> Iterator[Branch]:
        """Compute the block's tokens under interventions, on every branch of the session."""
        line = self._line
        with line.lock:
            line.settle()
            before, line.held = line.held, held
        try:
            yield self
        finally:
            with line.lock:
                line.settle()
                line.held = before

    def _layer(self, layer: int, unit: str = "") -> int:
        """A layer, counted from 0, of the model, if its depth is known.

        Raises:
            StepError: There is no such layer; with the unit that named it.
        """
        facts = self._line.timeline.facts
        if facts is not None and facts.ran:
            if unit and layer >= facts.layers:
                message = f"There is no {unit}: the model has {facts.layers} layers."
                raise StepError(message, f"L1 to L{facts.layers} are.")
            check_number("layer", layer, facts.layers, "the model", f"L1 to L{facts.layers} of the screen")
        return layer

    @checked
    def steer(
        self, direction: Direction | str | Path, strength: float = 1.0, layer: int | None = None
    ) -> AbstractContextManager[Branch]:
        """Add a direction to the residual stream inside the block, on every branch of the session.

        Args:
            direction: The result of `direction`, or a file that it was saved to.
            strength: Its factor; 0 changes nothing.
            layer: The layer after which it is added, from 0; None for the one after which it was made.

        Raises:
            EngineError: The file can't be read, or holds no direction; or there is no such layer.
        """
        made, own = self._directed(direction, layer)
        return self._under((Intervention("direction", own, None, strength, made),))

    def _directed(
        self, direction: Direction | str | Path, layer: int | None
    ) -> tuple[protocol.Direction, int]:
        """The numbers of a direction, or of the one in a file, and the layer after which it is added.

        Raises:
            EngineError: The file can't be read, or holds no direction; or there is no such layer.
        """
        made = direction.record if isinstance(direction, Direction) else read_direction(Path(direction))
        return made, self._layer(made.layer if layer is None else layer)

    # ---- views of the inside ----------------------------------------------------------------

    def sampler(self, **settings: Any) -> Sampler:
        """Explain the sampler's way to the next token here: to the step's own if `at` was given one.

        Args:
            settings: Other settings to try with the same draw; by default those that were used.

        Raises:
            EngineError: A setting is out of range, or no prompt was given.
        """
        node, step = self.node, self._next_step
        other = _changed(self._line.settings, settings) if settings else None
        if other is None and step is not None:
            other = self._line.timeline.tree.settings.get(step.node)
        reroll = 0 if step is None else step.choice.reroll
        return Sampler(self._line.ask(protocol.Explain(node, other, reroll), protocol.Explained, node))

    @checked
    def direction(self, pairs: Sequence[tuple[str, str]], layer: int, name: str = "") -> Direction:
        """Make a direction of pairs of texts: the mean stream after a layer at the last token of the first ones, less
        that of the second ones.

        Args:
            pairs: A text to go toward, and one to leave.
            layer: From 0.
            name: Its name; by default the words in which the first pair differs.

        Raises:
            EngineError: The engine refuses.
        """
        toward, away = tuple(one for one, _ in pairs), tuple(other for _, other in pairs)
        asked = protocol.MakeDirection(self._layer(layer), toward, away, name=name or name_of(toward, away))
        made = self._line.view(asked, protocol.DirectionMade, "direction")
        return Direction(made.direction)

    @checked
    def strengths(
        self,
        direction: Direction | str | Path,
        layer: int | None = None,
        *,
        scope: protocol.Scope = "token",
        begin: int = 0,
        token: int | str | None = None,
        other: int | str | None = None,
        strengths: Sequence[float] = protocol.STRENGTHS,
    ) -> Answer[protocol.StrengthsSwept]:
        """Add a direction with one strength after another here, and random ones of the same length to compare.

        Args:
            direction: As for `steer`.
            layer: As for `steer`.
            scope: `token`: at the last token here alone; `context`: at all of them from `begin` on.
            begin: A place in the path, from 0.
            token: Token whose logit is followed, by its id or text; None for the most probable one, or, if `other` is
                None too, for the two that the direction is named after, where they are candidates.
            other: Token whose logit is subtracted; None for the most probable one besides.
            strengths: The strengths; 0 is always among them.

        Raises:
            EngineError: The engine refuses.
        """
        made, own = self._directed(direction, layer)
        check_number("token", begin, len(self._path()), "the path")
        first, second = (None if each is None else self._id(each) for each in (token, other))
        asked = protocol.SweepStrengths(self.node, made, own, scope, begin, first, second, tuple(strengths))
        return Answer(self._line.do(asked).answer(protocol.StrengthsSwept))

    def what_if(self, **settings: Any) -> WhatIf:
        """Find the steps up to here at which other settings would take another token.

        Raises:
            EngineError: A setting is out of range.
        """
        other, node = _changed(self._line.settings, settings), self.node
        answer = self._line.do(protocol.WhatIf(other, node)).answer(protocol.WhatIfAnswered)
        return WhatIf(answer, self._path())

    def attention(self) -> Attention:
        """Read the attention of each head from the last token here.

        Raises:
            StepError: What was read is not what the model computes, or the model has nothing to read.
        """
        read = self._line.view(protocol.ReadAttention(self.node), protocol.AttentionRead, "attention")
        return Attention(read, self._path())

    @checked
    def lens(self, positions: int = 6) -> Lens:
        """Read what each layer would predict after the last tokens here.

        Args:
            positions: Number of these tokens.

        Raises:
            StepError: What was read is not what the model computes, or it has no layers to read.
        """
        read = self._line.view(protocol.ReadLens(self.node, positions), protocol.LensRead, "lens")
        return Lens(read, self._path())

    @checked
    def contributions(
        self, token: int | str | None = None, against: int | str | None = None, *, alone: bool = False
    ) -> Contributions:
        """Decompose the logit of a next token into what each part of the model adds to it.

        Args:
            token: Token whose logit is meant, by its id or text; None for the step's own if `at` was given one, or else
                the most probable.
            against: Token whose logit is subtracted; None for the best other candidate, as on the screen.
            alone: Whether no logit is subtracted.

        Raises:
            EngineError: What was read is not what the model computes, or a text is no single token.
        """
        command = protocol.Attribute(self.node, self._compared(token, against, alone))
        return Contributions(self._line.view(command, protocol.AttributionRead, "contributions"))

    @checked
    def gradients(
        self,
        token: int | str | None = None,
        against: int | str | None = None,
        *,
        alone: bool = False,
        integrated: bool = False,
        baseline: str = "mean",
        steps: int = 32,
        hold_experts: bool = False,
    ) -> Gradients:
        """Read on which tokens up to here the logit of a next one depends.

        Args:
            token: Token whose logit is meant, by its id or text; None for the step's own if `at` was given one, or else
                the most probable.
            against: Token whose logit is subtracted; None for the best other candidate, as on the screen.
            alone: Whether no logit is subtracted.
            integrated: Integrated gradients, which what follows is for; otherwise gradient × input, as on the screen.
            baseline: `mean`, `first`, `zero`, or the text of one token.
            steps: From the baseline to the text, to begin with.
            hold_experts: Whether a mixture chooses the experts of the text everywhere, which is another question.

        Raises:
            EngineError: The model gives no gradient, a check of it failed, or a text is no single token.
        """
        one, other = (*self._compared(token, against, alone), None)[:2]
        method: protocol.GradientMethod = "integrated" if integrated else "input"
        start = baseline_of(baseline)
        command = protocol.ReadGradients(self.node, one, other, method, *start, steps, hold_experts)
        hint = "Take more steps, another baseline, or hold_experts=True in a mixture of experts."
        read = self._line.view(command, protocol.GradientsRead, "gradients", hint)
        return Gradients(read, self._path())

    def _compared(self, token: int | str | None, against: int | str | None, alone: bool) -> tuple[int, ...]:
        """The ids of the one or two tokens whose logits are asked about.

        Raises:
            EngineError: No prompt was given, or a text is no single token.
        """
        step, other = self._next_step, None if against is None else self._id(against)
        best = [each.id for each in (self.sampler().top(2) if step is None else top(step.choice, 2))]
        one = self._id(token) if token is not None else step.id if step is not None else best[0]
        if other is None:
            other = next((id for id in best if id != one), None)
        return (one,) if alone or other is None else (one, other)

    def _id(self, token: int | str) -> int:
        """The id of a token.

        Raises:
            PromptError: A text is no single token.
        """
        if isinstance(token, int):
            return token
        pieces = self._line.do(protocol.Tokenize(token)).answer(protocol.Tokenized).pieces
        if len(pieces) != 1:
            text = repr(token if len(token) <= 40 else f"{token[:40]}...")
            raise PromptError(f"{text} is {len(pieces)} tokens, not one.", "Give one of them by its id.")
        return pieces[0].id

    @checked
    def scores(self, layer: int | None = None, head: int | None = None, keys: Sequence[int] = ()) -> Scores:
        """Divide the scores of one head from the last token here among what wrote the query and the keys.

        Args:
            layer: From 0; None for that of the head that looks most at one token, neither the first nor the last two.
            head: From 0; None for the one that does so.
            keys: Places in the path that are kept with any weight; of a long path only the heaviest are.

        Raises:
            StepError: There is no such head or key, the sums are not what the model computes, or they are unknown.
        """
        if layer is not None:
            self._layer(layer)
        if head is not None and head < 0:
            raise StepError(f"There is no head {head}.", "Heads count from 0, which is h1 on the screen.")
        tokens = len(self._path())
        for key in keys:
            check_number("token", key, tokens, "the path")
        command = protocol.ReadScore(self.node, layer, head, tuple(keys))
        read = self._line.view(command, protocol.ScoreRead, "scores")
        return Scores(read, self._path())

    def experts(self) -> Experts:
        """Read which experts the last token here went through, and what recurrent layers keep after it.

        Raises:
            StepError: The model has neither experts nor recurrent layers, or what was read is not what it computes.
        """
        return Experts(self._line.view(protocol.ReadExperts(self.node), protocol.ExpertsRead, "experts"))

    @checked
    def moved(self, offset: int = 0, change: protocol.PositionChange = "token") -> Moved:
        """Predict the next token with the last one here given a wrong position.

        Args:
            offset: Number that is added to its position.
            change: `token`: of this token alone; `path`: of all alike; `mask`: none, but without the causal mask.

        Raises:
            StepError: The model takes no other position, or a check of the result failed.
        """
        asked = protocol.TryPosition(self.node, change, offset)
        return Moved(self._line.view(asked, protocol.PositionTried, "positions"))

    @checked
    def heads(self, texts: int = 0, length: int = 50, seed: int = 0) -> Answer[protocol.HeadsScored]:
        """Score the behaviour of each head: previous token, induction, duplicate token, first token, entropy.

        Args:
            texts: Number of texts of random tokens, repeated, to score over; 0 for the path up to here.
            length: Number of tokens of each that are repeated.
            seed: Seed of the tokens.

        Raises:
            StepError: What was read is not what the model computes; or there can be no such texts.
        """
        over = protocol.RepeatedTexts(length, texts, seed) if texts else None
        asked = protocol.ScoreHeads(self.node, over)
        return Answer(self._line.view(asked, protocol.HeadsScored, "scores of heads"))

    @checked
    def patching(
        self,
        source: Branch,
        token: int | str,
        against: int | str,
        part: protocol.PatchKind = "layer",
        facing: protocol.Facing | None = None,
    ) -> Answer[protocol.ActivationsPatched]:
        """Patch activations of another branch of this session into this one, layer by layer and token by token.

        Args:
            source: The other branch.
            token: Token whose logit is followed: its id, or its text.
            against: Token whose logit is subtracted.
            part: Whole layers, or the outputs of their `attention` or `mlp`.
            facing: Which token of this path, from 0, faces which of the other; None for common blocks.

        Raises:
            StepError: The other branch is of another session; there is nothing to patch; a check failed.
            PromptError: A text is no single token.
        """
        _of_one_session(self, source)
        ids = self._id(token), self._id(against)
        command = protocol.PatchActivations(self.node, source.node, *ids, part, facing)
        return Answer(self._line.view(command, protocol.ActivationsPatched, "patching"))

    @checked
    def patch_pairs(
        self, pairs: Sequence[tuple[str, str] | tuple[str, str, str, str]], part: protocol.PatchKind = "layer"
    ) -> Answer[protocol.PairsPatched]:
        """Patch each of a set of pairs of texts on this session's model, and take the means.

        Args:
            pairs: Text and source, and the two answers unless they are to be found.
            part: As for `patching`.

        Raises:
            StepError: None of them can be patched; a check failed.
        """
        command = protocol.PatchPairs(tuple(protocol.PatchPair(*each) for each in pairs), part)
        return Answer(self._line.view(command, protocol.PairsPatched, "patching"))

    # ---- export -----------------------------------------------------------------------------

    @checked
    def to_html(self, path: str | Path | None = None) -> str:
        """The session as a page of its own: this branch to its end, then the others, the oldest first, with the views
        of the inside that were asked for.

        Args:
            path: A file to write it to, which is replaced; None for none.

        Returns:
            The page.

        Raises:
            EngineError: There is no prompt, or the file can't be written.
        """
        from inspector.documents.exports import EXPORTS
        from inspector.export.documents import web_page
        from inspector.export.recording import line, snapshot

        own, node = self._line, self.node
        with own.arrived:
            recording = line(snapshot(own.timeline, own.settings, own.load, program()), node, on=False)
        recording.parts = EXPORTS
        made = web_page(recording)
        if path is not None:
            with replacing(Path(path)) as file:
                file.write(made.encode())
        return made


class Tree(list[Branch]):
    """The branches of a session, each from the prompt to its end."""

    def _repr_html_(self) -> str:
        """A row for each: the step from which it differs from those before it, and its text from there on."""
        met: set[int] = set()
        rows = []
        for branch in self:
            own = [item for item in branch._path() if item.node not in met]
            met.update(item.node for item in own)
            steps = [item for item in own if isinstance(item, protocol.Step)]
            first, logprob = str(steps[0].index + 1) if steps else "", sum(step.logprob for step in steps)
            rows.append((first, str(len(steps)), f"{logprob:.2f}", shown(steps)))
        return table(("from step", "tokens", "logprob", "text from there on"), rows)

    def __repr__(self) -> str:
        return f"<Tree of {counted(len(self), 'branch')}>"


def _progress(total: int) -> Callable[[int, bool], None]:
    """Show the progress of a run: in a notebook, or else on the terminal, if standard error is one.

    Args:
        total: Maximum number of tokens of the run.

    Returns:
        A function that updates it, from the number of tokens so far, and True at the end.
    """
    began = updated = time.monotonic()
    shell = sys.modules.get("IPython")  # if it isn't imported there is no notebook
    notebook: Any = shell.display if shell is not None and shell.get_ipython() is not None else None
    shown = notebook.display(notebook.HTML(), display_id=True) if notebook is not None else None

    def update(done: int, last: bool) -> None:
        nonlocal updated
        now = time.monotonic()
        if not last and now - updated < OFTEN:
            return
        updated = now
        text = f"{done:,} of {total:,} tokens, {done / max(1e-9, now - began):.0f} a second"
        if shown is not None:
            shown.update(notebook.HTML(f'<progress value="{done}" max="{total}"></progress> {text}'))
        elif sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(f"\r{text}\x1b[K" + ("\n" if last else ""))
            sys.stderr.flush()

    return update


class Run(Branch):
    """A run, as the branch to its end, which yields its steps as they come.

    Args:
        line: Connection of the session.
        node: Node from which it runs.
        owner: Branch that was run.
        count: Maximum number of tokens; 0 if the text has ended.
    """

    def __init__(self, line: _Line, node: int, owner: Branch, count: int) -> None:
        super().__init__(line, node)
        self._owner, self._count = owner, count
        self._request: Request[Any] | None = None
        self._came: list[protocol.Step] = []
        if count:
            self._request = line.send(protocol.Run(until=Breakpoints(tokens=count)), self._take)
            line.pending = self

    def _take(self, record: Record) -> None:
        if isinstance(record, protocol.Step):
            self._came.append(record)

    @property
    def node(self) -> int:
        """See `Branch.node`; waits for the end of the run."""
        self.wait()
        return self._node

    @checked
    def wait(self, progress: bool = False) -> Run:
        """Wait for the end of the run.

        Args:
            progress: Whether to show its progress, in a notebook or on the terminal.

        Raises:
            EngineError: It failed.
        """
        if progress:
            update, done = _progress(self._count), 0
            try:
                for done, _ in enumerate(self, 1):
                    update(done, False)
            finally:
                update(done, True)
        self._finish()
        return self

    def _finish(self, given: int | None = None) -> None:
        """Wait for its end; or stop it after a number of its steps, and forget the others."""
        line = self._line
        with line.lock:
            if self._request is None or line.pending is not self:
                return
            try:
                (line.wait if given is None else line.stop)(self._request)
            finally:
                line.pending = None
                del self._came[len(self._came) if given is None else given :]
                if self._came:
                    self._node = self._came[-1].node
                    self._owner._went(self._node)

    def __iter__(self) -> Iterator[Step]:
        given = 0
        try:
            while (step := self._next(given)) is not None:
                given += 1
                yield step
        finally:
            self._finish(given)

    def _next(self, given: int) -> Step | None:
        """The step after a number of them; None if the run has ended before."""
        with self._line.lock:
            request = self._request
            if request is not None:
                self._line.until(lambda: given < len(self._came) or request.done)
            if given < len(self._came):
                record = self._came[given]
                at = self._line.timeline.of(Segments).state(record.node)
                return Step(record, at.kind if at is not None else None, self._line.own)
            if self._line.pending is self:
                self.wait()  # raises the error of a failure
            return None

    async def __aiter__(self) -> AsyncIterator[Step]:
        given = 0
        try:
            while (step := await asyncio.to_thread(self._next, given)) is not None:
                given += 1
                yield step
        finally:
            self._finish(given)

    def __len__(self) -> int:
        self.wait()
        return len(self._came)

    @property
    def new(self) -> list[Step]:
        """The steps of this run alone."""
        self.wait()
        return self.steps[-len(self._came) :] if self._came else []


# ---- sessions ----------------------------------------------------------------------------------


class Session(Branch):
    """A model, a prompt and the tree of its continuations; as a branch, its end follows each run of it.

    Opened by `open`; closed by `close`, at the end of a `with` block, by the garbage collector, or with the process.
    """

    def __init__(self, line: _Line, node: int) -> None:
        super().__init__(line, node)
        self._finalizer = weakref.finalize(self, line.close)

    @property
    def node(self) -> int:
        """See `Branch.node`."""
        with self._line.lock:
            self._line.settle()
        return self._node

    def _went(self, node: int) -> None:
        self._node = node

    @property
    def tree(self) -> Tree:
        """All branches that were made, each to its end, the oldest first."""
        with self._line.lock:
            self._line.settle()
        with self._line.arrived:
            ends = self._line.timeline.tree.leaves()
        return Tree(Branch(self._line, node) for node in ends)

    @property
    def settings(self) -> Settings:
        """The sampler's settings in force."""
        return self._line.settings

    @property
    def model(self) -> protocol.ModelFacts:
        """The facts about its model."""
        facts = self._line.timeline.facts
        assert facts is not None, "there is no session before its model is loaded"
        return facts

    @checked
    def merges(self, text: str) -> Merges:
        """Trace the merges by which the model's tokenizer cuts a text.

        Raises:
            EngineError: The tokenizer, or the text, can't be traced.
        """
        return Merges(self._line.do(protocol.TakeApart(text)).answer(protocol.TakenApart))

    def map(self) -> ModelMap:
        """Read the modules of its model.

        Raises:
            EngineError: The engine refuses.
        """
        return ModelMap(self._line.do(protocol.ReadModules()).answer(protocol.ModelModules))

    def set(self, **settings: Any) -> Session:
        """Use other settings from here on.

        Raises:
            EngineError: One is out of range, or there is none of that name.
        """
        with self._line.lock:
            self._line.configure(_changed(self._line.settings, settings))
        return self

    @checked
    def save(self, path: str | Path, force: bool = False) -> Path:
        """Write a recording, for `inspector replay` and `open`.

        Args:
            path: The file.
            force: Whether an existing file is replaced.

        Raises:
            EngineError: It can't be written.
        """
        free(Path(path), force, "Choose another name, or pass force=True.")
        with self._line.lock:
            self._line.settle()
            if self._line.timeline.tip != self._node:
                self._line.do(protocol.MoveTo(self._node))  # where it opens
            with self._line.arrived:
                entries = list(self._line.entries)
            save_as(path, entries, program(), force)
        return Path(path)

    def screen(self) -> None:
        """Show the session on the screen, as a recording; returns when the screen is left.

        Raises:
            StepError: There is no terminal here.
        """
        import subprocess
        import tempfile

        if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
            raise StepError(
                "There is no terminal here to show the screen in.",
                "Save the session, s.save('x.trace'), and open it in a terminal: inspector replay x.trace.",
            )
        with tempfile.TemporaryDirectory() as directory:
            path = self.save(Path(directory) / "session.trace")
            begin = "from inspector.__main__ import main; sys.exit(main())"
            subprocess.run([*python_command(begin), "replay", str(path)], check=False)

    def close(self) -> None:
        """Stop what is under way, and release the tree; closing again does nothing."""
        self._finalizer()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


@checked
def open(
    model: str | Path = "pocket",
    prompt: str | None = None,
    *,
    messages: Sequence[dict[str, str]] | None = None,
    chat: bool | None = None,
    system: str | None = None,
    **settings: Any,
) -> Session:
    """Open a session: a model with a prompt, or a recording that was saved.

    Args:
        model: `pocket` (it comes with the program), a hub id, a directory, or a recording, which needs neither MLX nor
            its model: its contents are there, and nothing more is computed.
        prompt: The text to continue.
        messages: A conversation instead of it, with the keys `role` and `content`, and others that the chat template
            reads.
        chat: Whether the prompt goes through the chat template, as a user's message; by default it does if the model
            has a template and its folder doesn't ask for raw prompts, as that of `pocket` does.
        system: The system message before that.
        settings: Of the sampler (`temp`, `top_p`, `seed`, ...) and of the loading (`dtype`, `kv_bits`, ...), as the
            flags of the command line are named. The others are the model's own (its generation_config.json), or else
            those of mlx_lm: the most probable token is taken.

    Raises:
        EngineError: The model can't be loaded, the prompt can't be held, or a setting is wrong.
    """
    if model != "pocket" and os.path.isfile(model):
        if prompt is not None or messages is not None or system is not None or chat or settings:
            raise PromptError("A recording is opened as it is.", "Open its model for another prompt.")
        return _recorded(Path(model))
    if messages is not None and (prompt is not None or system is not None):
        other = "a prompt" if prompt is not None else "a system message"
        raise PromptError(f"messages and {other} were both given.", "Put all of it into messages.")
    if system is not None and chat is False:
        raise PromptError("The system message needs the chat template.", "Give chat=True, too.")
    said, _ = (
        conversation_of("The conversation", {"messages": [*messages]}) if messages is not None else ((), "")
    )
    own = {field.name for field in fields(LoadSettings)}
    load = settings_of(LoadSettings, BY_NAME, {k: v for k, v in settings.items() if k in own})
    sampling = {k: v for k, v in settings.items() if k not in own}
    checked_load = check(LoadSettings(model=str(model), **load))
    line = _Line(checked_load, _changed(Settings(max_tokens=MOST), sampling))
    session = Session(line, 0)
    try:
        line.connect(sampling)
        if prompt is not None or messages is not None:
            line.do(protocol.Prefill(prompt or "", chat, system, messages=said))
    except BaseException:
        session.close()
        raise
    session._went(line.timeline.tip)
    return session


@checked
def train(
    *texts: str | Path, directory: str | Path | None = None, **settings: Any
) -> Iterator[protocol.TrainedStep]:
    """Train a small model, a step for each turn of a loop; leaving the loop ends the training.

    Args:
        texts: Files or folders of text; without any the stories that come with the program.
        directory: Directory of the checkpoint that is saved at the end, also if the loop is left before it.
        settings: Settings of the training: `layers`, `width`, `vocabulary`, `steps`, `seed`, ...

    Returns:
        The steps, each with its loss, and some with a look at what the model knows.

    Raises:
        EngineError: A text can't be read, or a setting is wrong.
    """
    given = settings_of(TrainingSettings, {}, {"texts": tuple(map(str, texts)), **settings})
    asked = check(TrainingSettings(**given))
    line = _Line(LoadSettings(), Settings())
    line.client.backend = _ENGINE.session(line)
    try:
        begun = line.do(protocol.BeginTraining(asked)).answer(protocol.TrainingBegun)
    except BaseException:
        line.close()
        raise
    return _steps(line, begun.settings.steps, directory)


def _steps(line: _Line, count: int, directory: str | Path | None) -> Iterator[protocol.TrainedStep]:
    try:
        for _ in range(count):
            yield line.do(protocol.Train()).answer(protocol.TrainedStep)
    finally:
        try:
            if directory is not None:
                line.do(protocol.SaveCheckpoint(str(directory)))
        finally:
            line.close()


def _recorded(path: Path) -> Session:
    """The session of a recording."""
    from inspector.export.recording import read

    recording = read(path)
    line = _Line(recording.load or LoadSettings(), recording.settings or Settings())
    line.client.timeline = recording.timeline
    return Session(line, recording.tip)


@checked
def compare(left: Branch, right: Branch) -> Comparison:
    """Compare two branches of one session.

    Raises:
        StepError: They are of two sessions.
    """
    _of_one_session(left, right)
    return Comparison(comparison.compare(left._path(), right._path()))


def _of_one_session(one: Branch, other: Branch) -> None:
    """Refuse branches of two sessions.

    Raises:
        StepError: They are.
    """
    if one._line is not other._line:
        hint = "Give two of one: b = s.at(12).take(' cat').run(10)."
        raise StepError("These are branches of two sessions.", hint)


def _changed(settings: Settings, given: dict[str, Any]) -> Settings:
    """Settings with some changed.

    Raises:
        SettingsError: One is out of range, or there is none of that name.
    """
    return changed(settings, **settings_of(Settings, BY_NAME, given))
