"""Commands are values that carry their own facts; the worker has a handler for each, and answers by id."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from threading import Thread
from typing import get_type_hints

import pytest

from engine import commands, records
from engine.beam_settings import BeamSettings
from engine.breakpoints import Breakpoints
from engine.commands import KINDS, Cancel, Command
from engine.errors import StepError
from engine.frozen import frozen
from engine.records import Intervention, Record
from engine.settings import LoadSettings, Settings
from engine.speculation_settings import SpeculationSettings
from engine.sweep_settings import SweepSettings
from engine.task import Task
from engine.worker import Worker

SAMPLES: tuple[Command, ...] = (
    commands.Cancel(1),
    commands.Load(LoadSettings()),
    commands.Prefill("Once", chat=False),
    commands.Restore((), 1),
    commands.GoOnPrefill(),
    commands.AddTurn("More", ()),
    commands.TakeStep(),
    commands.Run(),
    commands.Choose(1, 2),
    commands.MoveTo(1),
    commands.Insert(1, " dog"),
    commands.Take(1, (2,)),
    commands.Tokenize(" dog"),
    commands.ReadAttention(1),
    commands.ReadTriangle(1, 0, 0),
    commands.ScoreHeads(1),
    commands.ReadLens(1),
    commands.ReadModules(),
    commands.ReadExperts(1),
    commands.TryPosition(1),
    commands.PreviewPrompt("Once", chat=False),
    commands.CutText(LoadSettings(), "dog"),
    commands.FindTokens(1, "dog"),
    commands.ReadGrammar(1),
    commands.ReadLogits((1,)),
    commands.LookAhead(1, (2,)),
    commands.Configure(Settings()),
    commands.Reroll(),
    commands.Verify(),
    commands.Explain(1),
    commands.WhatIf(Settings(), 1),
    commands.Recall((1,)),
    commands.SearchBeams(BeamSettings()),
    commands.GoOnBeams(),
    commands.StartBatch((commands.LanePrompt("Once"),)),
    commands.AdvanceBatch(),
    commands.AddLanes((commands.LanePrompt("Once"),)),
    commands.RemoveLane(0),
    commands.CompareBatch(),
    commands.DrawMany(40),
    commands.Sweep(SweepSettings()),
    commands.Race(),
    commands.Profile(),
    commands.MeasureRoofline(),
    commands.MeasureRanks(),
    commands.CompareKV(),
    commands.Attribute(1, (2, 3)),
    commands.Intervene(1, (Intervention("head", 0, 0),)),
    commands.SweepHeads(1),
    commands.PatchActivations(1, 2, 3, 4),
    commands.HoldInterventions(1, (Intervention("mlp", 0),)),
    commands.LoadDraft(SpeculationSettings()),
    commands.TakeRound(SpeculationSettings()),
    commands.RunRounds(SpeculationSettings()),
    commands.VerifySpeculation(1),
    commands.OpenLockstep(LoadSettings()),
    commands.CloseLockstep(),
    commands.DiffText("Once"),
    commands.ReadLockstep(1),
    commands.FollowSecond(1),
    commands.PartWays(1),
)
"""One of each."""


def by_kind(holds: Callable[[type[Command]], bool]) -> set[str]:
    return {kind for kind, cls in KINDS.items() if holds(cls)}


# ---- values with facts ------------------------------------------------------------------------


def test_the_table_of_kinds_has_every_command_once() -> None:
    assert sorted(KINDS) == sorted(sample.kind for sample in SAMPLES)
    assert {KINDS[sample.kind] for sample in SAMPLES} == {type(sample) for sample in SAMPLES}
    assert {kind: cls.__name__ for kind, cls in KINDS.items() if kind != cls.__name__} == {"Step": "TakeStep"}


def test_facts() -> None:
    assert by_kind(lambda cls: not cls.needs_model) == {"Cancel", "Load", "Configure", "CutText"}
    assert by_kind(lambda cls: cls.aside) == {
        "Explain",
        "WhatIf",
        "FindTokens",
        "Tokenize",
        "PreviewPrompt",
        "ReadGrammar",
        "AddLanes",
        "RemoveLane",
    }
    assert by_kind(lambda cls: cls.stoppable) == {
        "Prefill", "AddTurn", "GoOnPrefill", "Step", "Run", "Choose", "MoveTo", "Insert", "Take", "Reroll", "Verify",
        "Recall", "HoldInterventions", "LoadDraft", "TakeRound", "RunRounds", "VerifySpeculation", "FollowSecond",
    }  # fmt: skip


def test_a_subclass_has_a_kind_of_its_own_whatever_its_base_is_called() -> None:
    @frozen
    class Leap(commands.TakeStep):
        far: int = 2

    assert (Leap.kind, Leap().kind, commands.TakeStep.kind) == ("Leap", "Leap", "Step")
    assert (commands.Measure.kind, commands.Race.kind) == ("Measure", "Race")


def test_every_command_has_an_id_of_its_own_whichever_thread_makes_it() -> None:
    made: list[int] = []
    threads = [
        Thread(target=lambda: made.extend([commands.TakeStep().id for _ in range(2000)])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == len(made) == 8000
    assert len({sample.id for sample in SAMPLES}) == len(SAMPLES)


@pytest.mark.parametrize("command", SAMPLES, ids=lambda command: command.kind)
def test_a_command_is_a_value(command: Command) -> None:
    values = {field.name: getattr(command, field.name) for field in fields(command) if field.name != "id"}
    again = type(command)(**values)
    assert again == command
    assert hash(again) == hash(command)
    assert again.id != command.id
    assert type(command)(**values, id=7).id == 7
    with pytest.raises(FrozenInstanceError):
        command.id = 0  # type: ignore[misc]


# ---- the worker's table -----------------------------------------------------------------------


class Told:
    """A worker and what it emits."""

    def __init__(self) -> None:
        self.found: list[Record] = []
        self.asides: list[Task] = []
        self.worker = Worker(
            self.found.append, lambda: False, lambda: self.asides.pop(0) if self.asides else None
        )

    def do(self, command: Command) -> list[Record]:
        start = len(self.found)
        self.worker.carry_out(Task(command))
        return self.found[start:]


def test_every_command_but_a_cancel_has_a_handler_that_takes_it() -> None:
    worker = Worker(lambda _: None, lambda: False)
    assert set(worker.handled) == set(KINDS.values()) - {Cancel}
    for cls, handler in worker._handlers.items():
        assert get_type_hints(handler)["command"] is cls


@pytest.mark.parametrize("cls", [commands.Measure, Command, "another"])
def test_a_class_without_a_handler_is_a_fault_that_is_told(cls: type[Command]) -> None:
    @frozen
    class Another(commands.TakeStep):
        """A subclass is another command, not the base's."""

    Command.kind = "Command"  # the base itself has none
    try:
        command = Another() if isinstance(cls, str) else cls()
        failure, ended = Told().do(command)
    finally:
        del Command.kind
    assert isinstance(failure, records.Failure)
    assert not failure.expected
    assert "no handler" in failure.message
    assert isinstance(ended, records.Ended)
    assert (failure.id, ended.id) == (command.id, command.id)


@pytest.mark.parametrize(
    "command", [sample for sample in SAMPLES if sample.needs_model], ids=lambda command: command.kind
)
def test_what_needs_a_model_is_refused_without_one(command: Command) -> None:
    failure, ended = Told().do(command)
    assert failure == records.Failure(command.kind, "No model is loaded.", "Wait for it, or open one.")
    assert ended == records.Ended(command.kind)
    assert isinstance(failure, records.Failure)
    assert isinstance(ended, records.Ended)
    assert (failure.id, ended.id) == (command.id, command.id)


def test_settings_may_come_before_the_model() -> None:
    told = Told()
    assert told.do(commands.Configure(Settings(temp=0.5))) == [records.Ended("Configure")]
    told.do(commands.Load(LoadSettings()))
    assert told.worker._desk.session.settings.temp == 0.5


def test_two_capabilities_can_not_handle_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import engine.worker

    monkeypatch.setattr(engine.worker, "CAPABILITIES", engine.worker.CAPABILITIES * 2)
    with pytest.raises(AssertionError, match="two handlers for "):
        Told()


def test_a_model_whose_code_wants_to_end_the_process_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    told.do(commands.Load(LoadSettings()))
    told.do(commands.Prefill("Once upon a time", chat=False))
    with monkeypatch.context() as patched:
        patched.setattr(type(told.worker._desk.session), "step", lambda self: exit(3))
        failure, _ = told.do(commands.TakeStep())
    assert isinstance(failure, records.Failure)
    assert "SystemExit" in failure.message
    assert isinstance(told.do(commands.TakeStep())[0], records.Step)


def test_a_cancelled_aside_is_not_answered_and_the_run_goes_on() -> None:
    told = Told()
    told.do(commands.Load(LoadSettings()))
    told.do(commands.Configure(Settings(max_tokens=5, min_tokens=5)))
    told.do(commands.Prefill("Once upon a time", chat=False))
    cancelled, answered = Task(commands.Explain(4)), Task(commands.Explain(4))
    cancelled.cancel.set()
    told.asides = [cancelled, answered]
    found = told.do(commands.Run())
    kinds = [type(record).__name__ for record in found]
    assert kinds == ["Step", "Ended", "Explained", "Ended", *["Step"] * 4, "Finished", "Ended"]
    ends = [record for record in found if isinstance(record, records.Ended)]
    assert [(end.command, end.cancelled) for end in ends] == [
        ("Explain", True), ("Explain", False), ("Run", False),
    ]  # fmt: skip
    assert [end.id for end in ends[:2]] == [cancelled.command.id, answered.command.id]


def test_a_model_is_freed_before_the_next_one_is_read() -> None:
    told = Told()
    told.do(commands.Load(LoadSettings()))
    told.do(commands.Prefill("Once upon a time", chat=False))
    told.do(commands.Run(until=Breakpoints(tokens=2)))
    told.do(commands.FindTokens(4, "dog"))
    told.do(commands.SearchBeams(BeamSettings(2, max_tokens=6), steps=1))
    desk = told.worker._desk
    assert desk.loaded is not None
    old = [weakref.ref(desk.session), weakref.ref(desk.loaded.model)]
    alive: list[bool] = []
    emit = desk.emit

    def look(record: Record) -> None:
        emit(record)
        if isinstance(record, records.Loading):
            alive.append(any(ref() is not None for ref in old))

    desk.emit = look
    gc.disable()  # nobody else may do it
    try:
        told.do(commands.Load(LoadSettings()))
    finally:
        gc.enable()
    assert set(alive) == {False}
    assert told.do(commands.GoOnBeams())[0] == records.Failure(
        "GoOnBeams", "There is no beam search to go on with.", "Start one."
    )


def test_a_load_that_fails_at_its_end_leaves_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StepError("No session.")

    told = Told()
    monkeypatch.setattr("engine.session.handlers.open_session", refuse)
    assert told.do(commands.Load(LoadSettings()))[-2:] == [
        records.Failure("Load", "No session.", ""),
        records.Ended("Load"),
    ]
    assert (told.worker._desk.loaded, told.worker._desk.opened) == (None, None)
