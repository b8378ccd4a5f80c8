"""`inspector score`: its flags, its table and JSON lines from records by hand, and the bundled model against mlx_lm."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from engine import protocol
from engine.settings import LoadSettings, Settings
from inspector.cli import main as cli
from inspector.cli.flags import parsed
from inspector.cli.subcommands.texts import score_parser, score_request_from
from inspector.cli.writers.generation import writer
from inspector.cli.writers.tokens import Score
from inspector.export.recording import read, totals
from tests.inspector import fakes
from tests.inspector.cli.scripted import (
    Complaint,
    Events,
    ScriptedRun,
    Terminal,
    answer,
    interrupted,
    of_kind,
)
from tests.inspector.cli.test_main import run

TEXT = "Once upon a time, there was a little girl named Lily.\nShe loved to play with her toys."


class Run(ScriptedRun):
    """One run of the command on a script."""

    def __init__(self, file: Path, *argv: str, pieces: Any = fakes.PROMPT) -> None:
        file.write_text("Once upon a time,", encoding="utf-8")
        args, session = parsed(score_parser(), [str(file), *argv]), fakes.Session()
        answers = {
            protocol.Load: answer(session.load()),
            protocol.Prefill: answer(session.open(pieces, chunk=1)),
        }
        made = lambda asked, *to: writer(asked, Score(not args.summary), *to)  # noqa: E731
        super().__init__(score_request_from(args), answers, writer=made)

    @property
    def tokens(self) -> list[protocol.PromptToken]:
        """The tokens with their readings."""
        answered = self.backend.answers[protocol.Prefill]
        read = (each for each in answered if isinstance(each, protocol.PromptReadings))
        return [token for each in read for token in each.tokens]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "text.txt"


# ---- the flags --------------------------------------------------------------------------------


def test_the_text_is_prefilled_raw_with_its_logprobs_and_not_continued(file: Path) -> None:
    run = Run(file, "--kv-bits", "8", "--model", "some/model")
    assert run.go() == 0
    assert run.kinds == ["Load", "Configure", "Prefill"]
    assert run.backend.sent[-1] == protocol.Prefill("Once upon a time,", False, None, True)
    assert (run.request.load.kv_bits, run.request.load.model) == (8, "some/model")
    assert run.request.settings.candidates == 1
    assert Run(file, "--jsonl").request.settings.candidates == 20
    assert Run(file, "--jsonl", "--candidates", "3").request.settings.candidates == 3


def test_the_text_itself_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    def prompt(*argv: str) -> str:
        return score_request_from(parsed(score_parser(), argv)).prefill.text

    assert prompt("-p", r"Once upon\na time") == "Once upon\na time"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe")))
    assert prompt("--prompt", "-") == "from a pipe"


def test_through_the_chat_template_when_asked(file: Path) -> None:
    run = Run(file, "--chat-template", "--system-prompt", "be kind")
    run.go()
    assert run.backend.sent[-1] == protocol.Prefill("Once upon a time,", True, "be kind", True)
    assert Run(file, "--system-prompt", "x").request.notes == (
        "--system-prompt has no effect without --chat-template.",
    )


def test_bad_input_is_one_line(file: Path, complaint: Complaint, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"a\x80")
    assert "is not UTF-8 (byte 0x80 at offset 1)" in complaint("score", str(file))
    file.write_bytes(b"")
    assert complaint("score", str(file)).startswith("The text is empty: there is nothing to score.")
    assert complaint("score", str(file / "no")).startswith(f"The file {file}/no can't be read")
    assert complaint("score", "Is it?..").startswith("There is no file 'Is it?..'. Check")
    assert complaint("score").startswith("No text was given. Name a file, or - for standard input")
    assert complaint("score", str(file), "-p", "x").startswith("A FILE and --prompt were both given.")
    assert complaint("score", "-p", "").startswith("The text is empty")
    assert complaint("score", "--candidates", "0", str(file)).startswith("--candidates")
    monkeypatch.setattr(sys, "stdin", None)
    assert complaint("score", "-") == "Standard input is closed. Give the text in a file, or with -p TEXT."


# ---- what is written --------------------------------------------------------------------------


def test_the_table_has_a_line_a_token_and_the_sums_below(file: Path) -> None:
    run = Run(file)
    run.go()
    table, below = run.out.getvalue().split("\n\n")
    head, first, *rows = table.splitlines()
    assert head.split() == ["pos", "token", "p", "logprob", "bits", "rank", "entropy"]
    assert first.split() == ["1", "Once"]
    assert [row.split()[1] for row in rows] == ["␣upon", "␣a", "␣time", ","]
    logprobs = [token.logprob for token in run.tokens if token.logprob is not None]
    assert len(logprobs) == 4
    told = dict(line.split(maxsplit=1) for line in below.splitlines() if line.split()[0] != "bits")
    assert told["tokens"] == "5, of which 4 were scored"
    assert told["logprob"] == f"{sum(logprobs):.4f}, {sum(logprobs) / 4:.4f} a token"
    assert float(told["perplexity"]) == pytest.approx(math.exp(-sum(logprobs) / 4), abs=1e-4)
    assert "bits per byte      " in below
    assert "over 13 bytes" in below
    assert "model       pocket" in run.err.getvalue()


def test_the_summary_leaves_the_tokens_out(file: Path) -> None:
    run = Run(file, "--summary")
    run.go()
    assert run.out.getvalue().startswith("tokens             5, of which 4 were scored\n")
    lines = Run(file, "--summary", "--jsonl")
    lines.go()
    assert [event["event"] for event in lines.events] == [
        "LoadSettings", "ModelFacts", "Settings", "ScoreSummary",
    ]  # fmt: skip


def test_json_lines_hold_every_token_and_the_sums(file: Path) -> None:
    run = Run(file, "--jsonl")
    run.go()
    tokens, end = run.tokens, run.events[-1]
    assert [token for each in of_kind(run.events, protocol.PromptReadings) for token in each.tokens] == tokens
    total = math.fsum(each.logprob for each in tokens if each.logprob is not None)
    assert end["complete"]
    assert (end["tokens"], end["scored"], end["bytes"], end["characters"]) == (5, 4, 13, 13)
    assert end["logprob"] == pytest.approx(total)
    assert end["perplexity"] == pytest.approx(math.exp(-total / 4))
    assert end["bits"] == pytest.approx(-total / math.log(2))
    assert end["bits_per_byte"] == pytest.approx(end["bits"] / 13)
    assert run.out.getvalue().isascii()


def test_hostile_tokens_are_made_visible(file: Path) -> None:
    run = Run(file, pieces=fakes.HOSTILE)
    run.go()
    assert "[/nope]" in run.out.getvalue()
    assert not any(char in run.out.getvalue() for char in "\x1b\x9b\x00\u202e")


def test_a_single_token_has_no_score(file: Path) -> None:
    run = Run(file, "--jsonl", pieces=("Once",))
    run.go()
    end = run.events[-1]
    assert (end["complete"], end["scored"], end["perplexity"], end["bits_per_byte"]) == (True, 0, None, None)
    table = Run(file, pieces=("Once",))
    table.go()
    assert table.out.getvalue().endswith("tokens             1, of which none was scored\n")


def test_an_interrupt_ends_with_what_there_is_and_130(file: Path) -> None:
    run = Run(file, "--jsonl")
    run.backend.interrupt = protocol.Prefill
    assert run.go() == 130
    assert (run.events[-1]["event"], run.events[-1]["complete"]) == ("ScoreSummary", False)
    table = Run(file)
    table.backend.interrupt = protocol.Prefill
    assert table.go() == 130
    assert "of which none was scored before it was stopped" in table.out.getvalue()


def test_progress_is_shown_where_no_tokens_are_and_taken_away(file: Path) -> None:
    run = Run(file)
    run.err = Terminal()
    run.go()
    assert "scored 3/5" in run.err.getvalue()
    assert "\x1b" not in run.out.getvalue()
    streaming = Run(file)
    streaming.out, streaming.err = Terminal(), Terminal()
    streaming.go()
    assert "scored 3/5" not in streaming.err.getvalue()


# ---- the bundled model ------------------------------------------------------------------------


@pytest.fixture
def scored(events: Events, file: Path) -> Events:
    """The events of a score of a text by the bundled model."""

    def run(text: str, *argv: str) -> list[dict[str, Any]]:
        file.write_text(text, encoding="utf-8")
        return events("score", str(file), "--jsonl", *argv)

    return run


def dtype_of_pocket() -> str:
    """What the bundled model computes in on this machine."""
    from engine.model.load import load
    from engine.settings import LoadSettings

    return load(LoadSettings()).facts.dtype


@pytest.mark.wide(1)
@pytest.mark.parametrize("chunk", ["3", "512"])
def test_the_scores_are_those_of_mlx_lm_s_logits(scored: Events, chunk: str) -> None:
    events = scored(TEXT, "--prefill-step-size", chunk, "--candidates", "2")
    [opened], end = of_kind(events, protocol.PromptOpened), events[-1]
    tokens = [token for each in of_kind(events, protocol.PromptReadings) for token in each.tokens]
    # after the engine's thread has quieted the libraries
    import mlx.core as mx
    import numpy as np
    from mlx_lm import load

    from engine import pocket

    model, tokenizer = load(str(pocket.directory()))[:2]
    model.set_dtype(getattr(mx, dtype_of_pocket()))
    ids = tokenizer.encode(TEXT)
    assert [token.id for token in opened.tokens] == ids
    logits = np.array(model(mx.array([ids]))[0].astype(mx.float32)).astype(np.float64)
    expected = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
    expected -= logits.max(-1, keepdims=True)
    for token, row in zip(tokens, expected[:-1], strict=True):
        assert token.logprob == pytest.approx(row[token.id], abs=1e-3)
        assert token.candidates[0].logprob == pytest.approx(row.max(), abs=1e-3)
    total = sum(row[token.id] for token, row in zip(tokens, expected[:-1], strict=True))
    assert end["logprob"] == pytest.approx(total, abs=1e-3)
    assert end["logprob"] == pytest.approx(math.fsum(token.logprob or 0.0 for token in tokens))
    assert end["perplexity"] == pytest.approx(math.exp(-total / (len(ids) - 1)), rel=1e-4)
    assert end["bytes"] == len(TEXT.encode()) - len("Once")


def test_bytes_and_characters_are_counted_apart(scored: Events) -> None:
    *_, end = scored("It cost 5 € and 😀!")
    rest = " cost 5 € and 😀!"
    assert (end["bytes"], end["characters"]) == (len(rest.encode()), len(rest))
    assert end["bits_per_character"] == pytest.approx(end["bits"] / len(rest))


def test_more_than_the_window_says_so(file: Path) -> None:
    file.write_text("Once upon a time there was a dog.\n" * 100)
    done = run("score", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "inspector: error: The text has 1000 tokens, the model's context window holds 512. Shorten the text.\n"
    )


@pytest.mark.slow
def test_ctrl_c_in_the_middle(file: Path) -> None:
    file.write_text("Once upon a time there was a dog. " * 50)
    end = interrupted("PrefillChunk", "score", str(file), "--prefill-step-size", "1")
    assert (end["event"], end["complete"]) == ("ScoreSummary", False)


# ---- as a recording ---------------------------------------------------------------------------


def test_a_score_opens_as_a_recording_with_every_reading_and_candidate(
    events: Events, file: Path, tmp_path: Path
) -> None:
    file.write_text(TEXT, encoding="utf-8")
    out = tmp_path / "score.trace.zst"
    told = events("score", str(file), "--jsonl", "-o", str(out))
    recording = read(out)
    tokens = [token for each in of_kind(told, protocol.PromptReadings) for token in each.tokens]
    assert recording.items[1:] == tokens
    assert [len(each.candidates) for each in tokens] == [20] * len(tokens)
    assert (recording.load, recording.settings) == (LoadSettings(), Settings(candidates=20))
    assert ("prompt perplexity", f"{told[-1]['perplexity']:.2f}") in list(
        totals(recording.timeline, recording.items)
    )


def test_a_recording_that_can_not_be_written_is_told_before_the_work(
    complaint: Complaint, file: Path, tmp_path: Path
) -> None:
    file.write_text(TEXT, encoding="utf-8")
    there = tmp_path / "there.trace"
    there.write_text("mine")
    assert "there.trace already exists" in complaint("score", str(file), "-o", str(there))
    assert "is a directory" in complaint("score", str(file), "-o", str(tmp_path))
    assert "There is no directory" in complaint("score", str(file), "-o", str(tmp_path / "no" / "a"))
    assert "can't go to standard output" in complaint("score", str(file), "-o", "-")
    assert there.read_text() == "mine"
    assert cli.main(["score", str(file), "-o", str(there), "--force"]) == 0
    assert read(there).timeline.prompts.opened is not None


def test_a_text_that_can_not_be_scored_leaves_no_recording(
    capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path
) -> None:
    file.write_text("word " * 2000, encoding="utf-8")
    assert cli.main(["score", str(file), "-o", str(tmp_path / "a.trace")]) == 2
    assert sorted(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("raws", "text", "counted", "characters"),
    [
        (
            (b"<s>", " Önce".encode(), b" upon"),
            "Önce upon",
            10,
            9,
        ),  # sentencepiece: a mark, and a space before the text
        ((b"<s>", b"Once", b" upon", b"</s>"), "Once upon", 9, 9),
        ((b" Once", b" upon"), "Once upon", 5, 5),  # the first token has no score
        ((b"Once", b" upon"), "Once upon", 5, 5),
        ((b"<s>", b"once", b" upon"), "ONCE UPON", 9, 9),  # a tokenizer that changes letters
        ((b"<s>", b"s", b">"), "s>", 2, 2),
    ],
)
def test_bits_per_byte_are_over_the_bytes_of_the_text(
    raws: tuple[bytes, ...], text: str, counted: int, characters: int
) -> None:
    tokens = tuple(
        protocol.PromptToken(place, place, place, raw.decode(), raw, False, logprob=-1.0 if place else None)
        for place, raw in enumerate(raws)
    )
    mine = Score()
    mine.take(protocol.PromptOpened(text, False, tokens, True))
    mine.take(protocol.PromptReadings(tokens[1:], 9.0, 0))
    assert (mine.figures.bytes, mine.figures.characters) == (counted, characters)


@pytest.mark.parametrize(
    ("cold", "tps"), [(False, 1000 / (70 / 10 + 9 / 9)), (True, 1000 / (30 / 6 + 9 / 9))]
)
def test_tokens_a_second_are_those_of_chunks_and_readings_without_a_cold_start(
    cold: bool, tps: float
) -> None:
    tokens = tuple(
        protocol.PromptToken(place, place, place, "a", b"a", False, logprob=-1.0 if place else None)
        for place in range(10)
    )
    session = fakes.Session()
    session.load()
    kv = fakes.reading(10, session.model)
    mine = Score()
    mine.take(protocol.PromptOpened("a" * 10, False, tokens, True))
    assert (mine.figures.tps, mine.figures.complete) == (0, False)
    mine.take(protocol.PrefillChunk(4, 10, 40.0, kv, cold))
    mine.take(protocol.PrefillChunk(10, 10, 30.0, kv))
    assert mine.figures.tps == 0
    mine.take(protocol.PromptReadings(tokens[1:], 9.0, 0))
    assert mine.figures.tps == pytest.approx(tps)
    assert (mine.scored, mine.figures.complete) == (9, True)
