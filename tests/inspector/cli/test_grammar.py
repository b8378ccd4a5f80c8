"""The flags of a grammar: what is asked for, what is wrong with it, and a generation under one."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.grammar_settings import Grammar
from engine.protocol import Step
from inspector.cli.arguments import request_from
from inspector.cli.driver import Summary
from inspector.cli.subcommands.generate import beam_parser, generate_parser
from inspector.cli.writers.generation import GenerationFigures, PlainText
from inspector.cli.writers.json_lines import JsonLines
from tests.inspector.cli.scripted import of_kind
from tests.inspector.fakes import session

LARK, GBNF = 'start: "yes" | "no"\n', 'root ::= "yes" | "no"\n'


def asked(*argv: str) -> Grammar | None:
    return request_from(generate_parser().parse_args(["-p", "hi", *argv])).settings.grammar


def test_each_flag_is_a_grammar(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("rules.lark", "rules.txt", "rules.gbnf", "schema.json")}
    for path, text in zip(paths.values(), (LARK, GBNF, GBNF, '{"type": "null"}'), strict=True):
        path.write_text(text, encoding="utf-8")
    assert asked() is None
    assert asked("--regex", r"[0-9]+\n") == Grammar("regex", "[0-9]+\n")
    assert asked("--choices", "yes,no") == Grammar("choices", "yes\nno")
    assert asked("--json-schema", ' {"type": "null"}') == Grammar("json-schema", ' {"type": "null"}')
    assert asked("--json-schema", str(paths["schema.json"])) == Grammar("json-schema", '{"type": "null"}')
    assert asked("--grammar", str(paths["rules.lark"])) == Grammar("lark", LARK)
    assert asked("--grammar", str(paths["rules.txt"])) == Grammar("gbnf", GBNF)
    assert asked("--grammar", str(paths["rules.gbnf"])) == Grammar("gbnf", GBNF)
    assert request_from(beam_parser().parse_args(["-p", "hi", "--regex", "a"])).settings.grammar == Grammar(
        "regex", "a"
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--regex", "a", "--choices", "b"], "--regex and --choices were given. Give one of them"),
        (["--regex", ""], "--regex: the regex grammar is empty"),
        (["--choices", "a,,b"], "--choices: one of 'a,,b' is empty"),
        (["--choices", ""], "--choices: choices name no text"),
        (["--grammar", "no-such-file"], "--grammar: There is no grammar file 'no-such-file'"),
        (["--json-schema", "no-such-file"], "--json-schema: There is no schema file 'no-such-file'"),
    ],
)
def test_what_is_wrong_names_its_flag(argv: list[str], message: str) -> None:
    with pytest.raises(EngineError, match=f"^{re.escape(message)}"):
        asked(*argv)


def generated(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "inspector",
        "generate",
        "-p",
        "Once upon a time",
        "--ignore-chat-template",
    ]
    return subprocess.run([*command, *argv], capture_output=True, text=True, timeout=120, check=False)


def test_a_generation_under_a_grammar_ends_with_it_and_tells_of_it() -> None:
    done = generated("--regex", " (yes|no), [a-z]{3}", "--jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    end, steps = events[-1], of_kind(events, Step)
    assert (end["reason"], end["detail"]) == ("grammar", "regex ␣(yes|no), [a-z]{3}")
    assert re.fullmatch(" (yes|no), [a-z]{3}", end["text"])
    [settings] = (event["settings"] for event in events if event["event"] == "Settings")
    assert settings["grammar"]["text"] == " (yes|no), [a-z]{3}"
    for step in steps:
        told, first = step.choice.grammar, step.choice.stages[0]
        assert told is not None
        assert told.state == "open"
        assert 0 < told.allowed == first.kept < 4096
        assert 0 <= told.mass <= 1
        assert told.mass == pytest.approx(1 - first.removed_mass, abs=1e-4)
        assert told.forced in b" yes, no, "


@pytest.mark.slow
def test_a_grammar_that_cannot_be_used_is_one_line_with_its_place() -> None:
    done = generated("--json-schema", '{"type": "object",\n  "not" 1}')
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "--json-schema can't be used: line 2, column 9: Expecting ':' delimiter" in done.stderr


def test_the_report_and_the_json_lines_name_the_grammar_that_the_text_was_held_to() -> None:
    request = request_from(generate_parser().parse_args(["-p", "hi", "--regex", "a+b"]))
    records, summary = session(3).records, Summary(request.settings)
    lines, report = io.StringIO(), io.StringIO()
    figures = GenerationFigures(request)
    own = JsonLines(lines, request, figures)
    for writer in (own, PlainText(io.StringIO(), report, request, figures)):
        for record in records:
            writer.take(record, summary.take(record))
        writer.end(summary)
    assert json.loads(lines.getvalue().splitlines()[-1])["made_with"] == ["grammar regex a+b"]
    assert re.search(r"^grammar +regex a\+b$", report.getvalue(), re.MULTILINE)
