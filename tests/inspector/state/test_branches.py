"""Branches and marks: an incremental fold equals one from scratch, a deletion undone equals none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import field
from msgspec.structs import replace

from engine.protocol import Beam, BeamEnded, BeamOpened, BeamStep, Deleted, Hypothesis, Marked, Undeleted
from inspector.state.branches import PROMPT, ROOT, Branches, Token, token
from inspector.state.session_tree import Marks, SessionTree
from inspector.state.timeline import Timeline
from tests.inspector.fakes import Session, session
from tests.inspector.state.from_tokens import branches_of

LOGPROBS = st.one_of(st.none(), st.floats(-30, 0), st.just(-math.inf))


class Grown(SessionTree):
    """A tree of tokens, and the marks on it."""

    all: dict[int, Token] = field(default_factory=dict)
    visited: dict[int, int] = field(default_factory=dict)
    """The child that was visited last, by its parent, whatever is deleted."""

    def grow(self, parent: int, logprob: float | None, made: str = "sampled") -> None:
        one = Token(len(self.all) + 1, parent, f" {len(self.all)}", b"", logprob, made)
        self.all[one.node] = one
        self.children.setdefault(parent, []).append(one.node)
        self.branches.add(one)
        self.stand(one.node)

    def stand(self, node: int) -> None:
        parent = self.all[node].parent
        self.visited[parent] = node
        self.follow(parent, node)

    def picture(self) -> object:
        """All that is on show."""
        children = {parent: list(nodes) for parent, nodes in self.children.items() if nodes}
        return runs(self.branches), children, {parent: self.latest(parent) for parent in children}


def runs(branches: Branches) -> list[tuple[list[int], int | None]]:
    return [(list(branch.nodes), branch.parent.last if branch.parent else None) for branch in branches]


@st.composite
def trees(draw: st.DrawFn, most: int = 40) -> Grown:
    """A prompt, and what grew from it: mostly at the end, sometimes anywhere."""
    grown = Grown()
    for _ in range(draw(st.integers(1, 4))):
        grown.grow(len(grown.all), draw(LOGPROBS), PROMPT)
    for _ in range(draw(st.integers(0, most))):
        last = len(grown.all)
        grown.grow(last if draw(st.booleans()) else draw(st.integers(1, last)), draw(LOGPROBS))
    return grown


def check(grown: Grown) -> None:
    """What must hold of every fold."""
    branches = grown.branches
    shown = [one for one in grown.all.values() if one.node in branches]
    nodes = [node for branch in branches for node in branch.nodes]
    assert sorted(nodes) == [one.node for one in shown], "a partition"
    assert branches.count == len(list(branches))
    scratch = branches_of(shown)
    assert runs(branches) == runs(scratch), "as from scratch"
    for branch, other in zip(branches, scratch, strict=True):
        assert (branch.sums.tokens, branch.sums.known) == (len(branch.nodes), other.sums.known)
        assert branch.sums.logprob == pytest.approx(other.sums.logprob, abs=1e-9)
        assert all(branches.of(node) is branch for node in branch.nodes)
        assert [branches.place(node) for node in branch.nodes] == list(range(len(branch.nodes)))
        assert [child.parent for child in branch.children] == [branch] * len(branch.children)
    assert sum(branch.sums.logprob for branch in branches) == pytest.approx(
        sum(one.logprob for one in shown if one.logprob is not None), abs=1e-6
    )


# ---- the fold -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(trees())
def test_branches_part_the_tokens_and_their_sums_add_up(grown: Grown):
    check(grown)
    for branch in grown.branches:
        for node in branch.nodes[1:]:
            parent = grown.all[node].parent
            assert grown.children[parent] == [node]
            assert (grown.all[parent].made == PROMPT) == (grown.all[node].made == PROMPT)


@settings(max_examples=60, deadline=None)
@given(trees(25), st.data())
def test_deletions_undone_one_after_another_leave_the_tree_as_it_was(grown: Grown, data: st.DataObject):
    pictures, deleted = [grown.picture()], []
    for _ in range(data.draw(st.integers(1, 4))):
        shown = [node for node in grown.all if node in grown.branches and grown.all[node].made != PROMPT]
        if not shown:
            break
        deleted.append(data.draw(st.sampled_from(shown)))
        grown.marks.apply(Deleted(deleted[-1]), grown, ROOT)
        assert deleted[-1] not in grown.branches
        assert len(grown.marks.deleted) == len(grown.all) - len(grown.branches)
        check(grown)
        pictures.append(grown.picture())
    for node in reversed(deleted):
        assert grown.marks.last is not None
        assert grown.marks.last.node == node
        assert grown.picture() == pictures.pop()
        grown.marks.apply(Undeleted(node), grown, ROOT)
        check(grown)
    assert grown.picture() == pictures.pop()
    assert grown.marks.last is None


@settings(max_examples=60, deadline=None)
@given(trees(25), st.data())
def test_whatever_is_deleted_stepped_on_and_undone_in_any_order_paths_stay_whole(
    grown: Grown, data: st.DataObject
):
    nodes = st.sampled_from(sorted(grown.all))
    for _ in range(data.draw(st.integers(1, 10))):
        node = data.draw(nodes)
        match data.draw(st.sampled_from(("delete", "undo", "stand", "beam"))):
            case "delete":
                grown.marks.apply(Deleted(node), grown, ROOT)
            case "undo":
                grown.marks.apply(Undeleted(node), grown, ROOT)
            case "stand":
                grown.marks.reveal(node, grown)
                grown.stand(node)
                assert node in grown.branches
            case "beam":
                one = Token(len(grown.all) + 1, node, "x", b"", -1.0, "beam")
                grown.all[one.node] = one
                grown.marks.grown(one, grown)
                assert (one.node in grown.branches) == (node in grown.branches)
        check(grown)
        for shown in (one for one in grown.all if one in grown.branches):
            assert grown.all[shown].parent in (ROOT, *grown.all)
            assert grown.all[shown].parent == ROOT or grown.all[shown].parent in grown.branches
        for parent, children in grown.children.items():
            visited = grown.visited[parent]
            assert grown.latest(parent) == (visited if visited in children else children[-1])
    while (deletion := grown.marks.last) is not None:
        grown.marks.apply(Undeleted(deletion.node), grown, ROOT)
    assert len(grown.branches) == len(grown.all)


def test_new_readings_replace_the_old_ones():
    branches = branches_of([Token(1, 0, "a", b"a", None, PROMPT), Token(2, 1, "b", b"b", None, PROMPT)])
    (branch,) = branches
    assert branch.sums.mean is None
    branches.add(Token(2, 1, "b", b"b", -2.0, PROMPT))
    assert (branch.sums.mean, branch.sums.known) == (-2.0, 1)
    branches.add(Token(2, 1, "b", b"b", -math.inf, PROMPT))
    branches.add(Token(2, 1, "b", b"b", -1.0, PROMPT))
    assert branch.sums.logprob == -1.0
    assert branches.version == 1


def test_the_completion_is_summed_up_to_the_end_of_a_branch():
    made = session(4)
    timeline = made.timeline()
    steps = timeline.steps
    fork = next(c for c in steps[2].choice.candidates if c.id != steps[2].id)
    for record in made.choose(steps[1].node, fork.id):
        timeline.apply(record)
    branch = timeline.tree.branches.of(timeline.tip)
    total = timeline.tree.branches.completion(branch)
    assert total.tokens == 3
    assert total.logprob == pytest.approx(steps[0].logprob + steps[1].logprob + fork.logprob)
    assert total.perplexity == pytest.approx(math.exp(-total.logprob / 3))
    assert timeline.tree.branches.completion(timeline.tree.branches.root.children[0]).tokens == 0


def test_how_a_branch_was_made_is_how_its_first_token_was():
    made = session(1)
    step = made.timeline().steps[0]
    assert token(step, 5).made == "sampled"
    assert token(replace(step, origin="inserted"), 5).made == "typed"
    assert token(replace(step, choice=replace(step.choice, reroll=2)), 5).made == "re-rolled"
    assert token(replace(step, origin="chosen", choice=replace(step.choice, reroll=2)), 5).made == "chosen"
    assert token(made.timeline().items[0], 0).made == PROMPT


# ---- in the timeline ----------------------------------------------------------------------------


def forked() -> tuple[Session, Timeline, list[int]]:
    """A prompt, three steps, and two more on a branch after the first step."""
    made = session(3)
    first, second, third = (step.node for step in made.timeline().steps)
    other = next(c.id for c in made.tips[first].candidates if c.id != made.tips[first].picked)
    made.choose(first, other)
    made.step()
    return made, made.timeline(), [first, second, third, made.node]


def test_deleted_branches_are_neither_siblings_nor_children_nor_latest():
    _, timeline, (first, second, third, tip) = forked()
    slot = timeline.step_slots[0] + 1
    assert len(timeline.siblings(slot)) == 2
    timeline.apply(Deleted(second))
    assert timeline.siblings(slot) == timeline.tree.children[first]
    assert second not in timeline.tree.children[first]
    assert third not in timeline.tree.children.get(second, [])
    timeline.apply(Undeleted(second))
    assert timeline.siblings(slot)[0] == second
    assert timeline.tree.latest(second) == third
    assert timeline.tree.leaf(first) == tip, "the branch stood on stays the latest"


def test_a_deleted_token_that_is_stepped_on_comes_back_alone():
    made, timeline, (_first, second, third, _tip) = forked()
    timeline.apply(Deleted(second))
    timeline.apply(made.move(second))
    assert second in timeline.tree.branches
    assert third not in timeline.tree.branches
    assert timeline.tip == second
    assert timeline.tree.latest(second) is None
    assert len(timeline.tree.marks.deleted) == 1
    timeline.apply(Undeleted(second))
    assert timeline.tree.latest(second) == third
    assert timeline.tree.marks.last is None


def test_steps_below_a_deleted_token_bring_its_path_back():
    made, timeline, (_first, second, third, _tip) = forked()
    timeline.apply(Deleted(second))
    made.move(third)
    timeline.apply(made.step())
    assert {second, third, made.node} <= set(timeline.tree.children) | {made.node}
    assert timeline.tip == made.node


def test_the_prompt_can_not_be_deleted():
    _, timeline, _ = forked()
    count = len(timeline.tree.branches)
    timeline.apply(Deleted(timeline.items[0].node))
    assert len(timeline.tree.branches) == count
    assert timeline.tree.marks.last is None


def test_marks_at_their_defaults_are_none():
    marks, tree = Marks(), SessionTree()
    marks.apply(Marked(3, name="a"), tree, ROOT)
    assert marks.at(3).name == "a"
    marks.apply(Marked(3), tree, ROOT)
    assert marks.of == {}
    assert marks.at(3) == Marked(3)


def test_a_new_prompt_begins_without_marks_and_deletions():
    made, timeline, nodes = forked()
    timeline.apply(Marked(nodes[0], bookmarked=True))
    timeline.apply(Deleted(nodes[1]))
    for record in made.open():
        timeline.apply(record)
    assert (timeline.tree.marks.of, len(timeline.tree.marks.deleted), timeline.tree.branches.count) == (
        {},
        0,
        1,
    )


def test_beams_are_in_the_tree_and_no_children_until_they_are_stepped():
    made = session(2)
    timeline, tip = made.timeline(), made.node
    live = tuple(
        Beam(tip + place + 1, tip, place, 0, 6 + place, " x", -1.0 - place, -1.0 - place, -1.0, 1)
        for place in (0, 1)
    )
    timeline.apply(BeamOpened(tip, 2, 1.0, False, 8))
    timeline.apply(BeamStep(1, live, (), (), live[0], 2, 1.0, False))
    assert [timeline.tree.branches.made(timeline.tree.branches.of(beam.node)) for beam in live] == [
        "beam",
        "beam",
    ]
    assert timeline.tree.children.get(tip) is None
    timeline.apply(Deleted(live[1].node))
    grown = replace(live[1], node=tip + 9, parent=live[1].node, length=2)
    timeline.apply(BeamStep(2, (grown,), (live[0],), (), None, 1, 1.0, False))
    assert tip + 9 not in timeline.tree.branches
    timeline.apply(Undeleted(live[1].node))
    assert tip + 9 in timeline.tree.branches
    assert timeline.tree.children.get(tip) is None
    last = Hypothesis(tip + 12, (7, 7, 8), " x x", -3.0, -1.0, 3, "eos")
    timeline.apply(BeamEnded((last,), last, (), 3, "finished", 9.0))
    assert timeline.tree.branches.of(tip + 12) is timeline.tree.branches.of(tip + 9)
