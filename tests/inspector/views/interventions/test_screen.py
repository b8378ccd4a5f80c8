"""Switching off on the screen: map, sets, scales, scope, hold and release, patching, sizes, replay, a real model."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from engine.protocol import (
    Ended,
    Failure,
    HeadsSwept,
    HoldInterventions,
    Intervene,
    Intervention,
    InterventionsHeld,
    Loading,
    Measuring,
    PatchActivations,
    PatchPair,
    PatchPairs,
    PlaceShares,
    Prefill,
    Record,
    SweepHeads,
)
from engine.recording import Entry, save_as
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.blocks.blocks import sentence
from inspector.blocks.heat_map import NOTHING, figure
from inspector.blocks.paint import Painter, PlainInks, part_shown
from inspector.documents.exports import EXPORTS
from inspector.export.documents import FORMATS
from inspector.export.recording import Recording, line, read
from inspector.main.inside_view import TITLED
from inspector.main.panels.text import TextPanel
from inspector.scales import INSIDE
from inspector.state.inside import Answers
from inspector.state.patching import pairs_from
from inspector.views.interventions import MEASURES, SwitchOff, strongest
from inspector.views.patching import EXAMPLE, PairsDialog, Patching
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import SafeTextArea
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig, idle
from tests.inspector.views.interventions.units import (
    FAILED,
    PAIR,
    STRONGEST,
    effect,
    floats,
    over_pairs,
    patched,
    sweep,
)

MLP = Intervention("mlp", 0)


def asked(rig: Rig) -> Intervene:
    """What was asked last about chosen units."""
    command = rig.engine.last(Intervene)
    assert isinstance(command, Intervene)
    return command


async def told(rig: Rig) -> None:
    """Answer that."""
    await rig.push([effect(asked(rig)), Ended("Intervene")])


async def opened(rig: Rig, **how: int) -> SwitchOff:
    await rig.ready()
    await rig.press("X")
    screen = rig.app.top
    assert isinstance(screen, SwitchOff)
    assert rig.engine.names == ["SweepHeads"]
    await rig.push([sweep(screen.node, **how), Ended("SweepHeads")])
    await told(rig)
    return screen


@pytest.mark.wide(2)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_the_map_and_the_strongest_head_with_and_without(rig: Rig, size: tuple[int, int]) -> None:
    screen = await opened(rig)
    assert asked(rig).interventions == (STRONGEST,)
    text = rig.screen_text()
    assert "L2 h1 off" in text
    assert "1.2" in text
    for _ in range(12):
        screen.view.action_move(2)
        await rig.pilot.pause()
        text += rig.screen_text()
    assert "80.00 %" in text
    assert "12.50 %↓" in text
    assert "[odd]" in text
    assert "total effect" in text
    assert "stay." in text
    if size[0] > 60:
        assert "#1→#3" in text
        assert "−2.50" in text


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("size", "names"), [((120, 40), ("-+ scale", "w this token")), ((80, 24), ("w this token",))]
)
async def test_the_line_of_keys_has_room_for_the_scope(
    rig: Rig, size: tuple[int, int], names: tuple[str, ...]
) -> None:
    await opened(rig)
    line = rig.screen_text().rstrip().splitlines()[-1]
    assert [name for name in names if name not in line] == []


async def test_the_cursor_goes_through_layers_and_units(rig: Rig) -> None:
    await opened(rig)
    await rig.press("down", ".", ".", ".")
    await rig.end("Intervene", cancelled=True)
    await told(rig)
    assert asked(rig).interventions == (MLP,)
    assert "L1 MLP off, this token" in rig.said()
    await rig.press(".", ".", "up", "up")
    assert "L2 h1 off, this token" in rig.screen_text(), "they go round, and the last layer is the last"
    assert rig.engine.names.count("SweepHeads") == 1


async def test_units_are_switched_off_together_scaled_and_in_the_whole_context(rig: Rig) -> None:
    screen = await opened(rig)
    await rig.press("a", "plus", "down", *["."] * 3, "a", "w")
    await rig.end("Intervene", cancelled=True)
    assert asked(rig).scope == "context"
    assert [each.label for each in asked(rig).interventions] == ["L2 h1 x0.5", "L1 MLP"]
    await told(rig)
    text = rig.screen_text()
    assert "L1 MLP off, L2 h1 x0.5, whole context" in text
    assert re.findall(r"×\S+", text) == ["×1.25", "×·"], "a mark stands before its own number"
    assert "Map: this token · Largest" in text
    assert "The whole path runs again" in text
    await rig.press("minus", "plus", "plus", "plus")
    assert screen.together[MLP] == 2.0
    assert "Twice is the most" in rig.screen_text()
    await rig.press("up", "minus")
    assert set(screen.together.values()) == {0.0}, "the cursor is on another unit"
    await rig.press("down", "a", "A")
    assert not screen.together
    assert screen.interventions == (MLP,)


async def test_m_colours_by_the_logit_with_its_sign(rig: Rig) -> None:
    await opened(rig)
    assert "0.30" in rig.screen_text()
    await rig.press("m")
    text = rig.screen_text()
    assert "+0.75" in text
    assert "−2.50" in text
    assert "colour: logit" in text


@pytest.mark.screen(size=(160, 40))
async def test_hold_goes_on_in_a_branch_that_says_so_and_release_leaves_it(rig: Rig) -> None:
    screen = await opened(rig)
    node = screen.node
    await rig.press("g")
    assert rig.app.top is rig.app.main
    held = rig.engine.last(HoldInterventions)
    assert isinstance(held, HoldInterventions)
    assert (held.node, held.interventions) == (node, (STRONGEST,))
    parent = rig.timeline.tree.parent[node]
    await rig.push([rig.session.move(parent), rig.session.step(origin="intervened")])
    first = rig.timeline.tip
    await rig.push([InterventionsHeld(first, node, held.interventions, 3.0), Ended("HoldInterventions")])
    await rig.push([rig.session.step(origin="intervened")])
    assert rig.timeline.under == (STRONGEST,)
    assert "L2 h1 off" in rig.screen_text().splitlines()[0]
    assert rig.status.startswith("L2 h1 is off (4 X, then o, turns it back on)")
    await rig.push([rig.session.finish("length", "7 tokens")])
    assert (
        rig.status
        == "L2 h1 is off (4 X, then o, turns it back on). Stopped at the 7-token limit; r continues"
    )
    await rig.do("tree")
    assert "intervened" in rig.screen_text()
    assert "· L2 h1 off" in rig.screen_text()
    await rig.press("X")
    assert rig.engine.names[-1:] == ["HoldInterventions"]
    assert "o ends the change" in rig.screen_text()
    await rig.press("o")
    released = rig.engine.last(HoldInterventions)
    assert isinstance(released, HoldInterventions)
    assert released.interventions == ()
    await rig.push([rig.session.move(node), InterventionsHeld(node, node, (), 3.0)])
    assert rig.timeline.under == ()
    assert "L2 h1 off" not in rig.screen_text().splitlines()[0]


class Large(Session):
    """A session of a model of 94 layers with 64 heads."""

    def load(self, **changes: object) -> list[Record]:
        return super().load(layers=94, heads=64, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(240, 40), (120, 40), (80, 24)])
async def test_the_heads_of_a_large_model_are_switched_off_a_layer_at_a_time_when_asked_for(
    rig: Rig, size
) -> None:
    rig.session = Large()
    await rig.ready()
    await rig.press("X")
    screen = rig.app.top
    assert isinstance(screen, SwitchOff)
    asked_for = rig.engine.last(SweepHeads)
    assert (asked_for.heads, asked_for.parts) == ((), True)
    every = replace(sweep(screen.node, layers=94, heads=64), token=asked_for.token)
    parts = replace(every, units=tuple(each for each in every.units if each.intervention.kind != "head"))
    await rig.push([parts, Ended("SweepHeads")])
    await told(rig)
    text = rig.screen_text()
    assert re.search(r"Shown: layers \d+ to \d+ of 94", text)
    assert re.search("Each part (switched )?off alone", text)
    layer = screen.unit.layer
    assert f"heads of L{layer + 1}" in text
    await rig.press("enter")
    asked_for = rig.engine.last(SweepHeads)
    assert (asked_for.heads, asked_for.parts, asked_for.token) == ((layer,), False, every.token)
    await rig.press("enter")
    assert rig.engine.names.count("SweepHeads") == 2, "it is asked for already"
    await rig.push([Measuring("SweepHeads", 16, 64, f"L{layer + 1} h17")])
    assert "16/64" in rig.screen_text()
    own = [
        each
        for each in every.units
        if each.intervention.layer == layer and each.intervention.head is not None
    ]
    await rig.push([replace(every, units=tuple(own)), Ended("SweepHeads")])
    text = rig.screen_text()
    assert re.search(r"Shown: layers \d+ to \d+ of 94", text)
    assert re.search("Each head and part (switched )?off alone", text)
    assert f"heads of L{layer + 1}" not in text
    assert ("   attn" in text) == (size[0] == 240), "the parts keep their numbers where there is room"
    assert len(screen.answer.units) == 94 * 3 + 64
    found = [each for each in rig.timeline.of(Answers).found(HeadsSwept) if each.scope == "token"]
    assert [len(each.units) for each in found] == [94 * 3 + 64], "the page of E has them too"
    await rig.press("up")
    assert f"heads of L{screen.unit.layer + 1}" in rig.screen_text()
    await rig.press("enter", "escape")
    assert rig.engine.cancelled(rig.engine.last(SweepHeads)), "who leaves waits no more"


async def test_the_heads_of_a_small_model_are_switched_off_with_the_rest(rig: Rig) -> None:
    await opened(rig)
    assert "heads of L" not in rig.screen_text()
    await rig.press("enter")
    assert rig.engine.names.count("SweepHeads") == 1


async def held(rig: Rig) -> int:
    """Go on two steps under an intervention; the model's own token that the branch was made from."""
    await rig.ready(steps=8)
    own = rig.timeline.steps[-1]
    id = next(each.id for each in own.choice.candidates if each.id != own.id)
    await rig.push([rig.session.move(own.parent), rig.session.step(id, "intervened")])
    await rig.push(
        [InterventionsHeld(rig.timeline.tip, own.node, (STRONGEST,), 3.0), Ended("HoldInterventions")]
    )
    await rig.push([rig.session.step(origin="intervened")])
    return own.node


@pytest.mark.parametrize("view", ["attention", "lens", "attribution", "gradients", "patching"])
async def test_a_view_of_a_token_under_interventions_asks_nothing_and_names_the_keys_to_go_on(
    rig: Rig, view: str
) -> None:
    await held(rig)
    await rig.do(view)
    assert "This token was computed with L2 h1 off." in rig.said()
    assert "← goes to those before this branch." in rig.said()
    assert "X, then o ends the change, and goes to the token where it begins." in rig.said()
    assert rig.engine.names == []


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(140, 40), (120, 40), (80, 24)])
async def test_the_tree_names_the_interventions_of_every_branch_below_them_apart_from_how_it_was_made(
    rig: Rig, size
) -> None:
    await held(rig)
    step = rig.timeline.steps[-1]
    other = next(each.id for each in step.choice.candidates if each.id != step.id)
    await rig.push([rig.session.move(step.parent), rig.session.step(other, "intervened")])
    await rig.do("tree")
    lines = [row for row in rig.screen_text().splitlines() if "· L2" in row]
    assert len(lines) == 3, "the branch, and both that part below it"
    assert not any("offintervened" in row or "…intervened" in row for row in lines)
    if size[0] > 80:
        assert all("· L2 h1 off  " in row for row in lines)


@pytest.mark.screen(size=(96, 40))
async def test_compare_names_the_interventions_of_the_side_that_is_under_them(rig: Rig) -> None:
    await held(rig)
    await rig.do("compare")
    head = next(row for row in rig.screen_text().splitlines() if "this path" in row)
    assert "this path · L2 h1 off · 14 tokens" in head
    assert "the other · 13 tokens" in head


@pytest.mark.screen(size=(160, 40))
async def test_who_copies_a_text_made_under_interventions_is_told_that_it_does_not_say_so(rig: Rig) -> None:
    await held(rig)
    await rig.press("C", "c")
    assert "The path was made with L2 h1 off: what was copied doesn't say so" in rig.status
    await rig.press("C", "j")
    assert "made with" not in rig.status


async def test_a_failed_check_and_a_refusal_are_sentences(rig: Rig) -> None:
    await rig.ready()
    await rig.press("X")
    await rig.push([sweep(rig.timeline.before, FAILED), Ended("SweepHeads")])
    text = rig.said()
    assert "“as one alone” failed for the architecture llama" in text
    assert "1.25" not in text
    assert "Intervene" not in rig.engine.names
    await rig.press("g", "a", "m", "up")
    assert "HoldInterventions" not in rig.engine.names
    await rig.press("left")
    await rig.push([sweep(rig.timeline.before), Ended("SweepHeads")])
    await rig.push([Failure("Intervene", "L2 has no heads.", "Choose the layer."), Ended("Intervene")])
    assert "L2 has no heads." in rig.screen_text()
    assert "−2.50" in rig.screen_text(), "the map stays"


@pytest.mark.wide(1)
@pytest.mark.parametrize(("size", "heads"), [((120, 40), 40), ((80, 24), 32), ((40, 12), 64)])
async def test_a_wide_model_has_its_columns_around_the_cursor(
    rig: Rig, size: tuple[int, int], heads: int
) -> None:
    screen = await opened(rig, layers=40, heads=heads)
    await rig.press(",", "up", "up")
    assert screen.unit == Intervention("layer", 3)
    assert "L4" in rig.screen_text()
    lines = rig.screen_text().splitlines()
    assert all(len(line) <= size[0] for line in lines)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording in which the strongest head was switched off alone, and a longer branch and pairs were put in."""
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    node = session.node
    parent = session.timeline().items[-3]
    session.choose(parent.node, next(each.id for each in parent.next.candidates if each.rank == 2))  # type: ignore[union-attr]
    session.steps(3)
    source = session.node
    session.move(node)
    aligned = patched(PatchActivations(node, source, 7, 9, "mlp"))
    columns = [replace(each, source_position=each.position + 1) for each in aligned.columns]
    session.records += [
        sweep(node),
        effect(Intervene(node, (STRONGEST,))),
        replace(aligned, columns=tuple(columns), shift=1, aligned=True, floor=0.25),
        over_pairs("attention"),
    ]
    entries = [Entry(record, 0.0) for record in session.records if not isinstance(record, Loading)]
    found = tmp_path / "looked.trace"
    save_as(found, [Entry(LoadSettings("pocket"), 0.0), *entries], "test 1")
    return found


async def test_what_was_recorded_is_shown_without_a_model(replay: Rig) -> None:
    await replay.press("end", "X")
    assert "L2 h1 off, this token" in replay.screen_text()
    assert "12.50 %" in replay.screen_text()
    await replay.press("down")
    assert "L1 h1 off: not recorded" in replay.screen_text()
    await replay.press("g")
    assert "A recording computes nothing" in replay.status
    assert replay.engine.sent == []


async def test_what_was_put_in_is_shown_without_a_model(replay: Rig) -> None:
    await replay.press("end", "4", "P")
    screen = replay.app.top
    assert isinstance(screen, Patching)
    text = replay.said()
    assert "MLPs" in text, "the part that was recorded"
    assert "Aligned as you said: 1-3:2-4" in text
    assert "by up to 0.25" in text
    assert "−0.25" in text
    for key in ("a", "l", "v", "n", "e"):
        await replay.press(key)
    assert replay.said() == text, "a recording computes nothing"
    await replay.press("m")
    assert "This view of this token was not recorded" in replay.said()
    await replay.press("w")
    text = replay.said()
    assert "1 of 2 pairs" in text
    assert "attentions" in text
    assert "0.25±0.50" in text.replace(" ± ", "±")
    await replay.press("w", "enter", "escape")
    assert replay.engine.sent == []


async def test_a_token_that_is_walked_to_begins_with_what_was_put_in_there(replay: Rig) -> None:
    await replay.press("end", "left", "4", "P")
    assert "MLPs" not in replay.said()
    await replay.press("right")
    assert "MLPs" in replay.said()


def test_what_was_put_in_leaves_with_an_export(path: Path) -> None:
    recording = read(path)
    recording.parts = EXPORTS
    page = FORMATS["html"](recording)
    for words in ("With MLPs put in from", "With attentions put in, over 1 pair of texts", "0.25 ± 0.50"):
        assert words in page
        assert words in FORMATS["md"](recording)
    assert "a [b]" in page
    assert "Aligned as you said: 1-3:2-4." in page


@pytest.mark.parametrize(
    "lies",
    [
        {"shares": floats([1.0] * 3, (1, 3))},
        {"shares": floats([math.nan] * 6, (2, 3))},
        {"layers": (), "shares": floats([], (0, 3))},
        {"columns": (), "shares": floats([], (2, 0))},
        {"text": "\x1b[2J", "first": 10**9, "layers": (10**9, -1)},
    ],
)
async def test_a_map_that_a_file_made_up_is_drawn_and_exported_or_left_out(
    rig: Rig, lies: dict[str, object]
) -> None:
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    odd = replace(patched(PatchActivations(session.node, 2, 7, 9)), **lies)
    session.records.append(odd)
    recording = line(Recording(session.timeline(), parts=EXPORTS))
    assert "\x1b" not in FORMATS["html"](recording) + FORMATS["md"](recording)
    if Answers.sound(odd):
        question = await patching(rig)
        await rig.push([replace(odd, node=question.node, source=question.source), Ended("PatchActivations")])
        assert "\x1b" not in rig.screen_text()
        await rig.press("up", "escape")
        rig.app.query_one(TextPanel).metric = INSIDE
        await rig.pilot.pause()


@pytest.mark.parametrize("means", [(), (math.nan, math.inf), (0.5,) * 3])
async def test_pairs_that_a_file_made_up_are_exported_or_left_out(means: tuple[float, ...]) -> None:
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    made = over_pairs()
    told = replace(made.pairs[0], token="\x1b[2J", pair=PatchPair("\x1b", "\x07"))
    odd = replace(made, pairs=(told,), places=(PlaceShares("last", 3, means, means),))
    assert Answers.sound(odd) is (len(means) == len(made.layers))
    session.records.append(odd)
    recording = line(Recording(session.timeline(), parts=EXPORTS))
    assert "\x1b" not in FORMATS["html"](recording) + FORMATS["md"](recording)


# ---- activation patching --------------------------------------------------------------------------


async def patching(rig: Rig) -> PatchActivations:
    """Two branches of one length, and the page that puts one into the other."""
    await rig.ready()
    parent = rig.timeline.items[-3].node
    other = next(each for each in rig.timeline.items[-3].next.candidates if each.rank == 2)  # type: ignore[union-attr]
    await rig.push(rig.session.choose(parent, other.id))
    await rig.push([rig.session.step()])
    rig.engine.sent.clear()
    await rig.press("X", "P")
    assert isinstance(rig.app.top, Patching)
    await rig.end("SweepHeads", cancelled=True)
    question = rig.engine.last(PatchActivations)
    assert isinstance(question, PatchActivations)
    return question


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_another_branch_of_equal_length_is_put_in(rig: Rig, size: tuple[int, int]) -> None:
    question = await patching(rig)
    tree = rig.timeline.tree
    assert question.node == rig.timeline.tip
    assert question.source not in {item.node for item in rig.timeline.items}
    assert tree.nodes[question.source].position == tree.nodes[question.node].position
    assert question.token != question.other
    await rig.push([patched(question), Ended("PatchActivations")])
    text = rig.screen_text()
    assert "0.75" in text
    assert "−0.25" in text
    assert "L1" in text
    assert "[src]"[:3] in text
    assert "l follow  v against" in text or size[0] < 80
    await rig.press("up", ",")
    assert "−0.25" in rig.screen_text()
    await rig.press("m")
    last = rig.engine.last(PatchActivations)
    assert isinstance(last, PatchActivations)
    assert last.part == "attention"


@pytest.mark.slow
@pytest.mark.parametrize("size", [(120, 40), (80, 22), (60, 34)])
async def test_of_a_large_map_what_is_shown_is_told_and_the_cursor_pages(
    rig: Rig, size: tuple[int, int]
) -> None:
    question = await patching(rig)
    small = patched(question)
    large = replace(
        small,
        layers=tuple(range(94)),
        shares=floats([0.0] * (94 * len(small.columns)), (94, len(small.columns))),
    )
    await rig.push([large, Ended("PatchActivations")])
    first, last = map(int, re.findall(r"Shown: layers (\d+) to (\d+) of 94", rig.screen_text())[0])
    assert first == 1
    assert last - first + 1 == len(re.findall(r"(?m)^│ *L\d+ +[-·.\d]", rig.answer_text()))
    await rig.press(*["up"] * 93)
    assert re.search(r"Shown: layers \d+ to 94 of 94", rig.screen_text())


async def test_a_source_of_another_length_gets_the_engines_refusal(rig: Rig) -> None:
    question = await patching(rig)
    await rig.push([patched(question), Ended("PatchActivations")])
    await rig.press("left", "o")
    await rig.end("PatchActivations", cancelled=True)
    longer = rig.engine.last(PatchActivations)
    assert isinstance(longer, PatchActivations)
    tree = rig.timeline.tree
    assert tree.nodes[longer.source].position != tree.nodes[longer.node].position
    refusal = Failure("PatchActivations", "The source has more tokens.", "Choose a node as deep.")
    await rig.push([refusal, Ended("PatchActivations")])
    assert "Choose a node as deep." in rig.screen_text()
    assert "(2 of 2)" in rig.screen_text()
    await rig.press("X")
    assert isinstance(rig.app.top, SwitchOff)


async def test_the_two_logits_are_chosen_by_hand(rig: Rig) -> None:
    question = await patching(rig)
    await rig.push([patched(question), Ended("PatchActivations")])
    await rig.press("l")
    other = rig.engine.last(PatchActivations)
    assert other.token not in (question.token, question.other)
    assert other.other == question.other
    await rig.push([patched(other), Ended("PatchActivations")])
    await rig.press("L")
    assert rig.engine.last(PatchActivations) == other, "the first ones are known"
    await rig.press("v")
    against = rig.engine.last(PatchActivations)
    assert against.token == question.token
    assert against.other not in (question.token, question.other)
    await rig.push([patched(against), Ended("PatchActivations")])
    await rig.press("d")
    assert rig.engine.last(PatchActivations) == against
    assert "0.75" in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_the_alignment_is_shown_and_changed(rig: Rig, size: tuple[int, int]) -> None:
    question = await patching(rig)
    await rig.push([patched(question), Ended("PatchActivations")])
    assert question.alignment is None
    count = rig.timeline.tree.nodes[question.node].position + 1
    await rig.press("a")
    text = rig.screen_text()
    assert re.search(r"(?m)^│ ▶ +\d+ ", rig.answer_text())
    assert "faces none" not in text
    await rig.press("n")
    text = rig.screen_text()
    assert text.count("faces none") == 1
    assert ", . partner" in text.splitlines()[-1]
    assert "layer" not in text.splitlines()[-1]
    await rig.press("a")
    changed = rig.engine.last(PatchActivations)
    assert changed.alignment is not None
    assert len(changed.alignment) == count - 1
    await rig.push([patched(changed), Ended("PatchActivations")])
    await rig.press("a", ",", ",", "a")
    crossed = rig.engine.last(PatchActivations)
    assert crossed.alignment not in (None, changed.alignment)
    assert len(crossed.alignment) < count, "pairs that cross the new one are gone"
    await rig.press("d")
    assert "0.75" in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_a_set_of_pairs_is_typed_and_its_means_are_shown(rig: Rig, size: tuple[int, int]) -> None:
    question = await patching(rig)
    await rig.push([patched(question), Ended("PatchActivations")])
    await rig.press("w")
    dialog = rig.app.top
    assert isinstance(dialog, PairsDialog)
    remark = dialog.query_one("#pairs-remark", Remark)
    assert pairs_from(dialog.query_one("#pairs-text", SafeTextArea).text, "The example") == EXAMPLE
    dialog.query_one("#pairs-text", SafeTextArea).load_text("")
    await rig.press("enter")
    assert "has no pairs" in str(remark.render())
    dialog.query_one("#pairs-text", SafeTextArea).load_text("nowhere/at/all.trace")
    await rig.press("enter")
    assert "There is no file of pairs" in str(remark.render())
    line = '{"text": "a [b]", "source": "c", "token": " x", "other": " y"}'
    dialog.query_one("#pairs-text", SafeTextArea).load_text(f'{line}\n{{"text": "a", "source": "a"}}')
    await rig.press("enter")
    assert rig.engine.last(PatchPairs) == PatchPairs((PAIR, PatchPair("a", "a")))
    await rig.push([over_pairs(), Ended("PatchPairs")])
    text = rig.said()
    assert "1 of 2 pairs" in text
    assert "last change" in text
    assert "0.25±0.50" in text.replace(" ± ", "±")
    assert "Both [paths] have the same tokens." in text or "Shown: lines 1" in text
    for key, end in (("down", "have the same tokens"), ("up", "1 of 2 pairs")):
        await rig.press(*[key] * 9)
        assert end in rig.said(), "no key is lost beyond the end"
    await rig.press("m")
    assert rig.engine.last(PatchPairs).part == "attention"
    await rig.press("escape")  # a step back
    assert "Patching:" in rig.screen_text()


async def test_the_text_is_coloured_by_what_each_token_restores(rig: Rig) -> None:
    text = rig.app.query_one(TextPanel)
    text.metric = INSIDE
    question = await patching(rig)
    await rig.push([patched(question), Ended("PatchActivations")])
    await rig.press("escape")
    await rig.until(lambda: "what L1 restores" in str(text.border_subtitle))
    offered = rig.app.main.heat()
    assert offered is not None
    assert offered.shares == {1: 0.0, 2: 0.75, 3: 0.0}
    await rig.press("4", "P", "up", "escape")
    offered = rig.app.main.heat()
    assert offered is not None
    assert offered is rig.app.main.heat()
    assert offered.title.startswith("what L2 restores after")
    assert offered.shares == {1: -0.25, 2: 0.0, 3: 1.0}


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_each_part_is_switched_off_in_the_whole_context_on_request(
    rig: Rig, size: tuple[int, int]
) -> None:
    screen = await opened(rig)
    await rig.press("w")
    await told(rig)
    assert "⏎ sweep context" in rig.screen_text().splitlines()[-1]
    assert "w whole context" in rig.screen_text().splitlines()[-1]
    await rig.press("enter")
    asked_for = rig.engine.last(SweepHeads)
    assert isinstance(asked_for, SweepHeads)
    assert asked_for.scope == "context"
    await rig.push([Measuring("SweepHeads", 3, 9, "L2 h1")])
    assert "L2 h1 3/9. esc stops it" in rig.screen_text()
    found = sweep(screen.node)
    half = tuple(replace(each, kl_bits=each.kl_bits / 2) for each in found.units)
    await rig.push([replace(found, scope="context", units=half), Ended("SweepHeads")])
    await told(rig)
    assert screen.answer is not None
    assert screen.answer.scope == "context"
    assert "in the whole context" in rig.said()
    assert "sweep context" not in rig.screen_text()
    await rig.press("w")
    assert screen.answer.scope == "token", "both are kept"
    assert rig.engine.names.count("SweepHeads") == 2
    await rig.press("w", "g")
    assert rig.status == "It holds from this token on: the KV of the context stays as it was"


async def test_without_a_source_the_page_says_how_to_get_one(rig: Rig) -> None:
    await rig.ready()
    await rig.do("patching")
    assert "e edits this text; change a word of it" in rig.said()
    assert rig.engine.names == []


# ---- numbers, and the real thing ------------------------------------------------------------------


def test_numbers_fit_and_keep_their_sign():
    for value in (0.0, 1e-9, 0.004, 0.05, 0.994, 0.999, 1.25, 9.99, 12.3, 123.0, 99999.0):
        for cells in (3, 4, 5):
            for sign in (1, -1):
                text = figure(sign * value, cells, "+")
                assert len(text) <= cells, (value, cells, text)
                assert text == NOTHING or text[0] == ("+" if sign > 0 else "−")
    assert [figure(1.234, cells) for cells in (3, 4)] == ["1.2", "1.23"]
    assert figure(0.12, 3) == ".12"
    assert [MEASURES[1].scale.step(value) for value in (-9.0, -0.2, 0.05, 0.6)] == [-5, -1, 0, 2]


async def test_a_real_model_is_held_and_released() -> None:
    prompt = "Once upon a time, there was a little boy named Max and a girl named Sue. Max went out with"
    app = InspectorApp(LoadSettings(), Settings(), Prefill(prompt, False))
    async with app.run_test(size=(120, 40)) as pilot:
        await idle(pilot)
        own = app.controller.timeline.tip
        await pilot.press("4", "X")
        await idle(pilot)
        screen = app.top
        assert isinstance(screen, SwitchOff)
        swept = screen.answer
        assert swept is not None
        assert swept.facts.failed is None
        tried = screen.effect
        assert tried is not None
        unit = next(each for each in swept.units if each.intervention == tried.interventions[0])
        assert tried.kl_bits == pytest.approx(unit.kl_bits, abs=1e-4)
        await pilot.press("g")
        await idle(pilot)
        timeline = app.controller.timeline
        assert timeline.under == tried.interventions
        best = min((each.after for each in tried.candidates), key=lambda each: each.rank)
        assert timeline.candidates[0].id == best.id
        await pilot.press("space")
        await idle(pilot)
        assert timeline.under == tried.interventions
        await pilot.press("4", "X", "o")
        await idle(pilot)
        assert app.controller.timeline.tip == own
        assert app.controller.timeline.under == ()


@pytest.mark.parametrize("size", [(100, 30)])
async def test_where_it_is_narrow_no_number_is_cut_and_the_strongest_unit_stays(
    rig: Rig, size: tuple[int, int]
) -> None:
    screen = await opened(rig)
    answer = screen.answer
    assert answer is not None
    measure = screen.measure
    painter = Painter(PlainInks())
    most = max(answer.units, key=lambda each: abs(measure.value(each)))
    for width in (16, 24, 30, 36, 44, 80):
        (line, *more) = painter.draw([sentence(*strongest(answer, measure))], width, 1)
        assert most.intervention.label in line[0].text
        assert not more
    assert cell_len(screen.heading(answer)) <= screen.area.width - TITLED
    for width in range(1, 12):  # a terminal that is made this narrow
        assert screen.draw(answer, screen.view, width, 8)


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (49, "Shown: layers 7 to 15 of 94, heads 27 to 64 of 64"), (48, "Shown: layers 7-15 of 94, heads 27-64 of 64"),
        (43, "Shown: layers 7-15 of 94, heads 27-64 of 64"), (42, "Shown: l7-15/94 h27-64/64"),
    ],
)  # fmt: skip
def test_the_part_of_a_map_that_is_shown_is_told_in_words_as_long_as_they_fit(width: int, words: str) -> None:
    assert part_shown(width, ("layers", range(6, 15), 94), ("heads", range(26, 64), 64)) == words
