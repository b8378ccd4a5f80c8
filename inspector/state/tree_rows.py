"""The rows of the tree, their order, and the position of the cursor.

Without a filter, all branches have rows except beams that fell out; with one, those that match it and their ancestors.
If all but one of a branch's children are left out, the branch and that child are one row, as in a tree without the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from engine.protocol import Marked
from inspector.state.beams import BeamHistory
from inspector.state.branches import PROMPT, Branch, Branches, Sums
from inspector.state.timeline import Timeline

# ---- the branches that have rows ------------------------------------------------------------------


class TreeFilter(Struct, frozen=True):
    """The branches to show."""

    text: str = ""
    """A substring of their text or of their names, notes and captions; case matters if it has a capital letter."""
    bookmarked: bool = False

    def __bool__(self) -> bool:
        return bool(self.text) or self.bookmarked

    def words(self) -> str:
        """A phrase for the filter; its text is not yet printable."""
        return " ".join(["bookmarked"] * self.bookmarked + [f"with “{self.text}”"] * bool(self.text))


class PrunedTree(Struct):
    """The branches of a tree that have rows, and counts of the others."""

    top: list[Branch]
    """The first branches; their descendants have rows too."""
    fallen: int
    """Number of beams that fell out, shown or not."""
    fit: int
    """Number of branches that match the filter; all if there is none."""
    ends: int
    """Number of branches whose end the session was at."""
    beams: int
    """Number of beams that the session was never at, including those that fell out."""


def pruned(timeline: Timeline, wanted: TreeFilter, show_fallen: bool) -> PrunedTree:
    """Leave out the branches that don't match the filter, or, without a filter, the beams that fell out.

    Args:
        timeline: The timeline of the tree.
        wanted: The filter.
        show_fallen: Whether beams that fell out are shown if there is no filter.
    """
    branches, marks = timeline.tree.branches, timeline.tree.marks.of
    out, fallen = _fallen(timeline, _upward(branches, (timeline.tip, *marks)))
    top, fit = branches.root.children, branches.count
    if wanted:
        hits = {branch.first for branch in branches if _fits(timeline, branch, wanted)}
        left = _upward(branches, hits)
        top, fit = _rebuilt(timeline, lambda branch: branch.first not in left, hits), len(hits)
    elif out and not show_fallen:
        top = _rebuilt(timeline, lambda branch: branch.first in out, set())
    return PrunedTree(top, fallen, fit, *_ends(timeline))


def _ends(timeline: Timeline) -> tuple[int, int]:
    """Number of branches whose end the session was at, and of beams that it was never at."""
    branches, visited = timeline.tree.branches, timeline.tree.nodes
    ends = beams = 0
    for branch in branches:
        if branch.first not in visited:
            beams += not branch.children
        elif not any(child.first in visited for child in branch.children):
            ends += 1
    return ends, beams


def _upward(branches: Branches, nodes: Iterable[int]) -> set[int]:
    """First nodes of the branches that contain some nodes, and of their ancestors."""
    held = filter(None, map(branches.of, nodes))
    return {above.first for branch in held for above in branches.above(branch)}


def _fallen(timeline: Timeline, kept: set[int]) -> tuple[set[int], int]:
    """First nodes of the uppermost branches whose beams all fell out, and the number of those beams.

    Branches that were stepped since, are marked, or are on the path don't count as beams.
    """
    out: set[int] = set()
    count = 0
    waiting = [(branch, False) for branch in timeline.tree.branches.root.children]
    while waiting:
        branch, inside = waiting.pop()
        beam = timeline.of(BeamHistory).nodes.get(branch.last)
        fell = beam is not None and beam.fell is not None
        if not inside and fell and branch.first not in kept and branch.first not in timeline.tree.nodes:
            out.add(branch.first)
            inside = True
        count += inside and not branch.children
        waiting += [(child, inside) for child in branch.children]
    return out, count


def _fits(timeline: Timeline, branch: Branch, wanted: TreeFilter) -> bool:
    marks = timeline.tree.marks.of
    own = [marks[node] for node in (branch.nodes if marks else ()) if node in marks]
    if wanted.bookmarked and not any(mark.bookmarked for mark in own):
        return False
    written = "\n".join(part for mark in own for part in (mark.name, mark.note, mark.caption))
    text = timeline.tree.branches.text(branch, len(branch.nodes) << 20) + "\n" + written
    cased = wanted.text != wanted.text.lower()
    return wanted.text in (text if cased else text.lower())


def _rebuilt(timeline: Timeline, out: Callable[[Branch], bool], hits: set[int]) -> list[Branch]:
    """The branches for which `out` is false; branches that nothing separates any more are joined."""
    branches, marks = timeline.tree.branches, timeline.tree.marks.of

    def kept(branch: Branch) -> list[Branch]:
        return [child for child in branch.children if not out(child)]

    top: list[Branch] = []
    waiting = [(branch, branches.root, top) for branch in kept(branches.root)[::-1]]
    while waiting:
        at, parent, siblings = waiting.pop()
        row, below = Branch(list(at.nodes), Sums(), parent), kept(at)
        row.sums.add(at.sums)
        siblings.append(row)
        while _joins(branches, at, below) and below[0].first not in marks and below[0].first not in hits:
            at = below[0]
            row.nodes += at.nodes
            row.sums.add(at.sums)
            below = kept(at)
        waiting += [(child, row, row.children) for child in below[::-1]]
    return top


def _joins(branches: Branches, upper: Branch, below: list[Branch]) -> bool:
    """True if only branches that are left out separate a branch from its remaining child, not the end of a prompt or
    the beginning of a beam."""
    if len(below) != 1 or len(upper.children) < 2:
        return False
    ends = {branches[upper.last].made, branches[below[0].first].made}
    return len(ends) == 1 or not ends & {PROMPT, "beam"}


# ---- the rows -----------------------------------------------------------------------------------


class TreeView:
    """The rows of one tree as the user folded it.

    Rows are rebuilt only if branches were added, removed or folded; a step that extends a branch costs nothing here,
    except while branches are left out, since a row may then be several branches.
    """

    def __init__(self) -> None:
        self.branches = Branches()
        self.rows: list[Branch] = []
        self.tree = PrunedTree([], 0, 0, 0, 0)
        self.filter = TreeFilter()
        self.show_fallen = False
        """True if each beam that fell out has its own row."""
        self.path: frozenset[int] = frozenset()
        """First nodes of the branches that the current path goes through."""
        self.tip: Branch | None = None
        """The branch that the path ends in."""
        self.inner: dict[int, list[Marked]] = {}
        """Marks on tokens after the first of a row's branch, by the branch's first node."""
        self._marks: Mapping[int, Marked] = {}
        self._row: dict[int, int] = {}
        self._folded: set[int] = set()
        self._cursor: int | None = None
        """A node of the cursor's branch; None to follow the branch of the last token."""
        self._at_fallen = False
        """True if the cursor is on the row of the beams that fell out."""
        self._seen: tuple[object, ...] = ()
        """Everything that the rows were built from, with the timeline's generation first."""

    def look(self, timeline: Timeline) -> None:
        """Show the timeline's current state. A different path moves the cursor to its end and unfolds its branches."""
        if timeline.tree.branches is not self.branches:
            self.branches, self._cursor = timeline.tree.branches, None
            self._folded.clear()
            self.filter, self.show_fallen = TreeFilter(), False
        moved = not self.has_path(timeline)
        self.tip = self.branches.of(timeline.tip)
        if moved:
            self.follow()
        seen = (
            timeline.generation, self.branches, self.branches.version, self.tip and self.tip.first,
            timeline.of(BeamHistory).version, timeline.tree.marks.version, self.filter, self.show_fallen,
        )  # fmt: skip
        if (*seen, self._copied) != self._seen:
            self.tree = pruned(timeline, self.filter, self.show_fallen)
            self._seen, self._marks = (*seen, self._copied), timeline.tree.marks.of
            above = self.branches.above(self.tip) if self.tip else ()
            self.path = frozenset(branch.first for branch in above)
            self._lay_rows()

    def has_path(self, timeline: Timeline) -> bool:
        """True if the path is the one shown last, apart from tokens that were appended."""
        return timeline.tree.branches is self.branches and self._seen[:1] == (timeline.generation,)

    @property
    def _copied(self) -> int:
        """Number of tokens if rows are copies that join branches; 0 if they are the tree's own branches."""
        return 0 if self.tree.top is self.branches.root.children else len(self.branches)

    def _lay_rows(self) -> None:
        self.rows = []
        waiting = self.tree.top[::-1]
        while waiting:
            self.rows.append(branch := waiting.pop())
            if branch.first not in self._folded:
                waiting += branch.children[::-1]
        self._row = {branch.first: row for row, branch in enumerate(self.rows)}
        self.inner = {}
        for node, mark in self._marks.items():
            if (row := self.holding(node)) is not None and row.first != node:
                self.inner.setdefault(row.first, []).append(mark)

    # ---- the cursor -------------------------------------------------------------------------

    @property
    def row(self) -> int:
        """The cursor's row, or the one that its branch is folded into; -1 if there is none."""
        if self._at_fallen and self.fallen_row >= 0:
            return self.fallen_row
        at = self.branches.of(self._cursor) if self._cursor is not None else None
        row = self._row_of(at or self.tip)
        return row if row is not None else 0 if self.count else -1

    def _row_of(self, at: Branch | None) -> int | None:
        """Index of the row that contains a branch, or that it is folded into."""
        above = (self._row.get(branch.first) for branch in self.branches.above(at)) if at else ()
        return next((row for row in above if row is not None), None)

    @property
    def fallen_row(self) -> int:
        """Index of the last row, which stands for the beams that fell out; -1 if there is none."""
        return len(self.rows) if self.tree.fallen and not self.filter else -1

    @property
    def count(self) -> int:
        """Number of rows, including the one for the beams that fell out."""
        return len(self.rows) + (self.fallen_row >= 0)

    def holding(self, node: int) -> Branch | None:
        """The row that contains a token; None if it is folded away or left out."""
        if (row := self._row_of(self.branches.of(node))) is None:
            return None
        branch, depth = self.rows[row], self.branches.depth
        return branch if depth(node) - depth(branch.first) < len(branch.nodes) else None

    @property
    def cursor(self) -> Branch | None:
        """The branch at the cursor; None on the row for the beams that fell out."""
        row = self.row
        return self.rows[row] if 0 <= row < len(self.rows) else None

    def put(self, row: int) -> None:
        """Put the cursor on a row, clamped to the first and the last one."""
        row = max(0, min(self.count - 1, row))
        self._at_fallen = row == self.fallen_row
        if row < len(self.rows):
            self._cursor = self.rows[row].first

    def move(self, by: int) -> None:
        self.put(self.row + by)

    def follow(self) -> None:
        """Put the cursor on the branch that the current path ends in, and keep it there; unfold its ancestors."""
        self._cursor, self._at_fallen = None, False
        above = self.branches.above(self.tip.parent) if self.tip and self.tip.parent else ()
        if opened := {upper.first for upper in above} & self._folded:
            self._folded -= opened
            self._seen = ()

    def step_aside(self) -> None:
        """Move the cursor off its branch, which will be deleted: to a sibling, or else to the parent."""
        if (at := self.cursor) is None or at.parent is None:
            return
        siblings = self.tree.top if at.parent is self.branches.root else at.parent.children
        place = siblings.index(at)
        neighbours = siblings[place + 1 : place + 2] or siblings[max(0, place - 1) : place] or [at.parent]
        self._cursor = neighbours[0].first

    # ---- folding ----------------------------------------------------------------------------

    def folded(self, branch: Branch) -> int:
        """Number of branch ends folded into a branch; 0 if it isn't folded."""
        if branch.first not in self._folded or not branch.children:
            return 0
        return self.branches.size(branch)[0]

    def toggle(self, row: int) -> None:
        """Fold a row's branch, or unfold it."""
        # the rows may have changed since the click, and a filter may leave none
        branch = self.rows[row] if 0 <= row < len(self.rows) else None
        if branch is not None and branch.children:
            self._folded ^= {branch.first}
            self._lay_rows()
        elif 0 <= row == self.fallen_row:
            self.show_fallen = not self.show_fallen

    def fold(self, away: bool = True) -> None:
        """Fold the cursor's branch, or go to its parent if it has nothing to fold.

        Args:
            away: False to unfold it, or go to its first child.
        """
        if (branch := self.cursor) is None:
            self.show_fallen = not away if self._at_fallen else self.show_fallen
        elif branch.children and away != (branch.first in self._folded):
            self.put(self.row)
            self.toggle(self.row)
        elif not away:
            self._cursor = branch.children[0].first if branch.children else self._cursor
        elif branch.parent is not None and branch.parent is not self.branches.root:
            self._cursor = branch.parent.first

    # ---- lines ------------------------------------------------------------------------------

    def guides(self, branch: Branch, most: int) -> str:
        """The guide lines in front of a branch's row.

        Args:
            branch: A branch that has a row.
            most: Available cells; in a deeper tree `⋯` replaces the outer levels.
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
