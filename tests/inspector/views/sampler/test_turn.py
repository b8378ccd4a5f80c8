"""The temperature is turned where it is shown why: a preview of the token on show, which ⏎ applies and esc discards."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from textual.events import Key

from engine.protocol import Configure, Ended, Explain, Failure, Prefill, Run
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.lessons.catalogue import find
from inspector.lessons.play import LessonPhase
from inspector.views.sampler import NOT_HERE, STAYS, SettingsStrip, turned
from inspector.views.sampling_dialog import SamplingDialog
from tests.inspector.explanations import answered, explained
from tests.inspector.lessons.playing import LearnerKeys
from tests.inspector.rig import Rig
from tests.inspector.views.sampler.test_what_if_real import until

USED = Settings(temp=0.8)


async def shown(rig: Rig) -> None:
    """Show why, and have it told."""
    await rig.ready()
    await rig.press("w")
    await rig.push([explained(rig.timeline.distribution), Ended("Explain")])
    rig.engine.asked.clear()


async def tell(rig: Rig, *differ: int) -> None:
    """Answer what was asked last of the settings that are tried."""
    told = explained(rig.timeline.distribution, used=False)
    await rig.push([told, Ended("Explain"), answered(rig.timeline, differ), Ended("WhatIf")])


def at_once(rig: Rig, *keys: str) -> None:
    """Press keys without letting anything happen in between."""
    for key in keys:
        rig.app.post_message(Key(key, None))


def painted(rig: Rig) -> list[object]:
    """All cells with their colours, and where the person is."""
    strips = rig.app.screen._compositor.render_strips()
    cells = [[(segment.text, str(segment.style)) for segment in strip] for strip in strips]
    return [
        cells,
        rig.timeline.slot,
        rig.app.main.candidate,
        rig.app.main.arrangement.current,
        rig.status,
    ]


# ---- the grid ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("temp", "cooler", "warmer"),
    [
        (0.8, 0.75, 0.85), (0.05, 0.0, 0.1), (0.0, 0.0, 0.05), (2.0, 1.95, 2.1), (2.1, 2.0, 2.2), (1.0, 0.95, 1.05),
        (0.73, 0.7, 0.75), (2.34, 2.3, 2.4), (100.0, 99.9, 100.0), (0.35, 0.3, 0.4),
    ],
)  # fmt: skip
def test_a_press_goes_to_the_next_step(temp: float, cooler: float, warmer: float) -> None:
    assert (turned(temp, -1), turned(temp, 1)) == (cooler, warmer)


def test_the_way_down_is_the_way_up() -> None:
    ups = [0.0]
    for _ in range(60):
        ups.append(turned(ups[-1], 1))
    downs = [ups[-1]]
    for _ in range(60):
        downs.append(turned(downs[-1], -1))
    assert ups == downs[::-1]
    assert ups[40:43] == [2.0, 2.1, 2.2]


# ---- the strip --------------------------------------------------------------------------------


def words(strip: SettingsStrip, used: Settings | None = USED) -> str:
    return "  ".join(text for _, text, _, _ in strip.parts(used))


@pytest.mark.parametrize(
    ("strip", "told"),
    [
        (SettingsStrip(USED), "T 0.80  - + adjust  s all settings  seed 0"),
        (SettingsStrip(Settings(temp=0.5)), "T 0.80, now 0.50  - + adjust  s all settings  seed 0"),
        (SettingsStrip(USED, Settings(temp=0.55)), "T 0.80 → 0.55  ⏎ applies  esc discards"),
        (SettingsStrip(USED, Settings(temp=0.0)), "T 0.80 → 0 (greedy)  ⏎ applies  esc discards"),
        (SettingsStrip(USED, Settings(temp=0.55), 3), "T 0.80 → 0.55  ⏎ applies from step 3  esc discards"),
        (SettingsStrip(USED, USED), "T 0.80, as it is  ⏎ applies  esc discards"),
        (
            SettingsStrip(USED, Settings(temp=0.55), recorded=True),
            "T 0.80 → 0.55  esc discards  G continues live",
        ),
    ],
)
def test_the_strip_says_what_would_be_applied(strip: SettingsStrip, told: str) -> None:
    assert words(strip) == told


# ---- on a fake engine -------------------------------------------------------------------------


async def test_a_turn_asks_what_it_would_make_of_the_token_and_applies_nothing(rig: Rig) -> None:
    await shown(rig)
    assert "T 0.80  - + adjust  s all settings" in rig.screen_text()
    await rig.press("minus")
    assert rig.engine.asked[0] == Explain(rig.timeline.before, replace(USED, temp=0.75))
    assert rig.engine.sent == []
    await tell(rig, 1, 3)
    assert "T 0.80 → 0.75  ⏎ applies  esc discards" in rig.screen_text()
    assert "Preview · step 7 (next) · temperature 0.8 → 0.75" in rig.screen_text()
    assert "2 of 6 steps would differ" in rig.screen_text()
    assert rig.status == "Preview: ⏎ applies from here on, esc discards"
    await rig.press("plus", "plus")
    assert rig.timeline.trial.settings == replace(USED, temp=0.85)
    assert rig.app.controller.setup.settings == rig.app.controller.queries.in_force == USED


async def test_presses_in_one_moment_add_up_and_the_latest_is_asked(rig: Rig) -> None:
    await shown(rig)
    at_once(rig, *["minus"] * 2)
    await rig.pilot.pause()
    assert rig.timeline.trial.settings.temp == 0.7
    await tell(rig)
    at_once(rig, *["minus"] * 20)
    await rig.pilot.pause()
    assert rig.timeline.trial.settings.temp == 0.0
    explains = [command for command in rig.engine.asked if isinstance(command, Explain)]
    assert [command.settings.temp for command in explains] == [0.75, 0.7]  # one is out at most
    await rig.push([Ended("Explain", True)])
    assert rig.engine.asked[-1] == Explain(rig.timeline.before, replace(USED, temp=0.0))
    await rig.push([explained(rig.timeline.distribution, used=False)])
    assert "T 0.80 → 0 (greedy)" in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20), (40, 14)])
async def test_escape_leaves_everything_as_it_was(rig: Rig, size: tuple[int, int]) -> None:
    await shown(rig)
    await rig.press("left", "left", "down")
    await rig.push([explained(rig.timeline.distribution), Ended("Explain")])
    before, trials = painted(rig), rig.timeline.tree.settings.copy()
    await rig.press("minus", "minus", "plus", "plus", "plus")
    await rig.push([Ended("Explain", True), Ended("WhatIf", True)])
    await tell(rig, 1, 3)
    assert painted(rig) != before
    assert "T 0.80 → 0.85" in rig.screen_text()
    await rig.press("escape")
    assert painted(rig) == before
    assert rig.timeline.trial is None
    assert rig.timeline.tree.settings == trials
    assert rig.engine.sent == []
    assert rig.app.controller.setup.settings == USED
    await rig.press("escape")
    assert "sampler" not in rig.app.main.shown  # as it does without a turn


async def test_enter_applies_at_the_tip_and_then_chooses_again(rig: Rig) -> None:
    await shown(rig)
    await rig.press("plus", "enter")
    assert rig.engine.sent == [Configure(replace(USED, temp=0.85))]
    assert rig.timeline.trial is None
    await rig.end("Configure")
    await rig.press("enter")
    assert rig.engine.names[-1] == "Choose"


async def test_enter_at_an_older_step_goes_back_to_before_it(rig: Rig) -> None:
    await shown(rig)
    await rig.press("left", "left")
    before = rig.timeline.before
    await rig.press("minus")
    await rig.push([Ended("Explain", True)])
    await rig.until(lambda: "T 0.80 → 0.75  ⏎ applies from step 5" in rig.screen_text())
    await rig.press("enter")
    assert rig.engine.sent == [Configure(replace(USED, temp=0.75), before)]


async def test_what_is_turned_back_applies_nothing_and_chooses_nothing(rig: Rig) -> None:
    await shown(rig)
    await rig.press("minus", "plus", "enter")
    assert rig.engine.sent == []
    assert rig.timeline.trial is None
    assert rig.status == STAYS


async def test_the_strip_can_be_clicked(rig: Rig) -> None:
    await shown(rig)
    await rig.press("minus")
    await tell(rig)
    rows = rig.screen_text().split("\n")
    y = next(n for n, row in enumerate(rows) if "⏎ applies" in row)
    await rig.pilot.click(offset=(rows[y].index("⏎ applies") + 3, y))
    await rig.pilot.pause()
    assert rig.engine.sent == [Configure(replace(USED, temp=0.75))]


async def test_s_opens_the_form_with_the_turned_value(rig: Rig) -> None:
    await shown(rig)
    before = painted(rig)
    await rig.press("minus", "minus", "s")
    assert isinstance(rig.app.top, SamplingDialog)
    assert rig.form.rows["temp"].text == "0.7"
    assert rig.timeline.trial.settings == replace(USED, temp=0.7)
    await rig.press("escape")
    assert rig.timeline.trial is None
    await rig.push([Ended("Explain", True), Ended("WhatIf", True)])
    assert painted(rig) == before
    await rig.press("s")
    assert rig.form.rows["temp"].text == "0.8"


async def test_while_it_runs_the_keys_are_its_pace_and_a_run_ends_the_turn(rig: Rig) -> None:
    await shown(rig)
    await rig.press("minus", "r")
    assert isinstance(rig.engine.sent[-1], Run)
    await rig.push(rig.session.steps(1))
    assert rig.timeline.running
    assert rig.timeline.trial is None
    await rig.press("minus")
    assert rig.timeline.trial is None
    assert rig.app.controller.runs.pace == 20


async def test_where_another_panel_is_the_current_one_the_keys_are_the_pace(rig: Rig) -> None:
    await shown(rig)
    await rig.pilot.click("#text")
    await rig.press("minus")
    assert "sampler" in rig.app.main.shown
    assert rig.timeline.trial is None
    assert rig.status == "Pace: 20 steps a second"


async def test_a_turn_outlives_a_look_at_other_tokens_and_ends_with_the_panel(rig: Rig) -> None:
    await shown(rig)
    await rig.press("minus", "left", "left")
    await rig.push([Ended("Explain", True)])
    assert rig.engine.asked[-1] == Explain(rig.timeline.before, replace(USED, temp=0.75))
    await rig.press("1")
    assert rig.timeline.trial is None
    assert rig.engine.sent == []


async def test_a_token_of_the_prompt_is_not_turned(rig: Rig) -> None:
    await shown(rig)
    await rig.press("home", "home", "minus")
    assert rig.status == NOT_HERE
    assert rig.timeline.trial is None


async def test_dropped_logits_are_said_in_the_strip(rig: Rig) -> None:
    await shown(rig)
    await rig.press("minus")
    await rig.push([Failure("Explain", "The logits were dropped.", "Recall."), Ended("Explain")])
    assert "T 0.80 → 0.75  logits dropped: ctrl+r  ⏎ applies  esc " in rig.screen_text()


# ---- in a lesson ------------------------------------------------------------------------------


@pytest.mark.lesson(listed=find("the-draw"))
async def test_a_lesson_refuses_a_turn_until_the_prediction_and_while_enter_is_its_own(
    learner: LearnerKeys,
) -> None:
    main = learner.app.main
    await learner.phase(LessonPhase.ASKING)
    await main.do("why")
    await learner.press("minus")
    assert main.status.answer.startswith("Predict first: press 1-"), main.status.answer
    assert "- is locked until then" in main.status.answer
    assert learner.app.controller.timeline.trial is None
    assert "-+ temperature" not in learner.text()
    while learner.play.phase is not LessonPhase.REVEALED:
        if learner.play.phase is LessonPhase.ASKING:
            await learner.press("1")
        await learner.phase(LessonPhase.ACTING, LessonPhase.REVEALED)
        if learner.play.phase is LessonPhase.ACTING:
            left = learner.play.stage.left
            await learner.do(left[0])
            await learner.until(lambda left=left: learner._moved_on(left))  # type: ignore[misc]
    await main.do("why")
    await learner.press("minus")
    assert main.status.answer == "⏎ belongs to the lesson now. s opens all settings"
    assert learner.app.controller.timeline.trial is None


# ---- on the real engine -----------------------------------------------------------------------


async def test_what_is_previewed_is_what_is_there_after_enter_and_undo_takes_it_back() -> None:
    used = Settings(temp=0.9, top_p=0.95, seed=7, max_tokens=8, repetition_penalty=1.1)
    app = InspectorApp(LoadSettings(), used, Prefill("Once upon a time", False))
    client, queries = app.controller.client, app.controller.queries

    async with app.run_test(size=(120, 40)) as pilot:
        timeline = lambda: app.controller.timeline  # noqa: E731
        rest = lambda: not client.requests and not timeline().running  # noqa: E731
        await until(lambda: timeline().prompts.prefilled)
        await pilot.press("r")
        await until(lambda: len(timeline().steps) == 8 and rest())
        for keys, temp in ((("plus",) * 20, 1.9), (("left", "left", *["minus"] * 6), 0.6)):
            before = timeline().next
            await pilot.press("end", "2", *keys)
            await until(
                lambda: timeline().tried is not None and rest() and timeline().trial.answered is not None
            )
            await pilot.pause()
            assert timeline().trial.settings == replace(queries.in_force, temp=temp)
            preview, told = timeline().tried, timeline().trial.last_explanation.explained
            assert (preview.node, preview.sampler_entropy_bits) != (before.node, before.sampler_entropy_bits)
            in_force = queries.in_force
            await pilot.press("enter")
            await until(lambda in_force=in_force: rest() and queries.in_force != in_force)
            assert timeline().following
            assert timeline().next == preview
            await until(lambda: timeline().explanation() is not None and rest())
            after = timeline().explanation().explained
            assert (after.next, after.columns, after.logits) == (told.next, told.columns, told.logits)
            await pilot.press("u")
            await until(lambda in_force=in_force: rest() and queries.in_force == in_force)
            if timeline().next.node == before.node:
                assert timeline().next == before
            await pilot.press("1")
    assert app.closed_in_time
