"""A lesson on the screen beyond going through it: left and come back to, begun again, ended, resumed, listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.protocol import Choose, Command, Prefill, Step
from engine.settings import LoadSettings
from inspector.keys import with_keys
from inspector.lessons.actions import VERBS
from inspector.lessons.catalogue import LessonProgress, Progress, find, shipped
from inspector.lessons.courses import ORDER as COURSES
from inspector.lessons.lesson import LessonPhase
from inspector.main.panels.text import BORDERS, OFF, TextPanel
from inspector.session.history import NOTHING
from inspector.state.timeline import Phase
from inspector.views.lessons import LessonsView
from tests.inspector.lessons.playing import WAITING, LearnerKeys
from tests.inspector.rig import Rig

LESSON = next(each for each in shipped() if each.lesson.id == "the-draw")


async def test_detours_and_resets_come_back_to_the_beat(learner: LearnerKeys) -> None:
    play, timeline = learner.play, learner.app.controller.timeline
    await learner.press("9", "1")  # no such option; then one
    assert play.guess == 0
    await learner.press("S", "space", "space", "space")  # explores: the same keys mean the program's own
    await learner.until(lambda: len(timeline.steps) >= 3)
    assert "Explore freely" in learner.text()
    await learner.press("S", "Z")  # back, and this beat from its start
    await learner.phase(LessonPhase.ASKING)
    assert timeline.steps == []
    assert play.guess is None
    await learner.beat(guess=0)
    await learner.phase(*WAITING)
    first = play.beat_number
    await learner.press("j")
    await learner.phase(*WAITING)
    assert (first, play.beat_number) == (1, 0)


async def test_while_the_engine_is_asked_for_a_beat_nothing_is_shown_of_the_token_looked_at_before(
    learner: LearnerKeys,
) -> None:
    """The lesson goes to the path's end as it asks: the panels were shown just before."""
    backend, held = learner.app.controller.client.backend, list[Command]()
    await learner.press("S", "left")
    assert "at prompt token" in learner.text()
    send, backend.send = backend.send, held.append  # type: ignore[method-assign]
    await learner.press("Z")
    await learner.until(lambda: bool(held))
    assert learner.app.controller.timeline.following
    assert "prompt token" not in learner.text().lower()
    backend.send = send  # type: ignore[method-assign]
    for command in held:
        send(command)
    await learner.phase(LessonPhase.ASKING)


async def test_a_lesson_leaves_the_session_as_it_found_it(learner: LearnerKeys) -> None:
    """What was there stays, settings and place; the lesson is a branch of its own."""
    controller = learner.app.controller
    learner.actions.leave()
    await learner.until(lambda: not controller.client.outstanding)
    await learner.press("space", "space")
    await learner.until(lambda: len(controller.timeline.steps) == 2)
    tip, settings = controller.timeline.tip, controller.setup.settings
    ids = [item.id for item in controller.timeline.items]
    await learner.press_for("lessons")
    await learner.until(lambda: isinstance(learner.app.top, LessonsView))
    place = len(COURSES) + [each.lesson.id for each in shipped()].index(LESSON.lesson.id)
    await learner.press(*["down"] * place, "enter")
    await learner.phase(*WAITING)
    for _ in LESSON.lesson.beats:
        await learner.beat(guess=0)
    assert learner.play.phase is LessonPhase.ENDED
    await learner.press("enter")
    await learner.until(lambda: controller.timeline.tip == tip and not controller.client.outstanding)
    assert learner.actions.play is None
    assert controller.setup.settings == settings
    assert [item.id for item in controller.timeline.items] == ids
    assert isinstance(controller.timeline.items[-1], Step)
    assert Progress().read()[LESSON.lesson.id].done


@pytest.fixture
def left_at_beat_1() -> None:
    Progress().keep(LESSON.lesson.id, LessonProgress(1, {0: True}))


@pytest.mark.usefixtures("left_at_beat_1")
async def test_a_lesson_that_was_left_goes_on_at_its_beat(learner: LearnerKeys) -> None:
    assert learner.play.beat_number == 1
    assert learner.play.right == {0: True}
    assert learner.app.controller.timeline.next is not None


def test_progress_survives_what_a_file_may_hold(tmp_path: Path) -> None:
    path = tmp_path / "lessons.json"
    for content in (
        "",
        "[]",
        "{",
        '{"a": 3, "b": {"beat": -1, "right": {"x": 1, "2": 0}, "done": "yes"}}',
        "[" * 9999,
    ):
        path.write_text(content)
        assert all(isinstance(each, LessonProgress) for each in Progress(path).read().values())
    assert Progress(path).read() == {}
    Progress(path).keep("a", LessonProgress(2, {0: True, 1: False}, done=True))
    Progress(path).keep("a", LessonProgress(1))
    assert Progress(path).read() == {"a": LessonProgress(1, {}, done=True)}


async def test_a_prompt_over_tokens_that_were_decoded_before_has_no_steps_yet(learner: LearnerKeys) -> None:
    """The tree is one: the prompt of a lesson may go along a path that was generated."""
    controller, timeline = learner.app.controller, learner.app.controller.timeline
    learner.actions.leave()
    await learner.until(lambda: not controller.client.outstanding)
    controller.client.request(Choose(timeline.tip, timeline.next.candidates[0].id))  # type: ignore[union-attr]
    await learner.until(lambda: len(timeline.completion) == 1)
    text = LESSON.lesson.prompt + timeline.completion[0].text
    controller.client.request(Prefill(text, chat=False))
    await learner.until(lambda: not controller.client.outstanding)
    assert isinstance(timeline.tree.nodes[timeline.tip], Step)
    assert timeline.completion == []
    await learner.press("space")
    await learner.until(lambda: len(timeline.completion) == 1)
    assert timeline.completion_slots == [len(timeline.items) - 1]


@pytest.mark.lesson(listed=find("pieces"))
async def test_borders_that_a_lesson_draws_are_not_remembered(learner: LearnerKeys) -> None:
    text = learner.app.main.panel(TextPanel)
    await learner.until(lambda: text.view == BORDERS)
    assert learner.app.main.preferences.view == OFF
    await learner.press("e")
    assert learner.app.main.preferences.view == text.view != OFF


async def test_a_lesson_waits_for_its_own_model(learner: LearnerKeys) -> None:
    """Its model could not be loaded, and another one was opened: what the lesson says would not be so."""
    learner.actions.leave()
    other = replace(LESSON, lesson=replace(LESSON.lesson, model="/nowhere/at/all"))
    learner.actions.begin(other)
    await learner.until(lambda: learner.app.controller.timeline.phase is Phase.FAILED)
    learner.app.controller.setup.open(LoadSettings())
    await learner.until(lambda: learner.app.controller.timeline.facts is not None)
    await learner.until(lambda: not learner.app.controller.client.outstanding)
    assert learner.actions.play is None


# ---- the list of lessons ------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(160, 45), (120, 40), (100, 30), (80, 24), (60, 20)])
async def test_each_lesson_has_one_line_and_the_highlighted_one_is_spelled_out(
    rig: Rig, size: tuple[int, int]
) -> None:
    await rig.ready()
    await rig.press("6")
    view = rig.app.top
    assert isinstance(view, LessonsView)
    seen = set[str]()
    titles = [(each.number, each.lesson.title) for each in shipped()]
    for _ in range(len(COURSES) + len(titles)):
        lines = [line[view.area.x :] for line in rig.screen_text().split("\n")][
            view.area.y : view.area.bottom
        ]
        assert "…" not in "".join(lines)
        seen |= {title for number, title in titles if f" {number} {title} " in "".join(lines)}
        assert view.about[:30] in "\n".join(lines)
        await rig.press("down")
    assert len(seen) == len(titles)


async def test_escape_leaves_a_lesson_after_asking_once(learner: LearnerKeys) -> None:
    """A view first; another key takes the first one back."""
    await learner.press("escape")
    assert "Press esc once more to leave the lesson" in learner.text()
    await learner.press("left", "escape")
    assert learner.actions.play is not None
    await learner.press("6", "escape")  # the list
    assert learner.app.main.open_view is None
    await learner.press("escape", "escape")
    assert learner.actions.play is None
    assert "You left the lesson" in learner.text()


async def test_the_finder_leaves_a_lesson(learner: LearnerKeys) -> None:
    await learner.press("colon", *"leave", "enter")
    await learner.until(lambda: learner.actions.play is None)


def test_a_prompt_is_asked_for_with_the_key_that_clears_the_one_that_is_there() -> None:
    """The dialog begins at the end of the prompt before: what is typed alone would come behind it."""
    told = VERBS["prompt"].keys("Tom")
    assert told == "p, ctrl+a, give “Tom” as raw text, then ctrl+s"


async def test_a_lesson_that_was_left_is_no_change_to_undo(learner: LearnerKeys) -> None:
    controller = learner.app.controller
    learner.actions.leave()
    await learner.until(lambda: not controller.client.outstanding)
    given = replace(controller.setup.settings, temp=0.123)
    controller.setup.configure(given)
    await learner.until(lambda: not controller.client.outstanding)
    learner.actions.begin(LESSON)
    await learner.until(lambda: learner.actions.play is not None and controller.resting)
    assert controller.setup.settings != given
    learner.actions.leave()
    await learner.until(lambda: not controller.client.outstanding)
    assert controller.queries.in_force == given
    assert "temperature" in controller.history.undo()
    await learner.until(lambda: not controller.client.outstanding)
    assert controller.history.undo() == with_keys(NOTHING)


async def test_a_text_that_is_hidden_is_not_counted_elsewhere(rig: Rig) -> None:
    await rig.ready()
    assert "context" in rig.screen_text()
    rig.timeline.concealed = frozenset({"text"})
    rig.app.main.changed()
    await rig.press("m")
    shown = rig.screen_text()
    assert "context" not in shown.splitlines()[0]
    assert "KV cache · hidden until you predict" in shown
