"""Exporting from the screen: the dialog, what is written, and what is told."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from textual.widgets import Static

from inspector.documents.exports import EXPORTS
from inspector.export.lesson_page import page
from inspector.lessons.catalogue import shipped
from inspector.views.export import ExportDialog, stem
from inspector.widgets.fields import Choice, SafeInput, Ticks
from tests.inspector.rig import Rig
from tests.inspector.views.attention.heads import on
from tests.inspector.views.attention.heads import read as attention
from tests.inspector.views.interventions.units import sweep


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def opened(rig: Rig) -> ExportDialog:
    await rig.do("export")
    dialog = rig.app.top
    assert isinstance(dialog, ExportDialog)
    return dialog


async def done(rig: Rig) -> None:
    """Wait for what is written beside the screen."""
    for _ in range(200):
        await rig.pilot.pause(0.01)
        if not rig.status.startswith("Writing"):
            return


def path(dialog: ExportDialog) -> SafeInput:
    return dialog.query_one("#export-path", SafeInput)


def remark(dialog: ExportDialog) -> str:
    return str(dialog.query_one("#export-path-remark", Static).content)


async def test_a_page_is_written_under_a_name_from_the_text(rig: Rig, tmp_path: Path) -> None:
    await rig.ready()
    dialog = await opened(rig)
    assert path(dialog).value == "once-upon-a-time-there-was.html"
    await rig.press("ctrl+s")
    await done(rig)
    assert rig.status.startswith("Exported once-upon-a-time-there-was.html, "), "a long folder cuts no name"
    assert rig.status.endswith(f", to {tmp_path}")
    assert not isinstance(rig.app.top, ExportDialog)
    page = (tmp_path / "once-upon-a-time-there-was.html").read_text()
    assert "Content-Security-Policy" in page
    assert "mlx-inspector" in page


@pytest.mark.wide(1)
@pytest.mark.parametrize(("place", "end"), [(2, "csv"), (4, "svg")])
async def test_the_choice_gives_the_name_its_end(rig: Rig, place: int, end: str, tmp_path: Path) -> None:
    await rig.ready()
    dialog = await opened(rig)
    path(dialog).value = "mine.html"
    await rig.press(*["right"] * place)
    assert path(dialog).value == f"mine.{end}"
    await rig.press("enter")
    await done(rig)
    await rig.pilot.pause()
    assert rig.status.startswith("Exported ")
    assert (tmp_path / f"mine.{end}").stat().st_size > 20
    await rig.do("export")
    assert isinstance(rig.app.top, ExportDialog)
    assert rig.app.top.query_one(Choice).chosen == place  # as it was the last time


async def test_what_was_looked_at_is_listed_with_ticks_and_goes_along_where_there_is_one(
    rig: Rig, tmp_path: Path
) -> None:
    await rig.ready(3)
    step = rig.timeline.steps[1]
    tokens = step.position + 1
    await rig.push([attention(step.node, tokens, lambda layer, head: on(2, tokens)), sweep(step.node)])
    dialog = await opened(rig)
    ticks = dialog.query_one(Ticks)
    assert ticks.labels == ("attention", "switched off")
    assert "✓ attention" in rig.screen_text()
    await rig.press("down")
    assert dialog.focused is ticks
    assert "space tick" in " ".join(rig.screen_text().splitlines()[-1].split())
    await rig.press("right", "space")
    assert "○ switched off" in rig.screen_text()
    await rig.press("ctrl+s")
    await done(rig)
    page = (tmp_path / "once-upon-a-time-there-was.html").read_text()
    assert ("Where the model looked" in page, "switched off alone" in page) == (True, False)
    dialog = await opened(rig)  # as it was the last time
    assert dialog.query_one(Ticks).without == {1}
    await rig.pilot.click(Ticks, offset=(16, 0))
    assert dialog.query_one(Ticks).without == set()
    dialog.query_one("#export-what", Choice).chosen = 2  # CSV
    await rig.pilot.pause()
    assert "✓" not in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_where_nothing_was_looked_at_the_dialog_says_what_to_do(
    rig: Rig, size: tuple[int, int]
) -> None:
    await rig.ready()
    dialog = await opened(rig)
    assert not dialog.query(Ticks)
    said = " ".join(rig.screen_text().replace("│", " ").split())
    views = "3 A attention, 3 I lens, 3 D contributions"
    assert f"None yet. Open one at a token to include it: {views} and others." in said


async def test_a_picture_shows_the_screen_and_not_the_dialog(rig: Rig, tmp_path: Path) -> None:
    await rig.ready()
    await opened(rig)
    await rig.press("left", "ctrl+s")
    await rig.pilot.pause()
    picture = (tmp_path / "once-upon-a-time-there-was.svg").read_text()
    assert "KV" in picture
    assert "Cancel" not in picture
    assert "@font-face" not in picture


async def test_a_file_that_is_there_is_replaced_when_asked_twice(rig: Rig, tmp_path: Path) -> None:
    await rig.ready()
    place = tmp_path / "mine.html"
    place.write_text("mine")
    dialog = await opened(rig)
    path(dialog).value = "mine.html"
    await rig.pilot.pause()
    await rig.press("ctrl+s")
    assert "mine.html already exists" in remark(dialog)
    assert place.read_text() == "mine"
    await rig.press("ctrl+s")
    await done(rig)
    assert place.read_text().startswith("<!doctype html>")


async def test_a_name_that_will_not_do_is_told_in_the_dialog(rig: Rig, tmp_path: Path) -> None:
    await rig.ready()
    dialog = await opened(rig)
    for typed, told in (
        ("", "No file was named."),
        ("none/a.html", "no directory none"),
        (".", "is a directory"),
        ("~nosuchuser/x.html", "No home directory is known for ~nosuchuser"),
        ("a" * 5000, "File name too long"),
        ("b" * 300, "File name too long"),
    ):
        path(dialog).value = typed
        await rig.pilot.pause()
        await rig.press("ctrl+s")
        assert told in remark(dialog)
    await rig.press("escape")
    assert list(tmp_path.iterdir()) == []


async def test_in_a_directory_that_was_deleted_it_is_told_at_the_field(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    await rig.ready()
    dialog = await opened(rig)
    assert "current directory is gone" in remark(dialog)
    await rig.press("ctrl+s")
    assert "current directory is gone" in remark(dialog)
    path(dialog).value = str(tmp_path / "a.html")
    await rig.press("ctrl+s")
    await done(rig)
    assert rig.status.startswith("Exported ")


async def test_a_pipe_is_never_replaced(rig: Rig, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.html")
    await rig.ready()
    dialog = await opened(rig)
    path(dialog).value = "pipe.html"
    await rig.press("ctrl+s", "ctrl+s", "ctrl+s")
    assert "is a pipe" in remark(dialog)
    assert stat.S_ISFIFO((tmp_path / "pipe.html").stat().st_mode)


async def test_what_can_not_be_written_is_told_and_the_session_goes_on(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    await rig.ready()
    await opened(rig)
    monkeypatch.setattr("os.fsync", full)
    await rig.press("ctrl+s")
    await done(rig)
    await rig.pilot.pause()
    told = [note.message for note in rig.app._notifications]
    assert any("No space left on device" in each for each in told)
    await rig.press("space")
    assert rig.engine.names == ["TakeStep"]
    assert list(tmp_path.iterdir()) == []


async def test_what_comes_meanwhile_is_not_in_it(rig: Rig, tmp_path: Path) -> None:
    await rig.ready(4)
    await opened(rig)
    await rig.press("right", "right", "ctrl+s")
    await rig.push(rig.session.steps(3))
    await done(rig)
    rows = (tmp_path / "once-upon-a-time-there-was.csv").read_text().splitlines()
    assert len(rows) == 1 + 5 + 4


@pytest.mark.wide(1)
@pytest.mark.parametrize("place", [0, 4])
async def test_a_session_that_has_gone_meanwhile_is_told(rig: Rig, tmp_path: Path, place: int) -> None:
    await rig.ready(4)
    await opened(rig)
    await rig.press(*["right"] * place)
    await rig.push(rig.session.load())  # another model, which has no prompt yet
    await rig.press("ctrl+s")
    await rig.until(lambda: rig.app._notifications)
    assert "nothing to export" in next(iter(rig.app._notifications)).message
    assert list(tmp_path.iterdir()) == []


async def test_before_a_prompt_there_is_nothing_to_export(rig: Rig) -> None:
    await rig.do("export")
    assert not isinstance(rig.app.top, ExportDialog)


@pytest.mark.parametrize(
    ("title", "name"),
    [("Once upon a time, there was a boy", "once-upon-a-time-there-was"), ("../../etc/passwd", "etc-passwd"),
     ("狐狸 🦊", "session"), ("-rf", "rf"), ("", "session")],
)  # fmt: skip
def test_a_files_name_is_plain(title: str, name: str) -> None:
    assert stem(title) == name


@pytest.fixture(name="path")
def recording_of_a_lesson() -> Path:
    return shipped()[0].trace


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_a_lessons_recording_on_show_can_be_its_page(
    replay: Rig, size: tuple[int, int], tmp_path: Path
) -> None:
    listed = shipped()[0]
    dialog = await opened(replay)
    path(dialog).value = "mine.csv"
    await replay.press("left")  # around to the last of them
    assert dialog.query_one("#export-what", Choice).chosen == 5
    assert path(dialog).value == "mine.html"
    await replay.press("ctrl+s")
    await done(replay)
    assert "mine.html" in replay.status
    assert (tmp_path / "mine.html").read_text() == page(listed.lesson, listed.trace, EXPORTS)
    dialog = await opened(replay)  # asked for again
    assert dialog.query_one("#export-what", Choice).chosen == 5
