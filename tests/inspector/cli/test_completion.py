"""Tab in a shell: what the program answers, and that the shell's own function brings it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inspector.cli.main import _parsers
from inspector.cli.subcommands.lists import KNOWN_VALUES, SHELLS
from tests.inspector.cli.scripted import Complaint
from tests.inspector.cli.test_main import light, run

IN_BASH = """
inspector() {{ '{python}' -m inspector "$@"; }}
eval "$(inspector completion bash)"
COMP_LINE='inspector export 2026' COMP_POINT=21 COMP_WORDS=(inspector export 2026) COMP_CWORD=2
_python_argcomplete inspector
printf '%s\\n' "${{COMPREPLY[@]}}"
complete -p inspector
"""


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """An environment with two sessions."""
    sessions = tmp_path / "state" / "mlx-inspector" / "sessions"
    sessions.mkdir(parents=True)
    for name in ("20260101-000000-pocket", "20260102-000000-qwen"):
        (sessions / f"{name}.trace").write_text("x")
    return {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }


def offered(line: str, environment: dict[str, str], folder: Path) -> list[str]:
    """What is offered for a line, from a process of its own as a shell starts it."""
    answer = folder / "answer"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    done = subprocess.run(
        [sys.executable, "-m", "inspector"],
        env={**environment, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)},
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return answer.read_text().split()


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("inspector ge", ["generate"]),
        ("inspector --te", ["--temp"]),
        ("inspector -p hello --kv", ["--kv-bits", "--kv-group-size"]),
        ("inspector beam --wi", ["--width"]),
        ("inspector show gr", ["gradients"]),
        ("inspector show r", ["race"]),
        ("inspector show lens --posi", ["--positions"]),
        ("inspector show race --fro", ["--from"]),
        ("inspector show time --rep", ["--repeats"]),
        ("inspector generate --preset cre", ["creative"]),
        ("inspector replay ", ["20260101-000000-pocket", "20260102-000000-qwen"]),
        ("inspector --resume 20260102", ["20260102-000000-qwen"]),
        ("inspector export --to ", ["html", "md", "csv", "txt", "svg"]),
        ("inspector generate --dtype f", ["file", "float32", "float16"]),
        ("inspector generate --seed ", []),
    ],
)
def test_what_is_offered(line: str, expected: list[str], places: dict[str, str], tmp_path: Path) -> None:
    assert sorted(offered(line, places, tmp_path)) == sorted(expected)


def test_all_subcommands_are_offered(places: dict[str, str], tmp_path: Path) -> None:
    commands = {command.split()[1] for command in _parsers() if command != "inspector"}
    assert set(offered("inspector ", places, tmp_path)) == commands


@pytest.mark.skipif(shutil.which("bash") is None, reason="asks bash itself")
def test_bash_completes_the_name_of_a_session(places: dict[str, str]) -> None:
    script = IN_BASH.format(python=sys.executable)
    done = subprocess.run(["bash", "-c", script], env=places, capture_output=True, text=True, timeout=120)
    assert sorted(done.stdout.split("\n")[:2]) == ["20260101-000000-pocket", "20260102-000000-qwen"]
    assert "-F _python_argcomplete inspector" in done.stdout


@pytest.mark.wide(1)
@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_its_code_and_the_help_says_where_it_goes(shell: str) -> None:
    done = run("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert "_ARGCOMPLETE" in done.stdout
    assert SHELLS[shell] in " ".join(light("completion", "--help").split())


def test_the_program_s_help_says_how_to_have_it() -> None:
    assert 'eval "$(inspector completion bash)"' in light("--help")


def test_a_shell_that_is_none(complaint: Complaint) -> None:
    assert complaint("completion", "bsh").startswith("SHELL: must be one of bash, zsh, fish, not 'bsh'.")


def test_values_are_offered_for_arguments_that_are_there() -> None:
    arguments = {action.dest for parser in _parsers().values() for action in parser._actions}
    assert set(KNOWN_VALUES) <= arguments
