"""The engine in a child process: the same records as from a thread, its loss in words, and nothing left behind."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from queue import SimpleQueue
from subprocess import TimeoutExpired
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from engine import child, protocol
from engine.child import EngineProcess
from engine.protocol import Command, Received, Record, Sent
from engine.ranks.hosts import RankHosts, hosts_of
from engine.settings import LoadSettings, Settings
from tests.engine.recording.made_records import made
from tests.engine.test_thread import Engine
from tests.engine.unthreaded import kinds
from tests.system import alive, python

CLASSES: dict[str, type] = {**protocol.COMMANDS, **protocol.RECORDS}


class Child(Engine):
    """A child process whose records are gathered command by command."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Received] = SimpleQueue()
        self.losses: SimpleQueue[str] = SimpleQueue()
        self.process = self.backend = EngineProcess(self.queue.put, self.losses.put)
        self.process.start()

    @property
    def pid(self) -> int:
        """The process that runs now."""
        running = self.process._running
        assert running is not None
        return running.process.pid


@pytest.fixture
def engine() -> Iterator[Child]:
    engine = Child()
    yield engine
    assert engine.process.close(10)


def settled(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    wait = threading.Event()
    for _ in range(600):
        if holds():
            return
        wait.wait(0.05)
    raise AssertionError("it never came to hold")


def values(message: Any) -> list[tuple[str, Any]]:
    """All fields by name."""
    return [(field.name, getattr(message, field.name)) for field in fields(message)]


# ---- what goes through the pipe -------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSES)
@given(data=st.data())
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_command_and_record_goes_through_a_pipe(name: str, data: st.DataObject) -> None:
    message = data.draw(made(CLASSES[name]))
    sent = Sent(message, 7) if isinstance(message, Command) else Received(message, 7)
    assert repr(pickle.loads(pickle.dumps(sent))) == repr(sent)  # NaN equals nothing


def lived(engine: Engine) -> list[list[Record]]:
    """The records of each command of one session."""
    sampled = Settings(temp=0.8, top_p=0.95, seed=3, candidates=20, max_tokens=1000, min_tokens=1000)
    found = []
    for command in (
        protocol.TakeStep(),
        protocol.Load(LoadSettings()),
        protocol.Configure(sampled),
        protocol.Prefill("Once upon a time", chat=False, echo=True),
        protocol.TakeStep(),
        protocol.TakeStep(),
        protocol.Choose(4, 4096),
        protocol.Choose(4, 300),
        protocol.Explain(4),
        protocol.Configure(Settings(top_p=1.5)),
    ):
        found.append(engine.do(command))
        ended = found[-1][-1]
        assert isinstance(ended, protocol.Ended)
        assert ended.command == command.kind
        assert {*engine.ids} <= {0, engine.sent}
    run = engine.send(protocol.Run())
    steps = engine.until(protocol.Step, 12)
    waits = engine.send(protocol.TakeStep())
    engine.cancel(waits)
    engine.cancel(run)
    ended = engine.until_ended(run)[-1]
    assert ended == protocol.Ended("Run", cancelled=True)
    assert engine.until_ended(waits) == [protocol.Ended("TakeStep", cancelled=True)]
    return [*found, steps]


def timeless(record: Record) -> Any:
    """A record without what a clock or the process's memory says."""
    hidden = {
        "free_bytes", "ms", "load_ms", "ttft_ms", "prompt_tps", "memory", "total", "done", "restored_ms",
        "recomputed_ms",
    }  # fmt: skip
    return type(record), [(name, value) for name, value in values(record) if name not in hidden]


def test_a_child_process_answers_as_a_thread_does() -> None:
    direct, child = Engine(), Child()
    expected = lived(direct)
    assert direct.thread.close(10)
    found = lived(child)
    assert child.process.close(10)
    told = [[timeless(record) for record in part] for part in expected]
    assert [[timeless(record) for record in part] for part in found] == told
    steps = [record for record in found[-1] if isinstance(record, protocol.Step)]
    others = [record for record in expected[-1] if isinstance(record, protocol.Step)]
    assert [step.id for step in steps] == [step.id for step in others]
    assert [step.logprob for step in steps] == [step.logprob for step in others]
    assert [step.next for step in steps] == [step.next for step in others]
    assert len(steps) == 12


def test_a_prompt_of_megabytes_goes_through_and_is_refused_in_words(engine: Child) -> None:
    engine.do(protocol.Load(LoadSettings()))
    failure, ended = engine.do(protocol.Prefill("dog " * 2_000_000, chat=False))[-2:]
    assert isinstance(failure, protocol.Failure)
    assert failure.expected
    assert isinstance(ended, protocol.Ended)


# ---- a process that ends --------------------------------------------------------------------------


def test_after_a_kill_all_that_was_sent_ends_and_a_load_starts_another_process(engine: Child) -> None:
    engine.do(protocol.Load(LoadSettings()))
    engine.do(protocol.Configure(Settings(max_tokens=1000, min_tokens=1000)))
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    run, first = engine.send(protocol.Run()), engine.pid
    engine.until(protocol.Step, 3)
    os.kill(first, signal.SIGKILL)
    assert engine.until_ended(run)[-1] == protocol.Ended("Run", cancelled=True)
    assert engine.losses.get(timeout=10) == "The engine's process has ended: it was ended by SIGKILL."
    refused, ended = engine.do(protocol.TakeStep())
    assert isinstance(refused, protocol.Failure)
    assert refused.message == "The engine's process has ended: it was ended by SIGKILL."
    assert ended == protocol.Ended("TakeStep", cancelled=True)
    engine.cancel(run)  # nothing is left to cancel, and nothing answers
    assert "ModelFacts" in kinds(engine.do(protocol.Load(LoadSettings())))
    assert engine.pid != first
    assert engine.losses.empty()


@pytest.mark.parametrize("hosts", [None, hosts_of(LoadSettings(ranks=2))])
def test_mlx_launch_has_longer_to_say_how_it_ended(hosts: RankHosts | None) -> None:
    process: Any = Mock(**{"wait.side_effect": TimeoutExpired("x", 1), "poll.return_value": None})
    running = child._Running(hosts, process, BytesIO(b"first\nno room here\n"), SimpleQueue(), {})
    assert child._ending(running) == "The engine's process has ended: no room here."
    process.wait.assert_called_once_with(1.0 if hosts is None else 5.0)


def test_a_rank_that_can_not_import_mlx_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "dup2", Mock())
    monkeypatch.setattr(child, "import_mlx_lm", Mock(side_effect=ImportError("no MLX here")))
    with pytest.raises(ImportError, match="no MLX here"):
        child.run("nowhere", over_ranks=True)


def test_a_process_that_ends_while_it_loads_fails_the_load_with_its_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "import sys; print('first', 'no room here', sep=chr(10), file=sys.stderr); sys.exit(3)"
    monkeypatch.setattr(child, "python_command", lambda call: [sys.executable, "-c", words])
    engine = Child()
    load = engine.send(protocol.Load(LoadSettings()))
    failure, _ = engine.until_ended(load)
    assert isinstance(failure, protocol.Failure)
    assert failure.message == "The engine's process has ended: no room here."
    assert engine.ids == (load, load)
    assert engine.process.close(10)


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "python_command", lambda call: ["/nowhere/python"])
    engine = Child()
    for command in (protocol.Load(LoadSettings()), protocol.TakeStep()):
        failure, ended = engine.do(command)
        assert isinstance(failure, protocol.Failure)
        assert failure.message == "No process can be started for the engine: No such file or directory."
        assert failure.hint == "End other programs."
        assert ended == protocol.Ended(command.kind)
    assert engine.process.close()


def test_a_process_that_hangs_is_ended_within_the_bound(engine: Child) -> None:
    engine.do(protocol.Load(LoadSettings()))
    pid = engine.pid
    os.kill(pid, signal.SIGSTOP)
    engine.send(
        protocol.Prefill("dog " * 200_000, chat=False)
    )  # more than the pipe holds: nobody waits for it
    assert engine.process.close(0.2)
    assert not alive(pid)


def test_the_last_settings_hold_in_the_next_process(engine: Child) -> None:
    engine.do(protocol.Configure(Settings(temp=0.0, max_tokens=3)))
    first = engine.pid
    os.kill(first, signal.SIGKILL)
    engine.losses.get(timeout=10)
    engine.do(protocol.Load(LoadSettings()))
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    assert len([each for each in engine.do(protocol.Run()) if isinstance(each, protocol.Step)]) == 3


def test_closing_before_the_start_is_fine() -> None:
    assert EngineProcess(lambda record: None).close()


def test_the_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    code = f"""
import os
from engine.child import EngineProcess
from engine.protocol import Configure, Sent
from engine.settings import Settings
engine = EngineProcess(lambda record: None)
engine.send(Sent(Configure(Settings()), 1))
open({str(told)!r}, "w").write(str(engine._running.process.pid))
os._exit(0)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    pid = int(told.read_text())
    settled(lambda: not alive(pid))
