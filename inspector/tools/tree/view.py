"""Which branches have a row, in which order, and where the cursor is. Pure: it draws nothing."""

from __future__ import annotations

from inspector.state.branches import Branch, Branches
from inspector.state.timeline import Timeline


class TreeView:
    """The rows of one tree as the user folded it.

    Rows are rebuilt only where branches came, went or were folded; a step that lengthens one costs nothing here.
    """

    def __init__(self) -> None:
        self.branches = Branches()
        self.rows: list[Branch] = []
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
        self._seen: tuple[object, ...] = ()
        self._trod: tuple[object, ...] = ()

    def look(self, timeline: Timeline) -> None:
        """Take in the timeline's present state. Another path takes the cursor with it, and unfolds its branches."""
        if timeline.branches is not self.branches:
            self.branches, self._cursor = timeline.branches, None
            self._folded.clear()
        moved = self._trod[:1] != (timeline.generation,)
        self.tip = self.branches.of(timeline.tip)
        if moved:
            self._cursor = None
            self._unfold_above(self.tip)
        self._lay()
        self._tread(timeline.generation)

    def _lay(self) -> None:
        seen = (self.branches, self.branches.version)
        if seen == self._seen:
            return
        self._seen = seen
        self.layout += 1
        self.rows = []
        waiting = self.branches.root.children[::-1]
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
        at = self.branches.of(self._cursor) if self._cursor is not None else None
        at = at or self.tip
        for branch in self.branches.above(at) if at else ():
            if (row := self._row.get(branch.first)) is not None:
                return row
        return 0 if self.rows else -1

    @property
    def cursor(self) -> Branch | None:
        """The branch that the cursor is at."""
        row = self.row
        return self.rows[row] if row >= 0 else None

    def put(self, row: int) -> None:
        """Put the cursor on a row, or on the first or the last one where that is beyond."""
        if self.rows:
            self._cursor = self.rows[max(0, min(len(self.rows) - 1, row))].first

    def follow(self) -> None:
        """Let the cursor be at the tip's branch again."""
        self._cursor = None
        self._unfold_above(self.tip)
        self._lay()

    def step_aside(self) -> None:
        """Move the cursor off its branch, which is about to be deleted: to a sibling, or else to what is above."""
        at = self.cursor
        if at is None or at.parent is None:
            return
        siblings = at.parent.children
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
        branch = self.rows[row] if row < len(self.rows) else None  # the click may be older than the rows
        if branch is not None and branch.children:
            self._folded ^= {branch.first}
            self._seen = ()
            self._lay()

    def fold(self) -> None:
        """Fold the cursor's branch; from one that has nothing to fold go to the branch above."""
        branch = self.cursor
        if branch is None:
            return
        if branch.children and branch.first not in self._folded:
            self.put(self.row)
            self.toggle(self.row)
        elif branch.parent is not None and branch.parent is not self.branches.root:
            self._cursor = branch.parent.first

    def unfold(self) -> None:
        """Unfold the cursor's branch; from one that is unfolded go to the first branch below."""
        branch = self.cursor
        if branch is None or not branch.children:
            return
        if branch.first in self._folded:
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
