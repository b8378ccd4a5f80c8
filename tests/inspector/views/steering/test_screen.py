"""Steering on the screen: no direction yet, made, turned live, held, saved, other scopes, a replay, a real model."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.protocol import (
    Direction,
    Ended,
    Failure,
    Floats,
    HoldInterventions,
    Intervene,
    Intervention,
    InterventionsHeld,
    Loading,
    MakeDirection,
    Measuring,
    Prefill,
    SteeredStrength,
    SweepStrengths,
)
from engine.recording import Entry, load, save_as
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.blocks.paint import Painter, plain_lines
from inspector.config.directions import Steering, read_direction, write_direction
from inspector.display import visible
from inspector.documents.exports import EXPORTS
from inspector.documents.steering import EXAMPLE, Contrast, curve, head
from inspector.export.documents import FORMATS
from inspector.export.recording import Recording, line
from inspector.views import TOOLS, with_steering
from inspector.views.steering import DirectionDialog, SavingDialog, SteeringView
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import Choice, SafeInput, SafeTextArea
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig, idle
from tests.inspector.views.interventions.units import effect
from tests.inspector.views.steering.sweeps import FAILED, UP, made, strengths


async def opened(rig: Rig) -> SteeringView:
    await rig.ready()
    await rig.do("steering")
    screen = rig.app.top
    assert isinstance(screen, SteeringView)
    return screen


async def make(rig: Rig) -> MakeDirection:
    """Make one of the example's texts."""
    await rig.press("enter")
    assert isinstance(rig.app.top, DirectionDialog)
    await rig.press("ctrl+s")
    asked = rig.engine.last(MakeDirection)
    assert isinstance(asked, MakeDirection)
    await rig.push([made(asked), Ended("MakeDirection")])
    return asked


def tried(rig: Rig) -> Intervene:
    asked = rig.engine.last(Intervene)
    assert isinstance(asked, Intervene)
    return asked


def sweeping(rig: Rig) -> SweepStrengths:
    asked = rig.engine.last(SweepStrengths)
    assert isinstance(asked, SweepStrengths)
    return asked


async def answered(rig: Rig) -> None:
    """Answer both questions."""
    await rig.push([effect(tried(rig)), Ended("Intervene")])
    await rig.push([strengths(sweeping(rig)), Ended("SweepStrengths")])


async def steered(rig: Rig) -> SteeringView:
    screen = await opened(rig)
    await make(rig)
    await answered(rig)
    return screen


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 18), (40, 12)])
async def test_a_stranger_is_told_how_to_get_a_direction_and_gets_one(
    rig: Rig, size: tuple[int, int]
) -> None:
    await opened(rig)
    assert "Steering adds a direction" in rig.said()
    assert "⏎ builds one from two sets of texts" in rig.said()
    assert rig.engine.names == []
    asked = await make(rig)
    assert (asked.toward, asked.away, asked.name) == (EXAMPLE.toward, EXAMPLE.away, "happy-sad")
    await answered(rig)
    text = rig.screen_text()
    assert "+happy-sad x2" in text
    assert "x2" in text
    if size[0] >= 60:
        assert "●" in text
        assert "░" in text
        assert "80.00 %" in text
        assert "12.50 %↓" in text
    assert all(len(line) <= size[0] for line in text.splitlines())


async def test_how_far_a_direction_is_made_is_said(rig: Rig) -> None:
    await opened(rig)
    await rig.press("enter", "enter")
    await rig.push([Measuring("MakeDirection", 2, 6, "text 3")])
    assert "text 3 2/6. esc stops it" in rig.screen_text()


async def test_the_strength_is_turned_live_and_the_curve_waits(rig: Rig) -> None:
    screen = await opened(rig)
    await make(rig)
    assert rig.engine.names == ["MakeDirection", "Intervene"], "the candidates come before the curve"
    await rig.press("plus")
    await rig.end("Intervene", cancelled=True)
    assert tried(rig).interventions[0].scale == 4.0
    await rig.push([effect(tried(rig)), Ended("Intervene")])
    assert rig.engine.names[-1] == "SweepStrengths"
    await rig.press("minus", "minus")
    await rig.end("SweepStrengths", cancelled=True)
    await rig.end("Intervene", cancelled=True)
    assert tried(rig).interventions[0].scale == 1.0
    await answered(rig)
    for _ in range(12):
        await rig.press("plus")
    assert screen.strength == 8.0
    for _ in range(30):
        await rig.press("minus")
    assert screen.strength == -8.0


async def test_another_layer_makes_it_anew_and_another_scope_asks_anew(rig: Rig) -> None:
    screen = await steered(rig)
    before = rig.engine.names.count("MakeDirection")
    layer = screen.layer_now
    await rig.press("down")
    assert screen.layer_now == max(0, layer - 1)
    assert rig.engine.names.count("MakeDirection") == before + 1
    await rig.push([made(rig.engine.last(MakeDirection)), Ended("MakeDirection")])  # type: ignore[arg-type]
    await answered(rig)
    await rig.press("w")
    assert (tried(rig).scope, tried(rig).begin > 0) == ("context", True)
    await answered(rig)
    await rig.press("w")
    assert (tried(rig).scope, tried(rig).begin) == ("context", 0)
    await answered(rig)
    assert "whole context" in rig.screen_text()
    await rig.press("w")
    assert "this token" in rig.screen_text()


async def test_other_tokens_are_followed(rig: Rig) -> None:
    await steered(rig)
    first = sweeping(rig)
    assert None not in (first.token, first.other)
    await rig.press("l")
    await rig.push([strengths(sweeping(rig)), Ended("SweepStrengths")])
    second = sweeping(rig)
    assert second.token not in (first.token, first.other)
    await rig.press("v")
    assert sweeping(rig).other not in (second.token, second.other)


async def test_it_is_held_as_a_branch_and_released(rig: Rig) -> None:
    screen = await steered(rig)
    node = screen.node
    await rig.press("g")
    held = rig.engine.last(HoldInterventions)
    assert isinstance(held, HoldInterventions)
    assert held.node == node
    assert held.interventions[0].label.startswith(f"L{held.interventions[0].layer + 1} +happy-sad x2 #")


async def test_it_is_saved_to_a_file_and_read_from_there(rig: Rig, tmp_path: Path) -> None:
    await steered(rig)
    await rig.press("d")
    dialog = rig.app.top
    assert isinstance(dialog, SavingDialog)
    assert dialog.query_one("#saving-path", SafeInput).value == "happy-sad.safetensors"
    path = tmp_path / "mine.safetensors"
    dialog.query_one("#saving-path", SafeInput).value = str(path)
    await rig.press("ctrl+s")
    assert read_direction(path).name == "happy-sad"
    assert "Saved to" in rig.screen_text()
    await rig.press("d")
    rig.app.top.query_one("#saving-path", SafeInput).value = str(path)
    await rig.press("ctrl+s")
    assert "already exists" in str(rig.app.top.query_one("#saving-path-remark", Remark).render())
    await rig.press("escape")
    write_direction(path, UP, force=True)
    await rig.press("enter")
    dialog = rig.app.top
    dialog.query_one("#direction-kind", Choice).chosen = 2
    dialog.query_one("#direction-path", SafeInput).value = str(path)
    await rig.press("ctrl+s")
    assert tried(rig).interventions[0].direction == UP
    assert tried(rig).interventions[0].layer == UP.layer


async def test_the_dialog_tells_what_is_the_matter(rig: Rig, tmp_path: Path) -> None:
    await opened(rig)
    await rig.press("enter")
    dialog = rig.app.top

    def remark() -> str:
        return str(dialog.query_one("#direction-remark", Remark).render())

    dialog.query_one("#direction-away", SafeTextArea).load_text(" \n")
    await rig.press("ctrl+s")
    assert "One of the two has no text." in remark()
    dialog.query_one("#direction-kind", Choice).chosen = 2
    await rig.pilot.pause()
    await rig.press("ctrl+s")
    assert "No file was named." in remark()
    bad = tmp_path / "bad\x1b[31m"
    bad.write_bytes(b"no")
    dialog.query_one("#direction-path", SafeInput).value = str(bad)
    await rig.pilot.pause()
    await rig.press("ctrl+s")
    assert "is not a direction" in remark()
    assert "\x1b" not in remark()
    dialog.query_one("#direction-kind", Choice).chosen = 1
    await rig.pilot.pause()
    await rig.press("ctrl+s")
    assert "There is no other branch or prompt yet" in remark()


async def test_failures_are_sentences(rig: Rig) -> None:
    screen = await opened(rig)
    await rig.press("enter", "enter")
    await rig.push(
        [Failure("MakeDirection", "A text has 9,000 tokens.", "Give shorter ones."), Ended("MakeDirection")]
    )
    assert "A text has 9,000 tokens." in rig.said()
    screen.use(UP)
    screen.changed()
    await rig.pilot.pause()
    await rig.push(
        [Failure("Intervene", "It was made with another model.", "Make it again."), Ended("Intervene")]
    )
    assert "It was made with another model." in rig.said()
    asked = sweeping(rig)
    await rig.push([strengths(asked, FAILED), Ended("SweepStrengths")])
    assert "“strength 0 changes nothing” failed for the architecture llama" in rig.said()


async def test_a_name_that_a_file_made_up_reaches_no_terminal(rig: Rig) -> None:
    screen = await opened(rig)
    screen.use(replace(UP, name="x\x1b[31m\n\u202ey" * 20))
    screen.changed()
    await rig.pilot.pause()
    await answered(rig)
    text = rig.screen_text()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert visible(text.replace("\n", "")) == text.replace("\n", "")


async def test_a_branch_gives_a_direction(rig: Rig) -> None:
    await rig.ready()
    await rig.do("steering")
    screen = rig.app.top
    assert isinstance(screen, SteeringView)
    nodes = screen.node, screen.timeline.items[0].node
    screen.use(Contrast("less it", nodes=nodes))
    screen.changed()
    await rig.pilot.pause()
    asked = rig.engine.last(MakeDirection)
    assert isinstance(asked, MakeDirection)
    assert (asked.nodes, asked.toward, asked.away) == (nodes, (), ())


async def test_the_view_begins_with_the_direction_that_a_lesson_made(rig: Rig) -> None:
    await rig.ready()
    asked = MakeDirection(3, EXAMPLE.toward, EXAMPLE.away, (), EXAMPLE.name)
    await rig.push([made(asked)])
    await rig.do("steering")
    assert "L4 +happy-sad x2" in rig.said()
    assert tried(rig).interventions[0].layer == 3


async def test_at_a_token_that_is_steered_nothing_is_asked(rig: Rig) -> None:
    await rig.ready(steps=8)
    own, unit = rig.timeline.steps[-1], Intervention("direction", 1, None, 2.0, UP)
    await rig.push([rig.session.move(own.parent), rig.session.step(own.id, "intervened")])
    await rig.push([InterventionsHeld(rig.timeline.tip, own.node, (unit,), 3.0), Ended("HoldInterventions")])
    await rig.do("steering")
    screen = rig.app.top
    assert isinstance(screen, SteeringView)
    screen.use(UP)
    screen.changed()
    await rig.pilot.pause()
    assert "computed with L2 +up-down x2." in rig.said()
    assert "This view is of the model's own tokens: ← goes to those before" in rig.said()
    assert rig.engine.names == []
    await rig.press("o")
    assert rig.engine.last(HoldInterventions).interventions == ()  # type: ignore[attr-defined]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording in which the last token was steered."""
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    node = session.node
    unit = Intervention("direction", 1, None, 2.0, UP)
    asked = SweepStrengths(node, UP, 1)
    session.records += [strengths(asked), effect(Intervene(node, (unit,)))]
    entries = [Entry(record, 0.0) for record in session.records if not isinstance(record, Loading)]
    found = tmp_path / "looked.trace"
    save_as(found, [Entry(LoadSettings("pocket"), 0.0), *entries], "test 1")
    return found


async def test_what_was_recorded_is_shown_without_a_model(replay: Rig) -> None:
    await replay.press("end")
    await replay.do("steering")
    assert isinstance(replay.app.top, SteeringView)
    text = replay.screen_text()
    assert "L2 +up-down x2" in text
    assert "░" in text
    assert "12.50 %" in text
    await replay.press("plus")
    assert "were not recorded" in replay.screen_text()
    await replay.press("enter")
    assert "A recording computes nothing" in replay.screen_text()
    await replay.press("g")
    assert "A recording computes nothing" in replay.status
    assert replay.engine.sent == []


def test_a_trace_has_the_direction_itself(path: Path) -> None:
    found = [entry.value for entry in load(path).entries]
    steered = next(each for each in found if type(each).__name__ == "StrengthsSwept")
    assert steered.direction == UP  # type: ignore[union-attr]
    tried = next(each for each in found if type(each).__name__ == "Intervened")
    assert tried.interventions[0].direction == UP  # type: ignore[union-attr]


ODD = SteeredStrength(
    math.nan, math.inf, math.nan, math.inf, math.nan, -math.inf, math.inf, 7.0, -1.0, -5, "\x1b[2J", 9.0
)


def test_the_headline_says_how_much_is_added_at_this_strength():
    swept = strengths(SweepStrengths(1, UP, 1))
    for strength, added in ((2.0, 2 * swept.share), (-8.0, 8 * swept.share)):
        unit = Intervention("direction", 1, None, strength, UP)
        line = next(iter(plain_lines(head(unit, "this token", swept))))
        assert f"{added:.2f} of the stream's length is added" in line
        assert "-" not in line.replace(UP.name, "")
    assert "x−8" in line


@pytest.mark.wide(1)
@pytest.mark.parametrize("found", [(), (ODD,), (ODD, ODD, ODD)])
async def test_what_a_file_made_up_is_drawn_and_exported_all_the_same(
    rig: Rig, found: tuple[SteeredStrength, ...]
) -> None:
    screen = await opened(rig)
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    unit = Intervention("direction", 10**6, None, 2.0, replace(UP, vector=Floats((2**40,), b"")))
    swept = strengths(SweepStrengths(session.node, UP, 1))
    odd = replace(swept, strengths=found, text="\x1b[2J", stream_norm=0.0, begin=-7, layer=10**6)
    page = *head(unit, "whole", odd), *curve(odd, 2.0)
    for width in (120, 80, 40, 12):
        for height in (30, 12, 4):
            rows = Painter(screen.view).draw(page, width, height)
            assert "\x1b" not in "".join(segment.text for row in rows for segment in row)
    session.records.append(odd)
    assert "\x1b" not in FORMATS["html"](line(Recording(session.timeline(), parts=EXPORTS)))
    assert "\x1b" not in FORMATS["md"](line(Recording(session.timeline(), parts=EXPORTS)))


def test_a_page_has_the_texts_that_a_direction_was_made_of() -> None:
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    session.records.append(
        made(MakeDirection(1, ("I am\x1b glad", "so happy"), ("I am sad",), name="up-down"))
    )
    report = FORMATS["md"](line(Recording(session.timeline(), parts=EXPORTS)))
    assert f"### How up-down \\#{UP.digest} was made" in report
    assert "| I am␛ glad | I am sad |\n| so happy |  |" in report


@pytest.mark.slow
async def test_a_real_model_is_steered_held_and_released() -> None:
    prompt = "Once upon a time there was a girl named Lily. She felt very"
    app = InspectorApp(LoadSettings(), Settings(), Prefill(prompt, False))
    async with app.run_test(size=(120, 40)) as pilot:
        await idle(pilot)
        own = app.controller.timeline.tip
        await pilot.press("4", "S")
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("ctrl+s")
        await idle(pilot)
        screen = app.top
        assert isinstance(screen, SteeringView)
        swept, tried = screen.answer, screen.effect
        assert swept is not None
        assert tried is not None
        assert swept.facts.failed is None
        assert (swept.text, swept.other_text) == (" happy", " sad"), "the words that it is named after"
        two = swept.at(2.0)
        assert two is not None
        assert two.kl_bits == pytest.approx(tried.kl_bits, abs=1e-4)
        await pilot.press("g")
        await idle(pilot)
        timeline = app.controller.timeline
        assert timeline.under == tried.interventions
        assert timeline.candidates[0].id == two.top
        await pilot.press("4", "S", "o")
        await idle(pilot)
        assert (timeline.tip, timeline.under) == (own, ())


async def test_a_session_may_begin_steered() -> None:
    width = 256
    from engine.protocol import floats

    of = Direction("up", 3, floats([0.1] * width, (width,)))
    prompt = "Once upon a time there was a girl"
    tools = with_steering(TOOLS, Steering(of, 2.0, 3))
    app = InspectorApp(LoadSettings(), Settings(), Prefill(prompt, False), tools=tools)
    async with app.run_test(size=(120, 40)) as pilot:
        await idle(pilot)
        assert app.controller.timeline.under == (Intervention("direction", 3, None, 2.0, of),)
        assert "+up x2" in str(app.controller.timeline.under[0].label)
        view = app.main.view_at("inspector.views.steering:SteeringView")
        assert isinstance(view, SteeringView)
        assert (view.source, view.strength, view.chosen_layer) == (of, 2.0, 3)
