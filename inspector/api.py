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
import os
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import fields

from engine import errors, protocol
from engine.breakpoints import Breakpoints
from engine.child import EngineProcess
from engine.errors import (
    COMPUTE_AGAIN,
    FAULT,
    EngineError,
    PromptError,
    SettingsError,
    StepError,
    first_line,
)
from engine.files import replacing
from engine.processes import python_command
from engine.protocol import Command, Intervention, Message, Received, Record
from engine.recording import Entry, save_as, worth_keeping
from engine.setting import check
from engine.settings import BY_NAME, LoadSettings, Settings, TrainingSettings, changed, with_defaults
from engine.thread import EngineThread
from inspector.blocks.page import notebook
from inspector.border import checked, settings_of
from inspector.display import token_label
from inspector.documents import attention, gradients
from inspector.session.client import Backend, EngineClient, IdleBackend, Request
from inspector.state.gradients import TokenShare, asked_words, baseline_of, largest, method_words, shares_of
from inspector.state.merges import ladder_lines, rung, rungs
from inspector.state.passage import (
    MOST_SHOWN,
    Candidate,
    Step,
    bar,
    quoted,
    table,
    tokens_html,
    top,
)
from inspector.state.scores import by_weight, in_words, key_shares, query_shares
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
        """True in a process that was forked from one with the thread, or with MLX: their threads did not come along."""
        os.register_at_fork(after_in_child=self._after_fork)

    def session(self, line: _Line) -> Backend:
        """A session of its own in the thread.

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
        """Refuse to compute where nothing would ever answer.

        Raises:
            StepError: The thread is another process's.
        """
        if self.forked:
            raise StepError(*FORKED)

    def _after_fork(self) -> None:
        if self._thread is not None or sys.modules.get("mlx.core") is not None:
            self.forked, self._lock = True, threading.Lock()
            for line in self._lines:  # whoever held their locks isn't in this process, nor what runs
                line.pending = None
                line.unlock()

    def _close(self) -> None:
        if self._thread is not None and not self.forked:
            self._thread.close()


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
        self.unlock()
        self.own = object()
        """Tells the steps of the session from those of others."""
        self.load, self.settings = load, settings
        self.client = EngineClient(IdleBackend())
        self.held: tuple[Intervention, ...] = ()
        """What the next tokens are computed under."""
        self.pending: Run | None = None
        """A run that nobody has waited for yet."""
        self.entries: list[Entry] = []
        """What a recording of the session holds."""
        self.closed = False
        self._broken: BaseException | None = None
        """What was raised when a record was taken in, until somebody is told."""
        self._began = time.monotonic()

    def unlock(self) -> None:
        """Begin with locks that nobody holds."""
        self.lock = threading.RLock()
        """Held by the call that is under way."""
        self.arrived = threading.Condition()
        """Held while a record is taken in, and while what they came to is read."""

    @property
    def timeline(self) -> Timeline:
        """What the records came to."""
        return self.client.timeline

    def connect(self, given: Collection[str]) -> None:
        """Begin in the engine's thread: the model, and the settings, of which those that are not given are its own."""
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
        """Keep something for the recording."""
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
        return self.do(command).answer(kind)

    def send(self, command: Command, each: Callable[[Record], object] | None) -> Request[Any]:
        """Send a command.

        Raises:
            StepError: The session is closed, a recording, or another process's.
        """
        _ENGINE.check()
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
        except Fault:  # a record of it could not be taken in: its end may not come
            request.cancel()
            raise
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
            if not holds():
                _ENGINE.check()
            self.arrived.wait_for(lambda: holds() or self._broken is not None)
            broken, self._broken = self._broken, None
        if broken is not None:
            raise Fault(f"{type(broken).__name__}: {first_line(broken)}.", FAULT) from broken

    def _emit(self, received: Received) -> None:
        """Take in a record, in the engine's thread."""
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

    @contextmanager
    def under(self, held: tuple[Intervention, ...]) -> Iterator[None]:
        """Compute what is run inside the block under interventions."""
        with self.lock:
            self.settle()
            before, self.held = self.held, held
        try:
            yield
        finally:
            with self.lock:
                self.settle()
                self.held = before

    def close(self) -> None:
        """Let the tree go, and the model where no other session has it."""
        if not self.closed:
            self.closed = True
            if not _ENGINE.forked:
                self.client.backend.close()


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

    @checked
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


class Direction:
    """A direction of the residual stream, to steer by.

    `record` has its numbers (`engine.protocol.Direction`).
    """

    def __init__(self, record: protocol.Direction) -> None:
        self.record = record

    @property
    def vector(self) -> npt.NDArray[np.float32]:
        """Its numbers, shape (width,)."""
        import numpy as np

        return np.array(self.record.vector.row(), np.float32)

    @checked
    def save(self, path: str | Path) -> None:
        """Save it to a file, which is replaced; `Branch.steer` and `--steer` take that.

        Raises:
            PathError: It can't be written.
        """
        from inspector.config.directions import write_direction

        write_direction(Path(path), self.record, force=True)

    def __repr__(self) -> str:
        return f"<Direction {self.record.label} of layer {self.record.layer}, #{self.record.digest}>"


def _direction(given: Direction | str | Path) -> Direction:
    """A direction, or what a file holds of one.

    Raises:
        PathError: It can't be read.
    """
    if isinstance(given, Direction):
        return given
    from inspector.config.directions import read_direction

    return Direction(read_direction(Path(given)))


class Attention:
    """The attention of each head of each layer from the last token of a place.

    `record` has what the engine read (`engine.protocol.AttentionRead`).
    """

    def __init__(self, record: protocol.AttentionRead, path: Sequence[Item] = ()) -> None:
        self.record, self._path = record, path
        self.texts = tuple(item.text for item in path)
        """Of the tokens of the path."""

    @property
    def check(self) -> dict[str, tuple[float, float]]:
        """Comparisons with what the model itself computes: the largest error of each, and what is allowed."""
        return {each.name: (each.error, each.bound) for each in self.record.facts.checks}

    @checked
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
        """The text colored by the mean of all heads, and the strongest weights."""
        return notebook(attention.document(self.record, self._path))

    def __repr__(self) -> str:
        return f"<Attention over {self.record.tokens} tokens, {len(self.record.layers)} layers>"


class Gradients:
    """The share of each token of the path in a logit, or in the difference of two.

    `record` has what the engine read (`engine.protocol.GradientsRead`).
    """

    def __init__(self, record: protocol.GradientsRead, path: Sequence[Item] = ()) -> None:
        self.record, self._path = record, path
        self.shares = shares_of(record, path)
        """In the order of the text: each with its `place`, `label`, `value` in logits, and `share` of all sizes."""

    @property
    def residual(self) -> float | None:
        """How far the shares are from what they have to sum to, as a share of it; None for gradient x input."""
        return self.record.residual

    @checked
    def top(self, count: int = 5) -> list[TokenShare]:
        """The largest, whatever their sign."""
        return largest(self.shares)[: max(0, count)]

    def _repr_html_(self) -> str:
        """The text colored by shares, and the largest of them."""
        return notebook(gradients.document(self.record, self._path))

    def __repr__(self) -> str:
        words = ", ".join(f"{each.label} {each.value:+.2f}" for each in self.top(3))
        return f"<Gradients of {asked_words(self.record)}, {method_words(self.record)}: {words}>"


class Merges:
    """The words of a text as a tokenizer cuts it, and the steps from each word to its tokens.

    `record` has what the engine said (`engine.protocol.TakenApart`).
    """

    def __init__(self, record: protocol.TakenApart) -> None:
        self.record = record

    @property
    def words(self) -> list[str]:
        """The words, as the tokenizer sees them."""
        return [b"".join(word.symbols).decode("utf-8", "replace") for word in self.record.words]

    @checked
    def ladder(self, word: int = 0) -> list[tuple[int | float | None, tuple[bytes, ...]]]:
        """The ladder of a word: the rank of each merge, or the logprob of a unigram's way, and the pieces there.

        Args:
            word: Its place in `words`.

        Raises:
            StepError: There is no such word.
        """
        if not 0 <= word < len(self.record.words):
            raise StepError(*_none("word", word, len(self.record.words), "the text"))
        of = self.record.words[word]
        made = (rung(of, place) for place in range(rungs(of)))
        return [(each.value, each.pieces) for each in made]

    def __repr__(self) -> str:
        return "\n".join(ladder_lines(self.record)).rstrip()


class Scores:
    """Why a head looks where it looks: what each writer to the residual stream makes of its scores.

    `record` has what the engine read (`engine.protocol.ScoreRead`). A key is a place in the path, by itself the
    heaviest; a share is its score's difference from the mean over the keys, or from another key's, `against`.
    """

    def __init__(self, record: protocol.ScoreRead, texts: Sequence[str] = ()) -> None:
        self.record = record
        self.texts = tuple(texts)
        """Of the tokens of the path."""

    @property
    def check(self) -> dict[str, tuple[float, float]]:
        """Comparisons with what the model itself computes: the largest error of each, and what is allowed."""
        return {each.name: (each.error, each.bound) for each in self.record.facts.checks}

    @property
    def weights(self) -> dict[int, float]:
        """The head's weight on each key."""
        return dict(zip(self.record.keys, self.record.weights.row(), strict=True))

    @checked
    def in_key(self, key: int | None = None, against: int | None = None) -> dict[str, float]:
        """The share of each writer of the key, by name, the largest first."""
        shares = key_shares(self.record, self._key(key, against), against)
        return {each.name: each.value for each in shares}

    @checked
    def in_query(self, key: int | None = None, against: int | None = None) -> dict[str, float]:
        """The share of each writer of the query, by name, the largest first."""
        shares = query_shares(self.record, self._key(key, against), against)
        return {each.name: each.value for each in shares}

    @checked
    def why(self, key: int | None = None, against: int | None = None) -> str:
        """The reason in a sentence."""
        labels = [token_label(text) for text in self.texts]
        return in_words(self.record, labels, self._key(key, against), against)

    def _key(self, key: int | None, against: int | None) -> int:
        """The key that is meant.

        Raises:
            StepError: The head's score of one of the two is not known.
        """
        meant = by_weight(self.record)[0] if key is None else key
        for each in (meant, against):
            if each is not None and each not in self.record.keys:
                raise StepError(f"Token {each} is not among the keys.", "Name it in `keys` of `scores`.")
        return meant

    def __repr__(self) -> str:
        return f"<Scores: {self.why()}>"


class Experts:
    """The experts of each layer that the last token of a place went through.

    `record` has them, and what recurrent layers keep (`engine.protocol.ExpertsRead`).
    """

    def __init__(self, record: protocol.ExpertsRead) -> None:
        self.record = record

    @checked
    def weights(self, layer: int) -> dict[int, float | None]:
        """The experts of a layer that ran, from 0, with the weight of each; None where it isn't known.

        Args:
            layer: From 0.

        Raises:
            StepError: The layer has no experts.
        """
        for read in self.record.layers:
            if read.layer == layer:
                return dict(zip(read.chosen, read.weights or [None] * len(read.chosen), strict=True))
        known = ", ".join(str(each.layer) for each in self.record.layers)
        raise StepError(f"Layer {layer} has no experts to show.", f"These have: {known or 'none'}.")

    def __repr__(self) -> str:
        return f"<Experts of {len(self.record.layers)} layers, states of {len(self.record.states)}>"


class Moved:
    """The prediction with the position of a token changed; `record` has it (`engine.protocol.PositionTried`)."""

    def __init__(self, record: protocol.PositionTried) -> None:
        self.record = record

    @property
    def kl_bits(self) -> float:
        """How far all probabilities moved: KL(before || after)."""
        return self.record.kl_bits

    @property
    def tokens(self) -> list[tuple[str, float, float]]:
        """The most probable tokens, each with its probability before and after."""
        return [(each.text, each.before, each.after) for each in self.record.tokens]

    def __repr__(self) -> str:
        return f"<Moved by {self.record.offset:+d}: {self.kl_bits:.3f} bits>"


class Modules:
    """The modules of a model on the way of a token; `record` has all of them (`engine.protocol.ModelModules`)."""

    def __init__(self, record: protocol.ModelModules) -> None:
        self.record = record

    @property
    def rows(self) -> list[dict[str, str | int]]:
        """A row for each, layers that are alike in one: its path, name, purpose, shape, parameters, bytes and hooks."""
        from inspector.tools.modules.lines import lines

        return [
            {"path": line.path, "module": line.label.strip(), "what": line.says, "shape": line.shape,
             "parameters": line.parameters, "bytes": line.bytes, "hooks": line.hooks}
            for line in lines(self.record)
        ]  # fmt: skip

    def _repr_html_(self) -> str:
        heads = ("path", "module", "what", "shape", "parameters", "bytes", "hooks")
        return table(heads, [tuple(row.values()) for row in self.rows])

    def __repr__(self) -> str:
        return f"<Modules of {self.record.depth} layers, {self.record.parameters:,} parameters>"


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


def _see(what: str, facts: protocol.CaptureFacts) -> None:
    """See that a view is what the model computes.

    Raises:
        StepError: One of its checks failed.
    """
    if (failed := facts.failed) is not None:
        raise StepError(
            f"The {what} of {facts.family} can't be shown: the check `{failed.name}` is off by {failed.error:.2g}, "
            f"and {failed.bound:.2g} is allowed."
        )


# ---- branches ----------------------------------------------------------------------------------


class Branch:
    """A way through the tree of a session, from the prompt to a token: it is run on, looked into, and branched from.

    Nothing moves by making one: the engine goes there when something is done there.
    """

    def __init__(self, line: _Line, node: int, next_step: protocol.Step | None = None) -> None:
        self._line, self._node = line, node
        self._next_step = next_step
        """The step that follows on the branch that this one was gone back to from."""

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

    @property
    def steps(self) -> list[Step]:
        """Its tokens that were taken, prompts and turns aside."""
        path = self._path()
        with self._line.arrived:
            kinds = self._line.timeline.of(Segments).read(path).kinds
        return [
            Step(item, kind, self._line.own)
            for item, kind in zip(path, kinds, strict=True)
            if isinstance(item, protocol.Step)
        ]

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
        text = self.text
        return f"<{type(self).__name__} of {len(self.steps)} steps: {quoted(text[-60:])}>"

    @property
    def finished(self) -> str | None:
        """The reason that its text has ended, in the words of mlx_lm; None while it may go on."""
        found = self._line.timeline.finished.get(self.node)
        return found.reason if found is not None and found.reason in STOPS else None

    @checked
    def at(self, place: int | Step) -> Branch:
        """Go back to where a step was chosen.

        Args:
            place: A step of any branch of this session, or the index of one of this branch; below 0 from the end.

        Raises:
            StepError: There is no such step, or it is one of another session.
        """
        step = self._step(place)
        return Branch(self._line, step.parent, step)

    def _step(self, place: int | Step) -> protocol.Step:
        """A step of this branch by its index, or any step of its session.

        Raises:
            StepError: There is none.
        """
        if isinstance(place, Step):
            if not place.is_of(self._line.own):
                raise StepError(
                    "This is a step of another session.", "Give one of this session, or an index."
                )
            return place.record
        steps = self.steps
        if not steps:
            raise StepError("There are no steps yet.", "Take some first: run(10).")
        if not -len(steps) <= place < len(steps):
            raise StepError(f"There is no step {place}.", f"There are steps from 0 to {len(steps) - 1}.")
        return steps[place].record

    # ---- on from there ----------------------------------------------------------------------

    @checked
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
                run._begin(count)
            return run

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
            command = (
                protocol.Take(node, (token,)) if isinstance(token, int) else protocol.Insert(node, token)
            )
            steps = [each for each in line.do(command).records if isinstance(each, protocol.Step)]
            self._went(steps[-1].node if steps else node)
            return Branch(line, steps[-1].node if steps else node)

    def _went(self, node: int) -> None:
        """Something was done at its end; a session goes along, a branch stays where it is."""

    @checked
    def off(self, units: str) -> AbstractContextManager[Branch]:
        """Switch parts of the model off for what is run inside the block, on every branch of the session.

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
        depth = self._depth
        for name, unit in zip(units.split(","), held, strict=True):
            if depth is not None and unit.layer >= depth:
                raise StepError(
                    f"There is no {name.strip()}: the model has {depth} layers.", f"L1 to L{depth} are."
                )
        return self._under(held)

    @contextmanager
    def _under(self, held: tuple[Intervention, ...]) -> Iterator[Branch]:
        with self._line.under(held):
            yield self

    @property
    def _depth(self) -> int | None:
        """Layers of the model; None where they are not known, as in some recordings."""
        facts = self._line.timeline.facts
        return facts.layers if facts is not None and facts.ran else None

    def _layer(self, layer: int) -> int:
        """A layer, counted from 0.

        Raises:
            StepError: There is no such layer.
        """
        depth = self._depth
        if depth is not None and not 0 <= layer < depth:
            raise StepError(*_none("layer", layer, depth, "the model", f"L1 to L{depth} of the screen"))
        return layer

    @checked
    def steer(
        self, direction: Direction | str | Path, strength: float = 1.0, layer: int | None = None
    ) -> AbstractContextManager[Branch]:
        """Add a direction to the residual stream for what is run inside the block, on every branch of the session.

        Args:
            direction: As `direction` made it, or a file that it was saved to.
            strength: What it is multiplied by; 0 changes nothing.
            layer: After which it is added, from 0; None for the one that it was made after.

        Raises:
            EngineError: The file can't be read, or holds no direction; or there is no such layer.
        """
        made = _direction(direction).record
        own = self._layer(made.layer if layer is None else layer)
        return self._under((Intervention("direction", own, None, strength, made),))

    # ---- what is asked ----------------------------------------------------------------------

    def sampler(self, **settings: Any) -> Sampler:
        """Explain how the sampler comes to the next token here: to the step's own where `at` came from one.

        Args:
            settings: Other settings to try with the same draw; without them those that were used.

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
            name: For what is shown of it; without one the words in which the first pair differs.

        Raises:
            EngineError: The engine refuses.
        """
        from inspector.config.directions import name_of

        toward, away = tuple(one for one, _ in pairs), tuple(other for _, other in pairs)
        asked = protocol.MakeDirection(self._layer(layer), toward, away, name=name or name_of(toward, away))
        made = self._line.do(asked).answer(protocol.DirectionMade)
        if (failed := made.facts.failed) is not None:
            raise StepError(
                f"No direction can be made of {made.facts.family}: its check `{failed.name}` failed."
            )
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
    ) -> protocol.StrengthsSwept:
        """Add a direction with one strength after another here, and random ones of the same length beside it.

        Args:
            direction: As for `steer`.
            layer: As for `steer`.
            scope: `token`: at the last token here alone; `context`: at all of them from `begin` on.
            begin: A place in the path, from 0.
            token: Whose logit is followed, by its id or text; None for the most probable one.
            other: One whose logit is taken off; None for the most probable one beside that.
            strengths: To try; 0 is always among them.

        Raises:
            EngineError: The engine refuses.
        """
        made = _direction(direction).record
        own = self._layer(made.layer if layer is None else layer)
        self._places((begin,))
        first, second = (None if each is None else self._id(each) for each in (token, other))
        asked = protocol.SweepStrengths(self.node, made, own, scope, begin, first, second, tuple(strengths))
        return self._line.do(asked).answer(protocol.StrengthsSwept)

    def _places(self, places: Sequence[int]) -> None:
        """Refuse places that the path doesn't have; they count from 0.

        Raises:
            StepError: It lacks one of them.
        """
        tokens = len(self._path())
        for each in places:
            if not 0 <= each < tokens:
                raise StepError(*_none("token", each, tokens, "the path"))

    def what_if(self, **settings: Any) -> WhatIf:
        """Find the steps up to here at which other settings would have taken another token.

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
        _see("attention", read.facts)
        return Attention(read, self._path())

    @checked
    def gradients(
        self,
        token: int | str | None = None,
        against: int | str | None = None,
        *,
        integrated: bool = True,
        baseline: str = "mean",
        steps: int = 32,
        hold_experts: bool = False,
    ) -> Gradients:
        """Read on which tokens up to here the logit of a next one depends.

        Args:
            token: Whose logit, by its id or text; None for the step's own where `at` came from one, or else the most
                probable.
            against: One whose logit is taken off; None for none.
            integrated: Integrated gradients; otherwise gradient x input.
            baseline: `mean`, `first`, `zero`, or the text of one token.
            steps: From the baseline to the text, to begin with.
            hold_experts: Whether a mixture chooses the experts of the text everywhere, which is another question.

        Raises:
            EngineError: The model gives no gradient, a check of it failed, or a text is no single token.
        """
        if token is None and self._next_step is not None:
            token = self._next_step.id
        ids = [None if each is None else self._id(each) for each in (token, against)]
        method: protocol.GradientMethod = "integrated" if integrated else "input"
        read = self._line.do(
            protocol.ReadGradients(
                self.node, ids[0], ids[1], method, *baseline_of(baseline), steps, hold_experts
            )
        ).answer(protocol.GradientsRead)  # fmt: skip
        if (failed := read.facts.failed) is not None:
            raise StepError(
                f"The gradients of {read.facts.family} can't be shown: the check `{failed.name}` is off by "
                f"{failed.error:.2g}, and {failed.bound:.2g} is allowed{f' ({failed.where})' if failed.where else ''}.",
                "Take more steps, another baseline, or hold_experts=True in a mixture of experts.",
            )
        return Gradients(read, self._path())

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
            keys: Places in the path that are kept whatever their weights; of a long path only the heaviest are.

        Raises:
            StepError: There is no such head or key, the sums are not what the model computes, or it can't be told.
        """
        if layer is not None:
            self._layer(layer)
        if head is not None and head < 0:
            raise StepError(f"There is no head {head}.", "Heads count from 0, which is h1 on the screen.")
        self._places(keys)
        command = protocol.ReadScore(self.node, layer, head, tuple(keys))
        read = self._line.do(command).answer(protocol.ScoreRead)
        _see("scores", read.facts)
        return Scores(read, [item.text for item in self._path()])

    def experts(self) -> Experts:
        """Read which experts the last token here went through, and what recurrent layers keep after it.

        Raises:
            StepError: The model has neither experts nor recurrent layers, or what was read is not what it computes.
        """
        read = self._line.do(protocol.ReadExperts(self.node)).answer(protocol.ExpertsRead)
        _see("experts", read.facts)
        return Experts(read)

    @checked
    def moved(self, offset: int = 0, change: protocol.PositionChange = "token") -> Moved:
        """Predict the next token with the last one here given a wrong position.

        Args:
            offset: What is added to its position.
            change: `token`: of this token alone; `path`: of all alike; `mask`: none, but without the causal mask.

        Raises:
            StepError: The model can't be told another position, or what was computed doesn't hold.
        """
        asked = protocol.TryPosition(self.node, change, offset)
        read = self._line.do(asked).answer(protocol.PositionTried)
        _see("positions", read.facts)
        return Moved(read)

    @checked
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
        _see("scores of heads", scored.facts)
        return scored

    @checked
    def patching(
        self,
        source: Branch,
        token: int | str,
        against: int | str,
        part: protocol.PatchKind = "layer",
        facing: protocol.Facing | None = None,
    ) -> protocol.ActivationsPatched:
        """Put what another branch of this session computes into this one, layer by layer and token by token.

        Args:
            source: The other branch.
            token: Its logit ...
            against: ... less that of this one is followed: ids, or texts of one token.
            part: Whole layers, or what their `attention` or `mlp` returns.
            facing: Which token of this path, from 0, faces which of the other; None for common blocks.

        Raises:
            StepError: The other branch is of another session; there is nothing to put in; a check failed.
            PromptError: A text is no single token.
        """
        _of_one_session(self, source)
        ids = self._id(token), self._id(against)
        command = protocol.PatchActivations(self.node, source.node, *ids, part, facing)
        read = self._line.do(command).answer(protocol.ActivationsPatched)
        _see("patching", read.facts)
        return read

    @checked
    def patch_pairs(
        self, pairs: Sequence[tuple[str, str] | tuple[str, str, str, str]], part: protocol.PatchKind = "layer"
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
        _see("patching", read.facts)
        return read

    # ---- where it goes ----------------------------------------------------------------------

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
        from inspector.tools.export.documents import web_page
        from inspector.tools.export.recording import line, snapshot
        from inspector.tools.exports import EXPORTS

        own = self._line
        node = self.node
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
        """A row for each: where it leaves those before it, and its text from there on."""
        met: set[int] = set()
        rows: list[tuple[object, ...]] = []
        for branch in self:
            items = branch._path()
            own = [item for item in items if item.node not in met]
            met.update(item.node for item in own)
            steps = [item for item in own if isinstance(item, protocol.Step)]
            text, logprob = "".join(step.text for step in steps), sum(step.logprob for step in steps)
            rows.append((steps[0].index if steps else "", len(steps), f"{logprob:.2f}", text[:MOST_SHOWN]))
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

    def _begin(self, count: int) -> None:
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

    @checked
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
                return Step(record, at.kind if at is not None else None, self._line.own)
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
    """A model, a prompt and the tree of its continuations; as a branch, its end moves along with what is run on it.

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

    @checked
    def merges(self, text: str) -> Merges:
        """Take apart how the model's tokenizer cuts a text.

        Raises:
            EngineError: The tokenizer, or the text, can't be taken apart.
        """
        return Merges(self._line.do(protocol.TakeApart(text)).answer(protocol.TakenApart))

    def modules(self) -> Modules:
        """Read what its model is made of.

        Raises:
            EngineError: The engine refuses.
        """
        return Modules(self._line.do(protocol.ReadModules()).answer(protocol.ModelModules))

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
        """Write a recording, which `inspector replay` and `open` take.

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
            its model: what it holds is there, and nothing more is computed.
        prompt: The text to continue.
        messages: A conversation in place of it, with the keys `role` and `content`, through the chat template.
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
    said = _messages(messages or ())
    load, sampling = _split(settings)
    load = settings_of(LoadSettings, BY_NAME, load)
    line = _Line(
        check(LoadSettings(model=str(model), **load)), _changed(Settings(max_tokens=ENDLESS), sampling)
    )
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
    """Train a small model, a step for each turn of a loop; what leaves the loop ends the training.

    Args:
        texts: Files or folders of text; none for the stories that come with the program.
        directory: Where the checkpoint goes that is saved at the end, also where the loop is left before it.
        settings: Of `engine.settings`: `layers`, `width`, `vocabulary`, `steps`, `seed`, ...

    Returns:
        The steps, each with its loss, and some with a look at what the model knows.

    Raises:
        EngineError: A text can't be read, or a setting is wrong.
    """
    known = {field.name for field in fields(TrainingSettings)} - {"texts"}
    if unknown := settings.keys() - known:
        raise SettingsError(
            min(unknown), f"There is no setting {min(unknown)}.", f"There are {', '.join(sorted(known))}."
        )
    asked = TrainingSettings(texts=tuple(map(str, texts)), **settings_of(TrainingSettings, {}, settings))
    check(asked)
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


def _messages(given: Sequence[dict[str, str]]) -> tuple[Message, ...]:
    """A conversation.

    Raises:
        PromptError: One of them has no role, no content, or something else.
    """
    for each in given:
        if missing := {"role", "content"} - each.keys():
            raise PromptError(f"A message has no {' and no '.join(sorted(missing))}.", "Give it both.")
        if more := sorted(each.keys() - {"role", "content"}):
            raise PromptError(
                f"A message has a {more[0][:40]!r}, too.", "Give it a role and a content alone."
            )
    return tuple(Message(each["role"], each["content"]) for each in given)


def _recorded(path: Path) -> Session:
    """The session of a recording."""
    from inspector.tools.export.recording import read

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
    from inspector.tools.compare import comparison

    _of_one_session(left, right)
    return Comparison(comparison.compare(left._path(), right._path()))


def _of_one_session(one: Branch, other: Branch) -> None:
    """Refuse branches of two sessions.

    Raises:
        StepError: They are.
    """
    if one._line is not other._line:
        raise StepError(
            "These are branches of two sessions.", "Give two of one: b = s.at(12).take(' cat').run(10)."
        )


def _none(what: str, number: int, count: int, of: str, shown: str = "") -> tuple[str, str]:
    """What is said where there is no such thing of some that count from 0."""
    hint = f"They count from 0: give 0 to {count - 1}{shown and f', {shown}'}." if count else ""
    return f"There is no {what} {number}: {of} has {count or 'none'}.", hint


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
    return changed(settings, **settings_of(Settings, BY_NAME, given))
