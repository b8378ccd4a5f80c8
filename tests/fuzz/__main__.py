"""`python -m tests.fuzz --seed N --keys K [--pty] [--replay FILE]`: random use; exit status 1 where it broke.

For each fault it prints the shortest list of actions that it found, and writes it to a file for `--replay`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.fuzz.actions import MODES, Script
from tests.fuzz.driver import play, run
from tests.fuzz.faults import Host
from tests.fuzz.sandbox import sandbox

KINDS = ("held", "held", "live", "replay", "failed", "empty")


def main() -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keys", type=int, default=1500)
    parser.add_argument(
        "--pty", action="store_true", help="the program on a terminal of its own, as a user starts it"
    )
    parser.add_argument(
        "--kinds", nargs="+", choices=sorted({*KINDS, *MODES}), default=KINDS, help="of the sessions"
    )
    parser.add_argument("--replay", type=Path, help="play one list of actions again")
    parser.add_argument("--no-minimise", action="store_true")
    args = parser.parse_args()
    replayed = args.replay and Script.read(args.replay)
    with sandbox() as folder:
        host = host_in(folder, args.pty)
        if replayed is not None:
            fault, done = play(host, replayed)
            print(f"{done} actions: {'no fault' if fault is None else fault.detail}")
            return int(fault is not None)
        outcome = run(host, args.seed, args.keys, args.kinds, minimise=not args.no_minimise)
    for name, count in sorted(host.visits.items(), key=lambda each: -each[1]):
        print(f"{count:7} {name}")
    for number, (script, fault) in enumerate(outcome.failures):
        path = Path(f"fuzz-{args.seed}-{number}.trace")
        script.write(path)
        print(f"\n{fault.detail}\n{path}: {script.scenario}, {script.keys} actions, the last of them:")
        print(
            *(f"  {each.kind} {' '.join(map(repr, each.values))[:100]}" for each in script.actions[-30:]),
            sep="\n",
        )
    print(outcome)
    return int(bool(outcome.failures))


def host_in(folder: Path, pty: bool) -> Host:
    """The host, imported only where it is used: the one on a terminal needs neither MLX nor Textual here."""
    os.environ["HF_HUB_OFFLINE"] = (
        "1"  # a random name is looked for on this machine alone; read when it is imported
    )
    if pty:
        from tests.fuzz.terminal import TerminalHost

        return TerminalHost(folder)
    from tests.fuzz.pilot import PilotHost

    return PilotHost(folder)


if __name__ == "__main__":
    sys.exit(main())
