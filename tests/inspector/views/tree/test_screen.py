"""The tree on the main screen: its keys, marks, deletions that wait for the path, and where the panel stands."""

from __future__ import annotations

import pytest
from textual.events import Key

from engine import protocol
from engine.protocol import Deleted, Marked, Prefill, SearchBeams, Undeleted, Undone
from engine.settings import BeamSettings, LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.main.dialogs.tree import NamingDialog
from inspector.main.key_table import PANELS, panels_of
from inspector.main.layout import Arrangement, Layout
from inspector.main.panels.candidates import CandidatesPanel
from inspector.state.beams import BeamHistory
from inspector.views import TOOLS
from inspector.views.tree import TreePanel
from inspector.widgets.fields import SafeInput
from tests.inspector.rig import Rig
from tests.inspector.state.from_tokens import branches_of
from tests.inspector.views.sampler.test_what_if_real import until


def shown(rig: Rig) -> list[str]:
    return [panel.id for panel in rig.app.main.query("#panels > .panel") if panel.display]


async def forked(rig: Rig) -> list[int]:
    """Four steps, and from the second on another branch; returns the last nodes of the four branches."""
    await rig.ready(steps=4)
    made, steps = rig.session, rig.timeline.steps
    tip = made.tips[steps[1].node]
    other = next(candidate.id for candidate in tip.candidates if candidate.id != tip.picked)
    await rig.push(made.choose(steps[1].node, other))
    await rig.push(made.steps(2))
    await rig.press("4")
    return [branch.last for branch in rig.timeline.tree.branches]


# ---- where it stands --------------------------------------------------------------------------


def test_the_tree_is_an_answer():
    arrangement = Arrangement((*PANELS, *panels_of(TOOLS)))
    arrangement.go("tree", Layout.GRID)
    assert arrangement.answer == "tree"
    below = {"kv", "timing"}
    assert arrangement.shown(Layout.GRID, "tree", tall=False) == {"text", "tree", "steps", *below}
    assert arrangement.shown(Layout.STACK, "tree", tall=True) == {"text", "tree", "steps", *below}
    assert arrangement.shown(Layout.STACK, "tree", tall=False) == {"text", "tree", *below}
    assert arrangement.lines(Layout.GRID, "tree", covered=False) == below
    assert arrangement.shown(Layout.BESIDE, "tree", tall=False) == {"text", "tree"}
    assert arrangement.shown(Layout.SINGLE, "tree", tall=False) == {"tree"}


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("size", "without", "with_it"),
    [
        (
            (120, 40),
            ["text", "candidates", "steps", "kv", "timing"],
            ["text", "tree", "steps", "kv", "timing"],
        ),
        ((80, 24), ["text", "candidates", "kv", "timing"], ["text", "tree", "kv", "timing"]),
        ((100, 16), ["text", "candidates"], ["text", "tree"]),
        ((60, 16), ["text"], ["tree"]),
    ],
)
async def test_its_tab_opens_the_tree_and_escape_closes_it(
    rig: Rig, size: tuple[int, int], without: list[str], with_it: list[str]
) -> None:
    await rig.ready()
    assert shown(rig) == without
    await rig.press("4")
    assert shown(rig) == with_it
    assert isinstance(rig.app.focused, TreePanel)
    await rig.press("escape")
    assert shown(rig) == without
    assert rig.engine.sent == []


async def test_the_tree_makes_room_for_another_answer_and_comes_back_with_its_tab(rig: Rig) -> None:
    await rig.ready()
    await rig.press("4", "left", "2")
    assert shown(rig) == ["text", "sampler", "steps", "kv", "timing"]
    await rig.press("4")
    assert shown(rig) == ["text", "tree", "steps", "kv", "timing"]
    await rig.press("1")
    assert shown(rig) == ["text", "candidates", "steps", "kv", "timing"]


async def test_the_last_line_tells_the_keys_of_the_tree(rig: Rig) -> None:
    [panel] = next(tool.contexts for tool in TOOLS if tool.id == "tree")
    words = [action.hint for action in panel.actions if isinstance(action.hint, str) and action.hint]
    assert words

    await forked(rig)
    assert set(words) <= {hint.word for hint in rig.app.main.hints()}
    assert "↑↓ branch" in rig.screen_text()
    assert rig.status == "↑ ↓ to a branch, ⏎ goes to its end, esc goes back"
    await rig.press("1")
    assert "↑↓ branch" not in rig.screen_text()


# ---- going ------------------------------------------------------------------------------------


async def test_arrows_and_enter_go_to_the_end_of_a_branch(rig: Rig) -> None:
    ends = await forked(rig)
    slot, highlighted = rig.timeline.slot, rig.app.main.panel(CandidatesPanel).highlighted
    await rig.press("up")
    assert (slot, highlighted) == (rig.timeline.slot, rig.app.main.panel(CandidatesPanel).highlighted)
    await rig.press("enter")
    assert rig.engine.sent == [protocol.MoveTo(ends[2])]
    await rig.push([rig.session.move(ends[2])])
    await rig.end("MoveTo")
    assert rig.app.main.panel(TreePanel).view.cursor.last == ends[2]
    await rig.press("enter")
    assert rig.status == "The path already ends here: space takes a step"
    await rig.press("home", "right", "left", "left")
    assert rig.app.main.panel(TreePanel).view.cursor.last == ends[0]
    await rig.press("end")
    assert rig.app.main.panel(TreePanel).view.cursor.last == ends[2]
    await rig.press("pageup")
    assert rig.app.main.panel(TreePanel).view.cursor.last == ends[0]
    assert len(rig.engine.sent) == 1


async def test_outside_the_tree_the_arrows_are_what_they_were(rig: Rig) -> None:
    await forked(rig)
    branch = rig.app.main.panel(TreePanel).view.cursor
    await rig.press("1", "down", "left")
    assert rig.timeline.slot == len(rig.timeline.items) - 1
    assert rig.app.main.panel(TreePanel).view.cursor is branch


async def test_a_click_on_a_row_makes_the_tree_the_current_panel(rig: Rig) -> None:
    await forked(rig)
    await rig.pilot.click("#text")
    assert rig.app.main.arrangement.current == "text"
    table = rig.app.main.panel(TreePanel)._table
    await rig.pilot.click(table, offset=(12, 2))
    await rig.pilot.pause()
    assert rig.app.main.arrangement.current == "tree"
    assert rig.app.main.panel(TreePanel).view.row == 1


# ---- marks ------------------------------------------------------------------------------------


async def test_bookmarks_go_on_and_off_in_the_tree_and_on_the_selected_token(rig: Rig) -> None:
    await forked(rig)
    first = rig.app.main.panel(TreePanel).view.cursor.first
    await rig.press("end", "b")
    assert rig.timeline.tree.marks.at(first) == Marked(first, bookmarked=True)
    assert rig.status.startswith("Bookmarked branch “")
    assert rig.status.endswith("”. b removes it")
    await rig.press("b")
    assert rig.timeline.tree.marks.of == {}
    assert rig.status.startswith("No bookmark any more on branch “")
    await rig.pilot.click("#text")
    await rig.press("left", "b", "left", "right")
    item = rig.timeline.selected
    assert rig.timeline.tree.marks.at(item.node).bookmarked
    assert (
        rig.status
        == f"Step {item.index + 1}, ★ bookmarked. ↑↓ and ⏎ take another token here. End returns to the last token"
    )


async def test_one_dialog_asks_for_name_note_and_caption(rig: Rig) -> None:
    await forked(rig)
    first = rig.app.main.panel(TreePanel).view.cursor.first
    await rig.press("end", "N", *"ab", "tab", *"cd", "tab", *"ef", "enter")
    assert rig.timeline.tree.marks.at(first) == Marked(first, "ab", False, "cd", "ef", "tree")
    assert rig.status.startswith("Saved on branch “")
    await rig.press("N")
    assert isinstance(rig.app.top, NamingDialog)
    assert rig.app.top.query_one("#naming-note", SafeInput).value == "cd"
    await rig.press("backspace", "escape")
    assert rig.timeline.tree.marks.at(first).name == "ab"
    await rig.press("N", "backspace", "backspace", "tab", "backspace", "backspace", "tab", "backspace",
                    "backspace", "ctrl+s")  # fmt: skip
    assert rig.timeline.tree.marks.of == {}
    assert rig.status.startswith("Nothing is written on branch “")


async def test_a_note_goes_to_the_selected_token_until_the_trees_cursor_is_moved(rig: Rig) -> None:
    await forked(rig)
    view = rig.app.main.panel(TreePanel).view
    await rig.press("up", "1", "left")
    item = rig.timeline.selected
    await rig.press("4")
    assert view.cursor.first != item.node
    assert "N note" in rig.screen_text()
    await rig.press("N")
    assert f"step {item.index + 1}" in rig.screen_text()
    await rig.press(*"why", "enter")
    assert rig.timeline.tree.marks.of == {item.node: Marked(item.node, note="why")}
    assert rig.status.endswith(f", step {item.index + 1}.")
    await rig.press("up")
    assert "N name" in rig.screen_text()
    await rig.press("N", *"B", "enter")
    assert rig.timeline.tree.marks.at(view.cursor.first).name == "B"
    await rig.press("left_curly_bracket", "b")  # another token is selected
    assert rig.timeline.tree.marks.at(rig.timeline.selected.node).bookmarked


async def test_marks_come_as_records_that_others_hear(rig: Rig) -> None:
    ends = await forked(rig)
    told: list[object] = []
    rig.app.controller.client.listen(told.append)
    await rig.press("b", "up", "x", "u")
    assert [type(record) for record in told] == [Marked, Deleted, Undone, Undeleted]
    assert rig.timeline.tree.branches.of(ends[2]) is not None


# ---- deletions --------------------------------------------------------------------------------


async def test_a_branch_beside_the_path_is_deleted_at_once_and_brought_back(rig: Rig) -> None:
    ends = await forked(rig)
    before = [branch.nodes for branch in rig.timeline.tree.branches]
    await rig.press("up", "x")
    assert rig.status == "Deleted 2 tokens in 1 branch. u brings them back"
    assert ends[2] not in rig.timeline.tree.branches
    assert rig.engine.sent == []
    await rig.press("u")
    assert rig.status == "Undone: deleting 2 tokens. U redoes it"
    assert [branch.nodes for branch in rig.timeline.tree.branches] == before
    await rig.press("U")
    assert rig.status == "Redone: deleting 2 tokens. u undoes it"
    assert ends[2] not in rig.timeline.tree.branches


async def test_several_deletions_are_undone_one_after_another(rig: Rig) -> None:
    await forked(rig)
    made, first = rig.session, rig.timeline.steps[0].node
    for nth in (2, 3):
        await rig.push([made.move(first), made.step(made.tips[first].candidates[nth + 3].id, "chosen")])
    await rig.push([made.move(made.paths[made.node][-2])])
    count = len(rig.timeline.tree.branches)
    await rig.press("end", "down", "down", "x", "delete")
    assert len(rig.timeline.tree.marks.deleted) >= 2
    await rig.press("u", "u")
    assert len(rig.timeline.tree.branches) == count


async def test_keys_that_come_before_the_next_frame_find_the_tree_as_it_is(rig: Rig) -> None:
    await forked(rig)
    count = len(rig.timeline.tree.branches)
    await rig.press("end")
    for key in "xxxbxNxxu":
        rig.app.post_message(Key(key, key))
    await rig.pilot.pause()
    await rig.end("MoveTo")
    await rig.press("escape", *"uuuuuuuu")
    assert len(rig.timeline.tree.branches) == count


async def test_what_the_path_runs_through_is_deleted_once_the_path_is_elsewhere(rig: Rig) -> None:
    ends = await forked(rig)
    await rig.press("r", "x", "x")
    run_command, move = rig.engine.sent
    assert rig.engine.cancelled(run_command)
    assert move == protocol.MoveTo(ends[1])
    await rig.push([rig.session.step()])
    await rig.end("Run", cancelled=True)
    assert ends[3] in rig.timeline.tree.branches, "not yet"
    await rig.push([rig.session.move(ends[1])])
    await rig.end("MoveTo")
    assert rig.status == "Deleted 4 tokens in 1 branch. u brings them back"
    assert rig.timeline.tip == ends[1]
    assert ends[3] not in rig.timeline.tree.branches


async def test_a_move_that_was_stopped_deletes_nothing(rig: Rig) -> None:
    ends = await forked(rig)
    await rig.press("x", "escape")
    await rig.end("MoveTo", cancelled=True)
    assert rig.status.startswith("Not deleted: the path still runs through it")
    assert ends[3] in rig.timeline.tree.branches


async def test_a_branch_that_is_being_moved_to_is_left_first(rig: Rig) -> None:
    ends = await forked(rig)
    await rig.press("up", "enter", "x")
    assert rig.engine.sent == [protocol.MoveTo(ends[2]), protocol.MoveTo(ends[1])]
    await rig.push([rig.session.move(ends[2])])
    await rig.end("MoveTo")
    assert ends[2] in rig.timeline.tree.branches
    await rig.push([rig.session.move(ends[1])])
    await rig.end("MoveTo")
    assert ends[2] not in rig.timeline.tree.branches


async def test_a_new_prompt_forgets_the_deletion_that_waits(rig: Rig) -> None:
    await forked(rig)
    await rig.press("x")
    await rig.push(rig.session.open())
    await rig.end("MoveTo", cancelled=True)
    assert len(rig.timeline.tree.marks.deleted) == 0


async def test_the_prompt_is_not_deleted_and_outside_the_tree_nothing_is(rig: Rig) -> None:
    await forked(rig)
    await rig.press("home", "x")
    assert rig.status == (
        "The prompt on show can't be deleted. Go to another one first, or press p for a new one."
    )
    await rig.press("1", "x")
    assert rig.status == "Press 4 t for the tree: there x deletes the branch under the cursor."
    assert len(rig.timeline.tree.marks.deleted) == 0


# ---- on the real engine ------------------------------------------------------------------------


USED = Settings(temp=1.0, seed=7, max_tokens=8)


async def test_branches_and_beams_are_gone_to_deleted_and_brought_back() -> None:
    app = InspectorApp(LoadSettings(), USED, Prefill("Once upon a time", False))

    async with app.run_test(size=(120, 40)) as pilot:
        timeline = lambda: app.controller.timeline  # noqa: E731
        main = app.main

        async def press(*keys: str) -> None:
            await pilot.press(*keys)
            await until(lambda: not app.controller.client.outstanding)
            await pilot.pause()

        await until(lambda: timeline().prompts.prefilled and not app.controller.client.outstanding)
        await press("r")
        await press("left", "left", "down", "enter")
        await press("d", "space", "4")
        assert [timeline().tree.branches.made(branch) for branch in timeline().tree.branches] == [
            "prompt", "sampled", "sampled", "chosen",
        ]  # fmt: skip

        app.controller.client.do(SearchBeams(BeamSettings(width=3, max_tokens=4)))
        await until(lambda: not app.controller.client.outstanding)
        await pilot.pause()
        best = next(beam for beam in timeline().of(BeamHistory).nodes.values() if beam.rank == 1)
        place = next(
            place for place, branch in enumerate(main.panel(TreePanel).view.rows) if best.node in branch.nodes
        )
        await press("home", *["down"] * place, "enter")
        assert timeline().tip == timeline().tree.branches.of(best.node).last
        assert [item.node for item in timeline().items][-1] == timeline().tip
        assert timeline().steps[-1].origin == "beam"

        shown = [list(branch.nodes) for branch in timeline().tree.branches]
        count, end = len(timeline().tree.branches), timeline().tip
        await press("x")
        assert main.status.answer.startswith("Deleted ")
        assert end not in timeline().tree.branches
        assert timeline().tip in timeline().tree.branches
        await press("u")
        assert main.status.answer.startswith("Undone: deleting ")
        assert (len(timeline().tree.branches), [branch.nodes for branch in timeline().tree.branches]) == (
            count,
            shown,
        )
        tokens = [timeline().tree.branches[node] for nodes in shown for node in nodes]
        assert [branch.nodes for branch in branches_of(tokens)] == shown
    assert app.closed_in_time
