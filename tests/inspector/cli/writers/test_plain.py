"""A generation as plain text, for pipes and for terminals, with its progress and its figures."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest

from engine import protocol
from inspector.cli.driver import Outcome
from inspector.cli.summary import Tally
from inspector.cli.writers.plain import ERASE, PlainText, for_terminal, loading
from tests.inspector import fakes
from tests.inspector.cli.scripted import Run, Terminal, script, with_texts
from tests.inspector.cold import cold_start


def test_plain_text_streams_and_sums_up() -> None:
    run = Run(script(), jsonl=False)
    assert run.go() == Outcome(0)
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
    assert re.search(r"^prompt +5 tokens, cold start$", told, re.MULTILINE)
    assert re.search(r"^first token .*, cold start$", told, re.MULTILINE)
    assert re.search(
        r"^each token  \d\.\d ms .* tok/s; without the first, 900 ms, cold start$", told, re.MULTILINE
    )
    answers = {kind: cold_start(told) for kind, told in script(steps=1).items()}
    run = Run(answers, jsonl=False)
    run.go()
    assert "each token  900 ms, cold start\n" in run.err.getvalue()
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
    assert loading(protocol.Loading("download", 5, 20, "some/model")) == "loading: download 25 % some/model"


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
        for record in script()[protocol.Run]:
            writer.take(record, tally.take(record))
        writer.end(tally.summary())
        assert out.getvalue() == " there was a little girl\n"


@pytest.mark.parametrize("jsonl", [False, True])
def test_the_first_token_is_written_before_its_own_forward_begins(jsonl: bool) -> None:
    run = Run(script(), jsonl=jsonl)
    written: dict[str, str] = {}
    send = run.backend.send

    def note(command: protocol.Command) -> None:
        written[type(command).__name__] = run.out.getvalue()
        send(command)

    run.backend.send = note  # type: ignore[method-assign]
    run.go()
    if jsonl:
        events = [json.loads(line) for line in written["Run"].splitlines()[-2:]]
        assert [event["event"] for event in events] == ["first_token", "prompt"]
        assert events[0]["text"] == events[1]["first_token"]["text"] == " there"
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
