"""Plays scripts on a host, and makes the list of actions of a failure as short as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from tests.fuzz.actions import Action, Script, drawn
from tests.fuzz.faults import Fault, Host

PROBED = 200
"""Actions from one probe to the next."""
PLAYS = 80
"""Times that a script is played again at most to make it shorter."""


@dataclass
class Outcome:
    """What came of a run."""

    keys: int = 0
    seconds: float = 0.0
    resident: int = 0
    failures: list[tuple[Script, Fault]] = field(default_factory=list)
    """Each fault once, with what leads to it."""

    def __str__(self) -> str:
        rate, mib = self.keys / max(self.seconds, 1e-9), self.resident / 2**20
        lines = [f"{self.keys} keys in {self.seconds:.0f} s, {rate:.0f} a second; {mib:.0f} MiB at the end"]
        return "\n".join(lines + [f"FAULT {fault.signature}" for _, fault in self.failures])


def play(host: Host, script: Script, probed: bool = True) -> tuple[Fault | None, int]:
    """Play a script from a fresh start; returns the first fault, and how many actions were done."""
    host.start(script.scenario)
    fault, done = None, 0
    for action in script.actions:
        fault = host.do(action)
        done += 1
        if fault is None and probed and done % PROBED == 0 and not host.over:
            fault = host.probe()
        if fault is not None or host.over or host.lost:
            break
    if fault is None and probed and not host.over:
        fault = host.probe()
    ended = host.end()
    return fault or ended, done


def run(
    host: Host,
    seed: int,
    keys: int,
    kinds: Sequence[str],
    tell: Callable[[str], None] = print,
    minimise: bool = True,
) -> Outcome:
    """Play random scripts until so many actions were done.

    Args:
        host: Where.
        seed: Everything random follows from it.
        keys: Actions in all.
        kinds: Of the scenarios.
        tell: Takes a line at each fault.
        minimise: Whether to look for a short list that leads to each fault.
    """
    outcome, began, seen = Outcome(), time.monotonic(), set[str]()
    for number in count():
        if outcome.keys >= keys:
            break
        script = drawn(seed, number, keys - outcome.keys, kinds)
        fault, done = play(host, script)
        outcome.keys += replace(script, actions=script.actions[:done]).keys
        outcome.resident = host.resident()
        if fault is None:
            continue
        if fault.signature not in seen:
            seen.add(fault.signature)
            tell(f"seed {seed}, session {number} ({script.scenario.kind}), action {done}: {fault.signature}")
            cut = replace(script, actions=script.actions[:done])
            outcome.failures.append((shortest(host, cut, fault) if minimise else cut, fault))
    outcome.seconds = time.monotonic() - began
    return outcome


def shortest(host: Host, script: Script, fault: Fault) -> Script:
    """The script without what the fault does not need: what came long before, then ever smaller parts."""

    plays = iter(range(PLAYS))

    def fails(actions: Sequence[Action]) -> bool:
        if next(plays, None) is None:
            return False
        again, _ = play(host, replace(script, actions=tuple(actions)), probed="StuckError" in fault.signature)
        return again is not None and again.signature == fault.signature

    actions = list(script.actions)
    for last in (6, 20, 60):
        if last < len(actions) and fails(actions[-last:]):
            actions = actions[-last:]
            break
    size = max(1, len(actions) // 2)
    while True:
        place = len(actions)
        while place > 0:
            without = actions[: max(0, place - size)] + actions[place:]
            if len(actions) > 1 and fails(without):
                actions = without
            place -= size
        if size == 1:
            return replace(script, actions=tuple(actions))
        size //= 2
