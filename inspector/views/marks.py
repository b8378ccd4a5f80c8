"""Marks: where they are, the keys that go from one to the next, and the list of all."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import ClassVar

from msgspec import Struct
from rich.segment import Segment
from textual.widget import Widget

from engine.protocol import Marked
from inspector.display import pad, quoted, token_label, truncate, truncate_start, visible
from inspector.keys import key_for, with_keys
from inspector.main.tool import ToolActions
from inspector.state.branches import Branch
from inspector.state.session_tree import CAPTION, NOTE, STAR, branches_words, quoted_label, written
from inspector.state.timeline import Timeline
from inspector.widgets.actions import ActionTable, dialog_table, leaves, picking, taking
from inspector.widgets.canvas import Row, around
from inspector.widgets.dialog import Remark
from inspector.widgets.lists import PickDialog, PickList


class MarkActions(ToolActions):
    """Goes to branch points, bookmarks, notes and captions."""

    def walk(self, by: int) -> None:
        """Look at the previous or the next mark."""
        self.host.answer(go(self.timeline, by))

    def open(self) -> None:
        """List all marks, and go to the one that is chosen."""
        selected = self.timeline.selected
        self.host.open(MarksDialog(places(self.timeline), selected.node if selected else 0), self._chosen)

    def _chosen(self, mark: MarkedPlace | None) -> None:
        if mark is not None and mark.node in self.timeline.tree.branches:
            self.controller.navigation.go_to(mark.node)
            self.host.answer()


# ---- the list -----------------------------------------------------------------------------------


class MarkedPlace(Struct, frozen=True):
    """One token with a mark. Texts are printable."""

    node: int
    signs: str
    """Bookmark, note, caption and branches, a sign each."""
    position: int
    """Place in the context, from 1."""
    before: str
    token: str
    after: str
    branch: str
    """The name of its branch, or the branch's first words; empty on the current path."""
    written: str
    """The name, note or caption that was written there."""


MARKS_KEYS = dialog_table(
    "In the list of marks",
    *picking("Go through them: those of the path first, then those of other branches.", "mark"),
    taking("Go there, as a second click on it does; on another branch the KV cache moves.", "go there"),
    leaves("Leave."),
)
NONE = (
    "No marks yet: {bookmark} sets a bookmark, {name} writes a note "
    "or a caption, ⏎ on another candidate makes a branch."
)
SIGNS = (
    "★ bookmark · ✎ name or note · ❝ caption · ├2 two branches start here. "
    "{previous_mark} and {next_mark} walk those of the path."
)
_SIGNS, _POSITION, _LEAST, _MORE = 7, 8, 24, 22
"""Cells of the signs and of the position, minimum cells of the text, and cells that branch and writing each need."""


class MarksDialog(PickDialog[MarkedPlace]):
    """Lists marks; returns the one to go to.

    Args:
        places: The marks, in their order.
        at: The selected node, whose mark is highlighted if it has one.
    """

    ACTIONS: ClassVar[ActionTable] = MARKS_KEYS
    HEADING: ClassVar[str] = "Marks"
    APPLY: ClassVar[str] = "Go there"
    AUTO_FOCUS = ""

    def __init__(self, places: Sequence[MarkedPlace], at: int) -> None:
        super().__init__()
        self.choices, self._at = places, at

    def body(self) -> Iterable[Widget]:
        yield PickList(id="marks-list")
        yield Remark(with_keys(SIGNS if self.choices else NONE))

    def on_mount(self) -> None:
        """Show all rows; highlight that of the selected token, if it has a mark."""
        here = (place for place, each in enumerate(self.choices) if each.node == self._at)
        self.put(self.choices, next(here, 0))

    def _columns(self, width: int) -> tuple[int, int, int]:
        """Cells of the text, the branch and what is written."""
        free = width - _SIGNS - _POSITION
        more = (free - _LEAST) // _MORE
        branch = _MORE if more >= 2 else 0
        note = min(free - _LEAST - branch, free // 3) if more >= 1 else 0
        return free - branch - note, branch, note

    def head(self, width: int) -> Row:
        text, branch, note = self._columns(width - 1)
        titles = pad("", _SIGNS + 1) + pad("position", _POSITION, right=True) + pad("  text", text)
        return [Segment(titles + pad("branch", branch) + pad("written", note), self.picks.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        each, muted = self.choices[place], self.picks.ink("muted")
        text, branch, note = self._columns(width)
        return [
            Segment(pad(each.signs, _SIGNS), self.picks.ink("warn")),
            Segment(pad(f"{each.position:,}", _POSITION, right=True) + "  ", muted),
            *around(each.before, each.token, each.after, text - 3, muted, self.picks.ink("accent")),
            Segment(" "),
            Segment(pad(each.branch or "this path", branch), muted),
            Segment(pad(each.written, note), self.picks.rich_style),
        ]


# ---- the marks: branch points of the path, and bookmarks, notes and captions of the whole tree --

FORK = "├"
"""The sign of a branch point, before the number of branches that start there."""
_AROUND = 24
"""Maximum characters of the text on each side of a token."""


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
        ways = f"{key_for('bookmark')} sets a bookmark, {key_for('name')} writes a note"
        return f"No marks on this path: {ways}, ⏎ on another candidate makes a branch"
    before, after = bisect_left(found, slot), bisect_right(found, slot)
    place = after if by > 0 else before - 1
    if not 0 <= place < len(found):
        others = f"after this token, {before} before it"
        if by < 0:
            others = f"before this token, {len(found) - after} after it"
        return f"No mark {others}. {key_for('marks')} lists those of all branches"
    timeline.select(found[place])
    return f"Mark {place + 1} of {len(found)}: {_described(timeline, found[place])}"


def _described(timeline: Timeline, slot: int) -> str:
    item, branches = timeline.items[slot], len(timeline.siblings(slot))
    words = quoted_label(item)
    if item.node in timeline.tree.marks.of:
        words += f", {written(timeline.tree.marks.of[item.node])}"
    return f"{words}. {branches_words(branches)}" if branches > 1 else words


def places(timeline: Timeline) -> list[MarkedPlace]:
    """All marks: those of the path in its order, then those of the other branches in the tree's order."""
    marked, on_path = timeline.tree.marks.of, {item.node for item in timeline.items}
    listed = [_place(timeline, timeline.items[slot].node, slot) for slot in slots(timeline)]
    for branch in timeline.tree.branches:
        others = (node for node in branch.nodes if node in marked and node not in on_path)
        listed += [_place(timeline, node, branch=branch) for node in others]
    return listed


def _place(
    timeline: Timeline, node: int, slot: int | None = None, branch: Branch | None = None
) -> MarkedPlace:
    """A mark at a slot of the path, or in another branch."""
    branches, mark = timeline.tree.branches, timeline.tree.marks.at(node)
    signs = STAR * mark.bookmarked + NOTE * bool(mark.note or mark.name) + CAPTION * bool(mark.caption)
    if slot is not None and (count := len(timeline.siblings(slot))) > 1:
        signs += f"{FORK}{count}"
    before, found, after = branches.excerpt(node, node, 4 * _AROUND)
    named = ""
    if branch is not None:  # the branch's name, or else its first words
        begins = truncate(visible(branches.text(branch, _AROUND)).strip(), _AROUND)
        named = visible(timeline.tree.marks.at(branch.first).name) or quoted(begins)
    return MarkedPlace(
        node,
        signs,
        branches.depth(node),
        truncate_start(visible(before[-4 * _AROUND :]), _AROUND),
        visible(found) or token_label("", branches[node].raw),
        visible(after[:_AROUND]),
        named,
        written(Marked(node, mark.name, False, mark.note, mark.caption)),
    )
