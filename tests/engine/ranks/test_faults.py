"""Every way to lose a rank ends in one error that names it, the cause and its last words, and leaves no process."""

from __future__ import annotations

import os
import pty
import socket
import sys
from dataclasses import dataclass

import pytest

from tests.engine.ranks.programs import Program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
WORDS = "Its last words: some words of rank 1"
LOST = "Rank 1 was lost: it "


@dataclass(frozen=True)
class Case:
    """A fault, and what is said of it."""

    fault: str
    command: str
    """Which command fails; empty for none."""
    said: tuple[str, ...]
    seconds: float = 30.0
    """From the command to its failure, at most: of a machine that is busy."""
    patience: int = 60
    rank: int | None = 1


CASES = {
    "killed while it builds the model": Case("kill:load:1", "Load", (LOST, "ended by SIGKILL", WORDS)),
    "killed while it reads weights": Case("kill:divide:1", "Load", (LOST, "ended by SIGKILL", WORDS)),
    "killed in a chunk of prefill": Case("kill:chunk:1", "Prefill", (LOST, "ended by SIGKILL", WORDS)),
    "killed in a step": Case("kill:token:4", "TakeStep", (LOST, "ended by SIGKILL", WORDS)),
    "killed in a move": Case("kill:trim:1", "MoveTo", (LOST, "ended by SIGKILL", WORDS)),
    "killed while it recomputes": Case("kill:token:9", "MoveTo", (LOST, "ended by SIGKILL", WORDS)),
    "stopped in a step": Case(
        "stop:token:4", "TakeStep", (LOST, "gave no answer in its time, and does not run"), patience=3
    ),
    "hangs in a step": Case(
        "hang:token:4", "TakeStep", (LOST, "did not finish an operation in its time"), patience=3
    ),
    "fails in a step": Case(
        "raise:token:4", "TakeStep", (LOST, "failed in operation", "no more memory here")
    ),
    "answers a wrong number": Case("number:x:12", "", (LOST, "answered operation 11 in the place of 12")),
    "has other logits": Case("disagree:token:4", "TakeStep", (LOST, "computed other logits", WORDS)),
    "holds other tokens": Case("short:token:4", "TakeStep", (LOST, "holds", WORDS)),
    "never comes up": Case("silent", "Load", (LOST, "gave no answer in its time"), seconds=60, patience=3),
    "can't import mlx_lm": Case("import", "Load", (LOST, "ended with status 1", "mlx_lm")),
}


def first_failure(lines: list[dict[str, object]]) -> dict[str, object]:
    (failed,) = [line for line in lines if line["failure"]]
    return failed


def check(case: Case) -> None:
    program = Program("faults", 2, TESTED_FAULT=case.fault, TESTED_PATIENCE=str(case.patience))
    failed = first_failure(program.lines())
    message, hint, rank, trace = failed["failure"]  # type: ignore[misc]
    assert case.command in ("", failed["command"]), failed
    for part in case.said:
        assert part in message, message
    assert "\n" not in message
    assert (rank, trace) == (case.rank, "")
    assert hint.startswith("Start the program again")
    assert float(str(failed["seconds"])) < case.seconds
    assert program.left() == []


@pytest.mark.slow
def test_a_rank_that_is_killed_in_a_step_is_told_and_all_end() -> None:
    check(CASES["killed in a step"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name != "killed in a step"])
def test_a_lost_rank(name: str) -> None:
    check(CASES[name])


@pytest.mark.slow
def test_killed_while_ranks_are_joined() -> None:
    """MLX holds the interpreter meanwhile: the wait is ended from outside, and MLX tries to connect for 31 s."""
    check(Case("kill:join:1", "Load", (LOST, "ended by SIGKILL"), seconds=120))


@pytest.mark.slow
def test_after_a_loss_the_process_has_no_ranks_but_a_model_of_its_own() -> None:
    lines = Program("faults", 2, TESTED_FAULT="kill:token:9", TESTED_AGAIN="1").lines()
    failures = [(line["command"], line["failure"][0] if line["failure"] else "") for line in lines]
    assert [command for command, failure in failures if failure.startswith(LOST)] == ["MoveTo", "TakeStep"]
    assert ("Load", "This process lost a rank and can't have others.") in failures
    assert ("Load", "") in failures[-4:]
    assert ("Verify", "There is no prompt to continue from.") in failures


@pytest.mark.slow
def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = Program("faults", 2, INSPECTOR_RANKS_PORT=str(port - 1))
        failed = first_failure(program.lines())
    assert f"Ranks can't meet at 127.0.0.1, port {port}" in str(failed["failure"])
    assert program.left() == []


@pytest.mark.slow
def test_quit_ends_a_rank_that_does_not_end_itself() -> None:
    program = Program("faults", 2, TESTED_FAULT="deaf")
    closed = program.lines()[-1]
    assert (closed["command"], closed["failure"]) == ("close", None)
    assert program.left() == []


@pytest.mark.slow
def test_ranks_end_when_rank_0_is_killed() -> None:
    program = Program("faults", 2, TESTED_FAULT="wait")
    while program.line()["command"] != "waiting":
        pass
    assert len(program.processes()) == 2
    program.process.kill()
    program.process.wait()
    assert program.left() == []


@pytest.mark.slow
def test_nothing_of_the_ring_reaches_a_terminal() -> None:
    ours, theirs = pty.openpty()
    program = Program("faults", 2, stderr=theirs, TESTED_FAULT="kill:token:4")
    os.close(theirs)
    assert first_failure(program.lines())["command"] == "TakeStep"
    with pytest.raises(OSError, match="Input/output error"):  # nothing was written before the end
        os.read(ours, 1000)
    os.close(ours)
