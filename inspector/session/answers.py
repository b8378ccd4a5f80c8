"""Answers of the engine about tokens: asked for one at a time, the latest that is wanted, and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from engine.protocol import Command, Ended, Failure, Measuring, PromptOpened, Record
from inspector.session.client import EngineClient

Answer = TypeVar("Answer", bound=Record)
KEPT = 64
"""Answers that are kept; the least recently used goes first."""
KEPT_BYTES = 64 * 2**20
"""Of packed numbers in them: the attention of a large model at a long text takes 16 MiB."""


class Answers(Generic[Answer]):
    """Answers of one kind, those of a recording too.

    Args:
        client: Sends the questions and gives the records.
        question: The class of the commands that ask.
        answer: The class of the records that answer.
        key: What an answer is about: equal for the answer to a question and the question itself.
        nodes: Whether answers are about nodes: those are forgotten where nodes get other tokens.
    """

    def __init__(
        self,
        client: EngineClient,
        question: type[Command],
        answer: type[Answer],
        key: Callable[[Answer], Hashable],
        nodes: bool = True,
    ) -> None:
        self._client, self._question, self._answer, self._key = client, question, answer, key
        self._nodes = nodes
        self._known: OrderedDict[Hashable, Answer] = OrderedDict()
        self._failures: dict[Hashable, Failure] = {}
        self._asked: tuple[Hashable, Command] | None = None
        self._wanted: tuple[Hashable, Command] | None = None
        self.progress: Measuring | None = None
        """How far the question is that is asked, where the engine tells."""
        client.listeners.append(self._receive)

    @property
    def any(self) -> bool:
        """Whether there are answers at all."""
        return bool(self._known)

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """What there are answers about, the one looked at last at the end."""
        return tuple(self._known)

    @property
    def waiting(self) -> bool:
        """Whether an answer is on its way."""
        return self._asked is not None or self._wanted is not None

    def get(self, key: Hashable) -> Answer | None:
        """The answer about something, None while there is none."""
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def failure(self, key: Hashable) -> Failure | None:
        """Why there is no answer about something."""
        return self._failures.get(key)

    def want(self, key: Hashable, question: Command) -> None:
        """Ask, unless it is known, failed, or asked; what was asked before and has no answer yet no longer matters."""
        if key in self._known or key in self._failures:
            self.drop()
        elif self._asked is not None and self._asked[0] == key:
            self._wanted = None
        elif self._asked is not None:
            self._wanted = key, question
            self._client.cancel(self._asked[1])  # the latest is asked when it has ended
        else:
            self._ask(key, question)

    def again(self, key: Hashable, question: Command) -> None:
        """Ask, though there is an answer."""
        self._known.pop(key, None)
        self._failures.pop(key, None)
        self.want(key, question)

    def drop(self) -> bool:
        """Nobody waits for an answer any more; returns whether somebody did."""
        waited, self._wanted = self.waiting, None
        if self._asked is not None:
            self._client.cancel(self._asked[1])
        return waited

    def _ask(self, key: Hashable, question: Command) -> None:
        self._asked, self._wanted, self.progress = (key, question), None, None
        self._client.do(question)

    def _receive(self, record: Record) -> None:
        match record:
            case Failure() if self._asked is not None and record.id == self._asked[1].id:
                self._failures[self._asked[0]] = record
            case Ended() if self._asked is not None and record.id == self._asked[1].id:
                self._asked = self.progress = None
                if self._wanted is not None:
                    self._ask(*self._wanted)
            case Measuring() if self._asked is not None and record.id == self._asked[1].id:
                self.progress = record
            case PromptOpened(new_tree=True) if self._nodes:
                self._known.clear()  # nodes have other tokens now
                self._failures.clear()
            case _ if isinstance(record, self._answer):
                self._keep(record)

    def _keep(self, answer: Answer) -> None:
        self._known[self._key(answer)] = answer
        while len(self._known) > 1 and (len(self._known) > KEPT or self._nbytes > KEPT_BYTES):
            self._known.popitem(last=False)

    @property
    def _nbytes(self) -> int:
        return sum(getattr(answer, "nbytes", 0) for answer in self._known.values())
