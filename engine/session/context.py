"""State that the handlers of the commands share: one model, one session on it, and objects kept between commands."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from engine import protocol
from engine.errors import Cancelled, StepError
from engine.logits.node_sampler import pack_row, pack_vocabulary
from engine.memory import trim
from engine.model.load import Loaded
from engine.model.tokens import Tokens
from engine.protocol import LogitsRow, ModelVocabulary, Moved, Prefilled, Received, Record, Resampled, Step
from engine.sampling.ranking import Row
from engine.session.node_records import stop_reached
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.task import Stopped, Task, never, own_event
from engine.tree import TokenTree

# ---- rows of logits for a recording ------------------------------------------------------------

ROWS_LIMIT = 256 * 2**20
"""Maximum bytes of packed rows of logits that the engine emits by itself for one model. The bundled model's rows take 6
to 14 KiB per step; with a vocabulary of 150,000 in bfloat16 a row takes about 210 KiB, which gives 1,200 steps."""
AT_A_NODE = (Step, Prefilled, Moved, Resampled, protocol.Restored)
"""Records with the distribution of the current node."""


class LogitsRecorder:
    """Emits the rows of logits of the current model and tree for a recording, each once."""

    def __init__(self) -> None:
        self._tokens: Tokens | None = None
        """Tokenizer of the model with the recorded vocabulary."""
        self._tree: TokenTree | None = None
        self._nodes: set[int] = set()
        """Nodes of `_tree` with recorded rows."""
        self._nbytes = 0
        """Bytes of all recorded rows of that model."""

    def new(self, session: Session, node: int) -> Iterator[LogitsRow | ModelVocabulary]:
        """Yield the row of the current node, unless it was recorded or `ROWS_LIMIT` is reached."""
        seen = self._tree is session.tree and node in self._nodes
        row = None if seen or self._nbytes > ROWS_LIMIT else session.row_at(node)
        if row is not None:
            yield from self.row(session, node, row)

    def row(self, session: Session, node: int, row: Row) -> Iterator[LogitsRow | ModelVocabulary]:
        """Yield the row of a node; before a model's first row, its vocabulary."""
        if self._tokens is not session.tokens:
            self._tokens, self._nbytes = session.tokens, 0
            yield pack_vocabulary(session.tokens)
        if self._tree is not session.tree:
            self._tree, self._nodes = session.tree, set()
        record = pack_row(node, row)
        self._nodes.add(node)
        self._nbytes += record.nbytes
        yield record


# ---- the context -------------------------------------------------------------------------------

NO_MODEL = "No model is loaded.", "Wait until it is loaded, or open one."
"""Error for a command that needs a model: message and hint."""


def free_garbage() -> None:
    """Collect all garbage, frozen objects included, since a dropped model may be in cycles; free the memory."""
    gc.unfreeze()
    gc.collect()
    trim()


class Context:
    """State of one model and one session.

    Args:
        emit: Receives each record, with the id of its command.
        waiting: Returns True if a command waits in the queue.
        shared: Returns a model that another session of the thread has loaded with the same settings, or None.
    """

    def __init__(
        self,
        emit: Callable[[Received], None],
        waiting: Stopped = never,
        shared: Callable[[LoadSettings], Loaded | None] = lambda settings: None,
    ) -> None:
        self._receive, self._waiting, self.shared = emit, waiting, shared
        self.request = 0
        """Id of the running command; 0 in idle time."""
        self.loaded: Loaded | None = None
        self.asked: LoadSettings | None = None
        """The settings with which the user loaded the model."""
        self.loads = 0
        self.opened: Session | None = None
        self.settings = Settings()
        self.rows = LogitsRecorder()
        self.of_tree: dict[Any, Any] = {}
        """Objects that the handlers keep until the tree is dropped, by class or function."""
        self.of_model: dict[Any, Any] = {}
        """Objects that the handlers keep until the model is dropped."""
        self.of_session: dict[Any, Any] = {}
        """Objects that the handlers keep independently of the model."""

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
        """Drop the handlers' objects of the tree; with `model` also the model, its session and its objects."""
        self.of_tree.clear()
        if model:
            self.of_model.clear()
            self.loaded = self.opened = None

    def emit(self, record: Record) -> None:
        """Emit a record with the running command's id; if logits are recorded, the row of its node follows."""
        self._receive(Received(record, self.request))
        if isinstance(record, AT_A_NODE) and self.opened is not None and self.opened.record_logits:
            for row in self.rows.new(self.opened, record.next.node):
                self.emit(row)

    def prompt_readings(self, task: Task) -> Iterator[protocol.PromptReadings]:
        """Compute prompt logprobs until another command waits; the rest is computed in idle time."""
        unread, cancel = self.session.unread, own_event(task.cancel)
        while not (cancel.is_set() or self._waiting()) and (read := unread.read()) is not None:
            yield read


# ---- steps and moves that several handlers use -------------------------------------------------


def with_stop(session: Session, step: Step, most: float | None = None) -> Generator[Record, None, bool]:
    """Yield a step, and the stop that it reached.

    Args:
        session: The session that took the step.
        step: The record of the step.
        most: See `stop_reached`.

    Yields:
        The step, then `Finished` if its token reached a stop.

    Returns:
        True if it reached a stop.
    """
    yield step
    stop = stop_reached(session, step.node, most)
    if stop is not None:
        yield stop
    return stop is not None


def with_stops(session: Session, records: Iterable[Record]) -> Iterator[Record]:
    """Yield records, each step followed by the stop that it reached."""
    for record in records:
        if isinstance(record, Step):
            yield from with_stop(session, record)
        else:
            yield record


def move(session: Session, node: int, stopped: Stopped) -> Iterator[Record]:
    """Move to a node, and step the tokens of its path that have no step yet."""
    yield from with_stops(session, session.move_and_step(node, stopped))


def take_tokens(
    session: Session,
    node: int,
    ids: Sequence[int],
    origin: protocol.Origin,
    stopped: Stopped,
    leave_grammar: bool = False,
) -> Iterator[Record]:
    """Take tokens after a node, one step each.

    Raises:
        PromptError: The model has no embedding for a token; then none is taken.
        StepError: The grammar forbids a token and `leave_grammar` is False; then none is taken.
        Cancelled: `stopped` returned True; the steps taken so far stay.
    """
    session.tokens.check(ids)
    if session.node != node:
        yield from move(session, node, stopped)
    for step in session.insert(ids, origin, leave_grammar=leave_grammar):
        yield from with_stop(session, step)
        if stopped():
            raise Cancelled
