"""The interventions that branches of the tree were computed under.

A node names its set by number, 0 for the model itself, and the same token after the same path under another set is
another node. So what is kept of a node, its KV, its logits, what undoes it, is never that of another set. A branch
keeps the set of its first node: a path has tokens of the model's own, then those of at most one set.
"""

from __future__ import annotations

from engine.errors import StepError
from engine.model.forward import Changed, Compute
from engine.protocol import Intervention
from engine.tree import TokenTree


class HeldSets:
    """The sets of one tree.

    Args:
        model: Computes the nodes of no set.
        tree: The tree.
    """

    def __init__(self, model: Compute, tree: TokenTree) -> None:
        self._tree = tree
        self._sets: list[tuple[tuple[Intervention, ...], Compute]] = [((), model)]

    def add(self, interventions: tuple[Intervention, ...], compute: Compute) -> int:
        """The number of a set; a set that is there keeps its number.

        Args:
            interventions: The set.
            compute: Called as the model is, it computes what the model does under them.
        """
        known = [each for each, _ in self._sets]
        if interventions in known:
            return known.index(interventions)
        self._sets.append((interventions, compute))
        return len(self._sets) - 1

    def at(self, node: int) -> tuple[Intervention, ...]:
        """The set that a node was computed under; empty for the model's own."""
        return self._sets[self._tree[node].held][0]

    def compute(self, held: int) -> Compute:
        """What computes the nodes of a set."""
        return self._sets[held][1]

    def first(self, node: int) -> int:
        """The first node under the set of a node that is under one."""
        while self._tree[self._tree[node].parent].held:
            node = self._tree[node].parent
        return node

    def begin(self, node: int) -> int:
        """How many tokens of a node's path are the model's own, before those under a set; 0 where all are its own."""
        return self._tree[self.first(node)].depth - 1 if self._tree[node].held else 0

    def changed(self, node: int) -> Changed | None:
        """From which token of a node's path on another function than the model computes it; None where none does."""
        held = self._tree[node].held
        return (self.begin(node), self.compute(held)) if held else None

    def refuse(self, node: int, what: str) -> None:
        """Refuse what is there for the model's own tokens alone.

        Args:
            node: Any node.
            what: Of the model's own tokens alone, with its verb, as in `measurements are`.

        Raises:
            StepError: It was computed under interventions.
        """
        if node in self._tree and self._tree[node].held:
            units = ", ".join(each.label for each in self.at(node))
            raise StepError(
                f"This token was computed under interventions ({units}): {what} for the model's own.",
                "Go to a branch of the model's own.",
            )
