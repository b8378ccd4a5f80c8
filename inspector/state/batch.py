"""The state of a batch and its lanes, built from live or recorded records, and its description in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from msgspec import Struct, field

from engine import protocol
from engine.protocol import Distribution, PromptOpened, Record
from inspector.display import quoted, token_label, visible
from inspector.scales import counted, milliseconds, percent, size
from inspector.state.capability import CapabilityState, ReplayStop

EXAMPLES = ("The dog was", "Tom and his mom went to the park. They saw a")
"""Prompts that fill the lanes after the session's own prompt until the user types others."""


class LaneSoFar(Struct):
    """One lane."""

    opened: protocol.LaneOpened
    state: Literal["waiting", "prefill", "live", "ended"] = "waiting"
    padding: int = 0
    """Columns of padding before its prompt in the prefill."""
    started: protocol.LaneStarted | None = None
    tokens: list[protocol.LaneToken] = field(default_factory=list)
    ended: protocol.LaneEnded | None = None
    compared: protocol.LaneCompared | None = None

    @property
    def number(self) -> int:
        """Index of the lane, from 0."""
        return self.opened.lane

    @property
    def said(self) -> list[protocol.LaneToken]:
        """Its tokens, without the end of sequence."""
        return self.tokens[:-1] if self.ended is not None and self.ended.reason == "eos" else self.tokens

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.said)

    @property
    def next(self) -> Distribution | None:
        """The distribution of its next token; None unless the lane is live."""
        return self.choice(len(self.tokens)) if self.state == "live" else None

    def choice(self, index: int) -> Distribution | None:
        """The distribution that the token at an index was drawn from, or will be."""
        if index == 0:
            return self.started.next if self.started else None
        return self.tokens[index - 1].next if index <= len(self.tokens) else None

    @property
    def kv(self) -> protocol.LaneKV | None:
        """The last reading of its KV cache; None before it started and after it ended."""
        if self.ended is not None or not self.started:
            return None
        return self.tokens[-1].kv if self.tokens else self.started.kv


class BatchSoFar(Struct):
    """One batch."""

    opened: protocol.BatchOpened
    lanes: list[LaneSoFar] = field(default_factory=list)
    steps: int = 0
    totals: protocol.BatchTotals = field(default_factory=protocol.BatchTotals)
    over: bool = False
    compared: protocol.BatchCompared | None = None

    @property
    def live(self) -> list[LaneSoFar]:
        """The lanes that still decode."""
        return [lane for lane in self.lanes if lane.state == "live"]

    def begin(self, lanes: Sequence[protocol.LaneOpened]) -> None:
        """Add lanes for new prompts."""
        self.lanes += [LaneSoFar(opened) for opened in lanes]
        self.over = False

    def apply(self, record: Record) -> None:
        match record:
            case protocol.LanesAdded():
                self.begin(record.lanes)
            case protocol.LanesJoined():
                for lane, padding in zip(self._known(*record.lanes), record.padding, strict=False):
                    lane.state, lane.padding = "prefill", padding

            case protocol.LaneStarted():
                for lane in self._known(record.lane):
                    lane.state, lane.started = "live", record
            case protocol.BatchStep():
                self.steps, self.totals = record.step, record.totals
                for token in record.tokens:
                    for lane in self._known(token.lane):
                        lane.tokens.append(token)
            case protocol.LaneEnded():
                for lane in self._known(record.lane):
                    lane.state, lane.ended = "ended", record
            case protocol.BatchEnded():
                self.over, self.totals = True, record.totals
            case protocol.LaneCompared():
                for lane in self._known(record.lane):
                    lane.compared = record
            case protocol.BatchCompared():
                self.compared = record

    def _known(self, *numbers: int) -> Iterator[LaneSoFar]:
        """The lanes with these numbers; numbers that don't exist, as a file may have, are skipped."""
        return (self.lanes[number] for number in numbers if 0 <= number < len(self.lanes))

    @property
    def rate(self) -> float | None:
        """Decoded tokens a second, of all lanes together; None before the first."""
        return self.totals.tokens / self.totals.ms * 1000 if self.totals.ms and self.totals.tokens else None


class Batches(Struct, CapabilityState):
    """The last batch of prompts, and the last counted draws with their continuations, which are a batch too."""

    FAILS = protocol.StartBatch, protocol.DrawMany
    STOPS: ClassVar = {
        protocol.BatchOpened: (ReplayStop.BEGINS, ""),
        protocol.BatchStep: (ReplayStop.FIRST, "A batch is here: {batch} shows it"),
        protocol.BatchEnded: (ReplayStop.EACH, "A batch ended here: {batch} shows it"),
        protocol.BatchCompared: (ReplayStop.EACH, "A batch was compared here: {batch} shows it"),
        protocol.DrawsCounted: (ReplayStop.EACH, "Draws were counted here: {draws} shows them"),
    }

    last: BatchSoFar | None = None
    drawn: protocol.DrawsCounted | None = None
    continued: BatchSoFar | None = None
    """Continuations of the counted draws; None if only the first token was drawn."""
    current: BatchSoFar | None = None
    """The batch that new records belong to: the engine runs one at a time."""

    def apply(self, record: Record) -> None:
        match record:
            case protocol.BatchOpened():
                self.current = BatchSoFar(record)
                self.current.begin(record.lanes)
                if record.node is None:
                    self.last = self.current
                else:
                    self.continued = self.current
            case protocol.DrawsCounted():
                self.drawn, self.continued = record, None
            case PromptOpened(new_tree=True):
                self.drawn = self.continued = None
            case _ if self.current is not None:
                self.current.apply(record)


# ---- the continuations of many draws as a tree --------------------------------------------------


class DrawnNode(Struct):
    """Tokens that some draws have in common after the same prefix."""

    text: str
    count: int
    children: list[DrawnNode] = field(default_factory=list)
    """Most frequent first."""


def drawn_tree(lanes: Sequence[LaneSoFar]) -> list[DrawnNode]:
    """The texts of the draws as a tree, with common prefixes merged."""
    return _grown([lane.said for lane in lanes if lane.said], 0)


def _grown(lanes: Sequence[Sequence[protocol.LaneToken]], depth: int) -> list[DrawnNode]:
    nodes = []
    counts = Counter(tokens[depth].id for tokens in lanes if len(tokens) > depth)
    for id, count in counts.most_common():
        same = [tokens for tokens in lanes if len(tokens) > depth and tokens[depth].id == id]
        text, end = same[0][depth].text, depth + 1
        # tokens that all of them share make one node
        while all(len(tokens) > end and tokens[end].id == same[0][end].id for tokens in same):
            text, end = text + same[0][end].text, end + 1
        nodes.append(DrawnNode(text, count, _grown(same, end)))
    return nodes


# ---- in words -----------------------------------------------------------------------------------

Facts = Iterator[tuple[str, str]]
"""Pairs of a name and a phrase."""


def ending(lane: LaneSoFar) -> str:
    """Why a lane ended, or its state if it hasn't."""
    if lane.ended is None:
        return {"waiting": "waits", "prefill": "prefill"}.get(lane.state, "running")
    if lane.ended.reason in ("eos", "stop"):
        return f"{lane.ended.reason} {visible(lane.ended.detail)}".rstrip()
    return lane.ended.reason


def lane_words(lane: LaneSoFar) -> Facts:
    """The settings, the tokens and the times of a lane."""
    if lane.opened.ids:
        yield "settings", ", ".join((f"seed {lane.opened.seed}", *lane.opened.settings))
        yield "prompt", f"{counted(len(lane.opened.ids), 'token')}, {lane.padding} of padding"
    if lane.kv is not None:
        yield "KV", f"{size(lane.kv.used_bytes)}, {size(lane.kv.padding_bytes)} of padding"
    if lane.started is not None:
        last = f", last after {milliseconds(lane.ended.ms)}" if lane.ended else ""
        yield "tokens", f"{len(lane.tokens)}, first after {milliseconds(lane.started.ms)}{last}"
    if lane.compared is not None:
        yield "alone", difference_words(lane.compared)


def totals_words(batch: BatchSoFar) -> Facts:
    """The totals of all lanes."""
    totals = batch.totals
    if totals.prompt_tokens:
        tokens = _work(totals.prompt_tokens, totals.padding, "of padding")
        yield "prefill", f"{tokens}, {milliseconds(totals.prefill_ms)}"
    rows = _work(totals.rows, totals.rows_after_end, "after a lane's end")
    yield "decode", f"{rows}; {counted(totals.forwards, 'forward pass')}, {milliseconds(totals.decode_ms)}"
    if batch.rate is not None:
        yield "all lanes", f"{counted(totals.tokens, 'token')}, {batch.rate:.1f} tok/s together"


def _work(useful: int, wasted: int, what: str) -> str:
    share = percent(wasted / max(1, wasted + useful))
    return f"{counted(useful, 'row-step')} of tokens, {wasted:,} {what} ({share})"


def held_words(batch: BatchSoFar) -> str:
    """The memory that the lanes use in the KV cache."""
    held = [lane.kv for lane in batch.lanes if lane.kv is not None]
    used, padding = sum(each.used_bytes for each in held), sum(each.padding_bytes for each in held)
    return f"{size(used)} of tokens, {size(padding)} of padding"


def compared_words(batch: BatchSoFar) -> Facts:
    """The comparison of the lanes with runs of each prompt alone; empty if there was none."""
    if not (compared := [lane.compared for lane in batch.lanes if lane.compared is not None]):
        return
    same = sum(each.difference is None for each in compared)
    largest, rounding = max(each.largest for each in compared), max(each.rounding for each in compared)
    outside = ", ".join(str(each.lane) for each in compared if not each.within)
    differ = f"logprobs differ by {largest:.2g} at most, rounding explains {rounding:.2g}"
    more = f"; more in lane {outside}" if outside else ""
    yield "ids alone", f"{same} of {len(compared)} lanes equal; {differ}{more}"
    yield from ((f"lane {each.lane}", difference_words(each)) for each in compared if each.difference)
    if (both := batch.compared) is not None and both.together_ms:
        what = "prompts" if batch.opened.node is None else "continuations"
        alone = f"{milliseconds(both.alone_ms)}: {both.alone_ms / both.together_ms:.2f} times faster"
        together = f"{milliseconds(both.together_ms)} for {both.lanes:,} {what}"
        yield "at once", f"{together}, one after another {alone}"


def difference_words(compared: protocol.LaneCompared) -> str:
    """The first token that differs, and how close the logprobs of both are."""
    if (difference := compared.difference) is None:
        return "the same ids alone"
    both = (difference.batched, difference.batched_text), (difference.alone, difference.alone_text)
    one, other = (quoted(token_label(text)) if id >= 0 else "its end" for id, text in both)
    gap = f"their logprobs are {difference.gap:.2g} apart"
    within = "within the rounding" if compared.within else "beyond the rounding"
    return f"token {difference.index + 1}: {one} in the batch, {other} alone; {gap}, {within}"
