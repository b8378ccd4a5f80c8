"""Before a class: votes, timers, what is hidden, and the notes in a second terminal."""

from __future__ import annotations

import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.cells import cell_len
from textual.widgets import Static

from engine import confinement
from engine.confinement import Confinement
from engine.errors import EngineError
from inspector.keys import key_for
from inspector.lessons.catalogue import find, shipped
from inspector.lessons.lesson import LessonPhase
from inspector.main.dialogs.help import HelpDialog, KeysPage
from inspector.main.narration import NarrationCard
from inspector.tools.lessons import notes
from inspector.tools.lessons.dialogs import VotesDialog, read_votes
from inspector.tools.lessons.notes import (
    NotesApp,
    NotesPage,
    NotesServer,
    body_text,
    follow,
    head_line,
    page,
    presenting,
)
from inspector.tools.lessons.presenter import COLUMNS, Presenting, block_digits
from inspector.tools.positions.screen import PositionsScreen
from tests.inspector.lessons.playing import WAITING, LearnerKeys
from tests.inspector.rig import Rig
from tests.system import short_directory

LESSON = next(each for each in shipped() if each.lesson.id == "the-draw")
PAGE = NotesPage(
    "The draw", 1, 2, "A number picks", "asking", ("Ask.",), "Which?", ("girl", "boy"), "boy", (12, 5)
)


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for sockets of each test's own, with a short path: that of a socket may have 100 characters."""
    folder = short_directory()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    shutil.rmtree(folder)


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


def test_notes_are_the_owners_alone_and_leave_nothing_behind(runtime: Path) -> None:
    server = NotesServer()
    path = presenting()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    server.publish(PAGE)
    followed = follow(path)
    assert next(followed) == PAGE  # whoever comes late sees what is on show
    server.publish(NotesPage("The draw", 2, 2, "Hotter", "asking"))
    assert next(followed).title == "Hotter"
    server.close()
    assert list(followed) == []
    assert not path.exists()
    with pytest.raises(EngineError, match="No lesson is being presented"):
        presenting()


def test_a_visitor_who_presents_has_no_second_terminal_here(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "_now", Confinement(str(runtime)))
    said: list[str] = []
    host = SimpleNamespace(
        arrangement=SimpleNamespace(enlarged=False),
        answer=lambda: None,
        announce=lambda *words: said.extend(words),
    )
    own = Presenting(cast("Any", host), lambda: None)
    own.toggle()
    assert own.on
    assert not said
    assert not list(runtime.rglob("*.sock"))


def test_a_socket_that_nobody_listens_at_is_passed_over(runtime: Path) -> None:
    notes.folder().mkdir(parents=True)
    (notes.folder() / "notes-1.sock").touch()
    with pytest.raises(EngineError, match="No lesson is being presented"):
        presenting()


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"null", b'{"version": 9}', b"\xff", b"[" * 5000])
def test_what_is_no_page_is_refused(line: bytes) -> None:
    with pytest.raises(EngineError, match="can't be read"):
        page(line)


def test_the_notes_say_what_comes_next_and_who_is_late() -> None:
    shown = body_text(PAGE).plain
    assert "Ask." in shown
    assert "✓ 2 boy  5" in shown
    assert "$warning" in str(head_line(NotesPage("L", 1, 2, "T", "asking", lesson_minutes=5), 400.0).spans)


async def test_a_class_is_taken_through_a_lesson(learner: LearnerKeys, runtime: Path) -> None:
    """By the presenter's keys alone; the second terminal has the notes of each beat."""
    await learner.press_for("present")
    followed = follow(presenting())
    card = learner.app.main.query_one(NarrationCard)
    assert card.size.width <= 60
    await learner.press("v")
    await learner.until(lambda: isinstance(learner.app.screen, VotesDialog))
    await learner.press("1", "2", "space", "5", "space", "3", "enter")
    await learner.until(lambda: "12 girl" in learner.text())
    await learner.press("full_stop")
    await learner.until(lambda: "12 girl" not in learner.text())
    await learner.press("full_stop")
    for _ in LESSON.lesson.beats:
        number = learner.play.beat_number
        while learner.play.phase is not LessonPhase.REVEALED:
            await learner.press("pagedown")
            await learner.phase(*WAITING)
        await learner.press("pagedown")
        await learner.until(lambda number=number: learner._left(number))  # type: ignore[misc]
    pages = [next(followed)]
    while pages[-1].phase != "ended":
        pages.append(next(followed))
    assert pages[-1].beats == len(LESSON.lesson.beats)
    await learner.press("K")
    assert not learner.actions.presenting.on


async def test_the_panel_that_matters_is_presented_and_the_key_that_ends_it_holds_in_every_tab(
    learner: LearnerKeys, runtime: Path
) -> None:
    main = learner.app.main
    await learner.phase(LessonPhase.ASKING)
    await learner.press_for("present")
    await learner.until(lambda: main.has_class("-projected") and main.arrangement.current == "candidates")
    assert "1 Next" not in learner.text()
    assert main.query_one("#candidates").size.width <= COLUMNS
    await learner.press("pagedown")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("2")
    await learner.until(lambda: main.tab == "2")
    await learner.press("K")
    assert not learner.actions.presenting.on
    await learner.until(lambda: "1 Next" in learner.text())


@pytest.mark.slow
@pytest.mark.lesson(listed=find("looking-back"), present=True)
async def test_a_tools_own_screen_keeps_the_columns_and_the_header_s_row(
    learner: LearnerKeys, runtime: Path
) -> None:
    await learner.press("pagedown")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("pagedown")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: learner.app.main.host.over == "attention")
    await learner.until(lambda: "looks from" in learner.text() and "pgdn next" in learner.text())
    header, *rest = learner.text().splitlines()
    assert "pocket" in header
    assert max(map(cell_len, rest)) <= COLUMNS


async def test_hiding_goes_round(learner: LearnerKeys, runtime: Path) -> None:
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
        learner.app.main.host.go_to(panel)
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
    assert isinstance(rig.app.screen, PositionsScreen)
    for frames in (False, True):
        await rig.press(".")
        await rig.pilot.pause()
        assert ("─" in rig.screen_text()) == frames


async def test_the_help_begins_with_what_is_on_show(learner: LearnerKeys, runtime: Path) -> None:
    """In a lesson with its keys, before a class with the presenter's; elsewhere with those of the screen."""

    async def first(*keys: str) -> list[str]:
        await learner.press(*keys, "?")
        await learner.until(lambda: isinstance(learner.app.screen, HelpDialog))
        page = learner.app.screen.query_one(KeysPage)
        await learner.until(lambda: page.size.height > 0)
        headings = [line.plain for line in page._lines(90) if line.plain in HEADINGS]
        await learner.press("escape")
        await learner.until(lambda: learner.app.screen is learner.app.main)
        assert len(headings) == len(set(headings)) == len(HEADINGS)
        return headings[:2]

    assert (await first())[0] == "In a lesson"
    assert await first(*key_for("present").split()) == ["While presenting", "In a lesson"]
    learner.actions.leave()
    assert (await first())[0] == "While presenting"
    assert (await first("K"))[0] == "1 Next"


HEADINGS = ("In every tab", "1 Next", "In a lesson", "While presenting")


async def test_the_second_terminal_shows_the_page_and_says_when_it_ends() -> None:
    ended = threading.Event()

    def pages() -> Iterator[NotesPage]:
        yield PAGE
        ended.wait(60)

    app = NotesApp(pages)

    async def until(words: str) -> None:
        while words not in str(app.query_one("#notes-body", Static).content):
            await pilot.pause(0.01)

    async with app.run_test(size=(60, 20)) as pilot:
        await until("A number picks")
        ended.set()
        await until("has ended")
