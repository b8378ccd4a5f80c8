"""Checks of the nodes that the entries of a recording refer to, such as a step's parent or a move's target."""

from __future__ import annotations

from collections.abc import Iterable

from engine import protocol


class Misfit(Exception):
    """An entry contradicts earlier ones. The message is the rest of a sentence about the entry."""


ROOT = 0


class KnownNodes:
    """The nodes of the last tree in the entries so far."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {ROOT: ROOT}
        self._depths: dict[int, int] = {ROOT: 0}
        """Cached depth of each node before a prompt and of its ancestors, so that reading a file takes linear time."""
        self._prompt: dict[int, int] = {}
        """Position of each token of the last prompt, by its node."""
        self._search: KnownSearch | None = None

    def check(self, value: object) -> None:
        """Check one record, and add its nodes.

        Raises:
            Misfit: It refers to a node that no earlier entry has.
        """
        match value:
            case protocol.Step():
                if value.parent not in self._parents:
                    raise Misfit(f"stands on node {value.parent}, which no entry before it has")
                _add(self._parents, value.node, value.parent)
            case protocol.Moved() if value.node not in self._parents:
                raise Misfit(f"moves to node {value.node}, which no entry before it has")
            case protocol.PromptOpened():
                self._open(value)
            case protocol.Prefilled():
                for token in value.tokens:
                    if self._prompt.get(token.node) != token.position:
                        raise Misfit(f"has a token that is not in the prompt, at node {token.node}")
            case protocol.PromptReadings():  # possibly of an earlier prompt of the tree
                self._known(value.tokens)
            case protocol.BeamOpened():
                if value.node not in self._parents:
                    raise Misfit(f"begins beams at node {value.node}, which no entry before it has")
                self._search = KnownSearch(value.node, self._parents)
            case protocol.BeamStep() | protocol.BeamEnded():
                if self._search is None:
                    raise Misfit("is of a beam search that no entry before it begins")
                self._search.check(value)

    def _open(self, opened: protocol.PromptOpened) -> None:
        if opened.new_tree:
            self._parents, self._depths = {ROOT: ROOT}, {ROOT: 0}
        if opened.parent not in self._parents:
            raise Misfit(f"has a prompt after node {opened.parent}, which no entry before it has")
        self._search, self._prompt = None, {token.node: token.position for token in opened.tokens}
        before, position = opened.parent, self._depth(opened.parent)
        for token in opened.tokens:
            if token.position != position:
                raise Misfit(f"has the prompt's tokens out of order, at node {token.node}")
            _add(self._parents, token.node, before)
            before, position = token.node, position + 1

    def _depth(self, node: int) -> int:
        path = []
        while node not in self._depths:
            path.append(node)
            node = self._parents[node]
        for below in reversed(path):
            self._depths[below] = self._depths[node] + 1
            node = below
        return self._depths[node]

    def _known(self, tokens: tuple[protocol.PromptToken, ...]) -> None:
        for token in tokens:
            if token.node not in self._parents:
                raise Misfit(f"has a prompt's token that no entry before it has, at node {token.node}")


class KnownSearch:
    """The nodes of one beam search.

    Args:
        start: Node at which the search begins.
        parents: Parent of each node of the tree; the search's nodes are added.
    """

    def __init__(self, start: int, parents: dict[int, int]) -> None:
        self._start, self._parents = start, parents
        self._children: dict[int, dict[int, int]] = {start: {}}
        """Children of each node of the search, by token id."""
        self._step, self._over = 0, False

    def check(self, value: protocol.BeamStep | protocol.BeamEnded) -> None:
        """Check one record, and add its nodes.

        Raises:
            Misfit: It doesn't follow the previous record, or refers to a node that the search didn't reach.
        """
        if self._over or (isinstance(value, protocol.BeamStep) and value.step != self._step + 1):
            raise Misfit("doesn't fit the entries before it of its beam search")
        if isinstance(value, protocol.BeamStep):
            self._step = value.step
            for beam in (*value.live, *([value.greedy] if value.greedy else ())):
                self._grow(beam)
            self._finish(value.finished)
            self._known(beam.node for beam in value.pruned)
        else:
            self._over = True
            self._finish(value.ranking)
            self._known([*(beam.node for beam in value.left), value.greedy.node])

    def _grow(self, beam: protocol.Beam) -> None:
        self._known([beam.parent], start=True)
        self._add(beam.node, beam.parent, beam.id)

    def _finish(self, hypotheses: Iterable[protocol.Hypothesis]) -> None:
        for hypothesis in hypotheses:
            node: int | None = self._start
            for id in hypothesis.ids[:-1]:
                node = self._children[node].get(id) if node is not None else None
            if node is None or not hypothesis.ids:
                raise Misfit(f"has a hypothesis that no beam before it leads to, at node {hypothesis.node}")
            self._add(hypothesis.node, node, hypothesis.ids[-1])

    def _add(self, node: int, parent: int, id: int) -> None:
        _add(self._parents, node, parent)
        self._children.setdefault(node, {})
        if self._children[parent].setdefault(id, node) != node:
            raise Misfit(f"has two nodes of one token, {self._children[parent][id]} and {node}")

    def _known(self, nodes: Iterable[int], start: bool = False) -> None:
        for node in nodes:
            if node not in self._children or (node == self._start and not start):
                raise Misfit(f"names node {node}, which no beam before it reached")


def _add(parents: dict[int, int], node: int, parent: int) -> None:
    """Add a node to a tree.

    Raises:
        Misfit: The node already has another parent, or its number is not larger than its parent's.
    """
    if node <= parent or parents.setdefault(node, parent) != parent:
        raise Misfit(f"has node {node} after node {parent}, where it can't be")
