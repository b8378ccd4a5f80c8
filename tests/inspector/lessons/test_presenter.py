"""Before a class: votes, timers, what is hidden, and the speaker's notes."""

from __future__ import annotations

import pytest

from inspector.keys import key_for
from inspector.lessons.catalogue import LessonProgress, Progress, find, shipped
from inspector.lessons.lesson import LessonPhase
from inspector.main.dialogs.help import HelpDialog, KeysPage
from inspector.main.narration import NarrationCard
from inspector.views.lessons import BeatsDialog, VotesDialog, block_digits, read_votes
from inspector.views.positions import PositionsView
from tests.inspector.lessons.playing import WAITING, LearnerKeys
from tests.inspector.rig import Rig

LESSON = next(each for each in shipped() if each.lesson.id == "the-draw")


@pytest.mark.parametrize(
    ("text", "votes"),
    [
        ("12 5 3", (12, 5, 3)),
        (" 0,1, 2 ", (0, 1, 2)),
        ("12 5", None),
        ("a b c", None),
        ("1 2 -3", None),
        ("", None),
    ],
)
def test_votes_are_whole_numbers(text: str, votes: tuple[int, ...] | None) -> None:
    assert read_votes(text, 3) == votes


def test_large_numbers_have_three_lines() -> None:
    assert block_digits("17") == ["╶╮ ╶─┐", " │   │", "╶┴╴  ╵"]
    assert block_digits("17 KiB") == ["╶╮ ╶─┐", " │   │", "╶┴╴  ╵ KiB"]


@pytest.mark.lesson(present=True)
async def test_a_class_is_taken_through_a_lesson(learner: LearnerKeys) -> None:
    """By the presenter's keys alone; each beat's notes are under its card from the reveal on."""
    assert "little" in learner.told.splitlines()[0], "the sentence"
    assert "Enlarge the terminal's font" in learner.text()
    assert f"/{LESSON.lesson.minutes:.0f}:00" in learner.text(), "the time of the whole lesson"
    await learner.press("v")
    await learner.until(lambda: isinstance(learner.app.top, VotesDialog))
    await learner.press("1", "2", "space", "5", "space", "3", "enter")
    await learner.until(lambda: "12 girl" in learner.text())
    await learner.press("full_stop")
    await learner.until(lambda: "12 girl" not in learner.text())
    await learner.press("full_stop")
    for beat in LESSON.lesson.beats:
        number = learner.play.beat_number
        while learner.play.phase is not LessonPhase.REVEALED:
            assert beat.notes[0] not in learner.told
            await learner.press("pagedown")
            await learner.phase(*WAITING)
        assert learner.told.endswith("\n\n" + "\n".join(beat.notes))
        await learner.press("pagedown")
        await learner.until(lambda number=number: learner._left(number))  # type: ignore[misc]
    assert learner.play.phase is LessonPhase.ENDED
    assert "predictions" not in learner.told, "the presenter made none"
    assert Progress().read() == {LESSON.lesson.id: LessonProgress(done=True)}, "the class predicted"
    assert "pgdn end" in learner.text()
    await learner.press("pagedown")
    assert learner.actions.play is None
    await learner.press("K")
    assert not learner.actions.presenting.on


@pytest.mark.lesson(size=(60, 20), present=True)
async def test_a_card_has_one_panel_however_the_screen_was_explored(learner: LearnerKeys) -> None:
    arrangement = learner.app.main.arrangement
    assert "1/6 · A number picks · 0:0" in learner.text(), "the time has its place"
    await learner.press("S", "1", "tab", "tab", "escape")
    assert not arrangement.enlarged
    assert "S back to the lesson" in learner.text()
    await learner.press("S")
    assert arrangement.enlarged


@pytest.mark.lesson(size=(60, 17))
async def test_the_notes_of_a_card_without_room_for_them_are_read_with_the_key_that_continues(
    learner: LearnerKeys,
) -> None:
    await learner.press_for("present")
    while learner.play.phase is not LessonPhase.REVEALED:
        await learner.press("pagedown")
        await learner.phase(*WAITING)
    await learner.until(lambda: learner.app.main.query_one(NarrationCard).overflows)
    pages = 0
    while "machine." not in learner.text():
        await learner.until(lambda: "pgdn more" in learner.text())
        await learner.press("pagedown")
        pages += 1
    assert 1 <= pages <= 2
    assert learner.play.beat_number == 0
    await learner.until(lambda: "pgdn next" in learner.text())
    await learner.press("pagedown")
    await learner.until(lambda: learner.play.beat_number == 1)


async def test_the_panel_that_matters_is_presented_and_the_key_that_ends_it_holds_in_every_tab(
    learner: LearnerKeys,
) -> None:
    main = learner.app.main
    await learner.phase(LessonPhase.ASKING)
    await learner.press_for("present")
    await learner.until(lambda: main.has_class("-projected") and main.arrangement.current == "candidates")
    assert "1 Next" not in learner.text()
    assert main.query_one("#candidates").region.right == main.size.width
    await learner.press("pagedown")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("2")
    await learner.until(lambda: main.tab == "2")
    await learner.press("K")
    assert not learner.actions.presenting.on
    await learner.until(lambda: "1 Next" in learner.text())


@pytest.mark.slow
@pytest.mark.lesson(listed=find("looking-back"), present=True)
async def test_a_tools_own_screen_keeps_the_header_s_row(
    learner: LearnerKeys,
) -> None:
    await learner.press("pagedown")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("pagedown")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: learner.app.main.over == "attention")
    await learner.until(lambda: "looks from" in learner.text() and "pgdn next" in learner.text())
    header, *_ = learner.text().splitlines()
    assert "pocket" in header


async def test_hiding_goes_round(learner: LearnerKeys) -> None:
    await learner.press_for("present")
    await learner.press("pagedown")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("pagedown")
    await learner.phase(LessonPhase.REVEALED)
    said = []
    for _ in range(3):
        await learner.press("h")
        said.append((learner.app.main.status.answer, "hidden with h" in learner.text()))
        assert "hidden until you predict" not in learner.text(), "nothing is to be predicted"
    assert said == [
        ("Probabilities are hidden", True), ("Candidates are hidden", True), ("Everything is shown", False),
    ]  # fmt: skip


async def test_a_blank_screen_shows_no_panel_and_comes_back(learner: LearnerKeys) -> None:
    """Not the steps and not the tree either, which are made of widgets of their own."""
    for panel, back in (("steps", "full_stop"), ("tree", "escape")):
        await learner.press_for("present")
        learner.app.main.go_to(panel)
        await learner.until(lambda panel=panel: learner.app.main.query_one(f"#{panel}").region.area > 0)
        await learner.press("full_stop")
        await learner.until(lambda: "─" not in learner.text())
        assert not [line for line in learner.text().splitlines()[1:-3] if line.strip()]
        await learner.press(back)
        await learner.until(lambda panel=panel: panel.title() in learner.text())
        await learner.press("K")


async def test_a_blank_screen_shows_no_answer_of_a_tool_either(rig: Rig) -> None:
    await rig.ready()
    await rig.do("present", "positions")
    assert isinstance(rig.app.top, PositionsView)
    for frames in (False, True):
        await rig.press(".")
        await rig.pilot.pause()
        assert ("─" in rig.screen_text()) == frames


async def test_the_help_begins_with_what_is_on_show(learner: LearnerKeys) -> None:
    """In a lesson with its keys, before a class with the presenter's; elsewhere with those of the screen."""

    async def first(*keys: str) -> list[str]:
        await learner.press(*keys, "?")
        await learner.until(lambda: isinstance(learner.app.top, HelpDialog))
        page = learner.app.top.query_one(KeysPage)
        await learner.until(lambda: page.size.height > 0)
        headings = [line.plain for line in page._lines(90) if line.plain in HEADINGS]
        await learner.press("escape")
        await learner.until(lambda: learner.app.top is learner.app.main)
        assert len(headings) == len(set(headings)) == len(HEADINGS)
        return headings[:2]

    assert (await first())[0] == "In a lesson"
    assert await first(*key_for("present").split()) == ["While presenting", "In a lesson"]
    learner.actions.leave()
    assert (await first())[0] == "While presenting"
    assert (await first("K"))[0] == "1 Next"


HEADINGS = ("In every tab", "1 Next", "In a lesson", "While presenting")


async def test_a_session_without_a_lesson_shows_its_sentence(rig: Rig) -> None:
    await rig.ready()
    await rig.press("6", "K", "1")
    await rig.until(lambda: "Presenting" in rig.screen_text())
    assert "The whole class sees one panel" not in rig.screen_text()
    end = "".join(item.text for item in rig.app.controller.timeline.items)[-10:]
    assert end in rig.screen_text().partition("Presenting")[2]


@pytest.mark.lesson(present=True)
async def test_a_number_highlights_its_card_in_the_list(learner: LearnerKeys) -> None:
    await learner.press("g")
    await learner.until(lambda: isinstance(learner.app.top, BeatsDialog))
    await learner.press("5", "enter")
    await learner.until(lambda: learner.play.beat_number == 4)
