"""`python -m tests.measure CHECKOUT [CHECKOUT ...]`: how much code there is, and how much of it one key runs.

For each checkout, side by side and measured the same way:

    lines, files          of code (no docstrings, comments, blanks), of the product and of the tests
    circles               files that import each other in a circle, also for types alone or inside functions
    space, choice, ...    functions of ours that run, and the files they are in, from the press of a key until nothing
                          more is painted or computed, in the screen's thread and in the engine's; on the bundled model
    down / space          the main thread's time of ↓ in the candidates as a share of that of a step
    replayed step         as `space`, in a recording, without a model

The program runs as its users start it, in a terminal, and is known by its command line and its keys alone.
`--hops` prints the functions of `space` in the order in which they first run, with their depth among ours.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.terminal_screen import TerminalScreen

SKIPPED = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
RUN = ["--seed", "7", "--temp", "1", "--max-tokens", "60", "--ignore-chat-template", "--prompt"]
PROMPT = "Once upon a time"
KEYS = {
    "space": ("space",),
    "choice": ("down", "enter"),
    "what-if": ("s", "down", "1"),
    "attention": ("3", "A"),
}
"""What is pressed for each figure; the functions are counted from the last key of `attention` on."""
UNCHANGED = 3
"""Seconds in which a key must change the screen."""
TURNS = 15
"""Of idling, ↓ and a step, whose median times are compared."""


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure", description=__doc__)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--hops", action="store_true", help="the functions of `space`, of the last checkout")
    args = parser.parse_args()
    figures = [_measured(path.resolve()) for path in args.checkouts]
    for name in figures[-1]:
        if name != "hops":
            print(f"{name:<22}", *(f"{each.get(name, '-'):>22}" for each in figures))
    if args.hops:
        print(*figures[-1]["hops"], sep="\n")
    return 0


def _measured(top: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for title, folders in (("product", ("engine", "inspector")), ("tests", ("tests",))):
        paths = [path for folder in folders for path in sorted((top / folder).rglob("*.py"))]
        figures[f"{title} lines, files"] = f"{sum(map(lines_of, paths)):,} in {len(paths)}"
    figures["files in circles"] = sum(map(len, circles(top)))
    with tempfile.TemporaryDirectory(prefix="measure-") as home:
        return figures | _live(top, Path(home)) | _replayed(top, Path(home))


# ---- what is written ----------------------------------------------------------------------------


def lines_of(path: Path) -> int:
    """Lines of code of a file."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    text = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {
        line
        for token in tokens
        if token.type not in SKIPPED
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code - text)


def circles(top: Path) -> list[list[str]]:
    """The groups of modules that import each other in a circle, in whatever place."""
    paths = {
        ".".join(path.relative_to(top).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in ("engine", "inspector")
        for path in (top / folder).rglob("*.py")
    }
    graph = {name: set(_imports(path, paths)) - {name} for name, path in paths.items()}
    reached = {name: _reached(graph, name) for name in graph}
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in graph
        if name in reached[name]
    }
    return [list(group) for group in sorted(groups)]


def _imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                if inner in known or node.module in known:
                    yield inner if inner in known else node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)


def _reached(graph: dict[str, set[str]], name: str) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for each in graph[waiting.pop()] - found:
            found.add(each)
            waiting.append(each)
    return found


# ---- what runs ----------------------------------------------------------------------------------


class Profiled:
    """The program in a terminal, under `tests/profiled.py`.

    Args:
        top: The checkout.
        home: A directory for what the program writes.
        arguments: Of its command line.
    """

    def __init__(self, top: Path, home: Path, *arguments: str) -> None:
        answers = home / "answers"
        answers.unlink(missing_ok=True)
        os.mkfifo(answers)
        wrapper = Path(__file__).with_name("profiled.py")
        command = (sys.executable, str(wrapper), str(answers), *arguments)
        self.screen = TerminalScreen(command, _environment(top, home), cwd=top)
        self._answers = answers.open(encoding="utf-8")
        self.screen.wait_for("space")
        self.screen.settle()

    def __enter__(self) -> Profiled:
        return self

    def __exit__(self, *error: object) -> None:
        self.screen.close()
        self._answers.close()

    def press(self, *keys: str) -> None:
        """Press keys one after another, and wait after each until it has changed the screen and nothing computes.

        Raises:
            TimeoutError: A key changes nothing.
        """
        for key in keys:
            before = self.screen.cells()
            self.screen.press(key)
            self.screen.wait_for(lambda _: self.screen.cells() != before, timeout=UNCHANGED)  # noqa: B023
            self.screen.settle()

    def calls(self, *keys: str) -> list[tuple[int, str, str]]:
        """Depth, file and name of the functions that keys run."""
        self._ask(signal.SIGUSR1)
        self.press(*keys)
        return [(depth, file, name) for depth, file, name in self._ask(signal.SIGUSR1)]

    def seconds(self, *keys: str) -> float:
        """Seconds of the main thread that keys take."""
        before = self._ask(signal.SIGUSR2)
        self.press(*keys)
        self.screen.settle()
        return float(self._ask(signal.SIGUSR2) - before)

    def seconds_of_a_candidate(self) -> float:
        """Seconds of the main thread that ↓ takes in the candidates, or ↑ if the last one is highlighted."""
        try:
            return self.seconds("down")
        except TimeoutError:
            return self.seconds("up")

    def _ask(self, number: signal.Signals) -> Any:
        self.screen.process.send_signal(number)
        if line := self._answers.readline():
            return json.loads(line)
        self.screen.wait_closed()
        raise RuntimeError(f"the program has ended:\n{self.screen.text()}")


def _live(top: Path, home: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with Profiled(top, home, "--no-save", *RUN, PROMPT) as program:
        program.press("space", "space", "space")
        program.calls("space")
        for name, keys in KEYS.items():
            if name == "attention":
                program.press(keys[0])
                keys = keys[1:]
            calls = program.calls(*keys)
            figures[name] = _sum(calls)
            if name == "space":
                figures["hops"] = [f"{'  ' * depth}{file}:{function}" for depth, file, function in calls]
            program.screen.press("escape")
        turns = [
            (program.seconds(), program.seconds_of_a_candidate(), program.seconds("space"))
            for _ in range(TURNS)
        ]
    idle, down, step = (sorted(times)[TURNS // 2] for times in zip(*turns, strict=True))
    down, step = down - idle, step - idle
    return figures | {"down / space": f"{down * 1000:.1f} / {step * 1000:.1f} ms, {down / step:.2f}"}


def _replayed(top: Path, home: Path) -> dict[str, str]:
    trace = str(home / "recorded.trace.zst")
    generate = (sys.executable, "-m", "inspector", "generate", *RUN, PROMPT, "--output", trace)
    subprocess.run(generate, env=_environment(top, home), cwd=top, check=True, capture_output=True)
    with Profiled(top, home, "replay", trace) as program:  # it opens at its end
        program.press(*("backspace",) * 6, *("space",) * 2)
        return {"replayed step": _sum(program.calls("space"))}


def _environment(top: Path, home: Path) -> dict[str, str]:
    places = {f"XDG_{name}_HOME": str(home / name) for name in ("STATE", "CONFIG", "DATA", "CACHE")}
    return os.environ | {"HOME": str(home), **places, "PYTHONPATH": str(top), "INSPECTOR_CONFIG": ""}


def _sum(calls: list[tuple[int, str, str]]) -> str:
    return f"{len(calls)} in {len({file for _, file, _ in calls})} files"


if __name__ == "__main__":
    sys.exit(main())
