"""Which branches have a row, in which order, and where the cursor is. Pure: it draws nothing."""

from __future__ import annotations

from inspector.state.beams import BeamHistory
from inspector.state.branches import Branch, Branches
from inspector.state.timeline import Timeline
from inspector.tools.tree.pruning import PrunedTree, TreeFilter, pruned


class TreeView:
    """The rows of one tree as the user folded it.

    Rows are rebuilt only where branches came, went or were folded; a step that lengthens one costs nothing here. While
    some are left out it does, since a row may then be several branches.
    """

    def __init__(self) -> None:
        self.branches = Branches()
        self.rows: list[Branch] = []
        self.tree = PrunedTree([], 0, 0)
        self.filter = TreeFilter()
        self.show_fallen = False
        """Whether beams that fell out have rows of their own."""
        self.path: frozenset[int] = frozenset()
        """First nodes of the branches that the current path goes through."""
        self.tip: Branch | None = None
        """The branch that the path ends in."""
        self.layout = 0
        """Grows whenever rows are rebuilt or the path is another one."""
        self._row: dict[int, int] = {}
        self._folded: set[int] = set()
        self._cursor: int | None = None
        """Node in whose branch the cursor is; None at the tip's, wherever that goes."""
        self._at_fallen = False
        """Whether the cursor is on the row of the beams that fell out."""
        self._seen: tuple[object, ...] = ()
        self._trod: tuple[object, ...] = ()

    def look(self, timeline: Timeline) -> None:
        """Take in the timeline's present state. Another path takes the cursor with it, and unfolds its branches."""
        if timeline.tree.branches is not self.branches:
            self.branches, self._cursor = timeline.tree.branches, None
            self._folded.clear()
            self.filter, self.show_fallen = TreeFilter(), False
        moved = self._trod[:1] != (timeline.generation,)
        self.tip = self.branches.of(timeline.tip)
        if moved:
            self._cursor, self._at_fallen = None, False
            self._unfold_above(self.tip)
        self._lay(timeline)
        self._tread(timeline.generation)

    def _lay(self, timeline: Timeline) -> None:
        versions = (
            self.branches.version,
            timeline.generation,
            timeline.of(BeamHistory).version,
            timeline.tree.marks.version,
        )
        seen = (self.branches, *versions, self.filter, self.show_fallen)
        if (*seen, self._copied) != self._seen:
            self.tree = pruned(timeline, self.filter, self.show_fallen)
            self._seen = (*seen, self._copied)
            self._lay_rows()

    @property
    def _copied(self) -> int:
        """How many tokens there are, where rows are made of them anew; 0 where they are the tree's own branches."""
        return 0 if self.tree.top is self.branches.root.children else len(self.branches)

    def _lay_rows(self) -> None:
        self.layout += 1
        self.rows = []
        waiting = self.tree.top[::-1]
        while waiting:
            self.rows.append(branch := waiting.pop())
            if branch.first not in self._folded:
                waiting += branch.children[::-1]
        self._row = {branch.first: row for row, branch in enumerate(self.rows)}

    def _tread(self, generation: int) -> None:
        """Find the branches of the current path."""
        trod = (generation, self.branches.version, self.tip.first if self.tip else None, self.branches)
        if trod != self._trod:
            self._trod = trod
            self.layout += 1
            above = self.branches.above(self.tip) if self.tip else ()
            self.path = frozenset(branch.first for branch in above)

    # ---- the cursor -------------------------------------------------------------------------

    @property
    def row(self) -> int:
        """The cursor's row; of what is folded away the row that it is folded into, -1 where there is none."""
        if self._at_fallen and self.fallen_row >= 0:
            return self.fallen_row
        at = self.branches.of(self._cursor) if self._cursor is not None else None
        at = at or self.tip
        row = self._row_of(at) if at is not None else None
        return row if row is not None else 0 if self.count else -1

    def _row_of(self, at: Branch) -> int | None:
        """The row that a branch is in, or is folded into."""
        above = (self._row.get(branch.first) for branch in self.branches.above(at))
        return next((row for row in above if row is not None), None)

    @property
    def fallen_row(self) -> int:
        """The row of the beams that fell out, after all others; -1 where there is none."""
        return len(self.rows) if self.tree.fallen and not self.filter else -1

    @property
    def count(self) -> int:
        """How many rows there are, that one included."""
        return len(self.rows) + (self.fallen_row >= 0)

    def holding(self, node: int) -> Branch | None:
        """The row that a token is in; None where it is folded away or left out."""
        at = self.branches.of(node)
        row = self._row_of(at) if at is not None else None
        if row is None:
            return None
        branch, depth = self.rows[row], self.branches.depth
        return branch if depth(node) - depth(branch.first) < len(branch.nodes) else None

    @property
    def cursor(self) -> Branch | None:
        """The branch that the cursor is at."""
        row = self.row
        return self.rows[row] if 0 <= row < len(self.rows) else None

    def put(self, row: int) -> None:
        """Put the cursor on a row, or on the first or the last one where that is beyond."""
        row = max(0, min(self.count - 1, row))
        self._at_fallen = row == self.fallen_row
        if row < len(self.rows):
            self._cursor = self.rows[row].first

    def follow(self) -> None:
        """Let the cursor be at the tip's branch again."""
        self._cursor, self._at_fallen = None, False
        self._unfold_above(self.tip)
        self._lay_rows()

    def step_aside(self) -> None:
        """Move the cursor off its branch, which is about to be deleted: to a sibling, or else to what is above."""
        at = self.cursor
        if at is None or at.parent is None:
            return
        siblings = self.tree.top if at.parent is self.branches.root else at.parent.children
        place = siblings.index(at)
        neighbours = siblings[place + 1 : place + 2] or siblings[max(0, place - 1) : place] or [at.parent]
        self._cursor = neighbours[0].first

    # ---- folding ----------------------------------------------------------------------------

    def folded(self, branch: Branch) -> int:
        """How many branches are folded away into one."""
        if branch.first not in self._folded or not branch.children:
            return 0
        return self.branches.size(branch)[0] - 1

    def toggle(self, row: int) -> None:
        """Fold a row's branch, or unfold it."""
        # the click may be older than the rows, and a filter may leave none
        branch = self.rows[row] if 0 <= row < len(self.rows) else None
        if branch is not None and branch.children:
            self._folded ^= {branch.first}
            self._lay_rows()
        elif 0 <= row == self.fallen_row:
            self.show_fallen = not self.show_fallen

    def fold(self) -> None:
        """Fold the cursor's branch; from one that has nothing to fold go to the branch above."""
        branch = self.cursor
        if branch is None:
            self.show_fallen = self.show_fallen and not self._at_fallen
        elif branch.children and branch.first not in self._folded:
            self.put(self.row)
            self.toggle(self.row)
        elif branch.parent is not None and branch.parent is not self.branches.root:
            self._cursor = branch.parent.first

    def unfold(self) -> None:
        """Unfold the cursor's branch; from one that is unfolded go to the first branch below."""
        branch = self.cursor
        if branch is None:
            self.show_fallen = self.show_fallen or self._at_fallen
        elif not branch.children:
            return
        elif branch.first in self._folded:
            self.put(self.row)
            self.toggle(self.row)
        else:
            self._cursor = branch.children[0].first

    def _unfold_above(self, branch: Branch | None) -> None:
        if branch is None or branch.parent is None or not self._folded:
            return
        opened = {upper.first for upper in self.branches.above(branch.parent)} & self._folded
        if opened:
            self._folded -= opened
            self._seen = ()

    # ---- lines ------------------------------------------------------------------------------

    def guides(self, branch: Branch, most: int) -> str:
        """The lines that lead to a branch from the one it hangs from.

        Args:
            branch: One with a row.
            most: Cells available; where the tree is deeper, `⋯` replaces the outer levels.
        """
        parts: list[str] = []
        at = branch
        while at.parent is not None and at.parent is not self.branches.root:
            if len(parts) * 2 + 2 > most:
                return "⋯" + "".join(reversed(parts))[1:]
            last = at.parent.children[-1] is at
            parts.append(("└─" if last else "├─") if not parts else ("  " if last else "│ "))
            at = at.parent
        return "".join(reversed(parts))
