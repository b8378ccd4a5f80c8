"""What was seen, kept line by line, and the report made of it: nothing that was not done, and no text that acts."""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from engine.errors import EngineError, PathError
from inspector.cli.main import main
from inspector.lessons import journal
from inspector.lessons.catalogue import find
from inspector.lessons.courses import shipped_courses
from inspector.lessons.headless import go_through, recorded_play, recorded_session, settle
from inspector.lessons.journal import LessonJournal, SeenBeat
from inspector.tools.export.report import LessonReport, document

SEEN = SeenBeat(
    when="2026-03-01T09:30:15+01:00", lesson="ending", title="Ending", beats=4, beat=2, heading="The end is barred",
    question="What comes?", predicted="a story", answer="the end", value="‘eos’", right=False, did=("step", "run"),
    why=("It came to 3 bits.",), model="pocket", dtype="float32", fingerprint="f", recorded=False, program="p 1",
)  # fmt: skip
HOSTILE = "<script>alert(1)</script> | [x](http://h) \x1b[31m \u202e # ``` \n## h"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen.jsonl"


# ---- the file -----------------------------------------------------------------------------------


def test_what_is_added_is_read_again_in_its_order(path: Path) -> None:
    other = replace(SEEN, beat=3, right=None, recorded=True)
    LessonJournal(path).add([SEEN])
    LessonJournal(path).add([other, SEEN])
    LessonJournal(path).add([])
    assert LessonJournal(path).read() == [SEEN, other, SEEN]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 9999,
        b"\xff\xfe",
        b'{"when": 3}',
        b'{"when": "x", "lesson": "", "title": "t"}',
    ],
    ids=lambda line: repr(line[:20]),
)
def test_lines_that_are_none_are_left_out_and_the_others_kept(path: Path, line: bytes) -> None:
    path.write_bytes(line)
    assert LessonJournal(path).read() == []
    LessonJournal(path).add([SEEN])  # behind a line that a killed program left without its end
    assert LessonJournal(path).read() == [SEEN]


def test_values_of_another_kind_are_as_if_absent(path: Path) -> None:
    raw = asdict(SEEN) | {
        "beat": -3,
        "right": "yes",
        "did": 7,
        "why": ["a", 3, "x" * 9999],
        "model": None,
        "beats": True,
    }
    path.write_text(json.dumps(raw))
    (read,) = LessonJournal(path).read()
    assert (read.beat, read.beats, read.right, read.did, read.model) == (1, 1, None, (), "")
    assert [len(each) for each in read.why] == [1, journal.LONGEST]


def test_a_full_file_loses_its_older_half(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LARGEST", 10_000)
    for beat in range(1, 60):
        LessonJournal(path).add([replace(SEEN, beat=beat)])
        assert path.stat().st_size <= 10_000
    beats = [each.beat for each in LessonJournal(path).read()]
    assert beats == list(range(beats[0], 60))
    assert len(beats) > 8


def test_what_is_no_regular_file_is_refused_without_a_wait(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(PathError, match="no regular file"):
        LessonJournal(path).add([SEEN])
    assert LessonJournal(path).read() == []


def test_two_programs_at_once_lose_nothing(path: Path) -> None:
    def add(lesson: str) -> None:
        for beat in range(1, 41):
            LessonJournal(path).add([replace(SEEN, lesson=lesson, beat=beat)])

    threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "abc":
        assert [each.beat for each in LessonJournal(path).read() if each.lesson == name] == list(range(1, 41))


def test_a_lesson_tells_what_was_predicted_and_what_the_run_gave() -> None:
    listed = find("ending")
    with recorded_session(listed.trace, listed.lesson) as (session, player):
        play = recorded_play(session, player, listed.lesson)
        play.begin()
        go_through(lambda *phases: settle(session, play, *phases), play)
    assert [each.beat for each in play.seen] == [1, 2, 3, 4]
    for each, beat in zip(play.seen, listed.lesson.beats, strict=True):
        assert beat.question is not None
        options = [option.text for option in beat.question.options]
        assert each.predicted == options[0]
        assert each.right == (each.answer == options[0])
        assert each.did == tuple(map(str, beat.act))
        assert (each.model, each.recorded) == ("pocket", True)
        assert each.dtype == "float32"


# ---- the report ---------------------------------------------------------------------------------


def test_the_first_prediction_counts_and_a_later_one_is_told_apart() -> None:
    again = replace(SEEN, right=True, predicted="the end", when="2026-03-01T09:40:00+01:00")
    text = document(LessonReport([SEEN, again], lesson=find("ending").lesson), "md")
    assert "1 of 4 beats seen; of 1 first predictions 0 were what the run gave" in text
    assert "| Ending | 1 of 4 | 0 of 1 | 2026-03-01 09:30 | 2026-03-01 09:40 |" in text
    assert "- Again, 2026-03-01 09:40, pocket in float32" in text
    assert "Not seen: beats 1, 3, 4." in text
    assert "no grade" in text


def test_a_beat_without_a_prediction_is_none_that_was_wrong() -> None:
    none = replace(SEEN, predicted="", right=None)
    text = document(LessonReport([none]), "md")
    assert "of 0 first predictions 0" in text
    assert "Predicted: nothing" in text


def test_of_a_course_also_what_was_not_begun_is_told() -> None:
    course = shipped_courses()[0]
    text = document(LessonReport([SEEN, replace(SEEN, lesson="beams", title="Beams")], course), "md")
    assert f"1 of {len(course.parts)} lessons begun" in text
    assert text.count("| not begun |") == len(course.parts) - 1
    assert "Beams" not in text


def test_a_beat_that_the_lesson_no_longer_has_is_not_counted() -> None:
    text = document(LessonReport([SEEN, replace(SEEN, beat=9)], lesson=find("ending").lesson), "md")
    assert "1 of 4 beats seen" in text


@pytest.mark.parametrize("name", ["md", "html"])
def test_what_a_stranger_s_lesson_said_stays_text(name: str) -> None:
    fields = dict.fromkeys(
        ("title", "heading", "question", "predicted", "answer", "value", "model", "dtype"), HOSTILE
    )
    text = document(
        LessonReport([replace(SEEN, **fields, did=(HOSTILE,), why=(HOSTILE,), when=HOSTILE)]), name
    )  # type: ignore[arg-type]
    assert "\x1b" not in text
    assert "\u202e" not in text
    if name == "html":
        body = text.partition("<main>")[2]
        assert not re.search(r"<(script|a|h1)\b", body)
        assert len(re.findall(r"<h2", body)) == 1
        assert "style=" not in body  # the page's policy blocks it


def test_it_is_written_where_a_person_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", "--report"]) == 2
    assert "nothing to report" in capsys.readouterr().err
    LessonJournal().add([SEEN])
    assert main(["learn", "--report"]) == 0
    assert capsys.readouterr().out.startswith("# Report on lessons\n")
    page = tmp_path / "r.html"
    assert main(["learn", "ending", "--report", str(page)]) == 0
    assert "1 of 4 beats seen" in capsys.readouterr().err
    assert page.read_text().startswith("<!doctype html>")
    assert main(["learn", "--report", str(page)]) == 2
    assert main(["learn", "--report", str(page), "--force"]) == 0
    lines = tmp_path / "r.jsonl"
    assert main(["learn", "--report", str(lines)]) == 0
    assert [json.loads(line) for line in lines.read_text().splitlines()] == [
        json.loads(json.dumps(asdict(SEEN)))
    ]
    capsys.readouterr()
    assert main(["learn", "--report", str(tmp_path / "r.docx")]) == 2
    assert "Let it end in one of .md, .html, .jsonl." in capsys.readouterr().err
    assert main(["learn", "the-draw", "--report"]) == 2


def test_no_format_is_an_error() -> None:
    with pytest.raises(EngineError, match="says no format"):
        document(LessonReport([SEEN]), "")
