"""`inspector batch`: its flags, table and JSON lines, from records by hand and as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine import protocol
from engine.protocol import Record
from inspector.cli.flags import parsed
from inspector.cli.subcommands.generate import batch_parser, batch_request, commands_for, prompts_from
from inspector.cli.writers.generation import writer
from inspector.cli.writers.json_lines import PROGRESS
from inspector.cli.writers.sequences import BatchReport
from tests.inspector.cli.scripted import Complaint, Events, ScriptedRun, as_record, of_kind
from tests.inspector.told_batch import BEGINNING, COMPARED, DRAWN, REST, draws


class Run(ScriptedRun):
    """One run of the command on a script."""

    def __init__(self, *argv: str, told: tuple[Record, ...] = (*BEGINNING, *REST)) -> None:
        args = parsed(batch_parser(), ["--ignore-chat-template", *argv])
        texts = prompts_from(args)
        request = batch_request(args, texts)
        answers = {
            protocol.StartBatch: told,
            protocol.CompareBatch: COMPARED,
            protocol.DrawMany: (DRAWN, *draws(1)),
        }
        made = lambda asked, out, err: writer(asked, BatchReport(asked), out=out, err=err)  # noqa: E731
        super().__init__(request, answers, list(commands_for(args, request, texts)), made)


# ---- the flags --------------------------------------------------------------------------------


def test_the_flags_reach_the_engine() -> None:
    run = Run("-p", "Once", "-p", r"a\tb", "--batch-size", "4", "--static", "--compare", "--temp", "0.7")
    assert run.go() == 0
    assert run.kinds == ["Load", "Configure", "StartBatch", "CompareBatch"]
    started = run.backend.sent[2]
    assert isinstance(started, protocol.StartBatch)
    assert [(prompt.text, prompt.chat) for prompt in started.prompts] == [("Once", False), ("a\tb", False)]
    assert (started.size, started.static, started.steps) == (4, True, None)


def test_a_file_has_a_prompt_on_each_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("Once\n\nThe dog\n")
    args = parsed(batch_parser(), ["--prompt-file", str(file), "--lines", "-p", "Tom"])
    assert prompts_from(args) == ["Tom", "Once", "The dog"]
    args = parsed(batch_parser(), ["--prompt-file", str(file)])
    assert prompts_from(args) == ["Once\n\nThe dog\n"]


def test_a_line_may_have_settings_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    own = {"prompt": "The dog", "temp": 0.7, "top-p": 0.9, "seed": 5, "max_tokens": 3, "stop": "."}
    file.write_text(
        f'{{"name": "no prompt"}}\n{json.dumps(own)}\n{{"prompt": "Tom", "system": "é"}}\n{{ "a\n'
    )
    run = Run("--prompt-file", str(file), "--lines", "--seed", "1", "--temp", "1")
    started = run.then[-1]
    assert isinstance(started, protocol.StartBatch)
    text, dog, tom, broken = started.prompts
    assert (text.text, text.settings) == ('{"name": "no prompt"}', None)
    assert dog.text == "The dog"
    assert dog.settings == replace(
        run.request.settings, temp=0.7, top_p=0.9, seed=5, max_tokens=3, stop=(".",)
    )
    assert (tom.text, tom.system, tom.settings) == ("Tom", "é", None)
    assert broken.text == '{ "a'
    plain = Run("-p", json.dumps(own)).then[-1]
    assert isinstance(plain, protocol.StartBatch)
    assert plain.prompts[0].text == json.dumps(own)  # --lines was not given


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            '{"prompt": "a", "temperature": 1}',
            "Prompt 2: there is no setting 'temperature'. Settings have the names",
        ),
        (
            '{"prompt": "a", "temp": "hot"}',
            'Prompt 2: temperature must be 0, or a number from 0.001 to 100, not "hot".',
        ),
        ('{"prompt": "a", "seed": -1}', "Prompt 2: seed must be"),
        ('{"prompt": 3}', "Prompt 2: its prompt is not a text."),
        ('{"prompt": ""}', "Prompt 2: its prompt is empty."),
    ],
)
def test_a_line_with_wrong_settings_is_refused(
    complaint: Complaint, tmp_path: Path, line: str, said: str
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f"Once\n{line}\n")
    assert said in complaint("batch", "--prompt-file", str(file), "--lines")


def test_draws_begin_after_their_prompt() -> None:
    run = Run("-p", "Once", "-n", "40", "--max-tokens", "5")
    assert run.go() == 0
    assert run.kinds == ["Load", "Configure", "Prefill", "DrawMany"]
    assert run.backend.sent[-1] == protocol.DrawMany(40, tokens=5)
    text = "\n".join(run.lines)
    assert "chi-square 1.50" in text
    assert "└   2  a" in text


# ---- what is written --------------------------------------------------------------------------


def test_the_table_has_a_line_a_lane() -> None:
    run = Run("-p", "Once", "-p", "The", "--compare")
    assert run.go() == 0
    head, one, other = run.lines[:3]
    assert head.split() == ["row", "prompt", "padding", "tokens", "first", "last", "ends", "text"]
    assert one.split()[:4] == ["0", "3", "0", "3"]
    assert one.endswith("  length        a time.")
    assert other.split()[:4] == ["1", "2", "1", "2"]
    assert other.endswith("  eos <|eos|>   dog")
    assert "1 of 2 lanes equal" in run.err.getvalue()
    assert "1.50 times faster" in run.err.getvalue()


def test_json_lines_are_the_records_and_what_each_lane_came_to() -> None:
    run = Run("-p", "Once", "-p", "The", "--jsonl", "--compare")
    assert run.go() == 0
    *events, end = run.events
    told = [each for each in (*BEGINNING, *REST, *COMPARED) if not isinstance(each, PROGRESS)]
    assert [as_record(event, type(record)) for event, record in zip(events, told, strict=True)] == told
    lanes = [(each["lane"], each["reason"], each["text"], each["tokens"]) for each in end["lanes"]]
    assert lanes == [(0, "length", " a time.", 3), (1, "eos", " dog", 2)]
    assert (end["event"], end["complete"]) == ("BatchSummary", True)


def test_what_came_before_ctrl_c_is_written() -> None:
    run = Run("-p", "Once", "-p", "The", "--jsonl")
    run.backend.interrupt = protocol.StartBatch
    assert run.go() == 130
    end = run.events[-1]
    assert (end["event"], end["complete"]) == ("BatchSummary", False)
    assert [each["reason"] for each in end["lanes"]] == ["cancelled"] * 2


def test_a_real_batch(events: Events, tmp_path: Path) -> None:
    trace = tmp_path / "batch.trace"
    argv = [
        "batch",
        "-p",
        "Once upon a time",
        "-p",
        "A dog",
        "--ignore-chat-template",
        "--max-tokens",
        "4",
        "--jsonl",
    ]
    found = events(*argv, "-o", str(trace))
    assert [(each["lane"], each["tokens"]) for each in found[-1]["lanes"]] == [(0, 4), (1, 4)]
    assert len(of_kind(found, protocol.BatchStep)) == 4

    from engine.recording import load

    kept = [type(entry.value) for entry in load(trace).entries]
    assert kept.count(protocol.BatchStep) == 4
