"""The headless command on a scripted engine: events, text, exit statuses, interruptions."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine import commands, records
from engine.commands import Command
from engine.records import Record
from engine.settings import LoadSettings, Settings
from inspector.cli import generate as headless
from inspector.cli.arguments import Request
from inspector.cli.jsonl import JsonLines
from inspector.cli.plain import ERASE, PlainText, for_terminal, loading
from inspector.cli.summary import Completion, Tally
from tests.inspector import fakes

STEP_KEYS = {
    *("index", "position", "id", "text", "logprob", "prob", "rank", "entropy_bits", "surprisal_bits", "draw"),
    *("candidates", "kv", "ms"),
}
CANDIDATE_KEYS = {"id", "text", "logprob", "prob", "sampler_prob", "rank", "cut_by"}

Answers = dict[type[Command], Sequence[Record]]


class ScriptedEngine:
    """Answers each command with records that were made before, and its end."""

    def __init__(self, emit: Callable[[Record | None], None], answers: Answers) -> None:
        self.emit = emit
        self.answers = answers
        self.sent: list[Command] = []
        self.interrupt: type[Command] | None = None
        """The command at which the person presses Ctrl-C, after its first record."""
        self.closed = 0
        self.joins = True

    def start(self) -> None:
        self.emit(records.Loading("import", 0, 0, "mlx"))

    def send(self, command: Command) -> None:
        self.sent.append(command)
        for record in self.answers.get(type(command), ()):
            self.emit(record)
            if isinstance(command, self.interrupt or ()):
                os.kill(os.getpid(), signal.SIGINT)
                return
        self.emit(records.Ended(type(command).__name__))

    def close(self, timeout: float = 2.0) -> bool:
        self.closed += 1
        return self.joins


class Run:
    """One run of the headless command on a script."""

    def __init__(self, answers: Answers, jsonl: bool = True, **settings: Any) -> None:
        self.request = Request(
            LoadSettings(),
            Settings(seed=7, **settings),
            "Once upon a time,",
            False,
            jsonl=jsonl,
            notes=("a note",),
        )
        self.out, self.err = io.StringIO(), io.StringIO()
        self.answers = answers
        self.engine: ScriptedEngine | None = None
        self.prepare: Callable[[ScriptedEngine], None] = lambda engine: None

    def make(self, emit: Callable[[Record | None], None]) -> ScriptedEngine:
        self.engine = ScriptedEngine(emit, self.answers)
        self.prepare(self.engine)
        return self.engine

    def go(self) -> headless.Outcome:
        outcome = headless.generate(
            self.request,
            headless.writer(self.request, self.out, self.err),
            self.make,  # type: ignore[arg-type]
        )
        assert self.engine is not None
        assert self.engine.closed == 1
        return outcome

    @property
    def events(self) -> list[dict[str, Any]]:
        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return [json.loads(line, parse_constant=refuse) for line in self.out.getvalue().splitlines()]


def script(
    steps: int = 5, reason: records.FinishReason = "length", detail: str = "5 tokens", **facts: Any
) -> Answers:
    """A generation of the hand-made story."""
    session = fakes.Session()
    loaded, opened, taken = session.load(**facts), session.open(), session.steps(steps)
    return {
        commands.Load: answer(loaded),
        commands.Prefill: answer(opened),
        commands.Run: [*answer(taken), session.finish(reason, detail)],
    }


def answer(made: Sequence[Record]) -> list[Record]:
    """Records without the ends of commands: the engine on the script adds those."""
    return [record for record in made if not isinstance(record, records.Ended)]


def with_texts(answers: Answers, texts: Sequence[str]) -> Answers:
    """The same generation, its steps saying other texts."""
    steps = [record for record in answers[commands.Run] if isinstance(record, records.Step)]
    told = [replace(step, text=text) for step, text in zip(steps, texts, strict=True)]
    return {**answers, commands.Run: [*told, answers[commands.Run][-1]]}


# ---- JSON lines -------------------------------------------------------------------------------


def test_events_come_in_order_with_the_promised_keys() -> None:
    run = Run(script())
    assert run.go() == headless.Outcome(0)
    kinds = [event["event"] for event in run.events]
    assert list(dict.fromkeys(kinds)) == ["model", "prefill", "prompt", "step", "end"]
    assert kinds.count("step") == 5
    found = {event["event"]: event for event in run.events}
    assert found["model"]["name"] == "pocket"
    assert found["model"]["seed"] == 7
    assert "a note" in found["model"]["notes"]
    assert {"done", "total", "ms", "kv"} <= found["prefill"].keys()
    assert {"id", "text", "logprob", "rank", "entropy_bits"} <= found["prompt"]["tokens"][1].keys()
    assert found["step"].keys() >= STEP_KEYS
    assert found["step"]["candidates"][0].keys() >= CANDIDATE_KEYS
    assert {"offset", "used_bytes", "allocated_bytes"} <= found["step"]["kv"].keys()
    assert found["step"]["ms"].keys() >= {"total", "forward", "sample", "inspect"}


def test_values_are_those_of_the_records() -> None:
    answers = script()
    run = Run(answers)
    run.go()
    step = answers[commands.Run][0]
    assert isinstance(step, records.Step)
    event = next(event for event in run.events if event["event"] == "step")
    assert (event["id"], event["text"], event["raw"]) == (step.id, step.text, step.raw.hex())
    assert event["entropy_bits"] == step.choice.entropy_bits
    assert event["candidates"][0]["logprob"] == step.choice.candidates[0].logprob
    assert event["kv"]["used_bytes"] == step.kv.used_bytes
    assert event["stages"] == [
        {"name": stage.name, "kept": stage.kept, "removed_mass": stage.removed_mass}
        for stage in step.choice.stages
    ]


def test_the_end_sums_up() -> None:
    answers = script(steps=5)
    steps = [record for record in answers[commands.Run] if isinstance(record, records.Step)]
    totals = [100.0, 1.0, 2.0, 3.0, 4.0]
    answers[commands.Run] = [
        *(replace(step, ms=replace(step.ms, total=total)) for step, total in zip(steps, totals, strict=True)),
        answers[commands.Run][-1],
    ]
    run = Run(answers)
    run.go()
    end = run.events[-1]
    assert (end["finish_reason"], end["finish_detail"], end["steps"]) == ("length", "5 tokens", 5)
    assert end["text"] == "".join(step.text for step in steps)
    assert (end["tpot_ms"], end["tpot_p50_ms"], end["tpot_p95_ms"]) == (22.0, 3.0, 100.0)
    assert end["generation_tps"] == pytest.approx(1000 / 22)
    prefilled = answers[commands.Prefill][-1]
    assert isinstance(prefilled, records.Prefilled)
    assert (end["ttft_ms"], end["prompt_tps"]) == (prefilled.ttft_ms, prefilled.prompt_tps)
    assert end["peak_bytes"] == steps[-1].memory.peak_bytes
    assert end["seed"] == 7
    assert end["pipelined"] is False


def test_lines_are_strict_json_in_ascii() -> None:
    answers = script()
    first = answers[commands.Run][0]
    assert isinstance(first, records.Step)
    barred = replace(first.choice.candidates[0], logprob=-math.inf, text="\x1b[31m\u202e狐\ud83d")
    choice = replace(first.choice, candidates=(barred,), entropy_bits=math.nan)
    answers[commands.Run] = [replace(first, choice=choice, logprob=-math.inf), *answers[commands.Run][1:]]
    run = Run(answers)
    run.go()
    assert run.out.getvalue().isascii()
    assert "\x1b" not in run.out.getvalue()
    event = next(event for event in run.events if event["event"] == "step")
    assert event["logprob"] is None
    assert event["entropy_bits"] is None
    assert event["candidates"][0]["logprob"] is None
    assert event["candidates"][0]["text"] == "\x1b[31m\u202e狐\ud83d"


def test_the_settings_come_before_the_prompt() -> None:
    run = Run(script())
    run.go()
    assert run.engine is not None
    assert [type(command).__name__ for command in run.engine.sent] == ["Load", "Configure", "Prefill", "Run"]
    assert run.engine.sent[1] == commands.Configure(run.request.settings)


# ---- the text ---------------------------------------------------------------------------------


def test_the_end_of_sequence_is_not_text() -> None:
    answers = script(steps=3, reason="eos", detail="<|im_end|>")
    last = answers[commands.Run][2]
    assert isinstance(last, records.Step)
    answers[commands.Run] = [*answers[commands.Run][:2], replace(last, id=fakes.EOS, text="<|im_end|>", special=True),
                             answers[commands.Run][-1]]  # fmt: skip
    run = Run(answers)
    run.go()
    assert run.events[-1]["text"] == " there was"
    assert run.events[-1]["finish_reason"] == "eos"
    assert run.events[-2]["text"] == "<|im_end|>"


def test_the_text_is_cut_before_a_stop_string_that_spans_tokens() -> None:
    answers = with_texts(script(steps=4, reason="stop", detail="the end"), ["Well, th", "e e", "nd. An", "d"])
    for jsonl in (True, False):
        run = Run(answers, jsonl=jsonl, stop=("the end",))
        run.go()
        text = run.events[-1]["text"] if jsonl else run.out.getvalue().rstrip("\n")
        assert text == "Well, "


def test_what_may_become_a_stop_string_is_held_back() -> None:
    completion = Completion(["stop", "ox"])
    assert completion.add("a st") == "a "
    assert completion.add("o") == ""
    assert completion.add("ve. b") == "stove. b"
    assert completion.add("o") == ""
    assert completion.close() == "o"
    assert completion.text == "a stove. bo"


def test_the_earliest_stop_string_cuts() -> None:
    completion = Completion(["bc", "b"])
    assert completion.add("abcd") == "a"
    assert completion.close() == ""
    assert completion.text == "a"


def test_a_self_overlapping_stop_string() -> None:
    completion = Completion(["aab"])
    assert completion.add("aa") + completion.add("a") + completion.add("c") == "aaac"
    assert completion.add("aaa") + completion.add("b!") + completion.close() == "a"


def test_plain_text_streams_and_sums_up() -> None:
    run = Run(script(), jsonl=False)
    assert run.go() == headless.Outcome(0)
    assert run.out.getvalue() == " there was a little girl\n"
    lines = dict(line.split(maxsplit=1) for line in run.err.getvalue().splitlines())
    assert lines["model"].startswith("pocket: llama, 8 layers, 7.34 M parameters")
    assert lines["finished"] == "length: 5 tokens"
    assert lines["seed"] == "7"
    assert lines["note"] == "a note"
    assert "\x1b" not in run.err.getvalue()


def test_pipelined_steps_are_called_so() -> None:
    answers = script()
    steps = [record for record in answers[commands.Run] if isinstance(record, records.Step)]
    run_on = [replace(step, ms=replace(step.ms, pipelined=True)) for step in steps]
    answers[commands.Run] = [*run_on, answers[commands.Run][-1]]
    run = Run(answers)
    run.go()
    assert run.events[-1]["pipelined"] is True
    run = Run(answers, jsonl=False)
    run.go()
    assert re.search(r"^each token .* tok/s, pipelined$", run.err.getvalue(), re.MULTILINE)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_the_text_as_it_is_and_a_terminal_what_it_may_show() -> None:
    answers = with_texts(script(steps=2), ["\x1b[31mred", "\n\tnext\x9b"])
    piped = Run(answers, jsonl=False)
    piped.go()
    assert piped.out.getvalue() == "\x1b[31mred\n\tnext\x9b\n"
    shown = Run(answers, jsonl=False)
    shown.out = Terminal()
    shown.go()
    assert shown.out.getvalue() == "␛[31mred\n\tnext‹009B›\n"


def test_no_model_text_is_obeyed_by_a_terminal() -> None:
    for piece in fakes.HOSTILE:
        shown = for_terminal(fakes.raw_of(piece).decode("utf-8", "surrogatepass"))
        assert not any((ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0 for char in shown)
        assert not set(shown) & set("\u202e\u202c\u200b\u200d")


def test_progress_is_for_terminals() -> None:
    run = Run(script(), jsonl=False)
    run.err = Terminal()
    run.go()
    assert "loading: import mlx" in run.err.getvalue()
    assert "prefill 3/5" in run.err.getvalue()
    assert loading(records.Loading("download", 5, 20, "some/model")) == "loading: download 25 % some/model"


def test_progress_is_taken_away_before_the_text_and_no_text_with_it() -> None:
    both = Terminal()
    run = Run(script(), jsonl=False)
    run.out = run.err = both
    run.go()
    shown = both.getvalue().rpartition(ERASE)[2]
    assert shown.startswith(" there was a little girl\nmodel ")


def test_a_closed_standard_error_does_not_end_the_text() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    for err in (Gone(), None):
        out = io.StringIO()
        request = Run({}, jsonl=False).request
        writer = PlainText(out, err, request)
        tally = Tally(request.settings)
        for record in script()[commands.Run]:
            writer.take(record, tally.take(record))
        writer.end(tally.summary())
        assert out.getvalue() == " there was a little girl\n"


# ---- failures ---------------------------------------------------------------------------------


def test_an_expected_failure_is_bad_input() -> None:
    failure = records.Failure("Load", "No such directory: x.", "Check the path's spelling.")
    run = Run({commands.Load: [failure]})
    assert run.go() == headless.Outcome(2, failure)
    assert run.out.getvalue() == ""
    assert run.engine is not None
    assert len(run.engine.sent) == 1


def test_an_unexpected_failure_is_a_fault() -> None:
    failure = records.Failure("Run", "boom", "report it", expected=False, trace="Traceback ...")
    run = Run({**script(), commands.Run: [failure]})
    assert run.go() == headless.Outcome(1, failure)
    assert [event["event"] for event in run.events][-1] == "prompt"


class Full(io.StringIO):
    def __init__(self, error: OSError, writes: int) -> None:
        super().__init__()
        self.error, self.writes = error, writes

    def write(self, text: str) -> int:
        self.writes -= 1
        if self.writes < 0:
            raise self.error
        return super().write(text)


def test_a_closed_pipe_ends_it_quietly() -> None:
    run = Run(script())
    run.out = Full(BrokenPipeError(), 2)
    assert run.go() == headless.Outcome(0)
    assert len(run.events) == 2


def test_a_full_disk_is_told() -> None:
    run = Run(script())
    run.out = Full(OSError(errno.ENOSPC, "No space left on device"), 0)
    outcome = run.go()
    assert outcome.code == 2
    assert outcome.failure is not None
    assert outcome.failure.message == "The output can't be written: No space left on device."


# ---- Ctrl-C -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [commands.Load, commands.Prefill, commands.Run])
def test_an_interrupt_ends_with_the_end_event_and_130(command: type[Command]) -> None:
    run = Run(script())
    run.prepare = lambda engine: setattr(engine, "interrupt", command)
    before = signal.getsignal(signal.SIGINT)
    assert run.go() == headless.Outcome(130)
    assert signal.getsignal(signal.SIGINT) is before
    assert run.engine is not None
    assert run.engine.sent[-1].cancel.is_set()
    end = run.events[-1]
    assert (end["event"], end["finish_reason"]) == ("end", "cancelled")
    assert end["steps"] == (1 if command is commands.Run else 0)
    assert (end["ttft_ms"] is None) == (command is not commands.Run)


def test_a_second_interrupt_breaks_in() -> None:
    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            return super().write(text)

    run = Run(script())
    run.out = Stuck()
    assert run.go() == headless.Outcome(130)


def test_an_ignored_interrupt_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = Run(script())
        run.prepare = lambda engine: setattr(engine, "interrupt", commands.Configure)
        assert run.go() == headless.Outcome(0)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_engine_that_does_not_end_is_told() -> None:
    run = Run(script())
    run.prepare = lambda engine: setattr(engine, "joins", False)
    assert run.go() == headless.Outcome(0, joined=False)


def test_the_writer_is_the_one_asked_for() -> None:
    assert isinstance(headless.writer(Run({}).request, io.StringIO(), None), JsonLines)
    assert isinstance(headless.writer(Run({}, jsonl=False).request, io.StringIO(), None), PlainText)
