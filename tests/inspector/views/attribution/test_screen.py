"""Contributions on the screen: questions, bars and their sum, heads, order, tokens, sizes, a replay, a real model."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.protocol import Attribute, Check, Loading, Prefill
from engine.recording import Entry, save_as
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.views.attribution import Contributions
from inspector.widgets.charts import bar_texts, spread
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig, idle
from tests.inspector.views.attribution.reads import FACTS, read

KIND = "Attribute"


def asked(rig: Rig) -> Attribute:
    """The last question."""
    command = rig.engine.last(Attribute)
    assert isinstance(command, Attribute)
    return command


async def answer(rig: Rig, **how: object) -> None:
    """Answer the last question."""
    await rig.push([read(asked(rig).node, asked(rig).tokens, **how)])  # type: ignore[arg-type]
    await rig.end(KIND)


async def opened(rig: Rig, **how: object) -> Contributions:
    await rig.ready()
    await rig.press("D")
    assert isinstance(rig.app.top, Contributions)
    await answer(rig, **how)
    return rig.app.top


async def test_of_a_chosen_layer_the_largest_part_is_looked_at(rig: Rig) -> None:
    await rig.ready()
    rig.app.main.point("attribution", 1)
    await rig.press("D")
    await answer(rig)
    screen = rig.app.top
    assert isinstance(screen, Contributions)
    found = screen.answer
    assert found is not None
    rows = screen.rows
    own = [row for row in rows if found.parts[row.part].layer == 0]
    row = rows[screen.at]
    assert abs(row.value) == max(abs(each.value) for each in own)
    assert found.parts[row.part].layer == 0
    assert abs(row.value) < max(abs(each.value) for each in rows), "another layer has a larger part"
    await rig.press("down")
    assert rows[screen.at] is rows[rows.index(row) + 1]


def line(rig: Rig, name: str) -> str:
    """The line of a row."""
    return next(text for text in rig.answer_text().splitlines() if text.lstrip("│ ▶├└").startswith(name))


@pytest.mark.screen(size=(98, 40))
async def test_bars_go_both_ways_and_sum_to_the_difference(rig: Rig) -> None:
    await opened(rig)
    timeline = rig.timeline
    assert asked(rig).node == timeline.before
    assert asked(rig).tokens[0] == timeline.taken
    text = rig.answer_text()
    assert "for “[odd]” ◂│▸ for “␣toys”" in text
    assert "sums to 3.90, the logits differ by 3.90" in text
    assert "Direct effects only" in text
    up, down = line(rig, "L2 MLP"), line(rig, "L2 attention")
    assert "+7.20" in up
    assert "█" in up.partition("│")[2].partition("│")[2]
    assert "▒" not in up
    assert "−4.80" in down
    assert "▒" in down
    assert "█" not in down
    assert down.index("▒") < up.index("█")
    assert "3.90" in up, "where the difference is after the last part"
    assert "constant" not in text, "it adds nothing"


async def test_the_largest_part_is_told_in_words_and_arrows_go_on(rig: Rig) -> None:
    await opened(rig)
    assert "L2 MLP: +6.00 to “␣toys”, −1.20 to “[odd]”; the difference +7.20." in rig.said()
    await rig.press("up")
    assert "Heads: h1 −3.60, h2 −1.20." in rig.screen_text()
    await rig.press(*["up"] * 9)
    assert "embedding: +0.25" in rig.screen_text()
    assert rig.engine.names == [KIND]


@pytest.mark.screen(size=(52, 24))
async def test_the_words_end_with_a_whole_head_where_there_is_little_room(rig: Rig) -> None:
    await opened(rig)
    await rig.press("up")
    words = " ".join(rig.answer_text().replace("│", " ").split())
    told = words.partition("L2 attention: ")[2].partition(" Direct effect")[0]
    assert told.endswith("."), told


async def test_an_attention_unfolds_and_by_size_its_heads_take_its_place(rig: Rig) -> None:
    screen = await opened(rig)
    assert "⏎ heads" not in rig.screen_text(), "an MLP has none"
    await rig.press("enter")
    assert "├ h1" not in rig.screen_text()
    assert "This part has no heads: ↑↓ goes to an attention" in rig.screen_text()
    await rig.press("up")
    assert "⏎ heads" in rig.screen_text()
    await rig.press("enter")
    assert "├ h1" in rig.screen_text()
    assert "└ h2" in rig.screen_text()
    assert "╍" in line(rig, "h1")
    await rig.press("down", "enter")
    assert "├ h1" not in rig.screen_text()
    assert screen.choices.row == (3, 0)
    await rig.press("h", "b")
    text = rig.screen_text()
    assert "so far" not in text
    assert text.index("L2 MLP") < text.index("L2 h1") < text.index("L2 h2") < text.index("embedding")
    assert "L2 attention" not in text
    assert "▒" in line(rig, "L2 h1")
    await rig.press("h", "b")
    assert "L2 attention" in rig.screen_text()
    assert rig.engine.names == [KIND]


@pytest.mark.screen(size=(98, 40))
async def test_tokens_are_chosen_among_the_candidates(rig: Rig) -> None:
    screen = await opened(rig)
    first = asked(rig).tokens
    await rig.press("c")
    assert asked(rig).tokens[0] == first[0]
    assert asked(rig).tokens[1] not in first
    await answer(rig)
    await rig.press("C")
    assert screen.tokens == first
    assert rig.engine.names == [KIND] * 2, "what is known is not asked again"
    await rig.press("t")
    assert asked(rig).tokens[1] == first[1]
    assert asked(rig).tokens[0] not in first
    await answer(rig)
    await rig.press("T", "d")
    assert asked(rig).tokens == first[:1]
    await answer(rig)
    text = rig.screen_text()
    assert "what each part adds to the logit" in text
    assert "sums to 3.25, the logit is 3.25" in text
    assert "lowers it ◂│▸ raises it" in text
    await rig.press("d")
    assert screen.tokens == first
    await rig.press("left")
    assert asked(rig).node == rig.timeline.before
    assert asked(rig).tokens[0] == rig.timeline.taken, "another token begins with its own"


async def test_the_highlighted_candidate_is_what_it_is_compared_with(rig: Rig) -> None:
    await rig.ready()
    await rig.press("down", "down")
    highlighted = rig.app.main.candidate
    assert highlighted is not None
    assert highlighted.id != rig.timeline.taken
    await rig.press("D")
    assert asked(rig).tokens == (rig.timeline.taken, highlighted.id)


@pytest.mark.screen(size=(98, 40))
async def test_a_softcap_and_what_could_not_be_split_are_said(rig: Rig) -> None:
    await opened(rig, softcap=True, notes=("Layers 1-2: the heads can't be told apart here.",))
    text = rig.screen_text()
    assert "the logits before their softcap differ by 3.90" in text
    assert "Layers 1-2: the heads can't be told apart here." in text
    await rig.press("d")
    await answer(rig, softcap=True)
    assert "sums to 3.25, the logit before its softcap is 3.25, 1.62 after it" in rig.screen_text()


async def test_beside_the_text_a_sum_says_of_a_softcap_what_there_is_room_for(rig: Rig) -> None:
    await opened(rig, softcap=True)
    assert "before the softcap: 3.90" in rig.answer_text()
    await rig.press("d")
    await answer(rig, softcap=True)
    assert "before the softcap: 3.25" in rig.answer_text()


async def test_a_failed_check_takes_the_bars_away(rig: Rig) -> None:
    await opened(rig, facts=replace(FACTS, checks=(Check("parts", 0.5, 1e-5),)))
    text = rig.said()
    assert "“parts sum to logits” failed for the architecture llama" in text
    assert "sums to 3.90" not in text
    await rig.press("down", "enter", "h", "b")
    assert "failed" in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_every_size_has_a_bar_the_sum_and_the_row_looked_at(rig: Rig, size) -> None:
    await opened(rig)
    text = rig.screen_text()
    assert "▶ L2 MLP" in text
    assert "█" in text
    assert "= sum" in text
    assert "3.90" in text.partition("= sum")[2]
    await rig.press("h", *["up"] * 9)
    assert "▶ embed" in rig.screen_text()
    assert "◂│▸" in rig.screen_text()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording with the contributions of the last step, for its token and a rare one."""
    session = Session()
    session.load()
    session.open()
    session.steps(4)
    node = session.node
    distribution = session.tips[node]
    rare = [each.id for each in distribution.candidates if each.id != distribution.picked][3]
    entries = [Entry(LoadSettings("pocket"), 0.0)]
    kept = [record for record in session.records if not isinstance(record, Loading)]
    entries += [Entry(record, 0.1) for record in [*kept, read(node, (distribution.picked, rare))]]
    save_as(tmp_path / "a.trace", entries, "test 1")
    return tmp_path / "a.trace"


@pytest.mark.recorded(size=(98, 40))
async def test_a_replay_shows_the_tokens_that_were_asked_for(replay: Rig) -> None:
    await replay.press("D")
    assert "▶ L2 MLP" in replay.screen_text()
    assert "for “[odd]” ◂│▸ for “␣toys”" in replay.screen_text()
    await replay.press("c")
    assert "was not recorded" in replay.screen_text()
    assert replay.engine.sent == []


def test_bars_keep_to_their_cells():
    for cells in range(4, 60):
        for values in ([0.0], [1e-9], [-1e-9, 5], [3, -2, 0.1], [-4.0], [1e6, -1e-6], []):
            to = spread(values, cells)
            assert to.left + 1 + to.right == cells
            for value in values:
                for within in (False, True):
                    left, right = bar_texts(value, within, to)
                    assert (len(left), len(right)) == (to.left, to.right)
                    assert bool(left.strip()) == (value < 0)
                    assert bool(right.strip()) == (value > 0)


@pytest.mark.slow
async def test_a_real_model_is_taken_apart() -> None:
    prompt = (
        "Once upon a time, there was a little boy named Max and a girl named Sue. "
        "One day, Max went to the park with"
    )
    app = InspectorApp(LoadSettings(), Settings(), Prefill(prompt, False))
    async with app.run_test(size=(98, 36)) as pilot:
        await idle(pilot)
        await pilot.press("3", "D")
        await idle(pilot)
        screen = app.top
        assert isinstance(screen, Contributions)
        found = screen.answer
        assert found is not None
        assert found.facts.failed is None
        assert [token.text for token in found.tokens] == [" Sue", " his"]
        shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "▶ L7 attention" in shown, "two heads of it look at the name and write it"
        assert f"sums to {found.total:.2f}, the logits differ by {found.reached:.2f}" in shown
        assert "logits unchanged (0)" in shown or "forward 0" in shown, "as there is room beside the times"
