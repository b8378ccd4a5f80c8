"""Each command and each example in Python of README and the help is run, or stands below with the reason why not.

A command is run as it stands on its page, in a directory where what the pages leave open is there: `MODEL`, `A` and `B`
are the bundled model, `FILE` is what the command reads, `DIR` is empty. Where that is not enough `STANDS_FOR` has what
is run. Those that print what the page shows are run by `test_examples.py`.
"""

from __future__ import annotations

import io
import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine import pocket
from inspector.cli import main as cli
from tests.inspector.cli.test_examples import BLOCK, EXAMPLES, PAGES, ROOT, shell_lines
from tests.inspector.test_starts import Terminal
from tests.system import short_directory

SERVED = ROOT / "tests/inspector/served/served.har"
STANDS_FOR = {
    "inspector batch -n 200": "inspector batch -p TEXT -n 200 --max-tokens 2",
    "inspector completion fish | source": "inspector completion fish",
    "inspector diff A B": "inspector diff A B -p TEXT",
    "inspector generate -p ... -o FILE --record-logits": "inspector generate -p TEXT -o story.trace --record-logits",
    'inspector show --off "blocks.5.attn.hook_z[1], model.layers.2.mlp x0.5"':
        'inspector show -p TEXT --off "blocks.5.attn.hook_z[1], model.layers.2.mlp x0.5"',
    "inspector learn N --plain": "inspector learn 3 --plain",
    "inspector learn --course NAME 3": "inspector learn --course how-an-llm-writes 3",
    "inspector learn --course NAME --present": "inspector learn --course how-an-llm-writes --present",
    "inspector models [DIR ...]": "inspector models DIR",
    "inspector open FILE --no-model": "inspector open FILE 13 --no-model -o story.trace",
    "inspector open FILE 12 --model MODEL": "inspector open FILE 13 --model MODEL",
    "inspector open FILE [N]": "inspector open FILE 13 --check --model MODEL",
    "inspector open reply.json": "inspector open reply.json -o story.trace",
    "inspector show VIEW -p TEXT": "inspector show attention -p TEXT",
    "inspector train": "inspector train --steps 6",
    "inspector train --text FILE": "inspector train --text FILE --steps 6",
}  # fmt: skip
QUICK = {
    "inspector --help": "--kv-bits",
    "inspector completion fish | source": "complete --command inspector",
    "inspector diff A B": "Mean    KLD",
    "inspector diff A B --text FILE": "Mean    KLD",
    "inspector export 1 --to html": ".html: ",
    "inspector export NAME -o session.html": "session.html: ",
    "inspector generate -p TEXT": "finished ",
    'inspector show --off "blocks.5.attn.hook_z[1], model.layers.2.mlp x0.5"': "L6 h2 off, L3 MLP x0.5",
    "inspector show VIEW -p TEXT": "Attention",
    "inspector --keys": "Take the token that the sampler picked",
    "inspector --plugins": "No package brings a view",
    "inspector learn": "Temperature and the draw",
    "inspector learn N --plain": "Card 1 of 6",
    "inspector lesson check my-lesson.md": "nothing is wrong",
    "inspector lesson new my-lesson.md": "my-lesson.md: written",
    "inspector models": "pocket",
    "inspector models [DIR ...]": "There is no model in it",
    "inspector open FILE": "Open one of them",
    "inspector open FILE --no-model": "",
    "inspector open reply.json": "",
    "inspector score FILE": "perplexity",
    "inspector sessions": "No session is saved",
    "inspector tokens -p TEXT": "4 tokens",
    "inspector tokens -p TEXT --merges": "3,837 merges",
}
"""Commands that end by themselves within a second or two, and words that they print."""
SLOW = {
    "inspector batch -n 200": "200",
    "inspector batch -p A -p B": "tok/s together",
    "inspector beam -p TEXT": "greedy",
    "inspector doctor": "ok",
    "inspector export my-lesson.trace.zst --to html": ".html",
    "inspector generate -p ... -o FILE --record-logits": "finished ",
    "inspector lesson record my-lesson.md": "my-lesson.trace.zst",
    "inspector open FILE --check --model MODEL": "largest difference of a logprob",
    "inspector open FILE [N]": "reply",
    "inspector show cache": "KV cache of",
    "inspector show race": "cache",
    "inspector show time": "attention",
    "inspector train": "open it ",
    "inspector train --text FILE": "open it ",
}
"""Those that take longer."""
SCREENS = {
    "inspector": "DECODE",
    "inspector --second-model MODEL": "DECODE",
    "inspector --model A --second-model B": "DECODE",
    "inspector --model path/to/a/model --kv-bits 8 --temp 0.7 --top-p 0.9": "DECODE",
    "inspector --resume": "perplexity",
    "inspector learn 3": "The draw",
    "inspector learn 3 --present": "The draw",
    "inspector learn 3 --recorded": "The draw",
    "inspector learn --course how-an-llm-writes": "1 of 6",
    "inspector learn --course inference-engineering": "1 of 6",
    "inspector learn --course interpretability": "1 of 4",
    "inspector learn --course NAME 3": "3 of 6",
    "inspector learn --course NAME --present": "1 of 6",
    "inspector learn my-lesson.md": "1/2",
    "inspector learn my-lesson.md --recorded": "1/2",
    "inspector lesson run my-lesson.md": "1/2",
    "inspector open FILE 12 --model MODEL": "DECODE",
    "inspector replay": "RECORDED",
    "inspector replay --follow": "RECORDED",
    "inspector replay FILE": "RECORDED",
    "inspector replay batch": "RECORDED",
}
"""Screens, and words that are on them before `q` ends them."""
HUB = (
    "needs a model of the hub; the requests for one are held in tests/engine/models_on_disk/test_download.py"
)
FAR = "needs another machine"
BROWSER = "needs textual-serve; tests/inspector/test_web_driver.py starts the program as it does"
INSTALLS = ".ci/run and .ci/slow (tests/installed.py) run it in a fresh environment"
SUITE = "this suite, or a part of it"
COURSES = "tests/inspector/lessons/test_courses.py checks and begins one"
REST = {
    'inspector mlx-community/Qwen3-0.6B-4bit -p "Why is the sky blue?"': HUB,
    "inspector diff MODEL --adapter-path DIR FUSED --text FILE --dtype float32 --max-kld 0.001 --min-same-top 0.98 "
    "--max-ppl-ratio 1.02": "needs an adapter and the model fused with it: tests/inspector/cli/test_gate.py makes both",
    "inspector generate --hostfile hosts.json -p Hello": "needs several machines; tests/engine/ranks has processes",
    "inspector learn --course my-course.toml": COURSES,
    "inspector lesson check my-course.toml": COURSES,
    "inspector lesson new|check|record|run FILE": "four commands, each of which stands elsewhere",
    "inspector models --get ID": HUB,
    "inspector models --get mlx-community/Qwen3-0.6B-4bit": HUB,
    ".venv/bin/pip install --force-reinstall 'mlx[cuda]>=0.32.2,<0.33'": "needs an NVIDIA card",
    "mitmdump --mode reverse:URL --set hardump=FILE": "needs mitmproxy; tests/inspector/served/test_har.py runs it "
    "where there is one",
    "pip install textual-serve": BROWSER,
    "pipx install .": INSTALLS,
    "uv tool install .": INSTALLS,
    "uvx --from . inspector": INSTALLS,
    "python": "no command: a field of an event, which the page of events lists",
    "python -m pytest": SUITE,
    "python -c 'import textual_serve.server as t; t.Server(\"inspector --model DIR\").serve()'": BROWSER,
    "python -m tests.engine.inside.report": "minutes over all families; the slow suite asks the same",
    "python3 -m venv .venv && .venv/bin/pip install -q '.[test]' && .venv/bin/python -m pytest": INSTALLS,
    "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/inspector": INSTALLS,
    "ssh -t HOST tmux new -A -s inspector .venv/bin/inspector --model DIR": FAR,
}  # fmt: skip
"""Those that are not run here, and why."""
NAMES = {
    "inspector batch", "inspector beam", "inspector diff", "inspector export",
    "inspector generate", "inspector show", "inspector lesson new", "inspector score",
}  # fmt: skip
"""Names of commands that say what is missing where nothing follows them."""
RUN = [QUICK, SLOW, SCREENS]
PAGE_COMMANDS = {line for path in PAGES for line in shell_lines(path.read_text(encoding="utf-8"))}
SHOWN = {f"inspector {each.command}" for each in EXAMPLES}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with what the commands read, and no configuration or sessions but its own."""
    here = tmp_path / "place"
    (here / "path/to/a").mkdir(parents=True)
    (here / "DIR").mkdir()
    for name in ("MODEL", "A", "B", "path/to/a/model"):
        (here / name).symlink_to(pocket.directory())
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    short = short_directory()  # paths of sockets are bounded
    monkeypatch.setenv("XDG_STATE_HOME", str(short))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield here
    shutil.rmtree(short)


def prepare(command: str, here: Path) -> list[str]:
    """Write what a command reads; returns its arguments."""
    words = shlex.split(STANDS_FOR.get(command, command))[1:]
    if words[0:1] == ["open"]:
        shutil.copy(SERVED, here / "FILE")
        (here / "reply.json").write_text(json.dumps(whole_reply()))
    elif words[0:1] in (["replay"], ["export"]):
        for name in ("FILE", "NAME"):
            shutil.copy(ROOT / "inspector/demo/demonstration.trace.zst", here / name)
    else:
        lines = 60 if words[0:1] == ["train"] else 2
        (here / "FILE").write_text(
            "Once upon a time, there was a little girl named Lily. She had a red ball. " * lines
        )
    if "my-lesson" in command and words[:2] != ["lesson", "new"]:
        assert cli.main(["lesson", "new", "my-lesson.md"]) == 0
        if "--recorded" in command or ".trace" in command:
            assert cli.main(["lesson", "record", "my-lesson.md"]) == 0
    return words


def whole_reply() -> object:
    """The first reply of the recording that was not streamed and has logprobs."""
    entries = json.loads(SERVED.read_text(encoding="utf-8"))["log"]["entries"]
    return json.loads(entries[4]["response"]["content"]["text"])


def run(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints in this process, which must go well."""
    capsys.readouterr()
    code = cli.main(words)
    out, err = capsys.readouterr()
    assert code == 0, err
    return out + err


def process(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "inspector", *words]


def test_each_command_has_its_place() -> None:
    """A new command of a page goes into one of the tables above."""
    known = [*(name for each in RUN for name in each), *REST, *NAMES, *SHOWN]
    benchmarks = {line for line in PAGE_COMMANDS if line.startswith("python -m tests.benchmarks")}
    assert sorted(known) == sorted(set(known)), "in one table"
    assert PAGE_COMMANDS - benchmarks - set(known) == set(), "say how it is run, or why not"
    assert set(known) - PAGE_COMMANDS == set(), "no page has it any more"


def test_each_benchmark_that_is_named_is_there() -> None:
    """They measure for minutes, on a quiet machine; `tests/test_benchmarks.py` runs each on a small model."""
    for line in PAGE_COMMANDS:
        if line.startswith("python -m "):
            assert find_spec(line.split()[2]), line


@pytest.mark.parametrize("command", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)])
def test_a_command_runs(command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = prepare(command, place)
    assert {**QUICK, **SLOW}[command] in run(words, capsys)


@pytest.mark.parametrize("command", sorted(NAMES))
def test_a_name_alone_says_what_is_missing(
    command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(shlex.split(command)[1:]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("inspector: error: ")
    assert printed.err.count("\n") == 1


@contextmanager
def screen(words: Sequence[str]) -> Iterator[Terminal]:
    """A program on a terminal; it leaves with `q`."""
    terminal = Terminal(process(words))
    try:
        yield terminal
        terminal.press(b"q")
        assert terminal.leave() == 0, terminal.seen[-2000:]
        assert b"Traceback" not in terminal.seen
    finally:
        terminal.close()


@contextmanager
def session(command: str) -> Iterator[None]:
    """One that runs in another terminal meanwhile, or was left before, where a command asks for that."""
    if "--follow" in command:
        with screen([]) as other:
            other.until("DECODE")
            yield
        return
    if "--resume" in command:
        with screen([]) as other:
            other.until("DECODE")
            other.press(b" ")
            other.until("perplexity")
    yield


@pytest.mark.slow
@pytest.mark.parametrize("command", SCREENS)
def test_a_screen_opens_and_closes(command: str, place: Path) -> None:
    words = prepare(command, place)
    with session(command), screen(words) as terminal:
        terminal.until(SCREENS[command])


PYTHON = [
    pytest.param(
        block[2], id=f"{path.name}:{path.read_text(encoding='utf-8').count(chr(10), 0, block.start()) + 2}"
    )
    for path in PAGES
    for block in BLOCK.finditer(path.read_text(encoding="utf-8"))
    if block[1] == "python"
]


@pytest.mark.wide(4)
@pytest.mark.parametrize("example", PYTHON)
def test_an_example_in_python_runs(example: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example, "example", "exec"), {})
    assert capsys.readouterr().out.strip()
