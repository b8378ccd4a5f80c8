"""The commands of speculation, as the engine answers them: runs, stages, drafts that stay loaded, and the proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from engine import protocol
from engine.breakpoints import Breakpoints
from engine.decoding.speculative import compare
from engine.protocol import (
    Choose,
    Command,
    Configure,
    DraftReady,
    DraftRound,
    Load,
    LoadDraft,
    MoveTo,
    Prefill,
    Record,
    Run,
    RunRounds,
    SpeculationVerified,
    Step,
    TakeRound,
    TakeStep,
    VerifySpeculation,
)
from engine.settings import LoadSettings, Settings
from engine.speculation_settings import SpeculationSettings
from engine.task import Task
from engine.worker import Worker
from tests.zoo import Zoo

Kind = TypeVar("Kind")
TEXT = "Once upon a time there was a dog. The dog was a big dog. The dog was"
SETTINGS = Settings(temp=0.9, seed=4, max_tokens=20, min_tokens=20)


class Bench:
    """A worker on one model, with a prompt read.

    Args:
        model: Of the session.
    """

    def __init__(self, model: str, settings: Settings = SETTINGS) -> None:
        self.records: list[Record] = []
        self.cancel: Callable[[Record], bool] = lambda record: False
        self._task = Task(Load(LoadSettings()))
        self._worker = Worker(self._emit, lambda: False)
        self.do(Load(LoadSettings(model=model)))
        self.do(Configure(settings))
        self.do(Prefill(TEXT, chat=False))
        self.begin = self.told(protocol.Prefilled)[-1].next.node

    def _emit(self, record: Record) -> None:
        self.records.append(record)
        if self.cancel(record):
            self._task.cancel.set()

    def do(self, command: Command) -> list[Record]:
        """Carry out a command; returns what it was answered with."""
        seen, self._task = len(self.records), Task(command)
        self._worker.carry_out(self._task)
        return self.records[seen:]

    def told(self, kind: type[Kind]) -> list[Kind]:
        """The records of a class."""
        return [record for record in self.records if isinstance(record, kind)]

    def again(self) -> None:
        """Go back to the end of the prompt, and forget what was told."""
        self.do(MoveTo(self.begin))
        self.records.clear()


@pytest.fixture(scope="module")
def desk(zoo: Zoo) -> Bench:
    return Bench(str(zoo.path("llama")))


def ids(found: list[Record]) -> list[int]:
    return [record.id for record in found if isinstance(record, Step)]


def ended(found: list[Record]) -> protocol.Ended:
    assert isinstance(found[-1], protocol.Ended)
    return found[-1]


def test_a_run_of_rounds_is_a_run_and_is_proved(desk: Bench) -> None:
    desk.again()
    plain = ids(desk.do(Run()))
    for settings in (SpeculationSettings(), SpeculationSettings("self-4bit", num_draft_tokens=2)):
        desk.again()
        found = desk.do(RunRounds(settings, plain=3))
        assert ids(found) == plain
        assert len(desk.told(protocol.Finished)) == 1
        rounds = desk.told(DraftRound)
        assert sum(each.taken for each in rounds) == 17
        assert rounds[-1].end == desk.told(Step)[-1].node
        [proof] = [
            each for each in desk.do(VerifySpeculation(desk.begin)) if isinstance(each, SpeculationVerified)
        ]
        assert (proof.tokens, proof.differs, proof.plain, proof.chosen) == (20, None, None, 0)
        assert proof.difference < 1e-4
        assert proof.plain_ms > 0


def test_the_proof_finds_another_token_and_leaves_out_what_a_person_chose(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.again()
    [first, *_] = ids(desk.do(TakeStep()))
    tip = desk.told(Step)[-1]
    other = next(each.id for each in tip.next.candidates if each.id != tip.next.picked)
    desk.do(Choose(tip.node, other))
    desk.do(TakeStep())
    [proof] = [
        each for each in desk.do(VerifySpeculation(desk.begin)) if isinstance(each, SpeculationVerified)
    ]
    assert (proof.tokens, proof.chosen, proof.differs) == (3, 1, None)
    monkeypatch.setattr(compare, "NOT_SAMPLED", ("prompt",))
    [proof] = [
        each for each in desk.do(VerifySpeculation(desk.begin)) if isinstance(each, SpeculationVerified)
    ]
    assert (proof.differs, proof.plain) == (desk.told(Step)[1].node, tip.next.picked)
    assert first == tip.id


def test_a_draft_stays_loaded_until_another_is_asked_for_or_the_model_goes(zoo: Zoo) -> None:
    desk = Bench(str(zoo.path("llama")))
    for number in (1, 2):
        desk.do(TakeRound(SpeculationSettings("self-4bit", num_draft_tokens=number)))
    desk.do(LoadDraft(SpeculationSettings("self-4bit")))
    assert len(desk.told(DraftReady)) == 1
    desk.do(LoadDraft(SpeculationSettings()))
    desk.do(LoadDraft(SpeculationSettings("self-4bit")))
    assert [each.settings.draft for each in desk.told(DraftReady)] == ["self-4bit", "lookup", "self-4bit"]
    assert len(desk.told(protocol.ModelFacts)) == 1  # a draft's model is not the session's
    desk.do(Load(LoadSettings(model=str(zoo.path("llama")))))
    desk.do(Prefill(TEXT, chat=False))
    desk.do(TakeRound(SpeculationSettings("self-4bit")))
    assert len(desk.told(DraftReady)) == 4


def test_a_breakpoint_and_a_cancel_stop_a_run_where_they_hold(desk: Bench) -> None:
    desk.again()
    plain = ids(desk.do(Run()))
    desk.again()
    found = desk.do(RunRounds(SpeculationSettings("self-4bit"), Breakpoints(tokens=5)))
    assert ids(found) == plain[:5]
    assert [each for each in found if isinstance(each, protocol.BreakpointHit)]
    desk.cancel = lambda record: isinstance(record, Step) and record.index == 8
    found = desk.do(RunRounds(SpeculationSettings("self-4bit")))
    desk.cancel = lambda record: False
    assert ids(found) == plain[5:9]
    assert ended(found).cancelled
    assert ids(desk.do(RunRounds(SpeculationSettings()))) == plain[9:]


def test_the_stages_of_a_round_go_on_until_something_else_is_done(desk: Bench) -> None:
    desk.again()
    plain = ids(desk.do(Run()))
    desk.again()
    inside = TakeRound(SpeculationSettings("self-4bit"), inside=True)
    for _ in range(3):
        desk.do(inside)
    assert [each.stage for each in desk.told(DraftRound)] == ["proposed", "verified", "taken"]
    assert ids(desk.records) == plain[: len(ids(desk.records))] != []
    desk.again()
    desk.do(inside)
    desk.do(TakeStep())
    desk.do(inside)  # a new round
    desk.do(TakeRound(SpeculationSettings("self-4bit")))
    assert [each.stage for each in desk.told(DraftRound)] == ["proposed", "proposed", "taken"]
    assert ids(desk.records) == plain[: len(ids(desk.records))]
    desk.again()
    desk.do(inside)
    desk.do(Configure(Settings(temp=0.0)))
    desk.do(inside)
    desk.do(Configure(SETTINGS))
    assert [each.stage for each in desk.told(DraftRound)] == ["proposed", "proposed"]


def test_a_draft_that_is_not_there_is_a_failure_in_words(desk: Bench) -> None:
    desk.again()
    found = desk.do(LoadDraft(SpeculationSettings("model", "nowhere/at-all")))
    [failure] = [each for each in found if isinstance(each, protocol.Failure)]
    assert failure.expected
    assert ids(desk.do(TakeStep()))
