"""Paths that go on over drafted tokens, which the session's tree doesn't have: they can be sampled after all the same.

Penalties, barred end of sequence, XTC, draw and grammar of a token depend on its path. Over these paths the session's
own sampler runs, on the draft's logits and on the model's, so that nothing of it is written twice.
"""

from __future__ import annotations

from itertools import count

from engine.logits.node_sampler import NodeSampler
from engine.session.session import Session
from engine.tree import Node, TokenPaths, TokenTree


class DraftNodes:
    """Nodes of a tree, and below 0 nodes that are no part of it.

    Args:
        tree: The tree.
    """

    def __init__(self, tree: TokenTree) -> None:
        self._tree = tree
        self._drafted: dict[int, Node] = {}
        self._numbers = count(-1, -1)
        """Never used again: the sampler keeps what it knows of a node by its number."""

    def __getitem__(self, node: int) -> Node:
        return self._tree[node] if node >= 0 else self._drafted[node]

    def add(self, parent: int, token: int) -> int:
        """The node of a token after another node: the tree's where it has it, for the re-roll count of its draw."""
        above = self[parent]
        if parent >= 0 and (known := self._tree.child(parent, token)) is not None:
            return known
        number = next(self._numbers)
        depth, decoded = above.depth + 1, above.decoded + 1
        self._drafted[number] = Node(
            token, parent, depth, "sampled", above.start, above.prompt_begin, decoded
        )
        return number

    def forget(self) -> None:
        """Drop the nodes below 0."""
        self._drafted.clear()


class DraftPaths:
    """The paths of one session's tree and of drafts that continue them.

    Args:
        session: Its tree and tokens.
    """

    def __init__(self, session: Session) -> None:
        self.tree = session.tree
        """The tree that they continue."""
        self._nodes = DraftNodes(session.tree)
        self._paths = TokenPaths(self._nodes)
        self.sampler = NodeSampler(session.tokens, self._paths, session.pending)
        """Samples after any of the nodes as the session does after its own."""

    def add(self, parent: int, token: int) -> int:
        """The node of a token after another node."""
        return self._nodes.add(parent, token)

    def tokens(self, node: int) -> list[int]:
        """The path's token ids from the first token to a node."""
        return self._paths.tokens(node)

    def forget(self) -> None:
        """Drop the drafts of the last round."""
        self._nodes.forget()
