"""Every way to lose a rank ends all within seconds, with its name and its last words, and leaves no process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import processes, protocol
from engine.ranks import hosts
from engine.settings import LoadSettings, Settings
from tests.engine.ranks.programs import left, marked
from tests.engine.ranks.walks import model_at
from tests.engine.test_child import Child, settled
from tests.system import alive

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc"),
]
SECONDS = 10.0
PROMPT = protocol.Prefill("Once upon a time, there was a little girl " * 20, chat=False, echo=False)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    """An engine whose ranks may have a fault; nothing of it is left at the end."""

    def faulty(call: str) -> list[str]:
        return processes.python_command(f"from tests.engine.ranks import faulty; faulty.install(); {call}")

    monkeypatch.setattr(hosts, "python_command", faulty)
    with marked() as mark:
        engine = Child()
        yield engine
    assert engine.process.close(10)
    assert left(mark) == []


def opened(engine: Child, ranks: int = 2, model: str = "pocket") -> list[int]:
    """Load a model, whose prefill takes many chunks; returns the processes of the ranks."""
    loaded = engine.do(protocol.Load(LoadSettings(model, ranks=ranks, prefill_step_size=2)))
    (found,) = (each for each in loaded if isinstance(each, protocol.RanksLoaded))
    engine.do(protocol.Configure(Settings(max_tokens=1000, min_tokens=1000)))
    return [rank.pid for rank in found.ranks]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("during", ["prefill", "step", "run", "nothing"])
def test_a_rank_that_is_killed_ends_all_with_its_name(engine: Child, rank: int, during: str) -> None:
    pids = opened(engine)
    if during == "prefill":
        command = engine.send(PROMPT)
        engine.until(protocol.PrefillChunk, 2)
    else:
        engine.do(protocol.Prefill("Once upon a time", chat=False))
        if during == "run":
            command = engine.send(protocol.Run())
            engine.until(protocol.Step, 3)
    killed = time.monotonic()
    os.kill(pids[rank], signal.SIGKILL)
    if during == "step":
        command = engine.send(protocol.TakeStep())
    said = "The engine's process has ended" if rank == 0 else "Rank 1 was lost"
    assert engine.losses.get(timeout=30) == f"{said}: it was ended by SIGKILL."
    assert time.monotonic() - killed < SECONDS
    if during != "nothing":
        assert engine.until_ended(command)[-1].cancelled  # type: ignore[union-attr]
    settled(lambda: not any(map(alive, pids)))
    assert opened(engine)
    engine.do(PROMPT)
    assert isinstance(engine.do(protocol.TakeStep())[-2], protocol.Step)


def test_one_of_four_ranks_is_killed(engine: Child, tmp_path: Path) -> None:
    pids = opened(engine, 4, str(model_at(tmp_path, "llama", 4)))
    engine.do(PROMPT)
    run = engine.send(protocol.Run())
    engine.until(protocol.Step, 3)
    os.kill(pids[2], signal.SIGKILL)
    assert engine.losses.get(timeout=SECONDS) == "Rank 2 was lost: it was ended by SIGKILL."
    engine.until_ended(run)
    settled(lambda: not any(map(alive, pids)))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kill:load:1", "Rank 1 was lost: it was ended by SIGKILL. Its last words: some words of this rank."),
        (
            "kill:token:6",
            "Rank 1 was lost: it was ended by SIGKILL. Its last words: some words of this rank.",
        ),
        ("import", "Rank 1 was lost: it ended with status 1. Its last words: ModuleNotFoundError: "),
    ],
)
def test_a_rank_that_ends_while_the_model_is_loaded(
    engine: Child, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    monkeypatch.setenv("TESTED_FAULT", fault)
    monkeypatch.setenv("TESTED_RANK", "1")
    load = engine.send(protocol.Load(LoadSettings(ranks=2)))
    if fault.startswith("kill:token"):
        engine.until_ended(load)
        engine.do(PROMPT)
        for _ in range(6):
            engine.send(protocol.TakeStep())
    assert engine.losses.get(timeout=30).startswith(said)


def test_a_rank_that_fails_in_a_step(engine: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTED_FAULT", "raise:token:6")
    monkeypatch.setenv("TESTED_RANK", "1")
    opened(engine)
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    for _ in range(6):
        engine.send(protocol.TakeStep())
    said = engine.losses.get(timeout=30)
    assert (
        said == "Rank 1 was lost: it ended with status 1. Its last words: RuntimeError: no more memory here."
    )


def test_a_rank_that_computes_other_logits(engine: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTED_FAULT", "disagree:token:6")
    monkeypatch.setenv("TESTED_RANK", "1")
    opened(engine)
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    for _ in range(6):
        engine.send(protocol.TakeStep())
    assert engine.losses.get(timeout=30).startswith(
        "Rank 1 was lost: it computed other logits (the largest is "
    )


def test_a_rank_whose_machine_rounds_in_another_way_goes_on_from_the_rows_of_the_first(
    engine: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTED_FAULT", "rounds:token:3")
    monkeypatch.setenv("TESTED_RANK", "1")
    opened(engine)
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    over = [engine.do(protocol.TakeStep())[-2] for _ in range(8)]
    engine.do(protocol.Load(LoadSettings()))
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    alone = [engine.do(protocol.TakeStep())[-2] for _ in range(8)]
    assert [step.id for step in over] == [step.id for step in alone]  # type: ignore[union-attr]


def test_a_rank_that_hangs(engine: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTED_FAULT", "stop:token:6")
    monkeypatch.setenv("TESTED_RANK", "1")
    monkeypatch.setenv("TESTED_PATIENCE", "25")
    opened(engine)
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    for _ in range(6):
        engine.send(protocol.TakeStep())
    assert engine.losses.get(timeout=60) == "Rank 1 was lost: it gave no answer in its time."


def test_a_rank_that_never_comes_up(engine: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTED_FAULT", "silent")
    monkeypatch.setenv("TESTED_RANK", "1")
    monkeypatch.setenv("TESTED_PATIENCE", "25")
    engine.send(protocol.Load(LoadSettings(ranks=2)))
    assert engine.losses.get(timeout=60) == "Rank 1 was lost: it gave no answer in its time."


def test_ranks_end_also_where_mlx_launch_is_gone(engine: Child) -> None:
    pids = opened(engine)
    os.kill(engine.pid, signal.SIGKILL)
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    assert engine.process.close()
    settled(lambda: not any(map(alive, pids)))
