"""`inspector bench`: its JSON and its errors."""

from __future__ import annotations

import json

import pytest

from inspector.cli import main as cli
from inspector.cli.writers.measured import as_object
from tests.inspector.tools.sweeps.test_tables import SWEPT


def test_json_holds_every_measurement() -> None:
    found = json.loads(json.dumps(as_object(SWEPT)))
    assert found["points"][0]["figures"][0] == {
        "name": "TTFT", "unit": "ms", "median": 11.0, "values": [10.0, 12.0, 11.0],
    }  # fmt: skip
    assert found["machine"]["cores"] == 2
    assert found["how"]["ttft"] == "as told"


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--sweeps", "tpot,inspection", "--rounds", "1", "--steps", "2", "--longest", "32", "--json"]
    assert cli.main(["bench", *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not {"id", "request"} & found.keys(), "the program's own number of a command"
    assert [(point["sweep"], point["at"]) for point in found["points"]] == [
        ("tpot", 16), ("tpot", 32), ("inspection", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sweeps", "speed"], "--sweeps: there is no sweep 'speed'. Take some of ttft"),
        (["--rounds", "0"], "--rounds: must be from 1 to 1,000"),
        (["--kv-bits", "7"], "--kv-bits"),
    ],
)
def test_bad_flags_are_one_line(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *flags]) == 2
    assert message in capsys.readouterr().err
