"""`inspector bench`: its tables, its JSON and its errors."""

from __future__ import annotations

import json

import pytest

from engine.records import Figure, Machine, SweepPoint, Swept
from inspector.cli import bench
from inspector.cli import main as cli

MACHINE = Machine("Linux 6", "A processor", 2, 8 * 2**30, "3.12.1", "0.32.4", "0.32.2", "cpu")
SWEPT = Swept(
    MACHINE, "pocket", "llama", 7_344_384, "bfloat16", None, 3,
    (
        SweepPoint("ttft", 16, (Figure("TTFT", "ms", (10.0, 12.0, 11.0)), Figure("KV used", "bytes", (65536,) * 3))),
        SweepPoint("ttft", 1024, (Figure("TTFT", "ms", (110.0,) * 3), Figure("KV used", "bytes", (2**22,) * 3))),
        SweepPoint("inspection", 16, (Figure("run", "times", (1.1, 1.0, 1.2)),)),
    ),
    (("ttft", "as told"), ("inspection", "in turn")), ("batch can't be measured",), 1234.0,
)  # fmt: skip


def test_a_table_has_bars_medians_and_spread() -> None:
    lines = bench.tables(SWEPT).splitlines()
    assert lines[0] == "pocket: llama, 7.34 M parameters, bfloat16, on cpu"
    assert "medians of 3 rounds" in lines[2]
    first, last = (next(line for line in lines if f" {at} " in line) for at in ("16", "1,024"))
    assert "11.0 ms (10.0-12.0)" in first
    assert "64 KiB" in first
    assert "110 ms" in last
    assert last.count("█") == bench.BAR
    assert first.count("█") == 1
    assert any(line.split() == ["run", "1.10", "times", "(1.00-1.20)"] for line in lines)


def test_json_holds_every_measurement() -> None:
    found = json.loads(json.dumps(bench.as_object(SWEPT)))
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
