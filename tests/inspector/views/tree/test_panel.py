"""The tree panel: what a row says, what the cursor does, what is written below it, what is painted anew."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from engine.protocol import (
    Beam,
    BeamEnded,
    BeamOpened,
    BeamStep,
    Deleted,
    Direction,
    Hypothesis,
    Intervention,
    InterventionsHeld,
    Marked,
    PromptOpened,
    floats,
)
from inspector.keys import with_keys
from inspector.state.branches import Sums, Token
from inspector.state.session_tree import written
from inspector.state.timeline import Timeline
from inspector.state.tree_rows import TreeView
from inspector.views.tree import (
    COLUMNS,
    FORK,
    KEYS_HERE,
    TreePanel,
    fitting,
    logprob,
    perplexity,
    sums_phrase,
)
from tests.inspector.fakes import HOSTILE, TORN, Session, session
from tests.inspector.painting import painting
from tests.inspector.panels_app import find, heard, lines, on_screen, screen, shown, style_at
from tests.inspector.state.from_tokens import branches_of


def choose(made: Session, node: int, nth: int = 1) -> None:
    """Take the candidate so many places behind the picked one."""
    tip = made.tips[node]
    others = [candidate.id for candidate in tip.candidates if candidate.id != tip.picked]
    made.choose(node, others[nth])


def forked() -> tuple[Session, Timeline]:
    """Prompt, `there was`, then `a little` or another token with two more."""
    made = session(4)
    steps = made.timeline().steps
    choose(made, steps[1].node)
    made.steps(2)
    return made, made.timeline()


def rows(pilot) -> list[str]:
    """The rows of the tree, between its head and what is below."""
    found = [line.strip("│ ▎") for line in lines(pilot)]
    return [line for line in found if any(knot in line for knot in "●○◆▸")]


# ---- rows -----------------------------------------------------------------------------------------


STEERED = Intervention("direction", 4, None, 2.0, Direction("happy-sad", 4, floats((1.0, 2.0), (2,))))


@pytest.mark.parametrize(
    ("unit", "words"), [(Intervention("head", 1, 2), "L2 h3 off"), (STEERED, "L5 +happy-sad x2")]
)
@on_screen
async def test_a_branch_under_interventions_says_so_however_long_its_text_is(unit: Intervention, words: str):
    made = session(4)
    timeline, first = made.timeline(), made.timeline().items[-1]
    timeline.apply(made.move(timeline.items[-2].node))
    for number in range(12):
        timeline.apply(made.step(first.id if number == 0 else None, "intervened"))
        if number == 0:
            timeline.apply(InterventionsHeld(timeline.tip, first.node, (unit,), 1.0))
    async with shown(TreePanel(), (72, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        *_, own, under = rows(pilot)
        assert " · " not in own
        assert f" · {words} " in under
        assert "…" in under


@on_screen
async def test_the_title_counts_every_end():
    """As the export and compare do: a prompt that was not continued is one."""
    made, timeline = forked()
    made.node = 0
    tokens = tuple(made._prompt_token(place, piece) for place, piece in enumerate(("One", " day")))
    opened = PromptOpened("One day", False, tokens, True, new_tree=False)
    for record in (opened, made.prefilled(opened)):
        timeline.apply(record)
    async with shown(TreePanel(), (72, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert len(timeline.tree.leaves()) == 3
        assert str(panel.border_title) == "Tree · 3 branches"


@on_screen
async def test_every_branch_has_a_row_with_its_lines_text_and_numbers():
    _, timeline = forked()
    async with shown(TreePanel(), (130, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        prompt, first, old, new = rows(pilot)
        assert prompt.startswith("● Once upon a time,")
        assert "prompt" in prompt
        assert first.startswith("└─● ␣there was")
        assert old.startswith("├─○ ␣a little")
        assert new.startswith("▶   └─◆ ")
        branch = timeline.tree.branches.of(timeline.tip)
        numbers = (branch.sums.logprob, branch.sums.mean, timeline.tree.branches.completion(branch).logprob)
        assert new.split()[-6:-4] == ["chosen", "3"]
        assert new.split()[-2] == f"{branch.sums.perplexity:.2f}"
        for number in numbers:
            assert f"{number:.2f}".replace("-", "−") in new
        assert "Tree · 2 branches ─" in screen(pilot), "two texts: a prompt and what they share are none"


@on_screen
async def test_notes_leave_the_text_two_thirds_of_its_room_and_are_never_cut():
    made, timeline = forked()
    timeline.apply(
        Marked(timeline.tree.branches.of(timeline.tip).first, name="a name as long as a sentence " * 3)
    )
    made.steps(20)
    for record in made.records[-20:]:
        timeline.apply(record)
    async with shown(TreePanel(), (58, 20)) as (panel, pilot):
        table = panel._table
        panel.show(timeline)
        await pilot.pause()
        room, row = table._room(table.scrollable_size.width), rows(pilot)[-1]
        assert room >= 40
        assert cell_len(row.partition("… ")[2].partition(" · ")[0]) >= room // 3
        assert table._notes(("a note", "of a branch"), 12) == " · a note"


@on_screen
async def test_a_path_that_ends_inside_a_branch_says_where():
    made, timeline = forked()
    branch = timeline.tree.branches.of(timeline.tip)
    timeline.apply(made.move(branch.nodes[1]))
    async with shown(TreePanel(), (130, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert "at 2 of 3" in rows(pilot)[-1]
        timeline.apply(made.move(timeline.tree.branches.root.children[0].children[0].children[0].last))
        panel.show(timeline)
        await pilot.pause()
        assert [row.lstrip("▶ │├└─")[0] for row in rows(pilot)] == ["●", "●", "◆", "○"]


@on_screen
async def test_names_bookmarks_and_notes_stand_in_the_row_and_below():
    _, timeline = forked()
    branch = timeline.tree.branches.of(timeline.tip)
    timeline.apply(Marked(branch.first, name="[/]ending\x1b", bookmarked=True, note="why?", caption="look"))
    timeline.apply(Marked(branch.last, name="last"))
    async with shown(TreePanel(), (130, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert "◆ ★ ✎ [/]ending␛ " in rows(pilot)[-1]
        assert "· last in it " in rows(pilot)[-1]
        assert (
            f"★ [/]ending␛ ✎ why? ❝ look · at step {timeline.tree.nodes[branch.last].index + 1}: last"
            in screen(pilot)
        )


@on_screen
async def test_hostile_text_is_drawn_harmlessly_in_every_width():
    for width in (24, 60, 130):
        made = Session(story=(*HOSTILE, *TORN))
        made.load()
        made.open()
        made.steps(30)
        choose(made, made.timeline().steps[3].node)
        async with shown(TreePanel(), (width, 24)) as (panel, pilot):
            panel.show(made.timeline())
            await pilot.pause()
            text = screen(pilot)
            assert not any(char in text for char in "\x1b\x9b\x00\x7f\u202e\u200b\u200d\ud83d\U000e0041")
            assert all(cell_len(line) <= width for line in text.split("\n"))


def test_only_rows_that_changed_are_drawn_again():
    with painting():
        only_rows_that_changed()


@on_screen
async def only_rows_that_changed():
    made, timeline = forked()
    async with shown(TreePanel(), (130, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        table, drawn = panel._table, []
        draw = table._strip
        table._strip = lambda tree, look, branch, width: (
            drawn.append(branch.first) or draw(tree, look, branch, width)
        )
        timeline.apply(made.step())
        panel.show(timeline)
        await pilot.pause()
        assert drawn == [timeline.tree.branches.of(timeline.tip).first]
        drawn.clear()
        panel.view.move(-1)
        panel.show(timeline)
        await pilot.pause()
        assert len(drawn) == 2
        assert [row for row in rows(pilot) if row.startswith("▶")] == [rows(pilot)[-2]]


@on_screen
async def test_an_empty_tree_says_why_and_what_to_press():
    made = Session()
    async with shown(TreePanel(), (80, 12)) as (panel, pilot):
        panel.show(made.timeline())
        await pilot.pause()
        assert "The model is loading." in screen(pilot)
        made.load()
        panel.show(made.timeline())
        await pilot.pause()
        assert "There is no prompt yet." in screen(pilot)
        assert "Press p to write one." in screen(pilot)


@on_screen
async def test_without_a_fork_it_says_how_to_make_one():
    async with shown(TreePanel(), (130, 16)) as (panel, pilot):
        panel.show(session(3).timeline())
        await pilot.pause()
        assert all(with_keys(each) in screen(pilot) for each in FORK)
        panel.show(forked()[1])
        await pilot.pause()
        assert all(with_keys(each) in screen(pilot) for each in KEYS_HERE)


@on_screen
async def test_what_is_deleted_is_counted_with_the_key_that_brings_it_back():
    _, timeline = forked()
    timeline.apply(Deleted(timeline.tree.branches.root.children[0].children[0].children[0].first))
    async with shown(TreePanel(), (80, 16)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert "2 deleted: u undoes" in screen(pilot)
        assert len(rows(pilot)) == 2, "the run on both sides of the fork is one again"


@on_screen
async def test_clicks_select_go_and_fold():
    _, timeline = forked()
    async with shown(TreePanel(), (130, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        pilot.app.CLICK_CHAIN_TIME_THRESHOLD = 0.0  # two clicks, not a double click
        x, y = find(pilot, "␣a little")
        await pilot.click(offset=(x, y))
        assert not heard(pilot, TreePanel.BranchClicked)[-1].goes
        await pilot.click(offset=(x, y))
        await pilot.pause()
        chosen = heard(pilot, TreePanel.BranchClicked)[-1]
        assert chosen.goes
        assert chosen.node == timeline.tree.branches.of(chosen.node).last
        x, y = find(pilot, "● ␣there")
        await pilot.click(offset=(x, y))
        await pilot.pause()
        assert "· +2 branches" in rows(pilot)[-1]
        assert rows(pilot)[-1].startswith("▶ └─▸")


@on_screen
async def test_the_light_theme_and_a_terminal_without_colours_have_the_same_signs():
    _, timeline = forked()
    for colours, theme in ((True, "textual-light"), (False, "textual-dark")):
        async with shown(TreePanel(), (130, 20), colours=colours, theme=theme) as (panel, pilot):
            panel.show(timeline)
            await pilot.pause()
            assert [row.lstrip("▶ │├└─")[0] for row in rows(pilot)] == ["●", "●", "○", "◆"]
            assert style_at(pilot, "◆").color is not None


@on_screen
async def test_beams_tell_what_became_of_them():
    made = session(2)
    timeline, tip = made.timeline(), made.node
    one, two = (Beam(tip + n, tip, n - 1, 0, n, " x", -1.0 * n, -1.0 * n, -0.5 * n, 1) for n in (1, 2))
    timeline.apply(BeamOpened(tip, 2, 1.0, False, 8))
    timeline.apply(BeamStep(1, (one, two), (), (), one, 2, 1.0, False))
    async with shown(TreePanel(), (130, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert [row.split("·")[1].split()[:2] for row in rows(pilot)[-2:]] == [["live", "beam"]] * 2
        timeline.apply(
            BeamStep(2, (replace(one, node=tip + 3, parent=one.node),), (two,), (), None, 1, 1.0, False)
        )
        best = Hypothesis(tip + 3, (1, 1), " x x", -1.0, -0.5, 2, "length")
        timeline.apply(BeamEnded((best,), best, (), 2, "length", 9.0))
        panel.show(timeline)
        panel.view.move(1)
        panel.show(timeline)
        await pilot.pause()
        assert "… 1 pruned beam: → shows them" in screen(pilot)
        panel.view.move(9)
        panel.view.fold(away=False)
        panel.show(timeline)
        await pilot.pause()
        assert "▶ … 1 pruned beam, shown above: ← folds them" in screen(pilot)
        assert "· rank 1, greedy" in rows(pilot)[-2]
        assert "· pruned at step 2" in rows(pilot)[-1]
        faint = panel._table.ink("faint").color
        assert style_at(pilot, "␣x x").color != faint
        assert style_at(pilot, "␣x · pruned").color == style_at(pilot, "· pruned").color == faint
        panel.view.move(-2)
        panel.show(timeline)
        await pilot.pause()
        assert "beam score −0.5000" in screen(pilot)
        assert "Tree · 1 branch · 2 beams ─" in screen(pilot)
        panel.view.move(9)
        panel.view.fold()
        panel.show(timeline)
        await pilot.pause()
        assert "pruned at step 2" not in screen(pilot)


# ---- cursor and folds -----------------------------------------------------------------------------


def view() -> tuple[TreeView, Session, Timeline]:
    made, timeline = forked()
    looked = TreeView()
    looked.look(timeline)
    return looked, made, timeline


def test_the_cursor_begins_at_the_tip_and_follows_other_paths():
    looked, made, timeline = view()
    assert looked.cursor is timeline.tree.branches.of(timeline.tip)
    looked.put(0)
    assert looked.row == 0
    timeline.apply(made.step())
    looked.look(timeline)
    assert looked.row == 0, "a step leaves it"
    timeline.apply(made.move(looked.rows[2].last))
    looked.look(timeline)
    assert looked.row == 2


def test_folds_hide_what_hangs_below_and_arrows_walk():
    looked, _, timeline = view()
    looked.put(1)
    looked.fold()
    assert len(looked.rows) == 2
    assert looked.folded(looked.rows[1]) == 2
    looked.fold()
    assert looked.row == 0
    looked.fold(away=False)
    assert looked.row == 1
    looked.fold(away=False)
    assert len(looked.rows) == 4
    looked.fold(away=False)
    assert looked.row == 2
    looked.put(99)
    assert looked.row == 3
    looked.put(1)
    looked.fold()
    looked.follow()
    looked.look(timeline)
    assert looked.cursor is looked.tip, "the tip is never hidden where it is asked for"


def test_another_path_unfolds_the_way_to_its_tip():
    looked, made, timeline = view()
    looked.put(0)
    looked.fold()
    assert len(looked.rows) == 1
    choose(made, timeline.steps[0].node, 3)
    for record in made.records[-2:]:
        timeline.apply(record)
    looked.look(timeline)
    assert looked.tip in looked.rows


def test_the_cursor_steps_aside_of_what_is_deleted():
    looked, _, _ = view()
    for row, beside in ((2, "next"), (3, "before")):
        looked.put(row)
        other = looked.rows[5 - row].first
        looked.step_aside()
        assert looked.cursor.first == other, beside
    looked.put(1)
    looked.step_aside()
    assert looked.row == 0


def test_deep_trees_keep_room_for_text():
    made = session(1)
    for _ in range(30):
        parent = made.timeline().tip
        made.step()
        child = made.node
        choose(made, parent)
        made.move(child)
    looked = TreeView()
    looked.look(made.timeline())
    guides = looked.guides(looked.tip, 20)
    assert len(guides) <= 20
    assert guides.startswith("⋯")
    assert guides.endswith("─")


# ---- numbers --------------------------------------------------------------------------------------


def test_columns_give_way_to_the_text():
    assert fitting(200, 30) == COLUMNS
    assert [head for head, _, _ in fitting(78, 30)] == ["made", "tokens", "mean", "logprob from start"]
    assert fitting(30, 30) == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (-0.5, "−0.50"), (-1234.5, "−1,234"), (-math.inf, "−∞"), (0.0, "0.00")],
)
def test_logprobs_as_text(value: float | None, text: str):
    assert logprob(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (1.0, "1.00"), (1234.4, "1,234"), (3e9, "3 B"), (1e20, ">999 T")]
)
def test_perplexities_as_text(value: float | None, text: str):
    assert perplexity(value) == text


def test_sums_in_words_tell_what_is_known():
    assert sums_phrase("branch", Sums(1, 0, 0.0)) == "branch 1 token"
    assert sums_phrase("branch", Sums(3, 2, -2.0)) == (
        "branch 3 tokens, logprob of the 2 known −2.00, mean −1.00, perplexity 2.72"
    )


def test_an_impossible_token_is_told_so():
    (branch,) = branches_of([Token(1, 0, "x", b"x", -math.inf)])
    assert logprob(branch.sums.logprob) == "−∞"
    assert perplexity(branch.sums.perplexity) == "∞"


def test_marks_on_one_line():
    mark = Marked(1, "a", True, "b", "c")
    assert written(mark) == "★ a ✎ b ❝ c"
    assert written(replace(mark, name="", bookmarked=False, caption="")) == "✎ b"
    assert written(Marked(1, bookmarked=True)) == "★ bookmarked"
