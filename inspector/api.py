"""The Python interface: open, run, branch and inspect sessions from a program or a notebook.

    import mlx_inspector as mi

    with mi.open("pocket", prompt="Once upon a time", temp=0.8, seed=7) as s:
        for step in s.run(20):
            print(step.text, step.prob, step.rank, step.top(3))
        b = s.at(12).take(" cat").run(10)
        print(mi.compare(s, b))

It drives the same engine as the screen with the same commands, and returns values from the same records. One thread
computes for all sessions of a process; sessions on the same model share its weights. Any thread may call; calls on one
session wait for each other. Every problem is an `EngineError`, with the same messages as on the command line.
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
"""Finish reasons that end the text, not only a run."""
CLOSED = "This session is closed.", "Open another one."
RECORDED = "This session is a recording: nothing is computed in it.", "Open its model, and its prompt."
FORKED = (
    "This process was forked from one that had MLX in it: nothing can be computed here.",
    'Start processes by "spawn": multiprocessing.get_context("spawn").Pool().',
)


class Fault(EngineError):
    """A fault of this program, not of the caller; `trace` contains the engine's traceback."""

    trace = ""


# ---- the engine --------------------------------------------------------------------------------


class _Engine:
    """The thread that computes for all sessions of the process; starts with the first one, ends with the process."""

    def __init__(self) -> None:
        self._thread: EngineThread | None = None
        self._lock = threading.Lock()
        self._lines: weakref.WeakSet[_Line] = weakref.WeakSet()
        self.forked = False
        """True in a process forked from one with the thread or with MLX, whose threads don't exist in the fork."""
        os.register_at_fork(after_in_child=self._after_fork)

    def session(self, line: _Line) -> Backend:
        """Open a session in the thread.

        Raises:
            StepError: This process is forked.
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
        """Refuse to compute in a forked process, which would wait forever.

        Raises:
            StepError: This process is forked.
        """
        if self.forked:
            raise StepError(*FORKED)

    def _after_fork(self) -> None:
        if self._thread is not None or sys.modules.get("mlx.core") is not None:
            self.forked, self._lock = True, threading.Lock()
            # the threads that held the locks, and the runs, don't exist in this process
            for line in self._lines:
                line.pending = None
                line.unlock()

    def _close(self) -> None:
        if self._thread is not None and not self.forked:
            self._thread.close()


_ENGINE = _Engine()


class _Line:
    """The connection of one session to the engine: one call at a time, and its records.

    The records are received in the engine's thread, so that Ctrl-C, which interrupts the waiting thread, can't lose
    any.

    Args:
        load: Settings of the model.
        settings: Settings of the sampler to start with.
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
        """A run that hasn't been waited for yet."""
        self.entries: list[Entry] = []
        """Entries of a recording of the session."""
        self.closed = False
        self._broken: BaseException | None = None
        """An error from receiving a record, until it is raised in a caller's thread."""
        self._began = time.monotonic()

    def unlock(self) -> None:
        """Make new locks."""
        self.lock = threading.RLock()
        """Held by the current call."""
        self.arrived = threading.Condition()
        """Held while a record is received, and while the timeline is read."""

    @property
    def timeline(self) -> Timeline:
        """The timeline made from the records."""
        return self.client.timeline

    def connect(self, given: Collection[str]) -> None:
        """Load the model, and set the sampler to the model's defaults except for the settings given."""
        _ENGINE.check()
        self.client.backend = EngineProcess(self._emit) if self.load.divided else _ENGINE.session(self)
        self.keep(self.load)
        facts = self.do(protocol.Load(self.load)).answer(protocol.ModelFacts)
        self.configure(with_defaults(self.settings, facts.sampling, given))

    def configure(self, settings: Settings) -> None:
        """Use new settings from here on."""
        self.do(protocol.Configure(settings))
        self.settings = settings
        self.keep(settings)

    def keep(self, value: Record | Settings | LoadSettings) -> None:
        """Add an entry to the recording."""
        self.entries.append(Entry(value, time.monotonic() - self._began))

    def do(self, command: Command) -> Request[Any]:
        """Carry out a command; unless it can be answered between steps, it waits for the end of a run under way.

        Raises:
            EngineError: The command failed, or the session is closed.
        """
        with self.lock:
            if not command.interleavable:
                self.settle()
            request = self.send(command, None)
            self.wait(request)
            if request.cancelled:  # a different thread has closed the session
                raise StepError(*CLOSED)
            return request

    def ask(self, command: Command, kind: type[Reply], at: int) -> Reply:
        """Request a record about a node; if its logits were dropped, they are computed again.

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
        """Request a view of the model's internals.

        Raises:
            EngineError: The engine refuses, or a check of the result failed (the error then has the hint).
        """
        read = self.do(command).answer(kind)
        facts: protocol.CaptureFacts = read.facts  # type: ignore[attr-defined]  # all these records have it
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
            StepError: The session is closed, is a recording, or belongs to a different process.
        """
        _ENGINE.check()
        if self.closed:
            raise StepError(*CLOSED)
        if self.timeline.recorded:
            raise StepError(*RECORDED)
        with self.arrived:
            return self.client.request(command, lambda request: None, each)

    def wait(self, request: Request[Any]) -> None:
        """Wait for the end of a command; an interruption such as Ctrl-C cancels it.

        Raises:
            EngineError: The command failed.
        """
        try:
            self.until(lambda: request.done)
        except Fault:  # one of its records could not be received: its end may never come
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
                    request.done = True  # so that no thread waits for this end
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
        """Release the tree, and the model if no other session uses it."""
        if not self.closed:
            self.closed = True
            if not _ENGINE.forked:
                self.client.backend.close()


def _error(failure: protocol.Failure) -> EngineError:
    """The exception for a failure, of the engine's class if that takes only a message and a hint."""
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

    Making a branch doesn't move the engine; it moves when the branch is used.
    """

    def __init__(self, line: _Line, node: int, next_step: protocol.Step | None = None) -> None:
        self._line, self._node = line, node
        self._next_step = next_step
        """The step that was given to `at`, which follows this branch; None if the branch was made differently."""

    # ---- tokens -----------------------------------------------------------------------------

    @property
    def node(self) -> int:
        """The number of its last token in the tree."""
        return self._node

    def _path(self) -> list[Item]:
        node = self.node
        with self._line.arrived:
            return self._line.timeline.tree.path(node)

    @property
    def steps(self) -> list[Step]:
        """The steps: its tokens without those of prompts."""
        path = self._path()
        with self._line.arrived:
            kinds = self._line.timeline.of(Segments).read(path).kinds
        pairs = zip(path, kinds, strict=True)
        return [Step(item, kind, self._line.own) for item, kind in pairs if isinstance(item, protocol.Step)]

    @property
    def ids(self) -> list[int]:
        """The ids of all tokens, including the prompt's."""
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
        """The last tokens for a notebook, darker for higher surprisal."""
        return tokens_html(self._path())

    def __repr__(self) -> str:
        step = self._next_step
        before = "" if step is None else f", before step {step.index + 1} {quoted(visible(step.text))}"
        shown = quoted(visible(self.text[-60:]))
        return f"<{type(self).__name__} of {counted(len(self.steps), 'step')}: {shown}{before}>"

    @property
    def finished(self) -> str | None:
        """The finish reason, as in mlx_lm; None if the text hasn't ended."""
        found = self._line.timeline.finished.get(self.node)
        return found.reason if found is not None and found.reason in STOPS else None

    @checked
    def at(self, place: int | Step | OtherPick) -> Branch:
        """The branch up to a step, without the step itself.

        Args:
            place: A step of any branch of this session, or the number of a step of this branch, from 1 as on the
                screen; -1 is the last one. An item of `what_if().differing` stands for its step.

        Raises:
            StepError: There is no such step, or it belongs to a different session.
        """
        step = self._step(place)
        return Branch(self._line, step.parent, step)

    def _step(self, place: int | Step | OtherPick) -> protocol.Step:
        """A step of this branch by its number, or any step of the session.

        Raises:
            StepError: There is no such step.
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
        """Take `count` tokens that the sampler picks, or fewer if the text ends before.

        The engine starts at once. Looping over the run yields the steps as they come; leaving the loop stops the engine
        and keeps the steps that were yielded. Without a loop, the next request waits for the end of the run.

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
        """Take a token, or the tokens of a text, instead of the sampler's pick.

        Args:
            token: A token id, or a text.

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
        """Called with the last node of tokens taken from here; a session moves to it, a branch stays."""

    @checked
    def off(self, units: str) -> AbstractContextManager[Branch]:
        """Switch off or scale parts of the model inside a `with` block, on every branch of the session.

        Args:
            units: `L6 h1` (a head), `L3 mlp`, `L4 attention`, `L2` (a layer), `L6 h1 x0.5` (scaled), or the name of a
                hook or a module, as in `named_part`: `blocks.5.attn.hook_z[0]`; several are separated by commas.

        Raises:
            StepError: A part has a wrong form, or a layer that the model doesn't have.
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
        """Compute the tokens inside a `with` block under interventions, on every branch of the session."""
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
        """Check the index of a layer, from 0, if the depth of the model is known.

        Raises:
            StepError: There is no such layer; the error names the unit.
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
        """Add a direction to the residual stream inside a `with` block, on every branch of the session.

        Args:
            direction: The result of `direction`, or a file that it was saved to.
            strength: Factor of the direction; 0 changes nothing.
            layer: The layer after which it is added, from 0; None for the one after which it was made.

        Raises:
            EngineError: The file can't be read or contains no direction, or there is no such layer.
        """
        made, own = self._directed(direction, layer)
        return self._under((Intervention("direction", own, None, strength, made),))

    def _directed(
        self, direction: Direction | str | Path, layer: int | None
    ) -> tuple[protocol.Direction, int]:
        """The record of a direction, or of the one in a file, and the layer after which it is added.

        Raises:
            EngineError: The file can't be read or contains no direction, or there is no such layer.
        """
        made = direction.record if isinstance(direction, Direction) else read_direction(Path(direction))
        return made, self._layer(made.layer if layer is None else layer)

    # ---- views of the internals -------------------------------------------------------------

    def sampler(self, **settings: Any) -> Sampler:
        """Explain how the sampler picks the next token here; after `at`, how it picked that step's token.

        Args:
            settings: Settings to try with the same draw; by default those that were used.

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
        """Make a direction from pairs of texts: the mean residual stream after a layer, at the last token of the first
        texts, minus that of the second texts.

        Args:
            pairs: Texts to steer toward, each with a text to steer away from.
            layer: Index of the layer, from 0.
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
        """Add a direction here with several strengths, and random directions of the same length to compare.

        Args:
            direction: As for `steer`.
            layer: As for `steer`.
            scope: `token` adds it only at the last token here, `context` at all tokens from `begin` on.
            begin: Index in the path, from 0.
            token: Token whose logit is followed, by its id or text; None for the most probable one, or, if `other` is
                None too, for the two that the direction is named after, if both are candidates.
            other: Token whose logit is subtracted; None for the most probable other one.
            strengths: The strengths; 0 is always added.

        Raises:
            EngineError: The engine refuses.
        """
        made, own = self._directed(direction, layer)
        check_number("token", begin, len(self._path()), "the path")
        first, second = (None if each is None else self._id(each) for each in (token, other))
        asked = protocol.SweepStrengths(self.node, made, own, scope, begin, first, second, tuple(strengths))
        return Answer(self._line.do(asked).answer(protocol.StrengthsSwept))

    def what_if(self, **settings: Any) -> WhatIf:
        """Find the steps up to here at which the same draws would pick a different token with other settings.

        Raises:
            EngineError: A setting is out of range.
        """
        other, node = _changed(self._line.settings, settings), self.node
        answer = self._line.do(protocol.WhatIf(other, node)).answer(protocol.WhatIfAnswered)
        return WhatIf(answer, self._path())

    def attention(self) -> Attention:
        """Read the attention of each head from the last token here.

        Raises:
            StepError: A check of the result failed, or the model has no attention to read.
        """
        read = self._line.view(protocol.ReadAttention(self.node), protocol.AttentionRead, "attention")
        return Attention(read, self._path())

    @checked
    def lens(self, positions: int = 6) -> Lens:
        """Read what each layer would predict after the last tokens here (logit lens).

        Args:
            positions: Number of tokens.

        Raises:
            StepError: A check of the result failed, or the model has no layers to read.
        """
        read = self._line.view(protocol.ReadLens(self.node, positions), protocol.LensRead, "lens")
        return Lens(read, self._path())

    @checked
    def contributions(
        self, token: int | str | None = None, against: int | str | None = None, *, alone: bool = False
    ) -> Contributions:
        """Decompose the logit of a next token into the amounts that the parts of the model add to it.

        Args:
            token: Token whose logit is meant, by its id or text; None for the step's own if `at` was given one, or else
                the most probable.
            against: Token whose logit is subtracted; None for the best other candidate, as on the screen.
            alone: Whether no logit is subtracted.

        Raises:
            EngineError: A check of the result failed, or a text isn't a single token.
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
        """Read how much the logit of a next token depends on each token up to here.

        Args:
            token: Token whose logit is meant, by its id or text; None for the step's own if `at` was given one, or else
                the most probable.
            against: Token whose logit is subtracted; None for the best other candidate, as on the screen.
            alone: Whether no logit is subtracted.
            integrated: True for integrated gradients, which the following arguments are for; False for
                gradient × input, as on the screen.
            baseline: `mean`, `first`, `zero`, or the text of one token.
            steps: Number of steps from the baseline to the text to start with.
            hold_experts: Whether a mixture of experts is routed as for the text at every step, which answers a
                different question.

        Raises:
            EngineError: The model has no gradient, a check of it failed, or a text isn't a single token.
        """
        one, other = (*self._compared(token, against, alone), None)[:2]
        method: protocol.GradientMethod = "integrated" if integrated else "input"
        start = baseline_of(baseline)
        command = protocol.ReadGradients(self.node, one, other, method, *start, steps, hold_experts)
        hint = "Take more steps, another baseline, or hold_experts=True in a mixture of experts."
        read = self._line.view(command, protocol.GradientsRead, "gradients", hint)
        return Gradients(read, self._path())

    def _compared(self, token: int | str | None, against: int | str | None, alone: bool) -> tuple[int, ...]:
        """The ids of the one or two tokens whose logits are compared.

        Raises:
            EngineError: No prompt was given, or a text isn't a single token.
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
            PromptError: A text isn't a single token.
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
        """Divide the attention scores of one head, from the last token here, among the writers to its query and keys.

        Args:
            layer: Index of the layer, from 0; None to choose the head that attends most to one token other than the
                first and the last two.
            head: Index of the head, from 0; None to choose it in the same way.
            keys: Indices in the path to include whatever their weight; of a long path only the keys with the largest
                weights are included by default.

        Raises:
            StepError: There is no such head or key, a check of the result failed, or the scores aren't known.
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
        """Read which experts the last token here was routed to, and the states of recurrent layers after it.

        Raises:
            StepError: The model has neither experts nor recurrent layers, or a check of the result failed.
        """
        return Experts(self._line.view(protocol.ReadExperts(self.node), protocol.ExpertsRead, "experts"))

    @checked
    def moved(self, offset: int = 0, change: protocol.PositionChange = "token") -> Moved:
        """Predict the next token with changed positions, or without the causal mask.

        Args:
            offset: Number to add to positions.
            change: `token` changes the last token's position, `path` those of all tokens, `mask` removes the causal
                mask instead.

        Raises:
            StepError: The positions of the model can't be changed, or a check of the result failed.
        """
        asked = protocol.TryPosition(self.node, change, offset)
        return Moved(self._line.view(asked, protocol.PositionTried, "positions"))

    @checked
    def heads(self, texts: int = 0, length: int = 50, seed: int = 0) -> Answer[protocol.HeadsScored]:
        """Score the behavior of each head: previous token, induction, duplicate token, first token, entropy.

        Args:
            texts: Number of texts of repeated random tokens to score over; 0 for the path up to here.
            length: Number of tokens that each text repeats.
            seed: Seed of the random tokens.

        Raises:
            StepError: A check of the result failed, or such texts can't be made.
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
            token: Token whose logit is followed, by its id or text.
            against: Token whose logit is subtracted, by its id or text.
            part: Whole layers, or the outputs of their `attention` or `mlp`.
            facing: Alignment: pairs of a position in this path and one in the other, from 0; None to align common
                blocks.

        Raises:
            StepError: The branch belongs to a different session, there is nothing to patch, or a check failed.
            PromptError: A text isn't a single token.
        """
        _of_one_session(self, source)
        ids = self._id(token), self._id(against)
        command = protocol.PatchActivations(self.node, source.node, *ids, part, facing)
        return Answer(self._line.view(command, protocol.ActivationsPatched, "patching"))

    @checked
    def patch_pairs(
        self, pairs: Sequence[tuple[str, str] | tuple[str, str, str, str]], part: protocol.PatchKind = "layer"
    ) -> Answer[protocol.PairsPatched]:
        """Patch pairs of texts on this session's model, and average the results.

        Args:
            pairs: Text and source, and optionally the two answers, which are otherwise found.
            part: As for `patching`.

        Raises:
            StepError: No pair can be patched, or a check failed.
        """
        command = protocol.PatchPairs(tuple(protocol.PatchPair(*each) for each in pairs), part)
        return Answer(self._line.view(command, protocol.PairsPatched, "patching"))

    # ---- export -----------------------------------------------------------------------------

    @checked
    def to_html(self, path: str | Path | None = None) -> str:
        """The session as a self-contained HTML page: this branch to its end, then the others, oldest first, and the
        views of the internals that were read.

        Args:
            path: A file to write the page to, which is replaced; None to write no file.

        Returns:
            The page as HTML.

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
        """A row for each branch: the step from which it differs from earlier ones, and its text from there on."""
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
    """Show the progress of a run in a notebook, or else on standard error if it is a terminal.

    Args:
        total: Maximum number of tokens of the run.

    Returns:
        A function that updates it, called with the number of tokens so far, and True at the end.
    """
    began = updated = time.monotonic()
    shell = sys.modules.get("IPython")  # without it there is no notebook
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
    """The branch that a run makes, which yields its steps as they come.

    Args:
        line: Connection of the session.
        node: Node from which it runs.
        owner: The branch that was run.
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
        """The number of its last token in the tree; waits for the end of the run."""
        self.wait()
        return self._node

    @checked
    def wait(self, progress: bool = False) -> Run:
        """Wait for the end of the run.

        Args:
            progress: Whether to show its progress, in a notebook or on the terminal.

        Raises:
            EngineError: The run failed.
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
        """Wait for its end, or stop it and keep only a number of its steps."""
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
        """The step with an index, from 0; None if the run ends before it."""
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
    """A model, a prompt and the tree of its continuations; as a branch, it moves to the end of each run.

    Opened by `open`; closed by `close`, at the end of a `with` block, by the garbage collector, or with the process.
    """

    def __init__(self, line: _Line, node: int) -> None:
        super().__init__(line, node)
        self._finalizer = weakref.finalize(self, line.close)

    @property
    def node(self) -> int:
        """The number of its last token in the tree."""
        with self._line.lock:
            self._line.settle()
        return self._node

    def _went(self, node: int) -> None:
        self._node = node

    @property
    def tree(self) -> Tree:
        """All branches, each to its end, oldest first."""
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
        """Use new settings from here on.

        Raises:
            EngineError: A setting is out of range or doesn't exist.
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
            EngineError: The file can't be written.
        """
        free(Path(path), force, "Choose another name, or pass force=True.")
        with self._line.lock:
            self._line.settle()
            if self._line.timeline.tip != self._node:
                self._line.do(protocol.MoveTo(self._node))  # the recording opens at this node
            with self._line.arrived:
                entries = list(self._line.entries)
            save_as(path, entries, program(), force)
        return Path(path)

    def screen(self) -> None:
        """Show the session on the screen, as a recording; returns when the user quits.

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
        """Stop a run under way, and release the tree; closing again does nothing."""
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
    """Open a session: a model with a prompt, or a saved recording.

    Args:
        model: `pocket` (comes with the program), a hub id, a directory, or a recording, which needs neither MLX nor
            its model, but can't compute anything.
        prompt: The text to continue.
        messages: A conversation instead of a prompt, with the keys `role` and `content`, and others that the chat
            template reads.
        chat: Whether the prompt goes through the chat template as a user message; by default it does if the model has
            a template, unless its folder asks for raw prompts, as that of `pocket` does.
        system: The system message before the prompt.
        settings: Settings of the sampler (`temp`, `top_p`, `seed`, ...) and of loading (`dtype`, `kv_bits`, ...), named
            like the command line's flags. Others have the model's defaults (generation_config.json), or else those of
            mlx_lm, which is greedy decoding.

    Raises:
        EngineError: The model can't be loaded, the prompt is refused, or a setting is wrong.
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
    """Train a small model, one step per iteration of a loop; leaving the loop ends the training.

    Args:
        texts: Files or folders of text; by default the stories that come with the program.
        directory: Directory for the checkpoint that is saved at the end, also if the loop is left early.
        settings: Settings of the training: `layers`, `width`, `vocabulary`, `steps`, `seed`, ...

    Returns:
        The steps, each with its loss, and some with a look at what the model has learned.

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
    """Open a recording as a session."""
    from inspector.export.recording import read

    recording = read(path)
    line = _Line(recording.load or LoadSettings(), recording.settings or Settings())
    line.client.timeline = recording.timeline
    return Session(line, recording.tip)


@checked
def compare(left: Branch, right: Branch) -> Comparison:
    """Compare two branches of one session.

    Raises:
        StepError: They belong to different sessions.
    """
    _of_one_session(left, right)
    return Comparison(comparison.compare(left._path(), right._path()))


def _of_one_session(one: Branch, other: Branch) -> None:
    """Check that two branches belong to one session.

    Raises:
        StepError: They don't.
    """
    if one._line is not other._line:
        hint = "Give two of one: b = s.at(12).take(' cat').run(10)."
        raise StepError("These are branches of two sessions.", hint)


def _changed(settings: Settings, given: dict[str, Any]) -> Settings:
    """Settings with some changed.

    Raises:
        SettingsError: A setting is out of range or doesn't exist.
    """
    return changed(settings, **settings_of(Settings, BY_NAME, given))
