"""The author's page: it is current, whole, and a lesson can be written, recorded and held by it alone."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TextIO

import pytest

from inspector.cli.main import main
from inspector.lessons.check import read_checked
from inspector.lessons.lesson import Lesson
from inspector.lessons.reading import BEAT, HEAD, read
from inspector.main.help_pages import page
from tests.inspector.lessons.reference import current, current_courses

FIVE = Path(__file__).with_name("five-beats.md")


def test_its_reference_is_made_from_the_tables() -> None:
    assert page("lessons") == current(page("lessons"))


def test_the_page_for_teachers_is_made_from_the_courses() -> None:
    assert page("courses") == current_courses(page("courses"))


def test_it_names_all_that_a_file_may_have() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", page("lessons"), re.MULTILINE))
    assert {*HEAD, *BEAT} <= named


def example() -> str:
    """The lesson in the page."""
    return page("lessons").partition("````markdown\n")[2].partition("````\n")[0]


@pytest.mark.wide(1)
@pytest.mark.parametrize("text", [example(), FIVE.read_text(encoding="utf-8")], ids=["page", "five beats"])
def test_its_lessons_have_no_fault_in_any_type(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a-lesson.md"
    path.write_text(text, encoding="utf-8")
    assert main(["lesson", "check", str(path), "--all-dtypes", "-v"]) == 0, capsys.readouterr()
    out = capsys.readouterr().out
    assert out.count("fingerprint = ") == 2
    assert out.endswith(f"nothing is wrong in {text.count('## ')} cards.\n")


@pytest.mark.slow
def test_a_lesson_of_five_beats_from_its_file_to_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked, recorded, held from its recording, exported: in under 60 lines."""
    assert len(FIVE.read_text(encoding="utf-8").splitlines()) < 60
    path = Path(shutil.copy(FIVE, tmp_path))
    assert main(["lesson", "record", str(path)]) == 0, capsys.readouterr()
    monkeypatch.setattr("sys.stdin", open_lines(tmp_path, "1\n\n\n2\n\n\n2\n\n2\n\n\n2\n\n"))
    assert main(["learn", str(path), "--plain", "--recorded"]) == 0
    told = capsys.readouterr().out
    assert "5 of 5 predictions were right." in told
    assert main(["export", str(tmp_path / "five-beats.trace.zst"), "-o", str(tmp_path / "page.html")]) == 0
    assert read(FIVE).title in (tmp_path / "page.html").read_text(encoding="utf-8")


def open_lines(folder: Path, lines: str) -> TextIO:
    """A standard input of lines."""
    path = folder / "answers"
    path.write_text(lines, encoding="utf-8")
    return path.open(encoding="utf-8")


# ---- the command ------------------------------------------------------------------------------


def test_a_new_lesson_is_never_written_over_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my-own_lesson.md"
    assert main(["lesson", "new", str(path)]) == 0
    lesson, faults = read_checked(path.read_text(encoding="utf-8"), "x")
    assert isinstance(lesson, Lesson)
    assert (lesson.title, faults) == ("My own lesson", [])
    path.write_text("mine", encoding="utf-8")
    assert main(["lesson", "new", str(path)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "mine"
    assert main(["lesson", "new", str(path), "--force"]) == 0
    assert path.read_text(encoding="utf-8") != "mine"


def test_the_next_command_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "it's my \x1b[1mfirst.md"
    assert main(["lesson", "new", str(path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    path = tmp_path / "it's my first.md"
    assert main(["lesson", "new", str(path)]) == 0
    _, command = capsys.readouterr().out.rstrip("\n").split("then: ")
    assert shlex.split(command) == ["inspector", "lesson", "check", str(path)]


def test_what_is_wrong_is_told_by_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.md"
    path.write_text(
        FIVE.read_text().replace('act = "step"', 'act = "jump"').replace("{next", "{nxt"), "utf-8"
    )
    assert main(["lesson", "check", str(path), "--static"]) == 2
    assert capsys.readouterr().out.startswith(f"{path}:10: There is no action jump. There are step,")
    assert main(["lesson", "record", str(path)]) == 2
    assert not path.with_suffix(".trace.zst").exists()
