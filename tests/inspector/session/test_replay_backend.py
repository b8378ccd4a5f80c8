"""Questions about recorded rows: answered one after another in threads, cancelled, and refused in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from queue import SimpleQueue
from threading import Event

import pytest

from engine import protocol
from engine.logits import recorded
from engine.protocol import Command, Ended, Explained, Failure, Record, Step, TokensFound, WhatIfAnswered
from engine.settings import LoadSettings, Settings
from inspector.session.replay_backend import RecordedAnswers
from tests.engine.logits.recording import Recording


@pytest.fixture(scope="module")
def live() -> Recording:
    """Six steps with their rows."""
    recording = Recording(LoadSettings(record_logits=True))
    recording.do(protocol.Prefill("Once upon a time", chat=False))
    for _ in range(6):
        recording.do(protocol.TakeStep())
    return recording


class Asked:
    """What answers, and what came of it."""

    def __init__(self, values: Iterable[object]) -> None:
        self.queue: SimpleQueue[Record] = SimpleQueue()
        self.answers = RecordedAnswers(self.queue.put)
        for value in values:
            self.answers.take(value)  # type: ignore[arg-type]

    def until_ended(self, *asked: Command) -> list[Record]:
        """All records up to the end of these."""
        found: list[Record] = []
        ends = {command.id for command in asked}
        while ends:
            found.append(record := self.queue.get(timeout=60))
            if isinstance(record, Ended):
                ends.remove(record.request)
        return found


def values(live: Recording) -> list[object]:
    return [entry.value for entry in live.entries]


def test_questions_are_answered_in_their_order_each_with_its_end(live: Recording) -> None:
    asked, node = Asked(values(live)), live.steps[3].node
    sent: list[Command] = [
        protocol.WhatIf(Settings(temp=2.0), live.steps[-1].node),
        protocol.Explain(node),
        protocol.FindTokens(node, "a"),
    ]
    assert all(map(asked.answers.ask, sent))
    found = asked.until_ended(*sent)
    assert [type(record) for record in found] == [WhatIfAnswered, Ended, Explained, Ended, TokensFound, Ended]
    assert [record.request for record in found[1::2]] == [command.id for command in sent]  # type: ignore[union-attr]
    assert found[2] == live.ask(sent[1])


def test_what_has_no_row_is_not_taken(live: Recording) -> None:
    asked = Asked(values(live))
    assert not asked.answers.ask(protocol.Explain(1))
    assert not asked.answers.ask(protocol.Tokenize("a"))
    asked.answers.begin()
    assert not asked.answers.ask(protocol.WhatIf(Settings(), live.steps[-1].node))


def test_a_question_is_given_up_and_the_next_one_is_answered(
    live: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, answer = Event(), Event(), recorded._answer

    def slow(source: object, command: Command, stopped: Callable[[], bool]) -> Record:
        begun.set()
        assert go_on.wait(60)
        return answer(source, command, stopped)  # type: ignore[arg-type]

    monkeypatch.setattr(recorded, "_answer", slow)
    asked, tip = Asked(values(live)), live.steps[-1].node
    first, second, third = (protocol.WhatIf(Settings(seed=seed), tip) for seed in range(3))
    asked.answers.ask(first)
    assert begun.wait(60)
    asked.answers.ask(second)
    asked.answers.ask(third)
    asked.answers.cancel(first.id)
    asked.answers.cancel(second.id)
    asked.answers.cancel(12345)
    go_on.set()
    found = asked.until_ended(first, second, third)
    assert [record.cancelled for record in found if isinstance(record, Ended)] == [True, True, False]
    assert sum(isinstance(record, WhatIfAnswered) for record in found) == 1
    asked.answers.close()


@pytest.mark.parametrize("lost", [{"parent": 4000}, {"id": 10**9}, {"id": -5000}])
def test_a_file_that_misleads_is_refused_in_one_line(live: Recording, lost: dict[str, int]) -> None:
    step = live.steps[2]
    misled = [replace(value, **lost) if value is step else value for value in values(live)]  # type: ignore[arg-type]
    asked = Asked(misled)
    command = protocol.WhatIf(Settings(repetition_penalty=1.5), live.steps[-1].node)
    assert asked.answers.ask(command)
    failure, ended = asked.until_ended(command)
    assert isinstance(failure, Failure)
    assert failure.message.startswith("The recording is inconsistent here: ")
    assert "\n" not in failure.message + failure.hint
    assert ended == Ended("WhatIf")
    assert isinstance(step, Step)


def test_the_engine_stops_recording_rows_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.context.ROWS_LIMIT", 30_000)
    live = Recording(LoadSettings(record_logits=True, dtype="float32"))
    live.do(protocol.Prefill("Once upon a time", chat=False))
    for _ in range(6):
        live.do(protocol.TakeStep())
    rows = [value for value in values(live) if isinstance(value, protocol.LogitsRow)]
    assert 2 <= len(rows) < 6
    asked = Asked(values(live))
    command = protocol.WhatIf(Settings(), live.steps[-1].node)
    assert asked.answers.ask(command)
    told = asked.until_ended(command)[0]
    assert isinstance(told, WhatIfAnswered)
    assert len(told.steps) == len(rows)
    assert told.dropped == tuple(step.node for step in live.steps[len(rows) :])
