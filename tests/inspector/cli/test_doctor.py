"""`inspector doctor`: what it compares, what it says where something is wrong, and what its report may not name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine import protocol
from engine.decoding import repeat as repeating
from engine.measuring import roofline as machine
from engine.protocol import ReplyRepeated, Verified
from engine.session.session import Session
from engine.settings import LoadSettings
from engine.thread import EngineThread
from inspector.cli.doctor import (
    PROMPT,
    CheckResult,
    FoundDifference,
    ModelChecks,
    ask,
    made,
    started,
    without_names,
)
from inspector.cli.driver import Failed
from inspector.cli.main import main
from tests.emulations import Other, in_another_order, multiplying, tf32

CHECKS = ["load", "steps", "KV cache", "forward of mlx_lm", "steps of mlx_lm"]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the second process, which the slow test has."""
    found = CheckResult("two ranks", "ok", FoundDifference(), 0.0)
    monkeypatch.setattr(ModelChecks, "over_ranks", lambda checks, ranks: found)


def test_all_holds_on_the_bundled_model(alone: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--dtype", "float32", "--json"]) == 0
    printed = capsys.readouterr().out
    report = json.loads(printed)
    assert report["holds"]
    assert [(each["check"], each["status"]) for each in report["checks"]] == [
        *((name, "ok") for name in CHECKS),
        ("two ranks", "ok"),
    ]
    compared = [each["found"] for each in report["checks"][2:5]]
    assert all(each["difference"] <= each["allowed"] < 0.01 for each in compared)
    assert report["machine"]["late_token"]
    assert report["machine"]["product_type"] == "float32"
    assert any(each.startswith("textual ") for each in report["terminal"])
    for said in (PROMPT.split()[-1], "ball", str(Path.home())):
        assert said not in printed


@pytest.mark.parametrize(
    ("change", "status", "said", "difference"),
    [
        (lambda place, step: step, "ok", "8 tokens as in one process", 0.0),
        (lambda place, step: replace(step, id=step.id + (place == 2)), "ok", "2 tokens as in one process", 0.0),
        (lambda place, step: replace(step, id=step.id + 1), "differs", "0 tokens as in one process", math.inf),
        (lambda place, step: replace(step, logprob=step.logprob - 0.5 * (place == 3)), "differs",
         "8 tokens as in one process", 0.5),
    ],
    ids=["equal", "another token", "no token", "another logprob"],
)  # fmt: skip
def test_two_ranks_are_compared_with_one_process(
    checked: ModelChecks,
    change: Callable[[int, protocol.Step], protocol.Step],
    status: str,
    said: str,
    difference: float,
) -> None:
    """The second engine computes in one process, too, and its steps are changed on their way."""
    steps = count()

    class Ranks(EngineThread):
        def __init__(self, emit: Callable[[protocol.Received], None]) -> None:
            def changed(received: protocol.Received) -> None:
                step = received.record
                made = change(next(steps), step) if isinstance(step, protocol.Step) else step
                emit(protocol.Received(made, received.id))

            super().__init__(changed)

        def send(self, sent: protocol.Sent, session: int = 0) -> None:
            if isinstance(sent.command, protocol.Load):
                assert sent.command.settings.ranks == 2
                sent = replace(sent, command=protocol.Load(replace(sent.command.settings, ranks=1)))
            super().send(sent, session)

    with started(Ranks) as ranks:
        result = checked.over_ranks(ranks)
    assert (result.check, result.status, result.found.said) == ("two ranks", status, said)
    assert result.found.difference == pytest.approx(difference, abs=1e-5)


@pytest.fixture(scope="module")
def checked() -> Iterator[ModelChecks]:
    """The checks of the bundled model in one process, which hold."""
    with started(EngineThread) as engine:
        checks = ModelChecks(engine, LoadSettings("pocket", dtype="float32"))
        assert [each.status for each in checks.run()] == ["ok"] * len(CHECKS)
        yield checks


def test_what_differs_is_told_by_how_much_and_ends_with_3(
    alone: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verified = Session.verify

    def off(session: Session, *args: object) -> Verified:
        found = verified(session, *args)
        return Verified(found.node, found.tokens, 1.5, True, found.ms, found.rounding)

    monkeypatch.setattr(Session, "verify", off)
    assert main(["doctor", "--dtype", "float32"]) == 3
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("  KV cache")]
    assert line.split()[2:5] == ["differs", "1.5", "of"]
    assert lines[-1].startswith("Wrong: KV cache. Please report it")
    assert any(line.startswith("terminal") for line in lines)


def test_another_logprob_of_mlx_lm_differs(
    alone: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repeat = repeating.repeat_reply

    def off(*args: object) -> list[ReplyRepeated]:
        *_, last = repeat(*args)  # type: ignore[arg-type]
        return [replace(last, logprobs=(*last.logprobs[:-1], last.logprobs[-1] - 0.5))]

    monkeypatch.setattr(repeating, "repeat_reply", off)
    assert main(["doctor", "--dtype", "float32", "--json"]) == 3
    report = json.loads(capsys.readouterr().out)
    wrong = {
        each["check"]: each["found"]["difference"] for each in report["checks"] if each["status"] != "ok"
    }
    assert wrong == {"steps of mlx_lm": pytest.approx(0.5, abs=1e-3)}


@pytest.mark.parametrize(("expected", "status"), [(True, "refused"), (False, "failed")])
def test_what_the_engine_refuses_is_no_fault_and_what_breaks_is_one(expected: bool, status: str) -> None:
    def check() -> FoundDifference:
        raise Failed(protocol.Failure("Race", "No room in /home/me/model for “Once upon”.", "", expected))

    result = made("a", check)
    assert (result.status, result.found) == (status, FoundDifference("No room in … for …."))
    assert result.holds == expected


def test_a_wrong_model_is_one_line(complaint: Callable[..., str], tmp_path: Path) -> None:
    assert str(tmp_path / "none") in complaint("doctor", "--model", str(tmp_path / "none"))


def test_apostrophes_are_no_quotes() -> None:
    assert (
        without_names("MLX's wheel has no FMA; the model's does")
        == "MLX's wheel has no FMA; the model's does"
    )
    assert without_names("'secret' is in C:\\me") == "… is in …"


def test_a_token_that_is_written_late_is_read() -> None:
    assert machine._reads_a_late_token()


@pytest.mark.slow
def test_ranks_hold_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(each["check"], each["status"]) for each in report["checks"]][-1] == ("two ranks", "ok")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "dtype", "as_exact_as"),
    [(tf32, "float32", "float16"), (in_another_order, "bfloat16", "float32")],
    ids=["TF32", "sums in another order"],
)
def test_nothing_is_refused_that_holds_on_a_machine_that_rounds_otherwise(
    other: Other, dtype: str, as_exact_as: str
) -> None:
    with multiplying(other), started(EngineThread) as engine:
        results = list(ModelChecks(engine, LoadSettings("pocket", dtype=dtype)).run())
        read = ask(engine, protocol.ReadMachine(), protocol.MachineRead)
    assert [(each.check, each.status) for each in results] == [(name, "ok") for name in CHECKS]
    assert max(each.found.difference or 0.0 for each in results) > 1e-3
    assert read.product_type == as_exact_as
