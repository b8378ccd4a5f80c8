"""The screen of two branches: opened by a key, walked through, and left for a token of either side."""

from __future__ import annotations

import pytest

from engine import protocol
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.documents.compare import LEFT, RIGHT
from inspector.keys import with_keys
from inspector.views.compare import ALONE, COMPARED, CompareView
from inspector.widgets.canvas import DrawnPanel
from tests.inspector.fakes import HOSTILE, Session
from tests.inspector.rig import Rig
from tests.inspector.views.sampler.test_what_if_real import until


async def forked(rig: Rig, steps: int = 8, fork: int = 3, more: int = 4) -> tuple[int, int]:
    """Two branches that part at a step, and stand on the younger one; returns where the older and the younger end."""
    await rig.ready(steps=steps)
    step = rig.timeline.steps[fork]
    tip = rig.timeline.tip
    id = next(c.id for c in step.choice.candidates if c.id != step.id)
    await rig.push(rig.session.choose(step.parent, id))
    await rig.push(rig.session.steps(more))
    return tip, rig.timeline.tip


async def compared(rig: Rig) -> CompareView:
    """The screen, opened by its key."""
    await rig.do("compare")
    screen = rig.app.top
    assert isinstance(screen, CompareView)
    await rig.until(lambda: screen.takes_keys)
    await rig.pilot.pause()  # it begins at the divergence after its first paint
    return screen


def status(screen: CompareView) -> str:
    return str(screen.screen.query_one("#status").render())


async def test_where_there_is_one_branch_it_says_how_to_make_another(rig: Rig) -> None:
    await rig.ready()
    await rig.do("compare")
    assert rig.app.top is rig.app.main
    assert rig.status == with_keys(ALONE)
    assert rig.engine.sent == []


async def test_a_screen_that_is_left_before_it_is_painted_begins_nothing(rig: Rig) -> None:
    await forked(rig)
    screen = await compared(rig)
    screen.after_paint(screen._go_to_begin)
    screen.dismiss()
    await screen.query("*").remove()
    await rig.pilot.pause()
    assert rig.app.top is rig.app.main


async def test_it_opens_at_the_divergence_with_both_sides_told(rig: Rig) -> None:
    old, _ = await forked(rig)
    screen = await compared(rig)
    assert screen.other == old
    text = rig.screen_text()
    assert "this path · 13 tokens" in text
    assert "the other · 13 tokens" in text
    assert "they diverge here, after 8 shared tokens" in text
    assert "Logprob gap" in text
    assert "Since they branched" in text
    assert (screen.table.side, screen.table.pair.left, screen.table.pair.right) == (RIGHT, 8, 8)
    assert status(screen).endswith("step 4 of this branch")
    await rig.press("escape")
    assert rig.app.top is rig.app.main
    assert rig.engine.sent == []


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (100, 30), (80, 24), (60, 40)])
async def test_the_figures_have_whole_names(rig: Rig, size: tuple[int, int]) -> None:
    await forked(rig)
    panel = (await compared(rig)).totals
    if not panel.size.area:
        await rig.press("v")
    rows = [panel.render_line(y).text for y in range(panel.size.height)]
    names = [row[:20].strip() for row in rows[1:]]
    assert any(name.startswith("perplexity") for name in names)
    assert not any("…" in row for row in rows), rows
    if panel.size.height > len(COMPARED):
        assert any("entropy, bits" in row for row in rows)


async def test_enter_goes_to_the_token_on_the_other_branch(rig: Rig) -> None:
    old, _ = await forked(rig)
    await compared(rig)
    await rig.press("down", "down", "enter")
    assert rig.app.top is rig.app.main
    assert rig.engine.sent == [protocol.MoveTo(old)]
    await rig.push([rig.session.move(old)])
    assert (rig.timeline.tip, rig.timeline.slot) == (old, 10)
    assert not rig.timeline.following


async def test_a_token_beyond_the_end_of_this_path_is_looked_at_when_the_move_is_done(rig: Rig) -> None:
    old, _ = await forked(rig, steps=12, fork=3, more=1)
    screen = await compared(rig)
    await rig.press("end", "enter")
    assert screen.timeline.following
    await rig.push([rig.session.move(old)])
    assert (rig.timeline.slot, len(rig.timeline.items)) == (16, 17)


async def test_on_its_own_side_enter_looks_and_moves_nothing(rig: Rig) -> None:
    _, new = await forked(rig)
    screen = await compared(rig)
    await rig.press("left", "down")
    assert screen.table.side == LEFT
    assert status(screen).endswith("step 5 of this path")
    await rig.press("enter")
    assert rig.engine.sent == []
    assert (rig.timeline.tip, rig.timeline.slot) == (new, 9)


async def test_a_side_without_a_token_there_says_so(rig: Rig) -> None:
    await forked(rig, steps=4, more=8)
    screen = await compared(rig)
    await rig.press("end")
    while screen.table.pair.right is not None:
        await rig.press("up")
    await rig.press("enter")
    assert rig.app.top is screen
    assert "no token on this side" in status(screen)
    assert rig.engine.sent == []


async def test_home_goes_to_the_divergence_and_then_to_the_first_token(rig: Rig) -> None:
    await forked(rig)
    screen = await compared(rig)
    await rig.press("end", "home")
    assert screen.table.cursor == 8
    await rig.press("home")
    assert screen.table.cursor == 0
    assert screen.step == 0
    await rig.press(".")
    assert screen.table.cursor == 8
    assert screen.step == 1
    await rig.press(",")
    assert "neither match nor diverge before" in status(screen)


async def test_one_key_goes_through_all_other_branches(rig: Rig) -> None:
    old, new = await forked(rig)
    step = rig.timeline.steps[5]
    await rig.push(rig.session.choose(step.parent, step.choice.candidates[-1].id))
    screen = await compared(rig)
    assert screen.other == new
    seen = [screen.other]
    for _ in range(2):
        await rig.press("o")
        seen.append(screen.other)
    assert seen == [new, old, new]
    assert "other 2 of 2" in rig.screen_text()
    await rig.press("O")
    assert screen.other == old
    assert "they diverge here, after 8 shared tokens" in rig.screen_text()


async def test_two_branches_have_no_third(rig: Rig) -> None:
    await forked(rig)
    screen = await compared(rig)
    await rig.press("o")
    assert status(screen) == "There is no third branch to compare with."


async def test_what_comes_meanwhile_is_compared_too(rig: Rig) -> None:
    await forked(rig)
    screen = await compared(rig)
    await rig.push(rig.session.steps(3))
    screen._look()
    await rig.pilot.pause()
    assert "this path · 16 tokens" in rig.screen_text()
    await rig.push(rig.session.open())
    screen._look()
    await rig.pilot.pause()
    assert rig.app.top is rig.app.main  # another tree, without branches


async def test_a_click_points_at_a_side(rig: Rig) -> None:
    await forked(rig)
    screen = await compared(rig)
    shown = rig.screen_text().split("\n")
    y = next(n for n, line in enumerate(shown) if "they diverge here" in line) + 1
    await rig.pilot.click(offset=(screen.area.x + 10, y))
    await rig.pilot.pause()
    assert (screen.table.side, screen.table.pair.left) == (LEFT, 8)


@pytest.mark.wide(1)
@pytest.mark.parametrize(("size", "beside"), [((120, 40), True), ((80, 24), False), ((60, 20), False)])
async def test_both_texts_are_read_as_texts_with_the_difference_marked(
    rig: Rig, size: tuple[int, int], beside: bool
) -> None:
    await forked(rig)
    screen = await compared(rig)
    one, other = (screen.query_one(id, DrawnPanel) for id in ("#compare-left", "#compare-right"))
    assert (one.region.y == other.region.y) is beside
    assert (one.region.x == other.region.x) is not beside
    accent = screen.table.ink("accent").color
    for panel, side in ((one, LEFT), (other, RIGHT)):
        cells = [part for y in range(panel.size.height) for part in panel.render_line(y)]
        text = "".join(part.text.rstrip("\n") for part in cells)
        assert "Once upon a time," in text
        path = (screen.comparison.left, screen.comparison.right)[side]
        words = {item.text.strip() for item in path[screen.comparison.shared :]}
        marked = {part.text.strip() for part in cells if part.style.color == accent and part.text.strip()}
        assert marked <= words
        assert marked
    await rig.press("right", "down")
    assert (screen.table.side, screen.table.cursor) == (RIGHT, 9)


@pytest.mark.screen(size=(60, 20))
async def test_both_texts_begin_with_the_same_token_where_they_diverge(rig: Rig) -> None:
    await forked(rig, steps=90, fork=30, more=2)
    screen = await compared(rig)
    one, other = (screen.query_one(id, DrawnPanel) for id in ("#compare-left", "#compare-right"))
    assert one.render_line(0).text == other.render_line(0).text
    assert "Once upon" not in one.render_line(0).text


@pytest.mark.screen(session=Session(story=HOSTILE))
async def test_hostile_tokens_stay_text(rig: Rig) -> None:
    await forked(rig, steps=len(HOSTILE), fork=0, more=len(HOSTILE))
    await compared(rig)
    text = rig.screen_text()
    assert "[/nope]" in text
    assert not any(char in text for char in "\x1b\x9b\x00\u202e")


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(40, 10), (60, 20), (80, 24)])
async def test_every_size_shows_the_divergence_and_how_to_go_back(rig: Rig, size: tuple[int, int]) -> None:
    await forked(rig, steps=30, fork=10, more=20)
    screen = await compared(rig)
    if not screen.table.display:
        await rig.press("v")
    await rig.until(lambda: "they diverge here" in rig.screen_text())
    screen.table.reveal()  # as each look at the tree does
    await rig.pilot.pause()
    text = rig.screen_text()
    assert "they diverge here" in text
    assert "esc back" in text
    assert all(len(line) <= size[0] for line in text.split("\n"))


@pytest.mark.slow
async def test_two_branches_of_the_real_engine() -> None:
    app = InspectorApp(
        LoadSettings(), Settings(temp=0.8, seed=7, max_tokens=20), protocol.Prefill("Once upon a time", False)
    )

    async with app.run_test(size=(120, 40)) as pilot:
        timeline = lambda: app.controller.timeline  # noqa: E731
        idle = lambda: not app.controller.client.outstanding  # noqa: E731
        await until(lambda: timeline().prompts.prefilled and idle())
        await pilot.press("r")
        await until(lambda: len(timeline().steps) == 20 and idle())
        old = timeline().tip
        app.controller.navigation.jump(6)
        other = next(c.id for c in timeline().candidates if c.id != timeline().taken)
        app.controller.navigation.choose(other)
        await until(idle)
        app.controller.transport.run()
        await until(idle)
        await pilot.press("4", "c")
        await pilot.pause()
        screen = app.top
        assert isinstance(screen, CompareView)
        made = screen.comparison
        assert [each.tokens for each in made.totals] == [15, 15]
        assert made.gap[-1] == pytest.approx(made.totals[0].logprob - made.totals[1].logprob)
        await pilot.press("down", "enter")
        await until(lambda: timeline().tip == old and idle())
        assert timeline().selected.index == 6
    assert app.closed_in_time


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("size", "figures", "chart"),
    [((120, 40), True, True), ((100, 30), True, True), ((80, 24), True, True), ((60, 20), False, False)],
)
async def test_the_tokens_keep_their_room(
    rig: Rig, size: tuple[int, int], figures: bool, chart: bool
) -> None:
    await forked(rig)
    screen = await compared(rig)
    if not screen.table.display:
        assert screen.texts.size.height >= 11
        await rig.press("v")
    assert screen.totals.size.area > 0 if figures else not screen.totals.size.area
    assert screen.gap.size.width >= 12 if chart else not screen.gap.size.area
    assert screen.table.scrollable_size.height >= 7
    rows = rig.screen_text().split("\n")
    assert "╮" in rows[screen.area.y], "no empty line above it"
    assert not any("…" in row[screen.area.x :] for row in rows[screen.area.y :])
