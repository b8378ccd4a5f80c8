"""`inspector profile`: its errors, its tables and its JSON lines, as a person runs it."""

from __future__ import annotations

import json

import pytest

from inspector.cli import main as cli
from tests.inspector.cli.test_main import complaint


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--repeats: must be a whole number" in complaint(capsys, "profile", "--repeats", "x")
    assert "must be a whole number from 1 up, not 0" in complaint(capsys, "profile", "--repeats", "0")


@pytest.mark.slow
def test_the_bundled_model_is_profiled(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["profile", "--max-tokens", "4", "--repeats", "1", "--seed", "1"]
    assert cli.main(argv) == 0
    printed = capsys.readouterr()
    assert "One step after 8 tokens" in printed.out
    assert "Roofline, 7.34 M parameters in a token" in printed.out
    assert "KV cache of 8 tokens" in printed.out
    assert cli.main([*argv, "--jsonl"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in events][-3:] == ["profile", "roofline", "kv_costs"]
    assert not any({"id", "request"} & each.keys() for each in events), (
        "the program's own number of a command"
    )
    profile = events[-3]
    parts = sum(part["ms"] for part in profile["parts"])
    assert parts + profile["other_ms"] == pytest.approx(profile["fenced_ms"])
