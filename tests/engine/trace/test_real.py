"""Traces of the bundled model: what the engine really tells comes back equal, and a step takes less than 2 KB."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.beam_settings import BeamSettings
from engine.decoding.beam import search
from engine.model.load import load as load_model
from engine.protocol import Record, Resampled, Step
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.trace import Entry, load, save_as
from engine.trace.encode import Encoder
from inspector.state.timeline import Timeline

PROGRAM = "test 1"
LIMIT = 2048
"""Bytes of a step with 20 candidates at most, before compression."""
CHOICES = {
    "greedy": Settings(),
    "filtered": Settings(temp=0.8, top_p=0.95, seed=7),
    "everything": Settings(temp=1.3, min_p=0.01, xtc_probability=0.5, repetition_penalty=1.1, seed=3),
    "open": Settings(temp=1.0, seed=5),
}


def recorded(settings: Settings, steps: int = 30) -> list[Record]:
    """Prompt with its readings, steps, a fork, emoji bytes, a re-roll, a move back, beams."""
    session = Session(load_model(LoadSettings()), settings)
    prompt = "Once upon a time, naïve 🙂"
    found: list[Record] = [session.facts, *session.prefill(prompt, session.tokens.encode(prompt))]
    start = session.node
    found += [session.step() for _ in range(steps)]
    found.append(session.move(start))
    found.append(Resampled(session.reroll()))
    found += session.insert(session.tokens.encode(" 🦊é", bare=True))
    found.append(session.verify())
    found += search(session, BeamSettings(width=2, max_tokens=3))
    return found


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", CHOICES)
def test_what_the_engine_tells_comes_back_equal_and_small(name: str, tmp_path: Path) -> None:
    records = recorded(CHOICES[name])
    encoder = Encoder(PROGRAM)
    encoder.header()
    lines = [encoder.entry(Entry(record, 100.125)) for record in records]
    sizes = sorted(len(line) for line, record in zip(lines, records, strict=True) if isinstance(record, Step))
    print(
        f"{name}: p50 {sizes[len(sizes) // 2]}, p95 {sizes[int(len(sizes) * 0.95)]}, most {sizes[-1]} bytes a step"
    )
    assert sizes[-1] <= LIMIT
    save_as(tmp_path / "a.trace.zst", [Entry(record) for record in records], PROGRAM)
    found = [entry.value for entry in load(tmp_path / "a.trace.zst").entries]
    assert found == records
    assert repr(found) == repr(records)  # to the sign of a zero
    assert found[0].fingerprint


def test_the_screen_is_the_same(tmp_path: Path) -> None:
    records = recorded(CHOICES["filtered"], steps=5)
    save_as(tmp_path / "a.trace", [Entry(record) for record in records], PROGRAM)
    live, replayed = Timeline(), Timeline()
    for record, entry in zip(records, load(tmp_path / "a.trace").entries, strict=True):
        live.apply(record)
        replayed.apply(entry.value)  # type: ignore[arg-type]
        assert replayed.items == live.items
        assert replayed.next == live.next
        assert replayed.kv == live.kv
