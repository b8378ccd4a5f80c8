"""`inspector tokens`: its flags, its table and JSON lines, on the bundled tokenizer and on records by hand."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine import protocol
from engine.errors import PromptError
from engine.protocol import Piece, Tokenized
from engine.settings import LoadSettings, Settings
from inspector.cli import main as cli
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import run as run_commands
from inspector.cli.flags import parsed
from inspector.cli.subcommands.texts import tokens_parser, tokens_request_from
from inspector.cli.writers.generation import PlainText, writer
from inspector.cli.writers.tokens import CountedTokens
from tests.inspector.cli.scripted import ScriptedBackend, Terminal, as_record

CUT = Tokenized(
    "<s> 5€ [/x]\x1b\n",
    (
        Piece(1, "<s>", b"<s>", True),
        Piece(7, " 5", b" 5", False),
        Piece(8, "", b"\xe2\x82", False),
        Piece(9, "€", b"\xac", False),
        Piece(10, " [/x]\x1b\n", b" [/x]\x1b\n", False),
    ),
)


def run(*argv: str) -> CliRequest:
    return tokens_request_from(parsed(tokens_parser(), argv))


def written(request: CliRequest, summary: bool = False, out: io.StringIO | None = None) -> str:
    """What a request gives for `CUT`."""
    backend = ScriptedBackend({protocol.CutText: [CUT]})

    def make(emit):  # type: ignore[no-untyped-def]
        backend.emit = emit
        return backend

    to = out or io.StringIO()
    cut = protocol.CutText(request.load, request.prefill.text)
    made = writer(request, CountedTokens(not summary), to, Terminal())
    assert run_commands(request, made, [cut], make, loads=False) == 0
    assert backend.sent == [cut]
    return to.getvalue()


def asked(jsonl: bool = False) -> CliRequest:
    return CliRequest(LoadSettings(), Settings(), protocol.Prefill("text", False), jsonl)


# ---- the flags ----------------------------------------------------------------------------------


def test_the_text_comes_from_the_flag_a_file_or_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "text.txt"
    file.write_text("from a file\\n", encoding="utf-8")
    assert run("-p", r"a\nb").prefill.text == "a\nb"
    assert run(str(file)).prefill.text == "from a file\\n"
    for argv in ((), ("-",), ("-p", "-")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é".encode())))
        assert run(*argv).prefill.text == "é"
    request = run("-p", "x", "--chat", "--system-prompt", "s", "--model", "m", "--trust-remote-code")
    assert (request.prefill.chat, request.prefill.system, request.notes) == (True, "s", ())
    assert request.load == LoadSettings(model="m", trust_remote_code=True)
    assert run("-p", "x", "--system-prompt", "s").notes == ("--system-prompt has no effect without --chat.",)


def test_a_terminal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(PromptError, match="No text was given"):
        run()


# ---- what is written ----------------------------------------------------------------------------


def test_the_table_has_a_line_a_token_and_sums_up() -> None:
    assert written(asked()).splitlines() == [
        "     #       id  token                              bytes",
        "     1        1  <s>                       special  3C 73 3E",
        "     2        7  ␣5                                 20 35",
        "     3        8  ‹E2 82›                            E2 82",
        "     4        9  €                                  ‹E2 82› AC",
        "     5       10  ␣[/x]␛↵                            20 5B 2F 78 5D 1B 0A",
        "",
        "5 tokens, 1 of them special; the others have 12 bytes and 10 characters, 3.00 bytes a token",
    ]
    assert len(written(asked(), summary=True).splitlines()) == 1
    assert "\x1b" not in written(asked(), out=Terminal())


def test_json_lines_have_every_token_and_the_counts() -> None:
    events = [json.loads(line) for line in written(asked(jsonl=True)).splitlines()]
    assert as_record(events[0], Tokenized) == CUT
    assert events[1:] == [{
        "event": "TokenCounts", "tokens": 5, "special": 1, "characters": 10, "bytes": 12, "bytes_per_token": 3.0,
    }]  # fmt: skip
    assert json.loads(written(asked(jsonl=True), summary=True)) == events[1]


def test_the_bundled_tokenizer_cuts_what_was_given(capfd: pytest.CaptureFixture[str]) -> None:
    text = "Once upon a time, a 🦊!\n"
    assert cli.main(["tokens", "-p", text, "--jsonl"]) == 0
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert b"".join(piece.raw for piece in as_record(events[0], Tokenized).pieces).decode() == text
    assert cli.main(["tokens", "-p", "Hi", "--chat", "--summary"]) == 0
    assert ", 3 of them special; " in capfd.readouterr().out
    assert cli.main(["tokens", "-p", "Hi", "--model", "/nowhere/at/all"]) == 2
    assert capfd.readouterr().err.count("\n") == 1


def test_records_of_loading_are_progress_and_no_output() -> None:
    request, out = asked(), io.StringIO()
    made = PlainText(out, Terminal(), request, CountedTokens())
    made.take(protocol.Loading("tokenizer", 0, 0, "pocket"), "")
    assert out.getvalue() == ""


def test_a_conversation_has_whose_each_token_is(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = protocol.PromptSegments(
        (protocol.SegmentRun("tool result", 1, 4, 2),), (protocol.LeftOut("thinking", 1, False),)
    )
    monkeypatch.setattr(f"{__name__}.CUT", replace(CUT, segments=segments))
    lines = written(asked()).splitlines()
    assert lines[0].split() == ["#", "id", "token", "whose", "bytes"]
    assert lines[1].split() == ["1", "1", "<s>", "special", "3C", "73", "3E"]
    assert lines[2].split() == ["2", "7", "␣5", "tool", "result", "20", "35"]
    assert lines[-2:] == [
        "Segments: markup 2, tool result 3",
        "The template left out thinking of message 2",
    ]
    cut = json.loads(written(asked(jsonl=True)).splitlines()[0])
    assert as_record(cut, Tokenized).segments == segments
