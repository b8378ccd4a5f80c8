"""The token tree: every token that was ever taken, by id, with its parent. Pure Python.

A node is one token after one path, so that the same token after the same path is the same node. Text is never
part of it: a word spelled by two odd pieces stays two odd pieces, through every fork and move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from engine.records import Origin

ROOT = 0
"""The node before the first token."""


@dataclass(slots=True)
class Node:
    """One token in its place."""

    token: int
    parent: int
    depth: int
    """Tokens on the path up to and including this one; the root's is 0."""
    origin: Origin
    start: int
    """Tokens of the path that belong to the prompt: the completion begins after them."""
    children: dict[int, int] = field(default_factory=dict)
    """Child node by token id, in the order in which they were made."""
    latest: int | None = None
    """The child that was last stood on: where `forward` goes."""
    reroll: int = 0
    """How often the draw of the token after this one was made again."""
    drawn: int = 0
    """The parent's re-roll count when this token was last taken: the draw that it fell to."""
    has_step: bool = False
    """Whether its step was told: the nodes of a beam search are there before anybody stood on them."""


class TokenTree:
    """Nodes by number, the root first. Nodes are never removed, so a number stays good."""

    def __init__(self) -> None:
        self._nodes = [Node(token=-1, parent=-1, depth=0, origin="prompt", start=0)]

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node: int) -> bool:
        return 0 <= node < len(self._nodes)

    def __getitem__(self, node: int) -> Node:
        return self._nodes[node]

    def add(self, parent: int, token: int, origin: Origin) -> int:
        """Return the child of `parent` that stands for `token`, made if there is none.

        Args:
            parent: Node after which the token stands.
            token: Token id.
            origin: How it came here; a node that is there already keeps its first origin.

        Returns:
            Node number. It becomes its parent's latest child.
        """
        above = self._nodes[parent]
        node = above.children.get(token)
        if node is None:
            node = len(self._nodes)
            depth = above.depth + 1
            self._nodes.append(
                Node(token, parent, depth, origin, depth if origin == "prompt" else above.start)
            )
            above.children[token] = node
        above.latest = node
        self._nodes[node].drawn = above.reroll
        return node

    def skip(self) -> None:
        """Let the next number stand for no token: one that was given in a session which is built anew, and not told."""
        self._nodes.append(Node(token=-1, parent=-1, depth=0, origin="prompt", start=0))

    def extend(self, parent: int, tokens: Iterable[int], origin: Origin) -> int:
        """Add a run of tokens, each the child of the one before; returns the last node."""
        for token in tokens:
            parent = self.add(parent, token, origin)
        return parent

    def up(self, node: int) -> Iterator[int]:
        """The nodes from `node` to the first token, without the root."""
        while node != ROOT:
            yield node
            node = self._nodes[node].parent

    def nodes(self, node: int) -> list[int]:
        """The path's nodes from the first token to `node`."""
        return list(self.up(node))[::-1]

    def tokens(self, node: int) -> list[int]:
        """The path's token ids from the first token to `node`."""
        return [self._nodes[each].token for each in self.up(node)][::-1]

    def tail(self, node: int, count: int) -> list[int]:
        """The last `count` token ids of the path, fewer where it is shorter; costs `count`, not the path."""
        found: list[int] = []
        for each in self.up(node):
            if len(found) == count:
                break
            found.append(self._nodes[each].token)
        return found[::-1]

    def common(self, one: int, other: int) -> int:
        """The last node that two paths share."""
        while one != other:
            if self._nodes[one].depth >= self._nodes[other].depth:
                one = self._nodes[one].parent
            else:
                other = self._nodes[other].parent
        return one

    def without_step(self, node: int) -> list[int]:
        """The path's last nodes whose steps were not told, in its order; none of them is a prompt's."""
        found: list[int] = []
        for each in self.up(node):
            if self._nodes[each].has_step or self._nodes[each].origin == "prompt":
                break
            found.append(each)
        return found[::-1]

    def visit(self, node: int) -> None:
        """Note that the path to a node is the one stood on, for `forward`."""
        for each in self.up(node):
            self._nodes[self._nodes[each].parent].latest = each
