"""Traces with lines dropped, doubled, moved, cut off or changed: each is shown and exported, or refused in one line.

The seed is in the name of the test; `mutations.mutated(seed)` makes the same file again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import EngineError, TraceError
from engine.protocol import Step
from inspector.state.timeline import Timeline
from inspector.tools.export.documents import FORMATS
from inspector.tools.export.recording import read
from tests.inspector import mutations
from tests.inspector.rig import Rig
from tests.inspector.tools.recordings.test_replay_screen import replayed

KEYS = (
    "t", "down", "enter", "left", "x", "u", "w", "tab", "w", "c", "down", "escape", "B", "left", "tab", "tab", "escape",
    "l", "slash", "escape", "z", "backspace", "space", "escape", "P", "tab", "tab", "tab", "escape", "y", "escape", "E",
    "escape", "ctrl+s", "escape", "i", "escape", "N", "escape", "home", "w", "right", "right_square_bracket", "enter",
    "backspace", "space", "r", "end", "g", "escape", "f", "G",
)  # fmt: skip
"""Every tool is opened, and left."""


def documents(path: Path) -> int:
    """Make every document of a trace; returns how many could be made."""
    refused = None
    try:
        recording = read(path)
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
            await rig.press(key)
        while len(rig.app.screen_stack) > 1:
            await rig.press("escape")

    replayed(test, path, size=(80, 24))


def test_the_trace_itself_is_shown_and_exported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(mutations.lines()))
    assert documents(path) == len(FORMATS)
    shown(path)


def test_what_the_reader_lets_through_and_the_timeline_does_not_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(mutations.lines()))
    number = next(place for place, entry in enumerate(mutations.lived(), 1) if isinstance(entry.value, Step))
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
    made = [documents(mutations.write(tmp_path / "a.jsonl", seed)) for seed in range(begin, begin + 30)]
    assert any(made)  # not all are refused


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_mutated_trace_is_shown_with_every_tool(seed: int, tmp_path: Path) -> None:
    shown(mutations.write(tmp_path / "a.jsonl", seed))


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(1000, 5000, 500))
def test_thousands_of_mutated_traces_are_exported_or_refused(begin: int, tmp_path: Path) -> None:
    for seed in range(begin, begin + 500):
        documents(mutations.write(tmp_path / "a.jsonl", seed))


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(10_000, 10_100, 10))
def test_a_hundred_mutated_traces_are_shown_with_every_tool(begin: int, tmp_path: Path) -> None:
    for seed in range(begin, begin + 10):
        shown(mutations.write(tmp_path / "a.jsonl", seed))
