"""`inspector serve`: which flags are the server's and which the visitors', and what is refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.trace import Journal
from inspector.cli.flags import parsed
from inspector.cli.subcommands import serve
from inspector.main.key_table import key_table
from inspector.tools.registry import FOLLOWING, TOOLS

TAKEN = {"ctrl+w", "ctrl+t", "ctrl+n", *(f"f{number}" for number in range(1, 13))}
"""Keys that browsers keep for themselves."""


def arguments(*argv: str) -> list[str]:
    return serve._screen(parsed(serve.serve_parser(), argv))


@pytest.mark.parametrize(
    ("argv", "handed_on"),
    [
        ([], []),
        (["--port", "8000", "--open", "--idle=5"], []),
        (
            ["--temp", "0", "--port", "8000", "-p", "hello; rm -rf /"],
            ["--temp", "0", "-p", "hello; rm -rf /"],
        ),
        (["-p", "-hello", "--sessions", "3"], ["-p=-hello"]),
        (["--stop", "a", "--name", "b", "--stop=--port"], ["--stop", "a", "--stop=--port"]),
        (["--theme", "light", "--no-save"], ["--theme", "light", "--no-save"]),
    ],
)
def test_the_flags_of_the_screen_are_handed_on_as_they_were_written(
    argv: list[str], handed_on: list[str]
) -> None:
    assert arguments(*argv) == handed_on


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--prompt", "-"], "standard input"),
        (["--temp", "-1"], "--temp"),
        (["--prompt-file", "/nowhere"], "/nowhere"),
        (["--sesions", "3"], "--sessions"),
    ],
)
def test_what_no_visitor_could_use_is_refused_at_the_start(argv: list[str], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        arguments(*argv)


@pytest.mark.parametrize(
    "flag", ["--sessions=65", "--sessions=0", "--memory=0", "--idle=-1", "--addresses=0"]
)
def test_values_out_of_range(flag: str) -> None:
    with pytest.raises(EngineError, match=flag.partition("=")[0]):
        serve.run_serve(parsed(serve.serve_parser(), [flag]))


def test_watchers_get_the_file_and_no_other_flag(tmp_path: Path) -> None:
    path = tmp_path / "- a;b.jsonl"
    Journal.create(path, "test 1").close()
    args = parsed(serve.serve_parser(), ["--watch", str(path), "--theme", "light"])
    assert serve._watch(args) == ["replay", "--follow", "--theme=light", "--", str(path)]
    for more in (
        ["--temp", "0"],
        ["--theme", "light", "--model", "x"],
        ["--unconfined"],
        ["--offer", "pocket"],
    ):
        with pytest.raises(EngineError, match="Leave it out"):
            serve._watch(parsed(serve.serve_parser(), ["--watch", str(path), *more]))
    (tmp_path / "other").write_text("x", encoding="utf-8")
    with pytest.raises(EngineError, match="not a trace"):
        serve._watch(parsed(serve.serve_parser(), ["--watch", str(tmp_path / "other")]))


def test_no_key_is_one_that_browsers_take() -> None:
    keys = {name for action in key_table(TOOLS).actions for name in action.names}
    assert not keys & TAKEN


def test_whoever_follows_has_no_key_that_writes_or_goes_live() -> None:
    keys = {action.id for action in key_table(FOLLOWING).actions}
    assert not keys & {"go_live", "save_as", "sessions", "export", "breakpoints", "lesson", "present"}
    assert {"step", "run", "earlier", "tree", "tip"} <= keys
