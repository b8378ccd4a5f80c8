"""A session as the real engine records it, and its trace with lines dropped, doubled, moved, cut off or changed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from engine import protocol
from engine.beam_settings import BeamSettings
from engine.protocol import Command, Deleted, Ended, Marked, Record, Step, Undeleted
from engine.settings import LoadSettings, Settings
from engine.sweep_settings import SweepSettings
from engine.thread import EngineThread
from engine.trace import Entry, worth_keeping
from engine.trace.encode import Encoder
from engine.trace.lines import sealed, unsealed

Line = bytes
Path_ = tuple[Any, ...]


class Recorded:
    """Does commands one after another, and keeps what a recorder would."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self._inbox: SimpleQueue[Record] = SimpleQueue()
        self.thread = EngineThread(self._inbox.put)
        self.thread.start()

    def do(self, command: Command) -> list[Record]:
        """Do a command; returns its records."""
        self.thread.send(command)
        records: list[Record] = []
        while not (records and isinstance(records[-1], Ended)):
            records.append(self._inbox.get(timeout=120))
        self.records += filter(worth_keeping, records)
        return records


@cache
def lived() -> list[Entry]:
    """Steps, a fork, typed text, re-rolls, two beam searches that are gone to, marks, deletions, look-ahead, sweeps."""
    made = Recorded()
    made.records += [LoadSettings()]
    made.do(protocol.Load(LoadSettings()))
    made.records += [settings := Settings(temp=0.9, top_p=0.95, seed=7, candidates=6)]
    made.do(protocol.Configure(settings))
    made.do(protocol.Prefill("Once upon a time", False))
    steps = [step for _ in range(6) for step in made.do(protocol.TakeStep()) if isinstance(step, Step)]
    fork = steps[2]
    made.do(protocol.Explain(fork.parent))
    other = next(each.id for each in fork.choice.candidates if each.id != fork.id)
    chosen = next(each for each in made.do(protocol.Choose(fork.parent, other)) if isinstance(each, Step))
    made.do(protocol.TakeStep())
    made.records += [Marked(chosen.node, "other", True, "a note", "a caption")]
    made.do(protocol.LookAhead(fork.node, tuple(each.id for each in steps[3].choice.candidates[:2]), 3))
    for _ in range(2):
        opened = [*made.do(protocol.SearchBeams(BeamSettings(width=3, max_tokens=5)))]
        best = opened[-2].ranking[0]  # type: ignore[union-attr]
        made.do(protocol.MoveTo(best.node))
        made.do(protocol.TakeStep())
    made.do(protocol.Insert(steps[1].node, " 🦊é"))
    made.do(protocol.Reroll())
    made.records += [Deleted(chosen.node), Undeleted(chosen.node), Deleted(fork.node)]
    made.do(protocol.Race(16, 20))
    made.do(protocol.Profile(1))
    made.do(protocol.CompareKV())
    made.do(protocol.Sweep(SweepSettings(rounds=1, steps=1, longest=16, largest_batch=2)))
    made.do(protocol.MoveTo(steps[-1].node))
    made.do(protocol.Verify())
    made.thread.close(30)
    return [Entry(record, number / 10) for number, record in enumerate(made.records)]


@cache
def lines() -> tuple[Line, ...]:
    """Its trace: the header first, no end."""
    encoder = Encoder("test 1")
    return (encoder.header(), *(encoder.entry(entry) for entry in lived()))


def mutated(seed: int) -> bytes:
    """The trace with up to four changes."""
    rng, (head, *body) = random.Random(seed), lines()
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if len(body) > 4:
            _mutate(body, rng)
    return head + b"".join(body)


def _mutate(body: list[Line], rng: random.Random) -> None:
    one, other = rng.randrange(len(body)), rng.randrange(len(body))
    match rng.choice(("drop", "drop many", "double", "swap", "move", "cut", "change", "change")):
        case "drop":
            del body[one]
        case "drop many":
            del body[one : one + rng.randrange(2, 12)]
        case "double":
            body.insert(other, body[one])
        case "swap":
            body[one], body[other] = body[other], body[one]
        case "move":
            body.insert(other, body.pop(one))
        case "cut":
            del body[max(3, one) :]
        case _:
            body[one] = _changed(body[one], rng)


def _changed(line: Line, rng: random.Random) -> Line:
    """A line with one value changed, and a right checksum."""
    content = json.loads(unsealed(line)[0] + b"}")
    *way, last = rng.choice([path for path in _paths(content) if path])
    at = content
    for name in way:
        at = at[name]
    at[last] = rng.choice(_instead(at[last], rng))
    return sealed(json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()[:-1])


def _paths(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    yield path
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(inner, (*path, name))


def _instead(value: Any, rng: random.Random) -> list[Any]:
    match value:
        case bool():
            return [not value]
        case int():
            return [0, -1, value + 1, max(0, value - 1), rng.randrange(200), rng.randrange(10**6), 2**63]
        case float():
            return [0.0, -value, value * 2, 1e300, -1e300, 5]
        case list():
            return [[], value[:-1], value[1:], value[::-1], value + value[-1:], None]
    return [0, 1, -1, 2**63, 0.5, 1e300, None, "", "x", [], {}, True]


def write(path: Path, seed: int) -> Path:
    """A file with the mutated trace."""
    path.write_bytes(mutated(seed))
    return path
