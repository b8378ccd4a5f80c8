"""`inspector race`: its flags, table, chart and JSON lines, from records by hand and as a person runs it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest

from engine import commands, records
from engine.records import RaceEnded, RaceOpened, RaceStep
from inspector.cli import generate as headless
from inspector.cli import main as cli
from inspector.cli import race
from inspector.cli.arguments import request
from inspector.cli.flags import parsed
from inspector.cli.measuring_flags import race_parser
from tests.inspector.cli.test_generate import Answers, ScriptedEngine
from tests.inspector.cli.test_main import complaint

OPENED = RaceOpened(5, 16, 76, 20, "As it was measured.")


def steps(unequal: tuple[int, ...] = (), difference: float = 0.0) -> list[RaceStep]:
    """Sixty steps: 10 ms with a cache, a millisecond a token without."""
    found, cached, uncached = [], 0.0, 0.0
    for tokens in range(17, 77):
        cached, uncached = cached + 10, uncached + tokens
        found.append(
            RaceStep(
                tokens=tokens, id=tokens, text="x", cached_ms=10.0, uncached_ms=float(tokens), cached_total_ms=cached,
                uncached_total_ms=uncached, cached_pick=1, uncached_pick=2 if tokens in unequal else 1,
                largest_difference=difference, kv_bytes=1024 * tokens, passed_bytes=1024 * tokens,
            )
        )  # fmt: skip
    return found


class Run:
    """One run of the command on a script."""

    def __init__(self, *argv: str, answers: list[records.Record] | None = None) -> None:
        self.args = parsed(race_parser(), ["-p", "Once", "--ignore-chat-template", *argv])
        self.request = request(self.args, headless=False)
        self.out, self.err = io.StringIO(), io.StringIO()
        told = [OPENED, *steps(), RaceEnded(60, 600.0, 2790.0, (), 0.0)] if answers is None else answers
        self.answers: Answers = {commands.Race: told}
        self.sent: list[commands.Command] = []
        self.interrupted = False

    def go(self) -> headless.Outcome:
        """Run it."""

        def make(emit: Any) -> ScriptedEngine:
            engine = ScriptedEngine(emit, self.answers)
            engine.sent = self.sent
            engine.interrupt = commands.Race if self.interrupted else None
            return engine

        writer = race.writer(self.request, self.out, self.err)
        return headless.generate(self.request, writer, make, commands.Race(self.args.first, self.args.last))

    @property
    def lines(self) -> list[str]:
        """What was written."""
        return self.out.getvalue().splitlines()


# ---- the flags --------------------------------------------------------------------------------


def test_the_flags_reach_the_engine() -> None:
    run = Run("--from", "16", "--to", "76", "--temp", "0.7", "--seed", "4")
    assert run.go().code == 0
    assert [type(command).__name__ for command in run.sent] == ["Load", "Configure", "Prefill", "Race"]
    assert run.sent[-1] == commands.Race(16, 76)
    assert isinstance(configure := run.sent[1], commands.Configure)
    assert (configure.settings.temp, configure.settings.seed) == (0.7, 4)


def test_without_a_prompt_it_is_the_screens() -> None:
    args = parsed(race_parser(), [])
    assert (args.first, args.last) == (commands.Race().first, commands.Race().last)
    assert request(args, headless=False).prompt == "Once upon a time"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--from", "two"], "--from: must be a whole number, not 'two'."),
        (["--max-tokens", "9"], "unrecognized arguments: --max-tokens 9. See `inspector race --help`."),
        (["--to", "8"], "A race can't go from 16 to 8 tokens."),
        (["--to", "513"], "leaves the model's context window of 512. End at 512 or before."),
        (["--no-kv-cache", "--kv-bits", "8"], "--no-kv-cache: there is no KV cache for --kv-bits to change."),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    assert said in complaint(capsys, "race", *argv)


def test_help_is_instant() -> None:
    code = (
        "import sys; from inspector.cli.main import main; code = main(['race', '--help']);"
        "sys.exit(code or any(name in sys.modules for name in ('textual', 'mlx', 'numpy', 'rich')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    for flag in ("--from N", "--to N", "--temp", "--model", "--jsonl"):
        assert flag in done.stdout


# ---- what is written --------------------------------------------------------------------------


def test_the_table_has_medians_of_windows_and_the_sums() -> None:
    run = Run()
    assert run.go() == headless.Outcome(0)
    head, *rows = run.lines[:13]
    assert head.split()[:4] == ["tokens", "cache", "no", "cache"]
    assert len(rows) == 12
    assert rows[0].split()[:6] == ["17-21", "10.0", "ms", "19.0", "ms", "1.9"]
    assert rows[0].split()[6:] == ["50.0", "ms", "95.0", "ms", "21", "KiB", "21", "KiB"]
    assert rows[-1].split()[:7] == ["72-76", "10.0", "ms", "74.0", "ms", "7.4", "600"]


def test_the_verdict_and_how_it_was_measured() -> None:
    run = Run()
    run.go()
    told = run.out.getvalue()
    assert "with a cache    10.0 ms a step at the beginning, 10.0 ms at the end: 1.00 times" in told
    assert "without one     19.0 ms at the beginning, 74.0 ms at the end: 3.89 times" in told
    assert "600 ms with a cache, 2.79 s without: 4.7 times" in told
    assert "all 60 equal; so are the logits, bit for bit" in told
    assert "As it was measured." in told


def test_a_difference_is_said_with_its_place() -> None:
    end = RaceEnded(60, 600.0, 2790.0, (40, 44), 0.25)
    run = Run(answers=[OPENED, *steps((40, 44), 0.25), end])
    run.go()
    assert "2 of 60 differ, first after 40 tokens; logits differ by 0.25 at most" in run.out.getvalue()


def test_the_chart_fits_and_names_both_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 80, 200):
        lines = race.chart(steps(), columns)
        assert max(map(len, lines)) <= max(columns, race.LEFT + race.LEAST_CHART + race.RIGHT)
        assert any("without one 74.0 ms" in line for line in lines[1:6])
        assert any("with a cache 10.0 ms" in line for line in lines[8:])
        assert lines[1].split("┤")[0].strip() == "100"
        assert lines[-1].split() == ["17", "tokens", "76"]


def test_curves_that_lie_together_are_named_on_one_line() -> None:
    same = [step for step in steps() if step.tokens < 22]
    assert any(
        "with 10.0, without 19.0 ms" in line or "with a cache" in line for line in race.chart(same, 80)
    )


def test_a_single_step_is_enough() -> None:
    run = Run(answers=[OPENED, steps()[0], RaceEnded(1, 10.0, 17.0, (), 0.0)])
    assert run.go().code == 0
    assert run.lines[1].split()[0] == "17"


def test_json_lines_hold_every_step() -> None:
    run = Run("--jsonl")
    run.go()
    begin, *all_steps, end = [json.loads(line) for line in run.lines]
    assert (begin["event"], begin["first"], begin["last"]) == ("race", 16, 76)
    assert [each["tokens"] for each in all_steps] == list(range(17, 77))
    assert all(each["event"] == "race_step" and each["equal"] for each in all_steps)
    assert (end["event"], end["reason"], end["steps"], end["differences"]) == ("race_end", "length", 60, [])


def test_an_interrupt_ends_with_what_there_is() -> None:
    run = Run(answers=[OPENED])
    run.interrupted = True
    assert run.go().code == 130
    assert run.out.getvalue() == ""
    assert "race        cancelled" in run.err.getvalue()
    lines = Run("--jsonl", answers=[OPENED])
    lines.interrupted = True
    lines.go()
    assert json.loads(lines.lines[-1]) == {"event": "race_end", "reason": "cancelled"}


def test_the_progress_tells_what_is_left() -> None:
    assert race.progress(OPENED, steps()[-1]) == "████████████████ 76/76 tokens, about 0.00 ms left"
    first = race.progress(OPENED, steps()[0])
    assert first.startswith("▎")
    assert "17/76 tokens, about 3.36 s left" in first


# ---- as a person runs it ----------------------------------------------------------------------


def test_the_bundled_model_races(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["race", "--from", "4", "--to", "16", "--seed", "1"]) == 0
    printed = capsys.readouterr()
    assert "token ids       all 12 equal" in printed.out
    assert "model       pocket: llama, 8 layers" in printed.err
    assert "\x1b" not in printed.out
