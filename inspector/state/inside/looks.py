"""What was looked at inside the model, by the token whose forward it was: for exports."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeVar

from engine import records
from engine.records import AttentionRead, LensRead

KEPT = 64
"""Of each kind at most; the first ones go first."""
LARGEST = 2 * 2**20
"""Bytes of packed numbers of one at most: what a trace wouldn't keep either."""


@dataclass(slots=True)
class Looks:
    """The last views of a session that passed their checks."""

    attention: OrderedDict[int, AttentionRead] = field(default_factory=OrderedDict)
    """By node."""
    lens: OrderedDict[int, LensRead] = field(default_factory=OrderedDict)

    def apply(self, record: records.Record) -> None:
        """Take in one record."""
        match record:
            case AttentionRead() if record.facts.failed is None and record.nbytes <= LARGEST:
                _keep(self.attention, record.node, record)
            case LensRead() if record.facts.failed is None:
                _keep(self.lens, record.node, record)
            case _:
                pass


Look = TypeVar("Look")


def _keep(looks: OrderedDict[int, Look], node: int, look: Look) -> None:
    looks[node] = look
    looks.move_to_end(node)
    while len(looks) > KEPT:
        looks.popitem(last=False)
