"""`inspector show race`, `show time` and `show cache`: their output, from records by hand and as a user runs them."""

from __future__ import annotations

import io

import pytest

from engine import protocol
from engine.protocol import RaceEnded
from inspector.cli import main as cli
from inspector.cli.arguments import request_from
from inspector.cli.flags import parsed
from inspector.cli.subcommands.show import show_race_parser, show_time_parser
from inspector.cli.writers.generation import PlainText, writer
from inspector.cli.writers.measured import Measurements, RaceReport
from tests.inspector.cli.scripted import Complaint, Events, ScriptedRun, as_record, of_kind
from tests.inspector.views.race.test_report import OPENED, steps


class RaceRun(ScriptedRun):
    """One run of the command on a script."""

    def __init__(self, *argv: str, answers: list[protocol.Record] | None = None) -> None:
        args = parsed(show_race_parser(), ["-p", "Once", "--ignore-chat-template", *argv])
        told = [OPENED, *steps(), RaceEnded(60, 600.0, 2790.0, (), 0.0)] if answers is None else answers
        then = [protocol.Race(args.first, args.last)]
        request = request_from(args, default_prompt=True)
        made = lambda asked, out, err: writer(asked, RaceReport(), out=out, err=err)  # noqa: E731
        super().__init__(request, {protocol.Race: told}, then, made)


# ---- the flags --------------------------------------------------------------------------------


def test_the_flags_reach_the_engine() -> None:
    run = RaceRun("--from", "16", "--to", "76", "--temp", "0.7", "--seed", "4")
    assert run.go() == 0
    assert run.kinds == ["Load", "Configure", "Prefill", "Race"]
    assert run.backend.sent[-1] == protocol.Race(16, 76)
    assert isinstance(configure := run.backend.sent[1], protocol.Configure)
    assert (configure.settings.temp, configure.settings.seed) == (0.7, 4)


def test_without_a_prompt_it_is_the_screens() -> None:
    args = parsed(show_race_parser(), [])
    assert (args.first, args.last) == (protocol.Race().first, protocol.Race().last)
    assert request_from(args, default_prompt=True).prefill.text == "Once upon a time"


# ---- what is written --------------------------------------------------------------------------


def test_the_table_has_medians_of_windows_and_the_sums() -> None:
    run = RaceRun()
    assert run.go() == 0
    head, *rows = run.lines[:13]
    assert head.split()[:4] == ["tokens", "cache", "no", "cache"]
    assert len(rows) == 12
    assert rows[0].split()[:6] == ["17-21", "10.0", "ms", "19.0", "ms", "1.9"]
    assert rows[0].split()[6:] == ["50.0", "ms", "95.0", "ms", "21", "KiB", "21", "KiB"]
    assert rows[-1].split()[:7] == ["72-76", "10.0", "ms", "74.0", "ms", "7.4", "600"]


def test_the_verdict_and_how_it_was_measured() -> None:
    run = RaceRun()
    run.go()
    told = run.out.getvalue()
    assert "growth       medians of 7 steps: 10.0 → 10.0 ms with, 20.0 → 73.0 ms without" in told
    assert "600 ms with a cache, 2.79 s without\nthe cache    4.7 times faster in all" in told
    assert "all 60 the same, and the logits bit for bit" in told
    assert "As it was measured." in told


def test_a_difference_is_said_with_its_place() -> None:
    end = RaceEnded(60, 600.0, 2790.0, (40, 44), 0.25)
    run = RaceRun(answers=[OPENED, *steps((40, 44), 0.25), end])
    run.go()
    said = " ".join(run.out.getvalue().split())  # in a narrow terminal on two lines
    assert "2 of 60 differ, first after 40 tokens; the logits differ by 0.25 at most" in said


def test_a_single_step_is_enough() -> None:
    run = RaceRun(answers=[OPENED, steps()[0], RaceEnded(1, 10.0, 17.0, (), 0.0)])
    assert run.go() == 0
    assert run.lines[1].split()[0] == "17"


def test_json_lines_hold_every_step() -> None:
    run = RaceRun("--jsonl")
    run.go()
    told = run.backend.answers[protocol.Race]
    assert [as_record(event, type(record)) for event, record in zip(run.events, told, strict=True)] == [*told]


def test_an_interrupt_ends_with_what_there_is() -> None:
    run = RaceRun(answers=[OPENED])
    run.backend.interrupt = protocol.Race
    assert run.go() == 130
    assert run.out.getvalue() == ""
    assert "race        cancelled" in run.err.getvalue()
    lines = RaceRun("--jsonl", answers=[OPENED])
    lines.backend.interrupt = protocol.Race
    lines.go()
    assert [event["event"] for event in lines.events] == ["RaceOpened"]


# ---- as a person runs it ----------------------------------------------------------------------


def test_the_bundled_model_races(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "race", "--from", "4", "--to", "16", "--seed", "1"]) == 0
    printed = capsys.readouterr()
    assert "tokens       all 12 the same" in printed.out
    assert "model       pocket: llama, 8 layers" in printed.err
    assert "\x1b" not in printed.out


# ---- inspector show time, and cache -----------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "width"), [(10, 40), (42, 40), (43, 41), (102, 100), (300, 102)])
def test_what_is_below_a_table_is_as_wide_as_the_terminal_within_bounds(
    columns: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = io.StringIO()
    request = request_from(parsed(show_time_parser(), ["-p", "Once"]))
    writer = PlainText(out, None, request, Measurements())
    writer.take(protocol.KVCompared(1, 8, (), "word " * 200, last=True), "")
    lines = [line for line in out.getvalue().splitlines() if "word" in line]
    assert width - 5 <= max(map(len, lines)) <= width
    assert " ".join(out.getvalue().rpartition("formula")[2].split()) == ("word " * 200).strip()


@pytest.mark.slow
def test_the_bundled_model_is_profiled(capsys: pytest.CaptureFixture[str], events: Events) -> None:
    text = ["--max-tokens", "4", "--seed", "1"]
    argv = ["show", "time", "--repeats", "1", *text]
    assert cli.main(argv) == 0
    printed = capsys.readouterr()
    assert "One step after 8 tokens" in printed.out
    assert "Roofline, 7.34 M parameters in a token" in printed.out
    assert cli.main(["show", "cache", *text]) == 0
    assert "KV cache of 8 tokens" in capsys.readouterr().out
    found = events(*argv, "--jsonl")
    assert [*dict.fromkeys(each["event"] for each in found)][-2:] == ["Profiled", "RooflineMeasured"]
    [profile] = of_kind(found, protocol.Profiled)
    parts = sum(part.ms for part in profile.parts)
    assert parts + profile.other_ms == pytest.approx(profile.fenced_ms)


def test_a_capture_of_metal_is_refused_without_metal(complaint: Complaint) -> None:
    assert complaint("show", "time", "-m", "1", "--metal-trace", "x.gputrace") == (
        "This MLX has no Metal: no step can be captured. Capture one on a Mac."
    )
