"""Puts random faults into the program, one at a time, and sees whether the tests notice.

    python -m tests.mutants --seed 4711 --count 60

A third of the faults are in `engine/`, the others in `inspector/`; they are put into a copy of the project. First the
quick tests run once with coverage. Then each fault is tried with the tests that reach its line, those of its own folder
and those that reach the fewest lines first, for at most `--budget` seconds; a line that no test reaches is tried with
the tests of its folder and those that import its module. Prints a line for each fault, and at last the share that was
noticed. The run with coverage takes 10 to 20 minutes (`--map` keeps what it found), a fault 5 to 200 seconds.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("compare", "arithmetic", "constant", "and/or", "not", "check", "conditional", "call")
OPPOSITES = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/",
}  # fmt: skip
UNTRIED = {"demo"}
"""Folders of scripts that made what is shipped."""
MOST_TESTS = 800


@dataclass(frozen=True)
class Fault:
    """One change of the program's text: the bytes from `start` to `end` of a file become `new`."""

    kind: str
    file: str
    line: int
    start: int
    end: int
    old: str
    new: str


def faults_of(file: Path, name: str) -> Iterator[Fault]:
    """Every fault that can be put into the functions of a file; annotations and f-strings stay as they are."""
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    line_starts = [0]
    for line in source.encode().split(b"\n"):
        line_starts.append(line_starts[-1] + len(line) + 1)

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = line_starts[node.lineno - 1] + node.col_offset
        return first, line_starts[node.end_lineno - 1] + node.end_col_offset

    def text(node: ast.expr | ast.stmt) -> str:
        start, end = span(node)
        return source.encode()[start:end].decode()

    left_alone = {
        id(inner)
        for node in ast.walk(tree)
        for part in (
            [node] if isinstance(node, ast.JoinedStr)
            else [getattr(node, each, None) for each in ("annotation", "returns")]
        )
        if part is not None
        for inner in ast.walk(part)
    }  # fmt: skip
    in_functions = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in left_alone or id(node) not in in_functions:
            continue
        changed: ast.expr | ast.stmt
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                kind, changed, new = "compare", node, f"{text(left)} {OPPOSITES[type(op)]} {text(right)}"
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right) if not isinstance(
                left, ast.Constant | ast.JoinedStr
            ):
                new = f"({text(left)} {OPPOSITES[type(node.op)]} {text(right)})"
                kind, changed = "arithmetic", node
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                kind, changed, new = "constant", node, str(value + 1)
            case ast.BoolOp(values=[left, right]):
                word = "or" if isinstance(node.op, ast.And) else "and"
                kind, changed, new = "and/or", node, f"(({text(left)}) {word} ({text(right)}))"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                kind, changed, new = "not", node, f"bool({text(operand)})"
            case ast.If(test=test, body=[ast.Raise()], orelse=[]):
                kind, changed, new = "check", test, "False"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                kind, changed = "conditional", node
                new = f"({text(orelse)} if {text(test)} else {text(body)})"
            case ast.Expr(value=ast.Call()):
                kind, changed, new = "call", node, "pass"
            case _:
                continue
        yield Fault(kind, name, changed.lineno, *span(changed), text(changed), new)


def chosen(root: Path, seed: int, count: int) -> list[Fault]:
    """Faults drawn by a seed: kinds in turn, a third in the engine, in as many files as there are."""
    pools = {
        folder: [
            fault
            for file in sorted((root / folder).rglob("*.py"))
            if not UNTRIED & {*file.parts}
            for fault in faults_of(file, str(file.relative_to(root)))
        ]
        for folder in ("engine", "inspector")
    }
    drawn, used, found = random.Random(seed), set[str](), list[Fault]()
    for place in range(count):
        kind = KINDS[place % len(KINDS)]
        pool = [each for each in pools["inspector" if place % 3 else "engine"] if each.kind == kind]
        fault = drawn.choice([each for each in pool if each.file not in used] or pool)
        used.add(fault.file)
        found.append(fault)
    return found


# ---- which tests reach a line -------------------------------------------------------------------


class TestMap:
    """Which quick tests reach which line, and how long each takes.

    Args:
        data: Coverage's file, with the tests as contexts.
        report: The report of the same run, in JUnit's form.
    """

    __test__ = False

    def __init__(self, root: Path, data: Path, report: Path) -> None:
        self._root = root
        self._database = sqlite3.connect(data)
        self._seconds = {}
        for case in ElementTree.parse(report).iter("testcase"):
            self._seconds[case.get("classname", "") + "." + case.get("name", "")] = float(
                case.get("time", "0")
            )
        self._width = dict(
            self._database.execute("select context_id, count(*) from line_bits group by context_id")
        )

    @classmethod
    def measured(cls, root: Path, folder: Path) -> TestMap:
        """Run the quick tests once, if the folder doesn't hold what they reach."""
        # coverage deletes whatever is named coverage.*
        data, report, config = (folder / name for name in ("coverage", "report.xml", "settings.ini"))
        if not report.exists():
            folder.mkdir(parents=True, exist_ok=True)
            config.write_text(
                f"[run]\nsource = engine,inspector\nrelative_files = true\ndata_file = {data}\n"
            )
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "--cov", f"--cov-config={config}", "--cov-context=test",
                 "--cov-report=", f"--junitxml={report}"],
                cwd=root, env=environment(root), check=False,
            )  # fmt: skip
            if done.returncode:
                report.unlink(missing_ok=True)
                sys.exit("The tests fail without a fault; mend them first.")
        return cls(root, data, report)

    def tests(self, fault: Fault) -> list[str]:
        """The tests that reach a line, the most special first; else those of its folder and of its module."""
        from coverage.numbits import num_in_numbits

        rows = self._database.execute(
            "select context.context, context.id, numbits from line_bits join file on file.id = file_id "
            "join context on context.id = context_id where file.path = ? and context.context != ''",
            (fault.file,),
        )
        found: dict[str, int] = {}
        for context, number, numbits in rows:
            if num_in_numbits(fault.line, numbits):
                test = context.rpartition("|")[0]
                found[test] = min(self._width[number], found.get(test, sys.maxsize))
        near = str(Path("tests", fault.file).parent)
        ranked = sorted(found, key=lambda test: (not test.startswith(near), found[test]))
        return spread_over_files(ranked, MOST_TESTS) or self._related(fault)

    def _related(self, fault: Fault) -> list[str]:
        module = fault.file.removesuffix(".py").replace("/", ".")
        folder = Path("tests", fault.file).parent
        files = [path.relative_to(self._root) for path in sorted((self._root / "tests").rglob("test_*.py"))]
        importing = [
            path for path in files
            if re.search(rf"\b{re.escape(module)}\b", (self._root / path).read_text(encoding="utf-8"))
        ]  # fmt: skip
        beside = [path for path in files if path.parent == folder]
        return [str(path) for path in dict.fromkeys(importing + beside)][:8]


def spread_over_files(ranked: list[str], most: int) -> list[str]:
    """The first tests of every file, so many in all; those of a file stay together."""
    files = [test.partition("::")[0] for test in ranked]
    seen = Counter[str]()
    turns = []
    for file in files:
        seen[file] += 1
        turns.append(seen[file])
    kept = sorted(range(len(ranked)), key=lambda place: (turns[place], place))[:most]
    return [ranked[place] for place in sorted(kept, key=lambda place: (files.index(files[place]), place))]


def environment(root: Path) -> dict[str, str]:
    """That of a test run in a copy of the project."""
    return os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}


def noticed(root: Path, fault: Fault, tests: list[str], budget: float) -> str | None:
    """Put a fault in, run tests until one fails, and take it out; returns the test, or None if all passed."""
    if not tests:
        return None
    file = root / fault.file
    before = file.read_bytes()
    file.write_bytes(before[: fault.start] + fault.new.encode() + before[fault.end :])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=environment(root),
            capture_output=True,
            text=True,
            timeout=budget,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        printed = (expired.stdout or b"").decode()
        # a test that hangs has noticed; tests that are merely many have not
        return None if printed.count(".") > len(tests) // 20 else "a test that never ended"
    finally:
        file.write_bytes(before)
    if done.returncode in (0, 5):
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return (
        failed[1] if failed else done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "no start"
    )


def main() -> int:
    """Try the faults of a seed; returns the exit status: 1 if fewer than `--least` per cent were noticed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=4711)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--places", type=int, nargs="+", help="only these of them, by their numbers")
    parser.add_argument("--budget", type=float, default=200, help="seconds for each fault")
    parser.add_argument("--least", type=float, default=80, help="per cent that must be noticed")
    parser.add_argument("--map", type=Path, help="a folder that keeps which tests reach which line")
    parser.add_argument(
        "--also", nargs="+", default=[], help="tests newer than the map: each fault's first ones"
    )
    parser.add_argument("--list", action="store_true", help="print the faults as JSON lines, and run nothing")
    args = parser.parse_args()
    if args.list:
        print(*(json.dumps(asdict(fault)) for fault in chosen(ROOT, args.seed, args.count)), sep="\n")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "checkout")
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
        test_map = TestMap.measured(root, (args.map or Path(scratch, "map")).resolve())
        results: list[tuple[Fault, bool]] = []
        for place, fault in enumerate(chosen(root, args.seed, args.count)):
            if args.places and place not in args.places:
                continue
            began = time.monotonic()
            tests = [*args.also, *test_map.tests(fault)]
            by = noticed(root, fault, tests, args.budget)
            results.append((fault, by is not None))
            word = (
                f"noticed by {by}" if by else f"SURVIVED {len(tests)} tests: {fault.old!r} -> {fault.new!r}"
            )
            took = time.monotonic() - began
            print(f"{place:3} {fault.kind:11} {fault.file}:{fault.line} {word} ({took:.0f} s)", flush=True)
    for folder in ("engine", "inspector"):
        own = [caught for fault, caught in results if fault.file.startswith(folder)]
        print(f"{folder}: {sum(own)} of {len(own)} noticed")
    share = 100 * sum(caught for _, caught in results) / max(len(results), 1)
    print(f"{share:.0f} % noticed")
    return 0 if share >= args.least else 1


if __name__ == "__main__":
    sys.exit(main())
