"""`inspector beam`: its flags, its table and its JSON lines, from records by hand and as a person runs it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from engine import protocol
from engine.settings import BeamSettings
from inspector.cli import main as cli
from inspector.cli.arguments import given, request_from, settings_from
from inspector.cli.flags import parsed
from inspector.cli.subcommands.generate import beam_parser
from inspector.cli.writers.generation import writer
from inspector.cli.writers.sequences import BeamReport
from tests.inspector.cli.scripted import ScriptedRun, as_record, interrupted

STORY = ["-p", "Once upon a time", "--ignore-chat-template"]


def told(node: int, text: str, logprob: float, reason: Any = "length") -> protocol.Hypothesis:
    """A hypothesis of two tokens."""
    return protocol.Hypothesis(node, (7, node), text, logprob, logprob / 2, 2, reason)


def beam(node: int, place: int = 0) -> protocol.Beam:
    """A live beam of one token."""
    return protocol.Beam(node, 3, place, 0, node, "x", -0.5, -0.5, -0.5, 1)


BEST, WORSE, GREEDY = told(8, " one\nday", -1.0, "eos"), told(9, "\x1b[31mred", -3.0), told(10, " two", -2.0)
OPENED = protocol.BeamOpened(3, 2, 1.0, False, 2, "A note of the engine.")
STEPS = (
    protocol.BeamStep(1, (beam(4), beam(5, 1)), (), (), beam(4), 2, 5.0, False),
    protocol.BeamStep(2, (), (beam(5, 1),), (BEST, WORSE), None, 0, 1.0, True),
)


def script(greedy: protocol.Hypothesis = GREEDY) -> list[protocol.Record]:
    """A search of two steps."""
    return [OPENED, *STEPS, protocol.BeamEnded((BEST, WORSE), greedy, (), 2, "length", 6.0)]


class Run(ScriptedRun):
    """One run of the command on a script."""

    def __init__(self, *argv: str, greedy: protocol.Hypothesis = GREEDY) -> None:
        args = parsed(beam_parser(), ["-p", "Once", "--ignore-chat-template", *argv])
        self.settings = settings_from(BeamSettings, given(args))
        answers = {protocol.SearchBeams: script(greedy)}
        then = [protocol.SearchBeams(self.settings)]
        made = lambda asked, out, err: writer(asked, BeamReport(), out=out, err=err)  # noqa: E731
        super().__init__(request_from(args), answers, then, made)


# ---- the flags --------------------------------------------------------------------------------


def test_the_flags_reach_the_engine() -> None:
    run = Run(
        "--width", "7", "--length-penalty", "-0.5", "--early-stopping", "--max-tokens", "12",
        "--min-tokens", "3", "--kv-bits", "8", "--jsonl",
    )  # fmt: skip
    assert run.go() == 0
    assert run.kinds == ["Load", "Configure", "Prefill", "SearchBeams"]
    load, configure, _, asked = run.backend.sent
    assert isinstance(load, protocol.Load)
    assert isinstance(configure, protocol.Configure)
    assert load.settings.kv_bits == 8
    assert configure.settings.min_tokens == 3
    assert asked == protocol.SearchBeams(BeamSettings(7, -0.5, True, 12))


def test_the_defaults_are_those_of_the_engine() -> None:
    run = Run()
    assert run.settings == BeamSettings()
    assert not run.request.jsonl


# ---- what is written --------------------------------------------------------------------------


def test_the_table_has_greedy_below_it_and_foreign_text_made_visible() -> None:
    run = Run()
    assert run.go() == 0
    head, *rows = run.out.getvalue().splitlines()
    assert head.split() == ["rank", "score", "logprob", "tokens", "ends", "text"]
    assert [row.split()[:5] for row in rows] == [
        ["1", "-0.5000", "-1.000", "2", "eos"],
        ["2", "-1.5000", "-3.000", "2", "length"],
        ["greedy", "-1.0000", "-2.000", "2", "length"],
    ]
    assert rows[0].endswith(" one↵day")
    assert "\x1b" not in run.out.getvalue()
    assert "beams       width 2, 2 steps, 6.0 ms" in run.err.getvalue()
    assert "note        A note of the engine." in run.err.getvalue()


def test_greedy_is_marked_where_the_ranking_has_it() -> None:
    run = Run(greedy=BEST)
    run.go()
    assert [row[:8].strip() for row in run.out.getvalue().splitlines()[1:]] == ["1 greedy", "2"]


def test_equal_texts_are_told_apart_by_the_token_that_ended_them() -> None:
    best, greedy = replace(BEST, end="<|im_end|>"), replace(BEST, node=11, end="<|end\x1b|>")
    run = Run(greedy=greedy)
    ended = protocol.BeamEnded((best, WORSE), greedy, (), 2, "length", 6.0)
    run.backend.answers = {protocol.SearchBeams: [OPENED, *STEPS, ended]}
    run.go()
    lines = run.out.getvalue().splitlines()
    place = lines[0].index("ends")
    assert [line[place:].split("  ")[0] for line in lines[1:]] == ["eos <|im_end|>", "length", "eos <|end␛|>"]
    assert {line.index("text") for line in lines[:1]} == {line.index(" one↵day") for line in lines[1::2]}


def test_json_lines_hold_every_step_and_the_ranking() -> None:
    run = Run("--jsonl")
    run.go()
    assert [
        as_record(event, type(told)) for event, told in zip(run.events, script(), strict=True)
    ] == script()
    assert run.out.getvalue().isascii()


def test_an_interrupt_ends_with_what_there_is_and_130() -> None:
    run = Run("--jsonl")
    run.backend.interrupt = protocol.SearchBeams
    assert run.go() == 130
    assert [event["event"] for event in run.events] == ["BeamOpened"]
    table = Run()
    table.backend.interrupt = protocol.SearchBeams
    assert table.go() == 130
    assert table.out.getvalue() == ""
    assert "beams       cancelled" in table.err.getvalue()


def test_a_failure_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    failure = protocol.Failure("SearchBeams", "It broke.", "Correct it.")
    run.backend.answers[protocol.SearchBeams] = [failure]
    assert run.go() == 2
    assert capsys.readouterr().err == "inspector: error: It broke. Correct it.\n"
    assert run.out.getvalue() == ""


# ---- as a person runs it ----------------------------------------------------------------------


def test_the_bundled_model_tells_its_stories(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["beam", *STORY, "--width", "3", "--max-tokens", "8"]) == 0
    printed = capsys.readouterr()
    rows = printed.out.splitlines()
    assert len(rows) in (4, 5)
    scores = [float(row[8:].split()[0]) for row in rows[1:4]]
    assert scores == sorted(scores, reverse=True)
    assert sum("greedy" in row for row in rows) == 1
    assert any(row.endswith(", there was a little girl named Lily") for row in rows)
    assert "beams       width 3, 8 steps" in printed.err


@pytest.mark.slow
def test_ctrl_c_in_the_middle() -> None:
    argv = ("beam", *STORY, "--width", "8", "--max-tokens", "400", "--min-tokens", "400")
    end = interrupted("BeamStep", *argv)
    assert (end["event"], end["last"]) == ("BeamStep", False)
