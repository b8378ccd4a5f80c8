"""A generation as plain text and as JSON lines: what is written of it, where to, and in which order."""

from __future__ import annotations

import io
import json
import math
import re

import pytest
from msgspec import convert
from msgspec.structs import replace

from engine import protocol
from engine.recording.file import LoadSettingsUsed, SettingsUsed
from inspector.cli.driver import Summary
from inspector.cli.writers.diff import DiffReading
from inspector.cli.writers.generation import (
    ERASE,
    GenerationFigures,
    PlainText,
    Report,
    for_terminal,
)
from inspector.cli.writers.json_lines import PROGRESS, json_line
from inspector.cli.writers.measured import Measurements, RaceReport
from inspector.cli.writers.sequences import BatchReport
from tests.inspector import fakes
from tests.inspector.cli.scripted import Run, Terminal, as_record, of_kind, script, with_texts
from tests.inspector.cold import cold_start


def test_plain_text_streams_and_sums_up() -> None:
    run = Run(script(), jsonl=False)
    assert run.go() == 0
    assert run.out.getvalue() == " there was a little girl\n"
    lines = dict(line.split(maxsplit=1) for line in run.err.getvalue().splitlines())
    assert lines["model"].startswith("pocket: llama, 8 layers, 7.34 M parameters")
    assert lines["finished"] == "length: 5 tokens"
    assert lines["seed"] == "7"
    assert lines["note"] == "a note"
    assert "\x1b" not in run.err.getvalue()


def test_a_warning_is_written_once_and_before_all_else() -> None:
    answers = script()
    progress = [protocol.Loading("weights", done, 2, "w", "it will swap") for done in range(3)]
    loaded = [
        replace(record, notes=("a note", "it will swap"))
        if isinstance(record, protocol.ModelFacts)
        else record
        for record in answers[protocol.Load]
    ]
    answers[protocol.Load] = [*progress, *loaded]
    run = Run(answers, jsonl=False)
    run.go()
    assert run.err.getvalue().startswith("warning     it will swap\n")
    assert run.err.getvalue().count("it will swap") == 1
    assert "note        a note\n" in run.err.getvalue()


def test_pipelined_steps_are_called_so() -> None:
    answers = script()
    steps = [record for record in answers[protocol.Run] if isinstance(record, protocol.Step)]
    run_on = [replace(step, ms=replace(step.ms, pipelined=True)) for step in steps]
    answers[protocol.Run] = [*run_on, answers[protocol.Run][-1]]
    run = Run(answers)
    run.go()
    assert run.events[-1]["pipelined"] is True
    run = Run(answers, jsonl=False)
    run.go()
    assert re.search(r"^each token .* tok/s, pipelined$", run.err.getvalue(), re.MULTILINE)


def test_a_cold_start_is_marked_and_in_no_rate() -> None:
    answers = {kind: cold_start(told) for kind, told in script(steps=3).items()}
    run = Run(answers, jsonl=False)
    run.go()
    told = run.err.getvalue()
    assert re.search(r"^prompt +5 tokens$", told, re.MULTILINE)
    assert re.search(r"^first token .*, with warm-up$", told, re.MULTILINE)
    assert re.search(
        r"^each token  \d\.\d ms .* tok/s; not counted: the first, 900 ms, with warm-up$", told, re.MULTILINE
    )
    answers = {kind: cold_start(told) for kind, told in script(steps=1).items()}
    run = Run(answers, jsonl=False)
    run.go()
    assert "each token  900 ms, with warm-up\n" in run.err.getvalue()
    assert "tok/s" not in run.err.getvalue()


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
    download = protocol.Loading("download", 5, 20, "some/model")
    assert Report().progress(download) == "loading: download 25 % some/model"


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
        writer = PlainText(out, err, request, GenerationFigures(request))
        summary = Summary(request.settings)
        for record in script()[protocol.Run]:
            writer.take(record, summary.take(record))
        writer.end(summary)
        assert out.getvalue() == " there was a little girl\n"


@pytest.mark.parametrize("jsonl", [False, True])
def test_the_first_token_is_written_before_its_own_forward_begins(jsonl: bool) -> None:
    run = Run(script(), jsonl=jsonl)
    written: dict[str, str] = {}
    send = run.backend.send

    def note(sent: protocol.Sent) -> None:
        written[sent.command.kind] = run.out.getvalue()
        send(sent)

    run.backend.send = note  # type: ignore[method-assign]
    run.go()
    if jsonl:
        events = [json.loads(line) for line in written["Run"].splitlines()]
        [first] = of_kind(events, protocol.Prefilled)
        assert [each.text for each in first.next.candidates if each.id == first.next.picked] == [" there"]
        assert run.events[-1]["first_token_ms"] >= 0
    else:
        assert written["Run"] == " there"
    assert (run.events[-1]["text"] if jsonl else run.lines[0]) == " there was a little girl"


def test_the_first_token_is_not_written_where_no_step_takes_it() -> None:
    opened = script()[protocol.Prefill]
    window = next(len(record.tokens) for record in opened if isinstance(record, protocol.Prefilled))
    full = script(context_window=window)
    run = Run({**full, protocol.Run: [full[protocol.Run][-1]]}, jsonl=False)
    run.go()
    assert run.out.getvalue() == ""


# ---- as JSON ----------------------------------------------------------------------------------


def test_each_record_is_a_line_with_the_settings_where_a_recording_has_them() -> None:
    run = Run(script())
    assert run.go() == 0
    kinds = [event["event"] for event in run.events]
    assert kinds[:4] == ["LoadSettings", "ModelFacts", "Settings", "FlagNotes"]
    assert kinds[4] == "PromptOpened"
    assert [*dict.fromkeys(kinds[5:])] == [
        "PrefillChunk", "Prefilled", "PromptReadings", "Step", "Finished", "Summary",
    ]  # fmt: skip
    assert convert(run.events[0], LoadSettingsUsed).settings == run.request.load
    assert convert(run.events[2], SettingsUsed).settings == run.request.settings
    assert run.events[3]["notes"] == ["a note"]


def test_values_are_those_of_the_records() -> None:
    answers = script()
    run = Run(answers)
    run.go()
    told = [record for records in answers.values() for record in records if not isinstance(record, PROGRESS)]
    own = [event for event in run.events if event["event"] not in ("LoadSettings", "Settings", "FlagNotes")]
    assert [as_record(event, type(record)) for event, record in zip(own, told, strict=False)] == told
    assert [event["event"] for event in own[len(told) :]] == ["Summary"]


def test_progress_is_no_line() -> None:
    answers = script()
    progress = (
        protocol.Measuring("Load", 1, 2, "it"),
        protocol.DraftLoading("d", 1, 2),
        protocol.Restoring(1, 2),
    )
    answers[protocol.Load] = [protocol.Loading("weights", 1, 2, "w"), *answers[protocol.Load], *progress]
    run, plain = Run(answers), Run(script())
    run.go()
    plain.go()
    assert [event["event"] for event in run.events] == [event["event"] for event in plain.events]


def test_the_end_sums_up() -> None:
    answers = script(steps=5)
    steps = [record for record in answers[protocol.Run] if isinstance(record, protocol.Step)]
    totals = [100.0, 1.0, 2.0, 3.0, 4.0]
    answers[protocol.Run] = [
        *(replace(step, ms=replace(step.ms, total=total)) for step, total in zip(steps, totals, strict=True)),
        answers[protocol.Run][-1],
    ]
    run = Run(answers)
    run.go()
    end = run.events[-1]
    assert (end["reason"], end["detail"], end["steps"]) == ("length", "5 tokens", 5)
    assert end["text"] == "".join(step.text for step in steps)
    assert [end["tpot"][name] for name in ("mean", "p50", "p95")] == [22.0, 3.0, 100.0]
    assert end["generation_tps"] == pytest.approx(1000 / 22)
    prefilled = next(each for each in answers[protocol.Prefill] if isinstance(each, protocol.Prefilled))
    assert (end["ttft_ms"], end["prompt_tps"]) == (prefilled.ttft_ms, prefilled.prompt_tps)
    assert end["peak_bytes"] == steps[-1].memory.peak_bytes
    assert end["seed"] == 7
    assert end["pipelined"] is False


def test_a_cold_start_is_marked_in_json_and_in_no_rate() -> None:
    answers = {kind: cold_start(told) for kind, told in script(steps=5).items()}
    run = Run(answers)
    run.go()
    [prompt] = of_kind(run.events, protocol.Prefilled)
    assert prompt.cold
    steps = [step.ms for step in of_kind(run.events, protocol.Step)]
    assert [ms.cold for ms in steps] == [True, False, False, False, False]
    end = run.events[-1]
    assert (end["cold"], end["cold_step_ms"], end["prompt_tps"], end["steps"]) == (True, 900.0, None, 5)
    assert end["tpot"]["p95"] == max(ms.total for ms in steps[1:])
    assert end["generation_tps"] == pytest.approx(4000 / sum(ms.total for ms in steps[1:]))


def test_lines_are_strict_json_in_ascii() -> None:
    answers = script()
    first = answers[protocol.Run][0]
    assert isinstance(first, protocol.Step)
    barred = replace(first.choice.candidates[0], logprob=-math.inf, text="\x1b[31m\u202e狐🦊\x7f\x9b")
    choice = replace(first.choice, candidates=protocol.Candidates((barred,)), entropy_bits=math.nan)
    answers[protocol.Run] = [replace(first, choice=choice, logprob=-math.inf), *answers[protocol.Run][1:]]
    run = Run(answers)
    run.go()
    assert run.out.getvalue().isascii()
    assert not set("\x1b\x7f") & set(run.out.getvalue())
    event = next(event for event in run.events if event["event"] == "Step")
    assert (event["logprob"], event["choice"]["entropy_bits"]) == (None, None)
    assert event["choice"]["candidates"][0]["logprob"] is None
    assert event["choice"]["candidates"][0]["text"] == barred.text


def test_half_a_surrogate_pair_is_escaped_and_the_rest_is_as_it_was() -> None:
    line = json_line(protocol.Marked(3, "a\ud83d", note="é"))
    assert as_record(json.loads(line), protocol.Marked) == protocol.Marked(3, r"a\ud83d", note="é")
    assert json.loads(json_line({"path": "\udcff", "best": math.inf})) == {"path": r"\udcff", "best": None}


def test_the_end_of_sequence_is_not_text() -> None:
    answers = script(steps=3, reason="eos", detail="<|im_end|>")
    last = answers[protocol.Run][2]
    assert isinstance(last, protocol.Step)
    answers[protocol.Run] = [*answers[protocol.Run][:2], replace(last, id=fakes.EOS, text="<|im_end|>", special=True),
                             answers[protocol.Run][-1]]  # fmt: skip
    run = Run(answers)
    run.go()
    assert run.events[-1]["text"] == " there was"
    assert run.events[-1]["reason"] == "eos"
    assert of_kind(run.events, protocol.Step)[-1].text == "<|im_end|>"


def test_the_text_is_cut_before_a_stop_string_that_spans_tokens() -> None:
    answers = with_texts(script(steps=4, reason="stop", detail="the end"), ["Well, th", "e e", "nd. An", "d"])
    for jsonl in (True, False):
        run = Run(answers, jsonl=jsonl, stop=("the end",))
        run.go()
        text = run.events[-1]["text"] if jsonl else run.out.getvalue().rstrip("\n")
        assert text == "Well, "


def test_the_prompt_has_its_segments_and_the_end_those_of_the_reply() -> None:
    marks = (
        protocol.ReplyMark("answer", "<think>", "thinking"),
        protocol.ReplyMark("thinking", "</t>", "answer"),
    )
    runs = (protocol.SegmentRun("user", 0, 2, 0),)
    segments = protocol.PromptSegments(runs, (), protocol.ReplyFormat("answer", marks))
    answers = with_texts(script(), ("<th", "ink>", "Hm", "</t", ">"))
    answers[protocol.Prefill] = [
        replace(record, segments=segments) if isinstance(record, protocol.PromptOpened) else record
        for record in answers[protocol.Prefill]
    ]
    run = Run(answers)
    run.go()
    told = [(each["kind"], each["begin"], each["end"]) for each in run.events[-1]["segments"]]
    assert told == [("markup", 0, 2), ("thinking", 2, 3), ("markup", 3, 5)]
    [prompt] = of_kind(run.events, protocol.PromptOpened)
    assert prompt.segments.runs == runs


TOLD = [
    (Report(), protocol.DraftLoading("d", 1, 2), "loading the draft: 1/2 d"),
    (Measurements(), protocol.Measuring("Profile", 1, 3, "mlp"), "mlp, 1 of 3"),
    (RaceReport(), protocol.Measuring("Race", 1, 3, "warm"), "race: warm, 1 of 3"),
    (
        BatchReport(Run({}).request),
        protocol.Measuring("CompareBatch", 1, 3, "lane 2"),
        "lane 2, 1 of 3",
    ),
    (
        DiffReading(),
        protocol.Measuring("OpenLockstep", 2, 5, "weights w"),
        "second model: weights w, 2 of 5",
    ),
    (DiffReading(), protocol.LockstepRead(-1, 0, (), 3, 9, 1.0, 1.0), "read 3/9 tokens"),
]


@pytest.mark.parametrize(("report", "record", "told"), TOLD)
def test_each_command_shows_its_own_progress_on_a_terminal_alone(
    report: Report, record: protocol.Record, told: str
) -> None:
    for err in (Terminal(), io.StringIO()):
        PlainText(io.StringIO(), err, Run(script(), jsonl=False).request, report).take(record, "")
        assert err.getvalue() == (told if err.isatty() else "")
