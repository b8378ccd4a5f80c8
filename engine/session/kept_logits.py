"""Rows of logits kept for the nodes of the tree, within a bound: going back and what-if then need no forward."""

from __future__ import annotations

from collections import OrderedDict

from engine.sampling.ranking import Row


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
