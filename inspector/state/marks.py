"""What the user wrote onto the tree: names, bookmarks, notes, and deletions that can be undone. Pure.

Deleted nodes are hidden from the branches, and from the children and the latest child of every node; they stay in the
engine's tree. When the engine moves to one again it is shown again, and alone: what else
was deleted with it stays hidden. What is hidden is always a node with all below it, so that what is shown has its path.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import Protocol

from engine.protocol import Deleted, Marked, Undeleted
from inspector.state.branches import PROMPT, Branches, Token


class Tree(Protocol):
    """What marks are applied to."""

    branches: Branches
    children: dict[int, list[int]]
    latest: dict[int, int]
    """The child visited last, by node."""

    @property
    def tip(self) -> int:
        """Node of the last token of the path on show."""


@dataclass(slots=True, eq=False)
class Deletion:
    """What one deletion hid."""

    node: int
    tokens: dict[int, Token]
    """Those that are still hidden, by node; parents before their children."""
    children: set[int]
    """Those that were among their parent's children: a beam that was never stepped is not."""


class Marks:
    """The marks of one tree."""

    def __init__(self) -> None:
        self.of: dict[int, Marked] = {}
        """By node; nodes without marks are not in it."""
        self.version = 0
        """Grows whenever a mark changes, so that a view knows what to redraw."""
        self._deletions: list[Deletion] = []
        """Not undone, oldest first."""
        self._hidden: dict[int, Deletion] = {}
        self._displaced: dict[int, int] = {}
        """Hidden nodes that were the latest child, by their parent."""

    def at(self, node: int) -> Marked:
        """The marks of a node, all at their defaults where there are none."""
        return self.of.get(node, Marked(node))

    @property
    def hidden(self) -> int:
        """How many tokens are deleted."""
        return len(self._hidden)

    @property
    def last(self) -> Deletion | None:
        """The deletion to undo next; one whose tokens are all back is none."""
        return next((deletion for deletion in reversed(self._deletions) if deletion.tokens), None)

    def hides(self, node: int) -> bool:
        """Whether the deletion of a node hides anything still."""
        return any(deletion.node == node and deletion.tokens for deletion in self._deletions)

    # ---- records as they come ---------------------------------------------------------------

    def apply(self, record: Marked | Deleted | Undeleted, tree: Tree) -> None:
        """Take in a mark, a deletion or an undoing; what names no node that is shown changes nothing."""
        self.version += 1
        match record:
            case Marked() if record == Marked(record.node):
                self.of.pop(record.node, None)
            case Marked():
                self.of[record.node] = record
            case Deleted() if record.node in tree.branches and not self._is_shown(record.node, tree):
                self._delete(record.node, tree)
            case Undeleted():
                self._undelete(record.node, tree)
            case _:
                pass

    def _is_shown(self, node: int, tree: Tree) -> bool:
        """Whether it is a token of the prompt on show, which stays."""
        known = tree.branches.of(tree.tip) is not None
        return tree.branches[node].made == PROMPT and known and tree.branches.leads(node, tree.tip)

    def _delete(self, node: int, tree: Tree) -> None:
        tokens, _ = tree.branches.discard(node)
        deletion = Deletion(node, {token.node: token for token in tokens}, set())
        self._deletions.append(deletion)
        for token in tokens:
            self._hide(token, deletion, tree)

    def _undelete(self, node: int, tree: Tree) -> None:
        deletion = next((deletion for deletion in reversed(self._deletions) if deletion.node == node), None)
        if deletion is None:
            return
        self._deletions.remove(deletion)
        for token in list(deletion.tokens.values()):
            if (over := self._hidden.get(token.parent)) is None:
                self._show(token, tree)
            else:  # another deletion hides its path: it is that one's from here on
                self._hidden[token.node] = over
                over.tokens[token.node] = token
                over.children |= deletion.children & {token.node}

    # ---- the tree as it grows ---------------------------------------------------------------

    def grown(self, token: Token, tree: Tree) -> None:
        """Take in a token that the engine reported without moving to it; below a hidden one it is hidden too."""
        if token.node in tree.branches:
            return
        deletion = self._hidden.get(token.node) or self._hidden.get(token.parent)
        if deletion is None:
            tree.branches.add(token)
        else:
            self._hidden[token.node] = deletion
            deletion.tokens[token.node] = token

    def reveal(self, node: int, tree: Tree) -> None:
        """The engine moved to a node: show it again, and what its path lacks."""
        path: list[Token] = []
        while (deletion := self._hidden.get(node)) is not None:
            path.append(deletion.tokens[node])
            node = path[-1].parent
        for token in reversed(path):
            self._show(token, tree)

    def visited(self, parent: int) -> None:
        """Another child of a node was visited last."""
        self._displaced.pop(parent, None)

    # ---- one node ---------------------------------------------------------------------------

    def _hide(self, token: Token, deletion: Deletion, tree: Tree) -> None:
        node, parent = token.node, token.parent
        self._hidden[node] = deletion
        siblings = tree.children.get(parent, [])
        if node not in siblings:
            return
        siblings.remove(node)
        deletion.children.add(node)
        if tree.latest.get(parent) == node:
            self._displaced.setdefault(parent, node)
        self._settle(parent, tree)

    def _show(self, token: Token, tree: Tree) -> None:
        deletion = self._hidden.pop(token.node)
        deletion.tokens.pop(token.node, None)
        tree.branches.add(token)
        if token.node in deletion.children:
            insort(tree.children.setdefault(token.parent, []), token.node)
            self._settle(token.parent, tree)

    def _settle(self, parent: int, tree: Tree) -> None:
        """Let the latest child be one that is shown: the one visited last, or else the newest."""
        if parent not in self._displaced:
            return
        siblings, latest = tree.children.get(parent), self._displaced[parent]
        if siblings and latest in siblings:
            tree.latest[parent] = self._displaced.pop(parent)
        elif siblings:
            tree.latest[parent] = siblings[-1]
        else:
            tree.latest.pop(parent, None)
            tree.children.pop(parent, None)


def counted(tokens: int, branches: int) -> str:
    """`12 tokens in 3 branches`."""
    return f"{tokens:,} token{'s' * (tokens != 1)} in {branches:,} branch{'es' * (branches != 1)}"
