"""What a visitor's process asks of the system, whichever library asks: traced while paths are typed in its dialogs."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("textual_serve")

from engine.confinement import Confinement
from engine.pocket import directory
from inspector.serve import home
from tests.inspector.serve.served import Visitor, serving

ROOT = Path(__file__).parents[3]
STRACE = ("strace", "-f", "-y", "-qq", "-s", "500", "--seccomp-bpf", "-e", "trace=%file,connect,bind")
OF_THE_SYSTEM = (
    "/usr", "/lib", "/lib64", "/sys", "/proc", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/ssl",
    "/dev/null", "/dev/tty", "/dev/urandom", "/dev/pts", "/dev/ptmx",
)  # fmt: skip
WRITES = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)")
READING = {"open", "openat"}
ASKING = {"access", "faccessat", "faccessat2", "stat", "lstat", "newfstatat", "statx", "readlink", "readlinkat",
          "getcwd", "statfs", "chdir", "execve"}  # fmt: skip
"""Calls that neither read nor write a file; what is executed is looked at apart."""


def runs_strace() -> bool:
    """Whether processes can be traced here."""
    if shutil.which("strace") is None:
        return False
    return (
        subprocess.run([*STRACE, "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0
    )


def calls(trace: str) -> Iterator[tuple[str, str]]:
    """Each call that succeeded: its name, and its arguments with the result."""
    begun: dict[str, str] = {}
    for line in trace.splitlines():
        process, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[process] = rest.removesuffix("<unfinished ...>")
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>", rest):
            rest = begun.pop(process, "") + rest[resumed.end() :]
        name, bracket, arguments = rest.partition("(")
        if bracket and not re.search(r"= -1 E\w+ \([^()]*\)$", rest):
            yield name, arguments


def paths(arguments: str) -> Iterator[str]:
    """The paths of a call, from their folder on."""
    for folder, path in re.findall(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"', arguments):
        yield os.path.normpath(os.path.join(folder, path))


def outside(trace: str, own: Path) -> set[str]:
    """What was read, written, reached or started that is not a visitor's."""
    code = (str(ROOT / "engine"), str(ROOT / "inspector"), sys.prefix, sys.base_prefix)
    read = (str(own), *code, *OF_THE_SYSTEM, *filter(None, sys.path[1:]))
    found = set()
    for name, arguments in calls(trace):
        if name in ("connect", "bind"):
            found.add(f"{name} {arguments}")
        elif name == "execve":
            if not arguments.startswith(f'"{sys.executable}"'):
                found.add(f"{name} {arguments}")
        elif name not in ASKING:
            writes = name not in READING or WRITES.search(arguments)
            allowed = (str(own), "/dev/null", "/dev/tty") if writes else read
            found |= {
                f"{name} {path}"
                for path in paths(arguments)
                if not any(path == each or path.startswith(f"{each}/") for each in allowed)
            }
    return found


async def pressed(visitor: Visitor, keys: str, words: str) -> None:
    visitor.seen = ""
    await visitor.send("stdin", keys)
    await visitor.until(words)


async def left(visitor: Visitor) -> None:
    """Leave what is open: an escape alone, as a person presses it."""
    for _ in range(3):
        await visitor.send("stdin", "\x1b")
        await asyncio.sleep(0.5)


@pytest.mark.slow
async def test_nothing_outside_is_asked_of_the_system(tmp_path: Path) -> None:
    if not runs_strace():
        pytest.skip("processes can't be traced here")
    (tmp_path / "secret.txt").write_text("SECRET", encoding="utf-8")
    trace = tmp_path / "trace"
    made = home.in_folders(tmp_path / "visitors", Confinement("", (), {"pocket": str(directory())}))
    own = tmp_path / "visitors" / "visitor-1"
    bad = (
        f"{tmp_path}/secret.txt", "../../secret.txt", "link/secret.txt", "~root/x", "~nobody-of-that-name/x",
        "/etc/passwd",
    )  # fmt: skip

    def linked(number: int) -> home.Home:
        place = made(number)
        (own / "link").symlink_to(tmp_path)
        return replace(place, environment={**place.environment, "PYTHONDONTWRITEBYTECODE": "1"})

    command = (*STRACE, "-o", str(trace), *home.program("--theme=dark"))
    async with serving(command=command, home=linked) as place:
        visitor = await place.visit(size="width=160&height=40")
        await visitor.until("Space or")
        for keys, dialog in (
            ("6\x13", "Save as"),
            ("6E", "Export"),
            ("1p\x0f", "from a file"),
            ("3o", "hub id"),
        ):
            await pressed(visitor, keys, dialog)
            if dialog == "Export":
                await visitor.send("stdin", "\t")
            for path in bad:
                await pressed(visitor, f"\x01\x0b{path}\r", "outside")
            await left(visitor)
        await pressed(visitor, "6\x13", "Save as")
        await pressed(visitor, "\x01\x0bmine.jsonl\r", "Saved")
        await pressed(visitor, "1J", "must match")
        await pressed(visitor, "[0-9]+", "can be used")
        await left(visitor)
    assert (own / "mine.jsonl").is_file()
    assert not outside(trace.read_text(encoding="utf-8", errors="replace"), own)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["secret.txt", "trace", "visitors"]
