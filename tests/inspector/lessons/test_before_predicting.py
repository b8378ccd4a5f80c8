"""One meaning for each key beside a card: what would show the answer waits, and the status names what works."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import EngineError
from inspector.cli.subcommands import lessons
from inspector.cli.subcommands.lessons import learn_parser, lesson_parser, run_learn, run_lesson
from inspector.lessons.catalogue import LessonProgress, Progress, find, is_name, new_lesson, shipped
from inspector.lessons.lesson import LessonPhase
from inspector.main.narration import NarrationCard
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.header import TabLines
from inspector.main.view import View
from inspector.views.sampling_dialog import SamplingDialog
from tests.inspector.lessons.playing import WAITING, LearnerKeys

LESSON = find("the-draw")


@pytest.mark.wide(1)
@pytest.mark.parametrize("recorded", [False, True])
async def test_keys_that_would_show_the_answer_wait_for_the_prediction(
    learner: LearnerKeys, recorded: bool
) -> None:
    main, timeline = learner.app.main, learner.app.controller.timeline
    await learner.phase(LessonPhase.ASKING)
    assert main.status.left.startswith("Predict: press 1-3")
    for key, shown in (("space", "space"), ("r", "r"), ("s", "s"), ("enter", "⏎"), ("p", "p"), ("d", "d")):
        await learner.press(key)
        assert learner.app.top is main
        assert main.status.answer.startswith(f"Predict first: press 1-3. {shown} is locked")
    assert not learner.app.controller.client.outstanding
    assert timeline.steps == []
    for hint in ("space step", "r run", "⏎ choose", "s settings"):
        assert hint not in learner.text().splitlines()[-1]
    await learner.press("1")
    await learner.phase(LessonPhase.ACTING)
    assert (main.status.answer, main.status.left) == ("", "Press space")
    assert ("space next" if recorded else "space step") in learner.text().splitlines()[-1].replace("  ", " ")
    await learner.press("space" if not recorded else "h")
    await learner.phase(LessonPhase.REVEALED)
    assert main.status.left.startswith("⏎ goes to the next card")
    assert "⏎ choose" not in learner.text().splitlines()[-1]


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_click_on_a_tab_or_an_answer_waits_for_the_prediction_as_its_key_does(
    learner: LearnerKeys, size: tuple[int, int]
) -> None:
    main = learner.app.main
    await learner.phase(LessonPhase.ASKING)

    async def click(line: int, text: str) -> None:
        """Click a text in a line of the tabs."""
        row = learner.text().splitlines()[1 + line]
        await learner.pilot.click(TabLines, offset=(row.index(text) + 1, line))
        await learner.pilot.pause()

    await click(0, "3 Inside")
    await learner.until(lambda: main.status.answer.startswith("Predict first: press 1-3"))
    assert learner.app.top is main
    await click(1, "attention")
    await learner.until(lambda: main.status.answer.startswith("Predict first: press 1-3. A is locked"))
    assert learner.app.top is main
    assert learner.play.phase is LessonPhase.ASKING
    assert not learner.app.controller.client.outstanding


async def test_whoever_explores_has_all_keys_and_comes_back_to_the_card(learner: LearnerKeys) -> None:
    """A screen that was opened meanwhile may show the answer: it is left."""
    main = learner.app.main
    await learner.phase(LessonPhase.ASKING)
    await learner.press("S")
    await learner.until(lambda: "space step" in learner.text().splitlines()[-1])
    await learner.press_for("attention")
    await learner.until(lambda: isinstance(learner.app.top, View))
    await learner.press("S")
    await learner.until(lambda: learner.app.top is main)
    assert main.status.left.startswith("Predict: press 1-3")


async def test_h_is_the_cards_in_every_phase_and_a_prediction_is_locked(learner: LearnerKeys) -> None:
    main = learner.app.main
    await learner.phase(LessonPhase.ASKING)
    await learner.press("h")
    assert learner.app.top is main
    assert "Predict first: press 1-3" in main.status.answer
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("1")  # opens its tab, which is open
    assert learner.play.guess == 1
    assert main.tab == "1"
    assert main.arrangement.current == "candidates"
    await learner.press("h")
    await learner.phase(LessonPhase.REVEALED)
    await learner.press("h")
    assert learner.app.top is main
    assert "⏎ continues" in main.status.answer


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (120, 24), (80, 24), (80, 40)])
@pytest.mark.lesson(beat=1)
async def test_what_is_to_be_set_is_in_sight_beside_the_settings(
    learner: LearnerKeys, size: tuple[int, int]
) -> None:
    card = learner.app.main.query_one(NarrationCard)
    await learner.phase(LessonPhase.ASKING)
    await learner.press("1", "s")
    await learner.until(lambda: isinstance(learner.app.top, SamplingDialog))
    dialog = learner.app.top.query_one("#dialog")
    await learner.until(lambda: dialog.region.height > 0)
    await learner.until(lambda: "Press s, set temperature to 0.5, then ctrl+s" in learner.text())
    if size[0] >= 120:
        assert not dialog.region.overlaps(card.region)
    assert learner.app.main.query_one("#sampler").size.height >= 2


@pytest.fixture
def left_at_beat_3() -> None:
    """The lesson was left there."""
    Progress().keep(LESSON.lesson.id, LessonProgress(3, {0: True}))


@pytest.mark.usefixtures("left_at_beat_3")
@pytest.mark.lesson(present=True)
async def test_before_a_class_it_begins_at_the_first_beat_and_keys_wait_there_too(
    learner: LearnerKeys,
) -> None:
    await learner.phase(LessonPhase.ASKING)
    assert (learner.play.beat_number, learner.play.right) == (0, {})
    await learner.press("space")
    assert learner.app.controller.timeline.steps == []
    await learner.until(lambda: "The class predicts first: pgdn continues, space is locked" in learner.text())
    await learner.press("pagedown")
    await learner.phase(LessonPhase.ACTING)
    await learner.until(lambda: "The class predicts" not in learner.text())


@pytest.mark.usefixtures("left_at_beat_3")
@pytest.mark.parametrize("present", [False, True])
@pytest.mark.lesson(recorded=True, beat=2)
async def test_from_begins_at_a_beat(learner: LearnerKeys, present: bool) -> None:
    await learner.phase(*WAITING)
    assert (learner.play.beat_number, learner.play.right) == (2, {})


@pytest.mark.parametrize("number", ["7", "0", "-1"])
def test_a_beat_that_a_lesson_does_not_have_is_refused(number: str) -> None:
    args = learn_parser().parse_args(["3", "--plain", f"--from={number}"])
    with pytest.raises(Exception, match=rf"has no card {number}\. It has 6"):
        run_learn(args)


def test_a_faulty_lesson_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "faulty.md"
    path.write_text(new_lesson("x").replace('show = "candidates"', 'show = "texts"', 1), encoding="utf-8")
    with pytest.raises(EngineError, match=r"faulty.md:\d+: There is no panel or tool texts") as caught:
        run_learn(learn_parser().parse_args([str(path)]))
    assert "lists all that is wrong" in caught.value.hint


def test_a_lesson_as_plain_text_is_not_presented() -> None:
    with pytest.raises(EngineError, match="--plain and --present were both given"):
        run_learn(learn_parser().parse_args(["3", "--plain", "--present"]))


def test_a_lesson_is_found_by_the_title_that_the_list_prints() -> None:
    for each in shipped():
        assert find(each.lesson.title).number == find(each.lesson.title.upper()).number == each.number
        assert is_name(each.lesson.title)
    assert not is_name("the drawer")


def test_a_lesson_of_ones_own_is_run_as_learn_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    monkeypatch.setattr(lessons, "run_learn", lambda args: begun.append(args) or 0)
    assert run_lesson(lesson_parser().parse_args(["run", "my-lesson.md"])) == 0
    expected = vars(learn_parser().parse_args(["my-lesson.md"]))
    assert vars(begun[0]) == expected


@pytest.mark.lesson(listed=find("beams"))
async def test_a_tools_own_screen_offers_no_key_that_is_the_cards(learner: LearnerKeys) -> None:
    """After a beam search ⏎ continues with the lesson, and not to a beam."""
    await learner.phase(LessonPhase.ASKING)
    await learner.press("1", "h")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: learner.app.main.over == "beams" and "⏎ next" in learner.text())
    assert "⏎ go" not in learner.text()
    await learner.press("S")
    await learner.until(lambda: "⏎ go there" in learner.text())


async def test_a_card_begins_without_look_ahead(learner: LearnerKeys) -> None:
    await learner.press("1", "space")
    await learner.phase(LessonPhase.REVEALED)
    ahead = learner.app.main.panel(CandidatesPanel).ahead
    assert ahead is not None
    await learner.press("l")
    assert ahead.on
    await learner.press("enter")
    await learner.phase(LessonPhase.ASKING)
    assert not ahead.on


@pytest.mark.lesson(listed=find("one-loop"), beat=4, recorded=True)
async def test_a_recorded_card_names_the_key_that_plays_its_task(learner: LearnerKeys) -> None:
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    assert "Press h: the recording shows it." in learner.told
    await learner.press("backspace")
    assert learner.app.main.status.answer.startswith("Press h: the recording shows it. ⌫ is locked")
    await learner.press("h", "h")
    await learner.phase(LessonPhase.REVEALED)


@pytest.mark.lesson(beat=4, recorded=True)
async def test_a_lesson_goes_on_with_its_model_where_the_recording_is_left(learner: LearnerKeys) -> None:
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    recorded = learner.play
    await learner.press("G")
    await learner.until(lambda: learner.actions.play not in (None, recorded))
    await learner.phase(LessonPhase.ASKING)
    assert (learner.play.beat_number, learner.recorded) == (4, False)
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("h")
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right[4]
