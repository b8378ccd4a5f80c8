"""Two models in lockstep as the records told it, live or recorded: what both made of the tokens of the tree. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.protocol import (
    LockstepClosed,
    LockstepOpened,
    LockstepRead,
    LockstepSpan,
    ModelFacts,
    PromptOpened,
    Record,
    WaysParted,
)
from inspector.state.capability import MOST, CapabilityState, within
from inspector.state.session_tree import Item


@dataclass(slots=True)
class LockstepSoFar(CapabilityState):
    """The second model, and what was read along the session's paths."""

    TAKES = LockstepOpened, ModelFacts, LockstepClosed, PromptOpened, LockstepRead, WaysParted

    opened: LockstepOpened | None = None
    """None without a second model."""
    spans: dict[int, LockstepSpan] = field(default_factory=dict)
    """By the node of their last token."""
    ahead: dict[int, LockstepSpan] = field(default_factory=dict)
    """Both distributions after a node."""
    ways: dict[int, WaysParted] = field(default_factory=dict)
    """By the node from which both went on."""
    _told: list[LockstepSpan] = field(default_factory=list)
    """Of the path that was read last, in order."""

    def apply(self, record: Record) -> None:
        """Take in one record; those of other matters change nothing."""
        match record:
            case LockstepOpened():
                self.forget()
                self.opened = record
            case ModelFacts() | LockstepClosed():
                self.forget()
                self.opened = None
            case PromptOpened(new_tree=True):
                self.forget()
            case LockstepRead():
                self._read(record)
            case WaysParted():
                self.ways[record.node] = record
            case _:
                pass

    @classmethod
    def sound(cls, record: Record) -> bool:
        """Tell whether a reading can be drawn and summed."""
        if not isinstance(record, LockstepRead):
            return True
        spans = record.spans if record.ahead is None else (*record.spans, record.ahead)
        return all(
            within(span.kl_nats, 0, MOST, math.inf)
            and within(span.logprob, -MOST, 0, -math.inf)
            and within(span.other_logprob, -MOST, 0, -math.inf)
            and within(span.entropy_bits, 0, MOST)
            and within(span.other_entropy_bits, 0, MOST)
            for span in spans
        )

    def forget(self) -> None:
        """Forget what was read: the tree or the model is another one."""
        self.spans, self.ahead, self.ways, self._told = {}, {}, {}, []

    def _read(self, record: LockstepRead) -> None:
        if self.opened is not None and self.opened.aligned == "bytes":  # a border may be none any more
            for span in self._told:
                if span.position >= record.since:
                    self.spans.pop(span.node, None)
        self._told = [span for span in self._told if span.position < record.since] + list(record.spans)
        self.spans |= {span.node: span for span in record.spans}
        if record.ahead is not None:
            self.ahead[record.node] = record.ahead

    def along(self, items: Sequence[Item]) -> list[LockstepSpan | None]:
        """The span that each token of a path belongs to; None where it was not read."""
        found: list[LockstepSpan | None] = [None] * len(items)
        for slot, item in enumerate(items):
            if (span := self.spans.get(item.node)) is not None:
                count = max(1, min(span.tokens, slot + 1))
                found[slot + 1 - count : slot + 1] = [span] * count
        return found
