"""Questions of a dialog: one at a time, and the latest wins."""

from __future__ import annotations

from engine.protocol import Command, Ended, Failure, FindTokens, Record, Tokenize, TokensFound, addressed
from inspector.session.client import EngineClient
from inspector.session.requests import Lookup
from tests.inspector.rig import FakeEngine


class Asking:
    """A lookup whose commands and answers are gathered."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.client = EngineClient(self.engine)
        self.told: list[TokensFound | Failure] = []
        self.lookup = Lookup(TokensFound, self.client)
        self.lookup.tell = self.told.append

    def ask(self, query: str) -> None:
        self.lookup.ask(FindTokens(5, query))

    def answer(self, query: str) -> TokensFound:
        found = TokensFound(5, query, (), 0, 0.0)
        asked = next(each for each in self.engine.asked if each == FindTokens(5, query))
        self.tell(asked, found, Ended("FindTokens"))
        return found

    def tell(self, command: Command, *records: Record) -> None:
        """Answer a command."""
        for record in records:
            self.client.receive(addressed(record, command.id))

    @property
    def queries(self) -> list[str]:
        return [command.query for command in self.engine.asked if isinstance(command, FindTokens)]


def test_while_a_question_is_out_the_others_wait_and_only_the_last_is_asked() -> None:
    asking = Asking()
    for query in ("t", "to", "toy"):
        asking.ask(query)
    assert asking.queries == ["t"]
    assert asking.engine.cancelled(asking.engine.asked[0])
    asking.answer("t")
    assert asking.told == []
    assert asking.queries == ["t", "toy"]
    assert asking.told == []
    last = asking.answer("toy")
    assert asking.told == [last]
    asking.answer("toy")
    assert asking.told == [last]
    assert asking.queries == ["t", "toy"]


def test_a_question_that_is_wanted_again_is_asked_again_if_it_was_cancelled() -> None:
    asking = Asking()
    asking.ask("t")
    asking.ask("to")
    asking.ask("t")
    first = asking.engine.asked[0]
    asking.tell(first, Ended("FindTokens", cancelled=True))
    assert asking.queries == ["t", "t"]
    second = asking.engine.asked[1]
    assert not asking.engine.cancelled(second)
    found = TokensFound(5, "t", (), 0, 0.0)
    asking.tell(second, found, Ended("FindTokens"))
    assert asking.told == [found]


def test_the_same_question_is_not_cancelled_by_itself() -> None:
    asking = Asking()
    asking.ask("t")
    asking.ask("t")
    assert asking.queries == ["t"]
    assert not asking.engine.cancelled(asking.engine.asked[0])


def test_a_failure_is_an_answer_too_but_not_that_of_another_command() -> None:
    asking = Asking()
    asking.ask("t")
    asking.tell(Tokenize("t"), Failure("Tokenize", "no", ""), Ended("Tokenize"))
    assert asking.told == []
    failure = Failure("FindTokens", "no", "")
    asking.tell(asking.engine.asked[0], failure, Ended("FindTokens"))
    assert asking.told == [failure]
    assert asking.queries == ["t"]


def test_a_late_answer_to_a_dialog_that_was_left_reaches_no_other() -> None:
    asking = Asking()
    asking.ask("t")
    asking.lookup.drop()
    asking.lookup.tell = asking.told.append
    asking.ask("x")
    asking.answer("t")
    assert asking.told == []
    assert asking.queries == ["t", "x"]
    found = asking.answer("x")
    assert asking.told == [found]


def test_what_another_asked_is_not_taken_for_the_answer() -> None:
    """Two of one kind at once, in both orders."""
    mine, others = TokensFound(5, "t", (), 0, 0.1), TokensFound(5, "x", (), 0, 0.9)
    for order in ((0, 1), (1, 0)):
        asking = Asking()
        asking.ask("t")
        commands = asking.engine.asked[0], FindTokens(5, "x")
        for each in order:
            asking.tell(commands[each], (mine, others)[each], Ended("FindTokens"))
        assert asking.told == [mine]
