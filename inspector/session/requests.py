"""Requests of one owner: the latest question alone, replies that are kept, and work that a screen starts and stops."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import (
    CaptureFacts,
    Command,
    Failure,
    LockstepOpened,
    Look,
    Measuring,
    PromptOpened,
    Record,
)
from inspector.session.client import EngineClient, Request
from inspector.state.lockstep import LockstepSoFar

Reply = TypeVar("Reply", bound=Record)
KEPT = 64
"""Replies that are kept; the least recently used goes first."""
KEPT_BYTES = 64 * 2**20
"""Of packed numbers in them: the attention of a large model at a long text takes 16 MiB."""


class WantedAnswer(Struct):
    """What somebody waits for."""

    command: Command
    then: Callable[[Request[Any]], object]
    about: Hashable
    request: Request[Any] | None = None
    """Once it is sent."""


class Latest:
    """Questions of one owner, of which the latest alone matters.

    A newer one cancels the one before, whose asker is then not called, and is sent once that has ended: the engine
    never has more than one of them.

    Args:
        client: Sends them.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._out: Request[Any] | None = None
        """What was sent and has not ended."""
        self.waiting: WantedAnswer | None = None
        """The answer that somebody waits for, if anybody does."""

    def ask(
        self, command: Command, then: Callable[[Request[Any]], object], about: Hashable | None = None
    ) -> None:
        """Ask something, unless it is being asked.

        Args:
            command: The question; a run pauses unless it can be answered meanwhile.
            then: Called once it has ended, unless another question took its place.
            about: What makes two questions the same; None for the command.
        """
        about = command if about is None else about
        if self.waiting is not None and self.waiting.about == about:
            self.waiting.then = then
            return
        self.waiting = WantedAnswer(command, then, about)
        if self._out is None:
            self._out = self.waiting.request = self._client.do(command, self._ended)
        else:
            self._out.cancel()  # this one is sent once that has ended

    def drop(self) -> bool:
        """Nobody waits for an answer any more; returns whether somebody did."""
        waited, self.waiting = self.waiting is not None, None
        if self._out is not None:
            self._out.cancel()
        return waited

    def _ended(self, request: Request[Any]) -> None:
        self._out, question = None, self.waiting
        if question is None:
            return
        if question.request is request:
            self.waiting = None
            question.then(request)
        else:
            self._out = question.request = self._client.do(question.command, self._ended)


class Replies(Latest, Generic[Reply]):
    """Replies of one kind, asked for one at a time and kept by what they are about; those of a recording, too.

    Args:
        client: Sends the questions.
        kind: Class of the replies.
        key: What a recorded reply is about: equal to what its question is asked about.
        nodes: Whether they are about nodes: those are forgotten where nodes get other tokens.
    """

    def __init__(
        self, client: EngineClient, kind: type[Reply], key: Callable[[Reply], Hashable], nodes: bool = True
    ) -> None:
        super().__init__(client)
        self._kind, self._key, self._nodes = kind, key, nodes
        self._known: OrderedDict[Hashable, Reply] = OrderedDict()
        self._failures: dict[Hashable, Failure] = {}
        client.listen(self._receive, kind, PromptOpened)

    @property
    def any(self) -> bool:
        """True if there are any."""
        return bool(self._known)

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """What they are about, the one looked at last at the end."""
        return tuple(self._known)

    def get(self, key: Hashable) -> Reply | None:
        """The reply about something, None while there is none."""
        about = self._about(key)
        if about in self._known:
            self._known.move_to_end(about)
        return self._known.get(about)

    def failure(self, key: Hashable) -> Failure | None:
        """Why there is no reply about something."""
        return self._failures.get(self._about(key))

    def want(self, key: Hashable, question: Command) -> None:
        """Ask, unless it is known, failed, or asked; what was asked before and has no reply yet no longer matters."""
        about = self._about(key)
        if about in self._known or about in self._failures:
            self.drop()
        else:
            self.ask(question, partial(self._answered, about), about)

    def again(self, key: Hashable, question: Command) -> None:
        """Ask, though there is a reply."""
        about = self._about(key)
        self._known.pop(about, None)
        self._failures.pop(about, None)
        self.want(key, question)

    def _about(self, key: Hashable) -> Hashable:
        """What a reply is kept by."""
        return key

    def _answered(self, about: Hashable, request: Request[Any]) -> None:
        if request.failure is not None:
            self._failures[about] = request.failure
        elif (reply := request.reply(self._kind)) is not None:
            self._keep(about, reply)

    def _receive(self, record: Record) -> None:
        if isinstance(record, PromptOpened) and record.new_tree and self._nodes:
            self._known.clear()  # nodes have other tokens now
            self._failures.clear()
        elif isinstance(record, self._kind) and (
            self._client.timeline.recorded or not self._client.answering
        ):
            # recorded: no engine was asked here
            self._keep(self._key(record), record)

    def _keep(self, about: Hashable, reply: Reply) -> None:
        self._known[about] = reply
        self._known.move_to_end(about)
        while len(self._known) > 1 and (len(self._known) > KEPT or self._nbytes > KEPT_BYTES):
            self._known.popitem(last=False)

    @property
    def _nbytes(self) -> int:
        return sum(getattr(reply, "nbytes", 0) for reply in self._known.values())


class LookReplies(Replies[Reply]):
    """Replies about the inside of the model that is looked at: the session's, or the second one in lockstep.

    Args:
        client: Sends the questions.
        kind: Class of the replies; they have a field `facts`.
        key: As for `Replies`.
    """

    def __init__(self, client: EngineClient, kind: type[Reply], key: Callable[[Reply], Hashable]) -> None:
        super().__init__(client, kind, lambda reply: (self._told(reply), key(reply)))

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """What those of the model that is looked at are about, the one looked at last at the end."""
        looked = self._client.timeline.of(LockstepSoFar).looked
        pairs = (about for about in self._known if isinstance(about, tuple))
        return tuple(key for model, key in pairs if model == looked)

    def newest(self, first: Hashable = None) -> Reply | None:
        """The reply that was looked at last, of those whose checks passed.

        Args:
            first: The key of one that goes before them.
        """
        for key in (first, *reversed(self.keys)):
            facts = getattr(reply := self.get(key), "facts", None)
            if isinstance(facts, CaptureFacts) and facts.failed is None:
                return reply
        return None

    def want(self, key: Hashable, question: Command) -> None:
        """Ask of the model that is looked at, as `Replies.want`."""
        if isinstance(question, Look):
            second = self._client.timeline.of(LockstepSoFar).looked is not None
            question = replace(question, second=second)
        super().want(key, question)

    def _about(self, key: Hashable) -> Hashable:
        # the whole record of the second model: another one may have the same title
        return self._client.timeline.of(LockstepSoFar).looked, key

    def _told(self, reply: Reply) -> LockstepOpened | None:
        """The model that a recorded reply is of."""
        facts = getattr(reply, "facts", None)
        of_second = isinstance(facts, CaptureFacts) and facts.model
        return self._client.timeline.of(LockstepSoFar).opened if of_second else None


class Job:
    """Work that a screen starts, watches and stops: commands of some classes, and what went wrong with those it sent.

    Args:
        client: Takes the commands.
        kinds: The classes. What somebody else has started of them is watched and stopped, too.
    """

    def __init__(self, client: EngineClient, *kinds: type[Command]) -> None:
        self._client, self._kinds = client, kinds
        self.failures: dict[str, Failure] = {}
        """By the kind of the command that failed, until it is started again."""
        self.cancelled = False
        """True if the command that ended last was cancelled."""
        self._own: set[int] = set()
        """Ids of the commands that were started here."""

    @property
    def commands(self) -> list[Command]:
        """What is asked for and neither ended nor cancelled."""
        return [each.command for each in self._client.under_way(*self._kinds)]

    @property
    def running(self) -> bool:
        """True if anything is asked for."""
        return bool(self.commands)

    @property
    def progress(self) -> Measuring | None:
        """How far the command is that is under way, where the engine says so."""
        return next((each.progress for each in self._client.of(*self._kinds)), None)

    @property
    def failure(self) -> Failure | None:
        """What failed first."""
        return next(iter(self.failures.values()), None)

    def start(self, *asked: Command, each: Callable[[Record], object] | None = None) -> None:
        """Have commands carried out, one after another.

        Args:
            asked: The commands; a run pauses unless they can be answered meanwhile.
            each: Called with each of their records.
        """
        self.cancelled = False
        for command in asked:
            self.failures.pop(command.kind, None)
            self._own.add(self._client.do(command, self._ended, each).id)

    @property
    def answered(self) -> bool:
        """True if the record that the client is taking in answers a command that was started here."""
        return self._client.answering in self._own

    def stop(self) -> bool:
        """Cancel what is asked for; returns whether anything was."""
        return self._client.cancel(*self._client.under_way(*self._kinds))

    def _ended(self, request: Request[Any]) -> None:
        self.cancelled = request.cancelled
        if request.failure is not None:
            self.failures[request.command.kind] = request.failure
