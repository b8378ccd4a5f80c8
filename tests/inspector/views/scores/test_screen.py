"""Why a head looks there, on the screen: questions, keys, sizes, from attention and back, a replay, a real model."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.protocol import Check, Loading, Marked, Prefill, ReadScore
from engine.recording import Entry, save_as
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.documents.scores import labels_of
from inspector.views.attention import AttentionView
from inspector.views.scores import ScoresView
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig, idle
from tests.inspector.views.attention.heads import on
from tests.inspector.views.attention.heads import read as attention
from tests.inspector.views.scores.reads import FACTS, read

KIND = "ReadScore"


def asked(rig: Rig) -> ReadScore:
    """The last question."""
    command = rig.engine.last(ReadScore)
    assert isinstance(command, ReadScore)
    return command


async def answer(rig: Rig, **how: object) -> None:
    """Answer the last question; without a head with that of layer 2."""
    question = asked(rig)
    layer, head = 1 if question.layer is None else question.layer, question.head or 0
    await rig.push([read(question.node, rig.timeline.slot, layer, head, **how)])  # type: ignore[arg-type]
    await rig.end(KIND)


async def opened(rig: Rig, **how: object) -> ScoresView:
    await rig.ready()
    await rig.do("scores")
    assert isinstance(rig.app.top, ScoresView)
    await answer(rig, **how)
    return rig.app.top


@pytest.mark.screen(size=(98, 40))
async def test_the_heaviest_key_is_told_and_keys_go_on(rig: Rig) -> None:
    screen = await opened(rig)
    assert (asked(rig).layer, asked(rig).head) == (None, None), "the engine finds a head"
    text = rig.screen_text()
    assert "Why L2 h1 looks at “" in text
    assert "mostly because L1 h1 wrote into it (+2.25 of +2.50)" in text
    assert "In the key" in text
    assert "embedding × L1 h1" in text
    assert screen.key == 1
    await rig.press("k")
    assert screen.key == 0
    await rig.press("K", "c")
    assert (screen.key, screen.against) == (1, 0)
    assert "more than at" in rig.screen_text()
    await rig.press("c")
    assert screen.against not in (0, 1, None)
    await rig.press("d")
    assert screen.against is None


async def test_layer_and_head_are_asked_for(rig: Rig) -> None:
    await opened(rig)
    await rig.press("down")
    assert (asked(rig).layer, asked(rig).head) == (0, 0)
    await answer(rig)
    await rig.press("right_square_bracket")
    assert (asked(rig).layer, asked(rig).head) == (0, 1)
    await answer(rig)
    await rig.press("left")
    assert (asked(rig).layer, asked(rig).head) == (0, 1), "the head stays from token to token"


async def test_from_the_chosen_head_of_attention_and_back(rig: Rig) -> None:
    await rig.ready()
    rig.app.main.point("attention", 2, 2)
    await rig.press("A")
    node, tokens = rig.timeline.before, rig.timeline.slot
    await rig.push([attention(node, tokens, lambda layer, head: on(2, tokens))])
    await rig.end("ReadAttention")
    await rig.press("V")
    assert isinstance(rig.app.top, ScoresView)
    assert (asked(rig).layer, asked(rig).head) == (1, 1)
    await answer(rig)
    await rig.press("down", "A")
    screen = rig.app.top
    assert isinstance(screen, AttentionView)
    assert screen.chosen is not None
    assert screen.chosen.name == "L1 h2"
    await rig.press("V", "escape")
    assert rig.app.top is screen, "one step back: it is a page of attention"


async def test_tokens_of_one_text_are_told_apart_by_their_numbers(rig: Rig) -> None:
    await rig.ready()
    first, second, *_ = rig.timeline.items
    again = replace(first, position=8)
    assert labels_of([first, second, again]) == ["“Once” p1", "“␣upon”", "“Once” p9"]


async def test_a_failed_check_is_said_and_nothing_shown(rig: Rig) -> None:
    checks = (*FACTS.checks[:2], Check("weights", 0.1, 1e-4, "layer 2"))
    await opened(rig, facts=replace(FACTS, checks=checks))
    text = rig.screen_text()
    assert "sums make its weights" in text
    assert "off by 0.1" in text
    assert "In the key" not in text


async def test_hostile_words_stay_words(rig: Rig) -> None:
    await opened(rig, notes=("\x1b[2J[bold]notes[/]\u202e",))
    assert "[bold]notes[/]" in rig.screen_text()
    assert "\x1b" not in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_every_size_has_the_reason(rig: Rig, size) -> None:
    await opened(rig)
    text = rig.answer_text()
    assert "L2 h1 looks at" in text
    assert "│" in text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording with attention and the scores of one head at the last step, and a caption about the latter."""
    session = Session()
    session.load()
    session.open()
    session.steps(4)
    kept = [record for record in session.records if not isinstance(record, Loading)]
    looked = attention(session.node, 5, lambda layer, head: on(2, 5)), read(session.node, 5, 1, 1)
    entries = [Entry(LoadSettings("pocket"), 0.0)]
    told = Marked(session.node, caption="It looks", tool="scores")
    entries += [Entry(record, 0.1) for record in (*kept, *looked, told)]
    save_as(tmp_path / "a.trace", entries, "test 1")
    return tmp_path / "a.trace"


@pytest.mark.recorded(size=(98, 40))
async def test_a_replay_shows_the_head_that_was_asked_for(replay: Rig) -> None:
    await replay.press("3", "V")
    assert "Why L2 h2 looks at “" in replay.screen_text()
    assert "wrote into it" in replay.screen_text()
    await replay.press("left_square_bracket")
    assert "was not recorded" in replay.screen_text()
    assert replay.engine.sent == []


@pytest.mark.recorded(size=(98, 40))
async def test_a_caption_of_a_recording_opens_the_page(replay: Rig) -> None:
    """Also one of a version in which it was a view of its own."""
    main, player = replay.app.main, replay.app.playback.player
    assert {("attention", "Attention"), ("scores", "Why a head looks there")} <= {*main.stages}
    player.go(1)
    while not isinstance(replay.app.top, ScoresView):
        assert not player.at_end
        await replay.press("space")
        await replay.until(lambda: player.settled)
        await replay.pilot.pause()
    assert main.view == "scores"


@pytest.mark.slow
async def test_a_real_model_says_why() -> None:
    prompt = "Tim had a red kite. Sue had a blue ball. Tim played with his red"
    app = InspectorApp(LoadSettings(), Settings(), Prefill(prompt, False))
    async with app.run_test(size=(98, 36)) as pilot:
        await idle(pilot)
        await pilot.press("3", "V")
        await idle(pilot)
        screen = app.top
        assert isinstance(screen, ScoresView)
        found = screen.answer
        assert found is not None
        assert found.facts.failed is None
        shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert f"Why L{found.layer + 1} h{found.head + 1} looks at “" in shown
        assert "because" in shown
