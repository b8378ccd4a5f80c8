"""Questions about recorded rows: answered one after another in threads, cancelled, and refused in one line."""

from __future__ import annotations

from collections.abc import Iterable
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace

from engine import protocol
from engine.logits import questions
from engine.protocol import (
    Command,
    Ended,
    Explained,
    Failure,
    Received,
    Record,
    Sent,
    Step,
    TokensFound,
    WhatIfAnswered,
)
from engine.settings import LoadSettings, Settings
from inspector.session.client import IdleBackend
from inspector.session.controller import Controller
from inspector.session.replay_backend import ReplayBackend
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
        self.queue: SimpleQueue[Received] = SimpleQueue()
        controller = Controller(IdleBackend(), LoadSettings(), Settings(), protocol.Prefill("", False))
        self.backend = ReplayBackend(controller, self.queue.put, lambda answer: None)
        for value in values:
            self.backend.show(value)  # type: ignore[arg-type]

    def ask(self, *commands: Command) -> list[Received]:
        """All records up to the end of some questions, whose ids count from 1."""
        for id, command in enumerate(commands, 1):
            self.backend.send(Sent(command, id))
        return self.until_ended(len(commands))

    def until_ended(self, count: int) -> list[Received]:
        """All records up to so many ends."""
        found: list[Received] = []
        while sum(isinstance(each.record, Ended) for each in found) < count:
            found.append(self.queue.get(timeout=60))
        return found


def values(live: Recording) -> list[object]:
    return [entry.value for entry in live.entries]


def test_questions_are_answered_in_their_order_each_with_its_end(live: Recording) -> None:
    asked, node = Asked(values(live)), live.steps[3].node
    explain = protocol.Explain(node)
    what_if = protocol.WhatIf(Settings(temp=2.0), live.steps[-1].node)
    found = asked.ask(what_if, explain, protocol.FindTokens(node, "a"))
    kinds = [type(each.record) for each in found]
    assert kinds == [WhatIfAnswered, Ended, Explained, Ended, TokensFound, Ended]
    assert [each.id for each in found] == [1, 1, 2, 2, 3, 3]
    assert found[2].record == live.ask(explain)


def test_what_has_no_row_fails(live: Recording) -> None:
    asked, what_if = Asked(values(live)), protocol.WhatIf(Settings(), live.steps[-1].node)
    assert [type(each.record) for each in asked.ask(what_if)] == [WhatIfAnswered, Ended]
    for command in (protocol.Explain(1), protocol.Tokenize("a")):
        assert [type(each.record) for each in asked.ask(command)] == [Failure, Ended]
    asked.backend.begin()
    assert [type(each.record) for each in asked.ask(what_if)] == [Failure, Ended]


def test_a_question_is_given_up_and_the_next_one_is_answered(
    live: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, answer = Event(), Event(), questions.what_if

    def slow(*args: Any) -> Record:
        begun.set()
        assert go_on.wait(60)
        return answer(*args)

    monkeypatch.setattr(questions, "what_if", slow)
    asked, tip = Asked(values(live)), live.steps[-1].node
    first, second, third = (Sent(protocol.WhatIf(Settings(seed=seed), tip), seed) for seed in range(3))
    asked.backend.send(first)
    assert begun.wait(60)
    asked.backend.send(second)
    asked.backend.send(third)
    for id in (first.id, second.id, 12345):
        asked.backend.send(Sent(protocol.Cancel(id), 9))
    go_on.set()
    found = [each.record for each in asked.until_ended(3)]
    assert [record.cancelled for record in found if isinstance(record, Ended)] == [True, True, False]
    assert sum(isinstance(record, WhatIfAnswered) for record in found) == 1
    asked.backend.close()


@pytest.mark.parametrize("lost", [{"id": 10**9}, {"id": -5000}])
def test_a_file_that_misleads_is_refused_in_one_line(live: Recording, lost: dict[str, int]) -> None:
    step = live.steps[2]
    misled = [replace(value, **lost) if value is step else value for value in values(live)]  # type: ignore[arg-type]
    asked = Asked(misled)
    command = protocol.WhatIf(Settings(repetition_penalty=1.5), live.steps[-1].node)
    failure, ended = (each.record for each in asked.ask(command))
    assert isinstance(failure, Failure)
    assert failure.message.startswith("The recording is inconsistent here: ")
    assert "\n" not in failure.message + failure.hint
    assert ended == Ended("WhatIf")
    assert isinstance(step, Step)


def test_the_engine_stops_recording_rows_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.session.context.ROWS_LIMIT", 30_000)
    live = Recording(LoadSettings(record_logits=True, dtype="float32"))
    live.do(protocol.Prefill("Once upon a time", chat=False))
    for _ in range(6):
        live.do(protocol.TakeStep())
    rows = [value for value in values(live) if isinstance(value, protocol.LogitsRow)]
    assert 2 <= len(rows) < 6
    asked = Asked(values(live))
    command = protocol.WhatIf(Settings(), live.steps[-1].node)
    told = asked.ask(command)[0].record
    assert isinstance(told, WhatIfAnswered)
    assert len(told.steps) == len(rows)
    assert told.dropped == tuple(step.node for step in live.steps[len(rows) :])
