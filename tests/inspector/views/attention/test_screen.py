"""The attention view: what its keys ask and choose, and what it says, on answers made by hand."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.protocol import (
    TRIANGLE_TOKENS,
    AttentionRead,
    Ended,
    Failure,
    Loading,
    Prefill,
    ReadAttention,
    ReadTriangle,
    RepeatedTexts,
    ScoreHeads,
)
from engine.recording import Entry, save_as
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.documents.attention import MAX, MEAN, Head
from inspector.views.attention import AttentionView
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig
from tests.inspector.views.attention.heads import FAILED, on, read, scores, triangle


def screen_of(rig: Rig) -> AttentionView:
    """The open view."""
    screen = rig.app.top
    assert isinstance(screen, AttentionView)
    return screen


def answer(rig: Rig, place: int = 3, **more: object) -> AttentionRead:
    """Layer 2's first head looks at one token, the others rest on the first."""
    tokens = rig.timeline.slot
    rows = lambda layer, head: on(place if (layer, head) == (1, 0) else 0, tokens)  # noqa: E731
    return read(rig.timeline.before, tokens, rows, **more)  # type: ignore[arg-type]


async def opened(rig: Rig, **more: object) -> AttentionView:
    """The view with an answer."""
    await rig.ready()
    await rig.press("A")
    assert rig.engine.last(ReadAttention) == ReadAttention(rig.timeline.before)
    await rig.push([answer(rig, **more), Ended("ReadAttention")])
    return screen_of(rig)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_one_head_over_the_text_and_as_a_list(rig: Rig, size: tuple[int, int]) -> None:
    screen = await opened(rig)
    text = rig.screen_text()
    tokens = rig.timeline.slot
    assert screen.chosen == Head(1, 0)
    assert "L2 h1" in text
    for _ in range(8):  # 40x12 has room for a few of its rows at a time
        screen.view.action_move(3)
        await rig.pilot.pause()
        text += rig.screen_text()
    assert "90.00 %" in text
    assert f"{tokens - 4} back" in text
    assert "Next" in text or "next token" in text
    assert "Attention is" in text


@pytest.mark.screen(size=(60, 20))
async def test_the_maps_come_first_where_there_is_little_room(rig: Rig) -> None:
    """The text above has the shares of the head that is chosen; the maps were below all that was said of it."""
    screen = await opened(rig)
    layers = {f"L{layer}" for layer in range(1, 9)}
    named = {
        word for line in rig.screen_text().splitlines() for word in line.strip("│ ").split()[:1]
    } & layers
    assert "L2" in named, "the chosen one"
    assert len(named) > 1
    screen.view.action_move(20)
    await rig.pilot.pause()
    assert "Attention is not an explanation" in rig.screen_text()


async def test_layers_and_heads_are_chosen_and_go_round(rig: Rig) -> None:
    screen = await opened(rig)
    await rig.press("up")
    assert screen.chosen == Head(2, 0)
    await rig.press("up")
    assert screen.chosen == Head(2, 0), "there is no later one"
    chosen = []
    for _ in range(4):
        await rig.press("right_square_bracket")
        chosen.append(screen.chosen)
    assert chosen == [Head(2, 1), Head(2, MEAN), Head(2, MAX), Head(2, 0)]
    await rig.press("comma")
    assert screen.chosen == Head(2, MAX)
    assert "L3 max" in rig.screen_text()


async def test_a_layer_with_two_attentions_is_passed_as_one(rig: Rig) -> None:
    """The cursor stood still before the second of them."""
    await rig.ready()
    await rig.press("A")
    made = answer(rig)
    one, other, last = made.layers
    twice = (one, replace(other, layer=0), replace(last, layer=1))
    await rig.push([replace(made, layers=twice), Ended("ReadAttention")])
    screen = screen_of(rig)
    assert screen.chosen == Head(0, 0)
    await rig.press("up")
    assert screen.chosen == Head(1, 0)


async def test_walking_tokens_and_opening_again_keep_the_head(rig: Rig) -> None:
    screen = await opened(rig)
    await rig.press("down", "left")
    asked = rig.engine.last(ReadAttention)
    assert asked == ReadAttention(rig.timeline.before)
    await rig.push([answer(rig), Ended("ReadAttention")])
    assert screen.chosen == Head(0, 0)
    await rig.press("escape", "A")
    assert screen_of(rig).chosen == Head(0, 0)
    assert "L1 h1 looks from" in rig.screen_text()


async def test_what_rests_on_the_first_token_and_sinks_are_named(rig: Rig) -> None:
    await opened(rig, sinks=(0.7, 0.2))
    assert "Rests on the first token" not in rig.screen_text()
    assert "Its sink takes 70.00 %" in rig.screen_text()
    await rig.press("right_square_bracket")
    assert "Rests on the first token (90.00 %)" in rig.screen_text()
    assert "Its sink takes 20.00 %" in rig.screen_text()


async def test_the_triangle_is_asked_for_the_whole_path_and_kept_while_walking(rig: Rig) -> None:
    screen = await opened(rig)
    tip, count = rig.timeline.tip, len(rig.timeline.items)
    rig.engine.sent.clear()
    await rig.press("a")
    assert rig.engine.sent == [ReadTriangle(tip, 1, 0)]
    assert "The whole path goes through the model again" in rig.screen_text()
    await rig.push([triangle(tip, 1, 0, count), Ended("ReadTriangle")])
    assert f"{count} tokens, {count * (count + 1)} B of 16 bits" in rig.screen_text()
    assert "hidden by the causal mask" in rig.said()
    rig.engine.sent.clear()
    await rig.press("left")
    await rig.push([answer(rig), Ended("ReadAttention")])
    assert rig.engine.names == ["ReadAttention"], "the triangle has the rows of all tokens"
    assert f"{count - 1}▸" in rig.screen_text()
    await rig.press("right_square_bracket")
    assert rig.engine.sent[-1] == ReadTriangle(tip, 1, 1)
    await rig.press("right_square_bracket")
    assert "A single head can be shown from all tokens" in rig.screen_text()
    await rig.press("a")
    assert not screen.triangle


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording with the answers, the triangle and the scores; the path went on by two tokens after them."""
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    node, count = session.node, len(session.timeline().items)
    rows = lambda layer, head: on(3 if (layer, head) == (1, 0) else 0, count)  # noqa: E731
    session.records += [read(node, count, rows), triangle(node, 1, 0, count), scores(node, count)]
    session.steps(2)
    entries = [Entry(record, 0.0) for record in session.records if not isinstance(record, Loading)]
    save_as(tmp_path / "looked.trace", [Entry(LoadSettings("pocket"), 0.0), *entries], "test 1")
    return tmp_path / "looked.trace"


async def test_what_was_recorded_is_shown_without_a_model(replay: Rig) -> None:
    await replay.press("end", "A")
    assert "This view of this token was not recorded." in replay.screen_text()
    await replay.press("left", "left")
    assert "L2 h1 looks from" in replay.screen_text()
    await replay.press("a")
    assert "hidden by the causal mask" in replay.said()
    await replay.press("b")
    count = len(replay.timeline.items) - 2
    assert f"Heads sorted by: previous token, over {count} tokens" in replay.screen_text()
    await replay.press("a", "right_square_bracket")
    assert "This was not recorded." in replay.screen_text()
    assert replay.engine.sent == []


async def test_of_a_long_path_the_part_that_fits_is_asked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspector.views.attention.TRIANGLE_TOKENS", 8)
    assert TRIANGLE_TOKENS == 2048

    screen = await opened(rig)
    assert screen.end == rig.timeline.before, "the token is beyond the bound: the engine says so"
    await rig.press("home")
    assert screen.end == rig.timeline.items[7].node


async def test_a_refused_triangle_says_why(rig: Rig) -> None:
    await opened(rig)
    await rig.press("a")
    refused = Failure("ReadTriangle", "The path has 9,000 tokens.", "Look at an earlier token.")
    await rig.push([refused, Ended("ReadTriangle")])
    text = rig.screen_text()
    assert "The path has 9,000 tokens." in text
    assert "Look at an earlier token." in text


async def test_heads_are_sorted_by_what_they_do(rig: Rig) -> None:
    screen = await opened(rig)
    tip, count = rig.timeline.tip, len(rig.timeline.items)
    rig.engine.sent.clear()
    await rig.press("b")
    assert rig.engine.sent == [ScoreHeads(tip)]
    assert screen.chosen == Head(1, 0)
    await rig.push([scores(tip, count), Ended("ScoreHeads")])
    assert "Heads sorted by: previous token" in rig.screen_text()
    assert screen.chosen == Head(1, 0)
    await rig.press("b")
    assert screen.chosen == Head(2, 1), "the most inductive"
    assert "Heads sorted by: induction" in rig.screen_text()
    await rig.press("down")
    assert screen.chosen == Head(2, 0)
    await rig.press("up", "up")
    assert screen.chosen == Head(2, 1)
    await rig.press("b")
    assert screen.chosen == Head(2, 0), "looks at the same token"
    assert "Duplicate-token attention on this text: L3 h1 (60.00 %)." in rig.screen_text()
    await rig.press("b")
    assert screen.chosen == Head(0, 1), "rests on the first token"
    await rig.press("b")
    assert screen.chosen == Head(0, 0), "the widest"
    assert "5.00" in rig.screen_text()
    await rig.press("b")
    assert "Where each head looks: 3 layers of 2 heads" in rig.screen_text()
    assert screen.chosen == Head(2, 1), "the last one that was chosen by hand"
    await rig.press("down", "b", "b", "b")
    assert screen.chosen == Head(2, 0)
    await rig.press("escape")
    assert "Where each head looks: 3 layers of 2 heads" in rig.screen_text()
    assert screen.chosen == Head(1, 1), "as before they were sorted"
    assert [command for command in rig.engine.names if command == "ScoreHeads"] == ["ScoreHeads"]


async def test_heads_are_scored_over_texts_that_all_models_share(rig: Rig) -> None:
    screen = await opened(rig)
    tip, count = rig.timeline.tip, len(rig.timeline.items)
    rig.engine.sent.clear()
    await rig.press("x")
    assert rig.engine.sent == [ScoreHeads(tip, RepeatedTexts())]
    assert "Repeated random tokens go through the model." in rig.screen_text()
    await rig.press("escape")
    assert rig.engine.cancelled(rig.engine.sent[0])
    assert "Where each head looks" in rig.screen_text()
    await rig.press("x")
    await rig.end("ScoreHeads", cancelled=True)
    await rig.push([replace(scores(tip, 1000), texts=RepeatedTexts()), Ended("ScoreHeads")])
    text = rig.said()
    assert "over 10 texts of 50 random tokens, each repeated once (seed 0)" in text
    assert "Previous-token head: L2 h1 (50.00 %)." in text
    assert screen.chosen == Head(1, 0)
    await rig.press("b")
    assert "Induction heads: L3 h2 (50.00 %), L3 h1 (40.00 %)." in rig.said()
    await rig.press("left")
    await rig.push(
        [read(rig.timeline.before, count - 1, lambda layer, head: on(0, count - 1)), Ended("ReadAttention")]
    )
    assert "Induction heads: L3 h2" in rig.said(), "the same at every token"
    assert rig.engine.names.count("ScoreHeads") == 2
    await rig.press("x")
    assert rig.engine.last(ScoreHeads).texts is None


async def test_a_text_without_repeats_has_no_induction(rig: Rig) -> None:
    screen = await opened(rig)
    await rig.press("b", "b")
    await rig.push([scores(rig.timeline.tip, 9, repeats=0), Ended("ScoreHeads")])
    assert "No token of this text occurs again" in rig.screen_text()
    assert screen.chosen == Head(1, 0), "nothing to choose by"


async def test_a_check_that_fails_takes_the_view_away(rig: Rig) -> None:
    await opened(rig, facts=FAILED)
    text = rig.said()
    assert "The check “attention” failed for the architecture strange (layer 2):" in text
    assert "off by 0.25, where 1e-05 is allowed." in text
    assert "90.00 %" not in text


async def test_layers_without_an_attention_are_told(rig: Rig) -> None:
    await opened(rig, missing=("Layer 4 without an attention: it keeps a state instead.",))
    assert "Layer 4 without an attention: it keeps a state instead." in rig.said()
    await rig.press("left")
    none = read(rig.timeline.before, 3, lambda layer, head: [], layers=0, missing=("No layer has one.",))
    await rig.push([none, Ended("ReadAttention")])
    assert "No layer has one." in rig.screen_text()
    await rig.press("a", "b", "up", "right_square_bracket")
    assert "L2 h1" not in rig.screen_text()


async def test_leaving_stops_what_is_computed(rig: Rig) -> None:
    await opened(rig)
    await rig.press("a")
    asked = rig.engine.last(ReadTriangle)
    await rig.press("escape")
    assert rig.engine.cancelled(asked)


async def test_the_kite_and_the_ball_on_the_real_model() -> None:
    prompt = "Tim had a red kite. Sue had a blue ball. Tim played with his red"
    app = InspectorApp(LoadSettings(), Settings(), Prefill(prompt, False))
    async with app.run_test(size=(98, 40)) as pilot:

        def text() -> str:
            return "\n".join(strip.text for strip in app.screen._compositor.render_strips())

        async def until(*words: str) -> None:
            async with asyncio.timeout(120):
                while not all(word in text() for word in words):
                    await pilot.pause(0.02)

        async with asyncio.timeout(120):
            while not app.controller.timeline.prompts.prefilled:
                await pilot.pause(0.02)
        await pilot.press("3", "A")
        await until("Layer 6, head 2 looks from “␣red” at", "␣kite", "“␣ball” 7")
        await until("Attention is not an explanation")
        await pilot.press("a")
        await until("17 tokens, 306 B of 16 bits", "␣played   14", "17▸")
        await pilot.press("b", "b")
        await until("Heads sorted by: induction", "▶ L7 h1")


@pytest.mark.slow
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_a_model_with_more_layers_and_heads_than_there_is_room_for_says_which_are_shown(
    rig: Rig, size
) -> None:
    screen = await opened(rig, layers=94, heads=64)
    screen.view.action_move(30)
    await rig.pilot.pause()
    for key, wanted in (("up", 3), ("right_square_bracket", 1)):
        found = re.search(SHOWN, whole(screen))
        assert found is not None
        first, last, one, other = map(int, found.groups())
        chosen = screen.chosen
        assert first <= chosen.layer + 1 <= last
        assert one <= chosen.head + 1 <= other
        drawn = [line.strip("│ ").split(" ")[0] for line in whole(screen).splitlines()]
        layers = {int(name[1:]) for name in drawn if re.fullmatch(r"L\d+", name)}
        assert layers == set(range(first, last + 1)), "and these are those"
        await rig.press(*[key] * (60 if wanted == 3 else 40))
    await rig.press("b")
    assert isinstance(rig.engine.last(ScoreHeads), ScoreHeads)


SHOWN = r"Shown: (?:layers |l)(\d+)(?: to |-)(\d+)(?: of |/)94,? (?:heads |h)(\d+)(?: to |-)(\d+)(?: of |/)64"
"""Of a large model, in words or short."""


def whole(screen: AttentionView) -> str:
    """All lines of the view, those out of sight too."""
    view = screen.view
    width, height = view.size.width, view.size.height
    rows = screen._draw(view, width, height)
    return "\n".join("".join(part.text for part in row) for row in rows)


async def test_a_model_that_fits_says_nothing_of_it(rig: Rig) -> None:
    await opened(rig)
    assert "Shown:" not in rig.screen_text()


async def test_beside_the_text_titles_and_maps_keep_to_their_room(rig: Rig) -> None:
    screen = await opened(rig)
    assert "% of a head's attention" in rig.said(), "nothing is out of sight"
    assert "more lines" not in rig.answer_text()
    await rig.press("a")
    tip, count = rig.timeline.tip, len(rig.timeline.items)
    await rig.push([triangle(tip, 1, 0, count), Ended("ReadTriangle")])
    assert str(screen.view.border_title).startswith(f"Where L2 h1 looks from each token: {count} tokens, ")
    assert "…" not in str(screen.view.border_title)


async def test_the_other_views_of_the_tab_open_by_their_keys(rig: Rig) -> None:
    await opened(rig)
    await rig.press("I")
    assert rig.app.main.view == "lens"
    await rig.press("O")
    assert rig.app.main.view == "modules"
    await rig.press("A", "a")
    assert rig.app.main.view == "attention", "a is a key of its own there"
