"""The sampler on the screen: what is asked of the engine and when, the what-if beside the settings, presets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine import protocol
from engine.protocol import (
    Configure,
    Ended,
    Explain,
    Failure,
    MoveTo,
    Prefill,
    Recall,
    Recalled,
    Reroll,
    Resampled,
    TakeStep,
    WhatIf,
)
from engine.setting_field import grouped
from engine.settings import BY_NAME, FIELDS, GROUPS, LoadSettings, Settings
from inspector.config.presets import Presets
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.text import TextPanel
from inspector.session.client import EngineClient
from inspector.session.controller import Controller
from inspector.session.sampler_queries import PATIENCE, SamplerQueries
from inspector.tools.sampler.dialog import SamplingDialog
from inspector.widgets.fields import Choice, SafeInput
from tests.inspector.explanations import answered, explained
from tests.inspector.fakes import HOSTILE, Session
from tests.inspector.rig import FakeEngine, Rig, addressed, run

USED = Settings(temp=0.8)


def on_screen(rig: Rig) -> list[str]:
    return [panel.id for panel in rig.app.main.query("#panels > .panel") if panel.display]


async def tell(rig: Rig) -> None:
    """Answer the last question about a place."""
    command = rig.engine.asked[-1]
    assert isinstance(command, Explain)
    await rig.push([explained(rig.timeline.distribution), Ended("Explain")])


def field(rig: Rig, name: str) -> SafeInput:
    return rig.app.screen.query_one(f"#field-{name}", SafeInput)


def presets(rig: Rig) -> Choice:
    return rig.app.screen.query_one("#presets", Choice)


# ---- the panel --------------------------------------------------------------------------------


@pytest.mark.wide(2)
@pytest.mark.parametrize(
    ("size", "places"),
    [
        ((120, 40), ["text", "sampler", "steps"]),
        ((120, 24), ["text", "sampler", "steps"]),
        ((80, 24), ["text", "sampler"]),
        ((100, 16), ["text", "sampler"]),
        ((60, 30), ["sampler"]),
        ((40, 12), ["sampler"]),
    ],
)
def test_w_shows_the_sampler_and_escape_goes_back(size, places):
    async def test(rig: Rig) -> None:
        await rig.ready()
        before = on_screen(rig)
        await rig.press("w")
        assert on_screen(rig) == places
        assert "Why “" in rig.screen_text()
        await rig.press("escape")
        assert on_screen(rig) == before
        await rig.press("w", "w")
        assert on_screen(rig) == before

    run(test, size)


@pytest.mark.wide(2)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (100, 16), (60, 30), (40, 12)])
def test_settings_that_are_discarded_leave_the_panels_as_they_were(size):
    """At 80x24 the dialog hides the text, and the toolkit then moved the focus to the sampler, which stayed open."""

    async def test(rig: Rig) -> None:
        await rig.ready()
        before = on_screen(rig)
        await rig.press("s", "escape")
        assert on_screen(rig) == before
        assert rig.app.main.arrangement.current == "text"

    run(test, size)


def test_text_and_steps_keep_the_sampler_and_the_other_panels_put_it_away():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("w", "1", "3")
        assert "sampler" in on_screen(rig)
        await rig.press("4")
        assert on_screen(rig) == ["text", "candidates", "steps", "kv", "timing"]

    run(test)


def test_the_engine_is_asked_once_a_place_and_only_while_the_panel_is_open():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("left", "right")
        assert rig.engine.asked == []
        await rig.press("w")
        assert rig.engine.asked == [Explain(rig.timeline.before, USED)]
        for _ in range(3):
            rig.app.main.show()
        assert len(rig.engine.asked) == 1
        await tell(rig)
        rig.app.main.show()
        assert len(rig.engine.asked) == 1
        await rig.press("left")
        assert [command.node for command in rig.engine.asked] == [rig.timeline.tip, rig.timeline.before]
        await rig.press("escape", "left")
        assert len(rig.engine.asked) == 2

    run(test)


def test_one_question_is_out_at_most_and_the_latest_wins():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("w", "left", "left", "left")
        assert len(rig.engine.asked) == 1
        assert rig.engine.cancelled(rig.engine.asked[0])
        await rig.push([Ended("Explain", cancelled=True)])
        assert len(rig.engine.asked) == 2
        assert rig.engine.asked[1].node == rig.timeline.before
        assert not rig.engine.cancelled(rig.engine.asked[1])

    run(test)


def test_an_answer_that_comes_late_is_not_shown_at_another_place():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("w")
        late = explained(rig.timeline.distribution)
        await rig.press("left")
        await rig.push([late, Ended("Explain")])
        assert rig.timeline.explanation() is None
        await tell(rig)
        assert rig.timeline.explanation().explained.node == rig.timeline.before

    run(test)


def test_a_new_draw_of_the_same_place_is_asked_anew():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("w")
        await tell(rig)
        await rig.push([Resampled(replace(rig.timeline.next, reroll=1)), Ended("Reroll")])
        assert len(rig.engine.asked) == 2

    run(test)


def test_older_steps_are_explained_with_the_settings_they_were_made_with():
    async def test(rig: Rig) -> None:
        await rig.ready(3)
        rig.app.controller.setup.configure(Settings(temp=1.3))
        await rig.push([Ended("Configure")])
        await rig.push(rig.session.steps(2))
        await rig.press("w")
        await tell(rig)
        asked = []
        for _ in range(4):
            await rig.press("left")
            asked.append(rig.engine.asked[-1].settings.temp)
            await tell(rig)
        assert asked == [1.3, 1.3, 0.8, 0.8]

    run(test)


def test_dropped_logits_are_said_in_the_panel_and_recalled_with_a_key():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("w")
        await rig.push([Failure("Explain", "The logits were dropped.", "Recall."), Ended("Explain")])
        assert not rig.app._notifications
        assert "logits dropped" in rig.screen_text()
        assert len(rig.engine.asked) == 1
        await rig.press("ctrl+r")
        node = rig.timeline.before
        assert rig.engine.sent == [Recall((node,))]
        assert "Computing dropped logits again" in rig.status
        await rig.press("ctrl+r")
        assert len(rig.engine.sent) == 1
        await rig.push([Recalled((node,), 12.0), Ended("Recall")])
        assert len(rig.engine.asked) == 2
        await tell(rig)
        assert "logits dropped" not in rig.screen_text()
        await rig.press("ctrl+r")
        assert "Nothing to compute again" in rig.status
        assert len(rig.engine.sent) == 1

    run(test)


def test_logits_that_are_dropped_again_at_once_are_not_recalled_for_ever():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("w")
        dropped = [Failure("Explain", "The logits were dropped.", ""), Ended("Explain")]
        await rig.push(dropped)
        await rig.press("ctrl+r")
        await rig.push([Recalled((rig.timeline.before,), 12.0), Ended("Recall")])
        await rig.push(dropped)
        await rig.press("ctrl+r")
        assert rig.status.endswith("Start with more --kept-logits-mib.")
        assert len(rig.engine.sent) == 1

    run(test)


def test_a_recall_can_be_stopped():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("w")
        await rig.push([Failure("Explain", "The logits were dropped.", ""), Ended("Explain")])
        await rig.press("ctrl+r", "escape")
        assert rig.engine.cancelled(rig.engine.sent[0])
        assert "sampler" in on_screen(rig)

    run(test)


def test_the_prompt_asks_nothing():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("home", "home", "w")
        assert rig.engine.asked == []
        assert "given by the prompt" in rig.screen_text()

    run(test)


def test_candidates_are_highlighted_and_taken_in_the_panel():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("w", "home", "down")
        wanted = rig.app.main.panel(CandidatesPanel).candidate.id
        await rig.press("enter")
        assert rig.engine.last(protocol.Choose) == protocol.Choose(rig.timeline.before, wanted)

    run(test)


def test_a_run_is_asked_about_only_now_and_then():
    now = [0.0]
    engine, made = FakeEngine(), Session()
    client = EngineClient(engine)
    for record in [*made.load(), *made.open()]:
        client.timeline.apply(record)
    timeline = client.timeline
    questions = SamplerQueries(client, USED, lambda: now[0])
    questions.watching = timeline.running = True
    for tenth in range(30):
        now[0] = tenth * PATIENCE / 10
        timeline.apply(made.step())
        questions.ask(timeline)
        for request in [*client.requests.values()]:
            client.receive(Ended("Explain", cancelled=True, request=request.command.id))
            timeline.running = True
    assert len(engine.asked) == 3


# ---- what-if ----------------------------------------------------------------------------------


def test_settings_are_tried_as_they_are_typed():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s")
        assert on_screen(rig) == ["text", "sampler", "steps"]
        assert rig.engine.asked == [Explain(rig.timeline.before, USED), WhatIf(USED, rig.timeline.tip)]
        await rig.push([explained(rig.timeline.distribution), Ended("Explain")])
        await rig.push([answered(rig.timeline, []), Ended("WhatIf")])
        assert "0 of 6 steps would differ" in rig.screen_text()
        rig.engine.asked.clear()
        field(rig, "temp").value = "1.4"
        await rig.pilot.pause()
        tried = replace(USED, temp=1.4)
        assert rig.engine.asked == [Explain(rig.timeline.before, tried), WhatIf(tried, rig.timeline.tip)]
        assert rig.engine.sent == []
        await rig.push([explained(rig.timeline.distribution, used=False), Ended("Explain")])
        await rig.push([answered(rig.timeline, [1, 3]), Ended("WhatIf")])
        assert "2 of 6 steps would differ" in rig.screen_text()
        assert "temperature 0.8 → 1.4" in rig.screen_text()
        assert "≠ ␣other" in rig.screen_text()

    run(test)


def test_what_is_typed_wrong_is_not_tried():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s")
        await rig.push([Ended("Explain"), Ended("WhatIf")])
        rig.engine.asked.clear()
        field(rig, "top_p").value = "7"
        await rig.pilot.pause()
        assert {command.settings for command in rig.engine.asked} <= {USED}

    run(test)


def test_while_an_answer_is_awaited_the_next_settings_wait_and_the_latest_wins():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s")
        for value in ("1.1", "1.2", "1.3"):
            field(rig, "temp").value = value
            await rig.pilot.pause()
        assert len(rig.engine.asked) == 2
        assert all(rig.engine.cancelled(command) for command in rig.engine.asked)
        await rig.push([Ended("Explain", True), Ended("WhatIf", True)])
        assert [command.settings.temp for command in rig.engine.asked[2:]] == [1.3, 1.3]

    run(test)


def test_steps_that_would_differ_are_marked_and_walked_to():
    async def test(rig: Rig) -> None:
        await rig.ready()
        first = rig.timeline.step_slots[0]
        await rig.press("s")
        await rig.push([answered(rig.timeline, [1, 3]), Ended("WhatIf")])
        await rig.press("pageup")
        assert rig.timeline.slot == first + 3
        await rig.press("pageup")
        assert rig.timeline.slot == first + 1
        struck = [
            segment.text.strip() for y in range(10) for segment in rig.app.main.panel(TextPanel).render_line(y)
            if segment.style and segment.style.strike
        ]  # fmt: skip
        assert struck == [rig.timeline.items[first + place].text.strip() for place in (1, 3)]
        await rig.press("pageup")
        assert rig.status == "No earlier step would differ."
        await rig.press("pagedown")
        assert rig.timeline.slot == first + 3
        await rig.press("shift+up")
        assert rig.timeline.slot == first + 2
        assert "Apply from step 3" in rig.screen_text()

    run(test)


def test_discarding_restores_everything():
    async def test(rig: Rig) -> None:
        await rig.ready()
        before = on_screen(rig)
        await rig.press("left", "left")
        slot = rig.timeline.slot
        await rig.press("s")
        field(rig, "temp").value = "1.4"
        await rig.pilot.pause()
        await rig.push([Ended("WhatIf", True)])
        await rig.push([answered(rig.timeline, [1, 3]), Ended("WhatIf")])
        await rig.press("pageup", "escape")
        assert rig.timeline.slot == slot
        assert rig.timeline.trial is None
        assert on_screen(rig) == before
        assert "≠" not in rig.screen_text()
        assert rig.engine.sent == []
        assert rig.app.controller.setup.settings == USED

    run(test)


def test_applying_at_the_tip_goes_on_from_there():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s")
        field(rig, "temp").value = "1.4"
        await rig.press("ctrl+s")
        assert rig.engine.sent == [Configure(replace(USED, temp=1.4))]
        assert rig.timeline.trial is None

    run(test)


def test_applying_at_an_older_step_goes_back_to_before_it():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("left", "left", "s")
        before = rig.timeline.before
        field(rig, "temp").value = "1.4"
        await rig.press("ctrl+s")
        assert rig.engine.sent == [MoveTo(before), Configure(replace(USED, temp=1.4))]
        assert rig.timeline.following

    run(test)


def test_applying_while_the_prompt_is_looked_at_stays_at_the_tip():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("home", "home", "s", "ctrl+s")
        assert rig.engine.sent == [Configure(USED)]

    run(test)


def test_dropped_steps_are_counted_recalled_and_then_answered():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s")
        await rig.push([explained(rig.timeline.distribution), Ended("Explain")])
        await rig.push([answered(rig.timeline, [3], [0, 1]), Ended("WhatIf")])
        assert "1 of 4 steps would differ; 2 dropped: ctrl+r" in rig.screen_text()
        await rig.press("ctrl+r")
        steps = rig.timeline.steps
        nodes = (steps[0].parent, steps[1].parent)
        assert rig.engine.sent == [Recall(nodes)]
        rig.engine.asked.clear()
        await rig.push([Recalled(nodes, 30.0), Ended("Recall")])
        assert rig.engine.asked == [WhatIf(USED, rig.timeline.tip)]
        await rig.push([answered(rig.timeline, [0, 3], [4]), Ended("WhatIf")])
        assert "2 of 6 steps would differ" in rig.screen_text()
        assert "dropped" not in rig.screen_text()  # what was answered before still holds

    run(test)


def test_a_question_that_fails_is_not_asked_for_ever():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s")
        await rig.push([Ended("Explain")])
        await rig.push([Failure("WhatIf", "There is no token number 9.", ""), Ended("WhatIf")])
        asked = [command for command in rig.engine.asked if isinstance(command, WhatIf)]
        assert len(asked) == 1
        assert "asking" not in rig.screen_text()

    run(test)


def test_without_a_prompt_settings_are_set_and_nothing_is_asked():
    async def test(rig: Rig) -> None:
        await rig.push(rig.session.load())
        rig.engine.sent.clear()
        await rig.press("s")
        field(rig, "temp").value = "1.4"
        await rig.press("ctrl+s")
        assert rig.engine.names == ["Configure"]
        assert rig.engine.asked == []

    run(test, prompt="")


def test_settings_the_engine_refuses_are_not_kept():
    async def test(rig: Rig) -> None:
        await rig.ready()
        rig.app.controller.setup.configure(replace(USED, logit_bias=((4095, 1.0),)))
        await rig.push([Failure("Configure", "No.", ""), Ended("Configure")])
        assert rig.app.controller.setup.settings == rig.app.controller.queries.in_force == USED

    run(test)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), pytest.param((80, 24), marks=pytest.mark.slow), (40, 12)])
def test_every_field_comes_into_sight_with_the_keyboard(size):
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s")
        seen = []
        names = [field.name for title in GROUPS for field in grouped(FIELDS, title)]
        for _ in names:
            focused = rig.app.screen.focused
            seen.append(focused.id)
            assert rig.app.screen.query_one("#dialog-body").content_region.contains_region(focused.region), (
                seen
            )
            await rig.press("down")
        assert seen == [f"field-{name}" for name in names]
        assert sorted(names) == sorted(BY_NAME[field.name].name for field in FIELDS)
        assert rig.app.screen.focused.id == "preset-name"

    run(test, size)


# ---- presets ----------------------------------------------------------------------------------


def test_presets_are_gone_through_tried_and_taken_back():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s", "up")
        assert rig.app.screen.focused is presets(rig)
        await rig.press("right", "right", "right", "right", "right")
        assert field(rig, "temp").value == "1.5"
        assert field(rig, "xtc_probability").value == "0.5"
        assert rig.timeline.trial.settings.xtc_probability == 0.5
        await rig.press("right")
        assert field(rig, "temp").value == "0.8"
        assert field(rig, "xtc_probability").value == "0"
        await rig.press("left", "ctrl+s")
        assert rig.engine.sent[-1].settings == Presets().apply("wild", USED)

    run(test)


def test_values_are_saved_under_a_name_and_deleted_when_asked_twice():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s")
        field(rig, "temp").value = "0.55"
        name = rig.app.screen.query_one("#preset-name", SafeInput)
        name.focus()
        name.value = "mine"
        await rig.press("enter")
        assert Presets().apply("mine", Settings()).temp == 0.55
        assert "◉ mine" in str(presets(rig).render())
        assert isinstance(rig.app.screen, SamplingDialog)
        presets(rig).focus()
        await rig.press("delete")
        assert "Press delete again to delete mine." in str(rig.app.screen.query_one("#preset-remark").content)
        assert "mine" in Presets().names
        await rig.press("delete")
        assert "mine" not in Presets().names
        assert field(rig, "temp").value == "0.55"

    run(test)


def test_a_preset_of_the_program_is_not_deleted_and_a_bad_name_is_told():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s", "up", "right", "delete")
        remark = rig.app.screen.query_one("#preset-remark")
        assert "comes with the program" in str(remark.content)
        name = rig.app.screen.query_one("#preset-name", SafeInput)
        name.focus()
        name.value = HOSTILE[2] + "x" * 60
        await rig.press("enter")
        assert "1 to 40 printable characters" in str(remark.content)
        assert "\x1b" not in rig.screen_text()

    run(test)


def test_a_damaged_file_is_told_in_the_dialog(config):
    config.mkdir()
    (config / "presets.json").write_text("{ \x1b[31m")

    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s")
        remark = rig.app.screen.query_one("#preset-remark")
        assert "can't be read" in str(remark.content)
        assert remark.display

    run(test)


# ---- drawing again ----------------------------------------------------------------------------


def test_drawing_again_at_an_older_step_makes_a_sibling_and_stays_there():
    engine, made = FakeEngine(), Session()
    controller = Controller(engine, LoadSettings(), USED, Prefill("x", False))
    for record in [*made.load(), *made.open(), *made.steps(5)]:
        controller.client.receive(record)
    engine.sent.clear()
    controller.client.requests.clear()
    controller.timeline.walk(-2)
    slot, before = controller.timeline.slot, controller.timeline.before
    assert controller.navigation.reroll() == ""
    assert engine.sent == [MoveTo(before), Reroll(), TakeStep()]
    records = [made.move(before), Ended("MoveTo"), Ended("Reroll")]
    records.append(made.step(controller.timeline.tree.nodes[before].next.candidates[3].id, "sampled"))
    for record in [*records, Ended("Step")]:
        controller.client.receive(addressed(record, controller.client.outstanding))
    assert controller.timeline.slot == slot
    assert controller.timeline.selected is records[-1]
    assert len(controller.timeline.siblings(slot)) == 2


def test_drawing_again_is_stopped_as_one():
    engine, made = FakeEngine(), Session()
    controller = Controller(engine, LoadSettings(), USED, Prefill("x", False))
    for record in [*made.load(), *made.open(), *made.steps(5)]:
        controller.client.receive(record)
    controller.timeline.walk(-2)
    controller.navigation.reroll()
    controller.transport.stop()
    assert all(engine.cancelled(command) for command in engine.sent[-3:])
