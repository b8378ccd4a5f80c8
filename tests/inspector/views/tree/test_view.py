"""What the tree shows of itself: beams that fell out in one row, a filter that is seen and taken off."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from engine.protocol import Beam, BeamOpened, BeamStep, Marked
from inspector.main.dialogs.tree import FilterDialog
from inspector.state.beams import BeamHistory
from inspector.state.branches import Branch
from inspector.state.timeline import Timeline
from inspector.state.tree_rows import TreeFilter, TreeView, pruned
from inspector.views.tree import TreePanel
from tests.inspector.fakes import PROMPT, Session
from tests.inspector.rig import Rig
from tests.inspector.views.marks.test_marks import forked

NO_FILTER = TreeFilter()


def searched(steps: int = 6) -> tuple[Session, Timeline]:
    """One beam goes on; at every step another begins from it and falls out at the next one."""
    made = Session()
    made.load()
    made.open()
    made.steps(2)
    timeline = made.timeline()
    tip = top = made.node
    timeline.apply(BeamOpened(tip, 2, 1.0, False, steps))
    node, fell = tip, ()
    for step in range(1, steps + 1):
        good = Beam(tip + 2 * step - 1, top, 1, 0, 7, f" g{step}", -1.0, -1.0, -1.0, step)
        bad = replace(good, node=tip + 2 * step, text=f" b{step}")
        timeline.apply(BeamStep(step, (good, bad), fell, (), None, 2, 1.0, False))
        top, fell = good.node, (bad,)
    assert node == tip
    return made, timeline


def nodes_of(top: list[Branch]) -> list[list[int]]:
    """The nodes of each row, in the tree's order."""
    waiting, rows = top[::-1], []
    while waiting:
        rows.append((branch := waiting.pop()).nodes)
        waiting += branch.children[::-1]
    return rows


def test_beams_that_fell_out_are_left_out_and_what_they_parted_is_one_row():
    _, timeline = searched()
    assert timeline.tree.branches.count == 2 + 5 * 2 + 2
    tree = pruned(timeline, NO_FILTER, show_fallen=False)
    assert tree.fallen == 5
    rows = nodes_of(tree.top)
    tip = timeline.tip
    assert [len(row) for row in rows] == [len(PROMPT), 2, 5, 1, 1], (
        "prompt, steps, the beam that went on, the live ones"
    )
    assert rows[2] == [tip + 2 * step - 1 for step in range(1, 6)]
    shown = pruned(timeline, NO_FILTER, show_fallen=True)
    assert shown.top is timeline.tree.branches.root.children
    assert shown.fallen == 5


def test_the_sums_of_joined_rows_are_those_of_their_tokens():
    _, timeline = searched()
    joined = pruned(timeline, NO_FILTER, show_fallen=False).top[0].children[0].children[0]
    assert (joined.sums.tokens, joined.sums.known, joined.sums.logprob) == (5, 5, pytest.approx(-5.0))
    completion = timeline.tree.branches.completion(joined)
    assert completion.tokens == 7


def test_what_is_marked_on_the_path_or_was_stepped_is_not_left_out():
    made, timeline = searched()
    bad = made.node + 2
    timeline.apply(Marked(bad, "keep me"))
    assert pruned(timeline, NO_FILTER, show_fallen=False).fallen == 4
    assert [bad] in nodes_of(pruned(timeline, NO_FILTER, show_fallen=False).top)
    timeline.apply(Marked(bad))
    assert pruned(timeline, NO_FILTER, show_fallen=False).fallen == 5
    timeline.tree.nodes[bad] = replace(timeline.items[-1], node=bad)
    assert pruned(timeline, NO_FILTER, show_fallen=False).fallen == 4


def test_a_filter_keeps_what_fits_and_what_is_above_it():
    made, nodes = forked()
    timeline = made.timeline()
    timeline.apply(Marked(nodes[3], note="Check this", bookmarked=True))
    assert [len(row) for row in nodes_of(pruned(timeline, TreeFilter(bookmarked=True), False).top)] == [
        5,
        2,
        2,
    ]
    assert pruned(timeline, TreeFilter("girl"), False).fit == 1
    assert pruned(timeline, TreeFilter("Girl"), False).fit == 0
    assert pruned(timeline, TreeFilter("check"), False).fit == 1
    assert pruned(timeline, TreeFilter("girl", bookmarked=True), False).top == []
    assert pruned(timeline, TreeFilter("upon"), False).fit == 1
    _, timeline = searched()
    assert pruned(timeline, TreeFilter("b2"), False).fit == 1, "a filter finds what fell out, too"


@pytest.mark.parametrize("seed", range(12))
def test_any_pruned_tree_has_each_kept_token_once_below_its_parent(seed: int):
    """Against the definition: a row is a path, under the row that it hangs from."""
    chance = random.Random(seed)
    _, timeline = searched(12)
    for node in chance.sample(sorted(timeline.of(BeamHistory).nodes), 4):
        timeline.apply(Marked(node, chance.choice(("", "x")), bookmarked=chance.random() < 0.5, note="n"))
    wanted = chance.choice((NO_FILTER, TreeFilter("b"), TreeFilter("g1"), TreeFilter(bookmarked=True)))
    tree, branches = pruned(timeline, wanted, show_fallen=False), timeline.tree.branches
    waiting = [(row, branches.root) for row in tree.top]
    met: list[int] = []
    while waiting:
        row, above = waiting.pop()
        assert row.parent is above or tree.top is branches.root.children
        assert branches[row.first].parent == above.last
        assert all(branches[low].parent == high for high, low in zip(row.nodes, row.nodes[1:], strict=False))
        assert row.sums.tokens == len(row.nodes)
        met += row.nodes
        waiting += [(child, row) for child in row.children]
    assert len(met) == len(set(met))
    assert wanted or {item.node for item in timeline.items} <= set(met)


def test_the_row_of_beams_takes_the_cursor_and_shows_them():
    _, timeline = searched()
    view = TreeView()
    view.look(timeline)
    assert (view.count, view.fallen_row) == (6, 5)
    view.put(99)
    assert (view.row, view.cursor) == (5, None)
    view.fold(away=False)
    view.look(timeline)
    assert view.count == timeline.tree.branches.count + 1
    assert view.row == view.fallen_row
    view.fold()
    view.look(timeline)
    assert view.count == 6
    view.put(2)
    assert view.cursor is not None
    assert view.holding(view.cursor.nodes[3]) is view.cursor


def test_rows_that_are_several_branches_grow_with_their_path():
    made, timeline = searched()
    view = TreeView()
    view.look(timeline)
    row = view.holding(timeline.tip)
    assert row is not None
    assert row.sums.tokens == 2
    timeline.apply(made.step())
    view.look(timeline)
    assert view.holding(timeline.tip) is not None


def test_a_tree_without_rows_has_no_cursor():
    view = TreeView()
    view.step_aside()
    view.put(3)
    assert (view.row, view.cursor) == (-1, None)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_a_filter_in_force_is_seen_and_escape_takes_it_off(rig: Rig, size: tuple[int, int]) -> None:
    made, nodes = forked()
    rig.session = made
    await rig.push(made.records)
    await rig.push([Marked(nodes[3], bookmarked=True)])
    await rig.press("F", *"little")
    assert isinstance(rig.app.top, FilterDialog)
    assert "2 rows found" in rig.screen_text()
    await rig.press("tab", "right", "enter")
    panel = rig.app.main.panel(TreePanel)
    assert str(panel.border_title) == "Tree · 1 found bookmarked with “little”: esc shows all"
    assert panel.view.cursor is not None
    await rig.press("escape")
    assert rig.status == "All branches are shown again"
    assert str(panel.border_title).startswith("Tree · 2 branches")
    assert not panel.view.filter
    await rig.press("escape")
    assert rig.app.main.arrangement.current == "text"


async def test_where_nothing_fits_the_tree_says_so(rig: Rig) -> None:
    await rig.ready(steps=2)
    await rig.press("F", *"zzz")
    assert "0 rows found" in rig.screen_text()
    await rig.press("enter")
    assert "No branch with “zzz”." in rig.screen_text()
    assert "Press esc to show all, F to change it." in rig.screen_text()
    await rig.press("enter", "up", "down", "enter", "asterisk")  # there is no row to fold or to go to
    assert "No branch with “zzz”." in rig.screen_text()
