"""Requests by one owner: only the latest question, stored replies, and work that a screen starts and stops."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.protocol import Command, Failure, Record
from inspector.display import visible
from inspector.session.client import EngineClient, Listener, Request, Then
from inspector.state.inside import OF_BOTH, Answers, Asked
from inspector.state.second_model import SecondModelSoFar

Reply = TypeVar("Reply", bound=Record)


class WantedAnswer(Struct):
    """An answer that an owner waits for."""

    command: Command
    then: Then[Any]
    about: Hashable
    request: Request[Any] | None = None
    """The request, once it was sent."""


class Latest:
    """Questions by one owner, of which only the latest is answered.

    A new question cancels the previous one, whose callback is not called, and is sent once that has ended: the engine
    never has more than one of them.

    Args:
        client: Sends the questions.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._out: Request[Any] | None = None
        """The open request, if any."""
        self.waiting: WantedAnswer | None = None
        """The answer that the owner waits for, if any."""

    def ask(self, command: Command, then: Then[Any], about: Hashable | None = None) -> None:
        """Ask a question, unless the same one is already being asked.

        Args:
            command: The question; a run pauses unless it can be answered between steps.
            then: Called when it has ended, unless a new question has replaced it.
            about: Key that is equal for the same question; None for the command itself.
        """
        about = command if about is None else about
        if self.waiting is not None and self.waiting.about == about:
            self.waiting.then = then
            return
        self.waiting = WantedAnswer(command, then, about)
        if self._out is None:
            self._out = self.waiting.request = self._client.do(command, self._ended)
        else:
            self._out.cancel()  # the new question is sent when it has ended

    def drop(self) -> bool:
        """Cancel the question; returns whether there was one."""
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
    """Questions by one view, and their answers in the session's store.

    Args:
        client: Sends the questions.
        kind: Class of the answers.
    """

    def __init__(self, client: EngineClient, kind: type[Reply]) -> None:
        super().__init__(client)
        self._kind = kind

    @property
    def _answers(self) -> Answers:
        return self._client.timeline.of(Answers)

    def _asked(self, key: Hashable) -> Asked:
        """The question with a key, about the model on show."""
        return self._kind in OF_BOTH and self._client.timeline.of(SecondModelSoFar).looked is not None, key

    @property
    def any(self) -> bool:
        return bool(self._answers.asked(self._kind))

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """Keys of the answers about the model on show, the most recently used last."""
        second, _ = self._asked(None)
        return tuple(key for of_second, key in self._answers.asked(self._kind) if of_second is second)

    def about(self, *first: Hashable) -> list[tuple[Any, ...]]:
        """The keys that are tuples and begin with some values."""
        return [key for key in self.keys if isinstance(key, tuple) and key[: len(first)] == first]

    def get(self, key: Hashable) -> Reply | None:
        """The answer to a question; None if there is none."""
        found = self._answers.get(self._kind, self._asked(key))
        return None if isinstance(found, Failure) else found

    def failure(self, key: Hashable) -> Failure | None:
        """The failure of a question; None if there is none."""
        found = self._answers.get(self._kind, self._asked(key))
        return found if isinstance(found, Failure) else None

    def newest(self, first: Hashable = None) -> Reply | None:
        """The most recently used answer whose checks passed.

        Args:
            first: Key of an answer to prefer.
        """
        for key in (first, *reversed(self.keys)):
            facts = getattr(reply := self.get(key), "facts", None)
            if isinstance(facts, protocol.CaptureFacts) and facts.failed is None:
                return reply
        return None

    def want(self, key: Hashable, question: Command) -> None:
        """Ask, unless the question has an answer or a failure, or is being asked; an earlier open question is dropped.

        Args:
            key: Key of the answer: see `KEYS`.
            question: The question, asked about the model on show.
        """
        asked = self._asked(key)
        if self._answers.get(self._kind, asked) is not None:
            self.drop()
            return
        if isinstance(question, protocol.Look) and asked[0]:
            question = replace(question, second=True)
        self.ask(question, partial(self._answered, asked), asked)

    def again(self, key: Hashable, question: Command) -> None:
        """Ask again, even if there is an answer."""
        self._answers.drop(self._kind, self._asked(key))
        self.want(key, question)

    def _answered(self, asked: Asked, request: Request[Any]) -> None:
        reply = request.failure or request.reply(self._kind)
        if reply is not None and self._answers.get(self._kind, asked) is not reply:
            self._answers.keep(self._kind, asked, reply)


def failure_words(failure: Failure) -> str:
    """A failure with its hint; printable."""
    return visible(f"{failure.message} {failure.hint}".strip())


class Job:
    """Work that a screen starts, watches and stops: commands of some classes, and the failures of those it sent.

    Args:
        client: Takes the commands.
        kinds: Classes of the commands; those that were started elsewhere are also watched and stopped.
    """

    def __init__(self, client: EngineClient, *kinds: type[Command]) -> None:
        self._client, self._kinds = client, kinds
        self.failures: dict[str, Failure] = {}
        """Failures by the kind of the command, until it is started again."""
        self.cancelled = False
        """True if the command that ended last was cancelled."""
        self._own: set[int] = set()
        """Ids of the commands that were started here."""

    @property
    def commands(self) -> list[Command]:
        """Commands that have neither ended nor been cancelled."""
        return [each.command for each in self._client.under_way(*self._kinds)]

    @property
    def running(self) -> bool:
        """True if there are such commands."""
        return bool(self.commands)

    @property
    def progress(self) -> protocol.Measuring | None:
        """Progress of the current command, if the engine reports it."""
        return next((each.progress for each in self._client.of(*self._kinds)), None)

    @property
    def failure(self) -> Failure | None:
        return next(iter(self.failures.values()), None)

    def start(self, *asked: Command, each: Listener | None = None) -> None:
        """Send commands, to be carried out one after another.

        Args:
            asked: The commands; a run pauses unless they can be answered between steps.
            each: Called with each of their records.
        """
        self.cancelled = False
        for command in asked:
            self.failures.pop(command.kind, None)
            self._own.add(self._client.do(command, self._ended, each).id)

    @property
    def answered(self) -> bool:
        """True if the record being received answers a command that was started here."""
        return self._client.answering in self._own

    def stop(self) -> bool:
        """Cancel the commands; returns whether there were any."""
        return self._client.cancel(*self._client.under_way(*self._kinds))

    def _ended(self, request: Request[Any]) -> None:
        self.cancelled = request.cancelled
        if request.failure is not None:
            self.failures[request.command.kind] = request.failure
