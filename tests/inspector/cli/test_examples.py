"""What README and the help pages show is what the program prints, and what they name exists.

An example is a block whose first line begins with `$ inspector`: it is run on the bundled model, and each line below it
must be printed. Text, ids and counts are compared as they are, decimals to the digits that are shown. What another
run or machine changes is not: times, speeds, memory, versions of libraries, a seed that was drawn. `...` stands
for any lines. Where no line is below it, the block of JSON that follows shows one line of what is printed.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from inspector.cli import main as cli
from inspector.cli.flags import Parser, names_model

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "inspector/help").rglob("*.md"))]
PROMPT = "$ inspector "
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MEASURED = ("first token ", "each token ", "memory ", "took ", "seed ")
"""Beginnings of lines of which no more than that is compared."""
MACHINES = re.compile(r",? with warm-up|(?<=OpenBLAS) [\d.]+|[\d.,]+ m?s\b")
NUMBER = re.compile(r"\d[\d,]*\.\d+|\d[\d,]*")
OTHERS = {
    "pip", "pytest", "ssh", "ruff", "mypy", "python", "pytest-xdist",
    "mlx.launch", "mlx_lm", "mlx_lm.generate",
}  # fmt: skip
FOREIGN = {
    "--diff-algorithm", "--kl-divergence", "--check", "--force-reinstall", "--listen-host", "--listen-port", "--port",
}  # fmt: skip
"""Flags of other programs that the pages name."""


class Example(Struct, frozen=True):
    """A command, and what the page says it prints."""

    page: str
    line: int
    command: str
    shown: tuple[str, ...]
    json: str = ""


def examples() -> Iterator[Example]:
    """All of them, page by page."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        blocks = list(BLOCK.finditer(text))
        for place, block in enumerate(blocks):
            if block[2].startswith(PROMPT):
                first, *rest = block[2].splitlines()
                after = blocks[place + 1][2] if not rest else ""
                line = text.count("\n", 0, block.start()) + 2
                yield Example(path.name, line, first.removeprefix(PROMPT), tuple(rest), after)


EXAMPLES = list(examples())


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that a command prints, those of standard error last; the test is left out on other arithmetic."""
    assert cli.main(shlex.split(command)) == 0
    out, err = capsys.readouterr()
    if "float32 (files: bfloat16), cpu" not in err and '"dtype":"float32"' not in out:
        pytest.skip("the examples were made in float32 on a CPU")
    return f"{out.rstrip()}\n{err}".splitlines()


def same(shown: str, line: str) -> bool:
    """Whether a line is the one that is shown, as far as it can be."""
    for measured in MEASURED:
        if shown.startswith(measured):
            return line.startswith(measured)
    shown, line = (" ".join(MACHINES.sub("", each).split()) for each in (shown, line))
    if NUMBER.sub("0", shown) != NUMBER.sub("0", line):
        return False
    return all(map(near, NUMBER.findall(shown), NUMBER.findall(line)))


def near(shown: str, number: str) -> bool:
    """Whether two numbers agree: whole ones are equal, decimals to the last digit that is shown or 1 in 10,000."""
    digits = len(shown.partition(".")[2])
    if not digits:
        return shown == number
    a, b = float(shown.replace(",", "")), float(number.replace(",", ""))
    return math.isclose(a, b, rel_tol=1e-4, abs_tol=1.01 * 10.0**-digits)


def agree(shown: Any, value: Any, name: str = "") -> None:
    """Hold one line of JSON against what was printed; "..." stands for any value."""
    if shown == "...":
        return
    if isinstance(shown, dict):
        assert shown.keys() == value.keys(), name
        if name not in ("ms", "memory"):
            for each in shown:
                agree(shown[each], value[each], each)
    elif isinstance(shown, list):
        assert len(shown) == len(value), name
        for one, other in zip(shown, value, strict=True):
            agree(one, other, name)
    elif isinstance(shown, float):
        assert near(str(abs(shown)), f"{abs(value):.9f}"), (name, shown, value)
    else:
        assert shown == value, name


def test_there_are_some() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.wide(2)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: f"{each.page}:{each.line}")
def test_an_example_prints_what_is_shown(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(example.command, capsys)
    if example.json:
        shown = json.loads(example.json)
        keys = [key for key in ("event", "index") if key in shown]
        told = [json.loads(line) for line in lines if line.startswith("{")]
        [line] = [each for each in told if all(each.get(key) == shown[key] for key in keys)]
        agree(shown, line)
        return
    assert example.shown
    place, anywhere = 0, False
    for shown in example.shown:
        if shown == "...":
            anywhere = True
            continue
        here = next((at for at in range(place, len(lines)) if same(shown, lines[at])), None)
        assert here is not None, (shown, lines[place:])
        assert anywhere or here == place, (shown, lines[place])
        place, anywhere = here + 1, False
    assert anywhere or place == len(lines), lines[place:]


# ---- what is named ----------------------------------------------------------------------------

PARSERS = cli._parsers()
FLAGS = {flag for parser in PARSERS.values() for flag in parser._option_string_actions} | {"--help"}


COMMAND = re.compile(
    r"(?:\$ )?((?:inspector|mitmdump|pipx?|python3?|pytest|scp|ssh|uvx?|\.venv/bin/\S+)(?: .*)?)$"
)
INLINE = re.compile(r"(?<!`)`((?:[^`\n]|\n(?!\n))+)`(?!`)")
WITHIN = re.compile(r"^````.*?^````$", re.MULTILINE | re.DOTALL)
"""A page that is shown in a page."""


def shell_lines(text: str) -> Iterator[str]:
    """The commands that a page has, in blocks, indented and within lines, without what is said after a `#`."""
    text = WITHIN.sub("", text)
    for block in BLOCK.finditer(text):
        for line in block[2].splitlines() if block[1] in ("", "sh") else ():
            if found := COMMAND.match(re.split(r" # ", line)[0].strip()):
                yield found[1]
    rest = BLOCK.sub("", text)
    for code in [*re.findall(r"^ {4}(.*)$", rest, re.MULTILINE), *INLINE.findall(rest)]:
        if found := COMMAND.match(" ".join(re.split(r" # ", code)[0].split())):
            yield found[1].replace("\\|", "|")


def commands(text: str) -> Iterator[str]:
    """Those of the program itself."""
    return (line for line in shell_lines(text) if line.partition(" ")[0] == "inspector")


def parser_of(words: list[str]) -> tuple[str, Parser]:
    """Whose parser reads a command."""
    name = " ".join(words[:2])
    return (name, PARSERS[name]) if name in PARSERS else ("inspector", PARSERS["inspector"])


@pytest.mark.parametrize("path", PAGES, ids=lambda each: each.name)
def test_each_command_that_is_named_is_read(path: Path) -> None:
    for command in commands(path.read_text(encoding="utf-8")):
        words = shlex.split(re.sub(r" ?\.\.\.$|\[[^]]*\]", "", command))
        name, parser = parser_of(words)
        assert name != "inspector" or len(words) == 1 or words[1][0] == "-" or names_model(words[1]), command
        known = parser._option_string_actions
        for word in words:
            assert not word.startswith("--") or word.partition("=")[0] in known, command


@pytest.mark.parametrize("path", PAGES, ids=lambda each: each.name)
def test_each_flag_that_is_named_is_one(path: Path) -> None:
    text = BLOCK.sub("", path.read_text(encoding="utf-8"))
    for code in re.findall(r"`([^`]+)`", text):
        if code.split()[0] in OTHERS or "pip " in code:
            continue
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", code):
            assert flag in FLAGS | FOREIGN, code


def test_what_is_installed_is_in_this_repository() -> None:
    """The program is in no index of packages: an extra of it is named from a clone."""
    named = re.compile(r"install[^`\n]*mlx-inspector")
    sources = [path for package in ("engine", "inspector") for path in (ROOT / package).rglob("*.py")]
    assert [path.name for path in (*PAGES, *sources) if named.search(path.read_text(encoding="utf-8"))] == []
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for path in (*PAGES, *sources):
        for extra in re.findall(r"install[^`\n]*'\.\[(\w+)\]'", path.read_text(encoding="utf-8")):
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE), path
