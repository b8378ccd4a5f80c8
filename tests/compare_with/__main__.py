"""Compares what two checkouts of this program produce: `python -m tests.compare_with CHECKOUT`.

CHECKOUT is a directory with another commit, such as `git worktree add /tmp/before COMMIT` makes. The same scenarios
(scenarios.py) run in both checkouts, each in processes and a home of its own: subcommands, the Python interface, and
keys on the screen of a terminal. Numbers are compared with all of their digits, texts by line, the screen by cell with
its colors. What differs in any two runs is masked (the masks in results.py): times, memory, dates.

A file of accepted differences has rules, each below a comment that says why; * is any text:

    rename SCENARIO OLD -> NEW         a value has another name:  rename * *.kv.offset -> *.cache.length
    text SCENARIO "OLD" -> "NEW"       these words became those, in lines, values and on the screen
    add SCENARIO NAME                  a value, line or part that only this checkout has
    drop SCENARIO NAME                 one that only the other has
    accept SCENARIO NAME               whatever differs in it:  accept screen-help *

OLD and NEW are of the other checkout and of this one. NAME is what the report calls it: `2 out step[3].prob`.
Exit status: 0 nothing differs that isn't accepted, 1 something does, 2 a side could not be run.
"""

from __future__ import annotations

import argparse
import fnmatch
import queue
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.compare_with import results
from tests.compare_with.running import Slot
from tests.compare_with.scenarios import Scenario, scenarios

HERE = Path(__file__).resolve()
SHOWN = 6
"""Differences that are printed of a scenario."""
WIDEST = 160
WORKERS = 2


def main() -> int:
    """Run both checkouts and print what differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.compare_with",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    accepted = HERE.with_name("accepted_differences.txt")
    add = parser.add_argument
    add("checkout", type=Path, metavar="CHECKOUT", help="a checkout of another commit")
    add("--keep", type=Path, metavar="DIR", help="keep what was written, all values, and a full report")
    add("--only", metavar="PATTERN", default="*", help="scenarios, such as 'screen-*'")
    add("--accepted", type=Path, metavar="FILE", default=accepted, help="the accepted differences")
    args = parser.parse_args()
    chosen = [each for each in scenarios() if fnmatch.fnmatchcase(each.name, args.only)]
    try:
        rules = results.read_rules(args.accepted.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch).resolve()
            kept = place / "kept" if args.keep is None else args.keep.resolve()
            checkouts = {"other": args.checkout.resolve(), "this": HERE.parents[2]}
            return Comparison(checkouts, rules, place, kept).run(chosen, args.only == "*")
    except (results.RuleError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


class Comparison:
    """Runs scenarios on both sides, and prints what differs as it goes."""

    def __init__(
        self, checkouts: dict[str, Path], rules: list[results.Rule], place: Path, kept: Path
    ) -> None:
        for side, checkout in checkouts.items():
            if not (checkout / "inspector").is_dir():
                raise RuntimeError(f"{checkout} is no checkout of this program.")
            (kept / side).mkdir(parents=True)
        self._rules, self._report = rules, (kept / "report.txt").open("w", encoding="utf-8")
        self._printing, self._slots = threading.Lock(), queue.SimpleQueue[Slot]()
        self._values = 0
        self._differences: Counter[str] = Counter()
        for number in range(WORKERS):
            self._slots.put(Slot(place / f"{number}", checkouts, kept))

    def run(self, chosen: list[Scenario], complete: bool) -> int:
        """Run them; returns the exit status."""
        begun = time.monotonic()
        with ThreadPoolExecutor(WORKERS) as pool:
            for _ in pool.map(self._compare, chosen):
                pass
        for rule in self._rules if complete else ():
            if not rule.matched:
                self._print(f"The rule in line {rule.line} of the accepted differences matched nothing.")
        self._print(
            f"{len(chosen)} scenarios, {self._values:,} values and lines compared: "
            f"{self._differences.total():,} differences in {len(self._differences)} scenarios. "
            f"{time.monotonic() - begun:.0f} s."
        )
        self._report.close()
        return 1 if self._differences else 0

    def _compare(self, scenario: Scenario) -> None:
        begun, slot = time.monotonic(), self._slots.get()
        try:
            outputs = slot.run(scenario)
        finally:
            self._slots.put(slot)
        found = results.compare(scenario.name, outputs["other"], outputs["this"], self._rules)
        with self._printing:
            count = max(map(results.size, outputs.values()))
            self._values += count
            self._differences += Counter({scenario.name: len(found)})
            summary = f"{len(found):,} differ" if found else "equal"
            self._print(f"{scenario.name}: {summary}, of {count:,}  ({time.monotonic() - begun:.0f} s)")
            alike = Counter((each.other, each.this) for each in found)
            for at, (sides, times) in enumerate(alike.items()):
                name = next(each.name for each in found if each[2:] == sides)
                self._tell(f"{name} (and {times - 1} more)" if times > 1 else name, sides, at < SHOWN)

    def _tell(self, name: str, sides: tuple[str, str], shown: bool) -> None:
        """Print both values of a difference, from shortly before the first character that differs."""
        pairs = enumerate(zip(*sides, strict=False))
        place = next((at for at, pair in pairs if len({*pair}) > 1), min(map(len, sides)))
        start = max(place - 50, 0)
        lines = [f"    {name}"]
        lines += [
            f"      {mark} {side[start : start + WIDEST]}" for mark, side in zip("-+", sides, strict=True)
        ]
        print(*lines, sep="\n", file=self._report)
        if shown:
            print(*lines, sep="\n", flush=True)

    def _print(self, line: str) -> None:
        print(line, file=self._report, flush=True)
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
