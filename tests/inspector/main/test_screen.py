"""The main screen: keys, messages of panels, arrangement and status, on a fake engine."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from textual.app import App
from textual.dom import DOMNode
from textual.widget import Widget

from engine import protocol
from engine.protocol import Ended, Failure, Loading, Verified
from engine.settings import LoadSettings, Settings
from engine.thread import WITHOUT_MLX
from inspector.app import InspectorApp
from inspector.main.dialogs.finder import FinderDialog
from inspector.main.key_table import PANELS
from inspector.main.layout import Arrangement, Layout, layout_for
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import TextPanel
from inspector.main.panels.timing import TimingPanel
from inspector.main.screen import MainScreen
from inspector.main.tool import CandidateChosen, SlotSelected
from inspector.widgets.canvas import why_empty
from tests.inspector.fakes import HOSTILE, TORN, Session
from tests.inspector.rig import FakeEngine, Rig, run

SIZES = [(160, 50), (120, 40), (120, 24), (80, 24), (100, 16), (60, 30), (40, 12)]


def shown(rig: Rig) -> list[str]:
    return [panel.id for panel in rig.app.main.query("#panels > .panel") if panel.display]


# ---- step and run -----------------------------------------------------------------------------


async def test_space_steps_at_the_tip(rig: Rig) -> None:
    await rig.ready()
    assert rig.status.startswith("Space or ⏎ takes “␣")
    await rig.press("space", "space")
    assert rig.engine.sent == [protocol.TakeStep(), protocol.TakeStep()]


async def test_a_step_is_shown_once_when_it_comes_and_as_under_way_when_it_is_long(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.ready()
    shows: list[int] = []
    monkeypatch.setattr(MainScreen, "show", lambda self, show=MainScreen.show: (shows.append(1), show(self)))
    await rig.app.main.do("step")  # without a wait between the key and the step
    await rig.push([*rig.session.steps(1), Ended("TakeStep")])
    assert len(shows) == 1
    await rig.app.main.do("step")
    await rig.until(lambda: len(shows) > 1)
    await rig.push([*rig.session.steps(1), Ended("TakeStep")])
    assert len(shows) == 3


async def test_r_runs_and_space_and_escape_and_r_pause(rig: Rig) -> None:
    await rig.ready()
    for pause in ("space", "escape", "r"):
        await rig.press("r")
        assert rig.status == "Running at full pace. Press space to pause, + or - for the pace"
        command = rig.engine.last(protocol.Run)
        assert not rig.engine.cancelled(command)
        await rig.press(pause)
        assert rig.engine.cancelled(command), pause
        await rig.end("Run", cancelled=True)
    assert rig.engine.names == ["Run"] * 3


async def test_the_pace_is_told_and_used(rig: Rig) -> None:
    await rig.ready()
    await rig.press("minus", "minus")
    assert rig.status == "Pace: 10 steps a second"
    await rig.press("r")
    assert rig.engine.last(protocol.Run).pace == 10
    assert rig.status.startswith("Running at 10 steps a second")
    await rig.press("equals_sign")
    assert rig.engine.last(protocol.Run).pace == 20


async def test_tokens_of_a_run_arrive_while_an_older_one_is_looked_at(rig: Rig) -> None:
    await rig.ready()
    await rig.press("r", "left", "left")
    slot = rig.timeline.slot
    await rig.push(rig.session.steps(5))
    assert rig.timeline.slot == slot
    await rig.press("end")
    assert rig.timeline.following


# ---- look around ------------------------------------------------------------------------------


async def test_looking_around_never_asks_the_engine(rig: Rig) -> None:
    await rig.ready(steps=30)
    tip = len(rig.timeline.items)
    walk = (("left", tip - 1), ("pageup", tip - 11), ("pagedown", tip - 1), ("home", 5), ("home", 0),
            ("right", 1), ("end", tip), ("right", tip))  # fmt: skip
    for key, slot in walk:
        await rig.press(key)
        assert rig.timeline.slot == slot, key
    assert rig.engine.sent == []


async def test_the_status_tells_where_the_person_looks(rig: Rig) -> None:
    await rig.ready()
    await rig.press("left")
    assert rig.status == "Step 6. ↑↓ and ⏎ take another token here. End returns to the last token"
    await rig.press("home", "home")
    assert rig.status.startswith("Prompt token 1")


async def test_clicked_tokens_are_selected(rig: Rig) -> None:
    await rig.ready()
    rig.app.main.panel(TextPanel).post_message(SlotSelected(2))
    await rig.pilot.pause()
    assert rig.timeline.slot == 2
    rig.app.main.panel(StepsPanel).post_message(SlotSelected(7))
    await rig.pilot.pause()
    assert rig.timeline.slot == 7
    assert rig.engine.sent == []


async def test_the_metric_is_shared_and_told(rig: Rig) -> None:
    await rig.ready()
    main = rig.app.main
    seen = set()
    for _ in range(6):
        await rig.press("m")
        assert main.panel(TextPanel).metric == main.panel(StepsPanel).metric
        assert rig.status in ("Colour off", f"Colour by {main.panel(TextPanel).metric}")
        seen.add(main.panel(TextPanel).metric)
    assert seen == {"off", "probability", "surprisal", "entropy", "rank", "segment"}
    await rig.press("m", "M")
    assert main.panel(TextPanel).metric == "surprisal"


# ---- branch -----------------------------------------------------------------------------------


async def test_a_clicked_candidate_is_chosen_where_the_person_looks(rig: Rig) -> None:
    await rig.ready()
    await rig.press("left", "left")
    other = next(c.id for c in rig.timeline.candidates if c.id != rig.timeline.selected.id)
    rig.app.main.panel(CandidatesPanel).post_message(CandidateChosen(other))
    await rig.pilot.pause()
    assert rig.engine.sent == [protocol.Choose(rig.timeline.before, other)]


async def test_backspace_takes_back_only_what_was_generated(rig: Rig) -> None:
    await rig.ready(steps=1)
    parent = rig.timeline.items[-2].node
    await rig.press("backspace", "backspace")
    assert rig.engine.sent == [protocol.MoveTo(parent)]
    assert rig.status.startswith("Nothing to take back")


async def test_brackets_go_between_branches_or_say_there_are_none(rig: Rig) -> None:
    await rig.ready(steps=4)
    await rig.press("right_square_bracket")
    assert rig.status.startswith("No other branch here")
    tip, node = rig.timeline.tip, rig.timeline.items[-2].node
    other = rig.timeline.items[-1].choice.candidates[-1].id
    await rig.push(rig.session.choose(node, other))
    await rig.press("left_square_bracket")
    assert rig.engine.sent == [protocol.MoveTo(tip)]


async def test_d_draws_again_and_v_verifies(rig: Rig) -> None:
    await rig.ready()
    await rig.press("d", "v")
    assert rig.engine.names == ["Reroll", "Verify"]
    await rig.end("Reroll")
    assert rig.status.startswith("Recomputing the path")
    await rig.push([Verified(11, 11, 0.0, True, 84.0)])
    await rig.end("Verify")
    assert "11 tokens recomputed without the cache in 84 ms" in told(rig)


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("difference", "same", "rounding", "title", "says"),
    [
        (0.0, True, 4e-5, "Verified:", "logit: 0. The ten most probable tokens come in the same order"),
        (1e-5, True, 4e-5, "Verified:", "logit: 1e-05. Rounding explains up to 4e-05"),
        (0.5, True, 4e-5, "Verified: the results differ:", "logit: 0.5. Rounding explains up to 4e-05"),
        (
            1e-5,
            False,
            4e-5,
            "Verified: the results differ:",
            "The ten most probable tokens come in another order",
        ),
        (0.1, True, 0.0, "Verified:", "logit: 0.1. The ten most probable tokens"),  # an older recording
    ],
)
async def test_a_verification_says_what_rounding_explains(
    rig: Rig, difference, same, rounding, title, says
) -> None:
    await rig.ready()
    await rig.press("v")
    await rig.push([Verified(11, 11, difference, same, 84.0, rounding)])
    await rig.end("Verify")
    assert title in told(rig)
    assert says in told(rig)


def told(rig: Rig) -> str:
    return "\n".join(f"{note.title}: {note.message}" for note in rig.app._notifications)


# ---- phases -----------------------------------------------------------------------------------


async def test_while_loading_the_prompt_is_there_and_the_keys_that_mean_nothing_are_grey(rig: Rig) -> None:
    assert "Once upon a time," in rig.screen_text()
    await rig.push(rig.session.load()[:1])
    assert "reading the weights" in rig.screen_text()
    assert rig.status.startswith("Loading the model")
    await rig.press("space", "r", "enter", "backspace", "v", "d", "g", "left", "i")
    assert rig.engine.names == ["Load"]
    assert rig.app.top is rig.app.main
    for key in ("space", "r"):
        await rig.press(key)
        assert rig.status == f"The model is still loading: {key} works once the prompt has gone through it"


async def test_a_model_that_will_swap_is_warned_of_while_it_loads(rig: Rig) -> None:
    await rig.push([Loading("weights", 1, 64, "", "The weights take [40] GiB.")])
    assert "The weights take [40] GiB." in rig.screen_text()
    assert "3 o opens another model" in rig.screen_text()
    await rig.push(rig.session.load())
    assert "[40] GiB" not in rig.screen_text()


async def test_a_model_that_cannot_be_loaded_is_told_where_the_text_would_be(rig: Rig) -> None:
    await rig.fail_to_load("No [/such] model \x1b[31m.", "Check the path.")
    text = rig.screen_text()
    assert "No [/such] model ␛[31m." in text
    assert "Check the path." in text
    assert "3 o opens another model" in text
    assert "start with another" not in text, "no other panel says otherwise"
    assert rig.status == "No model. Press 3 o to open another, q to quit"
    assert told(rig) == ""


async def test_without_mlx_the_screen_names_what_needs_none(rig: Rig) -> None:
    await rig.fail_to_load("MLX can't be started: no.", f"Install it. {WITHOUT_MLX}")
    text = rig.screen_text()
    assert "inspector replay" in text
    assert "inspector learn" in text
    assert "ctrl+o shows a saved session" in text
    assert "3 o opens another model" not in text
    assert rig.status == "No MLX. Press ctrl+o to see a saved session, q to quit"


@pytest.mark.screen(size=(80, 24))
async def test_a_second_model_that_cannot_be_loaded_is_told_once_and_whole_at_any_size(rig: Rig) -> None:
    await rig.ready()
    await rig.fail_to_load("No such directory: ./nope.", "Check the path's spelling.")
    text = rig.screen_text()
    for part in (
        "No such directory: ./nope.",
        "Check the path's spelling.",
        "3 o opens another model",
        "q quits",
    ):
        assert part in text, part
    assert told(rig) == ""


async def test_a_fault_while_loading_names_the_log(rig: Rig, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("inspector.places.log", lambda: tmp_path / "inspector.log")

    await rig.push([Failure("Load", "KeyError: 3", "Report it.", False, "Traceback ...")])
    assert str(tmp_path) in told(rig)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_a_first_prompt_that_is_refused_is_told_in_the_place_of_the_text_and_in_the_panels(
    rig: Rig, size
) -> None:
    why = "The prompt has 600 tokens, [the] model's \x1b[31mwindow holds 512."
    await rig.push([*rig.session.load(), Ended("Configure")])
    await rig.push([rig.session.fail(why, "Shorten it.", "Prefill"), Ended("Prefill")])
    text = " ".join(rig.screen_text().replace("│", " ").replace("\n", " ").split())
    assert "The prompt was refused" in text
    assert "Shorten it." in text
    assert "p changes it" in text
    assert rig.status == "The prompt was refused. Press p to change it"
    assert told(rig) == ""
    if size[0] >= 80:
        assert (
            why_empty(rig.timeline, "")[0]
            == "The prompt has 600 tokens, [the] model's ␛[31mwindow holds 512."
        )
        assert text.count("[the]") > 1
    await rig.press("space")
    assert rig.status == "The prompt was refused. Press p to change it"
    await rig.push(rig.session.open())
    assert "refused" not in rig.screen_text() + rig.status


@pytest.mark.screen(prompt="")
async def test_a_model_without_a_prompt_asks_for_one(rig: Rig) -> None:
    await rig.push(rig.session.load())
    assert rig.engine.names == ["Load", "Configure"]
    assert "Press p to give one" in rig.screen_text()


async def test_prefill_is_told_and_can_be_stopped(rig: Rig) -> None:
    await rig.push(rig.session.load())
    await rig.end("Configure")
    opened = rig.session.begin()
    rig.session.chunk(opened, 3)
    await rig.push(rig.session.records[-2:])
    assert rig.status == "Prefill 3 of 5 tokens. Press esc to stop it, + or - for larger or smaller chunks"
    await rig.press("escape")
    assert rig.engine.cancelled(rig.engine.last(protocol.Prefill))
    await rig.end("Prefill", cancelled=True)
    assert rig.status == "Prefill stopped at 3 of 5 tokens. Press space to continue, p for another prompt"
    await rig.press("minus")
    assert "GoOnPrefill" not in rig.engine.names
    await rig.press("space")
    assert rig.engine.last(protocol.GoOnPrefill).step_size == 1
    await rig.press("plus")
    first, second = (each for each in rig.engine.sent if isinstance(each, protocol.GoOnPrefill))
    assert rig.engine.cancelled(first)
    assert (second.step_size, rig.engine.cancelled(second)) == (2, False)
    assert rig.app.main.status.left.startswith("Prefill 3 of 5 tokens in chunks of 2. Press esc to stop it")


async def test_a_long_prefill_tells_the_time_that_is_left(rig: Rig) -> None:
    await rig.push(rig.session.load())
    await rig.end("Configure")
    opened = rig.session.begin(["a"] * 100)
    await rig.push([opened, *(rig.session.chunk(opened, done, 133) for done in (10, 20, 30))])
    assert rig.status.startswith("Prefill 30 of 100 tokens, about 7 s left. Press esc to stop it")


async def test_a_finish_is_told_and_can_be_passed(rig: Rig) -> None:
    await rig.ready()
    await rig.push([rig.session.finish("eos", "<|im_end|>\x1b")])
    assert rig.status == "The model ended the text (<|im_end|>␛). Space or r continues"
    await rig.press("space")
    assert rig.engine.names == ["TakeStep"]


async def test_failures_are_notices_and_the_screen_lives_on(rig: Rig) -> None:
    await rig.ready()
    await rig.push([Failure("Prefill", "The prompt has 900 [/] tokens.\x1b", "The window holds 512.")])
    assert told(rig) == "Reading the prompt failed: The prompt has 900 [/] tokens.␛\nThe window holds 512."
    await rig.press("space")
    assert rig.engine.names == ["TakeStep"]


def test_a_fault_of_the_program_is_kept_in_a_log(monkeypatch, tmp_path):
    log = tmp_path / "state" / "inspector.log"
    monkeypatch.setattr("inspector.places.log", lambda: log)

    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.push(
            [Failure("TakeStep", "KeyError: 3", "Report it.", False, "Traceback ...\nKeyError: 3")]
        )
        assert "A fault of the program" in told(rig)
        assert str(log) in told(rig)

    run(test, size=(100, 30))
    assert "KeyError: 3" in log.read_text()


# ---- arrangement ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "layout"),
    [
        ((120, 40), Layout.GRID),
        ((100, 18), Layout.GRID),
        ((99, 40), Layout.STACK),
        ((80, 24), Layout.STACK),
        ((40, 18), Layout.STACK),
        ((200, 17), Layout.BESIDE),
        ((80, 17), Layout.BESIDE),
        ((79, 17), Layout.SINGLE),
        ((40, 12), Layout.SINGLE),
        ((39, 12), Layout.TINY),
        ((40, 9), Layout.TINY),
    ],
)
def test_the_size_decides_the_arrangement(size, layout):
    assert layout_for(*size) is layout
    assert layout_for(*size, enlarged=True) is (Layout.TINY if layout is Layout.TINY else Layout.SINGLE)


def test_the_text_stays_in_sight_beside_every_answer():
    for layout in (Layout.GRID, Layout.STACK, Layout.BESIDE):
        for panel in PANELS:
            arrangement = Arrangement(PANELS)
            arrangement.go(panel.id, layout)
            seen = arrangement.shown(layout, arrangement.answer, tall=True)
            assert {"text", panel.id} <= seen
            arrangement.go("text", layout)
            assert arrangement.shown(layout, arrangement.answer, tall=True) == seen


def test_kv_cache_and_time_have_room_for_more_than_a_line_under_the_candidates_alone():
    arrangement = Arrangement(PANELS)
    under = {"kv", "timing"}
    assert arrangement.lines(Layout.GRID, "candidates", covered=False) == set()
    assert arrangement.lines(Layout.GRID, "candidates", covered=True) == under
    assert arrangement.lines(Layout.GRID, "learn", covered=False) == under
    assert arrangement.lines(Layout.STACK, "candidates", covered=False) == under
    assert arrangement.lines(Layout.STACK, "kv", covered=False) == {"timing"}
    assert arrangement.lines(Layout.BESIDE, "candidates", covered=False) == set()


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("size", "theme"),
    [*((size, "textual-dark") for size in SIZES), ((120, 40), "textual-light"), ((40, 12), "textual-light")],
)
async def test_every_size_and_theme_draws_hostile_text_harmlessly(rig: Rig, size, theme) -> None:
    rig.session = Session(story=(*HOSTILE, *TORN))
    rig.app.theme = theme
    await rig.ready(steps=24)
    for key in ("1", "tab", "2", "4", "5", "tab", "6", "3", "escape", "1", "left", "m"):
        await rig.press(key)
        text = rig.screen_text()
        assert not any(char in text for char in "\x1b\x9b\x00\x7f\u202e\u200b\u200d\ud83d\U000e0041")
        assert all(cell_len(line) <= size[0] for line in text.split("\n"))


@pytest.mark.screen(size=(40, 12))
async def test_narrow_screens_show_one_panel_and_tab_goes_on(rig: Rig) -> None:
    await rig.ready()
    assert shown(rig) == ["text"]
    assert rig.app.main.status.right == "Text"
    await rig.press("tab")
    assert shown(rig) == ["candidates"]
    assert rig.app.main.status.right == "Next token"
    assert rig.app.focused is rig.app.main.panel(CandidatesPanel)
    await rig.press("shift+tab")
    assert shown(rig) == ["text"]
    await rig.press("1")
    assert shown(rig) == ["candidates"]


@pytest.mark.screen(size=(80, 24))
async def test_normal_screens_have_an_answer_between_the_text_and_two_lines(rig: Rig) -> None:
    await rig.ready()
    assert shown(rig) == ["text", "candidates", "kv", "timing"]
    assert [rig.app.main.query_one(f"#{id}").region.height for id in ("kv", "timing")] == [1, 1]
    await rig.press("5")
    assert shown(rig) == ["text", "kv", "timing"]
    assert rig.app.main.query_one("#kv").region.height > 3
    await rig.do("steps")
    assert shown(rig) == ["text", "steps", "kv", "timing"]


@pytest.mark.screen(size=(80, 36))
async def test_tall_screens_have_the_steps_under_the_answer(rig: Rig) -> None:
    await rig.ready()
    assert shown(rig) == ["text", "candidates", "steps", "kv", "timing"]
    await rig.do("steps")
    assert shown(rig) == ["text", "steps", "kv", "timing"]


async def test_a_panel_is_enlarged_and_brought_back(rig: Rig) -> None:
    await rig.ready()
    await rig.do("steps")
    await rig.press("f")
    assert shown(rig) == ["steps"]
    await rig.press("escape")
    assert len(shown(rig)) == 5


async def test_a_path_that_became_shorter_while_the_text_was_hidden_is_drawn_as_it_is(rig: Rig) -> None:
    await rig.ready(steps=20)
    await rig.do("steps")
    await rig.press("f")
    assert shown(rig) == ["steps"]
    node = rig.timeline.items[7].node
    await rig.push([rig.session.move(node)])
    await rig.press("f")
    assert "there was a" in rig.screen_text()
    assert "Lily" not in str(rig.app.main.panel(TextPanel).render_line(0).text)


@pytest.mark.screen(size=(38, 9))
async def test_a_terminal_that_is_too_small_is_told_so(rig: Rig) -> None:
    await rig.ready()
    assert "too small" in rig.screen_text()
    await rig.pilot.resize_terminal(120, 40)
    await rig.pilot.pause()
    assert "too small" not in rig.screen_text()
    assert len(shown(rig)) == 5


# ---- finder, theme ----------------------------------------------------------------------------


async def test_the_finder_opens_while_the_one_before_is_going(rig: Rig) -> None:
    await rig.ready()
    for _ in range(3):
        rig.app.action_command_palette()
        finder = rig.app.top
        assert isinstance(finder, FinderDialog)
        await rig.until(lambda finder=finder: finder.query("PickList"))
        finder.dismiss()
    rig.app.action_command_palette()
    await rig.until(lambda: isinstance(rig.app.top, FinderDialog) and rig.app.screen.query("PickList"))


async def test_the_finder_finds_actions_by_name(rig: Rig) -> None:
    await rig.ready()
    await rig.from_finder("verify", "Verify")
    await rig.until(lambda: rig.engine.names == ["Verify"])


async def test_the_theme_goes_to_light_and_back(rig: Rig) -> None:
    await rig.press("T")
    assert not rig.app.current_theme.dark
    await rig.press("T")
    assert rig.app.current_theme.dark


async def test_a_key_on_the_last_line_can_be_clicked(rig: Rig) -> None:
    await rig.ready()
    await rig.pilot.click("#keyline", offset=(2, 0))
    assert rig.engine.names == ["TakeStep"]


@pytest.mark.screen(settings=Settings(temp=0.5))
async def test_settings_are_configured_during_a_run(rig: Rig) -> None:
    await rig.ready()
    await rig.press("r", "s", "1", "enter")
    assert rig.engine.names == ["Run", "Configure", "Run"]
    assert rig.engine.last(protocol.Configure).settings.temp == 1


# ---- the line of keys ------------------------------------------------------------------------


async def test_the_line_of_keys_has_those_of_what_is_on_top(rig: Rig) -> None:
    await rig.ready()

    def last() -> str:
        return rig.screen_text().splitlines()[-1].strip()

    before = last()
    assert "space step" in before
    for keys, words in (
        (
            ("s",),
            "↑↓ field  shift+↑↓ token  pgup pgdn difference  ctrl+r recompute  ⏎ apply  esc discard  ctrl+p find",
        ),
        (("g",), "ctrl+s jump  esc cancel  ctrl+p find"),
        (("question_mark",), "←→ other page  ↑↓ scroll  ⏎ open  / filter  esc close  ctrl+p find"),
        (("ctrl+p",), "↑↓ choose  ⏎ do it  esc cancel"),
    ):
        await rig.press(*keys)
        assert last() == words
        await rig.press("escape")
        assert last() == before


async def test_the_line_of_keys_of_a_tool_has_those_of_its_help(rig: Rig) -> None:
    await rig.ready()
    await rig.press("z")
    assert "length" in rig.screen_text().splitlines()[-1]
    await rig.press("question_mark")
    assert "←→ other page  ↑↓ scroll  ⏎ open  / filter  esc close" in rig.screen_text().splitlines()[-1]
    assert "In a race" in rig.screen_text()
    assert "Take back" not in rig.screen_text()
    await rig.press("escape")
    assert "length" in rig.screen_text().splitlines()[-1]


async def test_the_status_says_what_space_and_enter_would_take(rig: Rig) -> None:
    rig.session = Session(seed=1)
    await rig.ready()
    first, second = (f"“␣{candidate.text.strip()}”" for candidate in rig.timeline.candidates[:2])
    assert rig.status == f"Space or ⏎ takes {first}. ↑↓ choose another; r runs"
    await rig.press("down")
    assert rig.status == f"Space takes {first}, ⏎ takes {second} instead; r runs"
    rig.app.main.panel(CandidatesPanel).highlight(rig.timeline.candidates[0].id)
    await rig.pilot.pause()
    assert rig.status.startswith(f"Space or ⏎ takes {first}")
    await rig.press("left", "down")
    below = rig.app.main.candidate
    assert (
        rig.status == f"Step 6. ⏎ branches here with “␣{below.text.strip()}”. End returns to the last token"
    )


async def test_a_run_behind_the_end_of_the_text_says_so(rig: Rig) -> None:
    await rig.ready(steps=3)
    await rig.push([rig.session.finish("eos", "<|im_end|>")])
    await rig.press("r")
    assert rig.status.startswith("This run began behind <|im_end|>, which ended the text")


async def test_a_run_behind_max_tokens_says_nothing_of_an_end(rig: Rig) -> None:
    await rig.ready(steps=3)
    await rig.push([rig.session.finish("length", "3 tokens")])
    await rig.press("r")
    assert "has ended" not in rig.status


async def test_another_candidate_has_the_candidates_drawn_alone(rig: Rig) -> None:
    await rig.ready()
    drawn: list[str] = []
    for panel in (rig.app.main, *map(rig.app.main.query_one, (KVPanel, TimingPanel, CandidatesPanel))):
        name = "show" if panel is rig.app.main else "draw"
        counted(panel, name, drawn)

    def marked() -> list[int]:
        return [place for place, line in enumerate(rig.screen_text().splitlines()) if "││ ▌" in line]

    before, [row] = rig.status, marked()
    await rig.press("down")
    assert drawn == ["CandidatesPanel"]
    assert rig.status != before
    assert marked() == [row + 1]
    drawn.clear()
    await rig.push([rig.session.step()])
    assert {"KVPanel", "TimingPanel"} <= set(drawn)
    drawn.clear()
    await rig.press("left")
    assert {"KVPanel", "TimingPanel"} <= set(drawn)


def counted(panel: Widget, name: str, calls: list[str]) -> None:
    """Keep the calls of a method."""
    does = getattr(panel, name)

    def call(*values: object) -> object:
        calls.append(type(panel).__name__)
        return does(*values)

    setattr(panel, name, call)


# ---- the first layout --------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12), (30, 8)])
async def test_the_styles_of_all_widgets_are_computed_once(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one's when it is mounted; not again for the screen's size, for how its panels are arranged, or when that is
    shown."""
    computed: list[frozenset[str]] = []
    update = App.update_styles

    def counted(app: App[int], node: DOMNode, animate: bool = True) -> None:
        if isinstance(node, MainScreen):
            computed.append(node.classes)
        update(app, node, animate)

    monkeypatch.setattr(App, "update_styles", counted)

    app = InspectorApp(LoadSettings(), Settings(), engine=FakeEngine())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert app.main.classes
        assert not computed


async def test_a_prompt_that_was_sent_is_not_asked_for(rig: Rig) -> None:
    """The model is there, and its prompt has not begun."""
    await rig.push([next(record for record in rig.session.load() if isinstance(record, protocol.ModelFacts))])
    assert rig.engine.names[-1] == "Prefill"
    assert "The prompt is about to go through the model" in rig.status
    await rig.press("space")
    assert rig.status == "The prompt is still going through the model: space works after it"
