"""A session as a command and as Python: what is copied is run, and writes the same tokens."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

import mlx_inspector as mi
from engine.settings import LoadSettings
from inspector.cli.main import main
from inspector.session.as_code import as_command, as_python

PROMPTS: dict[str, dict[str, Any]] = {
    "raw": {"prompt": 'Tom said: "it\'s $HOME"\n', "temp": 0.9, "top_k": 40, "seed": 5},
    "chat": {"prompt": "Tell a story", "chat": True, "system": "Be brief", "temp": 1.0, "seed": 3},
    "greedy": {"prompt": "-p is no flag", "stop": ("never said",)},
}


@pytest.mark.parametrize("kind", PROMPTS)
def test_what_is_copied_writes_the_same_tokens(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with mi.open("pocket", **PROMPTS[kind]) as s:
        s.run(6).wait()
        s.take(" cat")
        s.set(temp=0.5)
        s.run(4).wait()
        ids, timeline, load, settings = s.ids, s._line.timeline, LoadSettings(), s.settings
        command, drawn = as_command(timeline, load, settings)
        lines = as_python(timeline, load, settings)
        completion = [step.id for step in s.steps]
    assert drawn == 6
    program, *words = shlex.split(command)
    assert program == "inspector"
    assert main(["generate", *words, "--jsonl"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["id"] for each in records if each.get("event") == "Step"] == completion[:6]
    names: dict[str, Any] = {}
    exec(lines, names)
    with names["s"] as again:
        assert again.ids == ids


@pytest.mark.parametrize(
    "settings", [{"prompt": r"a\nb"}, {"prompt": "-"}, {"prompt": "a", "stop": (r"x\ty",)}]
)
def test_what_a_flag_would_read_otherwise_is_no_command(settings: dict[str, Any]) -> None:
    with mi.open("pocket", **settings) as s:
        s.run(2).wait()
        assert as_command(s._line.timeline, LoadSettings(), s.settings) == ("", 0)
        assert repr(settings["prompt"]) in as_python(s._line.timeline, LoadSettings(), s.settings)
