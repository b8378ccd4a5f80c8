"""The backend of a recording: shows the recorded entries, and answers commands from them alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from threading import Thread

from msgspec.structs import replace

from engine import protocol
from engine.errors import Cancelled, EngineError
from engine.logits.recorded import RecordedLogits
from engine.protocol import Candidate, Command, Ended, Failure, Received, Record, Sent
from engine.recording import Kept
from engine.settings import LoadSettings, Settings
from engine.task import Task
from engine.token_texts import TokenQuery, read_query
from inspector.keys import key_for, with_keys
from inspector.session.client import IdleBackend
from inspector.session.controller import Controller
from inspector.session.history import MOVES
from inspector.session.player import RecordedQuestions
from inspector.session.transport import REFUSED
from inspector.state.merges import taken_apart
from inspector.state.timeline import STATES, Timeline

_FAILED: tuple[type[Command], ...] = (
    protocol.Tokenize, protocol.PreviewPrompt, protocol.WhatIf, protocol.ReadGrammar,
    *(command for state in STATES for command in state.FAILS),
)  # fmt: skip
"""Commands whose failure is shown by the screen that sent them."""
_ENDS = {*MOVES, *(each.kind for state in STATES for each in state.FAILS if each.kind in state.ENDS)}
"""Kinds of commands whose recorded end matters to the history of changes or to a state."""
_RowsAnswer = Callable[[Callable[[], bool]], Record]
_DRAWN = attrgetter("picked", "draw", "draw_from", "draw_to", "reroll", "stages")
"""Fields by which explanations of one draw are recognized, even if one lists more tokens."""


class ReplayBackend(IdleBackend):
    """Takes commands as an engine does, and carries out those that need only the recording.

    Questions that need recorded rows of logits or a tokenizer on the disk are answered in threads, one after another:
    for a long text an answer takes longer than a frame.

    Args:
        controller: Controller of the screen that shows the recording.
        emit: Queues an answer for the next frame, as for an engine's records.
        answer: Shows an answer to the user.
    """

    def __init__(
        self, controller: Controller, emit: Callable[[Received], None], answer: Callable[[str], None]
    ) -> None:
        self._controller, self._emit, self._answer = controller, emit, answer
        self._explained: dict[int, list[protocol.Explained]] = {}
        """Recorded explanations of picked tokens, by the node before, without those under trial settings."""
        self.questions = RecordedQuestions()
        """Questions of a lesson, with their recorded answers."""
        self._logits = RecordedLogits()
        self._tasks: dict[int, Task] = {}
        """Questions being answered in threads, by the id of their command."""
        self._last: Thread | None = None
        """The thread of the latest question, which waits for the one before it."""

    # ---- entries ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Clear the screen, before the first entry is shown."""
        self._explained, self._logits = {}, RecordedLogits()
        client = self._controller.client
        before, client.timeline = client.timeline, Timeline(recorded=True)
        client.timeline.generation = before.generation + 1  # so that views don't mistake it for the old one
        client.timeline.readings = before.readings + 1
        client.note_running()

    def show(self, value: Kept) -> None:
        """Show an entry: the client receives records as it does an engine's."""
        match value:
            case LoadSettings():
                # drop settings that would run code chosen by a file: only the user who starts the program may set them
                self._controller.setup.load = replace(value, trust_remote_code=False, ranks=1, hostfile="")
            case Settings():
                self._controller.setup.use(value)
            case protocol.Explained():
                if value.used and not value.model and _whole(value):
                    self._explained.setdefault(value.node, []).append(value)
                    self._controller.queries.recorded(value)
            case Ended(command=kind) | Failure(command=kind) if kind not in _ENDS:
                pass  # ends a command of the recorded session
            case _ if not all(kind.sound(value) for kind in self._controller.timeline.states):
                pass  # no engine sends this: it can't be drawn
            case Record(lasting=True):
                if isinstance(value, protocol.ModelFacts) and self._controller.timeline.facts is not None:
                    self.begin()  # another model was opened
                if isinstance(value, protocol.PromptOpened) and value.new_tree:
                    self._explained = {}
                self._controller.client.receive(value)
        self._logits.take(value)

    # ---- commands ---------------------------------------------------------------------------

    def close(self, timeout: float = 2.0) -> bool:
        """Cancel the answers under way."""
        for task in list(self._tasks.values()):
            task.cancel.set()
        return super().close(timeout)

    def send(self, sent: Sent) -> None:
        """Take a command, and carry it out at once unless it is answered in a thread."""
        command = sent.command
        if isinstance(command, protocol.Cancel):
            if (task := self._tasks.get(command.target)) is not None:
                task.cancel.set()
        elif recorded := self.questions.answer(command):
            for record in (*recorded, Ended(command.kind)):
                self._emit(Received(record, sent.id))
        elif isinstance(command, protocol.TakeApart):
            self._begin(sent, partial(taken_apart, command, self._controller.setup.load))
        elif self._logits.answers(command):
            self._begin(sent, self._logits.question(command))
        else:
            done = self._do(sent)
            self._emit(Received(Ended(command.kind, cancelled=not done), sent.id))

    def _do(self, sent: Sent) -> bool:
        """Carry out a command with the recording alone; returns False if that isn't possible."""
        match command := sent.command:
            case protocol.MoveTo():
                if command.node not in self._controller.timeline.tree.nodes:
                    self._answer(f"Recorded: no step was taken here.{self._way}")
                    return False
                self._controller.timeline.visit(command.node)
            case protocol.Choose():
                return self._choose(command.node, command.token)
            case protocol.Explain():
                self._emit(Received(self._explain(command), sent.id))
            case protocol.FindTokens():
                self._emit(Received(self._find(command), sent.id))
            case protocol.LookAhead():
                pass  # recorded lines are already shown
            case _ if isinstance(command, _FAILED):
                self._emit(Received(_failure(command, "No model is loaded."), sent.id))
            case _:
                self._answer(self._controller.transport.bound or with_keys(REFUSED))
                return False
        return True

    def _choose(self, node: int, token: int) -> bool:
        timeline = self._controller.timeline
        if (child := timeline.tree.taken_by(node, token)) is None:
            self._answer(f"Recorded: this token was not taken.{self._way}")
            return False
        timeline.select(len(timeline.tree.path(child)) - 1)
        timeline.visit(timeline.tree.leaf(child))
        return True

    @property
    def _way(self) -> str:
        if self._controller.transport.bound:
            return ""
        return f" {key_for('go_live')} continues live, then you can take any token"

    def _explain(self, command: protocol.Explain) -> protocol.Explained | Failure:
        """The recorded explanation of the distribution on show, if it was recorded with the same settings."""
        timeline = self._controller.timeline
        if command.settings == self._controller.queries.used(timeline):
            for found in reversed(self._explained.get(command.node, [])):
                if timeline.distribution is not None and _DRAWN(found.next) == _DRAWN(timeline.distribution):
                    return found
        return _failure(command, "The sampler's stages were not recorded here.")

    def _find(self, command: protocol.FindTokens) -> protocol.TokensFound | Failure:
        """Search among the candidates that were recorded."""
        timeline = self._controller.timeline
        if timeline.before != command.node or not timeline.candidates:
            return _failure(command, "No candidates were recorded here.")
        query = read_query(command.query)
        found = tuple(each for each in timeline.candidates if _matches(each, query))
        shown, prob = found[: command.limit], sum(each.prob for each in found)
        return protocol.TokensFound(command.node, command.query, shown, len(found), prob)

    # ---- answers in threads -----------------------------------------------------------------

    def _begin(self, sent: Sent, answer: _RowsAnswer) -> None:
        task = self._tasks[sent.id] = Task(sent.command, sent.id)
        arguments = (task, answer, self._last)
        self._last = Thread(target=self._work, args=arguments, name="recorded answer", daemon=True)
        self._last.start()

    def _work(self, task: Task, answer: _RowsAnswer, before: Thread | None) -> None:
        if before is not None:
            before.join()
        cancelled, kind = False, task.command.kind
        try:
            record = answer(task.cancel.is_set)
        except Cancelled:
            cancelled = True
        except EngineError as error:
            record = Failure(kind, error.message, error.hint)
        except BaseException as error:  # only a manipulated file gets here: ids or nodes that its rows lack
            message = f"The recording is inconsistent here: {type(error).__name__}."
            record = Failure(kind, message, "Take another copy of the recording.")
        if not cancelled:
            self._emit(Received(record, task.id))
        del self._tasks[task.id]
        self._emit(Received(Ended(kind, cancelled), task.id))


def _failure(command: Command, message: str) -> Failure:
    return Failure(command.kind, message, f"{key_for('go_live')} continues live.")


def _matches(candidate: Candidate, query: TokenQuery) -> bool:
    match query.kind:
        case "id":
            return candidate.id == query.id
        case "bytes":
            return query.raw in candidate.raw
        case _:
            text = candidate.text if query.cased else candidate.text.lower()
            return any(part in text for part in query.texts)


def _whole(explained: protocol.Explained) -> bool:
    """True if an explanation has a value for each candidate, as every engine's has."""
    count = len(explained.next.candidates)
    parts = (explained.logits, explained.earlier, *(column.values for column in explained.columns))
    return all(len(part) == count for part in parts)
