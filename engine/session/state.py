"""State of a session in addition to its tree: the intervention sets of its nodes, and cached rows of logits."""

from __future__ import annotations

from collections import OrderedDict

from engine.errors import StepError
from engine.model.forward import Changed, Compute
from engine.protocol import Intervention
from engine.sampling.ranking import Row
from engine.tree import TokenTree

# ---- interventions -----------------------------------------------------------------------------
# A node refers to its set by number; 0 is the unmodified model. The same token after the same path under another set is
# another node. So KV, logits and undo records stored for a node never come from another set. A branch keeps the set of
# its first node: a path has tokens without interventions, then tokens under at most one set.


class HeldSets:
    """The intervention sets of one tree.

    Args:
        model: Computes the nodes without interventions.
        tree: The tree.
    """

    def __init__(self, model: Compute, tree: TokenTree) -> None:
        self._tree = tree
        self._sets: list[tuple[Intervention, ...]] = [()]
        self.computes: list[Compute] = [model]
        """The function that computes the nodes of each set, by the set's number."""

    def add(self, interventions: tuple[Intervention, ...], compute: Compute) -> int:
        """Add a set, unless it exists, and return its number.

        Args:
            interventions: The set.
            compute: Called like the model; computes the model's logits under the interventions.
        """
        if interventions in self._sets:
            return self._sets.index(interventions)
        self._sets.append(interventions)
        self.computes.append(compute)
        return len(self._sets) - 1

    def at(self, node: int) -> tuple[Intervention, ...]:
        """The set that a node was computed under; empty for the unmodified model."""
        return self._sets[self._tree[node].held]

    def first(self, node: int) -> int:
        """The first node on the path with the same set as a node, which must be computed under one."""
        while self._tree[self._tree[node].parent].held:
            node = self._tree[node].parent
        return node

    def begin(self, node: int) -> int:
        """Number of tokens of a node's path before its intervention set begins; 0 if it is computed without one."""
        return self._tree[self.first(node)].depth - 1 if self._tree[node].held else 0

    def changed(self, node: int) -> Changed | None:
        """Position where a node's path begins to be computed under interventions, and that function; or None."""
        held = self._tree[node].held
        return (self.begin(node), self.computes[held]) if held else None

    def refuse(self, node: int, what: str) -> None:
        """Raise an error if a node was computed under interventions.

        Args:
            node: Any node.
            what: Subject and verb of the message, such as `measurements are`.

        Raises:
            StepError: The node was computed under interventions.
        """
        if node in self._tree and self._tree[node].held:
            units = ", ".join(each.label for each in self.at(node))
            raise StepError(
                f"This token was computed under interventions ({units}): {what} for the model's own.",
                "Go to a branch of the model's own.",
            )


# ---- rows of logits, within a budget -----------------------------------------------------------


class KeptLogits:
    """Cached rows of logits by node; above the budget the least recently used are dropped first.

    Args:
        budget: Maximum bytes of all rows together.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._rows: OrderedDict[int, Row] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes with cached rows, in the order of their numbers."""
        return tuple(sorted(self._rows))

    def put(self, node: int, row: Row) -> None:
        """Store a node's row, unless it is larger than the budget; old rows are dropped to make room."""
        if (old := self._rows.pop(node, None)) is not None:
            self.nbytes -= old.nbytes
        if row.nbytes > self.budget:
            return
        self._rows[node] = row
        self.nbytes += row.nbytes
        while self.nbytes > self.budget:
            self.nbytes -= self._rows.popitem(last=False)[1].nbytes

    def get(self, node: int) -> Row | None:
        """The row of a node; None if it was never stored or was dropped."""
        row = self._rows.get(node)
        if row is not None:
            self._rows.move_to_end(node)
        return row
