"""Recordings with entries dropped, doubled, moved or changed: each is shown and exported, or refused in one line.

The seed is in the name of the test; `mutated(seed)` makes the same file again.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack

from engine import protocol
from engine.errors import EngineError, RecordingError
from engine.protocol import Deleted, Marked, Step, Undeleted
from engine.recording import Entry, worth_keeping
from engine.recording.file import MAGIC, FrameWriter
from engine.settings import BeamSettings, LoadSettings, Settings
from inspector.documents.exports import EXPORTS
from inspector.export.documents import FORMATS
from inspector.export.recording import read
from inspector.state.timeline import Timeline
from tests.engine.unthreaded import Unthreaded
from tests.inspector.replays import replayed
from tests.inspector.rig import Rig

Frame = bytes
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
    """Steps, a branch, typed text, re-rolls, two beam searches, marks, deletions, look-ahead, costs."""
    made, settings = Unthreaded(), Settings(temp=0.9, top_p=0.95, seed=7, candidates=6)
    records: list[Any] = made.records
    records.append(LoadSettings())
    made.do(protocol.Load(LoadSettings()))
    records.append(settings)
    made.do(protocol.Configure(settings))
    made.do(protocol.Prefill("Once upon a time", False))
    steps = [step for _ in range(6) for step in made.do(protocol.TakeStep()) if isinstance(step, Step)]
    fork = steps[2]
    made.do(protocol.Explain(fork.parent))
    other = next(each.id for each in fork.choice.candidates if each.id != fork.id)
    chosen = next(each for each in made.do(protocol.Choose(fork.parent, other)) if isinstance(each, Step))
    made.do(protocol.TakeStep())
    records.append(Marked(chosen.node, "other", True, "a note", "a caption"))
    made.do(protocol.LookAhead(fork.node, tuple(each.id for each in steps[3].choice.candidates[:2]), 3))
    for _ in range(2):
        opened = [*made.do(protocol.SearchBeams(BeamSettings(width=3, max_tokens=5)))]
        made.do(protocol.MoveTo(opened[-2].ranking[0].node))  # type: ignore[attr-defined]
        made.do(protocol.TakeStep())
    made.do(protocol.Insert(steps[1].node, " 🦊é"))
    made.do(protocol.Reroll())
    records += [Deleted(chosen.node), Undeleted(chosen.node), Deleted(fork.node)]
    made.do(protocol.Race(16, 20))
    made.do(protocol.Profile(1))
    made.do(protocol.CompareKV())
    made.do(protocol.MoveTo(steps[-1].node))
    made.do(protocol.Verify())
    return [Entry(record, number / 10) for number, record in enumerate(filter(worth_keeping, records))]


@cache
def frames() -> tuple[Frame, ...]:
    """Its recording: the header first, no end."""
    writer = FrameWriter("test 1")
    return (writer.header(), *map(writer.entry, lived()))


def mutated(seed: int) -> bytes:
    """The recording with up to four changes."""
    rng, (head, *body) = random.Random(seed), frames()
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if len(body) > 4:
            _mutate(body, rng)
    return MAGIC + head + b"".join(body)


def _mutate(body: list[Frame], rng: random.Random) -> None:
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


def _changed(frame: Frame, rng: random.Random) -> Frame:
    """A frame with one value changed, perhaps one of its candidates, and a right checksum."""
    content = msgpack.decode(frame[8:])
    holder, name = rng.choice(list(_places(content)))
    inside = msgpack.decode(holder[name]) if name == "candidates" else None
    if inside:
        where, what = rng.choice(list(_places(inside)))
        where[what] = rng.choice(_instead(where[what], rng))
        holder[name] = msgpack.encode(inside)
    else:
        holder[name] = rng.choice(_instead(holder[name], rng))
    payload = msgpack.encode(content)
    return struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or map inside a value with each of its places."""
    for name in value if isinstance(value, dict) else range(len(value)):
        yield value, name
        if isinstance(value[name], dict | list):
            yield from _places(value[name])


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
    """A file with the mutated recording."""
    path.write_bytes(mutated(seed))
    return path


def documents(path: Path) -> int:
    """Make every document of a recording; returns how many could be made."""
    try:
        recording = read(path)
    except EngineError as error:
        said, hint = str(error), error.hint
        assert hint, said
        assert "\n" not in said
        return 0
    recording.parts = EXPORTS
    return len([form(recording) for form in FORMATS.values()])


def shown(path: Path) -> None:
    """Show a recording on the screen and open every tool on it; every exception there ends the test."""

    async def test(rig: Rig) -> None:
        for key in KEYS:
            await (rig.do(key[1:]) if key.startswith("@") else rig.press(key))
        while rig.app.top is not rig.app.main:
            await rig.press("escape")

    replayed(test, path, size=(80, 24))


@pytest.mark.slow
def test_the_recording_itself_is_shown_and_exported(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(MAGIC + b"".join(frames()))
    assert documents(path) == len(FORMATS)
    shown(path)


def test_an_entry_that_the_reader_accepts_and_the_timeline_does_not_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(MAGIC + b"".join(frames()))
    number = next(place for place, entry in enumerate(lived(), 1) if isinstance(entry.value, Step))
    monkeypatch.setattr(Timeline, "_step", lambda self, record: {}[record.node])
    words = rf"Entry {number} \(Step\) doesn't fit with those before it: KeyError"
    with pytest.raises(RecordingError, match=words):
        read(path)

    async def test(rig: Rig) -> None:
        assert f"Cut off: Entry {number} (Step) doesn't fit" in rig.status
        assert rig.timeline.prompts.prefilled is not None

    replayed(test, path)


@pytest.mark.wide(1)
@pytest.mark.parametrize("begin", range(0, 90, 30))
def test_a_mutated_recording_is_exported_or_refused(begin: int, tmp_path: Path) -> None:
    made = [documents(write(tmp_path / "a.trace", seed)) for seed in range(begin, begin + 30)]
    assert any(made)  # not all are refused


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_mutated_recording_is_shown_with_every_tool(seed: int, tmp_path: Path) -> None:
    shown(write(tmp_path / "a.trace", seed))


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(1000, 5000, 500))
def test_thousands_of_mutated_recordings_are_exported_or_refused(begin: int, tmp_path: Path) -> None:
    for seed in range(begin, begin + 500):
        documents(write(tmp_path / "a.trace", seed))


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(10_000, 10_100, 10))
def test_a_hundred_mutated_recordings_are_shown_with_every_tool(begin: int, tmp_path: Path) -> None:
    for seed in range(begin, begin + 10):
        shown(write(tmp_path / "a.trace", seed))
