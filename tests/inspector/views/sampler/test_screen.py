"""The sampler on the screen: what is asked of the engine and when, the what-if beside the settings, presets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.widgets import Button, Input

from engine import protocol
from engine.protocol import (
    Candidate,
    Configure,
    Ended,
    Explain,
    Failure,
    LogitsRow,
    Prefill,
    Recall,
    Recalled,
    Reroll,
    Resampled,
    TakeStep,
    TokensFound,
    WhatIf,
    WhatIfAnswered,
)
from engine.recording import save_as
from engine.setting import grouped
from engine.settings import BY_NAME, FIELDS, GROUPS, LoadSettings, Settings
from inspector.config.presets import Presets
from inspector.keys import with_keys
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.text import TextPanel
from inspector.session.client import EngineClient
from inspector.session.controller import Controller
from inspector.session.replay_backend import REFUSED
from inspector.session.setup import PATIENCE, SamplerQueries
from inspector.views.sampler import NO_ROW, TRIED, SamplerPanel, trial_summary
from inspector.views.sampling_dialog import SamplingDialog
from tests.engine.logits.recording import Recording
from tests.inspector.explanations import answered, explained
from tests.inspector.fakes import HOSTILE, Session
from tests.inspector.rig import FakeEngine, Rig, take_in

USED = Settings(temp=0.8)


def on_screen(rig: Rig) -> list[str]:
    return [panel.id for panel in rig.app.main.query("#panels > .panel") if panel.display]


async def tell(rig: Rig) -> None:
    """Answer the last question about a place."""
    command = rig.engine.asked[-1]
    assert isinstance(command, Explain)
    await rig.push([explained(rig.timeline.distribution), Ended("Explain")])


def shown(rig: Rig, name: str) -> str:
    """The text of a setting in the form."""
    return rig.form.rows[name].text


# ---- the panel --------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("size", "places"),
    [
        ((120, 40), ["text", "sampler", "steps", "kv", "timing"]),
        ((120, 24), ["text", "sampler", "steps", "kv", "timing"]),
        ((80, 24), ["text", "sampler", "kv", "timing"]),
        ((100, 16), ["text", "sampler"]),
        ((60, 30), ["text", "sampler", "kv", "timing"]),
        ((40, 12), ["sampler"]),
    ],
)
async def test_w_shows_the_sampler_and_escape_goes_back(rig: Rig, size, places) -> None:
    await rig.ready()
    before = on_screen(rig)
    await rig.press("w")
    assert on_screen(rig) == places
    assert "Why “" in rig.screen_text()
    await rig.press("escape")
    assert on_screen(rig) == before
    await rig.press("w", "w")
    assert on_screen(rig) == places


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (100, 16), (60, 30), (40, 12)])
async def test_settings_that_are_discarded_leave_the_panels_as_they_were(rig: Rig, size) -> None:
    """At 80x24 the dialog hides the text, and the toolkit then moved the focus to the sampler, which stayed open."""

    await rig.ready()
    before = on_screen(rig)
    await rig.press("s", "escape")
    assert on_screen(rig) == before
    assert rig.app.main.arrangement.current == "text"


@pytest.mark.screen(size=(50, 40))
async def test_no_key_is_named_that_the_form_takes_as_a_letter(rig: Rig) -> None:
    await rig.ready()
    await rig.press("2")
    panel = rig.app.main.panel(SamplerPanel)

    def head() -> str:
        lines = (panel.render_line(y).text for y in range(panel.size.height))
        return next(line for line in lines if "stage" in line)

    assert re.search(r"\+\d stages?: f", head())
    await rig.press("s")
    assert re.search(r"\+\d stages? ", head())


async def test_text_and_steps_keep_the_sampler_and_another_answer_puts_it_away(rig: Rig) -> None:
    await rig.ready()
    await rig.press("2")
    for panel in ("#text", "#steps"):
        await rig.pilot.click(panel)
        assert rig.app.main.arrangement.current == panel[1:]
        assert "sampler" in on_screen(rig)
    await rig.press("1")
    assert on_screen(rig) == ["text", "candidates", "steps", "kv", "timing"]


async def test_the_engine_is_asked_once_a_place_and_only_while_the_panel_is_open(rig: Rig) -> None:
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


async def test_one_question_is_out_at_most_and_the_latest_wins(rig: Rig) -> None:
    await rig.ready()
    await rig.press("w", "left", "left", "left")
    assert len(rig.engine.asked) == 1
    assert rig.engine.cancelled(rig.engine.asked[0])
    await rig.push([Ended("Explain", cancelled=True)])
    assert len(rig.engine.asked) == 2
    assert rig.engine.asked[1].node == rig.timeline.before
    assert not rig.engine.cancelled(rig.engine.asked[1])


async def test_an_answer_that_comes_late_is_not_shown_at_another_place(rig: Rig) -> None:
    await rig.ready()
    await rig.press("w")
    late = explained(rig.timeline.distribution)
    await rig.press("left")
    await rig.push([late, Ended("Explain")])
    assert rig.timeline.explanation() is None
    await tell(rig)
    assert rig.timeline.explanation().explained.node == rig.timeline.before


async def test_a_new_draw_of_the_same_place_is_asked_anew(rig: Rig) -> None:
    await rig.ready()
    await rig.press("w")
    await tell(rig)
    await rig.push([Resampled(replace(rig.timeline.next, reroll=1)), Ended("Reroll")])
    assert len(rig.engine.asked) == 2


async def test_older_steps_are_explained_with_the_settings_they_were_made_with(rig: Rig) -> None:
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


async def test_dropped_logits_are_said_in_the_panel_and_recalled_with_a_key(rig: Rig) -> None:
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


async def test_logits_that_are_dropped_again_at_once_are_not_recalled_for_ever(rig: Rig) -> None:
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


async def test_a_recall_can_be_stopped(rig: Rig) -> None:
    await rig.ready()
    await rig.press("w")
    await rig.push([Failure("Explain", "The logits were dropped.", ""), Ended("Explain")])
    await rig.press("ctrl+r", "escape")
    assert rig.engine.cancelled(rig.engine.sent[0])
    assert "sampler" in on_screen(rig)


async def test_the_prompt_asks_nothing(rig: Rig) -> None:
    await rig.ready()
    await rig.press("home", "home", "w")
    assert rig.engine.asked == []
    assert "part of the prompt" in rig.screen_text()


async def test_candidates_are_highlighted_and_taken_in_the_panel(rig: Rig) -> None:
    await rig.ready()
    await rig.press("w", "home", "down")
    wanted = rig.app.main.panel(CandidatesPanel).candidate.id
    await rig.press("enter")
    assert rig.engine.last(protocol.Choose) == protocol.Choose(rig.timeline.before, wanted)


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
            client.receive(Ended("Explain", cancelled=True), request.id)
            timeline.running = True
    assert len(engine.asked) == 3


def test_settings_are_in_force_with_the_distribution_that_they_give():
    """What is asked about that is asked with them, though the command that brought them has not ended."""
    made = Session()
    client = EngineClient(FakeEngine())
    for record in [*made.load(), *made.open(), made.step()]:
        client.receive(record)
    questions, bare = SamplerQueries(client, USED), Settings(min_tokens=10)
    for number, in_force in [(0, USED), (client.request(Configure(bare)).id, bare)]:
        client.receive(Resampled(made.tips[made.node]), number)
        assert questions.used(client.timeline) == in_force


# ---- what-if ----------------------------------------------------------------------------------


async def test_the_form_is_asked_for_before_it_is_made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the answers of a small model stand beside it when it is painted."""
    asked: list[list[type[protocol.Command]]] = []
    make = SamplingDialog.__init__

    def made(dialog: SamplingDialog, *args: object, **named: object) -> None:
        asked.append([type(each) for each in rig.engine.asked])
        make(dialog, *args, **named)  # type: ignore[arg-type]

    await rig.ready()
    monkeypatch.setattr(SamplingDialog, "__init__", made)
    await rig.press("s")
    assert asked == [[Explain, WhatIf]]


async def test_settings_are_tried_as_they_are_typed(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    assert on_screen(rig) == ["text", "sampler", "steps"]  # the dialog would lie over the others
    assert rig.engine.asked == [Explain(rig.timeline.before, USED), WhatIf(USED, rig.timeline.tip)]
    await rig.push([explained(rig.timeline.distribution), Ended("Explain")])
    await rig.push([answered(rig.timeline, []), Ended("WhatIf")])
    assert "0 of 6 steps would differ" in rig.screen_text()
    rig.engine.asked.clear()
    await rig.type_in("temp", "1.4")
    tried = replace(USED, temp=1.4)
    assert rig.engine.asked == [Explain(rig.timeline.before, tried), WhatIf(tried, rig.timeline.tip)]
    assert rig.engine.sent == []
    await rig.push([explained(rig.timeline.distribution, used=False), Ended("Explain")])
    await rig.push([answered(rig.timeline, [1, 3]), Ended("WhatIf")])
    assert "2 of 6 steps would differ" in rig.screen_text()
    assert "temperature 0.8 → 1.4" in rig.screen_text()
    assert "≠ ␣other" in rig.screen_text()


async def test_a_token_is_forbidden_by_its_text(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    await rig.push([Ended("Explain"), Ended("WhatIf")])
    await rig.type_in("logit_bias", '" cat"')
    asked = next(each for each in rig.engine.asked if isinstance(each, protocol.Tokenize))
    assert rig.app.top.query_one("#apply", Button).disabled
    await rig.push(
        [protocol.Tokenized(asked.text, (protocol.Piece(512, " cat", b" cat", False),)), Ended("Tokenize")]
    )
    await rig.press("ctrl+s")
    assert rig.app.controller.setup.settings.logit_bias == ((512, -100.0),)


async def test_what_nobody_typed_keeps_its_value_to_the_last_digit(rig: Rig) -> None:
    await rig.ready()
    exact = replace(USED, temp=0.12345678901234, stop=("a\nb", "c"))
    rig.app.controller.queries.try_out(rig.timeline, exact)
    await rig.press("s")
    assert (shown(rig, "temp"), shown(rig, "stop")) == ("0.123456789012", "a\\nb")
    assert rig.timeline.trial.settings == exact
    await rig.type_in("top_p", "0.5")
    assert rig.timeline.trial.settings == replace(exact, top_p=0.5)
    await rig.type_in("stop", "a")
    assert rig.timeline.trial.settings == replace(exact, top_p=0.5, stop=("a", "c"))


async def test_what_is_typed_wrong_is_not_tried(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    await rig.push([Ended("Explain"), Ended("WhatIf")])
    rig.engine.asked.clear()
    await rig.type_in("top_p", "7")
    assert {command.settings for command in rig.engine.asked} <= {USED}
    assert rig.status.startswith("top-p must be")
    assert rig.status.endswith("The preview shows the last valid values")
    await rig.press("down", "ctrl+s")
    assert isinstance(rig.app.top, SamplingDialog)
    assert rig.app.top.form.highlighted.setting.name == "top_p"
    await rig.type_in("top_p", "0.7")
    assert rig.status == "Preview: ⏎ applies from here on, esc discards"


async def test_while_an_answer_is_awaited_the_next_settings_wait_and_the_latest_wins(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    for value in ("1.1", "1.2", "1.3"):
        await rig.type_in("temp", value)
    assert len(rig.engine.asked) == 2
    assert all(rig.engine.cancelled(command) for command in rig.engine.asked)
    await rig.push([Ended("Explain", True), Ended("WhatIf", True)])
    assert [command.settings.temp for command in rig.engine.asked[2:]] == [1.3, 1.3]


async def test_steps_that_would_differ_are_marked_and_walked_to(rig: Rig) -> None:
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


async def test_discarding_restores_everything(rig: Rig) -> None:
    await rig.ready()
    before = on_screen(rig)
    await rig.press("left", "left")
    slot = rig.timeline.slot
    await rig.press("s")
    await rig.type_in("temp", "1.4")
    await rig.push([Ended("WhatIf", True)])
    await rig.push([answered(rig.timeline, [1, 3]), Ended("WhatIf")])
    await rig.press("pageup", "escape")
    assert rig.timeline.slot == slot
    assert rig.timeline.trial is None
    assert on_screen(rig) == before
    assert "≠" not in rig.screen_text()
    assert rig.engine.sent == []
    assert rig.app.controller.setup.settings == USED


async def test_applying_at_the_tip_goes_on_from_there(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    await rig.type_in("temp", "1.4")
    await rig.press("ctrl+s")
    assert rig.engine.sent == [Configure(replace(USED, temp=1.4))]
    assert rig.timeline.trial is None


async def test_applying_at_an_older_step_goes_back_to_before_it(rig: Rig) -> None:
    await rig.ready()
    await rig.press("left", "left", "s")
    before = rig.timeline.before
    await rig.type_in("temp", "1.4")
    await rig.press("ctrl+s")
    assert rig.engine.sent == [Configure(replace(USED, temp=1.4), before)]
    assert rig.timeline.following
    assert (
        rig.status
        == "The text continues from step 5: r runs. The old ending stays as a branch, which 4 t shows"
    )


async def test_applying_at_an_older_step_can_be_stopped_while_the_cache_moves(rig: Rig) -> None:
    await rig.ready()
    await rig.press("left", "left")
    before = rig.app.controller.queries.in_force
    rig.app.controller.setup.apply(replace(before, temp=0.5))
    rig.app.main.show()
    assert "Moving the KV cache. Press esc to stop it" in rig.status
    await rig.press("escape")
    sent = rig.engine.last(Configure)
    assert rig.engine.cancelled(sent)
    await rig.end("Configure", cancelled=True)
    assert rig.app.controller.setup.settings == before


async def test_another_prompt_keeps_settings_that_wait(rig: Rig) -> None:
    await rig.ready()
    controller = rig.app.controller
    controller.setup.configure(replace(controller.queries.in_force, temp=0.5))
    controller.setup.give(Prefill("y", False))
    assert not rig.engine.cancelled(rig.engine.last(Configure))
    controller.navigation.reroll()
    controller.client.stop()
    assert not rig.engine.cancelled(rig.engine.last(Configure))
    assert rig.engine.cancelled(rig.engine.last(Prefill))


async def test_applying_while_the_prompt_is_looked_at_stays_at_the_tip(rig: Rig) -> None:
    await rig.ready()
    await rig.press("home", "home", "s", "ctrl+s")
    assert rig.engine.sent == [Configure(USED)]


async def test_dropped_steps_are_counted_recalled_and_then_answered(rig: Rig) -> None:
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


async def test_a_question_that_fails_is_not_asked_for_ever(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    await rig.push([Ended("Explain")])
    await rig.push([Failure("WhatIf", "There is no token number 9.", ""), Ended("WhatIf")])
    asked = [command for command in rig.engine.asked if isinstance(command, WhatIf)]
    assert len(asked) == 1
    assert "asking" not in rig.screen_text()


@pytest.mark.screen(prompt="")
async def test_without_a_prompt_settings_are_set_and_nothing_is_asked(rig: Rig) -> None:
    await rig.push(rig.session.load())
    rig.engine.sent.clear()
    await rig.press("s")
    await rig.type_in("temp", "1.4")
    await rig.press("ctrl+s")
    assert rig.engine.names == ["Configure"]
    assert rig.engine.asked == []


async def test_settings_the_engine_refuses_are_not_kept(rig: Rig) -> None:
    await rig.ready()
    rig.app.controller.setup.configure(replace(USED, logit_bias=((4095, 1.0),)))
    await rig.push([Failure("Configure", "No.", ""), Ended("Configure")])
    assert rig.app.controller.setup.settings == rig.app.controller.queries.in_force == USED


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), pytest.param((80, 24), marks=pytest.mark.slow), (40, 12)])
async def test_every_field_comes_into_sight_with_the_keyboard(rig: Rig, size) -> None:
    await rig.ready()
    await rig.press("s")
    seen = []
    names = [field.name for title in GROUPS for field in grouped(FIELDS, title)]
    for _ in names:
        seen.append(rig.form.highlighted.setting.name)
        assert rig.app.screen.focused is rig.form.field
        body = rig.app.top.query_one("#dialog-body").content_region
        assert body.contains_region(rig.form.field.region), seen
        assert f"▌{rig.form.highlighted.setting.label}" in rig.screen_text()
        await rig.press("down")
    assert seen == names
    assert sorted(names) == sorted(BY_NAME[field.name].name for field in FIELDS)
    assert rig.form.highlighted.setting.label == "save as preset"


# ---- presets ----------------------------------------------------------------------------------


async def test_presets_are_gone_through_tried_and_taken_back(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s", "up")
    assert "▌preset " in rig.screen_text()
    await rig.press("right", "right", "right", "right", "right")
    assert shown(rig, "temp") == "1.5"
    assert shown(rig, "xtc_probability") == "0.5"
    assert rig.timeline.trial.settings.xtc_probability == 0.5
    await rig.press("right")
    assert shown(rig, "temp") == "0.8"
    assert shown(rig, "xtc_probability") == "0"
    await rig.press("left", "ctrl+s")
    assert rig.engine.sent[-1].settings == Presets().apply("wild", USED)


async def test_values_are_saved_under_a_name_and_deleted_when_asked_twice(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    await rig.type_in("temp", "0.55")
    await rig.type_in("preset_name", "mine")
    await rig.press("enter")
    assert "mine" in rig.form.rows["preset_name"].remark
    assert Presets().apply("mine", Settings()).temp == 0.55
    assert isinstance(rig.app.top, SamplingDialog)
    await rig.press("down")
    assert "▌preset " in rig.screen_text()
    assert "◉ mine" in rig.screen_text()
    await rig.press("delete")
    assert "Press delete again to delete mine." in rig.screen_text()
    assert "mine" in Presets().names
    await rig.press("delete")
    assert "mine" not in Presets().names
    assert shown(rig, "temp") == "0.55"


async def test_a_preset_of_the_program_is_not_deleted_and_a_bad_name_is_told(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s", "up", "right", "delete")
    assert "comes with the program" in rig.screen_text()
    await rig.type_in("preset_name", HOSTILE[2] + "x" * 60)
    await rig.press("enter")
    assert "1 to 40 printable" in rig.screen_text()
    assert "\x1b" not in rig.screen_text()


async def test_a_damaged_file_is_told_in_the_dialog(rig: Rig, config) -> None:
    config.mkdir()
    (config / "presets.json").write_text("{ \x1b[31m")

    await rig.ready()
    await rig.press("s")
    said = rig.form.rows["preset"].remark
    assert "can't be read" in said
    assert said.rpartition(" ")[2] in rig.screen_text()


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
    assert engine.sent == [Reroll(node=before), TakeStep()]
    records = [made.move(before), Ended("Reroll")]
    records.append(made.step(controller.timeline.tree.nodes[before].next.candidates[3].id, "sampled"))
    for record in [*records, Ended("TakeStep")]:
        take_in(controller.client, record)
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


# ---- settings tried in a recording -----------------------------------------------------------


RECORDED = Settings(temp=0.9, top_p=0.95, seed=7, max_tokens=30, repetition_penalty=1.1, candidates=8)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Path]:
    """Thirty steps of the pocket model with their rows, and the file that they were saved to."""
    recording = Recording(LoadSettings(record_logits=True))
    recording.do(protocol.Configure(RECORDED))
    recording.do(protocol.Prefill("Once upon a time", chat=False))
    recording.do(protocol.Run())
    path = tmp_path_factory.mktemp("rows") / "rows.trace.zst"
    save_as(path, recording.entries, "test")
    return recording, path


@pytest.fixture
def path(live: tuple[Recording, Path], tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The file of the recording; by the parameter without the rows of some steps, or without any."""
    recording, whole = live
    if not hasattr(request, "param"):
        return whole
    lacks = None if request.param is None else {step.parent for step in recording.steps[request.param]}
    rest = [
        entry
        for entry in recording.entries
        if not isinstance(entry.value, LogitsRow) or (lacks is not None and entry.value.node not in lacks)
    ]
    save_as(tmp_path / "part.trace", rest, "test")
    return tmp_path / "part.trace"


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_settings_are_tried_and_mark_the_steps_that_would_differ(
    replay: Rig, live: tuple[Recording, Path], path: Path, size: tuple[int, int]
) -> None:
    recording, _ = live
    other = replace(RECORDED, temp=1.7)
    expected = recording.ask(protocol.WhatIf(other, recording.steps[-1].node))
    assert isinstance(expected, WhatIfAnswered)
    differing = sum(not step.same for step in expected.steps)
    assert differing

    await replay.press("s")
    await replay.until(lambda: replay.timeline.trial and replay.timeline.trial.answered is not None)
    assert trial_summary(replay.timeline) == "0 of 30 steps would differ"
    await replay.type_in("temp", "1.7")
    await replay.until(
        lambda: replay.timeline.trial.settings.temp == 1.7 and replay.timeline.trial.answered is not None
    )
    await replay.until(lambda: trial_summary(replay.timeline) == f"{differing} of 30 steps would differ")
    assert replay.timeline.trial.answers == {step.node: step for step in expected.steps}
    await replay.press("pageup")
    step = replay.timeline.selected
    told = recording.ask(protocol.Explain(step.parent, other))
    await replay.until(lambda: (said := replay.timeline.explanation()) and said.explained == told)
    await replay.press("ctrl+s")
    assert replay.status == with_keys(TRIED)
    assert replay.timeline.trial is None
    assert replay.app.controller.queries.in_force == RECORDED

    assert not replay.engine.sent
    assert not replay.engine.asked


async def test_the_stages_show_raw_logits(replay: Rig, live: tuple[Recording, Path]) -> None:
    recording, _ = live

    await replay.press("w", "left", "left")
    step = replay.timeline.selected
    told = recording.ask(protocol.Explain(step.parent, RECORDED))
    assert isinstance(told, protocol.Explained)
    await replay.until(lambda: (said := replay.timeline.explanation()) and said.explained == told)
    await replay.until(lambda: f"{told.logits[0]:.2f}" in replay.screen_text())


async def test_the_whole_vocabulary_is_searched(
    replay: Rig, live: tuple[Recording, Path], path: Path
) -> None:
    recording, _ = live
    found = recording.ask(protocol.FindTokens(recording.steps[-1].node, " drag", 100))
    assert isinstance(found, TokensFound)
    shown: tuple[Candidate, ...] = recording.steps[-1].next.candidates
    assert {match.id for match in found.matches} - {candidate.id for candidate in shown}

    await replay.press("slash")
    replay.app.top.query_one("#find-query", Input).value = " drag"
    await replay.until(lambda: replay.app.top.choices == found.matches)


@pytest.mark.parametrize("path", [None], indirect=True)
async def test_without_rows_settings_are_refused_and_the_rest_is_as_it_was(replay: Rig, path: Path) -> None:
    await replay.press("s")
    assert replay.status == with_keys(REFUSED)
    await replay.press("w")
    await replay.until(lambda: replay.timeline.explanation() is not None)
    assert replay.timeline.explanation().failure.message == "The sampler's stages were not recorded here."
    await replay.until(lambda: "were not recorded here. G continues" in replay.screen_text())


@pytest.mark.parametrize("path", [slice(3, 7)], indirect=True)
async def test_steps_without_a_row_are_said_to_be_not_recorded(replay: Rig, path: Path) -> None:
    await replay.press("s")
    await replay.until(lambda: replay.timeline.trial and replay.timeline.trial.answered is not None)
    told = "0 of 26 steps would differ; 4 can't be answered: their logits were not recorded"
    assert trial_summary(replay.timeline) == told


# ---- the temperature turned in a recording ---------------------------------------------------


async def test_the_temperature_is_turned_where_the_logits_were_recorded(
    replay: Rig, live: tuple[Recording, Path]
) -> None:
    recording, _ = live

    await replay.press("w", "left", "left", "minus", "minus", "plus")
    step = replay.timeline.selected
    told = recording.ask(protocol.Explain(step.parent, replace(RECORDED, temp=0.85)))
    assert isinstance(told, protocol.Explained)
    await replay.until(lambda: replay.timeline.tried == told.next)
    await replay.until(lambda: "T 0.90 → 0.85  esc discards  G continues live" in replay.screen_text())
    assert replay.status == "Preview of other settings on the recording. Esc discards it"
    assert "⏎ apply" not in replay.screen_text()
    await replay.press("enter")
    assert replay.status == with_keys(TRIED)
    assert replay.timeline.trial is None
    await replay.press("minus")
    await replay.until(lambda: replay.timeline.tried is not None)
    await replay.press("escape")
    assert replay.timeline.trial is None
    assert replay.app.controller.queries.in_force == replay.app.controller.setup.settings == RECORDED
    assert not replay.engine.sent


@pytest.mark.wide(1)
@pytest.mark.parametrize("path", [None, slice(3, 7)], indirect=True)
async def test_a_token_whose_logits_were_not_recorded_is_not_turned(replay: Rig, path: Path) -> None:
    await replay.press("w")
    replay.timeline.select(replay.timeline.step_slots[4])
    replay.app.main.changed()
    await replay.press("minus")
    assert replay.status == with_keys(NO_ROW)
    assert replay.timeline.trial is None


@pytest.mark.parametrize("path", [slice(3, 7)], indirect=True)
async def test_a_turn_that_comes_to_such_a_token_says_so(replay: Rig, path: Path) -> None:
    await replay.press("w")
    replay.timeline.select(replay.timeline.step_slots[7])
    replay.app.main.changed()
    await replay.press("minus")
    await replay.until(lambda: replay.timeline.tried is not None)
    await replay.press("left")
    await replay.until(lambda: "T 0.90 → 0.85  not recorded here  esc discards" in replay.screen_text())


async def test_while_a_recording_plays_the_keys_are_its_pace(replay: Rig) -> None:
    player = replay.app.playback.player
    await replay.press("minus", "minus")
    slow = player.speed
    assert slow < 1
    await replay.press("w", "minus")
    assert replay.timeline.trial is not None
    assert player.speed == slow
    await replay.press("r", "plus")
    assert player.speed > slow
    assert replay.timeline.trial is None


async def test_a_form_that_is_open_while_the_model_loads_takes_its_settings(rig: Rig) -> None:
    rig.app.controller.setup.given = set()
    await rig.press("s")
    await rig.type_in("temp", "1.4")
    await rig.push(rig.session.load(sampling=(("top_p", 0.5), ("temp", 0.3))))
    assert (rig.form.rows["top_p"].text, rig.form.rows["temp"].text) == ("0.5", "1.4")
    await rig.press("escape")
    assert rig.app.controller.setup.settings.temp == 0.3


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_the_field_stands_in_the_highlighted_row(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    await rig.press("s")
    form = rig.form
    for _ in form.rows:
        await rig.press("down")
        if form.field.display:
            lines = rig.screen_text().splitlines()
            row = next(line for line in lines if f"▌{form.highlighted.setting.label} " in line)
            assert lines.index(row) == form.field.region.y
