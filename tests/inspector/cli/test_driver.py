"""The driver on a scripted backend: the order of the commands, exit statuses, interruptions."""

from __future__ import annotations

import errno
import io
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine import protocol
from engine.protocol import Command
from inspector.cli import driver
from inspector.cli.driver import Completion
from tests.inspector.cli.scripted import Run, script


def test_the_settings_come_before_the_prompt() -> None:
    run = Run(script())
    run.go()
    assert run.kinds == ["Load", "Configure", "Prefill", "Run"]
    assert run.backend.sent[1] == protocol.Configure(run.request.settings)


# ---- failures ---------------------------------------------------------------------------------


def test_an_expected_failure_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    failure = protocol.Failure("Load", "No such directory: x.", "Check the path's spelling.")
    run = Run({protocol.Load: [failure]})
    assert run.go() == 2
    assert capsys.readouterr().err == f"inspector: error: {failure.message} {failure.hint}\n"
    assert run.out.getvalue() == ""
    assert len(run.backend.sent) == 1


def test_an_unexpected_failure_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    failure = protocol.Failure("Run", "boom", "report it", expected=False, trace="Traceback ...")
    run = Run({**script(), protocol.Run: [failure]})
    assert run.go() == 1
    said = capsys.readouterr().err
    assert said.startswith("inspector: error: This is a fault of the program: boom Please report it")
    assert Path(said.split()[-1].rstrip(".")).read_text() == "Traceback ..."
    assert [event["event"] for event in run.events][-1] == "PromptReadings"


class Full(io.StringIO):
    def __init__(self, error: OSError, writes: int) -> None:
        super().__init__()
        self.error, self.writes = error, writes

    def write(self, text: str) -> int:
        self.writes -= 1
        if self.writes < 0:
            raise self.error
        return super().write(text)


def test_a_closed_pipe_ends_it_quietly() -> None:
    run = Run(script())
    run.out = Full(BrokenPipeError(), 2)
    assert run.go() == 0
    assert len(run.events) == 2


def test_a_full_disk_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(script())
    run.out = Full(OSError(errno.ENOSPC, "No space left on device"), 0)
    assert run.go() == 2
    assert "The output can't be written: No space left on device." in capsys.readouterr().err


# ---- Ctrl-C -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [protocol.Load, protocol.Prefill, protocol.Run])
def test_an_interrupt_ends_with_the_summary_and_130(command: type[Command]) -> None:
    run = Run(script())
    run.backend.interrupt = command
    before = signal.getsignal(signal.SIGINT)
    assert run.go() == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert run.backend.sent[-1] == protocol.Cancel(len(run.backend.sent) - 1)
    end = run.events[-1]
    assert (end["event"], end["reason"]) == ("Summary", "cancelled")
    assert end["steps"] == (1 if command is protocol.Run else 0)
    assert (end["ttft_ms"] is None) == (command is not protocol.Run)


def test_a_second_interrupt_breaks_in() -> None:
    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            return super().write(text)

    run = Run(script())
    run.out = Stuck()
    assert run.go() == 130


class Watched(io.StringIO):
    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self.look = look

    def write(self, text: str) -> int:
        self.look()
        return super().write(text)


def test_an_ignored_interrupt_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        seen = []
        run = Run(script())
        run.out = Watched(lambda: seen.append(signal.getsignal(signal.SIGINT)))
        assert run.go() == 0
        assert set(seen) == {signal.SIG_IGN}
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_may_run_it_and_leaves_the_signal_alone() -> None:
    seen = []
    run, before = Run(script()), signal.getsignal(signal.SIGINT)
    run.out = Watched(lambda: seen.append(signal.getsignal(signal.SIGINT)))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run.go).result() == 0
    assert set(seen) == {before}


def test_an_engine_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(driver, "leave_at_once", left.append)
    run = Run(script())
    run.backend.joins = False
    run.go()
    assert left == [0]


# ---- the text of a completion as far as it is certain ----------------------------------------


def test_what_may_become_a_stop_string_is_held_back() -> None:
    completion = Completion(["stop", "ox"])
    assert completion.add("a st") == "a "
    assert completion.add("o") == ""
    assert completion.add("ve. b") == "stove. b"
    assert completion.add("o") == ""
    assert completion.close() == "o"
    assert completion.text == "a stove. bo"


def test_the_earliest_stop_string_cuts() -> None:
    completion = Completion(["bc", "b"])
    assert completion.add("abcd") == "a"
    assert completion.close() == ""
    assert completion.text == "a"


def test_a_self_overlapping_stop_string() -> None:
    completion = Completion(["aab"])
    assert completion.add("aa") + completion.add("a") + completion.add("c") == "aaac"
    assert completion.add("aaa") + completion.add("b!") + completion.close() == "a"
