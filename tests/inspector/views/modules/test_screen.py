"""The pages of what is inside, on the screen: the cursor, what Enter opens, folding, experts, failures, replay."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.protocol import (
    CaptureFacts,
    Check,
    Ended,
    ExpertLayer,
    ExpertsRead,
    Failure,
    Loading,
    ModelModules,
    Prefill,
    ReadExperts,
    ReadModules,
    StateArray,
)
from engine.recording import Entry, save_as
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.documents.experts import experts_summary, states_summary
from inspector.main.key_table import available
from inspector.state.inside import Answers
from inspector.views.lens import Lens
from inspector.views.modules import ExpertsView, ModulesView
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig
from tests.inspector.views.modules.test_lines import MODULES
from tests.inspector.views.sampler.test_what_if_real import until

FACTS = CaptureFacts((Check("forward", 0.0, 0.0), Check("experts", 1e-8, 1e-5)), 20.0, 10.0, "mixtral")


def known(rig: Rig) -> ModelModules:
    facts = rig.timeline.facts
    assert facts is not None
    return replace(MODULES, model=facts.path, bytes=facts.weight_bytes)


async def opened(rig: Rig) -> ModulesView:
    await rig.ready()
    await rig.press("O")
    assert isinstance(rig.app.top, ModulesView)
    assert isinstance(rig.engine.sent[-1], ReadModules)
    await rig.push([known(rig)])
    await rig.end("ReadModules")
    return rig.app.top


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12), (220, 50)])
async def test_the_way_is_shown_with_its_numbers(rig: Rig, size: tuple[int, int]) -> None:
    await opened(rig)
    text = rig.screen_text()
    assert "● token" in text
    assert "▾ layers 1 to 3" in text
    line = next(line for line in text.splitlines() if "layers 1 to 3" in line)
    assert "120 k" in line
    assert ("█" in line) == (size[0] in (80, 220))
    assert "31.4 %" in line
    if size[0] >= 80:
        rope = next(line for line in text.splitlines() if "RoPE" in line)
        assert "theta 1,000,000, 16 of a head" in rope
        assert "…" not in rope
    if size[0] >= 80:
        assert "SwiGLU, 64 → 128 → 64" in text
    if size[0] >= 120:
        assert "⊕─╯ added to the stream, × 0.5" in text
        assert "382,208 parameters" in text
    await rig.press("end")
    assert "logits" in rig.screen_text()


async def test_the_selected_module_is_explained_and_enter_opens_its_view(rig: Rig) -> None:
    screen = await opened(rig)
    await rig.press("down", "down", "down", "down")
    text = rig.screen_text()
    assert "model.layers.*.self_attn" in text
    assert "Where tokens meet" in text
    assert "12,288 parameters in each layer" in text
    await rig.press("up", "up")
    assert "⏎ what each layer would predict" in rig.screen_text()
    await rig.press("enter")
    await rig.until(lambda: isinstance(rig.app.top, Lens))
    assert not screen.is_open


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("row", "key", "tool"),
    [(0, "enter", "lens"), (2, "enter", "attention"), (7, "enter", "attribution"), (0, "", "interventions")],
)
async def test_a_view_opens_on_the_layer_of_the_module(rig: Rig, row: int, key: str, tool: str) -> None:
    screen = await opened(rig)
    await rig.press("down", "down", "right", "down", "right")  # the second of three layers, unfolded
    assert screen.line is not None
    assert screen.line.layers == (1,)
    await rig.press(*["down"] * row, *filter(None, [key]))
    if not key:
        await rig.do(tool)
    await rig.until(lambda: rig.app.top is not screen and not screen.is_open)
    actions, top = rig.app.main.actions[tool], rig.app.top
    chosen = {
        "lens": lambda: top._layer,
        "attention": lambda: top._chosen.layer + 1,
        "attribution": lambda: top.choices.layer + 1,
        "interventions": lambda: actions.chosen.layer + 1,
    }[tool]
    assert tool == rig.app.top.TOOL
    assert chosen() == 2


async def test_the_lines_are_made_once_for_each_showing(rig: Rig) -> None:
    screen = await opened(rig)
    before = screen.lines
    await rig.pilot.pause()
    assert screen.lines is before
    await rig.press("down", "down", "right")
    assert len(screen.lines) > len(before) or screen.lines[2].layers == (0,)


async def test_folded_layers_choose_none_and_views_stay_where_they_were(rig: Rig) -> None:
    await opened(rig)
    await rig.press("down", "down", "enter")
    await rig.until(lambda: isinstance(rig.app.top, Lens))
    assert rig.app.top._layer is None


async def test_experts_of_the_chosen_layer_come_first(rig: Rig) -> None:
    await rig.ready()
    rig.app.main.point("experts", 2)
    await rig.do("experts")
    screen = rig.app.top
    assert isinstance(screen, ExpertsView)
    await rig.push([experts(screen.node)])
    await rig.end("ReadExperts")
    shown = rig.screen_text()
    assert shown.count("layer 2") == 2, "on top, and among all"
    assert shown.index("layer 2") < shown.index("2 layers with experts")
    rig.app.main.point("experts", 4)
    await rig.press("escape")
    await rig.do("experts")
    assert "Layer 4 has no experts and no state." in rig.screen_text()


async def test_a_key_that_no_tool_has_is_not_offered(rig: Rig) -> None:
    screen = await opened(rig)
    await rig.press("home", "down")
    assert "⏎" not in rig.screen_text()
    await rig.press("enter")
    assert rig.app.top is screen


async def test_what_is_outside_of_the_layers_has_nothing_to_unfold(rig: Rig) -> None:
    screen = await opened(rig)
    for end in ("home", "end"):
        await rig.press(end, "right", "left", "right")
        assert rig.app.top is screen
        assert "▾ layers 1 to 3" in rig.screen_text()


async def test_layers_unfold_open_and_fold(rig: Rig) -> None:
    await opened(rig)
    await rig.press("down", "down", "right")
    assert "▸ layer 1" in rig.screen_text()
    assert "▸ layer 3" in rig.screen_text()
    await rig.press("down", "right")
    text = rig.screen_text()
    assert "▾ layer 2" in text
    assert "queries" in text
    await rig.press("down", "down")
    assert "model.layers.1.self_attn" in rig.screen_text()
    await rig.press("left")
    assert "▸ layer 2" in rig.screen_text()
    assert "queries" not in rig.screen_text()
    await rig.press("left")
    assert "▾ layers 1 to 3" in rig.screen_text()


async def test_what_was_read_is_not_read_again_for_another_prompt(rig: Rig) -> None:
    await opened(rig)
    await rig.press("escape")
    await rig.push(rig.session.open())
    rig.engine.sent.clear()
    await rig.press("O")
    assert "▾ layers 1 to 3" in rig.screen_text()
    assert rig.engine.names == []


async def test_a_failure_is_told(rig: Rig) -> None:
    await rig.ready()
    await rig.press("O")
    await rig.push([Failure("ReadModules", "It is [b]odd[/b].", "Try another model.")])
    await rig.end("ReadModules")
    text = rig.screen_text()
    assert "It is [b]odd[/b]." in text
    assert "Try another model." in text


def experts(node: int) -> ExpertsRead:
    layers = (
        ExpertLayer(0, "mlp.switch_mlp", 8, (6, 1), (0.75, 0.25), 1e-8),
        ExpertLayer(1, "mlp.switch_mlp", 8, (3, 4), (), 0.5),
    )
    states = (StateArray(2, (1, 4, 32), "float32", 512, 2.0, 1.0, 1.5),)
    return ExpertsRead(node, layers, states, ("The weights of 1 layer are not known.",), FACTS)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_the_experts_of_a_token_with_their_weights(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    await rig.do("experts")
    assert isinstance(rig.app.top, ExpertsView)
    assert rig.engine.sent[-1] == ReadExperts(rig.timeline.before)
    await rig.push([experts(rig.timeline.before)])
    await rig.end("ReadExperts")
    shown = ""
    for _ in range(16):
        shown += f"{rig.screen_text()}\n{rig.answer_words()}\n"
        await rig.press("down")
    assert "0.75" in shown
    assert "0.25" in shown
    assert "layer 2" in shown
    assert "1 → 2" in shown
    if size[0] == 80:
        first = next(line for line in shown.splitlines() if "layer 1 " in line)
        assert first.index("0.25") < first.index("0.75")  # the columns are the experts in their order
    if size[0] == 120:
        assert "Verified, largest " in shown
    if size[0] > 40:
        assert "changed by 150 %" in shown
    await rig.press("escape", "escape")  # the map, of which it is a page
    assert rig.app.top is rig.app.main


async def test_from_the_modules_to_the_experts_and_back(rig: Rig) -> None:
    await rig.ready()
    await rig.press("O")
    await rig.push([known(rig)])
    await rig.end("ReadModules")
    await rig.press("e")
    assert isinstance(rig.app.top, ModulesView)  # this model has neither experts nor states
    await rig.press("escape")
    await rig.do("experts")
    await rig.until(lambda: isinstance(rig.app.top, ExpertsView))
    await rig.press("escape")
    await rig.do("modules")
    await rig.until(lambda: isinstance(rig.app.top, ModulesView))


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("known", "action", "said"),
    [
        ({"experts": 0}, "experts",
         "This model has neither experts nor recurrent layers. O shows what it is made of"),
        ({"cache_kinds": ("recurrent",) * 8}, "attention",
         "This model has no attention: it keeps states. E shows them"),
        ({"cache_kinds": ("recurrent",) * 8}, "scores",
         "This model has no attention: it keeps states. E shows them"),
    ],
)  # fmt: skip
async def test_what_a_model_has_nothing_of_is_not_offered(
    rig: Rig, known: dict[str, object], action: str, said: str
) -> None:
    """Neither among the answers of its tab nor in the finder; its key says why, and what to look at instead."""
    await rig.ready()
    main = rig.app.main
    main.tab = "3"
    on_row = action == "attention"
    assert (action in [each.id for each in main.views]) == on_row
    assert available(main.table[action], rig.app.controller)
    began = [*rig.session.load(**known), Ended("Configure"), *rig.session.open()]
    await rig.push([*began, *rig.session.steps(3)])
    assert action not in [each.id for each in main.views]
    assert not available(main.table[action], rig.app.controller)
    await rig.do(action)
    assert rig.app.top is main
    assert rig.status == said
    assert said in rig.screen_text()


async def test_experts_and_states_have_a_summary(rig: Rig) -> None:
    read = experts(5)
    assert experts_summary(read.layers) == (
        "2 layers with experts: 4 of 16 ran for this token. The strongest weight is 0.75."
    )
    more = (*read.layers, ExpertLayer(9, "mlp.switch_mlp", 64, (6, 1), (0.25, 0.125), 1e-8))
    assert experts_summary(more) == (
        "3 layers with experts: 6 of 80 ran for this token. The strongest weight of a layer is 0.50 on average: "
        "most in layer 1 (0.75), least in layer 10 (0.25)."
    )
    assert states_summary(read.states) == "1 layer with a state, 512 B in all."
    assert (experts_summary(()), states_summary(())) == ("", "")

    await rig.ready()
    await rig.do("experts")
    await rig.push([experts(rig.timeline.before)])
    await rig.end("ReadExperts")
    assert "2 layers with experts: 4 of 16 ran for this token." in rig.screen_text()


@pytest.mark.slow
async def test_the_pocket_model_is_read_before_its_sums_are_shown_and_a_layer_leads_to_the_lens() -> None:
    app = InspectorApp(LoadSettings(), Settings(), Prefill("Once upon a time", False))

    async with app.run_test(size=(120, 40)) as pilot:
        idle = lambda: not app.controller.client.outstanding  # noqa: E731
        await until(lambda: app.controller.timeline.prompts.prefilled and idle())
        await pilot.press("3", "O")
        await until(lambda: isinstance(app.top, ModulesView) and app.top.answer is not None)
        screen, facts = app.top, app.controller.timeline.facts
        assert isinstance(screen, ModulesView)
        assert facts is not None
        assert screen.answer is not None
        assert (screen.answer.parameters, screen.answer.bytes) == (facts.parameters, facts.weight_bytes)
        await pilot.press("down", "down", "enter")
        await until(lambda: isinstance(app.top, Lens) and app.top.answer is not None)
        await pilot.press("escape", "E", "escape")
        await until(idle)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A session in which somebody looked at the modules, and at the experts of the last token."""
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    timeline = session.timeline()
    facts = timeline.facts
    assert facts is not None
    seen = [replace(MODULES, model=facts.path, bytes=facts.weight_bytes), experts(timeline.before)]
    entries = [Entry(LoadSettings("pocket"), 0.0)]
    kept = [record for record in session.records if not isinstance(record, Loading)]
    entries += [Entry(record, number * 0.1) for number, record in enumerate([*kept, *seen])]
    save_as(tmp_path / "a.trace", entries, "test 1")
    return tmp_path / "a.trace"


async def test_a_recording_shows_what_was_looked_at(replay: Rig) -> None:
    await replay.press("O")
    assert isinstance(replay.app.top, ModulesView)
    assert "▾ layers 1 to 3" in replay.screen_text()
    await replay.press("escape")
    await replay.do("experts")
    assert isinstance(replay.app.top, ExpertsView)
    assert "0.75" in replay.screen_text()
    await replay.press("left")
    assert "was not recorded" in replay.screen_text()
    assert replay.engine.sent == []


def test_what_no_engine_said_is_not_drawn() -> None:
    read = experts(3)
    layer = read.layers[0]
    lies = [
        replace(layer, weights=layer.weights[:-1]),
        replace(layer, weights=(math.nan,) * len(layer.chosen)),
    ]
    assert Answers.sound(read)
    assert not any(Answers.sound(replace(read, layers=(lie,))) for lie in lies)
    block, table = MODULES.blocks[0], MODULES.before[0]
    assert Answers.sound(MODULES)
    for lie in (
        replace(MODULES, blocks=(replace(block, parts=()),)),
        replace(MODULES, blocks=(replace(block, layers=()),)),
        replace(MODULES, before=(replace(table, arrays=(replace(table.arrays[0], shape=()),)),)),
    ):
        assert not Answers.sound(lie)
