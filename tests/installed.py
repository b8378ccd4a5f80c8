"""The package as somebody gets it: the wheel alone, in a fresh environment of each Python, used; and by each installer.

`python -m tests.installed WHEEL [PYTHON ...]` prints times and sizes, and fails where something doesn't work. The
Pythons are by default those of the classifiers that are on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.inspector.test_starts import Terminal

PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
STORY = ("-p", "Once upon a time", "--ignore-chat-template", "--max-tokens", "12")
COMMANDS: dict[tuple[str, ...], str] = {
    ("generate", *STORY): "there was a little girl named Lily",
    ("generate", *STORY, "-o", "story.trace.zst"): "finished",
    ("export", "story.trace.zst", "-o", "story.html"): "story.html: ",
    ("export", "1", "--to", "html"): ".html: ",
    ("learn", "3", "--plain", "--recorded"): "Card 1 of 6",
    ("doctor",): "ok",
}
"""What is run without a screen, and words that it prints."""
SCREENS: dict[tuple[str, ...], str] = {
    (): "DECODE",
    ("replay",): "RECORDED",
    ("replay", "story.trace.zst"): "RECORDED",
    ("learn", "3"): "Temperature and the draw",
}
"""What is opened on a terminal, and words on it."""


def mebibytes(place: Path) -> int:
    """What the files below a directory take on the disk, as `du` counts it."""
    seen = {(each.st_dev, each.st_ino): each.st_blocks for each in map(os.lstat, place.rglob("*"))}
    return sum(seen.values()) * 512 // 2**20


@contextmanager
def timed(what: str) -> Iterator[None]:
    begun = time.monotonic()
    yield
    print(f"  {what}: {time.monotonic() - begun:.1f} s", flush=True)


def run(command: Sequence[str | Path], words: str = "") -> None:
    """Run a command, which must go well and print some words."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout)
    assert words in done.stdout, (command, done.stdout)


def opens(command: Sequence[str], words: str) -> None:
    """See words on a screen, and leave it."""
    terminal = Terminal(list(command))
    try:
        terminal.until(words)
        terminal.press(b"q")
        assert terminal.leave() == 0, terminal.seen[-2000:]
    finally:
        terminal.close()


def used(program: str) -> None:
    """Use all that a person begins with."""
    for words, shown in COMMANDS.items():
        with timed(" ".join(words[:2])):
            run([program, *words], shown)
    for words, shown in SCREENS.items():
        with timed(f"screen {' '.join(words)}"):
            opens([program, *words], shown)


def in_python(python: str, wheel: Path, place: Path) -> None:
    """The wheel in a fresh environment of one Python."""
    with timed("pip install"):
        run([python, "-m", "venv", place / "env"])
        run([place / "env/bin/pip", "install", "-q", wheel])
    print(f"  {mebibytes(place / 'env')} MiB")
    used(str(place / "env/bin/inspector"))


def by_installers(wheel: Path, place: Path) -> None:
    """The wheel by what people install programs with."""
    begun = f"{place}/.local/bin/inspector"
    for installer, *words in (["uv", "tool", "install", "-q"], ["pipx", "install", "--quiet"]):
        with timed(" ".join([installer, *words])):
            run([installer, *words, wheel])
        run([begun, "generate", *STORY], "there was a little girl")
        run([installer, *(words[:1] if installer == "uv" else []), "uninstall", "mlx-inspector"])
    with timed("uvx --from"):
        run(["uvx", "--from", wheel, "inspector", "generate", *STORY], "there was a little girl")


def main(wheel: str, *pythons: str) -> None:
    """Try the wheel in each Python, with an empty home directory."""
    path, tried = Path(wheel).resolve(), 0
    print(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB")
    for python in pythons or PYTHONS:
        found = shutil.which(python)
        if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
            print(f"{python}: not here")
            continue
        with tempfile.TemporaryDirectory() as name, home(Path(name)):
            print(found)
            in_python(found, path, Path(name))
            tried += 1
    assert tried, "no Python was tried"
    with tempfile.TemporaryDirectory() as name, home(Path(name)):
        by_installers(path, Path(name))


@contextmanager
def home(place: Path) -> Iterator[None]:
    """Have programs begin in an empty home directory, without this checkout."""
    before, environ = Path.cwd(), dict(os.environ)
    os.chdir(place)
    os.environ |= {
        "HOME": str(place),
        "PIPX_HOME": str(place / "pipx"),
        "PIPX_BIN_DIR": str(place / ".local/bin"),
    }
    for name in ("PYTHONPATH", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ |= environ


if __name__ == "__main__":
    main(*sys.argv[1:])
