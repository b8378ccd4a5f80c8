"""A lesson as a dialogue of lines: what is said, what is kept back, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.settings import LoadSettings
from inspector.lessons.catalogue import find
from inspector.lessons.dialogue import LessonDialogue
from inspector.lessons.headless import (
    HeadlessSession,
    live_play,
    live_session,
    record,
    recorded_play,
    recorded_session,
)
from inspector.lessons.lesson import Lesson, LessonPhase
from inspector.lessons.play import LessonPlay
from inspector.lessons.reading import lesson as lesson_of
from tests.inspector.lessons.test_check import GOOD

LESSON = lesson_of(GOOD, "good")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lesson's recording."""
    path = tmp_path_factory.mktemp("recorded") / "good.trace.zst"
    record(LESSON, path, LoadSettings("pocket"))
    return path


def held(session: HeadlessSession, play: LessonPlay, answers: list[str | None]) -> list[str]:
    """All lines of a dialogue, each prompt with its answer."""
    told: list[str] = []
    left = iter([*answers, None])

    def ask(prompt: str) -> str | None:
        answer = next(left)
        told.append(f"{prompt}[{answer}]")
        return answer

    LessonDialogue(session, play, ask, told.append).hold()
    return told


def recorded(trace: Path, answers: list[str | None], lesson: Lesson = LESSON) -> list[str]:
    """A dialogue from the recording."""
    with recorded_session(trace, lesson) as (session, player):
        return held(session, recorded_play(session, player, lesson), answers)


def test_it_asks_before_it_tells(trace: Path) -> None:
    told = recorded(trace, ["h", "7", "one", "2\n", "", "", "2", "", ""])
    text = "\n".join(told)
    before, _, after = text.partition("Done: step.")
    assert "Question: Which token is taken?" in before
    assert "  3. house" in before
    assert "The shares are ranked." in before  # the hint
    assert before.count("Type a number from 1 to 3.") == 2
    assert "Picked" not in before
    assert "Not right: you said boy; it is girl." in after
    assert "Text so far: Once upon a time, there was a little girl" in after
    assert "Right: more." in after
    assert told[-1] == "1 of 2 predictions was right."


def test_live_and_recorded_say_the_same(trace: Path) -> None:
    answers: list[str | None] = ["1", "", "", "1", "", ""]
    with live_session(LoadSettings("pocket"), LESSON) as session:
        live = held(session, live_play(session, LESSON), answers)
    assert live == recorded(trace, answers)


def test_what_is_hidden_is_not_told_before_the_reveal(trace: Path) -> None:
    hiding = lesson_of(GOOD.replace('look = "last"', 'look = "last"\nhide = ["text", "candidates"]'), "good")
    before, _, after = "\n".join(recorded(trace, ["1", "", "q"], hiding)).partition("Done: step.")
    assert "Text so far" not in before
    assert "Most probable" not in before
    assert "Most probable for token 1" in after


@pytest.mark.parametrize("leave", [None, "q", "Q "], ids=["end", "q", "Q"])
@pytest.mark.parametrize("after", range(3))
def test_it_can_be_left_at_each_prompt(trace: Path, leave: str | None, after: int) -> None:
    answers: list[str | None] = ["", "", ""]
    assert recorded(trace, [*answers[:after], leave])[-1] == "You left the lesson."


def test_a_beat_without_a_question_and_one_with_nothing_to_do(tmp_path: Path) -> None:
    lesson = lesson_of(
        '+++\ntitle = "t"\nprompt = "Once"\n+++\n## a\n\nRead.\n\n'
        '## b\n\n```toml\nact = "step"\n```\n\n> {last.text}\n',
        "t",
    )
    trace = tmp_path / "t.trace.zst"
    record(lesson, trace, LoadSettings("pocket"))
    told = recorded(trace, ["", "", ""], lesson)
    assert "Read." in told
    assert "Done: step." in told


# ---- the command ------------------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path: Path, trace: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Begins `inspector learn --plain` on the lesson where MLX can't be imported."""
    (tmp_path / "good.md").write_text(GOOD, encoding="utf-8")
    (tmp_path / "good.trace.zst").write_bytes(trace.read_bytes())
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text('raise ImportError("there is none")')
    running: list[subprocess.Popen[str]] = []

    def begin(*flags: str) -> subprocess.Popen[str]:
        path = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[3])))
        command = [sys.executable, "-m", "inspector", "learn", "good.md", "--plain", *flags]
        environment = {**os.environ, "PYTHONPATH": path}
        out = subprocess.PIPE
        running.append(
            subprocess.Popen(
                command, cwd=tmp_path, env=environment, text=True, stdin=out, stdout=out, stderr=out
            )
        )
        return running[-1]

    yield begin
    for each in running:
        each.kill()
        each.communicate()


def test_without_mlx_it_goes_on_from_the_recording(begun: Callable[..., subprocess.Popen[str]]) -> None:
    out, errors = begun().communicate("1\n\n\n2\n\n\n", timeout=120)
    assert "2 of 2 predictions were right." in out
    assert errors.count("\n") == 1
    assert "The lesson continues from its recording." in errors


def test_it_goes_on_where_it_was_left(begun: Callable[..., subprocess.Popen[str]]) -> None:
    out, _ = begun("--recorded").communicate("1\n\n\nq\n", timeout=120)
    assert "Card 2 of 2" in out
    assert "You left the lesson." in out
    out, errors = begun("--recorded").communicate("2\n\n\n", timeout=120)
    assert "It begins at card 2." in out
    assert "Card 1 of 2" not in out
    assert "2 of 2 predictions were right." in out
    assert errors == ""
    out, _ = begun("--recorded").communicate("q\n", timeout=120)
    assert "Card 1 of 2" in out  # once it was gone through it begins anew


@pytest.mark.slow
def test_a_signal_ends_it_cleanly(begun: Callable[..., subprocess.Popen[str]]) -> None:
    process = begun("--recorded")
    assert process.stdout is not None
    while "Question" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors == ""


def test_all_beats_are_shown_as_what_they_show(trace: Path) -> None:
    """Each panel that a lesson may show has its lines, or the candidates'."""
    for show in ("text", "candidates", "steps", "kv", "timing", "sampler", "race", "beams"):
        lesson = lesson_of(GOOD.replace('show = "candidates"', f'show = "{show}"'), "good")
        with recorded_session(trace, lesson) as (session, player):
            play = recorded_play(session, player, lesson)
            assert "right." not in held(session, play, [""] * 6)[-1]  # no prediction was made
            assert play.phase is LessonPhase.ENDED


def test_a_view_is_not_told_before_the_reveal() -> None:
    """Its answers may be known from the card before: the parts that card 6 asks for are."""
    listed = find("switch-off")
    with recorded_session(listed.trace, listed.lesson) as (session, player):
        play, told = recorded_play(session, player, listed.lesson), list[str]()
        answers = iter(["3", ""])
        LessonDialogue(session, play, lambda _: next(answers), told.append, 5).hold()
    before, _, after = "\n".join(told).partition("Right: an MLP.")
    assert "L1 MLP, KL 14.27 bits" in after
    assert "L1 MLP" not in before
    assert told[-1] == "1 of 1 prediction was right."
