"""Lessons that take place on tools' own screens: beams, attention and the lens."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from engine.protocol import LockstepSpan
from engine.settings import LoadSettings, SpeculationSettings
from inspector.lessons.actions import VERBS, Before, action
from inspector.lessons.catalogue import find
from inspector.lessons.check import read_checked
from inspector.lessons.errors import LessonError
from inspector.lessons.expressions import expression
from inspector.lessons.headless import HeadlessSession, live_play, live_session, settle
from inspector.lessons.kinds import SECOND_MODEL
from inspector.lessons.lesson import LessonPhase
from inspector.lessons.quantities import Scope, Unanswered
from inspector.main.screen import MainScreen
from inspector.state.beams import BeamHistory
from inspector.views.attention import AttentionView
from inspector.views.batch import BatchDialog, BatchView
from inspector.views.beams import BeamsView
from inspector.views.drafts import DraftsView
from inspector.views.grammar_dialog import GrammarDialog
from inspector.views.interventions import SwitchOff
from inspector.views.lens import Lens
from inspector.views.second_model import SecondModelView
from inspector.views.steering import DirectionDialog, SteeringView
from tests.inspector.lessons.playing import LearnerKeys


@pytest.mark.lesson(listed=find("looking-back"), size=(80, 24), recorded=True)
async def test_a_screen_opens_at_its_key_and_closes_with_the_beat(learner: LearnerKeys) -> None:
    """In a recording, too; and with the head, or the layer, that the beat speaks of."""
    await learner.press("2", "A")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: isinstance(learner.app.top, AttentionView))
    await learner.until(lambda: "L6 h1 looks from" in learner.text() and "✓ at girl" in learner.text())
    await learner.press("enter")
    await learner.phase(LessonPhase.ASKING)
    await learner.until(lambda: isinstance(learner.app.top, MainScreen))
    await learner.beat(guess=1)
    await learner.press("3", "I")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: isinstance(learner.app.top, Lens))
    await learner.until(lambda: "After layer 6" in learner.text())


@pytest.mark.slow
@pytest.mark.lesson(listed=find("beams"))
async def test_a_search_is_begun_by_its_form(learner: LearnerKeys) -> None:
    await learner.press("1", "4", "B")
    await learner.until(lambda: isinstance(learner.app.top, BeamsView))
    await learner.press("enter")
    await learner.until(lambda: learner.app.focused is not None)
    await learner.press(
        "backspace", "2", "down", "backspace", "backspace", "backspace", "1", "6", "enter", "r"
    )
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right == {0: False}
    assert isinstance(learner.app.top, BeamsView)
    await learner.until(lambda: "times as probable" in learner.text() and "2 finished" in learner.text())


def done(session: HeadlessSession, verb: str, given: str) -> Before:
    """Have the engine do what an action says; gives what was before, and what was seen meanwhile."""
    controller = session.controller
    before = Before(controller.timeline.tip, 0, controller.queries.in_force, [])
    controller.client.listen(before.since.append)
    for command in VERBS[verb].commands(given, controller):
        controller.client.request(command)
    session.until(lambda: not controller.client.outstanding)
    return before


def test_a_beam_search_counts_with_its_own_settings_alone() -> None:
    lesson = find("beams").lesson
    with live_session(LoadSettings(lesson.model), lesson) as session:
        controller = session.controller
        scope = Scope(controller)
        done(session, "prompt", lesson.prompt)
        before, beams = done(session, "beams", "width=2 max_tokens=16"), VERBS["beams"]
        assert beams.done("width=2 max_tokens=16", controller, before)
        assert not beams.done("width=4 max_tokens=16", controller, before)
        assert not beams.done("width=2 max_tokens=16 length_penalty=2", controller, before)
        values = {
            source: expression(f"beams.{source}", 1).value(scope)
            for source in ("shared", "parts", "greedy_parts", "parts_prob", "greedy_parts_prob")
        }
    own, greedy = controller.timeline.of(BeamHistory).search, values["shared"].number
    assert own is not None
    assert own.ended is not None
    assert greedy is not None
    best, first = own.ended.ranking[0], own.ended.greedy
    assert best.ids[: int(greedy)] == first.ids[: int(greedy)]
    assert best.ids[int(greedy)] != first.ids[int(greedy)]
    assert (values["parts"].plain, values["greedy_parts"].plain) == (" with", " outside")
    assert 0 < (values["parts_prob"].number or 0) < (values["greedy_parts_prob"].number or 0) < 1


def test_what_a_lesson_asks_is_not_taken_for_what_the_learner_looks_at() -> None:
    lesson = find("looking-back").lesson
    with live_session(LoadSettings(lesson.model), lesson) as session:
        controller = session.controller
        scope = Scope(controller)
        done(session, "prompt", lesson.prompt)
        before = Before(controller.timeline.tip, 0, controller.queries.in_force, [])
        controller.client.listen(before.since.append)
        (question,) = VERBS["attention"].commands("", controller)
        scope.ask(question)
        session.until(lambda: not controller.client.outstanding)
        assert not VERBS["attention"].done("", controller, before)
        for command in VERBS["attention"].commands("", controller):
            controller.client.request(command)
        session.until(lambda: not controller.client.outstanding)
        assert VERBS["attention"].done("", controller, before)


def told(session: HeadlessSession, scope: Scope, source: str) -> object:
    """The value of an expression, the engine asked for what it takes."""
    while True:
        try:
            return expression(source, 1).value(scope).raw
        except Unanswered as question:
            scope.ask(question.command)
            session.until(lambda: not session.controller.client.outstanding)


def test_heads_and_layers_may_be_named_as_hooks() -> None:
    """By their names they are what they are by their numbers; another hook is refused in words."""
    lesson = find("looking-back").lesson
    with live_session(LoadSettings(lesson.model), lesson) as session:
        scope = Scope(session.controller)
        done(session, "prompt", lesson.prompt)

        def value(source: str) -> float | None:
            try:
                return expression(source, 1).value(scope).number
            except Unanswered as question:
                scope.ask(question.command)
                session.until(lambda: not session.controller.client.outstanding)
                return expression(source, 1).value(scope).number

        by_number = value("head(6, 1).weight")
        assert value("head('blocks.5.attn.hook_pattern[0]').weight") == by_number
        assert value("head('L6 h1').weight") == by_number
        assert value("lens('blocks.4.hook_resid_post').prob") == value("lens(5).prob")
        assert value("lens('blocks.5.hook_resid_pre').prob") == value("lens(5).prob")
        for source in (
            "head('blocks.5.attn.hook_pattern')",
            "head('blocks.5.hook_mlp_out')",
            "head(6)",
            "lens('L6 h1')",
        ):
            with pytest.raises(LessonError, match=r"names no such part|doesn't take these arguments"):
                value(source)
    beat = next(beat for beat in lesson.beats if beat.calls("head"))
    named = expression("head('blocks.5.attn.hook_pattern[0]').weight", 1)
    assert replace(beat, number=named).calls("head")[-1:] == [(6, 1)]
    unknown = expression("head('\x1b').weight", 1)
    assert replace(beat, number=unknown).calls("head") == [*beat.calls("head"), ()]


@pytest.mark.lesson(listed=find("looking-back"), size=(120, 40))
async def test_the_way_that_the_card_names_leads_there_once_it_is_predicted(learner: LearnerKeys) -> None:
    await learner.phase(LessonPhase.ASKING)
    assert "S explore" in learner.text()
    assert "6 S" not in learner.text()  # the card takes that key in every tab
    await learner.press("1")
    await learner.phase(LessonPhase.ACTING)
    assert learner.app.main.tab == "1"
    assert "Press 3 A" in learner.text()
    await learner.press("3")
    assert learner.app.main.tab == "3"  # a digit predicts no more: it opens its tab
    assert learner.play.guess == 0
    await learner.press("A")
    await learner.phase(LessonPhase.REVEALED)


@pytest.mark.lesson(listed=find("grammar"), size=(80, 24))
async def test_a_grammar_is_given_in_its_form(learner: LearnerKeys) -> None:
    await learner.press("2", "J")
    await learner.until(lambda: isinstance(learner.app.top, GrammarDialog))
    await learner.until(lambda: learner.app.focused is not None)
    await learner.press(*" (yes|no)", "ctrl+s")
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right == {0: True}
    await learner.until(lambda: "It allows 6 tokens" in learner.text())


@pytest.mark.lesson(listed=find("switch-off"), size=(80, 24), recorded=True)
async def test_the_part_that_the_beat_speaks_of_is_chosen_on_the_map(learner: LearnerKeys) -> None:
    """In a recording, too: what was asked for the card answers the screen."""
    await learner.press("2", "X")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: isinstance(learner.app.top, SwitchOff))
    await learner.until(lambda: "L6 h2 off, this token: KL 0.009 bits" in learner.text())
    await learner.press("enter")
    await learner.phase(LessonPhase.ASKING)
    await learner.press("2")
    await learner.until(lambda: "L6 h1 off, this token: KL 0.058 bits" in learner.text())


@pytest.mark.lesson(listed=find("switch-off"), size=(120, 40), beat=3)
async def test_several_heads_are_off_together_where_the_card_speaks_of_them(learner: LearnerKeys) -> None:
    await learner.press("1")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: "66.20 %" in learner.told)
    view = learner.app.main.open_view
    assert isinstance(view, SwitchOff)
    assert [(each.layer, each.head) for each in view.together] == [(2, 1), (2, 2), (4, 1), (5, 0), (7, 0)]
    await learner.until(lambda: "66.20 %" in learner.text().partition("card 4 of 6")[0])
    await learner.press("enter", "1")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("4", "X")
    await learner.phase(LessonPhase.REVEALED)
    assert view.together == {}


@pytest.mark.lesson(listed=find("learning"), size=(80, 24), beat=1)
async def test_an_open_view_of_training_goes_to_the_step_of_the_next_card(learner: LearnerKeys) -> None:
    """The last step is for the last card, whose answer it shows."""
    for step in ("step 100 of 4,000", "step 200 of 4,000", "step 200 of 4,000"):
        await learner.press("1")
        await learner.phase(LessonPhase.ACTING)
        await learner.press("6", "l")  # the tab shows the training as it was left
        await learner.phase(LessonPhase.REVEALED)
        await learner.until(lambda step=step: step in learner.text())  # type: ignore[misc]
        await learner.press("enter")
        await learner.phase(LessonPhase.ASKING)


@pytest.mark.lesson(listed=find("learning"))
async def test_a_card_without_a_prompt_does_not_ask_for_one(learner: LearnerKeys) -> None:
    await learner.until(lambda: "Predict: press 1-3" in learner.text())
    assert "writes a prompt" not in learner.text()


@pytest.mark.slow
@pytest.mark.lesson(listed=find("four-bits"), size=(80, 24))
async def test_a_second_model_is_opened_by_its_keys(learner: LearnerKeys) -> None:
    """The card's own h gives way in the tab whose h opens the second model."""
    await learner.press("2")
    await learner.phase(LessonPhase.ACTING)
    await learner.press("4")
    await learner.until(lambda: learner.app.main.tab == "4")
    await learner.press("h")
    await learner.until(lambda: isinstance(learner.app.top, SecondModelView))
    await learner.press("o")
    await learner.until(lambda: "this model in 4 bits" in learner.text())
    await learner.press("down", "enter")
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right == {0: True}


@pytest.mark.slow
@pytest.mark.lesson(listed=find("batching"), size=(80, 24))
async def test_a_batch_is_run_by_its_keys(learner: LearnerKeys) -> None:
    """Of the lesson's prompt and the two that the form has."""
    await learner.press("2", "5", "b")
    await learner.until(lambda: isinstance(learner.app.top, BatchView))
    await learner.press("m", "n")
    await learner.until(lambda: isinstance(learner.app.top, BatchDialog) and learner.app.focused is not None)
    assert "Once upon a time" in learner.text()
    await learner.press("ctrl+s")
    await learner.until(lambda: "3 lanes running" in learner.text())
    await learner.press("r")
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right == {0: True}
    assert "180 tokens came from 59 forwards" in learner.told


@pytest.mark.slow
@pytest.mark.lesson(listed=find("speculation"), size=(80, 24))
async def test_a_round_is_taken_by_its_keys(learner: LearnerKeys) -> None:
    """Rounds that were had done are the screen's, too: it goes on with their draft."""
    await learner.press("3", "5", "d")
    await learner.until(lambda: isinstance(learner.app.top, DraftsView))
    await learner.press("m", "space")
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right == {0: True}
    await learner.press("enter")
    for _ in range(2):
        await learner.beat(guess=0)
    await learner.beat(guess=0)
    await learner.phase(LessonPhase.ASKING)
    view = learner.app.main.view_at("inspector.views.drafts:DraftsView")
    assert isinstance(view, DraftsView)
    assert view.settings == SpeculationSettings("lookup", num_draft_tokens=3)


@pytest.mark.slow
@pytest.mark.lesson(listed=find("steering"), size=(80, 24))
async def test_a_direction_is_made_by_its_form(learner: LearnerKeys) -> None:
    """The card's own S gives way in the tab whose S opens steering."""
    await learner.press("2", "4", "S")
    await learner.until(lambda: isinstance(learner.app.top, SteeringView))
    await learner.press("enter")
    await learner.until(
        lambda: isinstance(learner.app.top, DirectionDialog) and learner.app.focused is not None
    )
    await learner.press("ctrl+s")
    await learner.phase(LessonPhase.REVEALED)
    assert learner.play.right == {0: True}
    await learner.until(lambda: "happy-sad x2" in learner.text())


@pytest.mark.lesson(listed=find("steering"), size=(80, 24), recorded=True, beat=4)
async def test_the_strength_that_the_beat_speaks_of_is_chosen(learner: LearnerKeys) -> None:
    """In a recording, too, with the candidates that it leads to."""
    await learner.press("1", "h", "h")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: "happy-sad x8" in learner.text() and "With x8" in learner.text())


@pytest.mark.slow
@pytest.mark.lesson(listed=find("learning"), size=(80, 24), recorded=True)
async def test_the_recorded_training_is_shown_up_to_the_step_of_the_beat(learner: LearnerKeys) -> None:
    """Its key waits for the prediction: it would show the answer."""
    await learner.press("6", "l")
    assert "l is locked" in learner.text()
    assert learner.app.main.over == "lessons"
    for step in ("step 1 of 4,000", "step 100 of 4,000", "step 200 of 4,000"):
        await learner.press("1")
        await learner.phase(LessonPhase.ACTING, LessonPhase.REVEALED)
        if learner.play.phase is LessonPhase.ACTING:
            await learner.press("l")
        await learner.phase(LessonPhase.REVEALED)
        await learner.until(lambda step=step: step in learner.text())  # type: ignore[misc]
        await learner.press("enter")
        await learner.phase(LessonPhase.ASKING)


@pytest.mark.parametrize(
    ("written", "usage"),
    [
        ("choose", "choose girl"),
        ("type", "type and then"),
        ("prompt", "prompt Tom was sad."),
        ("set", "set temp=1.5"),
        ("grammar", "grammar regex [0-9]+"),
        ("grammar example nothing", "grammar regex [0-9]+"),
        ("step 0", "step 3"),
        ("step 1001", "step 3"),
        ("back 1.5", "back 3"),
        ("race long", "race 128"),
        ("beams depth=4", "beams width=4 max_tokens=16"),
        ("beams width=0", "beams width=4 max_tokens=16"),
        ("second_model 2", "second_model 4"),
        ("batch", "batch static"),
        ("batch dynamic", "batch static"),
        ("batch static many", "batch static"),
        ("round", "round self-4bit 3"),
        ("rounds guess 3", "rounds self-4bit 3"),
        ("rounds lookup 99", "rounds self-4bit 3"),
        ("steering cats", "steering example"),
        ("steering / dogs", "steering example"),
    ],
)
def test_what_an_action_is_given_is_checked(written: str, usage: str) -> None:
    with pytest.raises(LessonError, match=written.split()[0]) as refused:
        action(written, 3)
    assert usage in refused.value.hint


@pytest.mark.parametrize(
    "written", ["step", "step 1", "step 1000", "reroll 1000", "second_model 4", "second_model 8"]
)
def test_an_action_may_be_given_its_least_and_its_most(written: str) -> None:
    assert str(action(written, 3)) == written


def test_what_cannot_be_told_says_why() -> None:
    """A value that nothing has happened for yet, and names of what isn't there."""
    lesson = find("looking-back").lesson
    with live_session(LoadSettings(lesson.model), lesson) as session:
        scope = Scope(session.controller)
        with pytest.raises(LessonError, match="No prompt was read"):
            told(session, scope, "next.picked")
        for verb in ("merges", "back"):
            with pytest.raises(LookupError, match=r"the text has no word|the completion has 0 tokens"):
                VERBS[verb].commands("", session.controller)
        done(session, "prompt", "Once upon a time")
        for source, why in {
            "last.text": "the completion has 0 steps",
            "least_sure.text": "nothing was generated",
            "step(1).text": "the completion has 0 steps",
            "candidate('dragonfly').prob": "dragonfly",
            "doing('nothing').score": "nothing is not previous, induction or duplicate",
            "second_model.kl": "no second model",
            "ways.parted": "both models did not diverge in this card",
            "race.ratio": "no race was run in this card",
            "beams(1).text": "no beam search",
            "batch.lanes": "no batch was run in this card",
            "round.taken": "no round was taken in this card",
            "speculation.rounds": "no round was taken",
            "verified.equal": "nothing was verified in this card",
            "contribution('L9 h1').logits": "no part is called L9 h1",
        }.items():
            with pytest.raises(LessonError, match=f"(?i)This card has no value of .*{why}"):
                told(session, scope, source)


def test_parts_and_heads_are_told_by_the_names_of_the_screen() -> None:
    lesson = find("looking-back").lesson
    with live_session(LoadSettings(lesson.model), lesson) as session:
        scope = Scope(session.controller)
        done(session, "prompt", "Once upon a time")
        for name in ("L1 h1", "L8 h4", "L1 MLP", "L8 MLP", "embedding"):
            assert told(session, scope, f"contribution('{name}').label") == name
        does = told(session, scope, "doing('induction').label")
        assert (
            does
            == f"L{told(session, scope, 'doing(' + repr('induction') + ').layer')} {str(does).split()[1]}"
        )


def test_the_figures_of_a_completion_with_and_without_a_grammar() -> None:
    lesson = find("looking-back").lesson
    with live_session(LoadSettings(lesson.model), lesson) as session:
        scope = Scope(session.controller)
        done(session, "prompt", "Once upon a time")
        done(session, "step", "3")
        assert told(session, scope, "completion.forced") == 0
        done(session, "start", "")
        done(session, "grammar", "regex ( dog| cat), who was happy")
        done(session, "run", "")
        steps = session.controller.timeline.completion
        assert told(session, scope, "completion.length") == len(steps)
        assert told(session, scope, "completion.text") == "".join(each.text for each in steps)
        assert str(told(session, scope, "completion.text")) in (" dog, who was happy", " cat, who was happy")
        assert 0 < told(session, scope, "completion.forced") < len(steps)  # the animal is free
        total = sum(each.logprob for each in steps)
        assert told(session, scope, "completion.logprob") == pytest.approx(total)
        assert told(session, scope, "completion.perplexity") == pytest.approx(math.exp(-total / len(steps)))


def test_the_figures_of_a_second_model_are_those_of_its_tokens() -> None:
    logprobs, others = (-0.1, -2.0, -3.0), (-0.2, -2.5, -1.0)
    kl, entropies, same = (0.5, 2.0, 1.0), (0.4, 1.5, 2.0), (True, False, True)
    spans = [
        LockstepSpan(
            place, place, 1, 1, f" {place}", b"", logprobs[place], others[place], 1, 1, entropies[place], 1.0,
            kl[place], 1, 1, same[place],
        )
        for place in range(3)
    ]  # fmt: skip
    found = {name: read(spans).raw for name, (_, read) in SECOND_MODEL.fields.items()}
    bits = 1 / math.log(2)
    assert found == {
        "kl": pytest.approx(bits * 3.5 / 3), "sure_kl": pytest.approx(bits * 0.5), "unsure_kl": pytest.approx(bits),
        "same_top": pytest.approx(2 / 3), "worst": " 1", "worst_kl": pytest.approx(2 * bits),
        "worst_prob": pytest.approx(math.exp(-2)), "worst_other_prob": pytest.approx(math.exp(-2.5)),
        "perplexity": pytest.approx(math.exp(5.1 / 3)), "other_perplexity": pytest.approx(math.exp(3.7 / 3)),
    }  # fmt: skip


def test_leaving_a_batch_lesson_gives_the_prompt_back() -> None:
    """Forms begin with the prompt on show: in a lesson that of the lesson."""
    lesson = find("batching").lesson
    with live_session(LoadSettings(lesson.model), lesson) as session:
        play = live_play(session, lesson)
        play.begin()
        settle(session, play)
        assert session.controller.setup.prompt.text == lesson.prompt
        play.close()


@pytest.mark.parametrize("written", ["regex", "foo x", "example none", "lark "])
def test_a_grammar_that_is_none_is_refused(written: str) -> None:
    with pytest.raises(LessonError, match=f"grammar {written}"):
        action(f"grammar {written}", 3)


def test_a_grammar_is_no_setting_of_the_head() -> None:
    text = '+++\ntitle = "x"\nsettings = {grammar = "x"}\n+++\n## A\n\nText.\n'
    _, faults = read_checked(text, "x")
    assert [fault.message for fault in faults] == ["grammar is not a setting of the sampler."]
