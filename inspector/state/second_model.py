"""The second model, live or recorded, its readings along a text, and the figures that compare both models. Pure.

The figures are named and computed as in llama.cpp's perplexity tool with --kl-divergence. A is the session's model
("base" there), B the second one. KL is in bits, as on every screen. Standard errors are those of a mean over tokens,
as if these were independent; for figures made from two means they include the covariance, since both are over the same
tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import covariance

from msgspec import Struct, field

from engine import protocol
from engine.protocol import ModelFacts, PromptOpened, Record
from inspector.state.capability import MOST, CapabilityState, within
from inspector.state.session_tree import Item


class SecondModelSoFar(Struct, CapabilityState):
    """The second model, and its readings along the session's paths."""

    opened: protocol.LockstepOpened | None = None
    """The second model, if there is one."""
    described: protocol.LockstepOpened | None = None
    """The second model that the readings are of, even after it was closed."""
    spans: dict[int, protocol.LockstepSpan] = field(default_factory=dict)
    """Spans by the node of their last token."""
    ahead: dict[int, protocol.LockstepSpan] = field(default_factory=dict)
    """Spans with both models' distributions after a node, by node."""
    looking: bool = False
    """True while the views show the second model."""
    ways: dict[int, protocol.WaysParted] = field(default_factory=dict)
    """Divergences of the two continuations, by the node from which both continued."""
    _sent: list[protocol.LockstepSpan] = field(default_factory=list)
    """Spans of the path that was read last, in order."""

    def apply(self, record: Record) -> None:
        match record:
            case protocol.LockstepOpened() | ModelFacts():
                self.forget()
                self.opened = self.described = record if isinstance(record, protocol.LockstepOpened) else None
                self.looking = False
            case protocol.LockstepClosed() | protocol.Restored():
                self.opened, self.looking = None, False
            case PromptOpened(new_tree=True):
                self.forget()
            case protocol.LockstepRead():
                # the borders of the spans may have changed
                if self.opened is not None and self.opened.aligned == "bytes":
                    for span in self._sent:
                        if span.position >= record.since:
                            self.spans.pop(span.node, None)
                self._sent = [span for span in self._sent if span.position < record.since]
                self._sent += record.spans
                self.spans |= {span.node: span for span in record.spans}
                if record.ahead is not None:
                    self.ahead[record.node] = record.ahead
            case protocol.WaysParted():
                self.ways[record.node] = record

    @classmethod
    def sound(cls, record: Record) -> bool:
        """True if a reading can be drawn and summed."""
        if not isinstance(record, protocol.LockstepRead):
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

    @property
    def looked(self) -> protocol.LockstepOpened | None:
        """The second model while the views show it, else None."""
        return self.opened if self.looking else None

    def switch(self) -> bool:
        """Show the other model in the views; returns False if there is no second one."""
        self.looking = self.opened is not None and not self.looking
        return self.opened is not None

    @property
    def other_word(self) -> str:
        """The label of the key that switches models; empty if there is no second one."""
        if self.opened is None:
            return ""
        return "look at A" if self.looking else "look at B"

    def prefix(self, facts: ModelFacts | None, second: bool) -> str:
        """A prefix that names the model a line is about: `B pocket, 4 bits · `; empty if there is only one.

        Args:
            facts: About the session's model.
            second: Whether the line is about the second model.
        """
        if self.opened is None:
            return ""
        return f"B {self.opened.title} · " if second else f"A {facts.name if facts else ''} · "

    def forget(self) -> None:
        """Forget the readings: the tree or the model changed."""
        self.spans, self.ahead, self.ways, self._sent = {}, {}, {}, []

    def at(self, items: Sequence[Item], slot: int) -> protocol.LockstepSpan | None:
        """The span at a slot of a path, or the one with both distributions after its end; None if it wasn't read."""
        if slot >= len(items):
            return self.ahead.get(items[-1].node) if items else None
        return self.along(items)[slot]

    def along(self, items: Sequence[Item]) -> list[protocol.LockstepSpan | None]:
        """The span that each token of a path belongs to; None if it was not read."""
        found: list[protocol.LockstepSpan | None] = [None] * len(items)
        for slot, item in enumerate(items):
            if (span := self.spans.get(item.node)) is not None:
                count = max(1, min(span.tokens, slot + 1))
                found[slot + 1 - count : slot + 1] = [span] * count
        return found


# ---- the figures --------------------------------------------------------------------------------


class Mean(Struct, frozen=True):
    """A mean and its standard error."""

    value: float
    error: float
    """0 if there is only one value."""


def mean(values: Sequence[float]) -> Mean:
    """The mean of some values.

    Args:
        values: At least one.
    """
    count = len(values)
    middle = math.fsum(values) / count
    if count < 2 or not math.isfinite(middle):
        return Mean(middle, 0.0)
    spread = math.fsum((value - middle) ** 2 for value in values) / count
    return Mean(middle, math.sqrt(spread / (count - 1)))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, by linear interpolation.

    Args:
        values: At least one, in ascending order.
        share: 0 to 1.
    """
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    if values[low] == values[high]:  # two infinite ones have no distance
        return values[low]
    return values[low] + (place - low) * (values[high] - values[low])


class Divergences:
    """The figures of some spans of a text."""

    def __init__(self, spans: Iterable[protocol.LockstepSpan]) -> None:
        self.spans = list(spans)
        whole = [
            (span.logprob, span.other_logprob, span)
            for span in self.spans
            if span.whole and span.logprob is not None and span.other_logprob is not None
        ]
        self.kl = [span.kl_bits for span in self.spans if span.kl_bits is not None and span.tokens]
        """KL divergence in bits of each span that has one."""
        self.logprobs = [one for one, _, _ in whole]
        """Logprobs of whole spans in A."""
        self.other_logprobs = [other for _, other, _ in whole]
        """Logprobs of the same spans in B."""
        self.changes = [
            math.exp(other) - math.exp(one) for one, other, span in whole if span.rank is not None
        ]
        """B's probability of the true token minus A's."""
        self.tops = [span.same_top for span in self.spans if span.same_top is not None and span.tokens]
        self.bytes = sum(len(span.raw) for _, _, span in whole)
        self.totals = (
            sum(span.logprob or 0.0 for span in self.spans),
            sum(span.other_logprob or 0.0 for span in self.spans),
        )
        """Sum of the logprobs of all spans in A, and in B: each model's own score."""
        self.scored = sum(span.scored for span in self.spans), sum(span.other_scored for span in self.spans)
        """Number of scored tokens of A, and of B."""

    @property
    def by_ids(self) -> bool:
        """True if the spans are single tokens of both models, so that perplexities are over the same tokens."""
        return bool(self.changes)

    # ---- perplexity -------------------------------------------------------------------------

    @property
    def perplexities(self) -> tuple[Mean, Mean]:
        """Perplexity of B and of A over the tokens that both score; needs at least one."""
        theirs, mine = ([-each for each in of] for of in (self.other_logprobs, self.logprobs))
        return _exp(mean(theirs)), _exp(mean(mine))

    @property
    def correlation(self) -> float | None:
        """Correlation of the two models' surprisals, token by token; None if one of them has no spread."""
        mine, theirs = mean(self.logprobs), mean(self.other_logprobs)
        both = mine.error * theirs.error
        return self._covariance() / both if both and math.isfinite(both) else None

    @property
    def log_ratio(self) -> Mean:
        """ln(PPL(B)/PPL(A)): the mean difference of surprisal, in nats per token."""
        return mean([one - other for one, other in self._pairs])

    @property
    def ratio(self) -> Mean:
        """PPL(B)/PPL(A)."""
        return _exp(self.log_ratio)

    @property
    def perplexity_change(self) -> Mean:
        """PPL(B)-PPL(A)."""
        theirs, mine = self.perplexities
        squared = theirs.error**2 + mine.error**2 - 2 * theirs.value * mine.value * self._covariance()
        return Mean(theirs.value - mine.value, math.sqrt(max(0.0, squared)))

    def _covariance(self) -> float:
        count = len(self.logprobs)
        return covariance(self.logprobs, self.other_logprobs) / count if count > 1 else 0.0

    @property
    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.logprobs, self.other_logprobs, strict=True))

    @property
    def bits_per_byte(self) -> tuple[Mean, Mean, Mean]:
        """Bits per byte of A, of B, and B's minus A's, over the spans that both score; needs at least one byte."""
        scale = len(self.logprobs) / self.bytes / math.log(2)
        surprisals = [(-one, -other, one - other) for one, other in self._pairs]
        means = [mean(each) for each in zip(*surprisals, strict=True)]
        first, second, change = (Mean(each.value * scale, each.error * scale) for each in means)
        return first, second, change

    # ---- tokens -----------------------------------------------------------------------------

    @property
    def rms_change(self) -> Mean:
        """Root mean square of the changes of the true token's probability; needs at least one token."""
        square = mean([change**2 for change in self.changes])
        root = math.sqrt(square.value)
        return Mean(root, square.error / (2 * root) if root else 0.0)

    @property
    def same_top(self) -> Mean:
        """Share of positions at which both have the same most probable token; needs at least one."""
        count = len(self.tops)
        share = sum(self.tops) / count
        return Mean(share, math.sqrt(share * (1 - share) / (count - 1)) if count > 1 else 0.0)


def _exp(log: Mean) -> Mean:
    value = math.exp(log.value) if log.value < 700 else math.inf
    return Mean(value, value * log.error)
