"""Runs a scenario in both checkouts, one after the other in the same directories, so that every path is the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compare_with import results
from tests.compare_with.scenarios import INPUTS, SPELLINGS, Command, Scenario, Screen, Script
from tests.terminal_screen import TerminalScreen

MOST_SECONDS = 300
HERE = Path(__file__).parent
SERVED = HERE.parent / "inspector" / "served"


class Slot:
    """A place where scenarios run, one at a time.

    Args:
        place: A directory of its own; of both checkouts it gets a copy.
        checkouts: Directories with the program, by the names of the sides.
        kept: Where the directories of the scenarios go, below each side's name.
    """

    def __init__(self, place: Path, checkouts: dict[str, Path], kept: Path) -> None:
        self._code, self._work, self._kept = place / "code", place / "work", kept
        self._place, self._sides = place, tuple(checkouts)
        self._words: dict[tuple[str, str], frozenset[str]] = {}
        ignored = shutil.ignore_patterns(".*", "tests", "__pycache__", "build", "dist")
        for side, checkout in checkouts.items():
            shutil.copytree(checkout, place / side, ignore=ignored)

    def run(self, scenario: Scenario) -> dict[str, results.Output]:
        """Run a scenario; returns what it produced, by side.

        Raises:
            RuntimeError: A side can't be run at all.
        """
        outputs = {}
        for side in self._sides:
            (self._place / side).rename(self._code)
            self._side = side
            try:
                outputs[side] = self._run(scenario)
            finally:
                self._code.rename(self._place / side)
                text = results.written(outputs.get(side, {}))
                (self._work / "values.txt").write_text(text, encoding="utf-8")
                self._work.rename(self._kept / side / re.sub(r"\W+", "-", scenario.name))
        return outputs

    def _run(self, scenario: Scenario) -> results.Output:
        self._work.mkdir()
        for name, content in INPUTS.items():
            (self._work / name).write_text(content, encoding="utf-8")
        for path in SERVED.glob("*.har"):
            shutil.copy(path, self._work)
        output: results.Output = {}
        for number, step in enumerate(scenario.steps, 1):
            run = self._screen if isinstance(step, Screen) else self._process
            label = f"{number} " if len(scenario.steps) > 1 else ""
            output |= {label + part: each for part, each in run(step, scenario.name).items()}  # type: ignore[operator]
        return output

    def _environment(self, screen: bool = False) -> dict[str, str]:
        """All variables of a process."""
        home = self._work / "home"
        env = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        env |= {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("STATE", "CONFIG", "DATA", "CACHE")}
        env |= {"HOME": str(home), "LANG": "C.UTF-8", "TZ": "UTC", "HF_HUB_OFFLINE": "1"}
        env |= {
            "PYTHONPATH": str(self._code),
            "PYTHONPYCACHEPREFIX": str(self._place / f"{self._side}-compiled"),
        }
        return env | ({"TEXTUAL_ANIMATIONS": "none"} if screen else {"COLUMNS": "100", "NO_COLOR": "1"})

    # ---- processes ----------------------------------------------------------------------------

    def _python(self, *argv: str, typed: str = "") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            # -P: not the current directory, in which `inspector` may be another one
            [sys.executable, "-P", *argv],
            cwd=self._work,
            env=self._environment(),
            input=typed.encode(),
            capture_output=True,
            timeout=MOST_SECONDS,
        )

    def _process(self, step: Command | Script, scenario: str) -> results.Output:
        try:
            if isinstance(step, Script):
                done = self._python("-c", (HERE / step.file).read_text(encoding="utf-8"))
            else:
                done = self._python("-m", "inspector", *self._spelled(step.argv), typed=step.typed)
        except subprocess.TimeoutExpired:
            return {"exit": [f"{results.FAILED}: does not end"]}
        structured = isinstance(step, Script) or "--jsonl" in step.argv
        out, err = (each.decode("utf-8", "replace") for each in (done.stdout, done.stderr))
        failed = isinstance(step, Script) and done.returncode != 0
        output: results.Output = {"exit": [f"{results.FAILED}: " * failed + f"status {done.returncode}"]}
        output["out"] = (results.from_json_lines if structured else results.from_text)(out, scenario)
        output["err"] = results.from_text(err, scenario)
        for name in step.files:
            if (self._work / name).exists():
                text = (self._work / name).read_text(encoding="utf-8")
                output |= results.from_file(name, text, scenario)
        return output

    def _spelled(self, argv: tuple[str, ...]) -> list[str]:
        """Arguments as this checkout spells them."""
        found = list(argv)
        known = self._known("")
        if argv and argv[0] in known and not argv[0].startswith("-"):
            known |= self._known(argv[0])
        for spelling, other in SPELLINGS:
            if spelling[0] in found and spelling[0] not in known:
                at = found.index(spelling[0])
                found[at : at + len(spelling)] = other
        return found

    def _known(self, subcommand: str) -> frozenset[str]:
        """The words of a help: subcommands and flags."""
        key = self._side, subcommand
        if key not in self._words:
            done = self._python("-m", "inspector", *filter(None, [subcommand]), "--help")
            if done.returncode:
                raise RuntimeError(f"{self._side}: no help.\n{done.stderr.decode('utf-8', 'replace')}")
            self._words[key] = frozenset(re.findall(r"[\w-]+", done.stdout.decode()))
        return self._words[key]

    # ---- the screen ---------------------------------------------------------------------------

    def _screen(self, step: Screen, scenario: str) -> results.Output:
        output: results.Output = {}
        argv = [sys.executable, "-P", "-m", "inspector", *self._spelled(step.argv)]
        with TerminalScreen(argv, self._environment(screen=True), step.size, self._work) as screen:
            shot = "start"
            try:
                screen.settle(MOST_SECONDS)
                for shot, keys in {"start": (), **step.shots}.items():
                    for key in keys:
                        screen.press(key)
                        screen.settle(MOST_SECONDS)
                    if (status := screen.process.poll()) is not None:
                        output["exit"] = [f"{results.FAILED} at {shot}: status {status}"]
                        return output
                    output[f"screen {shot}"] = results.from_cells(screen.cells(), scenario)
                screen.press("ctrl+q")
                output["exit"] = [f"status {screen.wait_closed(MOST_SECONDS)}"]
            except (TimeoutError, subprocess.TimeoutExpired, OSError) as error:
                output["exit"] = [f"{results.FAILED} at {shot}: {type(error).__name__}"]
        return output
