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
"""Commands whose failure is shown where they were given."""
_ENDS = {*MOVES, *(each.kind for state in STATES for each in state.FAILS if each.kind in state.ENDS)}
"""Commands whose end matters to what can be undone or to a state, though they were not sent here."""
_RowsAnswer = Callable[[Callable[[], bool]], Record]
_DRAWN = attrgetter("picked", "draw", "draw_from", "draw_to", "reroll", "stages")
"""Fields that are equal in explanations of one draw, though one may list more tokens."""


class ReplayBackend(IdleBackend):
    """Takes commands as an engine does, and does what can be done with the record alone.

    What is answered from recorded rows of logits, and by a tokenizer on the disk, is answered in threads, one question
    after another: what a long text would have been takes longer than a frame.

    Args:
        controller: Of the screen on which the recording is shown.
        emit: Receives what answers commands, to be received with the next frame as an engine's records are.
        answer: Shows an answer to the user.
    """

    def __init__(
        self, controller: Controller, emit: Callable[[Received], None], answer: Callable[[str], None]
    ) -> None:
        self._controller, self._emit, self._answer = controller, emit, answer
        self._explained: dict[int, list[protocol.Explained]] = {}
        """Recorded explanations of chosen tokens, by the node before, without those of settings that were tried."""
        self.questions = RecordedQuestions()
        """Questions of a lesson, with their recorded answers."""
        self._logits = RecordedLogits()
        self._tasks: dict[int, Task] = {}
        """Questions in threads that have not ended, by the id of their command."""
        self._last: Thread | None = None
        """Answers the latest question, once those before it are answered."""

    # ---- entries ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Clear the screen, before the first entry is shown."""
        self._explained, self._logits = {}, RecordedLogits()
        client = self._controller.client
        before, client.timeline = client.timeline, Timeline(recorded=True)
        client.timeline.generation = before.generation + 1  # or a view might take one for the other
        client.timeline.readings = before.readings + 1
        client.note_running()

    def show(self, value: Kept) -> None:
        """Show an entry: records go in where an engine's do."""
        match value:
            case LoadSettings():
                # without what would run code that a file chose: only the user who starts the program may ask for it
                self._controller.setup.load = replace(value, trust_remote_code=False, ranks=1, hostfile="")
            case Settings():
                self._controller.setup.use(value)
            case protocol.Explained():
                if value.used and not value.model and _whole(value):
                    self._explained.setdefault(value.node, []).append(value)
                    self._controller.queries.recorded(value)
            case Ended(command=kind) | Failure(command=kind) if kind not in _ENDS:
                pass  # of a command that was not sent here
            case _ if not all(kind.sound(value) for kind in self._controller.timeline.states):
                pass  # no engine sent it: it could not be drawn
            case Record(lasting=True):
                if isinstance(value, protocol.ModelFacts) and self._controller.timeline.facts is not None:
                    self.begin()  # another model was opened
                if isinstance(value, protocol.PromptOpened) and value.new_tree:
                    self._explained = {}
                self._controller.client.receive(value)
        self._logits.take(value)

    # ---- commands ---------------------------------------------------------------------------

    def close(self, timeout: float = 2.0) -> bool:
        """Give up the answers that are under way."""
        for task in list(self._tasks.values()):
            task.cancel.set()
        return super().close(timeout)

    def send(self, sent: Sent) -> None:
        """Take a command; it is done at once, unless it is answered from recorded rows of logits."""
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
        """Do what can be done with the record alone; returns whether it was."""
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
                pass  # what was recorded of it is shown already
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
        """The recorded explanation of the distribution on show; not that of other settings, before or after."""
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
        except BaseException as error:  # only a file made to mislead: ids or nodes that its rows haven't
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
    """True if an explanation has a value for each candidate, as one that an engine made does."""
    count = len(explained.next.candidates)
    parts = (explained.logits, explained.earlier, *(column.values for column in explained.columns))
    return all(len(part) == count for part in parts)
