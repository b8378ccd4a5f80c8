"""How the screen was left: one file that a person may edit, and of which nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inspector.config.preferences import Preferences, SavedPreferences

LEFT = Preferences("nord", "rank", 5.0, True, ("kv",), {"left": 60, "below": 12})


@pytest.fixture
def saved(tmp_path: Path) -> SavedPreferences:
    return SavedPreferences(tmp_path / "config" / "screen.json")


def test_what_is_saved_is_read_again(saved: SavedPreferences) -> None:
    assert saved.read().values == Preferences()
    saved.save(LEFT)
    assert saved.read().values == LEFT
    saved.save(Preferences(theme="nord"))
    assert json.loads(saved.path.read_text()) == {"screen": {"theme": "nord"}}


def test_what_is_not_known_stays(saved: SavedPreferences) -> None:
    saved.path.parent.mkdir()
    saved.path.write_text('{"version": 9, "screen": {"glow": 3, "pace": 2}}')
    assert saved.read().values == Preferences(pace=2)
    saved.save(LEFT)
    content = json.loads(saved.path.read_text())
    assert content["version"] == 9
    assert content["screen"]["glow"] == 3
    assert content["screen"]["theme"] == "nord"


@pytest.mark.parametrize(
    ("name", "value"),
    [("metric", "beauty"), ("pace", "fast"), ("pace", True), ("alone", 1), ("hidden", "kv"), ("hidden", [3]),
     ("sizes", {"left": "wide"}), ("sizes", {"up": 3}), ("sizes", 7), ("theme", 4), ("view", "hex")],
)  # fmt: skip
def test_a_value_that_is_none_is_named_and_left_out(
    saved: SavedPreferences, name: str, value: object
) -> None:
    saved.path.parent.mkdir()
    saved.path.write_text(json.dumps({"screen": {name: value, "theme": "nord"} | {name: value}}))
    stored = saved.read()
    assert stored.values == Preferences(theme="" if name == "theme" else "nord")
    assert len(stored.problems) == 1
    assert name in stored.problems[0]


@pytest.mark.parametrize("text", ["{", "[1]", '{"screen": 3}', "\x00"])
def test_a_file_that_cannot_be_read_is_set_aside(saved: SavedPreferences, text: str) -> None:
    saved.path.parent.mkdir()
    saved.path.write_text(text)
    stored = saved.read()
    assert stored.damaged
    assert str(saved.path) in stored.problems[0]
    saved.save(LEFT)
    assert saved.read().values == LEFT
    assert [path.read_text() for path in saved.path.parent.glob("*damaged*")] == [text]
