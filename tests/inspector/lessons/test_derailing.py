"""A lesson keeps its place: keys beside its tasks, detours, cards gone back to, and sessions before and after it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.widgets._toast import ToastRack

from engine.grammar_settings import Grammar
from engine.protocol import Command, Prefill, Race, TakeStep
from engine.settings import LoadSettings
from inspector.lessons import kinds
from inspector.lessons.catalogue import find
from inspector.lessons.lesson import LessonPhase
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.text import BORDERS, TextPanel
from inspector.main.tool import CandidateChosen
from inspector.views.recordings import RecordingActions
from tests.inspector.lessons.playing import LearnerKeys
from tests.inspector.outside import outside

LESSON = find("the-draw")


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.lesson(listed=find("beams"), beat=2)
async def test_a_card_has_its_values_however_it_was_gone_to(learner: LearnerKeys, recorded: bool) -> None:
    """“Ten beams” says what a search found that the program ran before it."""
    for keys in (["Z"], ["j", "J"], ["S", "S"]):
        for key in keys:
            await learner.press(key)
            await learner.phase(LessonPhase.ASKING)
        assert "a text with logprob −5.60" in learner.told
        assert "Predict" in learner.app.main.status.left


@pytest.mark.parametrize("recorded", [False, True])
async def test_a_detour_before_the_answer_is_put_back(learner: LearnerKeys, recorded: bool) -> None:
    controller = learner.app.controller
    await learner.press("S", "space")
    await learner.until(lambda: len(controller.timeline.completion) == 1)
    await learner.press("S")
    await learner.phase(LessonPhase.ASKING)
    assert controller.timeline.completion == []
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("S", "space")
    await learner.until(lambda: len(controller.timeline.completion) == 1)
    await learner.press("S")
    await learner.phase(LessonPhase.ACTING)  # what was predicted stays; the task is still to be done
    assert (controller.timeline.completion, learner.play.guess) == ([], 1)
    await learner.press("space")
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right == {0: True}


@pytest.mark.lesson(beat=1)
async def test_a_key_that_would_leave_the_place_of_a_task_waits(learner: LearnerKeys) -> None:
    timeline = learner.app.controller.timeline
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    for key, shown in (("space", "space"), ("r", "r"), ("enter", "⏎"), ("d", "d"), ("p", "p"), ("a", "a")):
        await learner.press(key)
        said = f"Press s, set temperature to 0.5, then ctrl+s. {shown} is locked until then"
        assert learner.app.main.status.answer.startswith(said)
    assert timeline.next is not None
    learner.app.main.panel(CandidatesPanel).post_message(
        CandidateChosen(timeline.next.candidates[0].id)
    )  # by a click
    await learner.until(lambda: "⏎ is locked until then" in learner.app.main.status.answer)
    assert timeline.completion == []
    await learner.press("h", "h")
    await learner.phase(LessonPhase.REVEALED)
    await learner.press("space")  # nothing is asked for now
    await learner.until(lambda: len(timeline.completion) == 1)


async def test_a_lesson_begins_with_its_own_path_and_view(learner: LearnerKeys) -> None:
    """The session before was a few steps along the lesson's prompt, with look-ahead, in another tab."""
    main, timeline = learner.app.main, learner.app.controller.timeline
    learner.actions.leave()
    await learner.until(lambda: not learner.app.controller.client.outstanding)
    await learner.press("l", "space", "space")
    await learner.until(lambda: len(timeline.completion) == 2)
    await learner.press("4")
    text = LESSON.lesson.prompt + "".join(step.text for step in timeline.completion[:1])
    learner.actions.begin(replace(LESSON, lesson=replace(LESSON.lesson, prompt=text)))
    await learner.phase(LessonPhase.ASKING)
    assert (timeline.step_slots, timeline.completion) == ([], [])
    assert (main.tab, main.arrangement.current) == ("1", "candidates")
    ahead = main.panel(CandidatesPanel).ahead
    assert ahead is not None
    assert not ahead.on
    learner.actions.leave()
    await learner.until(lambda: len(timeline.step_slots) == 2)


async def test_leaving_a_lesson_selects_what_was_selected() -> None:
    async with outside() as user:
        await user.press("space", "space", "space", "left")
        timeline = user.app.controller.timeline
        await user.until(lambda: len(timeline.completion) == 3)
        slot = timeline.slot
        assert slot is not None
        await user.press("6", *["down"] * 5, "enter")
        await user.until("Predict: press 1-3")
        await user.press("escape", "escape")
        await user.until(lambda: timeline.slot == slot and len(timeline.completion) == 3)


async def test_quitting_in_a_lesson_leaves_the_session_as_it_was() -> None:
    async with outside() as user:
        await user.press("space", "space", "6", *["down"] * 5, "enter")
        await user.until("Predict: press 1-3")
        await user.press("1", "space")
        await user.until("goes to the next card")
        settings = user.app.controller.setup.settings
        await user.press("q")
        await user.until(lambda: user.app.return_code is not None)
    async with outside("--resume") as user:
        timeline = user.app.controller.timeline
        assert (len(timeline.completion), len(timeline.step_slots)) == (2, 2)
        assert user.app.controller.setup.settings != settings


async def test_keys_wait_while_the_model_of_a_lesson_loads(learner: LearnerKeys) -> None:
    learner.actions.leave()
    controller, held = learner.app.controller, list[Command]()
    await learner.until(lambda: not controller.client.outstanding)
    backend = controller.client.backend
    send, backend.send = backend.send, held.append  # type: ignore[method-assign]
    controller.setup.open(LoadSettings())
    learner.actions.begin(LESSON)
    await learner.press("1", "J", "p", "space")
    assert learner.app.top is learner.app.main
    assert learner.app.main.status.answer == "The lesson begins in a moment: space works then"
    backend.send = send  # type: ignore[method-assign]
    for command in held:
        send(command)
    await learner.phase(LessonPhase.ASKING)


def test_a_draw_on_a_card_is_cut_off_as_the_panel_does_it() -> None:
    """Rounded, it would seem to be where its share ends."""
    assert kinds.draw(0.3089).written(".3") == kinds.draw(0.3089).written() == "0.308"


@pytest.mark.lesson(listed=find("pieces"), beat=4)
async def test_the_space_at_the_end_of_a_prompt_can_be_seen(learner: LearnerKeys) -> None:
    assert learner.app.main.panel(TextPanel).view == BORDERS


@pytest.mark.lesson(listed=find("learning"), beat=3)
async def test_a_card_names_a_layer_as_the_bars_do(learner: LearnerKeys) -> None:
    """And it says to predict, though there is no prompt."""
    assert learner.app.main.status.left.startswith("Predict: press 1-3")
    assert "Press p" not in learner.text()
    await learner.press("2", "h")
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right == {3: True}
    assert "L1, the first one" in learner.told


@pytest.mark.lesson(listed=find("repetition"), beat=1)
async def test_a_setting_that_the_card_did_not_ask_for_is_named(learner: LearnerKeys) -> None:
    setup = learner.app.controller.setup
    asked = setup.settings
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    setup.configure(replace(asked, presence_penalty=2.0, temp=1.0))
    await learner.until(lambda: "Now temperature is 1 instead of 0. Press s to change that." in learner.told)
    assert learner.play.phase is LessonPhase.ACTING
    setup.configure(asked)
    await learner.until(lambda: "Now temperature" not in learner.told)
    setup.configure(replace(asked, presence_penalty=2.0, temp=1.0))
    await learner.until(lambda: "Now temperature" in learner.told)
    await learner.press("h", "h")  # the hint, then all of it
    await learner.phase(LessonPhase.REVEALED)
    assert setup.settings == replace(asked, presence_penalty=2.0)


@pytest.mark.lesson(listed=find("grammar"))
async def test_a_grammar_that_the_card_did_not_ask_for_is_named(learner: LearnerKeys) -> None:
    setup = learner.app.controller.setup
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    setup.configure(replace(setup.settings, grammar=Grammar("regex", "(yes|no)")))
    told = "Now the grammar is regex (yes|no) instead of regex ␣(yes|no). Press J to change that."
    await learner.until(lambda: told in learner.told)
    setup.configure(replace(setup.settings, grammar=Grammar("regex", " (yes|no)", begin=3)))
    await learner.until(lambda: "That was not what the line above asks for" in learner.told)
    assert learner.play.phase is LessonPhase.ACTING


@pytest.mark.lesson(size=(120, 40))
async def test_a_notice_leaves_the_card_in_sight(learner: LearnerKeys) -> None:
    await learner.app.main.mount(ToastRack())  # tests have none otherwise
    learner.app.announce("It failed.\nTry again.", "The settings failed", "error")
    await learner.until(lambda: "It failed." in learner.text())
    assert "Which token does it fall on?" in learner.text()
    assert "Lay all probabilities" in learner.text()


@pytest.mark.lesson(listed=find("one-loop"), size=(80, 24), beat=4)
async def test_the_token_that_a_card_asks_for_is_in_sight(learner: LearnerKeys) -> None:
    """With the hint, too, which takes a line of the panels."""
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("backspace", "backspace", "backspace", "h")
    await learner.until(lambda: "↓ until boy is highlighted" in learner.text())
    await learner.until(lambda: learner.actions.hinted and "␣boy  " in learner.text())


@pytest.mark.lesson(listed=find("repetition"), recorded=True, beat=1)
async def test_the_first_press_of_the_key_for_help_plays_a_recording_on(learner: LearnerKeys) -> None:
    """The hint speaks of keys that do nothing in a recording."""
    assert learner.play.beat.hint
    await learner.press("1")
    await learner.phase(LessonPhase.ACTING)
    assert "h do it for me" in learner.text()
    await learner.press("h")
    await learner.phase(LessonPhase.REVEALED)


@pytest.mark.lesson(recorded=True)
async def test_a_lesson_begun_from_a_recording_returns_to_its_place(learner: LearnerKeys) -> None:
    playback = learner.app.playback
    await learner.press("escape", "escape")
    assert learner.actions.play is None
    player = playback.player
    assert player is not None
    await learner.until(lambda: player.settled)
    await learner.press("space", "space")
    await learner.until(lambda: player.settled)
    path, place = playback.path, player.position
    assert 0 < place < len(player.file.entries)
    for name in ("one-loop", "pieces"):  # from one to the next
        learner.actions.begin(find(name))
        await learner.phase(LessonPhase.ASKING)
        assert playback.path == find(name).trace
    await learner.press("escape", "escape")
    await learner.until(lambda: playback.player is not None and playback.player.settled)
    assert playback.player is not None
    assert (playback.path, playback.player.position) == (path, place)


async def test_a_saved_session_that_is_opened_ends_the_lesson(learner: LearnerKeys) -> None:
    other, opens = find("pieces").trace, learner.app.main.own("recordings")
    assert isinstance(opens, RecordingActions)
    opens._show(other)
    await learner.until(lambda: learner.app.playback.path == other)
    assert learner.actions.play is None


async def test_a_lesson_that_is_live_says_what_to_press_instead_of_the_key_that_continues_live(
    learner: LearnerKeys,
) -> None:
    await learner.press("G")
    told = "The lesson is live already. Predict: press 1-3"
    await learner.until(lambda: learner.app.main.status.answer == told)


@pytest.mark.lesson(listed=find("pieces"))
async def test_another_prompt_than_the_one_asked_for_does_not_count(learner: LearnerKeys) -> None:
    setup = learner.app.controller.setup
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    setup.give(Prefill("Tom", False))
    await learner.until(lambda: "That was “Tom”, not “strawberry” as raw text." in learner.told)
    assert learner.play.phase is LessonPhase.ACTING
    setup.give(Prefill("strawberry", False))
    await learner.phase(LessonPhase.REVEALED)
    assert learner.told.splitlines()[1].startswith("4 pieces.")


@pytest.mark.lesson(listed=find("pieces"), beat=1)
async def test_a_text_without_its_space_is_undone(learner: LearnerKeys) -> None:
    timeline = learner.app.controller.timeline
    await learner.press("1")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("a", *"strawberry", "ctrl+s")
    await learner.until(lambda: "That was “strawberry”, not “ strawberry”." in learner.told)
    await learner.until(lambda: timeline.completion == [] and not learner.play.stage.busy)
    assert learner.play.phase is LessonPhase.ACTING
    await learner.press("h")
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right == {1: True}


@pytest.mark.lesson(listed=find("one-loop"), beat=4)
async def test_a_token_that_was_chosen_by_mistake_is_taken_back(learner: LearnerKeys) -> None:
    """Each part of the task is named as soon as the one before it was done."""
    timeline = learner.app.controller.timeline
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("backspace")
    await learner.until(lambda: "Press ⌫ 2 times" in learner.text())
    await learner.press("backspace", "backspace")
    await learner.until(lambda: "↓ until boy is highlighted" in learner.told)
    await learner.until(lambda: "↓ until boy is highlighted" in learner.text())
    place = timeline.tip
    await learner.press("down", "down", "enter")
    await learner.until(lambda: "That was “ dog”, not “boy”. It was undone: do it again." in learner.told)
    await learner.until(lambda: timeline.tip == place and not learner.play.stage.busy)
    await learner.press("down", "enter")
    await learner.until(lambda: "Press space 2 times" in learner.told)
    assert "undone" not in learner.told
    await learner.press("space", "space")
    await learner.phase(LessonPhase.REVEALED)


async def test_a_step_too_many_is_undone(learner: LearnerKeys) -> None:
    timeline, client = learner.app.controller.timeline, learner.app.controller.client
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    for _ in range(2):
        client.request(TakeStep())
    await learner.until(lambda: "That was 2 tokens, not 1. It was undone: do it again." in learner.told)
    await learner.until(lambda: timeline.completion == [])
    await learner.press("space")
    await learner.phase(LessonPhase.REVEALED)


@pytest.mark.lesson(listed=find("the-cache"), beat=1)
async def test_a_race_of_another_length_does_not_count(learner: LearnerKeys) -> None:
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    learner.app.controller.client.request(Race(16, 40))
    await learner.until(lambda: "That was not what the line above asks for." in learner.told)
    assert learner.play.phase is LessonPhase.ACTING


@pytest.mark.lesson(listed=find("merges"))
async def test_a_text_that_was_changed_by_another_key_than_the_task_s_is_put_back(
    learner: LearnerKeys,
) -> None:
    client, timeline = learner.app.controller.client, learner.app.controller.timeline
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    client.request(TakeStep())  # as a view's own key does it
    await learner.until(lambda: "That changed the text. It was undone" in learner.told)
    await learner.until(lambda: timeline.completion == [])
    await learner.press("E")
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right == {0: True}


@pytest.mark.lesson(listed=find("one-loop"), beat=1)
async def test_a_model_that_was_opened_while_exploring_is_not_the_lesson_s(
    learner: LearnerKeys, tmp_path: Path
) -> None:
    setup, facts = learner.app.controller.setup, learner.app.controller.timeline.facts
    assert facts is not None
    other = shutil.copytree(facts.path, tmp_path / "other")
    await learner.press("S")
    setup.open(replace(setup.load, model=str(other)))
    await learner.until(lambda: not learner.app.controller.client.outstanding)
    before = learner.play
    await learner.press("S")
    await learner.until(lambda: learner.actions.play not in (None, before))
    await learner.phase(LessonPhase.ASKING)
    assert (setup.load.model, learner.play.beat_number) == ("pocket", 1)
