"""The state that the handlers of commands share: one model, one session on it, and the function that emits records."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine import protocol
from engine.errors import Cancelled, StepError
from engine.logits.packing import pack_row, pack_vocabulary
from engine.memory import trim
from engine.model.load import Divider, Loaded
from engine.model.tokens import Tokens
from engine.protocol import (
    Command,
    LogitsRow,
    ModelVocabulary,
    Moved,
    Prefilled,
    Received,
    Record,
    Resampled,
    Restored,
    Step,
)
from engine.sampling.ranking import Row
from engine.session.node_records import stop_reached
from engine.session.restore import Change
from engine.session.session import Session
from engine.session.state import SessionState
from engine.settings import LoadSettings, Settings
from engine.task import Stopped, Task
from engine.tree import TokenTree

# ---- rows of logits for a recording ------------------------------------------------------------

ROWS_LIMIT = 256 * 2**20
"""Bytes of packed rows of logits that the engine emits by itself, of one model. The bundled model's take 6 to 14 KiB a
step, those of one with 150,000 tokens in bfloat16 about 210 KiB: 1,200 steps."""
AT_A_NODE = (Step, Prefilled, Moved, Resampled, Restored)
"""Records whose distribution is that of the current node."""


class LogitsRecorder:
    """Knows what was recorded of the present model and tree."""

    def __init__(self) -> None:
        self._tokens: Tokens | None = None
        """Those of the model whose vocabulary was recorded."""
        self._tree: TokenTree | None = None
        self._nodes: set[int] = set()
        """Nodes of that tree whose rows were recorded."""
        self._nbytes = 0
        """Of all rows of that model."""

    def new(self, session: SessionState, node: int) -> Iterator[LogitsRow | ModelVocabulary]:
        """The row of the current node, unless it was recorded, or the recording has as many as it can hold."""
        seen = self._tree is session.tree and node in self._nodes
        row = None if seen or self._nbytes > ROWS_LIMIT else session.row_at(node)
        if row is not None:
            yield from self.row(session, node, row)

    def row(self, session: SessionState, node: int, row: Row) -> Iterator[LogitsRow | ModelVocabulary]:
        """The row of a node, after the vocabulary of a model that has no row yet."""
        if self._tokens is not session.tokens:
            self._tokens, self._nbytes = session.tokens, 0
            yield pack_vocabulary(session.tokens)
        if self._tree is not session.tree:
            self._tree, self._nodes = session.tree, set()
        record = pack_row(node, row)
        self._nodes.add(node)
        self._nbytes += record.nbytes
        yield record


# ---- garbage collection ------------------------------------------------------------------------
# Records are many, live long and are in no reference cycles: a collection that scans all of them frees nothing and
# costs 0.5 s at 10,000 steps. What is left after a collection is therefore frozen (`gc.freeze`), so that the next one
# scans only newer objects. Frozen objects are still freed when nothing refers to them.

EVERY = 500
"""Steps between two collections; one takes about 5 ms."""


def collect_all() -> None:
    """Collect all garbage, frozen objects included: a model that was dropped may be in cycles."""
    gc.unfreeze()
    gc.collect()
    trim()


def set_aside() -> None:
    """Freeze all that is there: with a model its libraries, a hundred thousand objects that stay."""
    gc.freeze()


def collect_and_freeze() -> None:
    """Collect the cycles made since the last time, and freeze the rest."""
    gc.collect()
    gc.freeze()


# ---- the engine's context ----------------------------------------------------------------------

Handler = Callable[[Any, Task], None]
"""Executes commands of one class, given the command and its task; raises `EngineError` where it can't."""


class Capability:
    """The handlers of related commands, and the state that these keep from command to command.

    Args:
        context: The model, the session, and where records are emitted.
    """

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    def handlers(self) -> Mapping[type[Command], Handler]:
        """The handler of each command's class."""
        raise NotImplementedError

    def forget(self, model: bool) -> None:
        """Drop the state of the current tree, which is about to end; with `model`, that of the model too."""


NO_MODEL = "No model is loaded.", "Wait until it is loaded, or open one."
"""The refusal of what needs one, and what to do."""
NO_SECOND = "There is no second model.", "Open one to compare with."
"""The refusal of what needs one, and what to do."""


def no_second(node: int | None, stopped: Stopped) -> Session:
    """Refuse what is asked of a second model.

    Raises:
        StepError: There is none.
    """
    raise StepError(*NO_SECOND)


class EngineContext:
    """One model and one session at a time.

    Args:
        emit: Receives every record, with the id of its command.
        answer_asides: Answers the asides at the head of the queue; long commands call it between their steps.
        waiting: Whether a command waits in the queue.
    """

    def __init__(
        self,
        emit: Callable[[Received], None],
        answer_asides: Callable[[], None],
        waiting: Stopped = lambda: False,
    ) -> None:
        self._receive = emit
        self.request = 0
        """Id of the command that is carried out: an aside between the steps of another; 0 in idle time."""
        self.answer_asides = answer_asides
        self._waiting = waiting
        self.loaded: Loaded | None = None
        self.asked: LoadSettings | None = None
        """The settings with which a person asked for that model."""
        self.shared: Callable[[LoadSettings], Loaded | None] = lambda settings: None
        """A model that another session of the thread has loaded with these settings, if one has."""
        self.opened: Session | None = None
        self.settings = Settings()
        self.change: Change | None = None
        """Makes what computes in a model's place under interventions, for a session that is restored."""
        self.spread: Callable[[LoadSettings], Divider | None] = lambda settings: None
        """What divides a model among processes, for settings that ask for it; None for others."""
        self.second: Callable[[int | None, Stopped], Session] = no_second
        """The session's path up to a node in the second model; without a node for what is asked of the model itself."""
        self.capabilities: list[Capability] = []
        """The capabilities that the worker has made so far."""
        self._steps = 0
        """That were emitted, for the garbage collector."""
        self._rows = LogitsRecorder()

    @property
    def session(self) -> Session:
        """The session on the loaded model.

        Raises:
            StepError: No model is loaded.
        """
        if self.opened is None:
            raise StepError(*NO_MODEL)
        return self.opened

    @property
    def model(self) -> Loaded:
        """The loaded model.

        Raises:
            StepError: No model is loaded.
        """
        if self.loaded is None:
            raise StepError(*NO_MODEL)
        return self.loaded

    def forget(self, model: bool = False) -> None:
        """Make every capability drop the state of the tree, with `model` that of the model too."""
        for capability in self.capabilities:
            capability.forget(model)

    # ---- records ----------------------------------------------------------------------------

    def emit(self, record: Record) -> None:
        """Emit a record, with the id of the command that is carried out; and the row of logits after the node that
        became the current one with it, where asked for.
        """
        self._receive(Received(record, self.request))
        if isinstance(record, AT_A_NODE) and self.opened is not None and self.opened.record_logits:
            for row in self._rows.new(self.opened, record.next.node):
                self.emit(row)

    def emit_row(self, node: int, row: Row) -> None:
        """Emit a row of logits after a node of the session, with the model's vocabulary if that was not emitted."""
        for record in self._rows.row(self.session, node, row):
            self.emit(record)

    def read_prompt(self) -> bool:
        """Emit the next few of the prompt logprobs; returns whether there were any left."""
        if self.opened is None or (read := self.opened.unread.read()) is None:
            return False
        self.emit(read)
        return True

    def emit_all(self, records: Iterable[Record], asides: bool = False) -> None:
        """Emit records as they are made; with `asides` the asides at the head of the queue are answered in between."""
        for record in records:
            self.emit(record)
            if asides:
                self.answer_asides()

    def read_prompts(self, task: Task) -> None:
        """Emit the prompt logprobs until another command waits: what is left then is read in idle time."""
        while not (task.cancel.is_set() or self._waiting()) and self.read_prompt():
            pass

    # ---- steps and moves of several handlers --------------------------------------------------

    def emit_step(self, step: protocol.Step, most: float | None = None) -> bool:
        """Emit a step and the stop that it reached; returns whether it reached one. `most` as for `stop_reached`."""
        self.emit(step)
        self._steps += 1
        if self._steps % EVERY == 0:
            collect_and_freeze()
        stop = stop_reached(self.session, step.node, most)
        if stop is not None:
            self.emit(stop)
        return stop is not None

    def ensure_at(self, node: int, task: Task) -> None:
        """Move the session to a node, unless it is the current one."""
        if self.session.node != node:
            self.move(node, task)

    def move(self, node: int, task: Task) -> None:
        """Move the session to a node, stepping the tokens of the path that were never stepped."""
        for record in self.session.move_and_step(node, task.cancel.is_set):
            if isinstance(record, protocol.Step):
                self.emit_step(record)
            else:
                self.emit(record)

    def take_tokens(
        self,
        node: int,
        ids: Sequence[int],
        origin: protocol.Origin,
        task: Task,
        leave_grammar: bool = False,
    ) -> None:
        """Take tokens after a node, one step each.

        Raises:
            PromptError: The model has no embedding for one of them; then none is taken.
            StepError: The grammar forbids one of them, and `leave_grammar` is not set; then none is taken.
            Cancelled: The command was cancelled; the steps taken until then stay.
        """
        self.session.tokens.check(ids)
        self.ensure_at(node, task)
        for step in self.session.insert(ids, origin, leave_grammar=leave_grammar):
            self.emit_step(step)
            self.answer_asides()
            if task.cancel.is_set():
                raise Cancelled
