"""`inspector bench`: its JSON and its errors."""

from __future__ import annotations

import json

import pytest

from inspector.cli import main as cli
from inspector.cli.writers.bench import as_object
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
    assert [(point["sweep"], point["at"]) for point in found["points"]] == [
        ("tpot", 16), ("tpot", 32), ("inspection", 2),
    ]  # fmt: skip
