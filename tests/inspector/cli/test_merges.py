"""`inspector tokens --merges` and `--beside`: ladders, tokens that face each other, JSON lines, and what is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from engine import protocol
from engine.settings import LoadSettings, Settings
from engine.tokenizers.tracer import TokenizerTracer, on_disk
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import run as run_commands
from inspector.cli.flags import parsed
from inspector.cli.subcommands.texts import run_tokens, tokens_parser
from inspector.cli.writers.generation import writer
from inspector.cli.writers.tokens import TextApart
from tests.inspector.cli.scripted import ScriptedBackend, Terminal, as_record

POCKET = on_disk("pocket", "pocket")
LETTERS = TokenizerTracer(
    Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "<x>": 3}, merges=[("a", "b")], unk_token="<x>")),
    "\x1b[31mletters",
)


def written(
    *taken: protocol.TakenApart, jsonl: bool = False, ladders: bool = True, summary: bool = False
) -> str:
    """What the writer makes of tokenizers."""
    request = CliRequest(LoadSettings(), Settings(), protocol.Prefill("text", False), jsonl)
    out = io.StringIO()
    answers: Sequence[protocol.Record] = taken
    backend = ScriptedBackend({protocol.TakeApart: answers})

    def make(emit):  # type: ignore[no-untyped-def]
        backend.emit = emit
        return backend

    made = writer(request, TextApart("text", ladders, not summary), out, Terminal())
    assert run_commands(request, made, [protocol.TakeApart("text")], make, loads=False) == 0
    return out.getvalue()


def test_a_ladder_has_each_merge_with_its_rank_and_each_word_once() -> None:
    lines = written(POCKET.trace("the unhappiness unhappiness")).splitlines()
    assert lines[0].startswith("pocket: 10 tokens, 2.70 characters a token · BPE, 4,096 in the vocabulary")
    begin = lines.index("␣unhappiness   4 tokens")
    assert lines[begin + 1].split() == ["rank", "pieces"]
    assert lines[begin + 2].split() == ["␣│u│n│h│a│p│p│i│n│e│s│s"]
    assert lines[begin + 3].split() == ["11", "␣│u│n│h│a│p│p│in│e│s│s"]
    assert lines[begin + 10].split() == ["2,511", "␣un│h│app│iness"]
    assert sum("unhappiness   " in line for line in lines) == 1


def test_two_tokenizers_face_each_other_and_nothing_of_theirs_is_run() -> None:
    text = written(POCKET.trace("abba"), LETTERS.trace("abba"), ladders=False)
    first, second, *_ = text.splitlines()
    assert (first, second) == ("a│bb│a│", "ab│b│a│")
    assert "\x1b" not in text


def test_a_long_ladder_is_told_by_its_beginning_and_its_end() -> None:
    lines = written(POCKET.trace(" " + "unhappiness" * 20)).splitlines()
    assert len(lines) < 60
    assert any("more" in line for line in lines)
    assert all(len(line) <= 100 for line in lines)


def test_json_lines_have_all_of_it() -> None:
    taken = POCKET.trace("unhappiness")
    assert as_record(json.loads(written(taken, jsonl=True)), protocol.TakenApart) == taken
    summed = as_record(json.loads(written(taken, jsonl=True, summary=True)), protocol.TakenApart)
    assert (summed.words, summed.tokens) == ((), 4)


def test_a_conversation_is_taken_apart_with_the_marks_of_its_template(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_tokens(parsed(tokens_parser(), ["-p", "unhappiness", "--chat", "--merges"])) == 0
    out = capsys.readouterr().out
    assert "<|im_start|>   an added token, cut out first" in out
    assert "    2,511  un│h│app│iness" in out


def test_the_command_takes_a_model_and_a_file_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokenizer.json"
    Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")])).save(str(file))
    argv = ["-p", "abba", "--merges", "--beside", str(file)]
    assert run_tokens(parsed(tokens_parser(), argv)) == 0
    out = capsys.readouterr().out
    assert "pocket: " in out
    assert "        0  ab│b│a" in out
