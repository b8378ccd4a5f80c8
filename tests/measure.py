"""`python -m tests.measure CHECKOUT [CHECKOUT ...]`: how much code there is, and how much of it one key runs.

For each checkout, side by side and measured the same way:

    lines, files          of code (no docstrings, comments, blanks), of the product and of the tests
    naming                files of the product that name a command or its records
    circles               files that import each other in a circle, also for types alone or inside functions
    space, choice, ...    functions of ours that run, and the files they are in, from the press of a key until it
                          is painted, in the screen's thread and in the engine's; on the bundled model
    down / space          the main thread's time of ↓ in the candidates as a share of that of a step

`--hops` prints the functions of `space` in the order in which they first run, with their depth among ours.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

SKIPPED = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
NAMED = {
    "DrawMany": r"\b(DrawMany|DrawsCounted|DrawnToken)\b",
    "SweepHeads": r"\b(SweepHeads|HeadsSwept|SweptUnit)\b",
}
KEYS = {"space": ("space",), "choice": ("down", "enter"), "what-if": ("s", "down", "1"), "attention": ("A",)}
"""What is pressed for each figure."""


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure", description=__doc__)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--hops", action="store_true", help="the functions of `space`, of the last checkout")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        os.chdir(args.checkouts[0])
        sys.path.insert(0, os.getcwd())
        print(json.dumps(asyncio.run(_keys())))
        return 0
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
    product = [path for folder in ("engine", "inspector") for path in (top / folder).rglob("*.py")]
    for title, pattern in NAMED.items():
        figures[f"files naming {title}"] = sum(bool(re.search(pattern, path.read_text())) for path in product)
    figures["files in circles"] = sum(map(len, circles(top)))
    command = (sys.executable, __file__, "--inside", str(top))
    environment = os.environ | {"PYTHONPATH": str(top), "INSPECTOR_CONFIG": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=top)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return figures
    return figures | json.loads(done.stdout.splitlines()[-1])


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


# ---- what runs; in a process of its own, with nothing imported but its checkout -------------------


class Profile:
    """The functions of ours that are called while it is on."""

    def __init__(self) -> None:
        self._top = os.getcwd() + os.sep
        self._calls: list[tuple[int, str, str]] = []
        self.on = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Take in one event of the interpreter."""
        file = frame.f_code.co_filename
        if self.on and event == "call" and self._own(file):
            depth, outer = 0, frame.f_back
            while outer is not None:
                depth, outer = depth + self._own(outer.f_code.co_filename), outer.f_back
            self._calls.append((depth, file[len(self._top) :], frame.f_code.co_qualname))

    def _own(self, file: str) -> bool:
        return file.startswith((self._top + "engine", self._top + "inspector"))

    def take(self) -> list[tuple[int, str, str]]:
        """The calls since this was asked for last, each function once."""
        calls, self._calls = self._calls, []
        return list({(file, name): (depth, file, name) for depth, file, name in reversed(calls)}.values())[
            ::-1
        ]


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(120):
        while not true():
            await asyncio.sleep(0.01)


async def _keys() -> dict[str, Any]:
    from engine.settings import LoadSettings, Settings
    from inspector.app import InspectorApp
    from inspector.config.preferences import Preferences

    figures: dict[str, Any] = {}
    profile = Profile()
    threading.setprofile(profile)
    settings = Settings(temp=1.0, seed=7, max_tokens=60)
    app = InspectorApp(LoadSettings(), settings, "Once upon a time", False, begins=Preferences())
    async with app.run_test(size=(120, 40)) as pilot:
        client = app.controller.client

        async def settle() -> None:
            await until(lambda: not client.outstanding and client.timeline.next is not None)
            for _ in range(3):
                await pilot.pause()

        async def press(*keys: str) -> None:
            for key in keys:
                await pilot.press(key)
                await settle()

        async def count(keys: tuple[str, ...], rest: float = 0.4) -> list[tuple[int, str, str]]:
            profile.take()
            profile.on = True
            sys.setprofile(profile)
            await press(*keys)
            await asyncio.sleep(rest)
            await settle()
            sys.setprofile(None)
            profile.on = False
            return profile.take()

        await settle()
        await press("space", "space", "space")
        ahead = getattr(app, "_ahead", None)  # what is imported ahead
        await until(lambda: ahead is None or ahead.done)
        await asyncio.sleep(3)
        await count(("space",))
        for name, keys in KEYS.items():
            if name == "attention" and hasattr(app.main, "open_tab"):  # older checkouts have no tabs
                await press("3")
            calls = await count(keys, 0.4 if name in ("space", "choice") else 1.5)
            figures[name] = f"{len(calls)} in {len({file for _, file, _ in calls})} files"
            if name == "space":
                figures["hops"] = [f"{'  ' * depth}{file}:{name}" for depth, file, name in calls]
            await press("escape")
        threading.setprofile(None)
        down, step = await _times(app)
        figures["down / space"] = f"{down * 1000:.1f} / {step * 1000:.1f} ms, {down / step:.2f}"
    figures["replayed step"] = await _replayed(profile)
    return figures


async def _times(app: Any) -> tuple[float, float]:
    """Seconds of the main thread for ↓ in the candidates and for a step, the median of 15 each in turns.

    What it takes in the same quarter of a second without a key is taken off.
    """
    from textual import events

    taken: dict[str, list[float]] = {"": [], "down": [], "space": []}
    for _ in range(15):
        for key, times in taken.items():
            began = time.thread_time()
            if key:
                app._driver.process_message(events.Key(key, " " if key == "space" else None))
            await asyncio.sleep(0.25)
            times.append(time.thread_time() - began)
    idle, down, step = (sorted(each)[len(each) // 2] for each in taken.values())
    return down - idle, step - idle


async def _replayed(profile: Profile) -> str:
    from engine.settings import LoadSettings, Settings
    from inspector.app import InspectorApp
    from inspector.config.preferences import Preferences
    from inspector.session.playback import Opening

    trace = Opening(Path("inspector/demo/demonstration.trace.zst"))
    app = InspectorApp(LoadSettings(), Settings(), trace=trace, begins=Preferences())
    async with app.run_test(size=(120, 40)) as pilot:
        await asyncio.sleep(4)
        for key in ("backspace",) * 6 + ("space",) * 2:  # it opens at its end
            await pilot.press(key)
            await asyncio.sleep(0.5)
        await asyncio.sleep(2)
        profile.take()
        profile.on = True
        sys.setprofile(profile)
        await pilot.press("space")
        await asyncio.sleep(0.4)
        await pilot.pause()
        sys.setprofile(None)
        calls = profile.take()
    return f"{len(calls)} in {len({file for _, file, _ in calls})} files"


if __name__ == "__main__":
    sys.exit(main())
