"""The command line: what its flags ask for, and the one line that every fault comes down to."""

from __future__ import annotations

import fcntl
import gc
import io
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
import types
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engine.protocol import Prefill
from engine.settings import LoadSettings, Settings
from inspector.cli import arguments, screen
from inspector.cli import main as cli
from inspector.cli.exit import output
from inspector.cli.flags import parsed
from inspector.cli.subcommands import generate
from inspector.recordings import sessions
from tests.inspector.cli.scripted import Complaint
from tests.inspector.fakes import facts


def ask(*argv: str, headless: bool = True) -> arguments.CliRequest:
    """What a command line asks for."""
    parser = generate.generate_parser() if headless else screen.screen_parser()
    return arguments.request_from(parsed(parser, argv), default_prompt=not headless)


def run(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "inspector", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


# ---- instant help -----------------------------------------------------------------------------

LIGHT = """
import sys
from inspector.cli.main import main
code = main(sys.argv[1:])
names = ("textual", "mlx", "mlx_lm", "numpy", "transformers", "rich", "argcomplete", "difflib")
heavy = [name for name in names if name in sys.modules]
sys.exit(f"{code} {heavy}" if code or heavy else 0)
"""


def light(*argv: str) -> str:
    """What the command prints, which must import nothing heavy for it."""
    done = subprocess.run([sys.executable, "-c", LIGHT, *argv], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.wide(1)
@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["generate", "--help"]])
def test_help_and_version_import_nothing_heavy(argv: list[str]) -> None:
    begun = time.perf_counter()
    assert "inspector" in light(*argv)
    assert time.perf_counter() - begun < 5  # about 0.1 s on a machine that has nothing else to do


def test_help_names_every_flag_of_mlx_lm(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", "--help"]) == 0
    text = capsys.readouterr().out
    theirs = (
        "model prompt max-tokens temp top-p min-p top-k seed system-prompt ignore-chat-template max-kv-size "
    )
    theirs += "prefill-step-size kv-bits kv-group-size quantized-kv-start adapter-path trust-remote-code "
    theirs += "min-tokens-to-keep xtc-probability xtc-threshold extra-eos-token"
    ours = "candidates prompt-file stop min-tokens no-prompt-logprobs no-float32-scales "
    ours += "kept-logits-mib kept-kv-mib dtype blas jsonl"
    for name in (theirs + " " + ours).split():
        assert f"--{name}" in text


# ---- what the flags ask for -------------------------------------------------------------------


def known(
    *argv: str, sampling: tuple[tuple[str, float], ...] = (), headless: bool = True
) -> arguments.CliRequest:
    """What the flags ask for, once the model and its own settings are known."""
    asked = ask(*argv, headless=headless)
    asked.model_known(replace(facts(), sampling=sampling))
    return asked


OWN = (("temp", 0.6), ("top_p", 0.95), ("top_k", 20))


@pytest.mark.parametrize("headless", [True, False], ids=["generate", "screen"])
@pytest.mark.parametrize(
    ("flags", "sampling", "expected"),
    [
        ((), (), (0, 1, 0)),
        ((), OWN, (0.6, 0.95, 20)),
        (("--temp", "1"), OWN, (1, 0.95, 20)),
        (("--temp", "0"), OWN, (0, 0.95, 20)),
        (("--top-p", "1"), OWN, (0.6, 1, 20)),
        (("--preset", "plain"), OWN, (1, 1, 0)),
        (("--top-k", "3"), (), (0, 1, 3)),
    ],
)
def test_what_no_flag_sets_is_the_models_own_or_mlx_lms(
    flags: tuple[str, ...],
    sampling: tuple[tuple[str, float], ...],
    expected: tuple[float, ...],
    headless: bool,
) -> None:
    settings = known("-p", "hi", *flags, sampling=sampling, headless=headless).settings
    assert (settings.temp, settings.top_p, settings.top_k) == expected


def test_defaults_are_those_of_mlx_lm() -> None:
    asked = known("-p", "hi")
    settings = asked.settings
    assert (settings.temp, settings.top_p, settings.min_p, settings.top_k) == (0, 1, 0, 0)
    assert asked.settings.max_tokens == 100
    assert asked.load == LoadSettings()
    assert asked.prefill.chat is None  # through the template, if the model has one
    assert ask("-p", "hi", "--chat").prefill.chat
    assert asked.prefill.echo is False  # a text has no place for them
    assert asked.notes == ()


def test_flags_arrive() -> None:
    asked = ask(
        *("--model", "some/model", "-p", r"a\nb", "-m", "7", "--temp", "0.8", "--top-p", "0.9"),
        *("--seed", "5", "--stop", r"\n", "--stop", "END", "--kv-bits", "4", "--no-prompt-logprobs"),
        *("--no-float32-scales", "--ignore-chat-template", "--trust-remote-code", "--jsonl"),
        *("--system-prompt", "be kind", "--dtype", "auto", "--blas", "bundled"),
    )
    assert (asked.load.dtype, asked.load.blas) == ("auto", "bundled")
    assert asked.prefill.text == "a\nb"
    assert not asked.prefill.chat
    assert asked.prefill.system == "be kind"
    assert (asked.settings.max_tokens, asked.settings.temp, asked.settings.top_p) == (7, 0.8, 0.9)
    assert asked.settings.seed == 5
    assert asked.settings.stop == ("\n", "END")
    assert asked.load.model == "some/model"
    assert asked.load.kv_bits == 4
    assert asked.load.trust_remote_code
    assert asked.load.float32_scales is False
    assert asked.prefill.echo is False
    assert asked.jsonl


def test_an_absent_seed_is_drawn_once() -> None:
    assert len({ask("-p", "hi").settings.seed for _ in range(8)}) > 1


def test_flags_without_effect_are_said() -> None:
    notes = known("-p", "hi", "--top-p", "0.9", "--kv-group-size", "32").notes
    assert notes[0].startswith(
        "--top-p has no effect at --temp 0, the default of this model: the most probable token is taken"
    )
    assert known("-p", "hi", "--top-p", "0.9", sampling=OWN).notes == ()
    assert notes[0].endswith("Give --temp 1 to draw.")
    assert notes[1] == "--kv-group-size has no effect without --kv-bits."
    assert known("-p", "hi", "--top-p", "0.9", "--temp", "1").notes == ()
    keep = ("--temp", "1", "--min-tokens-to-keep", "3")
    assert known("-p", "hi", *keep).notes == ("--min-tokens-to-keep has no effect without --min-p.",)
    assert known("-p", "hi", *keep, "--min-p", "0.1").notes == ()
    assert (
        known("-p", "hi", "--temp", "0", "--top-k", "3")
        .notes[0]
        .startswith("--top-k has no effect at --temp 0:")
    )
    (late,) = known("-p", "hi", "--kv-bits", "4").notes
    assert late.startswith("--kv-bits takes effect from 5,000 tokens")
    assert known("-p", "hi", "--kv-bits", "4", "--quantized-kv-start", "0").notes == ()
    (short,) = known("-p", "hi", "--min-tokens", "9", "-m", "8").notes
    assert short.startswith("--min-tokens is more than --max-tokens")


@pytest.mark.parametrize("headless", [True, False], ids=["generate", "screen"])
@pytest.mark.parametrize("text", ["-hello", "-hello there", "-m5", "-x", "-5 degrees", "-a=b", "- hello"])
def test_a_prompt_may_begin_with_a_hyphen(text: str, headless: bool) -> None:
    for flag in ("-p", "--prompt"):
        asked = ask("--temp", "1", flag, text, "--stop", text, "-m", "7", headless=headless)
        assert (asked.prefill.text, asked.settings.stop, asked.settings.max_tokens) == (text, (text,), 7)


def test_a_flag_is_no_prompt_that_was_left_out(complaint: Complaint) -> None:
    for flag in ("-m", "--jsonl", "--josnl", "-model", "-h"):
        said = complaint("generate", "-p", flag)
        assert said.endswith("expected one argument. A value that begins with - is given as --prompt=VALUE.")


def test_the_screen_has_a_prompt_ready() -> None:
    assert (ask(headless=False).prefill.text, ask(headless=False).prefill.chat) == ("Once upon a time", None)
    other = ask("--model", "some/model", headless=False)
    assert (other.prefill.text, other.prefill.chat) == ("hello", None)


def test_a_prompt_file_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes("a\\nb\r\n  ünïcode\n".encode())
    assert ask("--prompt-file", str(file)).prefill.text == "a\\nb\r\n  ünïcode\n"


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe\n")))
    assert ask("-p", "-").prefill.text == "from a pipe\n"


# ---- bad input --------------------------------------------------------------------------------


def test_bad_prompts(tmp_path: Path, complaint: Complaint) -> None:
    bad, empty = tmp_path / "bad.txt", tmp_path / "empty.txt"
    bad.write_bytes(b"abc\xff\xfe")
    empty.write_bytes(b"")
    files = {
        str(bad): "is not UTF-8 (byte 0xff at offset 3). Convert it",
        str(empty): "The prompt is empty.",
        str(tmp_path): "can't be read: Is a directory",
        str(tmp_path / "none"): f"There is no prompt file '{tmp_path}/none'. Check",
    }
    for name, said in files.items():
        assert said in complaint("generate", "--prompt-file", name)
    assert "The prompt is empty." in complaint("generate", "-p", "")
    assert "No prompt was given. Add --prompt" in complaint("generate")
    assert "both given" in complaint("generate", "-p", "hi", "--prompt-file", str(bad))
    assert r"The argument 'a\udcff' is not UTF-8." in complaint("generate", "-p", "a\udcff")


def test_bad_standard_input(monkeypatch: pytest.MonkeyPatch, complaint: Complaint) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x80")))
    assert "Standard input is not UTF-8 (byte 0x80 at offset 0)." in complaint("generate", "-p", "-")
    monkeypatch.setattr(sys, "stdin", None)
    assert "Standard input is closed." in complaint("generate", "-p", "-")


def test_what_a_message_quotes_is_not_obeyed(complaint: Complaint) -> None:
    line = complaint("generate", "-p", "x", "-o", "\x1b[2J\x9b31m\u202e\nx/story.trace")
    assert "\x1b" not in line
    assert "\x9b" not in line
    assert "\u202e" not in line
    assert "␛[2J" in line


def test_a_long_message_is_cut(complaint: Complaint) -> None:
    assert len(complaint("generate", "-p", "hi", "--temp", "x" * 5000)) < 1100


# ---- the screen -------------------------------------------------------------------------------


def open_screen(
    monkeypatch: pytest.MonkeyPatch,
    *argv: str,
    code: int | None = 0,
    in_time: bool = True,
    saved_as: Path | None = None,
    notice: str = "",
) -> dict[str, Any]:
    """Run the command with an application that only notes what it is given."""
    noted: dict[str, Any] = {}

    class App:
        return_code = code
        closed_in_time = in_time
        ended_by = None
        recorder = types.SimpleNamespace(saved=saved_as, notice=notice)

        def __init__(self, load: LoadSettings, settings: Settings, prefill: Prefill, **given: object) -> None:
            noted.update(given, load=load, settings=settings, prefill=prefill)

        def run(self) -> None:
            noted["ran"] = True

    monkeypatch.setitem(sys.modules, "inspector.app", types.SimpleNamespace(InspectorApp=App))
    monkeypatch.setattr(screen, "check_terminal", lambda prompt_from_stdin: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *pace: None)
    noted["exit"] = cli.main(argv)
    return noted


def test_the_screen_gets_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = open_screen(monkeypatch, "-p", "hello", "--temp", "0.5", "--kv-bits", "8", "--prompt-logprobs")
    assert noted["ran"]
    assert noted["exit"] == 0
    assert noted["prefill"] == Prefill("hello", None, None, True)
    assert noted["settings"].temp == 0.5
    assert noted["load"].kv_bits == 8


def test_the_screen_knows_which_settings_the_user_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_screen(monkeypatch, "-p", "hello", "--seed", "7", "--top-k", "3")["given"] == {
        "seed",
        "top_k",
    }
    assert open_screen(monkeypatch, "--preset", "precise")["given"] is None
    assert open_screen(monkeypatch, "--preset", "precise")["settings"].temp == 0.3


def test_the_theme_reaches_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_screen(monkeypatch, "--theme", "light")["theme"] == "light"


def test_the_exit_status_is_the_screen_s(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_screen(monkeypatch, code=None)["exit"] == 0
    assert open_screen(monkeypatch, code=3)["exit"] == 3


def test_leaving_says_where_the_session_is_and_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sessions, "folder", lambda: tmp_path)
    for path, name in (
        (tmp_path / "20260102-000000-pocket.trace", "20260102-000000-pocket"),
        (tmp_path / "my talk\x1b.trace", "'my talk␛'"),
        (Path("/else where/a.trace"), "'/else where/a.trace'"),
    ):
        open_screen(monkeypatch, saved_as=path)
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "\x1b" not in printed.err
        first, second = printed.err.splitlines()
        assert first == f"Session saved: {path}".replace("\x1b", "␛")
        assert second == f"Continue it: inspector --resume {name}"
    open_screen(monkeypatch)
    assert capsys.readouterr().err == ""
    open_screen(monkeypatch, saved_as=tmp_path / "b.trace", notice="Another program changed a.trace.")
    assert capsys.readouterr().err.splitlines()[0] == "Another program changed a.trace."


def test_an_engine_that_does_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(code: int) -> None:
        raise SystemExit(code + 40)  # what the real one does can't be caught

    monkeypatch.setattr("inspector.cli.exit._exit", leave)
    assert open_screen(monkeypatch, code=2, in_time=False)["exit"] == 42


def test_a_fault_of_the_program_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, complaint: Complaint, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(screen, "run_screen", lambda args: [][1])
    line = complaint(code=1)
    assert line.startswith("This is a fault of the program: IndexError: list index out of range")
    [report] = tmp_path.iterdir()
    assert str(report) in line
    assert "Traceback" in report.read_text()


def test_without_a_terminal_it_points_at_the_headless_command() -> None:
    done = run(stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "inspector: error: The screen needs a terminal, and standard input is not one."
        " Without one, use inspector generate.\n"
    )


def in_terminal(*argv: str, columns: int = 100, rows: int = 30, **environment: str) -> tuple[int, str]:
    """Run the command in a terminal of a size; returns its exit status and what the terminal got."""
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    command = [sys.executable, "-m", "inspector", *argv]
    env = {**kept, "TERM": "xterm", **environment}
    process = subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    code, text = process.wait(60), b""
    try:
        while piece := os.read(ours, 4096):
            text += piece
    except OSError:  # how a terminal says that the other end is closed
        pass
    os.close(ours)
    return code, text.decode()


def test_a_terminal_that_cannot_show_the_screen() -> None:
    code, text = in_terminal(TERM="dumb")
    assert (code, "TERM is dumb. Without one, use inspector generate." in text) == (2, True)
    code, text = in_terminal(columns=39, rows=9)
    assert code == 2
    assert "has 39 columns and 9 rows; the screen needs 40 and 10. Enlarge it" in text


def test_the_prompt_of_a_screen_cannot_come_from_a_pipe(
    monkeypatch: pytest.MonkeyPatch, complaint: Complaint
) -> None:
    monkeypatch.setattr(screen, "is_terminal", lambda name: name != "stdin")
    assert "so the prompt can't come from there. Use --prompt-file" in complaint("-p", "-")
    monkeypatch.setattr(screen, "is_terminal", lambda name: False)
    monkeypatch.setenv("TEXTUAL_DRIVER", "textual.drivers.web_driver:WebDriver")
    assert "so the prompt can't come from there. Use --prompt-file" in complaint("-p", "-")


# ---- output that goes away --------------------------------------------------------------------


def test_help_into_a_closed_pipe_ends_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "inspector", "--help"], stdout=write, stderr=subprocess.PIPE, timeout=60
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
@pytest.mark.parametrize(
    "command",
    [
        "--version",
        "--help",
        "generate --help",
        "models",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("--keys", "--keys --jsonl", "learn", "learn --plain 1", "sessions", "completion bash",
                         "doctor", "show race", "tokens -p hi", "generate -p hi -m 2")
        ),
    ],
)  # fmt: skip
def test_an_output_that_cannot_be_written(command: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "inspector", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert done.returncode == 2
    said = "The output can't be written: No space left on device. Free some space, or write elsewhere."
    assert done.stderr.decode() == f"inspector: error: {said}\n"


# ---- Ctrl-C before anything runs --------------------------------------------------------------

INTERRUPTED = """
import os, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == os.environ["INTERRUPTED"]:
            exec("raise KeyboardInterrupt")  # where dataclasses are made, an interrupt comes out of such a string
sys.meta_path.insert(0, Finder())
"""
"""Runs before the program."""


@pytest.mark.parametrize("module", ["inspector.cli.main", "inspector.cli.flags", "engine.settings"])
def test_an_interrupt_while_modules_are_imported(module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED)
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = run("--help", env={**os.environ, "PYTHONPATH": paths, "INTERRUPTED": module})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_prompt_is_read_from_regular_files_and_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: Complaint
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for command in (("generate", "--prompt-file"), ("score",)):
        for name, why in ((str(tmp_path / "pipe"), "it is a named pipe"), ("/dev/zero", "it is a device")):
            assert f"{name} can't be read: {why}, not a regular file." in complaint(*command, name)
    monkeypatch.setattr("inspector.cli.arguments.TEXT_LIMIT", 2**20)
    with open("/dev/zero", encoding="utf-8") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        assert "Standard input has more than 1 MiB." in complaint("generate", "-p", "-")


def test_output_is_buffered_where_python_buffers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal ends a write early, and with PYTHONUNBUFFERED nobody else writes the rest of a line."""
    raw = open(tmp_path / "out", "wb", buffering=0)  # noqa: SIM115
    unbuffered = io.TextIOWrapper(raw, write_through=True)  # type: ignore[type-var]
    monkeypatch.setattr(sys, "stdout", unbuffered)
    monkeypatch.setattr(sys, "__stdout__", unbuffered)
    out = output()
    assert isinstance(out.buffer, io.BufferedWriter)
    out.write("é\n")
    out.flush()
    raw.close()
    assert (tmp_path / "out").read_text("utf-8") == "é\n"


def test_extra_eos_tokens_arrive_however_often_the_flag_is_given() -> None:
    for argv in (
        ["--extra-eos-token", "<|x|>", r"\n"],
        ["--extra-eos-token", "<|x|>", "--extra-eos-token", r"\n"],
    ):
        for headless in (True, False):
            assert ask("-p", "hi", *argv, headless=headless).load.extra_eos_token == ("<|x|>", "\n")


def test_an_extra_eos_token_that_is_none_is_one_line(complaint: Complaint) -> None:
    said = (
        "--extra-eos-token: 'no token' is not a token of this model. It must be one token. To stop at a text of "
        "several, use --stop of `inspector generate` or `batch`."
    )
    for command in ("generate", "beam"):
        assert complaint(command, "-p", "hi", "--extra-eos-token", "no token") == said
    assert complaint("generate", "-p", "hi", "--extra-eos-token", "").startswith("--extra-eos-token: ")
