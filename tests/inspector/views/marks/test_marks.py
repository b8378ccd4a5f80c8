"""Marks: the way from one to the next, the list of all of them, and going to one on another branch."""

from __future__ import annotations

import pytest

from engine import protocol
from engine.protocol import Deleted, Marked
from inspector.views.marks import MarksDialog, go, places, slots
from tests.inspector.fakes import HOSTILE, PROMPT, Session
from tests.inspector.rig import Rig


def forked() -> tuple[Session, list[int]]:
    """Four steps and another branch from the second on; all nodes of both, the one left first."""
    made = Session()
    made.load()
    made.open()
    left = [step.node for step in made.steps(4)]
    tip = made.tips[left[1]]
    made.choose(left[1], next(each.id for each in tip.candidates if each.id != tip.picked))
    taken = [made.node, *(step.node for step in made.steps(2))]
    return made, [*left, *taken]


def test_marks_of_the_path_are_branch_points_and_what_was_written():
    made, nodes = forked()
    timeline = made.timeline()
    for mark in (
        Marked(nodes[0], bookmarked=True),
        Marked(nodes[6], caption="see"),
        Marked(nodes[3], "left"),
    ):
        timeline.apply(mark)
    first = len(PROMPT)
    assert slots(timeline) == [first, first + 2, first + 4]
    assert go(timeline, 1).startswith("No mark after this token, 3 before it.")
    assert go(timeline, -1).endswith("”, ❝ see")
    assert timeline.slot == first + 4
    assert "2 branches start here: 1 [ and ] switch." in go(timeline, -1)
    assert timeline.slot == first + 2
    assert go(timeline, -1).endswith("”, ★ bookmarked")
    assert go(timeline, -1) == "No mark before this token, 2 after it. 4 k lists those of all branches"


def test_a_path_without_marks_says_how_to_make_one():
    made = Session()
    made.load()
    made.open()
    assert go(made.timeline(), 1).startswith("No marks on this path: 4 b sets a bookmark")


def test_the_list_has_the_path_first_then_other_branches_and_nothing_deleted():
    made, nodes = forked()
    timeline = made.timeline()
    timeline.apply(Marked(nodes[3], note="over there"))
    timeline.apply(Marked(nodes[6], caption="see", bookmarked=True))
    listed = places(timeline)
    assert [each.node for each in listed] == [nodes[4], nodes[6], nodes[3]]
    assert [each.signs for each in listed] == ["├2", "★❝", "✎"]
    assert [bool(each.branch) for each in listed] == [False, False, True]
    assert listed[2].position == len(PROMPT) + 4
    assert listed[2].before.endswith(" there was a"), "across the fork above it"
    assert (listed[2].token, listed[2].written) == (" little", "✎ over there")
    timeline.apply(Deleted(nodes[2]))
    assert [each.node for each in places(timeline)] == [nodes[6]]


def test_marks_of_another_branch_are_listed_in_the_order_of_its_tokens():
    made, nodes = forked()
    timeline = made.timeline()
    for node in (nodes[3], nodes[2]):  # the later one was marked first
        timeline.apply(Marked(node, bookmarked=True))
    assert [each.node for each in places(timeline)][-2:] == [nodes[2], nodes[3]]


def test_hostile_texts_are_printable():
    made = Session(story=HOSTILE)
    made.load()
    made.open()
    made.steps(len(HOSTILE))
    timeline = made.timeline()
    for item in timeline.items:
        timeline.apply(Marked(item.node, "\x1b[2J", True, "\x07", "\u202e"))
    for each in places(timeline):
        assert all(text.isprintable() for text in (each.before, each.token, each.after, each.written))


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_enter_goes_to_a_mark_on_another_branch(rig: Rig, size: tuple[int, int]) -> None:
    made, nodes = forked()
    rig.session = made
    await rig.push(made.records)
    await rig.push([Marked(nodes[3], caption="see", bookmarked=True)])
    rig.engine.sent.clear()
    await rig.do("marks")
    assert isinstance(rig.app.top, MarksDialog)
    assert "★" in rig.screen_text()
    await rig.press("down", "enter")
    assert rig.engine.sent == [protocol.MoveTo(nodes[3])]
    await rig.push([made.move(nodes[3])])
    await rig.end("MoveTo")
    assert rig.timeline.selected is not None
    assert rig.timeline.selected.node == nodes[3]
    await rig.press("left_curly_bracket")
    assert rig.timeline.items[rig.timeline.slot].node == nodes[2]
    await rig.do("marks")
    assert rig.app.top.picks.highlighted == 0
    await rig.press("enter")
    assert rig.engine.sent == [protocol.MoveTo(nodes[3])], "it is on the path"


async def test_an_empty_list_says_how_to_make_marks(rig: Rig) -> None:
    await rig.ready(steps=2)
    await rig.do("marks")
    assert "No marks yet" in rig.screen_text()
    await rig.press("enter")
    await rig.press("escape")
    assert rig.app.top is rig.app.main


def test_the_text_before_a_mark_begins_with_a_word():
    made = Session()
    made.load()
    made.open()
    made.steps(12)
    timeline = made.timeline()
    last = timeline.items[-1].node
    timeline.apply(Marked(last, "", True))
    whole = "".join(item.text for item in timeline.items[:-1])
    before = next(each.before for each in places(timeline) if each.node == last)
    assert before.startswith("… ")
    assert whole.endswith(" " + before.removeprefix("… "))
