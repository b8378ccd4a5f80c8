"""Every token that the session knows, with its place in the tree: paths, branches, and what is written there."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.protocol import DraftRound, Intervention, PromptToken, Step
from engine.settings import Settings
from engine.tree import common_prefix
from inspector.state.branches import ROOT, Branches, token
from inspector.state.marks import Marks

Item = PromptToken | Step


@dataclass
class SessionTree:
    """The token tree of one session, as the records told it."""

    nodes: dict[int, Item] = field(default_factory=dict)
    parent: dict[int, int] = field(default_factory=dict)
    children: dict[int, list[int]] = field(default_factory=dict)
    """Nodes after a node, oldest first; deleted ones are not among them."""
    latest: dict[int, int] = field(default_factory=dict)
    """The child visited last, by node; where that is deleted, the newest that isn't."""
    left: dict[int, int] = field(default_factory=dict)
    """First nodes of what was left for another branch; the one left last has the largest number."""
    interventions: dict[int, tuple[Intervention, ...]] = field(default_factory=dict)
    """By the first node of a branch under interventions, these."""
    held: dict[int, int] = field(default_factory=dict)
    """By a node of such a branch, that first one."""
    settings: dict[int, Settings] = field(default_factory=dict)
    """With which each step was picked, by its node, where they are known."""
    drafts: dict[int, str] = field(default_factory=dict)
    """By a node that was taken in a round of speculative decoding, the name of the draft."""
    branches: Branches = field(default_factory=Branches)
    """The tree folded to its branches, without what is deleted."""
    marks: Marks = field(default_factory=Marks)
    tip: int = ROOT
    """The end of the path on show."""

    def leaf(self, node: int) -> int:
        """The end of the branch last followed from a node."""
        while (child := self.latest.get(node)) is not None:
            node = child
        return node

    def under(self, item: Item) -> tuple[Intervention, ...] | None:
        """The interventions that a token was computed under; none in it where they were not recorded, None for the
        model's own token."""
        if (first := self.held.get(item.node)) is not None:
            return self.interventions[first]
        return () if isinstance(item, Step) and item.origin == "intervened" else None

    def hold(self, first: int, interventions: tuple[Intervention, ...]) -> None:
        """Take in that a token, and all that will follow it, was computed under interventions."""
        self.interventions[first], self.held[first] = interventions, first

    def drafted(self, round: DraftRound) -> None:
        """Take in that the steps of a round were taken in it."""
        node = round.end
        for _ in range(round.taken):
            if node == round.node or node not in self.parent:
                break
            self.drafts[node], node = round.settings.name, self.parent[node]

    def path(self, node: int) -> list[Item]:
        """The tokens from the root to a node."""
        path: list[Item] = []
        while node != ROOT:
            path.append(self.nodes[node])
            node = self.parent[node]
        return path[::-1]

    def add(self, item: Item, parent: int) -> None:
        """Take in a token that the session is at, or what more is known of it; a deleted one is shown again."""
        node = item.node
        self.marks.reveal(parent, self)
        self.marks.reveal(node, self)
        if node not in self.nodes:
            self.parent[node] = parent
            insort(self.children.setdefault(parent, []), node)
            if parent in self.held:
                self.held[node] = self.held[parent]
        self.nodes[node] = item
        self.branches.add(token(item, parent))
        self.visit(node)

    def known(self, item: PromptToken) -> Item:
        """What is known of a prompt's token: of one that was stepped, or read in an earlier prompt, that."""
        before = self.nodes.get(item.node)
        return item if before is None or before.logprob is None else before

    def add_readings(self, item: PromptToken) -> bool:
        """Take in what the model thought of a prompt's token; one that was stepped has more, and keeps it.

        Returns:
            Whether it was taken in.
        """
        if isinstance(self.nodes[item.node], Step):
            return False
        self.nodes[item.node] = item
        self.branches.add(token(item, self.parent[item.node]))
        return True

    def visit(self, node: int) -> None:
        """Make a node its parent's latest child."""
        parent = self.parent[node]
        self.latest[parent] = node
        self.marks.visited(parent)

    def go(self, before: list[Item], path: list[Item]) -> None:
        """Another path is on show: remember what was left for it, and follow it from now on."""
        if (parted := shared(before, path)) < len(before):
            self.left[before[parted].node] = max(self.left.values(), default=0) + 1
        for item in path:
            self.visit(item.node)
        self.tip = path[-1].node if path else ROOT


def shared(one: Iterable[Item], other: Iterable[Item]) -> int:
    """How many tokens two paths of one tree begin with together."""
    return common_prefix((item.node for item in one), (item.node for item in other))
