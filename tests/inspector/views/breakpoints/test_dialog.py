"""Breakpoints on the screen: the dialog, what is said while they are set and where they held, and skipping."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.widgets import Button

from engine.breakpoints import SURE, Breakpoints
from engine.errors import EngineError
from engine.protocol import BreakpointHit, Candidate, Run, Step
from inspector.cli import flags, screen
from inspector.config.preferences import SavedBreakpoints
from inspector.session.transport import conditions, marker
from inspector.views.breakpoints import BreakpointsDialog
from inspector.widgets.dialog import Remark
from tests.inspector.rig import Rig

SET = Breakpoints(entropy_above=3, prob_below=0.05)


def remark(rig: Rig, name: str) -> str:
    """What is beside a value."""
    row = rig.form.rows[name]
    said = row.remark or row.help
    assert all(word in rig.screen_text() for word in said.split())
    return said


def applicable(rig: Rig) -> bool:
    return not rig.app.top.query_one("#apply", Button).disabled


def last_run(rig: Rig) -> Run:
    command = rig.engine.last(Run)
    assert isinstance(command, Run)
    return command


def given(rig: Rig, points: Breakpoints) -> None:
    """Set breakpoints without the dialog."""
    rig.app.controller.runs.breakpoints.points = points


# ---- the dialog ---------------------------------------------------------------------------------


async def test_breakpoints_are_typed_checked_applied_and_remembered(rig: Rig, config: Path) -> None:
    await rig.ready()
    await rig.press("b", "3", "down", "5", "space", "percent_sign", "down", "0")
    assert not applicable(rig)
    assert remark(rig, "rank_above") == "rank above must be a whole number of at least 1, not 0."
    await rig.press("ctrl+s")
    assert isinstance(rig.app.top, BreakpointsDialog)  # nothing is applied while a field is wrong
    await rig.press("backspace")
    assert applicable(rig)
    assert remark(rig, "rank_above") == "of the picked token; 1 is the first"
    await rig.press("enter")
    assert rig.app.top is rig.app.main
    assert rig.app.controller.runs.breakpoints.points == SET
    assert rig.status == "Runs stop at entropy > 3, p < 5 %. Press r to run"
    await rig.press("r")
    assert last_run(rig).until == SET
    assert json.loads((config / "breakpoints.json").read_text())["breakpoints"] == {
        "entropy_above": 3.0, "prob_below": 0.05,
    }  # fmt: skip


async def test_every_condition_can_be_set_and_is_shown_again(rig: Rig) -> None:
    points = Breakpoints(
        2.5, 0.05, 3, 0.1, 0.2, text="a\\n\nb", regex=r"\d+", tokens=7, eos=True, all_of=True
    )  # fmt: skip

    await rig.ready()
    given(rig, points)
    await rig.press("b")
    assert [rig.form.rows[name].text for name in ("entropy_above", "prob_below", "rank_above", "margin_below",
                                                "mass_below", "tokens", "text", "regex")] == [
        "2.5", "0.05", "3", "0.1", "0.2", "7", r"a\\n\nb", r"\d+",
    ]  # fmt: skip
    assert rig.form.rows["eos"].chosen == 1
    await rig.press("ctrl+s")
    assert rig.app.controller.runs.breakpoints.points == points


async def test_escape_leaves_them_as_they_were(rig: Rig) -> None:
    await rig.ready()
    given(rig, SET)
    await rig.press("b", "1", "escape")
    assert rig.app.controller.runs.breakpoints.points == SET


async def test_all_are_cleared_with_one_key_and_that_is_said(rig: Rig) -> None:
    await rig.ready()
    given(rig, replace(SET, eos=True, text="dragon"))
    await rig.press("b", "ctrl+d")
    assert rig.form.rows["text"].text == ""
    assert rig.app.controller.runs.breakpoints.points.active  # esc would still leave them
    assert "⏎ turns the breakpoints off" in rig.screen_text()
    await rig.press("ctrl+s")
    assert rig.app.controller.runs.breakpoints.points == Breakpoints()
    assert rig.status == "No breakpoints are set"


async def test_several_conditions_may_be_asked_for_together(rig: Rig) -> None:
    await rig.ready()
    given(rig, SET)
    await rig.press("b", "up", "right", "ctrl+s")  # the last row is before the first
    assert rig.app.controller.runs.breakpoints.points == replace(SET, all_of=True)
    assert rig.status.startswith("Runs stop at entropy > 3 and p < 5 %.")


async def test_tab_goes_from_row_to_row_and_a_click_highlights_a_row_or_chooses_a_word(rig: Rig) -> None:
    async def click(row: str, text: str) -> None:
        lines = rig.screen_text().split("\n")
        y = next(n for n, line in enumerate(lines) if row in line)
        await rig.pilot.click(offset=(lines[y].index(text), y))
        await rig.pilot.pause()

    await rig.ready()
    await rig.press("b", "tab", "tab", "7", "shift+tab")
    assert rig.form.rows["rank_above"].text == "7"
    assert "▌probability below" in rig.screen_text()
    await click("end of sequence", "○ on")
    assert "▌end of sequence    ○ off   ◉ on" in rig.screen_text()
    await rig.press("left", "space", "space")
    assert "▌end of sequence    ◉ off   ○ on" in rig.screen_text()
    await click("margin below", "margin")
    await rig.press("1", "ctrl+s")
    assert rig.app.controller.runs.breakpoints.points == Breakpoints(rank_above=7, margin_below=1)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20), (40, 12)])
async def test_the_dialog_shows_its_first_fields_and_its_buttons_at_every_size(
    rig: Rig, size: tuple[int, int]
) -> None:
    await rig.ready()
    await rig.press("b")
    text = rig.screen_text()
    assert "entropy above" in text
    assert "Apply" in text
    assert "model entropy, in bits" in text  # beside the field, or in the frame


@pytest.fixture
def damaged(config: Path) -> Path:
    """A file of breakpoints that can't be read."""
    config.mkdir()
    path = config / "breakpoints.json"
    path.write_text("{")
    return path


async def test_a_damaged_file_is_told_at_the_start_and_in_the_dialog_and_kept(
    damaged: Path, rig: Rig
) -> None:
    await rig.ready()
    assert any("can't be read" in str(notice.message) for notice in rig.app._notifications)
    await rig.press("b")
    assert "can't be read" in str(rig.app.top.query_one("#breaks-remark", Remark).render())
    await rig.press("3", "ctrl+s")
    assert "is now breakpoints.damaged-1.json" in rig.status
    assert damaged.with_name("breakpoints.damaged-1.json").read_text() == "{"


@pytest.fixture
def remembered() -> None:
    """Breakpoints of an earlier start."""
    SavedBreakpoints().save(SET)


@pytest.mark.usefixtures("remembered")
async def test_what_was_remembered_holds_at_the_next_start(rig: Rig) -> None:
    await rig.ready()
    assert "● stops at entropy > 3, p < 5 %" in rig.screen_text()
    await rig.press("r")
    assert last_run(rig).until == SET


# ---- runs ---------------------------------------------------------------------------------------


async def test_without_breakpoints_a_run_has_none_and_nothing_is_marked(rig: Rig) -> None:
    await rig.ready()
    await rig.press("r")
    assert last_run(rig) == Run(None, None)
    assert "●" not in rig.screen_text().splitlines()[-2]


async def test_a_hit_is_told_in_an_open_view(rig: Rig) -> None:
    await rig.ready()
    given(rig, SET)
    await rig.press("1", "E", "r")
    step = rig.session.step()
    await rig.push([step, BreakpointHit(step.node, ("rank 31 is above 9",))])
    assert "Stopped: rank 31 is above 9. r continues, b changes it" in rig.screen_text()


async def test_a_hit_says_what_held_and_what_to_press_until_something_else_is_done(rig: Rig) -> None:
    await rig.ready()
    given(rig, SET)
    await rig.press("r")
    step = rig.session.step()
    await rig.push([step, BreakpointHit(step.node, ("entropy 3.21 bits is above 3", "rank 31 is above 9"))])
    await rig.end("Run")
    assert (
        rig.status == "Stopped: entropy 3.21 bits is above 3; rank 31 is above 9. r continues, b changes it"
    )
    await rig.press("left")
    assert rig.status.startswith("Step ")
    await rig.press("end")
    assert rig.status.startswith("Stopped: ")
    await rig.press("4", "t")
    assert rig.status.startswith("Stopped: "), "the panel's own hint took its place"
    await rig.press("1", "c", "space")
    await rig.push(rig.session.steps(1))
    await rig.end("TakeStep")
    assert rig.status.startswith("Space or ⏎ takes")
    await rig.push([rig.session.move(step.node)])
    assert rig.timeline.tip == step.node
    assert rig.status.startswith("Space or ⏎ takes"), "it was left"


async def test_the_text_of_a_condition_is_printable(rig: Rig) -> None:
    await rig.ready()
    given(rig, Breakpoints(text="\x1b[31m\n"))
    await rig.press("r")
    step = rig.session.step()
    await rig.push([step, BreakpointHit(step.node, ("the text now contains “\x1b[31m\n”",))])
    await rig.end("Run")
    assert "“␛[31m↵”" in rig.status
    assert "● stops at “␛[31m↵”" in rig.screen_text()
    assert "\x1b" not in rig.screen_text()


async def test_another_pace_and_other_settings_go_on_with_what_was_counted(rig: Rig) -> None:
    await rig.ready()
    given(rig, Breakpoints(tokens=50))
    await rig.press("r", "minus")
    assert [(each.pace, each.goes_on) for each in rig.engine.sent if isinstance(each, Run)] == [
        (None, False), (20, True),
    ]  # fmt: skip
    rig.app.controller.setup.configure(rig.app.controller.setup.settings)
    assert last_run(rig).goes_on


async def test_breakpoints_that_are_set_during_a_run_hold_for_it_at_once(rig: Rig) -> None:
    await rig.ready()
    await rig.press("r", "b", "3", "ctrl+s")
    first, second = (each for each in rig.engine.sent if isinstance(each, Run))
    assert rig.engine.cancelled(first)
    assert second == Run(None, Breakpoints(entropy_above=3))


# ---- skipping -----------------------------------------------------------------------------------


def sure(step: Step, prob: float) -> Step:
    """The step, its token as probable as that."""
    return replace(step, prob=prob)


async def test_skipping_says_how_many_sure_tokens_it_took_and_what_comes_unsure(rig: Rig) -> None:
    await rig.ready()
    await rig.press("n")
    assert last_run(rig) == Run(None, None, over_sure=True)
    assert rig.status.startswith("Skipping sure tokens at full pace.")
    taken = rig.session.steps(4)
    probs = (0.3, SURE, 0.9, 1.0)
    assert all(isinstance(each, Step) for each in taken)
    await rig.push([sure(step, prob) for step, prob in zip(taken, probs, strict=True)])  # type: ignore[arg-type]
    tip = taken[-1]
    assert isinstance(tip, Step)
    await rig.push([BreakpointHit(tip.node, ("probability 43.2 % is below 50 %",))])
    await rig.end("Run")
    picked: Candidate = next(each for each in tip.next.candidates if each.id == tip.next.picked)
    token = picked.text.replace(" ", "␣")
    assert rig.status == (
        f"Skipped 3 sure tokens: “{token}” has {picked.prob:.2%}".replace("%", " %")
        + ". n skips on, space takes it"
    )


async def test_a_breakpoint_that_holds_while_skipping_is_named(rig: Rig) -> None:
    await rig.ready()
    given(rig, SET)
    await rig.press("n")
    assert last_run(rig) == Run(None, SET, over_sure=True)
    step = sure(rig.session.step(), 0.9)
    held = ("entropy 3.2 bits is above 3", "probability 43.2 % is below 50 %")
    await rig.push([step, BreakpointHit(step.node, held)])
    await rig.end("Run")
    assert rig.status == f"Skipped 1 sure token: {held[0]}; {held[1]}. n skips on, space steps"


async def test_the_next_that_is_not_sure_either_is_said(rig: Rig) -> None:
    await rig.ready()
    await rig.press("n")
    step = sure(rig.session.step(), 0.2)
    await rig.push([step, BreakpointHit(step.node, ("probability 43.2 % is below 50 %",))])
    await rig.end("Run")
    assert rig.status.startswith("The next is not sure either: ")
    await rig.press("r")
    assert last_run(rig) == Run(None, None)  # a run after it is one to the end again


async def test_skipping_is_paused_by_its_key(rig: Rig) -> None:
    await rig.ready()
    await rig.press("n", "n")
    assert rig.engine.cancelled(last_run(rig))


# ---- landmarks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [("comma", "full_stop", "Surprise"), ("less_than_sign", "greater_than_sign", "Fork point")],
)
async def test_keys_go_to_surprises_and_fork_points(rig: Rig, before: str, after: str, name: str) -> None:
    await rig.ready(60)
    for slot in (20, 40):
        rig.timeline.items[slot] = replace(rig.timeline.items[slot], surprisal_bits=7.2)
    await rig.press(before)
    last = rig.timeline.slot
    assert rig.status.startswith(f"{name} ")
    await rig.press(before)
    assert rig.timeline.slot < last
    await rig.press(after)
    assert rig.timeline.slot == last
    await rig.press(after)
    assert rig.status.startswith(f"No {name.lower()} after this token")


# ---- words --------------------------------------------------------------------------------------


def test_what_is_set_is_told_in_the_room_that_there_is() -> None:
    assert marker(Breakpoints(), 80) == ""
    assert marker(SET, 80) == "● stops at entropy > 3, p < 5 %"
    assert marker(SET, 20) == "● 2 breakpoints"
    assert marker(Breakpoints(eos=True), 20) == "● 1 breakpoint"
    assert marker(SET, 5) == "● 2"
    assert marker(SET, -9) == "●"
    assert conditions(Breakpoints(regex="x" * 200)) == "/" + "x" * 22 + "…"


def asked(*argv: str) -> Breakpoints | None:
    return screen.breakpoints(flags.parsed(screen.screen_parser(), argv))


def test_flags_set_them_in_the_place_of_those_that_are_remembered() -> None:
    assert asked() is None
    assert asked("--break-entropy", "3", "--break-prob", "5%") == SET
    assert asked("--break-rank", "3", "--break-margin", "0.1", "--break-mass", "20 %", "--break-eos",
                 "--break-tokens", "7", "--break-all",
                 "--break-text", r"a\n", "--break-regex", r"\n+") == Breakpoints(
        rank_above=3, margin_below=0.1, mass_below=0.2, text="a\n", regex=r"\n+", tokens=7, eos=True, all_of=True
    )  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--break-rank", "0"), "--break-rank: rank above must be a whole number of at least 1, not 0."),
        (("--break-regex", "("), "--break-regex: regular expression can't be read: missing ), unterminated"),
        (("--break-prob", "x"), "--break-prob: probability below must be a number from 0 to 1, or 0 % to 100 %, not"),
    ],
)  # fmt: skip
def test_a_flag_that_is_wrong_is_named(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(EngineError) as caught:
        asked(*argv)
    assert str(caught.value).startswith(message)
