"""How the screen was left, and the breakpoints: files that a person may edit, and of which nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.breakpoints import Breakpoints
from engine.errors import EngineError
from inspector.config.preferences import Preferences, SavedBreakpoints, SavedPreferences

LEFT = Preferences("nord", "rank", 5.0, True, {"left": 60, "below": 12})
POINTS = Breakpoints(entropy_above=3.5, prob_below=0.05, text="dragon\n", eos=True, all_of=True)
KINDS: dict[str, tuple[Callable[[], Any], Any]] = {
    "screen": (SavedPreferences, LEFT),
    "breakpoints": (SavedBreakpoints, POINTS),
}
"""What is kept, by the name of its file and its table."""


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest) -> tuple[str, Any, Any]:
    make, value = KINDS[request.param]
    return request.param, make(), value


def read(saved: Any) -> Any:
    """What the file gives."""
    return saved.read().values


def write(saved: Any, text: str) -> None:
    saved.path.parent.mkdir()
    saved.path.write_text(text)


def test_what_is_saved_is_read_again(kept: tuple[str, Any, Any], config: Path) -> None:
    name, saved, value = kept
    assert saved.path == config / f"{name}.json"
    assert read(saved) == type(value)()
    assert not saved.save(value)
    assert read(saved) == value
    saved.save(type(value)())
    assert json.loads(saved.path.read_text()) == {name: {}}
    assert read(saved) == type(value)()


def test_what_is_at_its_default_is_not_written(config: Path) -> None:
    SavedPreferences().save(Preferences(theme="nord"))
    assert json.loads((config / "screen.json").read_text()) == {"screen": {"theme": "nord"}}
    SavedBreakpoints().save(POINTS)
    assert json.loads((config / "breakpoints.json").read_text()) == {
        "breakpoints": {"all_of": True, "entropy_above": 3.5, "eos": True, "prob_below": 0.05, "text": "dragon\n"}
    }  # fmt: skip


def test_no_file_is_made_where_there_is_no_breakpoint(config: Path) -> None:
    SavedBreakpoints().save(Breakpoints())
    assert not config.exists()


def test_what_is_not_known_stays_in_the_file(kept: tuple[str, Any, Any]) -> None:
    name, saved, value = kept
    write(saved, json.dumps({"later": 1, name: {"rank_above": 5, "pace": 2, "phase of the moon": "full"}}))
    assert read(saved) in (Breakpoints(rank_above=5), Preferences(pace=2))
    saved.save(value)
    content = json.loads(saved.path.read_text())
    assert (content["later"], content[name]["phase of the moon"]) == (1, "full")
    assert read(saved) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [("metric", "beauty"), ("pace", "fast"), ("pace", True), ("alone", 1),
     ("sizes", {"left": "wide"}), ("sizes", {"up": 3}), ("sizes", 7), ("theme", 4), ("view", "hex")],
)  # fmt: skip
def test_a_value_that_is_none_is_named_and_left_out(name: str, value: object) -> None:
    saved = SavedPreferences()
    write(saved, json.dumps({"screen": {"theme": "nord"} | {name: value}}))
    stored = saved.read()
    assert stored.values == Preferences(theme="" if name == "theme" else "nord")
    assert len(stored.problems) == 1
    assert name in stored.problems[0]


def test_a_breakpoint_that_does_not_hold_is_told_and_the_others_are_used(config: Path) -> None:
    saved = SavedBreakpoints()
    write(
        saved,
        '{"breakpoints": {"rank_above": 0, "prob_below": "much", "tokens": 4, "eos": 1, "all_of": "yes"}}',
    )
    stored = saved.read()
    assert stored.values == Breakpoints(tokens=4)
    path = config / "breakpoints.json"
    assert stored.problems == (
        f"A breakpoint in {path} is not used: rank above must be a whole number of at least 1, not 0.",
        f"A breakpoint in {path} is not used: probability below must be a number from 0 to 1, or 0 % to 100 %, not "
        "'much'.",
        f"A breakpoint in {path} is not used: end of sequence must be on or off, not 1.",
        f'A breakpoint in {path} is not used: all_of must be true or false, not "yes".',
    )  # fmt: skip


@pytest.mark.parametrize("damage", ["{", "[]", '{"screen": 3, "breakpoints": []}', "\x00", "[" * 100_000])
def test_a_damaged_file_is_told_and_set_aside(kept: tuple[str, Any, Any], damage: str) -> None:
    name, saved, value = kept
    write(saved, damage)
    assert read(saved) == type(value)()
    (problem,) = saved.read().problems
    assert f"in {saved.path} can't be read: " in problem
    moved = saved.save(value)
    assert moved == f" The file that could not be read is now {name}.damaged-1.json."
    assert (saved.path.parent / f"{name}.damaged-1.json").read_text() == damage
    assert read(saved) == value


def test_a_file_that_cannot_be_written_is_told(kept: tuple[str, Any, Any], config: Path) -> None:
    config.write_text("a file where a directory should be")
    with pytest.raises(EngineError, match="can't be written"):
        kept[1].save(kept[2])
