"""What visitors and watchers may read, write, load and run: the rows of the table in the page on the browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import confinement
from engine.confinement import VARIABLE, Confinement
from engine.errors import EngineError
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.cli.flags import parsed
from inspector.cli.subcommands import serve
from inspector.config.preferences import Preferences
from inspector.demo import DEMONSTRATION
from inspector.main.dialogs.prompt import completed
from inspector.main.everything import beyond_keys
from inspector.serve.home import absolute, confinement_of

pytest.importorskip("textual_serve")

from inspector.serve import home
from tests.inspector.serve.served import Visitor, eventually, serving

TRIES = """
import json, os, shutil, socket, subprocess, sys, tempfile
from pathlib import Path
from threading import Event
from engine import confinement
from engine.files import read_regular
from engine.model.source import resolve
from engine.models_on_disk.places import listed
from engine.files import replacing, typed
from engine.processes import answer_of
own, other, model, rows = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
os.symlink(other, own / "link")
confinement.begin()

def write(path):
    with replacing(typed(str(path))) as file:
        file.write(b"x")

def load(name):
    return str(resolve(name, lambda record: None, Event()))

for row in rows:
    try:
        answer = eval(row)
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps([row, str(answer)]))
"""
READ = (
    "typed(str(other / 'secret.txt'))",
    "typed(str(other / 'nothing'))",
    "typed('link/secret.txt')",
    "typed('../other/secret.txt')",
    "typed('~/../other/secret.txt')",
    "typed(confinement.__file__)",
    "typed('~root')",
    "typed('~nobody-of-that-name/x')",
    "typed('/proc/self/environ')",
    "read_regular(other / 'secret.txt', 100)",
    "read_regular('link/secret.txt', 100)",
    "open('/proc/self/environ').read()",
    "open('/etc/passwd').read()",
    "os.listdir(other)",
    "os.open(other / 'secret.txt', os.O_RDONLY)",
)
WRITE = (
    "write(other / 'new')",
    "write('link/new')",
    "write('../new')",
    "open(other / 'secret.txt', 'a')",
    "open(other / 'secret.txt', 'r+')",
    "os.remove(other / 'secret.txt')",
    "os.rename(other / 'secret.txt', own / 'mine')",
    "os.mkdir(other / 'folder')",
    "os.link(other / 'secret.txt', own / 'linked')",
    "os.truncate(other / 'secret.txt', 0)",
    "os.chmod(other / 'secret.txt', 0o777)",
    "shutil.rmtree(other)",
)
LOAD = ("load(str(other))", "load('/')", "load('nobody/nothing')", "load('link')", "load('')")
RUN = (
    "os.system('touch ' + str(other / 'new'))",
    "subprocess.run(['sh', '-c', 'true'])",
    "subprocess.run([sys.executable, '-c', 'pass'])",
    "subprocess.run([sys.executable, '-I', '-S', str(other / 'secret.txt')])",
    "os.fork()",
    "os.execv('/bin/true', ['true'])",
    "socket.create_connection(('127.0.0.1', 9))",
    "socket.socket(socket.AF_UNIX).connect('../other/socket')",
    "socket.getaddrinfo('example.org', 80)",
)
REFUSALS = ("outside your folder", "visitors can't", "Visitors can't", "NoFolder")


def tried(tmp_path: Path, rights: Callable[[Path, str], Confinement], *rows: str) -> dict[str, str]:
    """What becomes of some expressions in a confined process, by the expression."""
    own, other, model = (tmp_path / name for name in ("own", "other", "model"))
    for each in (own, other, model):
        each.mkdir()
    (other / "secret.txt").write_text("SECRET", encoding="utf-8")
    (model / "config.json").write_text("{}", encoding="utf-8")
    environ = {
        **os.environ,
        VARIABLE: rights(own, str(model)).as_json(),
        "HOME": str(own),
        "TMPDIR": str(own),
    }
    done = subprocess.run(
        [sys.executable, "-c", TRIES, str(own), str(other), str(model), json.dumps(rows)],
        env=environ, cwd=own, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(other)) == ["secret.txt"]
    assert (other / "secret.txt").read_text(encoding="utf-8") == "SECRET"
    assert (other / "secret.txt").stat().st_mode & 0o777 != 0o777
    return dict(map(json.loads, done.stdout.splitlines()))


def visitor(own: Path, model: str) -> Confinement:
    return Confinement(str(own), (), {"small": model})


def watcher(own: Path, model: str) -> Confinement:
    return Confinement("", (str(own),))


@pytest.mark.wide(4)
@pytest.mark.parametrize("rights", [visitor, watcher])
@pytest.mark.parametrize("rows", [READ, WRITE, LOAD, RUN], ids=["read", "write", "load", "run"])
def test_nothing_outside_is_read_written_loaded_or_run(
    tmp_path: Path, rights: Callable[[Path, str], Confinement], rows: tuple[str, ...]
) -> None:
    answers = tried(tmp_path, rights, *rows)
    assert answers.keys() == {*rows}
    let_through = {row: said for row, said in answers.items() if not any(word in said for word in REFUSALS)}
    assert not let_through
    assert "SECRET" not in str(answers)


def test_a_visitor_has_a_folder_and_the_models_that_are_offered(tmp_path: Path) -> None:
    answers = tried(
        tmp_path, visitor,
        "write('notes.md')", "read_regular('notes.md', 9)", "typed('~/notes.md')", "load('small')", "load(model)",
        "[each.name for each in listed(recent=['/etc'])]", "tempfile.mkdtemp()[:len(str(own))] == str(own)",
        "sorted(answer_of(Path(confinement.__file__).parent / 'grammar' / 'trial_process.py', {}))",
        "confinement.writes()",
    )  # fmt: skip
    model = str(tmp_path / "model")
    *said, compiled, writes = answers.values()
    assert said == ["None", "b'x'", str(tmp_path / "own" / "notes.md"), model, model, "['small']", "True"]
    assert compiled == "[]"  # it was run, and given nothing to do
    assert writes == "True"


def test_a_watcher_writes_nothing(tmp_path: Path) -> None:
    answers = tried(tmp_path, watcher, *WRITE, "write('notes.md')", "open('x', 'w')", "os.mkdir('folder')")
    assert all("outside your folder" in answer for answer in answers.values())
    assert os.listdir(tmp_path / "own") == ["link"]


# ---- what the host gives ----------------------------------------------------------------------


def flags(*argv: str) -> list[str]:
    return serve._screen(parsed(serve.serve_parser(), argv))


@pytest.mark.parametrize(
    "argv",
    [["--trust-remote-code"], ["--ranks", "2"], ["--connect", "unix:/x"], ["--resume"], ["--hostfile", "x"]],
)
def test_flags_that_are_not_for_visitors_need_the_hosts_word(argv: list[str]) -> None:
    with pytest.raises(EngineError, match="--unconfined"):
        flags(*argv)
    if argv != ["--hostfile", "x"]:
        assert flags("--unconfined", *argv) == argv


def test_a_flag_alone_gives_visitors_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HF_TOKEN", "secret")

    def rights(*argv: str) -> tuple[dict[str, str], Path | None]:
        made = serve._homes(parsed(serve.serve_parser(), argv), ["x"], tmp_path)(1)
        return dict(made.environment), made.folder

    environ, folder = rights()
    assert folder is not None
    assert folder.name == "visitor-1"
    assert folder.is_relative_to(tmp_path / "state")
    assert json.loads(environ[VARIABLE])["folder"] == environ["HOME"] == environ["TMPDIR"] == str(folder)
    assert "HF_TOKEN" not in environ
    environ, folder = rights("--watch", "x")
    assert json.loads(environ[VARIABLE])["folder"] == ""
    environ, folder = rights("--unconfined")
    assert (environ.get(VARIABLE), folder, environ["HOME"]) == (None, None, os.environ["HOME"])


def test_what_a_visitor_saved_is_never_run_as_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty or relative entry of the host's PYTHONPATH would lead into the folder in which the program begins."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("", "mine", str(tmp_path), "")))
    made = home.in_folders(tmp_path / "visitors", Confinement())(1)
    assert made.folder is not None
    for folder in (made.folder, made.folder / "mine"):
        folder.mkdir(exist_ok=True)
        (folder / "textwrap.py").write_text("print('a visitor was here')", encoding="utf-8")
    told = subprocess.run(
        home.program("--version"), env=dict(made.environment), cwd=made.folder, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    assert "a visitor" not in told.stdout
    assert {str(tmp_path), str(tmp_path / "mine")} <= {*made.environment["PYTHONPATH"].split(os.pathsep)}


def test_a_visitor_is_proposed_no_name_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from where modules are, which the process may read."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "notes.txt").touch()
    (tmp_path / "secret.txt").touch()
    monkeypatch.chdir(own)
    monkeypatch.setattr(confinement, "_now", Confinement(str(own)))
    assert completed("no") == "notes.txt"
    assert completed(f"{own}/n") == f"{own}/notes.txt"
    assert [completed(text) for text in ("../s", f"{tmp_path}/s", "~root/", "~/../")] == [None] * 4


def test_models_are_offered_by_the_host_and_pocket_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "more/three"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "one" / "weights").symlink_to(tmp_path / "two" / "config.json")
    (tmp_path / "one" / "original").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    args = parsed(serve.serve_parser(), ["--model", "one", "--offer", "two", "--models", "more"])
    offered = confinement_of(args)
    assert offered.models is not None
    assert list(offered.models) == ["pocket", "one", "two", "three"]
    assert offered.models["three"] == str(tmp_path / "more" / "three")
    assert offered.readable == (str(tmp_path / "two" / "config.json"),)
    assert absolute(args) == [f"--model={tmp_path / 'one'}"]
    (tmp_path / "why.txt").write_text("Why?", encoding="utf-8")
    assert flags("--prompt-file", "why.txt")[2:] == [f"--prompt-file={tmp_path / 'why.txt'}"]
    assert flags("-p", "why.txt", "--json-schema", '{"type": "object"}')[4:] == []
    with pytest.raises(EngineError, match="download nothing"):
        confinement_of(parsed(serve.serve_parser(), ["--offer", "nobody/nothing"]))


# ---- by keys, in the program itself -----------------------------------------------------------


@pytest.mark.parametrize(("rights", "offered"), [(None, True), ("", False), ("/x", True)])
def test_a_watchers_finder_takes_no_picture(
    rights: str | None, offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "_now", rights if rights is None else Confinement(rights))
    app = InspectorApp(LoadSettings(), Settings(), begins=Preferences())
    assert ("screenshot" in [each.id for each in beyond_keys(app)]) is offered


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


async def said(visitor: Visitor, typed: str, words: str) -> None:
    visitor.seen = ""
    await visitor.send("stdin", typed)
    await visitor.until(words)


async def test_a_visitors_keys_write_into_their_folder_alone(tmp_path: Path) -> None:
    evil, parent = tmp_path / "evil", tmp_path / "visitors"

    made = home.in_folders(parent, Confinement())
    async with serving(
        command=home.program("replay", "--theme=dark", str(DEMONSTRATION)), home=made
    ) as place:
        visitor = await place.visit(size="width=160&height=40")
        await visitor.until("at its end")
        await said(visitor, "6", "lessons")
        await said(visitor, "\x13", "Save as")
        await said(visitor, f"\x01\x0b{evil}\r", "outside")
        await said(visitor, "\x01\x0bmine.jsonl\r", "Saved")
        await said(visitor, "\x10", "what you want to see")
        await said(visitor, "screenshot", "picture of the screen")
        await visitor.send("stdin", "\r")
        folder = parent / "visitor-1"
        await eventually(lambda: any(name.endswith(".svg") for name in files(folder)))
        assert "mine.jsonl" in files(folder)
        other = await place.visit(size="width=160&height=40")
        await other.until("at its end")
        await eventually(lambda: (parent / "visitor-2").is_dir())
    assert {path.name for path in tmp_path.iterdir()} == {"visitors"}


@pytest.mark.slow
def test_a_visitor_has_the_keys_of_their_own_folder_and_not_the_host_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the host gave them the host's own places."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "host"))
    monkeypatch.setenv("HOME", str(tmp_path / "host"))  # where a Mac looks
    (tmp_path / "empty").mkdir()
    visitor = home.in_folders(tmp_path / "visitors", Confinement())(1)

    def step(of: home.Home) -> list[str]:
        """The keys of a step in a program that is started as a visitor's."""
        asked = (
            "from inspector import places; from inspector.config import own_keys; "
            "from inspector.main.key_table import key_table; from inspector.tools.registry import TOOLS; "
            "print(places.config(), *own_keys.read(list(key_table(TOOLS).places())).keys.get('step', ()), sep='\\n')"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", asked],
            env=of.environment,
            cwd=of.folder,
            capture_output=True,
            text=True,
        )
        folder, *keys = done.stdout.splitlines()
        folders.append(Path(folder))
        return keys

    folders: list[Path] = []
    host = home.as_host(1)
    assert step(host) == []
    folders[0].mkdir(parents=True)
    (folders[0] / "keys.toml").write_text('step = "f5"\n', encoding="utf-8")
    assert step(host) == ["f5"]
    assert step(visitor) == step(home.watching(tmp_path / "empty", DEMONSTRATION)) == []
    folders[2].mkdir(parents=True)
    (folders[2] / "keys.toml").write_text('step = "f6"\n', encoding="utf-8")
    assert step(visitor) == ["f6"]


@pytest.mark.slow
async def test_a_watchers_keys_write_nothing(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    watched = home.watching(empty, DEMONSTRATION)
    command = home.program("replay", "--follow", "--", str(DEMONSTRATION))
    async with serving(command=command, home=lambda number: watched) as place:
        visitor = await place.visit(size="width=160&height=40")
        await visitor.until("at its end")
        await said(visitor, "\x10", "what you want to see")
        await said(visitor, "screenshot", "Nothing is called")
        await visitor.send("stdin", "\r")
        await said(visitor, "\x1b", "Next token")
        await said(visitor, "\x10", "what you want to see")
        await said(visitor, "theme", "Show the screen in these colours")
        await visitor.send("stdin", "\r")
        await visitor.send("stdin", "\x11")
        assert (await visitor.end())[1] == "The program has ended."
    assert not list(empty.iterdir())
