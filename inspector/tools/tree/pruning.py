"""Which branches of a tree have rows: all but beams that fell out, or those that fit a filter with what is above. Pure.

Where what parted from a branch is left out, the branch and the one that goes on from it are one row, as they would be
in a tree without what is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.frozen import frozen
from inspector.state.beams import BeamHistory
from inspector.state.branches import PROMPT, Branch, Branches, Sums
from inspector.state.timeline import Timeline


@frozen
class TreeFilter:
    """Which branches are wanted."""

    text: str = ""
    """A part of what is in them or written on them; a capital letter makes case matter."""
    bookmarked: bool = False

    def __bool__(self) -> bool:
        return bool(self.text) or self.bookmarked

    def words(self) -> str:
        """It as a phrase; the text isn't printable yet."""
        parts = ["bookmarked"] * self.bookmarked + [f"with ‹{self.text}›"] * bool(self.text)
        return " ".join(parts)


@dataclass(slots=True)
class PrunedTree:
    """What is left of a tree."""

    top: list[Branch]
    """The first branches; what hangs from them are rows too."""
    fallen: int
    """Beams that fell out and are left out, or would be if they weren't shown."""
    fit: int
    """Branches that fit the filter."""


def pruned(timeline: Timeline, wanted: TreeFilter, show_fallen: bool) -> PrunedTree:
    """What is left of the tree.

    Args:
        timeline: Whose tree it is.
        wanted: The filter.
        show_fallen: Whether beams that fell out are shown; where a filter is in force it decides alone.
    """
    branches = timeline.tree.branches
    path = branches.of(timeline.tip)
    kept = {branch.first for branch in branches.above(path)} if path is not None else set()
    kept |= _with_marks(timeline)
    out, fallen = _fallen(timeline, kept)
    if wanted:
        hits = {branch.first for branch in branches if _fits(timeline, branch, wanted)}
        left = {
            above.first for branch in branches if branch.first in hits for above in branches.above(branch)
        }
        return PrunedTree(
            _rebuilt(timeline, lambda branch: branch.first not in left, hits), fallen, len(hits)
        )
    if show_fallen or not out:
        return PrunedTree(branches.root.children, fallen, branches.count)
    return PrunedTree(_rebuilt(timeline, lambda branch: branch.first in out, set()), fallen, branches.count)


def _with_marks(timeline: Timeline) -> set[int]:
    """First nodes of the branches with marks in them, and of all above those."""
    at = (timeline.tree.branches.of(node) for node in timeline.tree.marks.of)
    return {
        above.first for branch in at if branch is not None for above in timeline.tree.branches.above(branch)
    }


def _fallen(timeline: Timeline, kept: set[int]) -> tuple[set[int], int]:
    """First nodes of the uppermost branches of which all beams fell out, and how many beams those are.

    What was stepped since is no mere beam any more, and neither is what is marked or on the path.
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
    """The branches that are not out, joined where nothing parts them any more."""
    branches, marks = timeline.tree.branches, timeline.tree.marks.of
    top: list[Branch] = []
    waiting = [(branch, branches.root, top) for branch in branches.root.children[::-1] if not out(branch)]
    while waiting:
        first, parent, siblings = waiting.pop()
        row = Branch(list(first.nodes), Sums(), parent)
        row.sums.add(first.sums)
        at = first
        while (below := [child for child in at.children if not out(child)]) and _joins(branches, at, below):
            at = below[0]
            if at.first in marks or at.first in hits:
                break
            row.nodes += at.nodes
            row.sums.add(at.sums)
        else:
            siblings.append(row)
            waiting += [(child, row, row.children) for child in below[::-1]]
            continue
        siblings.append(row)
        waiting.append((at, row, row.children))
    return top


def _joins(branches: Branches, upper: Branch, below: list[Branch]) -> bool:
    """Whether only what is left out parts a branch from the one that goes on from it: no prompt's or beam's end."""
    if len(below) != 1 or len(upper.children) < 2:
        return False
    ends = {branches[upper.last].made, branches[below[0].first].made}
    return len(ends) == 1 or not ends & {PROMPT, "beam"}
