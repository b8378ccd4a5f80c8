"""What a session keeps beside its tree: the sets of interventions of its nodes, and rows of logits."""

from __future__ import annotations

from collections import OrderedDict

from engine.errors import StepError
from engine.model.forward import Changed, Compute
from engine.protocol import Intervention
from engine.sampling.ranking import Row
from engine.tree import TokenTree

# ---- interventions -----------------------------------------------------------------------------
# A node names its set by number, 0 for the model itself, and the same token after the same path under another set is
# another node. So what is kept of a node, its KV, its logits, what undoes it, is never that of another set. A branch
# keeps the set of its first node: a path has tokens of the model's own, then those of at most one set.


class HeldSets:
    """The sets of one tree.

    Args:
        model: Computes the nodes of no set.
        tree: The tree.
    """

    def __init__(self, model: Compute, tree: TokenTree) -> None:
        self._tree = tree
        self._sets: list[tuple[Intervention, ...]] = [()]
        self.computes: list[Compute] = [model]
        """The forward that computes the nodes of each set, by the set's number."""

    def add(self, interventions: tuple[Intervention, ...], compute: Compute) -> int:
        """The number of a set; a set that is there keeps its number.

        Args:
            interventions: The set.
            compute: Called as the model is, it computes what the model does under them.
        """
        if interventions in self._sets:
            return self._sets.index(interventions)
        self._sets.append(interventions)
        self.computes.append(compute)
        return len(self._sets) - 1

    def at(self, node: int) -> tuple[Intervention, ...]:
        """The set that a node was computed under; empty for the model's own."""
        return self._sets[self._tree[node].held]

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
        return (self.begin(node), self.computes[held]) if held else None

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


# ---- rows of logits, kept within a bound -------------------------------------------------------


class KeptLogits:
    """Rows by node; at the bound it drops the least recently used first.

    Args:
        budget: Bytes that the rows together may take.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._rows: OrderedDict[int, Row] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes whose rows are kept, in the order of the tree."""
        return tuple(sorted(self._rows))

    def put(self, node: int, row: Row) -> None:
        """Keep a node's row, dropping old ones to stay within the budget; a row larger than that is not kept."""
        if (old := self._rows.pop(node, None)) is not None:
            self.nbytes -= old.nbytes
        if row.nbytes > self.budget:
            return
        self._rows[node] = row
        self.nbytes += row.nbytes
        while self.nbytes > self.budget:
            self.nbytes -= self._rows.popitem(last=False)[1].nbytes

    def get(self, node: int) -> Row | None:
        """The row of a node, None where it was never kept or was dropped."""
        row = self._rows.get(node)
        if row is not None:
            self._rows.move_to_end(node)
        return row
