"""Marks as a tool: where they are, and the keys that go from one to the next and list all."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from engine.protocol import Marked
from inspector.display import quoted, token_label, truncate, truncate_start, visible
from inspector.keys import bare_key_for, key_for
from inspector.main.tool import Tool, ToolActions
from inspector.state.branches import Branch, Branches
from inspector.state.session_tree import CAPTION, NOTE, STAR, written
from inspector.state.timeline import Timeline
from inspector.tools.marks import MARKS_KEYS, MarkedPlace
from inspector.widgets.actions import Action, Needs


class MarkActions(ToolActions):
    """Goes to branch points, bookmarks, notes and captions."""

    def walk(self, by: int) -> None:
        """Look at the mark before or after."""
        self.host.answer(go(self.timeline, by))

    def open(self) -> None:
        """List all marks, and go to the one that is chosen."""
        from inspector.tools.marks.dialog import MarksDialog

        selected = self.timeline.selected
        self.host.open(MarksDialog(places(self.timeline), selected.node if selected else 0), self._chosen)

    def _chosen(self, node: int | None) -> None:
        if node is not None and node in self.timeline.tree.branches:
            self.controller.navigation.go_to(node)
            self.host.answer()


# ---- the marks: branch points of the path, and bookmarks, notes and captions of the whole tree --

FORK = "├"
"""The sign of a branch point, before how many branches part there."""
_AROUND = 24
"""Characters of the text at each side of a token, at most."""


def slots(timeline: Timeline) -> list[int]:
    """Slots of the path that have a mark, in its order."""
    marked = timeline.tree.marks.of
    return [
        slot
        for slot, item in enumerate(timeline.items)
        if item.node in marked or len(timeline.siblings(slot)) > 1
    ]


def go(timeline: Timeline, by: int) -> str:
    """Select the next slot with a mark (or, with -1, the last one before), and describe it; printable."""
    found, slot = slots(timeline), timeline.slot
    if not found:
        return (
            f"No mark on this path: {key_for('bookmark')} sets a bookmark, {key_for('name')} writes "
            "a caption, ⏎ on another candidate makes a branch"
        )
    before, after = bisect_left(found, slot), bisect_right(found, slot)
    place = after if by > 0 else before - 1
    if not 0 <= place < len(found):
        where, other, rest = (
            ("after", "before", before) if by > 0 else ("before", "after", len(found) - after)
        )
        return (
            f"No mark {where} this token, {rest} {other} it. {key_for('marks')} lists those of all branches"
        )
    timeline.select(found[place])
    return f"Mark {place + 1} of {len(found)}: {_described(timeline, found[place])}"


def _described(timeline: Timeline, slot: int) -> str:
    item, branches = timeline.items[slot], len(timeline.siblings(slot))
    parts = [quoted(token_label(item.text, item.raw))]
    if item.node in timeline.tree.marks.of:
        parts.append(written(timeline.tree.marks.of[item.node]))
    if branches > 1:
        parts.append(
            f"one of {branches} branches: {key_for('previous_branch')} {bare_key_for('next_branch')}"
        )
    return ", ".join(parts)


def places(timeline: Timeline) -> list[MarkedPlace]:
    """All marks: those of the path in its order, then those of the other branches, as the tree has them."""
    branches = timeline.tree.branches
    on_path = {item.node: slot for slot, item in enumerate(timeline.items)}
    nodes = [timeline.items[slot].node for slot in slots(timeline)]
    order = {branch.first: place for place, branch in enumerate(branches)}
    others = [node for node in timeline.tree.marks.of if node not in on_path and node in branches]
    others.sort(key=lambda node: (order[_branch(branches, node).first], branches.depth(node)))
    return [_place(timeline, node, on_path.get(node)) for node in (*nodes, *others)]


def _branch(branches: Branches, node: int) -> Branch:
    branch = branches.of(node)
    assert branch is not None  # the node is in them
    return branch


def _place(timeline: Timeline, node: int, slot: int | None) -> MarkedPlace:
    branches, mark = timeline.tree.branches, timeline.tree.marks.at(node)
    branch, at = _branch(branches, node), branches.place(node)
    signs = STAR * mark.bookmarked + NOTE * bool(mark.note or mark.name) + CAPTION * bool(mark.caption)
    if slot is not None and (count := len(timeline.siblings(slot))) > 1:
        signs += f"{FORK}{count}"
    before = ""  # the end of the text before it, across the forks above
    for part in branches.above(branch):
        nodes = part.nodes[max(0, at - _AROUND) : at] if part is branch else part.nodes[-_AROUND:]
        before = "".join(branches[each].text for each in nodes) + before
        if len(before) >= _AROUND:
            break
    after = "".join(branches[each].text for each in branch.nodes[at + 1 : at + 1 + _AROUND])
    named = ""
    if slot is None:  # the branch's name, or else how it begins
        begins = truncate(visible(branches.text(branch, _AROUND)).strip(), _AROUND)
        named = visible(timeline.tree.marks.at(branch.first).name) or quoted(begins)
    return MarkedPlace(
        node,
        signs,
        branches.depth(node),
        truncate_start(visible(before[-4 * _AROUND :]), _AROUND),
        visible(branches[node].text) or token_label("", branches[node].raw),
        visible(after[:_AROUND]),
        named,
        written(Marked(node, mark.name, False, mark.note, mark.caption)),
    )


# ---- keys ---------------------------------------------------------------------------------------

MARKS = Tool(
    "marks",
    "Marks",
    MarkActions,
    actions=(
        Action("previous_mark", "Previous mark",
            "Look at the previous mark: a branch point of the path, a bookmark, a note or a caption.",
            lambda own: own.walk(-1), Needs.DISTRIBUTION, looks=True),
        Action("next_mark", "Next mark", "Look at the next mark.", lambda own: own.walk(1), Needs.DISTRIBUTION,
            looks=True),
        Action("marks", "Marks",
            "List all marks: branch points of the path, and bookmarks, notes and captions of every branch; enter goes "
            "there.", MarkActions.open, Needs.DISTRIBUTION, looks=True, hint="marks", worth=3, place=63,
            synonyms="bookmarks, notes, annotations"),
    ),
    owners=(MARKS_KEYS,),
)  # fmt: skip
