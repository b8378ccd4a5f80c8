"""Requests of one owner: the latest question alone, replies that are kept, and work that a screen starts and stops."""

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
    """An answer that is waited for."""

    command: Command
    then: Then[Any]
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
        """The request that was sent and has not ended."""
        self.waiting: WantedAnswer | None = None
        """The answer that is waited for."""

    def ask(self, command: Command, then: Then[Any], about: Hashable | None = None) -> None:
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
        """Wait for no answer any more; returns whether one was waited for."""
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
    """Questions of one view, and what the session's store of answers has on them.

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
        """The question of a key, about the model that is looked at."""
        return self._kind in OF_BOTH and self._client.timeline.of(SecondModelSoFar).looked is not None, key

    @property
    def any(self) -> bool:
        """True if there are any answers."""
        return bool(self._answers.asked(self._kind))

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """Keys of the answers about the model that is looked at, the one looked at last at the end."""
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
        """Why a question has no answer."""
        found = self._answers.get(self._kind, self._asked(key))
        return found if isinstance(found, Failure) else None

    def newest(self, first: Hashable = None) -> Reply | None:
        """The answer that was looked at last, of those whose checks passed.

        Args:
            first: Key of one that goes before them.
        """
        for key in (first, *reversed(self.keys)):
            facts = getattr(reply := self.get(key), "facts", None)
            if isinstance(facts, protocol.CaptureFacts) and facts.failed is None:
                return reply
        return None

    def want(self, key: Hashable, question: Command) -> None:
        """Ask, unless it is known, failed, or asked; a question before it that has no answer yet is dropped.

        Args:
            key: Equal to that of the answer: see `KEYS`.
            question: Asked about the model that is looked at.
        """
        asked = self._asked(key)
        if self._answers.get(self._kind, asked) is not None:
            self.drop()
            return
        if isinstance(question, protocol.Look) and asked[0]:
            question = replace(question, second=True)
        self.ask(question, partial(self._answered, asked), asked)

    def again(self, key: Hashable, question: Command) -> None:
        """Ask, though there is an answer."""
        self._answers.drop(self._kind, self._asked(key))
        self.want(key, question)

    def _answered(self, asked: Asked, request: Request[Any]) -> None:
        reply = request.failure or request.reply(self._kind)
        if reply is not None and self._answers.get(self._kind, asked) is not reply:
            self._answers.keep(self._kind, asked, reply)


def failure_words(failure: Failure) -> str:
    """A failure and what can be done about it; printable."""
    return visible(f"{failure.message} {failure.hint}".strip())


class Job:
    """Work that a screen starts, watches and stops: commands of some classes, and what went wrong with those it sent.

    Args:
        client: Takes the commands.
        kinds: The classes. Those that were started elsewhere are watched and stopped, too.
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
        """True if anything is asked for."""
        return bool(self.commands)

    @property
    def progress(self) -> protocol.Measuring | None:
        """Progress of the command under way, if the engine reports it."""
        return next((each.progress for each in self._client.of(*self._kinds)), None)

    @property
    def failure(self) -> Failure | None:
        """The first failure."""
        return next(iter(self.failures.values()), None)

    def start(self, *asked: Command, each: Listener | None = None) -> None:
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
