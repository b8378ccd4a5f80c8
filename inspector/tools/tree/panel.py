"""The token tree, folded to its branches: a table of them, and what is known of the one under the cursor."""

from __future__ import annotations

from rich.segment import Segment
from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget

from inspector.display import joined_to_fit, visible
from inspector.keys import key_for, with_keys
from inspector.main.tool import ToolMessage
from inspector.state.beams import BeamHistory
from inspector.state.branches import PROMPT, Branch
from inspector.state.session_tree import counted, written
from inspector.state.timeline import Timeline
from inspector.tools.tree.table import TreeTable, sums_phrase
from inspector.tools.tree.view import TreeFilter, TreeView
from inspector.widgets.canvas import Canvas, Row, looks_same, wrapped
from inspector.widgets.inks import panel_css

KEYS_HERE = (
    "⏎ go", "←→ fold", "{bookmark} bookmark", "{name} name", "{delete} delete", "{undo} undo", "{filter} filter",
)  # fmt: skip
FORK = ("{candidates}, then ↑↓ and ⏎, takes another candidate: a branch", "{reroll} draws again")
_LOW, _HIGH = 9, 13
"""Rows below which the detail gives way, and from which it may have more lines."""
_SLIM, _ROOMY = 72, 100
"""Columns below which it needs more lines, and from which it needs fewer."""


class TreeDetail(Canvas):
    """The branch under the cursor in words: its numbers, and what the user wrote on it."""

    DEFAULT_CSS = "TreeDetail { height: 3; }"
    DEFAULT_CSS += "TreeDetail.-roomy { height: 2; } TreeDetail.-slim { height: 5; }"

    def __init__(self, view: TreeView) -> None:
        super().__init__()
        self._view = view

    def draw(self, width: int, height: int) -> list[Row]:
        branch, muted = self._view.cursor, self.ink("muted")
        if branch is None or self.timeline is None:
            return []
        texts = self._numbers(branch, width)
        if height > len(texts) + 1:
            texts = [line for text in texts for line in wrapped(text, width)][: height - 1]
        return [*([Segment(text, muted)] for text in texts), self._written(self.timeline, branch, width)]

    def _numbers(self, branch: Branch, width: int) -> list[str]:
        branches = self._view.branches
        own = sums_phrase("this branch:", branch.sums)
        if branches.made(branch) == PROMPT:
            return [own]
        whole = sums_phrase("completion to its end:", branches.completion(branch)) + self._beam(branch)
        return [whole] if width >= _ROOMY else [own, whole]  # a roomy table has all of its own

    def _beam(self, branch: Branch) -> str:
        """The score of the beam that ends here, if one does."""
        beam = self.timeline.of(BeamHistory).nodes.get(branch.last) if self.timeline else None
        return f", beam score {beam.score:.4f}" if beam else ""

    def _written(self, timeline: Timeline, branch: Branch, width: int) -> Row:
        """The marks on the branch and on tokens in it; or else advice."""
        marks = timeline.tree.marks
        depth, first = timeline.tree.branches.depth, branch.first
        inner = [node for node in marks.of if node != first and self._view.holding(node) is branch]
        texts = [written(marks.at(branch.first))] if branch.first in marks.of else []
        texts += [
            f"at its token {depth(node) - depth(first) + 1}: {written(marks.of[node])}" for node in inner
        ]
        if texts:
            return [Segment(" · ".join(texts), self.ink("warn"))]
        advice = FORK if timeline.tree.branches.count <= 2 else KEYS_HERE
        return [Segment(joined_to_fit(map(with_keys, advice), width), self.ink("muted"))]


class TreePanel(Widget, can_focus=True):
    """Table and detail in one frame."""

    DEFAULT_CSS = panel_css("TreePanel") + "TreePanel { layout: vertical; padding: 0 0 0 1; }"
    DEFAULT_CSS += "TreePanel.-concealed > * { visibility: hidden; }"

    class BranchChosen(ToolMessage):
        """The user wants to go to a branch's end."""

        tool = "tree"

        def __init__(self, node: int) -> None:
            self.node = node
            """The branch's last node."""
            super().__init__()

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._timeline: Timeline | None = None
        self._table = TreeTable()
        self._detail = TreeDetail(self._table.view)
        self._titles: tuple[Content, Content] | None = None

    def compose(self) -> ComposeResult:
        yield self._table
        yield self._detail

    def on_mount(self) -> None:
        self.border_title = "Tree"

    def show(self, timeline: Timeline) -> None:
        """Show the tree's present state."""
        self._timeline = timeline
        self._table.show(timeline)
        self._detail.show(timeline)
        self.set_class(timeline.conceals("tree"), "-concealed")
        self._entitle(timeline)

    def follows(self, timeline: Timeline) -> bool:
        """True if it has taken in the path of a timeline, but for tokens that were added to it."""
        return timeline is self._timeline and self._table.view.has_path(timeline)

    def _entitle(self, timeline: Timeline) -> None:
        branches, hidden = timeline.tree.branches, len(timeline.tree.marks.deleted)
        title = f"Tree · {counted(len(branches), branches.count)}" if len(branches) else "Tree"
        if wanted := self._table.view.filter:
            words = visible(wanted.words())
            title = (
                f"Tree · {self._table.view.tree.fit:,} of {branches.count:,} branches {words}: esc shows all"
            )
        titles = Content(title), Content(f"{hidden:,} deleted: {key_for('undo')} undoes" if hidden else "")
        if self._titles is None or not all(map(looks_same, titles, self._titles)):
            self._titles = titles
            self.border_title, self.border_subtitle = titles

    def on_resize(self, event: events.Resize) -> None:
        self._detail.display = self.size.height >= _LOW
        self._detail.set_class(self.size.width >= _ROOMY, "-roomy")
        self._detail.set_class(self.size.width < _SLIM and self.size.height >= _HIGH, "-slim")

    # ---- the cursor -------------------------------------------------------------------------

    @property
    def branch(self) -> Branch | None:
        """The branch under the cursor."""
        return self._view.cursor

    @property
    def _view(self) -> TreeView:
        """Of the tree as it is now: keys may come between a change and its next frame."""
        if self._timeline is not None:
            self._table.view.look(self._timeline)
        return self._table.view

    def move(self, by: int) -> None:
        """Move the cursor by `by` rows."""
        self._view.put(self._view.row + by)

    def page(self, by: int) -> None:
        """Move the cursor by the height of the table."""
        self.move(by * max(1, self._table.size.height - 2))

    def to_first(self) -> None:
        """Put the cursor on the first row."""
        self._view.put(0)

    def to_tip(self) -> None:
        """Put the cursor on the branch that the current path ends in, and keep it there."""
        self._view.follow()

    def fold(self) -> None:
        """Fold the branch under the cursor, or go to the one that it hangs from."""
        self._view.fold()

    def unfold(self) -> None:
        """Unfold the branch under the cursor, or go to the first that hangs from it."""
        self._view.unfold()

    def toggle_fallen(self) -> None:
        """Show the beams that fell out, or fold them, where the cursor is on their row."""
        self._view.toggle(self._view.row)

    @property
    def filter(self) -> TreeFilter:
        """The filter of the branches."""
        return self._table.view.filter

    def keep(self, wanted: TreeFilter) -> None:
        """Show those branches that fit a filter, and what is above them."""
        self._view.filter = wanted

    def step_aside(self) -> None:
        """Leave the branch under the cursor, which is about to be deleted."""
        self._view.step_aside()

    @on(TreeTable.RowClicked)
    def _row_clicked(self, message: TreeTable.RowClicked) -> None:
        message.stop()
        self._view.put(message.row)
        if message.again and (branch := self.branch) is not None:
            self.post_message(self.BranchChosen(branch.last))
        self._show_again()

    @on(TreeTable.FoldClicked)
    def _fold_clicked(self, message: TreeTable.FoldClicked) -> None:
        message.stop()
        self._view.toggle(message.row)
        self._show_again()

    def _show_again(self) -> None:
        if self._timeline is not None:
            self.show(self._timeline)
