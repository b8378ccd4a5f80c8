"""Many draws on the screen: their number and length, the table, the test, and the tree of what came."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.protocol import DrawMany, DrawnToken, Failure
from inspector.blocks.paint import Painter, PlainInks, plain_lines
from inspector.documents.draws import frequencies, verdict
from inspector.views.draws import DrawsView
from tests.inspector.rig import Rig
from tests.inspector.told_batch import DRAWN, draws


async def opened(rig: Rig) -> DrawsView:
    await rig.ready()
    await rig.do("draws")
    assert isinstance(rig.app.top, DrawsView)
    return rig.app.top


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_draws_are_counted_and_their_tree_grows(rig: Rig, size: tuple[int, int]) -> None:
    await opened(rig)
    assert "v panel" not in rig.screen_text(), "there is one"
    assert rig.engine.sent == []
    await rig.press("right", "up", "space")
    tip = rig.timeline.tip
    assert rig.engine.last(DrawMany) == DrawMany(1000, tip, 2)
    await rig.push([replace(DRAWN, node=tip), *draws(tip)])
    await rig.end("DrawMany")
    text = rig.screen_text()
    assert "86.50 %" in text
    assert f"First tokens · step {len(rig.timeline.steps) + 1}" in text
    assert "␣[b]" in text or size[1] <= 12, "it is among the others there"
    assert "chi-square 1.50" in text
    if size[1] <= 12:
        await rig.press("v")
    assert "2  a" in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_the_test_of_a_long_table_stays_in_sight(rig: Rig, size: tuple[int, int]) -> None:
    many = tuple(DrawnToken(n, f" t{n}", 0.02, 4, 0.01, 0.04) for n in range(40))
    drawn = replace(DRAWN, outcomes=many, others=40, others_prob=0.2)

    await opened(rig)
    await rig.press("space")
    await rig.push([replace(drawn, node=rig.timeline.tip)])
    await rig.end("DrawMany")
    text = rig.screen_text()
    assert "chi-square 1.50" in text
    assert "consistent with the sampler" in " ".join(text.replace("│", " ").split())
    listed = sum(f"␣t{n} " in text for n in range(40))
    assert 1 <= listed < 40
    if size[0] > 40:  # the number of draws has no room there
        others = next(line for line in text.splitlines() if "others" in line)
        assert others.strip("│ ").split()[-1] == str(200 - 4 * listed)  # what has no line is counted there


def test_no_column_of_the_shares_is_cut_where_there_is_no_room_for_the_counts() -> None:
    for width in (44, 46, 50, 60, 100):
        drawn = Painter(PlainInks()).draw(frequencies(DRAWN), width, 30)
        head, *rows = ["".join(part.text for part in row) for row in drawn]
        assert max(map(len, (head, *rows))) <= width
        assert "95 % interval" in head
        assert ("count" in head) == (width > 52)


async def test_a_failure_is_told_and_greedy_explained(rig: Rig) -> None:
    await opened(rig)
    await rig.press("space")
    await rig.push([Failure("DrawMany", "There is no prompt to continue from.", "Give a prompt first.")])
    await rig.end("DrawMany")
    assert "There is no prompt to continue from. Give a prompt first." in rig.screen_text()


def test_outliers_are_marked_where_enough_was_expected():
    lines = [*plain_lines(frequencies(DRAWN))]
    assert ["!" in line for line in lines[1:4]] == [False, True, False]
    assert lines[4].split()[0] == "others"


def test_the_test_in_a_sentence():
    assert (
        verdict(DRAWN)
        == "200 draws: chi-square 1.50 at 2 degrees of freedom, p = 0.470: consistent with the sampler"
    )
    assert verdict(replace(DRAWN, p_value=0.001)).endswith("further off than 99 of 100 such counts")
    assert "so there is nothing to test" in verdict(replace(DRAWN, degrees=0))


async def test_an_earlier_step_is_drawn_again_with_the_present_settings(rig: Rig) -> None:
    await rig.ready(3)
    step = rig.timeline.steps[1]
    rig.timeline.select(step.position)
    rig.timeline.tree.settings[step.node] = replace(rig.app.controller.setup.settings, temp=1.7)
    await rig.do("draws")
    assert "Redraw step 2" in rig.screen_text()
    assert "with the present settings" in rig.screen_text()
