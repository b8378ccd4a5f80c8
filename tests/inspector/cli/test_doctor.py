"""`inspector doctor`: what it tries, what it says where something is wrong, and what its report may not name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import protocol
from engine.measuring import machine
from engine.protocol import Verified
from engine.session.session import Session
from engine.settings import LoadSettings
from engine.thread import EngineThread
from inspector.cli import doctor
from inspector.cli.doctor import (
    PROMPT,
    AskedEngine,
    CheckResult,
    CommandFailed,
    FoundDifference,
    ModelChecks,
    examined,
    without_names,
)
from inspector.cli.main import main
from tests.emulations import Other, in_another_order, multiplying, tf32

CHECKS = [
    "load", "run", "single steps", "verify", "branch", "attention", "attention of all tokens", "what heads do",
    "why a head looks there", "lens", "contributions", "gradients", "a layer switched off", "heads switched off",
    "patching", "a direction", "another position", "experts and states", "map of the modules", "batch", "race",
    "grammar", "speculation", "rates", "trace",
]  # fmt: skip


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the screen and the second process, which the slow test has."""
    monkeypatch.setattr(doctor, "on_a_screen", lambda load: FoundDifference("not tried"))
    monkeypatch.setattr(
        ModelChecks, "over_ranks", lambda examination, ranks: CheckResult("", "two ranks", "ok")
    )


@pytest.mark.slow
def test_all_holds_on_the_bundled_model(
    alone: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    assert main(["doctor", "--dtype", "float32", "--json", "--output", str(file)]) == 0
    printed = capsys.readouterr().out
    report = json.loads(printed)
    assert json.loads(file.read_text())["findings"] == report["findings"]
    assert report["holds"]
    assert [found["check"] for found in report["findings"]] == [*CHECKS, "two ranks", "screen"]
    others = {found["check"]: found["status"] for found in report["findings"] if found["status"] != "ok"}
    assert others == {"experts and states": "refused"}, "it has neither"
    assert report["machine"]["late_token"]
    assert report["machine"]["product_type"] == "float32"
    for said in (PROMPT.split()[-1], "ball", str(Path.home()), str(tmp_path)):
        assert said not in printed


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
    (line,) = [line for line in lines if line.startswith("  verify")]
    assert line.split()[1:4] == ["differs", "1.5", "of"]
    assert "verify (float32)" in lines[-1]
    assert "--output FILE" in lines[-1]


def test_a_view_whose_own_check_fails_differs() -> None:
    """The check that failed is named, with its bound."""
    checks = (protocol.Check("forward", 0.0, 0.0), protocol.Check("lens", 0.5, 1e-4))

    class Answering(AskedEngine):
        def __init__(self) -> None:
            """No engine."""

        def one(self, command: protocol.Command, kind: type[Any]) -> Any:
            return kind(1, (), (), protocol.CaptureFacts(checks, 1.0, 1.0, "llama"))

    examination = ModelChecks(Answering(), LoadSettings())
    found = examined(lambda: examination._looked(protocol.ReadLens(1), protocol.LensRead))
    assert found == ("differs", FoundDifference("lens", 0.5, 1e-4))


@pytest.mark.parametrize(("expected", "status"), [(True, "refused"), (False, "failed")])
def test_what_the_engine_refuses_is_no_fault_and_what_breaks_is_one(expected: bool, status: str) -> None:
    def check() -> FoundDifference:
        raise CommandFailed(
            protocol.Failure("Race", "No room in /home/me/model for “Once upon”.", "", expected)
        )

    assert examined(check) == (status, FoundDifference("No room in … for …."))


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
def test_ranks_and_the_screen_hold_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    checks = [(found["computed"], found["check"]) for found in report["findings"]]
    assert checks == [(each, name) for each in ("bfloat16", "float32") for name in [*CHECKS, "two ranks"]] + [
        ("", "screen")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "dtype", "as_exact_as"),
    [(tf32, "float32", "float16"), (in_another_order, "bfloat16", "float32")],
    ids=["TF32", "sums in another order"],
)
def test_nothing_is_refused_that_holds_on_a_machine_that_rounds_otherwise(
    other: Other, dtype: str, as_exact_as: str
) -> None:
    with multiplying(other):
        asked = AskedEngine(EngineThread)
        try:
            found = list(ModelChecks(asked, LoadSettings("pocket", dtype=dtype)).run())
            read = asked.one(protocol.ReadMachine(), protocol.MachineRead)
        finally:
            asked.close()
    assert [(each.check, each.status) for each in found] == [(name, "ok") for name in CHECKS]
    assert max(each.difference or 0.0 for each in found) > 1e-3
    assert read.product_type == as_exact_as
