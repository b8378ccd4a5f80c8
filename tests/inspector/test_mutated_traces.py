"""Traces with lines dropped, doubled, moved, cut off or changed: each is shown and exported, or refused in one line.

The seed is in the name of the test; `mutated(seed)` makes the same file again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine import protocol
from engine.beam_settings import BeamSettings
from engine.errors import EngineError, TraceError
from engine.protocol import Deleted, Marked, Step, Undeleted
from engine.settings import LoadSettings, Settings
from engine.trace import Entry, worth_keeping
from engine.trace.encode import Encoder
from engine.trace.lines import sealed, unsealed
from inspector.state.timeline import Timeline
from inspector.tools.export.documents import FORMATS
from inspector.tools.export.recording import read
from inspector.tools.exports import EXPORTS
from tests.engine.unthreaded import Unthreaded
from tests.inspector.rig import Rig
from tests.inspector.tools.recordings.test_replay_screen import replayed

Line = bytes
Path_ = tuple[Any, ...]
KEYS = (
    "4", "down", "enter", "left", "x", "u", "2", "tab", "w", "@compare", "down", "escape", "@beams", "left", "v", "v",
    "escape", "@look_ahead", "@find", "escape", "@race", "backspace", "space", "escape", "@profile", "right", "right",
    "right", "escape", "@export", "escape", "@save_as", "escape", "@facts", "escape", "@name",
    "escape", "home", "@why", "right", "@next_branch", "enter", "backspace", "space", "r", "end", "@jump", "escape",
    "f", "1", "tab", "tab", "3", "tab", "tab", "tab", "tab", "tab", "5", "tab", "tab", "tab", "tab", "tab", "6",
    "@go_live",
)  # fmt: skip
"""Keys, and actions with @ before them: every tool is opened, and left."""


@cache
def lived() -> list[Entry]:
    """Steps, a fork, typed text, re-rolls, two beam searches that are gone to, marks, deletions, look-ahead, costs."""
    made, settings = Unthreaded(), Settings(temp=0.9, top_p=0.95, seed=7, candidates=6)
    made.records += [LoadSettings()]
    made.do(protocol.Load(LoadSettings()))
    made.records += [settings]
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
    made.do(protocol.MoveTo(steps[-1].node))
    made.do(protocol.Verify())
    return [Entry(record, number / 10) for number, record in enumerate(filter(worth_keeping, made.records))]


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


def documents(path: Path) -> int:
    """Make every document of a trace; returns how many could be made."""
    refused = None
    try:
        recording = read(path)
        recording.parts = EXPORTS
    except EngineError as error:
        refused = error
    if refused is not None:
        assert refused.hint
        assert "\n" not in str(refused)
        return 0
    return len([form.make(recording) for form in FORMATS.values()])


def shown(path: Path) -> None:
    """Show a trace on the screen and open every tool on it; every exception there ends the test."""

    async def test(rig: Rig) -> None:
        for key in KEYS:
            await (rig.do(key[1:]) if key.startswith("@") else rig.press(key))
        while len(rig.app.screen_stack) > 1:
            await rig.press("escape")

    replayed(test, path, size=(80, 24))


@pytest.mark.slow
def test_the_trace_itself_is_shown_and_exported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(lines()))
    assert documents(path) == len(FORMATS)
    shown(path)


def test_what_the_reader_lets_through_and_the_timeline_does_not_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(lines()))
    number = next(place for place, entry in enumerate(lived(), 1) if isinstance(entry.value, Step))
    monkeypatch.setattr(Timeline, "_step", lambda self, record: {}[record.node])
    with pytest.raises(
        TraceError, match=rf"Entry {number} \(Step\) doesn't fit with those before it: KeyError"
    ):
        read(path)

    async def test(rig: Rig) -> None:
        assert f"Cut off: Entry {number} (Step) doesn't fit" in rig.status
        assert rig.timeline.prompts.prefilled is not None

    replayed(test, path)


@pytest.mark.wide(1)
@pytest.mark.parametrize("begin", range(0, 90, 30))
def test_a_mutated_trace_is_exported_or_refused(begin: int, tmp_path: Path) -> None:
    made = [documents(write(tmp_path / "a.jsonl", seed)) for seed in range(begin, begin + 30)]
    assert any(made)  # not all are refused


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_mutated_trace_is_shown_with_every_tool(seed: int, tmp_path: Path) -> None:
    shown(write(tmp_path / "a.jsonl", seed))


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(1000, 5000, 500))
def test_thousands_of_mutated_traces_are_exported_or_refused(begin: int, tmp_path: Path) -> None:
    for seed in range(begin, begin + 500):
        documents(write(tmp_path / "a.jsonl", seed))


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(10_000, 10_100, 10))
def test_a_hundred_mutated_traces_are_shown_with_every_tool(begin: int, tmp_path: Path) -> None:
    for seed in range(begin, begin + 10):
        shown(write(tmp_path / "a.jsonl", seed))
