"""What commands answer over ranks, what ranks cost at rest, and what is measured of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import mlx.core as mx
import pytest

from engine import protocol
from engine.child import RanksInbox
from engine.errors import LoadError, RankError
from engine.protocol import COMMANDS, Command, Record
from engine.ranks import group
from engine.ranks.kv import RankedKV
from engine.settings import BeamSettings, LoadSettings, Settings
from engine.task import Task
from tests.engine.ranks.programs import left, marked
from tests.engine.ranks.walks import model_at
from tests.engine.sessions import Breaks
from tests.engine.test_child import Child
from tests.engine.test_commands import SAMPLES
from tests.engine.unthreaded import Unthreaded
from tests.zoo import Zoo

REFUSED = {
    "ReadAttention", "ReadTriangle", "ScoreHeads", "ReadLens", "ReadModules", "ReadExperts", "TryPosition", "Attribute",
    "ReadGradients",
    "ReadScore",
    "Intervene", "SweepHeads", "PatchActivations", "PatchPairs", "HoldInterventions", "StartBatch", "AdvanceBatch",
    "AddLanes", "RemoveLane", "CompareBatch", "DrawMany", "RepeatReply", "LoadDraft",
    "TakeRound", "RunRounds",
    "VerifySpeculation", "OpenLockstep", "CloseLockstep", "DiffText", "ReadLockstep", "FollowSecond",
    "ExplainSecond", "PartWays", "Profile",
    "MeasureRoofline", "CompareKV", "ReadMachine", "CaptureMetal", "MakeDirection", "SweepStrengths",
}  # fmt: skip
"""They look into the arrays of one process, or make caches of their own of it."""
WALKED = {
    "Load", "Configure", "Prefill", "AddTurn", "GoOnPrefill", "Restore", "TakeStep", "Choose", "Take", "Insert",
    "MoveTo", "Reroll", "Recall", "Verify", "Run", "LookAhead", "SearchBeams", "GoOnBeams", "Race", "MeasureRanks",
}  # fmt: skip
"""They go through `Runner` and `KV` alone: the walks and the program of these tests run them or the same methods."""
NO_FORWARD = {
    "Cancel", "CheckToolCall", "Tokenize", "PreviewPrompt", "CutText", "FindTokens", "ReadGrammar", "ReadLogits",
    "Explain", "WhatIf", "TakeApart", "BeginTraining", "ResumeTraining", "Train", "SaveCheckpoint",
}  # fmt: skip
"""They need no model, have one of their own, or answer from kept logits."""


def test_every_command_is_refused_or_works_over_ranks() -> None:
    assert {kind for kind, cls in COMMANDS.items() if not cls.over_ranks} == REFUSED
    assert sorted(COMMANDS) == sorted([*REFUSED, *WALKED, *NO_FORWARD])
    assert not protocol.Inside.over_ranks


LIVED: tuple[Command, ...] = (
    protocol.Configure(Settings(temp=0.8, seed=3, candidates=4, max_tokens=24, min_tokens=24)),
    protocol.Prefill("Once upon a time, there was", chat=False, echo=True),
    *[protocol.TakeStep()] * 4,
    protocol.MoveTo(8),
    protocol.TakeStep(),
    protocol.Choose(8, 300),
    protocol.LookAhead(8, (300, 301), 4),
    protocol.SearchBeams(BeamSettings(2, max_tokens=4)),
    protocol.Explain(8),
    protocol.Run(),
    protocol.Verify(),
    protocol.Configure(Settings(temp=1.2, seed=3, candidates=4, max_tokens=24, min_tokens=24), 8),
    protocol.TakeStep(),
    protocol.Reroll(None, 7),
    protocol.TakeStep(),
    protocol.Verify(),
)
"""A session's life."""


class Ranks(Child):
    """An engine over ranks, and what its commands are answered."""

    def failure(self, command: Command) -> str:
        """What a command fails with; empty if it doesn't."""
        found = [each for each in self.do(command) if isinstance(each, protocol.Failure)]
        return f"{found[0].message} {found[0].hint}{found[0].trace}" if found else ""

    def load(self, ranks: int, model: str = "pocket") -> protocol.RanksLoaded:
        """What each rank has once a model is loaded."""
        found = self.do(protocol.Load(LoadSettings(model, ranks=ranks)))
        return next(each for each in found if isinstance(each, protocol.RanksLoaded))


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_answer_as_one_process_does(ranks: int, tmp_path: Path) -> None:
    model = "pocket" if ranks == 2 else str(model_at(tmp_path, "llama", ranks))
    one, several = Ranks(), Ranks()
    assert several.load(ranks, model).sharding == "tensor"
    one.do(protocol.Load(LoadSettings(model)))
    for command in LIVED:
        here, there = one.do(command), several.do(command)
        assert [alike(record) for record in there] == [alike(record) for record in here]
    assert several.process.close(10)
    assert one.process.close(10)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is the only one of its ranks."""
    one = mx.distributed.init
    monkeypatch.setenv("MLX_RANK", "0")
    monkeypatch.setattr(mx.distributed, "init", lambda **_: one())
    group.joined.cache_clear()
    yield
    group.joined.cache_clear()


@pytest.mark.parametrize(
    ("model", "shard", "more"),
    [
        ("pocket", "tensor", {}),
        ("qwen2", "pipeline", {}),
        ("pocket", "tensor", {"kv_bits": 8, "quantized_kv_start": 6}),
    ],
)
def test_one_rank_answers_as_a_process_without_ranks(
    zoo: Zoo, alone: None, model: str, shard: str, more: dict[str, int]
) -> None:
    path = model if model == "pocket" else str(zoo.path(model))
    one, ranks = Unthreaded(LoadSettings(path, **more)), Unthreaded()
    loaded = ranks.one(protocol.Load(LoadSettings(path, ranks=2, shard=shard, **more)), protocol.RanksLoaded)
    assert (loaded.sharding, len(loaded.ranks)) == (shard, 1)
    assert loaded.ranks[0].layers == one.context.loaded.facts.layers
    for command in LIVED:
        here, there = one.do(command), ranks.do(command)
        assert [alike(record) for record in there] == [alike(record) for record in here]
        for mine, theirs in zip(here, there, strict=True):
            if isinstance(mine, protocol.Step) and isinstance(theirs, protocol.Step):
                assert theirs.logprob == pytest.approx(mine.logprob, abs=1e-4)
                assert theirs.kv.used_bytes == mine.kv.used_bytes
                assert theirs.kv.groups == mine.kv.groups
    begun = time.perf_counter()
    measured = ranks.one(protocol.MeasureRanks(2), protocol.RanksMeasured)
    held = one.session.kv.reading()
    assert (measured.tokens, measured.rounds, measured.slowest) == (one.session.kv.offset, 2, 0)
    assert measured.ranks[0].kv_used_bytes == held.used_bytes
    assert 0 < measured.step_ms <= (time.perf_counter() - begun) * 1000
    ranks.cancel_when = lambda record: isinstance(record, protocol.Measuring)
    assert ranks.do(protocol.MeasureRanks(2))[-1] == protocol.Ended("MeasureRanks", cancelled=True)


def test_what_rank_0_says_is_what_it_said(alone: None) -> None:
    one = group.joined()
    assert one.first_flags(True, False, True) == [True, False, True]
    assert one.first_array(mx.array([1.5, -2.0])).tolist() == [1.5, -2.0]
    assert one.first({"a": "x" * 100_000}) == {"a": "x" * 100_000}


def alike(record: Record) -> object:
    """What several processes answer alike: the record's kind, and ids."""
    if isinstance(record, protocol.PromptReadings):
        return None
    return type(record), [
        getattr(record, name, None) for name in ("node", "id", "kept", "recomputed", "message")
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processor time is read in /proc")
def test_commands_over_two_ranks(tmp_path: Path) -> None:
    with marked() as mark:
        engine = Ranks()
        opened = engine.load(2)
    assert [rank.layers for rank in opened.ranks] == [8, 8]
    engine.do(protocol.Prefill("Once upon a time, there was", chat=False))
    steps = [
        each for _ in range(12) for each in engine.do(protocol.TakeStep()) if isinstance(each, protocol.Step)
    ]
    (measured,) = (
        each for each in engine.do(protocol.MeasureRanks(3)) if isinstance(each, protocol.RanksMeasured)
    )
    assert measured.tokens == 19
    assert sum(rank.kv_used_bytes for rank in measured.ranks) == steps[-1].kv.used_bytes
    assert min(rank.memory_bytes for rank in measured.ranks) > 2**20
    assert min(min(each.compute_ms, each.communication_ms) for each in measured.times) > 0
    times = [each.compute_ms for each in measured.times]
    assert times[measured.slowest] == max(times)
    for command in SAMPLES:
        if not command.over_ranks:
            assert engine.failure(command).startswith(
                "This needs a model that one process computes; here several do."
            )
    assert engine.failure(protocol.TakeStep()) == ""
    assert engine.failure(protocol.Race(2, 6)) == ""
    run = engine.send(protocol.Run())
    engine.until(protocol.Step, 3)
    engine.cancel(run)
    assert engine.until_ended(run)[-1] == protocol.Ended("Run", cancelled=True)
    assert engine.failure(protocol.TakeStep()) == ""
    waiting = {rank.pid for rank in opened.ranks} | {engine.pid}
    before = sum(map(processor_seconds, waiting))
    time.sleep(4)
    assert (sum(map(processor_seconds, waiting)) - before) / 4 < 0.4
    assert engine.failure(protocol.Load(LoadSettings(ranks=3))).endswith("Use fewer ranks.")
    assert len(engine.load(4, str(model_at(tmp_path, "llama", 4))).ranks) == 4  # other processes
    assert engine.failure(protocol.Load(LoadSettings())) == ""
    assert engine.failure(protocol.Prefill("Once", chat=False)) == ""
    assert engine.failure(protocol.ReadAttention(1)) == ""
    assert engine.failure(protocol.MeasureRanks()).startswith("One process computes this model")
    assert engine.process.close(10)
    assert left(mark) == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_task_that_rank_0_waits_for_in_idle_time_is_that_of_all_and_only_there_it_can_be_cancelled(
    monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    task, inbox = Task(protocol.TakeStep(), 7), RanksInbox()
    sent, used = list[object](), list[str]()

    def first(own: object) -> object:
        sent.append(own)
        return task.command, task.id, False

    class Idle:
        def use_idle_time(self) -> bool:
            used.append("read")
            return len(used) < 3

    def waited(ready: object, seconds: float) -> None:
        used.append("waited")
        inbox.put(task)

    joined = SimpleNamespace(rank=rank, first=first, first_flags=lambda own: [rank == 1 or own])
    monkeypatch.setattr(group, "joined", lambda: joined)
    monkeypatch.setattr(inbox._arrived, "wait_for", waited)
    got = inbox.get([Idle()])  # type: ignore[list-item]
    assert isinstance(got, Task)
    assert used == (["read"] * 3 + ["waited"] if rank == 0 else [])
    assert sent == [(task.command, 7, False) if rank == 0 else None]
    assert (got.command, got.id) == (task.command, 7)
    assert isinstance(got.cancel, group.SharedCancel)
    assert (got.cancel.own is task.cancel) == (rank == 0)


@pytest.mark.parametrize("waits", [True, False])
def test_an_aside_of_rank_0_is_taken_by_all_between_two_steps(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    aside, inbox = Task(protocol.Explain(1), 8, session=0), RanksInbox()
    joined = SimpleNamespace(
        first=lambda own: (aside.command, aside.id, False),
        first_flags=lambda waits, cancelled: [waits, cancelled],
    )
    monkeypatch.setattr(group, "joined", lambda: joined)
    inbox._running = running = group.SharedCancel(Event(), None)
    running.own.set()
    if waits:
        inbox.put(aside)
    taken = inbox.take_interleavable(0)
    assert (taken and (taken.command, taken.id)) == ((aside.command, 8) if waits else None)
    assert running.known  # the run's own cancel came with the same exchange


@pytest.mark.parametrize("size", [0, 1, 4060, 4070, 4080, 4090, 20_000])
def test_objects_of_all_sizes_are_gathered_from_every_rank(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    mine, sizes = group.Group.__new__(group.Group), list[int]()

    def everyones(data: bytes, bytes_each: int, work: int = 0) -> list[bytes]:
        sizes.append(bytes_each)
        assert len(data) <= bytes_each
        return [data.ljust(bytes_each, b"\0")] * 3

    monkeypatch.setattr(mine, "_gather_bytes", everyones)
    assert mine.gather(b"x" * size) == [b"x" * size] * 3
    assert len(sizes) == (1 if size < 4080 else 2)


@pytest.mark.parametrize(
    ("rank", "same_tokens", "same_row", "largest", "said"),
    [
        (1, True, True, 9.0, ""),
        (1, False, True, 1.0, "Rank 1 was lost: it ran other tokens."),
        (1, True, False, 1.0, "Rank 1 was lost: it computed other logits (the largest is 1, not 1)."),
        (2, True, False, 1.04, ""),  # another machine may round in another way
        (
            2,
            True,
            False,
            1.06,
            "Rank 2 on mac-2 was lost: it computed other logits (the largest is 1.06, not 1).",
        ),
        (2, False, False, 1.0, "Rank 2 on mac-2 was lost: it ran other tokens."),
    ],
)
def test_a_rank_on_one_machine_has_the_same_logits_and_one_elsewhere_nearly(
    zoo: Zoo, rank: int, same_tokens: bool, same_row: bool, largest: float, said: str
) -> None:
    joined = SimpleNamespace(rank=0, names=["rank 0", "rank 1", "rank 2 on mac-2"])
    loaded = zoo.load("llama")
    kv = RankedKV(joined, "tensor", range(2), 4096, loaded.model, loaded.settings)  # type: ignore[arg-type]
    try:
        kv._compare(rank, same_tokens, same_row, largest, 1.0)
        found = ""
    except RankError as error:
        found, lost = error.message, error.rank
        assert lost == rank
    assert found == said


@pytest.mark.parametrize("refused", [None, 0, 1])
def test_what_one_rank_refuses_all_refuse(monkeypatch: pytest.MonkeyPatch, refused: int | None) -> None:
    mine, error = group.Group.__new__(group.Group), LoadError("It is damaged.", "Copy it.")
    mine.rank, mine.names = 0, ["rank 0", "rank 1"]
    theirs = (False, error.message, error.hint) if refused == 1 else None
    monkeypatch.setattr(mine, "gather", lambda own, work: [own, theirs])

    def own() -> str:
        if refused == 0:
            raise error
        return "made"

    if refused is None:
        assert mine.agreed(own) == "made"
        return
    with pytest.raises(LoadError) as raised:
        mine.agreed(own)
    words = "It is damaged. Copy it."
    assert str(raised.value) == (words if refused == 0 else f"The model can't be loaded by rank 1: {words}")


def test_what_fails_on_one_rank_is_told_to_the_others(zoo: Zoo) -> None:
    told: list[Exception] = []
    joined = SimpleNamespace(rank=0, patience=nullcontext, shared_failure=told.append)
    loaded = zoo.load("llama")
    broken = Breaks(loaded.model, 0, "no more memory here")
    kv = RankedKV(joined, "tensor", range(2), 4096, broken, loaded.settings)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no more memory here") as failed:
        kv.run(broken, mx.array([[5]]))
    assert told == [failed.value]


def test_the_last_words_of_a_rank_are_printed_with_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(group.os, "_exit", ended)
    mine = group.Group.__new__(group.Group)
    mine.rank = 3
    with pytest.raises(SystemExit, match="1"):
        mine.end("no more memory here")
    assert capsys.readouterr().err == "rank 3: no more memory here\n"


def test_an_answer_that_came_with_another_exchange_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, ...]] = []

    def first_flags(*own: bool) -> list[bool]:
        asked.append(own)
        return list(own)

    monkeypatch.setattr(group, "joined", lambda: SimpleNamespace(first_flags=first_flags))
    cancel = group.SharedCancel(Event(), False)
    cancel.own.set()
    assert (cancel.is_set(), asked) == (False, [])
    assert (cancel.is_set(), asked) == (True, [(True,)])
    cancel.known = False
    cancel.wait(0)  # meanwhile it may have been cancelled
    assert (cancel.is_set(), asked) == (True, [(True,)] * 2)
