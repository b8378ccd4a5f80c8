"""Compares what two checkouts of this project produce: `python -m tests.compare_with DIRECTORY`.

DIRECTORY is a checkout of another commit, for example `git worktree add /tmp/before COMMIT`. Both sides run the same
session on the bundled model, each in a process of its own that imports its own checkout and writes files; the files are
then compared byte for byte:

    generate-*, beam-*, score-*    standard output and standard error of the subcommands, as text and as JSON lines
    session-*.records              every record that an engine's thread hands out for a list of commands, one a line
    session-*.jsonl, score.jsonl   traces of the same, written by `engine.trace` with a fixed time for each entry
    export-*                       the shipped demonstration and the recorded session in every format

Only what must differ is masked: milliseconds and rates, the memory of the process and of the machine, dates, the
model's directory, the version, and the seed where a subcommand draws one. Exit status: 0 all is equal, 1 something
differs (then what, and where), 2 a side could not be run. One to two minutes on two cores.

`--keep OUT` keeps the files in OUT/this and OUT/other. A commit whose commands have other names needs a line
in `Names`. A picture of a commit before `picture.SETTLING` may differ by a scrolled row: run it again.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

HERE = Path(__file__).resolve().parents[1]
PROMPT = "Once upon a time, there was a little girl named"
TEXT = "Once upon a time there was a dog.\nHe said: \u201cHello, na\u00efve \U0001f415!\u201d The end."
SEEDED = ["generate", "--prompt", PROMPT, "--max-tokens", "24", "--seed", "7", "--prefill-step-size", "8"]
GENERATE: dict[str, list[str]] = {
    "greedy": [],
    "top-p": ["--temp", "0.9", "--top-p", "0.9"],
    "raw": ["--ignore-chat-template", "--temp", "1.2", "--min-p", "0.02", "--top-k", "50", "--candidates", "5"],
    "penalties": ["--temp", "0.8", "--repetition-penalty", "1.3", "--presence-penalty", "0.4",
                  "--frequency-penalty", "0.2", "--logit-bias", "339=2.5"],
    "xtc": ["--temp", "1", "--xtc-probability", "0.5", "--sampler-order", "llama.cpp", "--stop", "."],
    "kv-bits": ["--temp", "0.8", "--kv-bits", "4", "--quantized-kv-start", "6"],
    "rotating": ["--temp", "0.8", "--max-kv-size", "16"],
    "no-kv-cache": ["--temp", "0.8", "--no-kv-cache", "--max-tokens", "8"],
}  # fmt: skip
"""Settings that `generate` runs with, as text and as JSON lines."""
BEAM = ["beam", "--prompt", PROMPT, "--max-tokens", "8", "--prefill-step-size", "8"]
SUBCOMMANDS: dict[str, list[str]] = {
    **{f"generate-{name}": [*SEEDED, *flags] for name, flags in GENERATE.items()},
    **{f"generate-{name}-jsonl": [*SEEDED, *flags, "--jsonl"] for name, flags in GENERATE.items()},
    "beam-table": [*BEAM, "--width", "4"],
    "beam-jsonl": [*BEAM, "--width", "3", "--length-penalty", "0.5", "--early-stopping", "--jsonl"],
    "score-table": ["score", "text.txt"],
    "score-summary": ["score", "text.txt", "--summary", "--no-kv-cache"],
    "score-jsonl": [
        "score",
        "text.txt",
        *["--jsonl", "--candidates", "4", "--output", "score.jsonl", "--force"],
    ],
    "error-flag": ["generate", "--prompt", "x", "--temp", "-1"],
    "error-file": ["score", "none.txt"],
}
PROGRAM = "compared 1"
"""As the traces name what wrote them."""
FORMATS = ("html", "md", "csv", "txt", "svg")


# ---- one side: runs in a process of its own, with nothing imported but its checkout ---------------


@dataclass(frozen=True)
class Names:
    """What commits call things differently, found by looking."""

    main: Callable[[list[str]], int]
    take_step: Callable[[], Any]

    @classmethod
    def here(cls) -> Names:
        """Those of the checkout on the path."""
        import importlib

        cli = importlib.import_module("inspector.cli")  # a module once, a folder now
        main = getattr(cli, "main", None)
        if not callable(main):
            main = importlib.import_module("inspector.cli.main").main
        return cls(main, getattr(protocol(), "TakeStep", None) or protocol().Step)


def protocol() -> Any:
    """The module of the commands and records of the checkout on the path."""
    import importlib

    try:
        return importlib.import_module("engine.protocol")
    except ModuleNotFoundError:
        return importlib.import_module("engine.commands")


class Session:
    """An engine's thread, everything that it hands out without its times, and the trace of it."""

    def __init__(self) -> None:
        from engine.thread import EngineThread

        self.kept: list[Any] = []
        """Settings and records that go into the trace."""
        self.lines: list[str] = []
        self._told: SimpleQueue[Any] = SimpleQueue()
        self._engine = EngineThread(self._told.put)
        self._engine.start()

    def keep(self, value: Any) -> None:
        """Put settings into the trace."""
        self.kept.append(value)

    def do(self, command: Any) -> list[Any]:
        """Have a command done; returns its records, without `Loading` and `Restoring`, whose number depends on time."""
        from engine.trace import worth_keeping

        self._engine.send(command)
        found: list[Any] = []
        while not found or type(found[-1]).__name__ != "Ended":
            record = timeless(self._told.get(timeout=120))
            if type(record).__name__ not in {"Loading", "Restoring"}:
                found.append(record)
        self.kept += filter(worth_keeping, found)
        self.lines += map(repr, found)
        return found

    def end(self, name: str) -> None:
        """End the thread and write what was kept."""
        from engine.trace import Entry, save_as

        assert self._engine.close(10)
        Path(f"{name}.records").write_text("\n".join(self.lines) + "\n")
        save_as(f"{name}.jsonl", (Entry(value, at / 4) for at, value in enumerate(self.kept)), PROGRAM)


def timeless(value: Any) -> Any:
    """A record without times, rates, the process's memory and the model's directory, however deep they are in it."""
    if isinstance(value, tuple):
        return tuple(map(timeless, value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    kind, changes = type(value).__name__, {}
    for field in fields(value):
        own = getattr(value, field.name)
        measured = kind in {"StepTimes", "Memory"} or re.fullmatch(r"(\w+_)?(ms|tps)", field.name)
        if measured and isinstance(own, int | float) and not isinstance(own, bool):
            changes[field.name] = type(own)(0)
        elif field.name == "path" and kind == "ModelFacts":
            changes[field.name] = "PATH"
        elif field.name == "free_bytes":
            changes[field.name] = None
        else:
            changes[field.name] = timeless(own)
    return replace(value, **changes)


def explore(names: Names, **load: Any) -> Session:
    """One session: prefill, steps, other tokens, moves, questions, beams, a run."""
    from engine.beam_settings import BeamSettings
    from engine.breakpoints import Breakpoints
    from engine.settings import LoadSettings, Settings

    session, settings = Session(), Settings(temp=0.8, top_p=0.95, seed=7, max_tokens=40)
    session.keep(LoadSettings(**load))
    commands = protocol()
    session.do(commands.Load(LoadSettings(**load)))
    session.keep(settings)
    session.do(commands.Configure(settings))

    def steps(count: int) -> list[Any]:
        found = [record for _ in range(count) for record in session.do(names.take_step())]
        return [record for record in found if type(record).__name__ == "Step"]

    session.do(commands.Prefill(PROMPT, False, step_size=4))
    story = steps(6)
    second = story[2].choice.candidates[1]
    session.do(commands.Choose(story[2].parent, second.id))
    branch = steps(3)
    session.do(commands.MoveTo(story[-1].node))
    session.do(commands.MoveTo(branch[-1].node))
    session.do(commands.Insert(branch[-1].node, " cat\u00e9 \U0001f415"))
    session.do(commands.MoveTo(story[1].node))
    session.do(commands.Reroll())
    session.do(commands.Take(story[3].node, (second.id, story[0].id)))
    session.do(commands.Verify())
    session.do(commands.Explain(story[2].node))
    session.do(commands.Explain(story[2].node, Settings(temp=1.4, min_p=0.05, seed=7)))
    session.do(commands.WhatIf(Settings(temp=1.4, top_k=3, seed=7), story[-1].node))
    session.do(commands.FindTokens(story[1].node, "the", limit=7))
    session.do(commands.FindTokens(story[1].node, "#339"))
    session.do(commands.Tokenize("Hello <|im_end|> na\u00efve \U0001f415"))
    session.do(commands.LookAhead(story[1].node, (story[2].id, second.id), tokens=4))
    session.do(commands.Recall((story[0].node, story[1].node)))
    session.do(commands.MoveTo(story[-1].node))
    session.do(commands.SearchBeams(BeamSettings(width=3, max_tokens=5), steps=2))
    session.do(commands.GoOnBeams())
    other = replace(settings, repetition_penalty=1.2, max_tokens=24)
    session.keep(other)
    session.do(commands.Configure(other))
    session.do(commands.Run(until=Breakpoints(entropy_above=2.5)))
    session.do(commands.Run())
    session.do(commands.MoveTo(9999))
    session.do(commands.Choose(story[0].node, 10**6))
    return session


def record(out: Path) -> None:
    """Write every file of the checkout on the path into a directory."""
    os.chdir(out)
    names = Names.here()
    Path("text.txt").write_text(TEXT)
    for name, argv in SUBCOMMANDS.items():
        run(names, name, argv)
    rewrite(Path("score.jsonl"))
    for name, load in {"plain": {}, "kv-bits": {"kv_bits": 8, "quantized_kv_start": 0},
                       "no-kv-cache": {"no_kv_cache": True}}.items():  # fmt: skip
        explore(names, **load).end(f"session-{name}")
    for kind in FORMATS:
        run(names, f"export-demo-{kind}-told", ["export", "--to", kind, "-o", f"export-demo.{kind}"])
        told = ["export", "session-plain.jsonl", "--to", kind, "-o", f"export-session.{kind}"]
        run(names, f"export-session-{kind}-told", told)
    run(names, "export-light-told", ["export", "--size", "80x24", "--light", "-o", "export-light.svg"])


def run(names: Names, name: str, argv: list[str]) -> None:
    """Run a subcommand; what it prints goes into two files, its exit status into the second."""
    with redirected(f"{name}.out", f"{name}.err"):
        status = names.main(argv)
        print(f"exit status {status}", file=sys.stderr)


@contextmanager
def redirected(out: str, err: str) -> Iterator[None]:
    """Standard output and standard error into files, of whatever writes to their descriptors."""
    before = os.dup(1), os.dup(2)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        for place, path in ((1, out), (2, err)):
            file = os.open(path, flags)
            os.dup2(file, place)
            os.close(file)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for place, old in enumerate(before, 1):
            os.dup2(old, place)
            os.close(old)


def rewrite(path: Path) -> None:
    """Take the times out of a trace that a subcommand wrote."""
    from engine.trace import load, save_as

    entries = [replace(entry, value=timeless(entry.value), at=0.0) for entry in load(path).entries]
    save_as(path, entries, PROGRAM)


# ---- both sides: what is masked, and what differs -------------------------------------------------

JSONL = r"(?:generate|beam|score)-(?:.*-)?jsonl\.out"
MASKS: tuple[tuple[str, str, str], ...] = (
    (JSONL, r'"(\w*_)?(ms|tps)": (-?[\d.e+-]+|\{[^}]*\})', r'"\1\2": #'),
    (JSONL, r'"memory": \{[^}]*\}', '"memory": #'),
    (JSONL, r'"(peak|free)_bytes": \d+', r'"\1_bytes": #'),
    (JSONL, r'"path": "[^"]*"', '"path": #'),
    (r"(beam|score)-(.*-)?jsonl\.out", r'"seed": \d+', '"seed": #'),
    (r".*\.err", r"\d[\d.,\u202f ]* ?(ms|s|tok/s|min)\b", "#"),
    (r".*\.err", r"\b(memory|peak)( +)[\d.,]+ [KMG]iB", r"\1\2#"),
    (
        r".*\.jsonl",
        r'^(\{"mlx-inspector-trace".*)"created":"[^"]*"(.*)"crc":"\w*"',
        r'\1"created":#\2"crc":#',
    ),
    (r"export-.*", r"mlx-inspector \d+\.\d+(\.\w+)*", "mlx-inspector #"),
)
"""Files, what is masked in them, and what stands there instead."""
SHOWN = 4
"""Differences that are shown of one file."""


def masked(name: str, text: str) -> str:
    """A file's text without what must differ."""
    for files, pattern, instead in MASKS:
        if re.fullmatch(files, name):
            text = re.sub(pattern, instead, text)
    return text


def differences(before: str, after: str) -> Iterator[str]:
    """What differs between two texts: pairs of lines, each from shortly before the first difference in it."""
    old, new = before.splitlines(), after.splitlines()
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for place in range(max(b - a, d - c)):
            first = old[a + place] if a + place < b else ""
            second = new[c + place] if c + place < d else ""
            start = max(first_difference(first, second) - 50, 0)
            yield f"  line {a + place + 1}, column {start + 1}"
            yield f"    - {first[start : start + 170]}"
            yield f"    + {second[start : start + 170]}"


def first_difference(first: str, second: str) -> int:
    """The place of the first character in which two texts differ."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, two) in pairs if one != two), min(len(first), len(second)))


def compare(other: Path, this: Path) -> int:
    """Print what differs between two directories; returns how many of their files do."""
    names = sorted({path.name for side in (other, this) for path in side.iterdir()})
    count = 0
    for name in names:
        sides = [(side / name).read_bytes().decode("utf-8", "surrogateescape") if (side / name).exists() else None
                 for side in (other, this)]  # fmt: skip
        if sides[0] is None or sides[1] is None:
            count += 1
            print(f"{name}: only in {'this' if sides[0] is None else 'the other'}")
            continue
        before, after = (masked(name, text) for text in sides if text is not None)
        if before != after:
            count += 1
            found = list(differences(before, after)) or ["  line endings"]
            print(f"{name}: {max(len(found) // 3, 1)} lines differ", *found[: 3 * SHOWN], sep="\n")
    print(f"{len(names) - count} of {len(names)} files are equal: - {other}, + {this}")
    return count


def start(checkout: Path, out: Path) -> subprocess.Popen[bytes]:
    """Begin to write one side's files."""
    out.mkdir(parents=True)
    env = {
        **os.environ,
        "PYTHONPATH": str(checkout),
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    env |= {
        name: str(out.parent / f"{out.name}-home") for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME")
    }
    # -P: the directory of this script would hide the checkout's `engine` behind `tests/engine`
    return subprocess.Popen([sys.executable, "-P", __file__, "--record", str(out), str(checkout)], env=env)


def main() -> int:
    """Run both sides and compare them; or be one of them."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.compare_with", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("checkout", type=Path, metavar="DIRECTORY", help="a checkout of another commit")
    parser.add_argument(
        "--keep", type=Path, metavar="OUT", help="keep what both sides wrote, in a new directory"
    )
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    checkout = args.checkout.resolve()
    if args.record is not None:
        import engine

        assert Path(str(engine.__file__)).is_relative_to(checkout), f"imported {engine.__file__}"
        record(args.record)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) if args.keep is None else args.keep.resolve()
        sides = {out / "other": checkout, out / "this": HERE}
        running = [start(directory, side) for side, directory in sides.items()]
        statuses = [each.wait() for each in running]
        if any(statuses):
            print("A side could not be run; see above.", file=sys.stderr)
            return 2
        return 1 if compare(*sides) else 0


if __name__ == "__main__":
    sys.exit(main())
