"""Commands are values that carry their own facts; the worker has a handler for each, and answers by id."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from itertools import count, pairwise
from threading import Event
from typing import get_type_hints

import mlx.core as mx
import pytest
from msgspec.structs import fields, replace

from engine import protocol
from engine.breakpoints import Breakpoints
from engine.errors import StepError
from engine.model.load import load
from engine.protocol import COMMANDS, Command, Grown, Intervention, Record
from engine.session.handlers import MOST_NODES
from engine.settings import BeamSettings, LoadSettings, Settings, SpeculationSettings, TrainingSettings
from engine.task import Task
from engine.worker import HANDLERS, handler_of
from tests.engine.unthreaded import Unthreaded
from tests.zoo import Zoo

SAMPLES: tuple[Command, ...] = (
    protocol.Cancel(1),
    protocol.Load(LoadSettings()),
    protocol.Prefill("Once", chat=False),
    protocol.Restore((), 1),
    protocol.GoOnPrefill(),
    protocol.AddTurn("More", ()),
    protocol.TakeStep(),
    protocol.Run(),
    protocol.Choose(1, 2),
    protocol.MoveTo(1),
    protocol.Insert(1, " dog"),
    protocol.Take(1, (2,)),
    protocol.Tokenize(" dog"),
    protocol.ReadAttention(1),
    protocol.ReadTriangle(1, 0, 0),
    protocol.ScoreHeads(1),
    protocol.ReadLens(1),
    protocol.ReadModules(),
    protocol.BeginTraining(TrainingSettings()),
    protocol.ResumeTraining("x"),
    protocol.Train(),
    protocol.SaveCheckpoint("x"),
    protocol.ReadExperts(1),
    protocol.TryPosition(1),
    protocol.PreviewPrompt("Once", chat=False),
    protocol.CutText(LoadSettings(), "dog"),
    protocol.TakeApart("dog"),
    protocol.CheckToolCall(1),
    protocol.FindTokens(1, "dog"),
    protocol.ReadGrammar(1),
    protocol.ReadLogits((1,)),
    protocol.LookAhead(1, (2,)),
    protocol.RepeatReply(1),
    protocol.Configure(Settings()),
    protocol.Reroll(),
    protocol.Verify(),
    protocol.Explain(1),
    protocol.WhatIf(Settings(), 1),
    protocol.Recall((1,)),
    protocol.SearchBeams(BeamSettings()),
    protocol.GoOnBeams(),
    protocol.StartBatch((protocol.LanePrompt("Once"),)),
    protocol.AdvanceBatch(),
    protocol.AddLanes((protocol.LanePrompt("Once"),)),
    protocol.RemoveLane(0),
    protocol.CompareBatch(),
    protocol.DrawMany(40),
    protocol.Race(),
    protocol.Profile(),
    protocol.MeasureRoofline(),
    protocol.MeasureRanks(),
    protocol.CompareKV(),
    protocol.ReadMachine(),
    protocol.CaptureMetal("x.gputrace"),
    protocol.Attribute(1, (2, 3)),
    protocol.ReadGradients(1),
    protocol.ReadScore(1, 0, 0),
    protocol.Intervene(1, (Intervention("head", 0, 0),)),
    protocol.SweepHeads(1),
    protocol.PatchActivations(1, 2, 3, 4),
    protocol.PatchPairs((protocol.PatchPair("a", "b"),)),
    protocol.HoldInterventions(1, (Intervention("mlp", 0),)),
    protocol.MakeDirection(1, ("Once",), ("Twice",)),
    protocol.SweepStrengths(1, protocol.Direction("up", 0, protocol.floats((1.0, 2.0), (2,))), 0),
    protocol.LoadDraft(SpeculationSettings()),
    protocol.TakeRound(SpeculationSettings()),
    protocol.RunRounds(SpeculationSettings()),
    protocol.VerifySpeculation(1),
    protocol.OpenLockstep(LoadSettings()),
    protocol.CloseLockstep(),
    protocol.DiffText("Once"),
    protocol.ReadLockstep(1),
    protocol.ExplainSecond(1),
    protocol.FollowSecond(1),
    protocol.PartWays(1),
)
"""One of each."""


def by_kind(holds: Callable[[type[Command]], bool]) -> set[str]:
    return {kind for kind, cls in COMMANDS.items() if holds(cls)}


# ---- values with facts ------------------------------------------------------------------------


def test_the_table_of_kinds_has_every_command_once() -> None:
    assert sorted(COMMANDS) == sorted(sample.kind for sample in SAMPLES)
    assert {COMMANDS[sample.kind] for sample in SAMPLES} == {type(sample) for sample in SAMPLES}
    assert {kind: cls.__name__ for kind, cls in COMMANDS.items() if kind != cls.__name__} == {}


def test_facts() -> None:
    assert by_kind(lambda cls: not cls.needs_model) == {
        "Cancel", "Load", "Configure", "CutText", "TakeApart", "BeginTraining", "ResumeTraining", "Train",
        "SaveCheckpoint",
    }  # fmt: skip
    assert by_kind(lambda cls: cls.interleavable) == {
        "Explain", "WhatIf", "FindTokens", "Tokenize", "PreviewPrompt", "ReadGrammar", "AddLanes", "RemoveLane",
        "CheckToolCall",
    }  # fmt: skip
    assert by_kind(lambda cls: cls.stoppable) == {
        "Prefill", "AddTurn", "GoOnPrefill", "TakeStep", "Run", "Choose", "MoveTo", "Insert", "Take", "Reroll",
        "Verify", "Recall", "HoldInterventions", "LoadDraft", "TakeRound", "RunRounds", "VerifySpeculation",
        "FollowSecond", "RepeatReply", "Train",
    }  # fmt: skip


def test_a_subclass_has_a_kind_of_its_own_whatever_its_base_is_called() -> None:
    class Leap(protocol.TakeStep, frozen=True):
        far: int = 2

    assert (Leap.kind, Leap().kind, protocol.TakeStep.kind) == ("Leap", "Leap", "TakeStep")
    assert (protocol.Measure.kind, protocol.Race.kind) == ("Measure", "Race")


@pytest.mark.parametrize("command", SAMPLES, ids=lambda command: command.kind)
def test_a_command_is_a_value(command: Command) -> None:
    values = {field.name: getattr(command, field.name) for field in fields(command)}
    again = type(command)(**values)
    assert again == command
    assert hash(again) == hash(command)
    with pytest.raises(AttributeError, match="immutable"):
        command.kind = ""  # type: ignore[misc]


# ---- the worker's table -----------------------------------------------------------------------


def test_every_command_but_a_cancel_has_a_handler_that_takes_it() -> None:
    listed = [name for names in HANDLERS.values() for name in names.split()]
    assert sorted(listed) == sorted(COMMANDS.keys() - {"Cancel"})
    for name in listed:
        hints = get_type_hints(handler_of(COMMANDS[name]))
        first = "session" if issubclass(COMMANDS[name], protocol.Inside) else "context"
        assert (hints["command"], first in hints) == (COMMANDS[name], True)


@pytest.mark.parametrize("cls", [protocol.Measure, Command, "another"])
def test_a_class_without_a_handler_is_a_fault_that_is_told(cls: type[Command]) -> None:
    class Another(protocol.TakeStep, frozen=True):
        """A subclass is another command, not the base's."""

    Command.kind = "Command"  # the base itself has none
    try:
        command = Another() if isinstance(cls, str) else cls()
        engine = Unthreaded()
        failure, ended = engine.do(command)
    finally:
        del Command.kind
    assert not failure.expected
    assert "no handler" in failure.message
    assert isinstance(ended, protocol.Ended)
    assert engine.command_ids == [1, 1]


@pytest.mark.parametrize(
    "command", [sample for sample in SAMPLES if sample.needs_model], ids=lambda command: command.kind
)
def test_what_needs_a_model_is_refused_without_one(command: Command) -> None:
    engine = Unthreaded()
    failure, ended = engine.do(command)
    assert failure == protocol.Failure(
        command.kind, "No model is loaded.", "Wait until it is loaded, or open one.", error="StepError"
    )
    assert ended == protocol.Ended(command.kind)
    assert engine.command_ids == [1, 1]


# ---- what commands answer ---------------------------------------------------------------------

ANOTHER = 8
"""A node of another branch."""
UP = protocol.Direction("up", 0, protocol.floats([1.0] * 256, (256,)))
ANSWERS: dict[type[Record], Callable[[int], tuple[Command, ...]]] = {
    protocol.AttentionRead: lambda node: (protocol.ReadAttention(node),),
    protocol.TriangleRead: lambda node: (protocol.ReadTriangle(node, 0, 0),),
    protocol.AttributionRead: lambda node: (protocol.Attribute(node, (2, 3)),),
    protocol.GradientsRead: lambda node: (protocol.ReadGradients(node, method="gradient"),),
    protocol.LensRead: lambda node: (protocol.ReadLens(node),),
    protocol.ScoreRead: lambda node: (protocol.ReadScore(node, 0, 0),),
    protocol.ModelModules: lambda node: (protocol.ReadModules(),),
    protocol.Intervened: lambda node: (protocol.Intervene(node, (Intervention("head", 0, 0),)),),
    protocol.InterventionsHeld: lambda node: (
        protocol.HoldInterventions(node, (Intervention("mlp", 0),)),
        protocol.HoldInterventions(node, ()),
    ),
    protocol.HeadsSwept: lambda node: (protocol.SweepHeads(node), protocol.SweepHeads(node, scope="context")),
    protocol.ActivationsPatched: lambda node: (protocol.PatchActivations(node, ANOTHER, 3, 4),),
    protocol.DirectionMade: lambda node: (
        protocol.MakeDirection(0, ("Once", "She", "He"), ("A dog", "Twice")),
        protocol.MakeDirection(0, nodes=(node, 2)),
    ),
    protocol.StrengthsSwept: lambda node: (
        protocol.SweepStrengths(node, UP, 0, strengths=(1.0,)),
        protocol.SweepStrengths(node, UP, 0, scope="context", strengths=(1.0,)),
    ),
    protocol.PositionTried: lambda node: (protocol.TryPosition(node),),
    protocol.PairsPatched: lambda node: (protocol.PatchPairs((protocol.PatchPair("The dog", "The cat"),)),),
    protocol.LookedAhead: lambda node: (protocol.LookAhead(node, (2, 3), 3),),
    protocol.BeamEnded: lambda node: (protocol.SearchBeams(BeamSettings(2, max_tokens=3)),),
    protocol.LaneCompared: lambda node: (
        protocol.DrawMany(3, tokens=2),
        protocol.CompareBatch(),
    ),
    protocol.ReplyRepeated: lambda node: (protocol.RepeatReply(node),),
    protocol.SpeculationVerified: lambda node: (
        protocol.TakeRound(SpeculationSettings()),
        protocol.VerifySpeculation(node),
        protocol.MoveTo(node),
    ),
    protocol.Profiled: lambda node: (protocol.Profile(1),),
    protocol.RaceEnded: lambda node: (protocol.Race(2, 4),),
    protocol.KVCompared: lambda node: (protocol.CompareKV((8,)),),
    protocol.MachineRead: lambda node: (protocol.ReadMachine(),),
    protocol.Verified: lambda node: (protocol.Verify(),),
    protocol.Recalled: lambda node: (protocol.Recall((node - 1,)),),
    protocol.WhatIfAnswered: lambda node: (protocol.WhatIf(Settings(temp=2.0), node),),
    protocol.Step: lambda node: (
        protocol.Run(until=Breakpoints(tokens=3)),
        protocol.MoveTo(node),
        protocol.TakeStep(),
        protocol.MoveTo(node),
    ),
    protocol.Prefilled: lambda node: (
        protocol.Prefill("Twice upon a time", chat=False),
        protocol.MoveTo(node),
    ),
    protocol.BatchStep: lambda node: (
        protocol.StartBatch((protocol.LanePrompt("A dog"), protocol.LanePrompt("One day")), steps=3),
        protocol.RemoveLane(0),
        protocol.AddLanes((protocol.LanePrompt("Two"),)),
        protocol.AdvanceBatch(steps=2),
    ),
    protocol.Moved: lambda node: (protocol.MoveTo(ANOTHER), protocol.MoveTo(node)),
    protocol.WaysParted: lambda node: (
        protocol.OpenLockstep(LoadSettings()),
        protocol.PartWays(node, tokens=3),
        protocol.CloseLockstep(),
    ),
}
"""Records, and the commands that are answered by them."""


def milliseconds(record: object, within: str = "") -> dict[str, float]:
    """The times in a record and in those inside it, by their places."""
    found: dict[str, float] = {}
    for name, value in (
        enumerate(record)
        if isinstance(record, tuple)
        else ((field, getattr(record, field)) for field in getattr(record, "__annotations__", ()))
    ):
        place = f"{within}.{name}"
        if isinstance(value, float) and (isinstance(record, protocol.StepTimes) or str(name).endswith("ms")):
            found[place] = value
        else:
            found |= milliseconds(value, place)
    return found


@pytest.fixture(scope="module")
def stepped() -> Unthreaded:
    """Some steps behind a prompt, and a branch of one token."""
    engine = Unthreaded(LoadSettings(), prompt="Once upon a time", settings=Settings(max_tokens=100))
    engine.do(protocol.Run(until=Breakpoints(tokens=3)))
    node = engine.session.node
    engine.do(protocol.Choose(4, 300))
    assert engine.session.node == ANOTHER
    engine.do(protocol.MoveTo(node))
    engine.do(protocol.StartBatch((protocol.LanePrompt("A dog"),), steps=0))  # the first one tries the model
    return engine


class Polled(Event):
    """A cancel that never comes, and the forwards that had run whenever it was asked for."""

    def __init__(self, ran: list[int]) -> None:
        super().__init__()
        self.ran, self.at = ran, list[int]()

    def is_set(self) -> bool:
        self.at.append(len(self.ran))
        return False


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_what_a_command_tells_of_its_time_and_work_is_so_and_it_can_be_stopped_within_it(
    stepped: Unthreaded, kind: type[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that a look moves on by a second: a time is none, or whole seconds of it, or their mean."""
    begun = 1_000_000
    looks, ran = count(begun), list[int]()
    model, node = type(stepped.session.runner.model), stepped.session.node
    own = model.__call__

    def counted(module: object, ids: mx.array, *given: object, **more: object) -> mx.array:
        ran.append(ids.size)
        return own(module, ids, *given, **more)

    monkeypatch.setattr(time, "perf_counter", lambda: float(next(looks)))
    monkeypatch.setattr(model, "__call__", counted)
    found: list[Record] = []
    for command in ANSWERS[kind](node):
        ran.clear()
        polled = Polled(ran)
        answered = stepped.do(Task(command, cancel=polled))
        told_run = [each.tokens_run for each in answered if hasattr(each, "tokens_run")]
        assert (
            told_run in ([], [sum(ran)]) or kind is protocol.PositionTried
        )  # it tells those of the changed model
        steps = [(each.done, each.total) for each in answered if isinstance(each, protocol.Measuring)]
        assert all(0 <= done < total for done, total in steps), steps
        assert max(after - before for before, after in pairwise([*polled.at, len(ran)])) <= 4, polled.at
        found += answered
    took = (next(looks) - begun) * 1000.0
    assert kind in map(type, found), found
    for record in found:
        told = milliseconds(record, type(record).__name__)
        assert all(ms == 0 or 1 <= ms <= took for ms in told.values()), (took, told)
    assert protocol.Failure not in map(type, found)
    assert stepped.session.node == node


NODES = [
    (sample, field.name)
    for sample in SAMPLES
    for field in fields(sample)
    if sample.needs_model
    and field.name in ("node", "source", "tip")
    and not isinstance(sample, protocol.Restore)
]


@pytest.mark.parametrize(
    ("command", "field"),
    [*NODES, (protocol.ReadLogits((1,)), "nodes"), (protocol.Recall((1,)), "nodes")],
    ids=lambda each: each if isinstance(each, str) else each.kind,
)
def test_a_node_that_is_not_there_is_refused(stepped: Unthreaded, command: Command, field: str) -> None:
    missing: int | tuple[int, ...] = 10**6
    if field == "nodes":
        missing = (10**6,)
    if command.kind in ("ReadLockstep", "ExplainSecond", "FollowSecond", "PartWays"):
        stepped.do(protocol.OpenLockstep(LoadSettings()))
    failure, ended = stepped.do(replace(command, **{field: missing}))[-2:]
    assert isinstance(failure, protocol.Failure)
    assert failure.expected, failure.message
    if command.kind != "VerifySpeculation":  # which has no text of its own here
        assert "no token number 1000000" in failure.message
    assert ended == protocol.Ended(command.kind)


def test_so_many_draws_that_no_list_could_hold_them_are_refused(stepped: Unthreaded) -> None:
    told = stepped.one(protocol.DrawMany(10**15, tokens=2), protocol.Failure)
    assert "draws of 2 tokens are out of range" in told.message


@pytest.mark.parametrize(
    ("grown", "message"),
    [
        ((), "The recorded session has no prompt."),
        ((Grown(MOST_NODES + 1, 0, 5, "prompt", False),), "The recorded tree goes up to node"),
        ((Grown(1, 7, 5, "prompt", False),), "The recorded tree doesn't hold together at node 1."),
        ((Grown(1, 0, 5, "intervened", False),), "The recorded tree doesn't hold together at node 1."),
        (
            tuple(Grown(1 + place, place, 5, "prompt", False) for place in range(257)),
            "The recorded path has 257 tokens, this model's window 256.",
        ),
    ],
)
def test_a_tree_that_can_not_be_rebuilt_is_refused(zoo: Zoo, grown: tuple[Grown, ...], message: str) -> None:
    engine = Unthreaded(zoo.load("gpt2"))
    assert engine.one(protocol.Restore(grown, max(1, len(grown))), protocol.Failure).message.startswith(
        message
    )
    assert len(engine.session.tree) == 1


def test_a_tree_that_just_fits_is_rebuilt(zoo: Zoo) -> None:
    grown = tuple(Grown(1 + place, place, 5, "prompt", False) for place in range(256))
    assert Unthreaded(zoo.load("gpt2")).one(protocol.Restore(grown, 256), protocol.Restored).tokens == 256


@pytest.mark.parametrize("command", [protocol.Run(), protocol.RunRounds(SpeculationSettings())])
def test_behind_a_prompt_that_fills_the_window_nothing_is_generated(zoo: Zoo, command: Command) -> None:
    engine = Unthreaded(zoo.load("gpt2"))
    for _ in engine.session.prefill("", [5] * 256):
        pass
    node = engine.session.node
    finished = engine.one(command, protocol.Finished)
    assert finished == protocol.Finished(node, "length", "context window of 256 tokens")
    assert engine.session.node == node


def test_settings_may_come_before_the_model() -> None:
    engine = Unthreaded()
    assert engine.do(protocol.Configure(Settings(temp=0.5))) == [protocol.Ended("Configure")]
    engine.do(protocol.Load(LoadSettings()))
    assert engine.session.settings.temp == 0.5


def test_a_model_for_ranks_is_loaded_by_ranks_alone() -> None:
    engine = Unthreaded()
    failure, _ = engine.do(protocol.Load(LoadSettings(ranks=2)))
    assert isinstance(failure, protocol.Failure)
    assert failure.expected
    assert failure.message == "This process is not one of several ranks."
    assert engine.context.loaded is None
    failure, _ = engine.do(protocol.Load(LoadSettings(ranks=2, shard="rows")))
    assert isinstance(failure, protocol.Failure)
    assert "must be one of auto, tensor, pipeline" in failure.message


def test_what_several_processes_compute_is_asked_of_what_can_be_alone(zoo: Zoo) -> None:
    engine = Unthreaded(replace(zoo.load("llama"), divided=True))
    told = engine.one(protocol.ReadMachine(), protocol.Failure)
    assert (told.message, told.hint.split(",")[0]) == (
        "This needs a model that one process computes; here several do.", "Load the model in one process",
    )  # fmt: skip
    assert engine.one(protocol.TakeStep(), protocol.Failure).message == "There is no prompt to continue from."


def test_a_module_whose_import_failed_is_imported_by_the_next_command_that_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import engine.worker

    def broken(name: str) -> type[object]:
        raise ImportError(f"no {name}")

    opened = Unthreaded(LoadSettings(), prompt="Once", settings=Settings(max_tokens=4, min_tokens=4))
    with monkeypatch.context() as patch:
        patch.setattr(engine.worker, "import_module", broken)
        failure = opened.do(protocol.SearchBeams(BeamSettings(2, max_tokens=3)))[0]
        assert isinstance(failure, protocol.Failure)
        assert "no engine.decoding.beam" in failure.message
    assert isinstance(opened.do(protocol.TakeStep())[0], protocol.Step)
    assert [type(each).__name__ for each in opened.do(protocol.SearchBeams(BeamSettings(2, max_tokens=3)))][
        :2
    ] == [
        "BeamOpened",
        "BeamStep",
    ]


def test_a_model_whose_code_wants_to_end_the_process_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Unthreaded(LoadSettings(), prompt="Once upon a time")
    with monkeypatch.context() as patched:
        patched.setattr(type(engine.session), "step", lambda self: exit(3))
        failure, _ = engine.do(protocol.TakeStep())
    assert "SystemExit" in failure.message
    assert isinstance(engine.do(protocol.TakeStep())[0], protocol.Step)


def test_a_cancelled_aside_is_not_answered_and_the_run_goes_on() -> None:
    engine = Unthreaded()
    engine.do(protocol.Load(LoadSettings()))
    engine.do(protocol.Configure(Settings(max_tokens=5, min_tokens=5)))
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    cancelled, answered = Task(protocol.Explain(4), 91), Task(protocol.Explain(4), 92)
    cancelled.cancel.set()
    engine.asides = [cancelled, answered]
    found = engine.do(protocol.Run())
    kinds = [type(record).__name__ for record in found]
    assert kinds == ["Step", "Ended", "Explained", "Ended", *["Step"] * 4, "Finished", "Ended"]
    ends = [record for record in found if isinstance(record, protocol.Ended)]
    assert [(end.command, end.cancelled) for end in ends] == [
        ("Explain", True), ("Explain", False), ("Run", False),
    ]  # fmt: skip
    run = engine.sent
    assert engine.command_ids[-len(found) :] == [run, 91, 92, 92, *[run] * 6]


def test_what_is_done_in_idle_time_is_done_for_no_command() -> None:
    engine = Unthreaded(LoadSettings())
    engine.waits = True  # so the readings are left for idle time
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    before = len(engine.records)
    while engine.worker.use_idle_time():
        pass
    idle = engine.records[before:]
    assert any(isinstance(record, protocol.PromptReadings) for record in idle)
    assert {*engine.command_ids[before:]} == {0}


def test_a_model_is_freed_before_the_next_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.session.handlers.load_model", load)  # not the one that the tests keep
    engine = Unthreaded(LoadSettings(), prompt="Once upon a time")
    engine.do(protocol.Run(until=Breakpoints(tokens=2)))
    engine.do(protocol.FindTokens(4, "dog"))
    engine.do(protocol.SearchBeams(BeamSettings(2, max_tokens=6), steps=1))
    context = engine.context
    old = [weakref.ref(context.session), weakref.ref(context.loaded.model)]
    alive: list[bool] = []
    emit = context.emit

    def look(record: Record) -> None:
        emit(record)
        if isinstance(record, protocol.Loading):
            alive.append(any(ref() is not None for ref in old))

    context.emit = look
    gc.disable()  # nobody else may do it
    try:
        engine.do(protocol.Load(LoadSettings()))
    finally:
        gc.enable()
    assert set(alive) == {False}
    assert engine.do(protocol.GoOnBeams())[0] == protocol.Failure(
        "GoOnBeams", "There is no beam search to continue.", "Start one.", error="StepError"
    )


def test_a_load_that_fails_at_its_end_leaves_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StepError("No session.")

    engine = Unthreaded()
    monkeypatch.setattr("engine.session.handlers.Session", refuse)
    assert engine.do(protocol.Load(LoadSettings()))[-2:] == [
        protocol.Failure("Load", "No session.", "", error="StepError"),
        protocol.Ended("Load"),
    ]
    assert (engine.context.loaded, engine.context.opened) == (None, None)
