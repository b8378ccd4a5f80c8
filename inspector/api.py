"""The Python interface: sessions that are opened, run, branched and looked into from a program or a notebook.

    from mlx_inspector import compare, open

    with open("pocket", prompt="Once upon a time", temp=0.8, seed=7) as s:
        for step in s.run(20):
            print(step.text, step.prob, step.rank, step.top(3))
        b = s.at(12).take(" cat").run(10)
        print(compare(s, b))

It drives the engine that the screen drives, by the same commands, and gives out what the same records say. One thread
computes for all sessions of a process; sessions on the same model share its weights. Any thread may call; the calls on
one session wait for each other. What goes wrong is an `EngineError`, with the words of the command line.
"""

from __future__ import annotations

import asyncio
import atexit
import html
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from engine import errors, protocol
from engine.breakpoints import Breakpoints
from engine.errors import COMPUTE_AGAIN, EngineError, PathError, PromptError, SettingsError, StepError
from engine.processes import python_command
from engine.protocol import Command, Intervention, Message, Record
from engine.settings import LoadSettings, Settings, changed, check_load
from engine.thread import EngineThread
from engine.trace import Entry, save_as, worth_keeping
from inspector.session.client import Backend, EngineClient, IdleBackend, Request
from inspector.state.passage import (
    MOST_SHOWN,
    Candidate,
    Passage,
    Step,
    bar,
    coloured,
    span,
    table,
    top,
)
from inspector.state.segments import Segments
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.version import program

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from inspector.tools.compare.comparison import Comparison as Compared

Reply = TypeVar("Reply", bound=Record)
ENDLESS = 10**9
"""Tokens of a completion: a run is bounded by its own number."""
STOPS = ("eos", "stop", "grammar")
"""Why a text has ended, rather than a run."""
CLOSED = "This session is closed.", "Open another one."


class Fault(EngineError):
    """A fault of this program, not of its caller; `trace` holds the engine's traceback."""

    trace = ""


# ---- the engine --------------------------------------------------------------------------------


class _Engine:
    """The thread that computes for all sessions of the process; begun with the first, ended with the process."""

    def __init__(self) -> None:
        self._thread: EngineThread | None = None
        self._lock = threading.Lock()

    def session(self, emit: Callable[[Record], None]) -> Backend:
        """A session of its own in the thread."""
        with self._lock:
            if self._thread is None:
                self._thread = EngineThread(lambda record: None)
                self._thread.start()
                atexit.register(self._thread.close)
            return self._thread.beside(emit)


_ENGINE = _Engine()


class _Line:
    """What goes to the engine for one session and comes back: one call at a time, and its records.

    The engine's thread takes the records in, so that Ctrl-C, which breaks into the thread that waits for them, can
    lose none.

    Args:
        load: How the model is loaded.
        settings: The first of the session.
    """

    def __init__(self, load: LoadSettings, settings: Settings) -> None:
        self.lock = threading.RLock()
        """Held by the call that is under way."""
        self.arrived = threading.Condition()
        """Held while a record is taken in, and while what they came to is read."""
        self.load, self.settings = load, settings
        self.client = EngineClient(IdleBackend())
        self.held: tuple[Intervention, ...] = ()
        """What the next tokens are computed under."""
        self.pending: Run | None = None
        """A run that nobody has waited for yet."""
        self.entries: list[Entry] = []
        """What a trace of the session holds."""
        self.closed = False
        self._broken: Exception | None = None
        self._began = time.monotonic()

    @property
    def timeline(self) -> Timeline:
        """What the records came to."""
        return self.client.timeline

    def connect(self) -> None:
        """Begin in the engine's thread: the model, and the settings."""
        self.client.backend = _ENGINE.session(self._emit)
        self.keep(self.load)
        self.do(protocol.Load(self.load))
        self.configure(self.settings)

    def configure(self, settings: Settings) -> None:
        """Use other settings from here on."""
        self.do(protocol.Configure(settings))
        self.settings = settings
        self.keep(settings)

    def keep(self, value: Record | Settings | LoadSettings) -> None:
        """Keep something for the trace."""
        self.entries.append(Entry(value, time.monotonic() - self._began))

    def do(self, command: Command) -> Request[Any]:
        """Carry out a command, once a run that is under way has ended, unless it can be answered meanwhile.

        Raises:
            EngineError: It failed, or the session is closed.
        """
        with self.lock:
            if not command.aside:
                self.settle()
            request = self.send(command, None)
            self.wait(request)
            return request

    def ask(self, command: Command, kind: type[Reply], at: int) -> Reply:
        """Ask for a record about a node; where its logits were dropped, have them computed again.

        Raises:
            EngineError: The engine refuses.
        """
        try:
            return self.do(command).answer(kind)
        except EngineError as error:
            if not error.hint.startswith(COMPUTE_AGAIN):
                raise
        self.do(protocol.Recall((at,)))
        return self.do(command.renewed()).answer(kind)

    def send(self, command: Command, each: Callable[[Record], object] | None) -> Request[Any]:
        """Send a command.

        Raises:
            StepError: The session is closed, or a recording.
        """
        if self.closed:
            raise StepError(*CLOSED)
        if self.timeline.recorded:
            raise StepError(
                "This session is a recording: nothing is computed in it.", "Open its model, and its prompt."
            )
        with self.arrived:
            return self.client.request(command, lambda request: None, each)

    def wait(self, request: Request[Any]) -> None:
        """Wait for the end of a command; whatever breaks in, as Ctrl-C does, has it cancelled.

        Raises:
            EngineError: It failed.
        """
        try:
            self.until(lambda: request.done)
        except BaseException:
            self.stop(request)
            raise
        if request.failure is not None:
            raise _error(request.failure)

    def stop(self, request: Request[Any]) -> None:
        """Have a command end, and wait for that."""
        request.cancel()
        self.until(lambda: request.done)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the records that came make something true."""
        with self.arrived:
            self.arrived.wait_for(lambda: holds() or self._broken is not None)
        if self._broken is not None:
            raise self._broken

    def _emit(self, record: Record) -> None:
        """Take in a record, in the engine's thread."""
        with self.arrived:
            try:
                if worth_keeping(record):
                    self.keep(record)
                self.client.receive(record)
            except Exception as error:
                self._broken = error
            self.arrived.notify_all()

    def settle(self) -> None:
        """Wait for a run that nobody has waited for."""
        if (run := self.pending) is not None:
            run.wait()

    def stand(self, node: int) -> int:
        """Go to a node, and under what is switched off; returns the node to go on from.

        Raises:
            EngineError: The engine refuses.
        """
        self.settle()
        tree = self.timeline.tree
        under = tree.interventions.get(tree.held.get(node, 0), ())
        if under != self.held:
            for record in self.do(protocol.HoldInterventions(node, self.held)).records:
                if isinstance(record, protocol.InterventionsHeld):
                    node = record.node
        elif self.timeline.tip != node:
            self.do(protocol.MoveTo(node))
        return node

    def close(self) -> None:
        """Let the tree go, and the model where no other session has it."""
        if not self.closed:
            self.closed = True
            self.client.backend.close()


def _check(what: str, facts: protocol.CaptureFacts) -> None:
    """Refuse a view whose check failed.

    Raises:
        StepError: One did.
    """
    if (failed := facts.failed) is not None:
        raise StepError(
            f"{what} of {facts.family} can't be shown: the check `{failed.name}` is off by {failed.error:.2g}, "
            f"and {failed.bound:.2g} is allowed."
        )


def _error(failure: protocol.Failure) -> EngineError:
    """What a failure is raised as: the engine's own class where that takes a message and a hint alone."""
    if not failure.expected:
        fault = Fault(failure.message, failure.hint)
        fault.trace = failure.trace
        return fault
    kind = getattr(errors, failure.error, EngineError)
    if kind in (errors.SettingsError, errors.RankError):
        kind = EngineError
    made: EngineError = kind(failure.message, failure.hint)
    return made


class Sampler:
    """The sampler's way to the next token at a place, stage by stage.

    `record` has each candidate after each stage (`engine.protocol.Explained`).
    """

    def __init__(self, record: protocol.Explained) -> None:
        self.record = record

    @property
    def stages(self) -> dict[str, int]:
        """The stages that run, in their order, and the tokens of the vocabulary that each leaves."""
        return {column.name: column.kept for column in self.record.columns}

    @property
    def picked(self) -> int:
        """The id of the token on which the draw falls."""
        return self.record.next.picked

    @property
    def draw(self) -> float | None:
        """The number that is drawn, 0 to 1; None where the most probable token is taken."""
        return self.record.next.draw

    def top(self, count: int = 5) -> list[Candidate]:
        """The most probable tokens by the model, best first."""
        return top(self.record.next, count)

    def _repr_html_(self) -> str:
        columns, shown = self.record.columns, self.record.next.candidates[:8]
        heads = ("token", "model", *(f"{each.name}: {each.kept:,} left" for each in columns), "sampler")
        rows = [
            (
                each.text, bar(each.prob),
                *(f"{column.values[place]:.4g}" if column.values[place] is not None else "" for column in columns),
                bar(each.sampler_prob),
            )
            for place, each in enumerate(shown)
        ]  # fmt: skip
        return table(heads, rows)

    def __repr__(self) -> str:
        stages = ", ".join(f"{name} leaves {kept:,}" for name, kept in self.stages.items())
        return f"<Sampler {stages or 'without stages'}; picked {self.picked}>"


class WhatIf:
    """The picks of the same draws under other settings, each step after the unchanged path before it."""

    def __init__(self, record: protocol.WhatIfAnswered) -> None:
        self.record = record

    @property
    def differing(self) -> list[protocol.WhatIfStep]:
        """The steps that would have been other ones."""
        return [step for step in self.record.steps if not step.same]

    def __repr__(self) -> str:
        return f"<WhatIf {len(self.differing)} of {len(self.record.steps)} steps would differ>"


class Attention:
    """The attention of each head of each layer from the last token of a place.

    `record` has what the engine read (`engine.protocol.AttentionRead`).
    """

    def __init__(self, record: protocol.AttentionRead, texts: Sequence[str] = ()) -> None:
        self.record = record
        self.texts = tuple(texts)
        """Of the tokens of the path."""

    @property
    def check(self) -> dict[str, tuple[float, float]]:
        """Comparisons with what the model itself computes: the largest error of each, and what is allowed."""
        return {each.name: (each.error, each.bound) for each in self.record.facts.checks}

    def weights(self, layer: int) -> npt.NDArray[np.float32]:
        """The weights of a layer over the whole path.

        Args:
            layer: From 0.

        Returns:
            Shape (heads, tokens of the path); 0 where a head can't see.

        Raises:
            StepError: The layer has no attention whose weights are known.
        """
        import numpy as np

        for read in self.record.layers:
            if read.layer == layer:
                rows = [read.over(head, self.record.tokens) for head in range(read.heads)]
                return np.array(rows, np.float32)
        known = ", ".join(str(each.layer) for each in self.record.layers)
        raise StepError(f"Layer {layer} has no attention to show.", f"These have: {known or 'none'}.")

    def _repr_html_(self) -> str:
        """The path, the more of the attention a token has on average over all heads the darker its ground."""
        rows = [
            read.over(head, self.record.tokens) for read in self.record.layers for head in range(read.heads)
        ]
        if not rows:
            return html.escape(repr(self))
        means = [sum(weights) / len(rows) for weights in zip(*rows, strict=True)]
        cells = zip(self.texts[-MOST_SHOWN:], means[-MOST_SHOWN:], strict=True)
        return coloured(span(text, f"{share:.1%}", min(0.8, 2 * share)) for text, share in cells)

    def __repr__(self) -> str:
        return f"<Attention over {self.record.tokens} tokens, {len(self.record.layers)} layers>"


class Comparison:
    """Two branches: where they part, and what each is worth from there on."""

    def __init__(self, compared: Compared) -> None:
        self.compared = compared

    @property
    def shared(self) -> int:
        """Tokens that both begin with, those of the prompt among them."""
        return self.compared.shared

    @property
    def logprobs(self) -> tuple[float, float]:
        """The sums of the logprobs of both since they parted."""
        left, right = self.compared.totals
        return left.logprob, right.logprob

    def _repr_html_(self) -> str:
        rows = [
            (
                name,
                side.tokens,
                f"{side.logprob:.2f}",
                "".join(item.text for item in path[self.shared :][:MOST_SHOWN]),
            )
            for name, side, path in zip(
                ("left", "right"),
                self.compared.totals,
                (self.compared.left, self.compared.right),
                strict=True,
            )
        ]
        return table(("", "tokens apart", "logprob", "text since they parted"), rows)

    def __repr__(self) -> str:
        left, right = self.logprobs
        return f"<Comparison {self.shared} tokens in common, then logprob {left:.2f} against {right:.2f}>"


# ---- branches ----------------------------------------------------------------------------------


class Branch(Passage):
    """A way through the tree of a session, from the prompt to a token: it is run on, looked into, and branched from.

    Nothing moves by making one: the engine goes there when something is done there.
    """

    def __init__(self, line: _Line, node: int) -> None:
        super().__init__(())  # they are read from the tree
        self._line, self._node = line, node

    # ---- what is there ----------------------------------------------------------------------

    @property
    def node(self) -> int:
        """Its last token's number in the tree."""
        return self._node

    def _path(self) -> list[Item]:
        node = self.node
        with self._line.arrived:
            path: list[Item] = self._line.timeline.tree.path(node)
            return path

    def _kinds(self, path: Sequence[Item]) -> Sequence[str | None]:
        with self._line.arrived:
            return self._line.timeline.of(Segments).read(path).kinds

    @property
    def finished(self) -> str | None:
        """The reason that its text has ended, in the words of mlx_lm; None while it may go on."""
        found = self._line.timeline.finished.get(self.node)
        return found.reason if found is not None and found.reason in STOPS else None

    def at(self, place: int | Step) -> Branch:
        """Go back to where a step was chosen.

        Args:
            place: A step, or its index; below 0 from the end.

        Raises:
            StepError: There is no such step.
        """
        steps = self.steps
        index = place.index if isinstance(place, Step) else place
        try:
            return Branch(self._line, steps[index].record.parent)
        except IndexError:
            most = f"from 0 to {len(steps) - 1}" if steps else "yet"
            raise StepError(f"There is no step {index}.", f"There are steps {most}.") from None

    # ---- on from there ----------------------------------------------------------------------

    def run(self, count: int) -> Run:
        """Take tokens that the sampler picks, until there are `count` of them or the text ends.

        The engine begins at once. Looping over what this returns hands the steps out as they come; leaving the loop
        stops the engine, and leaves those that were seen. Without a loop whatever is asked next waits for the end.

        Raises:
            EngineError: The engine refuses.
        """
        if count < 1:
            raise StepError(f"A run of {count} tokens can't be made.", "Give a number from 1.")
        line = self._line
        with line.lock:
            node = self._node if self.finished else line.stand(self.node)
            run = Run(line, node, self)
            if not self.finished:
                run.begin(count)
            return run

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
            command = (
                protocol.Take(node, (token,)) if isinstance(token, int) else protocol.Insert(node, token)
            )
            steps = [each for each in line.do(command).records if isinstance(each, protocol.Step)]
            self._went(steps[-1].node if steps else node)
            return Branch(line, steps[-1].node if steps else node)

    def _went(self, node: int) -> None:
        """Something was done at its end; a session goes along, a branch stays where it is."""

    @contextmanager
    def off(self, units: str) -> Iterator[Branch]:
        """Switch parts of the model off for what is run inside the block, on every branch of the session.

        Args:
            units: `L6 h1` (a head), `L3 mlp`, `L4 attention`, `L2` (a layer), `L6 h1 x0.5` (scaled); several with
                commas between them.

        Raises:
            StepError: One of them is not so written.
        """
        line = self._line
        try:
            held = protocol.units_from(units)
        except ValueError as error:
            raise StepError(f"{error}.") from None
        with line.lock:
            line.settle()
            before, line.held = line.held, held
        try:
            yield self
        finally:
            with line.lock:
                line.settle()
                line.held = before

    # ---- what is asked ----------------------------------------------------------------------

    def sampler(self, **settings: Any) -> Sampler:
        """Explain how the sampler comes to the next token here.

        Args:
            settings: Other settings to try with the same draw; without them those that were used.

        Raises:
            EngineError: A setting is out of range, or no prompt was given.
        """
        other = _changed(self._line.settings, settings) if settings else None
        node = self.node
        return Sampler(self._line.ask(protocol.Explain(node, other), protocol.Explained, node))

    def what_if(self, **settings: Any) -> WhatIf:
        """Tell which steps up to here other settings would have made other ones.

        Raises:
            EngineError: A setting is out of range.
        """
        other, node = _changed(self._line.settings, settings), self.node
        return WhatIf(self._line.do(protocol.WhatIf(other, node)).answer(protocol.WhatIfAnswered))

    def attention(self) -> Attention:
        """Read where each head looks from the last token here.

        Raises:
            StepError: What was read is not what the model computes, or the model has nothing to read.
        """
        read = self._line.do(protocol.ReadAttention(self.node)).answer(protocol.AttentionRead)
        _check("The attention", read.facts)
        return Attention(read, [item.text for item in self._path()])

    def heads(self, texts: int = 0, length: int = 50, seed: int = 0) -> protocol.HeadsScored:
        """Score what each head does: previous token, induction, duplicate token, first token, entropy.

        Args:
            texts: Over so many texts of random tokens, repeated; 0 for the path up to here.
            length: Tokens of each that are repeated.
            seed: Of the tokens.

        Raises:
            StepError: What was read is not what the model computes; or there can be no such texts.
        """
        over = protocol.RepeatedTexts(length, texts, seed) if texts else None
        scored = self._line.do(protocol.ScoreHeads(self.node, over)).answer(protocol.HeadsScored)
        _check("What the heads do", scored.facts)
        return scored

    def patching(
        self, source: Branch, token: int, against: int, part: protocol.PatchKind = "layer"
    ) -> protocol.ActivationsPatched:
        """Put what another branch of this session computes into this one, layer by layer and token by token.

        Args:
            source: The other branch.
            token: Its logit ...
            against: ... less that of this one is followed: ids.
            part: Whole layers, or what their `attention` or `mlp` returns.

        Raises:
            StepError: There is nothing to put in; a check failed.
        """
        command = protocol.PatchActivations(self.node, source.node, token, against, part)
        read = self._line.do(command).answer(protocol.ActivationsPatched)
        _check("What was put in", read.facts)
        return read

    def patch_pairs(
        self, pairs: Sequence[tuple[str, ...]], part: protocol.PatchKind = "layer"
    ) -> protocol.PairsPatched:
        """Patch each of a set of pairs of texts on this session's model, and take the means.

        Args:
            pairs: Text and source, and the two answers, where they are not to be found.
            part: As for `patching`.

        Raises:
            StepError: None of them can be patched; a check failed.
        """
        read = self._line.do(
            protocol.PatchPairs(tuple(protocol.PatchPair(*each) for each in pairs), part)
        ).answer(protocol.PairsPatched)
        _check("What was put in", read.facts)
        return read

    # ---- where it goes ----------------------------------------------------------------------

    def to_html(self, path: str | Path | None = None) -> str:
        """The session as a page of its own, this branch first.

        Args:
            path: A file to write it to, which is replaced; None for none.

        Returns:
            The page.

        Raises:
            EngineError: There is no prompt, or the file can't be written.
        """
        from inspector.tools.export.documents import web_page
        from inspector.tools.export.recording import line, snapshot

        own = self._line
        node = self.node
        with own.arrived:
            recording = line(snapshot(own.timeline, own.settings, own.load, program()), node)
        made = web_page(recording)
        if path is not None:
            try:
                Path(path).write_text(made, "utf-8")
            except OSError as error:
                raise PathError(
                    f"{path} can't be written: {error.strerror or error}.", "Name another file."
                ) from error
        return made


class Tree(list[Branch]):
    """The branches of a session, each from the prompt to its end."""

    def _repr_html_(self) -> str:
        """A row for each: where it leaves those before it, and its text from there on."""
        met: set[int] = set()
        rows: list[tuple[object, ...]] = []
        for branch in self:
            items = branch._path()
            own = [item for item in items if item.node not in met]
            met.update(item.node for item in own)
            first = next((item for item in own if isinstance(item, protocol.Step)), None)
            text = "".join(item.text for item in own if isinstance(item, protocol.Step))
            begins = first.index if first is not None else ""
            rows.append((begins, len(branch.steps), f"{branch.logprob:.2f}", text[:MOST_SHOWN]))
        return table(("from step", "tokens", "logprob", "text from there on"), rows)

    def __repr__(self) -> str:
        return f"<Tree of {len(self)} branches>"


class _Progress:
    """A line that says how far a run is: in a notebook, or else on the terminal, if standard error is one.

    Args:
        total: Tokens that the run takes at most.
    """

    OFTEN = 0.1
    """Seconds between two changes of it."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._began = self._told = time.monotonic()
        shell = sys.modules.get("IPython")  # where it isn't imported there is no notebook
        self._display: Any = None
        if shell is not None and shell.get_ipython() is not None:
            self._display = shell.display.display(self._html, display_id=True)

    @property
    def _text(self) -> str:
        seconds = max(1e-9, time.monotonic() - self._began)
        return f"{self._done:,} of {self._total:,} tokens, {self._done / seconds:.0f} a second"

    @property
    def _html(self) -> Any:
        bar = f'<progress value="{self._done}" max="{self._total}"></progress> {self._text}'
        return sys.modules["IPython"].display.HTML(bar)

    def tell(self, done: int) -> None:
        """Say that so many tokens are there."""
        self._done = done
        if time.monotonic() - self._told >= self.OFTEN:
            self._show()

    def _show(self, end: str = "") -> None:
        self._told = time.monotonic()
        if self._display is not None:
            self._display.update(self._html)
        elif sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(f"\r{self._text}\x1b[K{end}")
            sys.stderr.flush()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *failure: object) -> None:
        self._show("\n")


class Run(Branch):
    """A run: the branch that ends where it ends, which hands its steps out as they come.

    Args:
        line: Of the session.
        node: Where it begins.
        owner: What it was asked of.
    """

    def __init__(self, line: _Line, node: int, owner: Branch) -> None:
        super().__init__(line, node)
        self._owner = owner
        self._request: Request[Any] | None = None
        self._came: list[protocol.Step] = []
        self._count = 0

    def begin(self, count: int) -> None:
        """Have the engine run."""
        line, self._count = self._line, count
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

    def wait(self, progress: bool = False) -> Run:
        """Wait for the end of the run.

        Args:
            progress: Whether to show how far it is, in a notebook or on the terminal.

        Raises:
            EngineError: It failed.
        """
        if progress:
            with _Progress(self._count) as shown:
                for step in self:
                    shown.tell(step.index - self._came[0].index + 1)
        with self._line.lock:
            if self._request is not None and self._line.pending is self:
                try:
                    self._line.wait(self._request)
                finally:
                    self._end(len(self._came))
        return self

    def _end(self, count: int) -> None:
        """It has ended, with so many steps that count."""
        self._line.pending = None
        if count:
            self._node = self._came[count - 1].node
            self._owner._went(self._node)
        del self._came[count:]

    def __iter__(self) -> Iterator[Step]:
        given = 0
        try:
            while (step := self._next(given)) is not None:
                given += 1
                yield step
        finally:
            self._leave(given)

    def _next(self, given: int) -> Step | None:
        """The step after so many; None where the run has ended before."""
        with self._line.lock:
            request = self._request
            if request is not None:
                self._line.until(lambda: given < len(self._came) or request.done)
            if given < len(self._came):
                record = self._came[given]
                at = self._line.timeline.of(Segments).state(record.node)
                return Step(record, at.kind if at is not None else None)
            if self._line.pending is self:
                self.wait()  # tells what failed
            return None

    def _leave(self, given: int) -> None:
        """The loop is left: stop the engine, and forget the steps that nobody saw."""
        line = self._line
        with line.lock:
            if self._request is not None and line.pending is self:
                line.stop(self._request)
                self._end(given)

    async def __aiter__(self) -> AsyncIterator[Step]:
        given = 0
        try:
            while (step := await asyncio.to_thread(self._next, given)) is not None:
                given += 1
                yield step
        finally:
            self._leave(given)

    def __len__(self) -> int:
        self.wait()
        return len(self._came)

    @property
    def new(self) -> list[Step]:
        """The steps of this run alone."""
        self.wait()
        steps = self.steps
        return steps[len(steps) - len(self._came) :]


# ---- sessions ----------------------------------------------------------------------------------


class Session(Branch):
    """A model, a prompt and a tree of what came of it; as a branch, its end moves along with what is run on it.

    Opened by `open`; it is closed by `close`, at the end of a `with` block, by the collector, or with the process.
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
        """Of the sampler, in force."""
        return self._line.settings

    @property
    def model(self) -> protocol.ModelFacts:
        """The facts about its model."""
        facts = self._line.timeline.facts
        assert facts is not None, "there is no session before its model is loaded"
        return facts

    def set(self, **settings: Any) -> Session:
        """Use other settings from here on.

        Raises:
            EngineError: One is out of range, or there is none of that name.
        """
        with self._line.lock:
            self._line.configure(_changed(self._line.settings, settings))
        return self

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Write a trace, which `inspector replay` and `open` take.

        Args:
            path: The file.
            force: Whether an existing file is replaced.

        Raises:
            EngineError: It can't be written.
        """
        with self._line.lock:
            self._line.settle()
            if self._line.timeline.tip != self._node:
                self._line.do(protocol.MoveTo(self._node))  # where it opens
            with self._line.arrived:
                entries = list(self._line.entries)
            save_as(path, entries, program(), force)
        return Path(path)

    def screen(self) -> None:
        """Show the session on the screen, as a recording; returns when that is left.

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
        """Stop what is under way, and let the tree go; closing again does nothing."""
        self._finalizer()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(
    model: str | Path = "pocket",
    prompt: str | None = None,
    *,
    messages: Sequence[dict[str, str]] | None = None,
    chat: bool = False,
    system: str | None = None,
    **settings: Any,
) -> Session:
    """Open a session: a model with a prompt, or a trace that was saved.

    Args:
        model: `pocket` (it comes with the program), a hub id, a directory, or a trace, which needs neither MLX nor its
            model: what it holds is there, and nothing more is computed.
        prompt: The text to go on from, as it is.
        messages: A conversation in place of it, with the keys `role` and `content`, through the chat template.
        chat: Whether the prompt goes through the chat template, as a user's message.
        system: The system message before that.
        settings: Of the sampler (`temp`, `top_p`, `seed`, ...) and of the loading (`dtype`, `kv_bits`, ...), as the
            flags of the command line are named. Without `temp` the most probable token is taken.

    Raises:
        EngineError: The model can't be loaded, the prompt can't be held, or a setting is wrong.
    """
    if model != "pocket" and Path(model).is_file():
        if prompt is not None or messages is not None or settings:
            raise PromptError("A trace is opened as it is.", "Open its model for another prompt.")
        return _recorded(Path(model))
    said = _messages(messages or ())
    load, sampling = _split(settings)
    line = _Line(
        check_load(LoadSettings(model=str(model), **load)), _changed(Settings(max_tokens=ENDLESS), sampling)
    )
    session = Session(line, 0)
    try:
        line.connect()
        if prompt is not None or messages is not None:
            line.do(protocol.Prefill(prompt or "", chat or bool(said), system, messages=said))
    except BaseException:
        session.close()
        raise
    session._went(line.timeline.tip)
    return session


def _messages(given: Sequence[dict[str, str]]) -> tuple[Message, ...]:
    """A conversation.

    Raises:
        PromptError: One of them has no role, or no content.
    """
    for each in given:
        if missing := {"role", "content"} - each.keys():
            raise PromptError(f"A message has no {' and no '.join(sorted(missing))}.", "Give it both.")
    return tuple(Message(each["role"], each["content"]) for each in given)


def _recorded(path: Path) -> Session:
    """The session of a trace."""
    from inspector.tools.export.recording import read

    recording = read(path)
    line = _Line(recording.load or LoadSettings(), recording.settings or Settings())
    line.client.timeline = recording.timeline
    return Session(line, recording.tip)


def compare(left: Branch, right: Branch) -> Comparison:
    """Compare two branches of one session.

    Raises:
        StepError: They are of two sessions.
    """
    from inspector.tools.compare import comparison

    if left._line is not right._line:
        raise StepError(
            "These are branches of two sessions.", "Compare two of one: s.at(12).take(' cat').run(10)."
        )
    return Comparison(comparison.compare(left._path(), right._path()))


def _split(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the loading, and those of the sampler."""
    own = {field.name for field in fields(LoadSettings)}
    return {k: v for k, v in given.items() if k in own}, {k: v for k, v in given.items() if k not in own}


def _changed(settings: Settings, given: dict[str, Any]) -> Settings:
    """Settings with some changed.

    Raises:
        SettingsError: One is out of range, or there is none of that name.
    """
    known = [field.name for field in fields(Settings)]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise SettingsError(
                name, f"There is no setting {name}.", f"Did you mean {near[0]}?" if near else ""
            )
    listed = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    return changed(settings, **listed)
