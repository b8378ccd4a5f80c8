"""What was looked at inside the model, by the token whose forward it was: for exports."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, fields
from typing import TypeVar

from engine import protocol
from engine.protocol import (
    AttentionRead,
    AttributionRead,
    HeadsSwept,
    Intervened,
    Intervention,
    LensRead,
    Scope,
)
from inspector.state.inside.sweeps import joined

KEPT = 64
"""Of each kind at most; the first ones go first."""
LARGEST = 2 * 2**20
"""Bytes of packed numbers of one at most: what a trace wouldn't keep either."""

Tried = tuple[int, tuple[Intervention, ...], Scope]
"""What was tried: after which node, what was changed, and in how much of the path."""


@dataclass(slots=True)
class Looks:
    """The last views of a session that passed their checks."""

    attention: OrderedDict[int, AttentionRead] = field(default_factory=OrderedDict)
    """By node."""
    lens: OrderedDict[int, LensRead] = field(default_factory=OrderedDict)
    contributions: OrderedDict[int, AttributionRead] = field(default_factory=OrderedDict)
    sweeps: OrderedDict[int, HeadsSwept] = field(default_factory=OrderedDict)
    tried: OrderedDict[Tried, Intervened] = field(default_factory=OrderedDict)

    def apply(self, record: protocol.Record) -> None:
        """Take in one record."""
        match record:
            case AttentionRead() if record.facts.failed is None and record.nbytes <= LARGEST:
                _keep(self.attention, record.node, record)
            case LensRead() if record.facts.failed is None:
                _keep(self.lens, record.node, record)
            case AttributionRead(tokens=(_, *_)) if record.facts.failed is None:
                _keep(self.contributions, record.node, record)
            case HeadsSwept() if record.facts.failed is None:
                before = self.sweeps.get(record.node)
                _keep(self.sweeps, record.node, record if before is None else joined(before, record))
            case Intervened() if record.facts.failed is None:
                _keep(self.tried, (record.node, record.interventions, record.scope), record)
            case _:
                pass

    def copy(self) -> Looks:
        """The same views: what is looked at later changes nothing in it."""
        return Looks(*(OrderedDict(getattr(self, each.name)) for each in fields(self)))


Key = TypeVar("Key")
Look = TypeVar("Look")


def _keep(looks: OrderedDict[Key, Look], key: Key, look: Look) -> None:
    looks[key] = look
    looks.move_to_end(key)
    while len(looks) > KEPT:
        looks.popitem(last=False)
