"""Breakpoints are remembered in a file that a person may edit, and that is never lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.breakpoints import Breakpoints
from engine.errors import EngineError
from inspector.config.saved_breakpoints import SavedBreakpoints

POINTS = Breakpoints(entropy_above=3.5, prob_below=0.05, text="dragon\n", eos=True, all_of=True)


def test_what_is_saved_is_read_again(config: Path) -> None:
    assert SavedBreakpoints().read().points == Breakpoints()
    assert SavedBreakpoints().save(POINTS) == ""
    assert SavedBreakpoints().read().points == POINTS
    assert json.loads((config / "breakpoints.json").read_text()) == {
        "breakpoints": {"all_of": True, "entropy_above": 3.5, "eos": True, "prob_below": 0.05, "text": "dragon\n"}
    }  # fmt: skip


def test_nothing_is_written_where_there_is_nothing_to_remember(config: Path) -> None:
    SavedBreakpoints().save(Breakpoints())
    assert not config.exists()
    SavedBreakpoints().save(POINTS)
    SavedBreakpoints().save(Breakpoints())
    assert SavedBreakpoints().read().points == Breakpoints()


def test_what_is_not_known_stays_in_the_file(config: Path) -> None:
    config.mkdir()
    path = config / "breakpoints.json"
    path.write_text('{"later": 1, "breakpoints": {"rank_above": 5, "phase of the moon": "full"}}')
    assert SavedBreakpoints().read().points == Breakpoints(rank_above=5)
    SavedBreakpoints().save(POINTS)
    assert json.loads(path.read_text())["later"] == 1
    assert json.loads(path.read_text())["breakpoints"]["phase of the moon"] == "full"
    assert "rank_above" not in json.loads(path.read_text())["breakpoints"]


def test_a_value_that_does_not_hold_is_told_and_the_others_are_used(config: Path) -> None:
    config.mkdir()
    (config / "breakpoints.json").write_text(
        '{"breakpoints": {"rank_above": 0, "prob_below": "much", "tokens": 4, "eos": 1, "all_of": "yes"}}'
    )
    stored = SavedBreakpoints().read()
    assert stored.points == Breakpoints(tokens=4)
    path = config / "breakpoints.json"
    assert stored.problems == (
        f"A breakpoint in {path} is not used: rank above must be a whole number from 1 up, not 0.",
        f"A breakpoint in {path} is not used: probability below must be a number from 0 to 1, or 0 % to 100 %, not "
        "'much'.",
        f"A breakpoint in {path} is not used: end of sequence must be on or off, not 1.",
        f'A breakpoint in {path} is not used: all_of must be true or false, not "yes".',
    )  # fmt: skip


@pytest.mark.parametrize("damage", ["{", "[]", '{"breakpoints": []}', "\x00", "[" * 100_000])
def test_a_damaged_file_is_told_and_set_aside(config: Path, damage: str) -> None:
    config.mkdir()
    path = config / "breakpoints.json"
    path.write_text(damage)
    stored = SavedBreakpoints().read()
    assert stored.points == Breakpoints()
    assert f"The breakpoints in {path} can't be read: " in stored.problems[0]
    assert (
        SavedBreakpoints().save(POINTS)
        == " The file that could not be read is now breakpoints.damaged-1.json."
    )
    assert (config / "breakpoints.damaged-1.json").read_text() == damage
    assert SavedBreakpoints().read().points == POINTS


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file where a directory should be")
    with pytest.raises(EngineError, match="can't be written"):
        SavedBreakpoints(tmp_path / "config" / "breakpoints.json").save(POINTS)
