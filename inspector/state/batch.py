"""A batch and its lanes, from the records as they come, live or recorded, and what they say in words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from msgspec import Struct, field

from engine.protocol import (
    BatchCompared,
    BatchEnded,
    BatchOpened,
    BatchStep,
    BatchTotals,
    Distribution,
    DrawMany,
    DrawsCounted,
    LaneCompared,
    LaneEnded,
    LaneKV,
    LaneOpened,
    LanesAdded,
    LanesJoined,
    LanesPrefilled,
    LaneStarted,
    LaneToken,
    PromptOpened,
    Record,
    StartBatch,
)
from inspector.display import quoted, token_label, visible
from inspector.scales import milliseconds, percent, size
from inspector.state.capability import CapabilityState, ReplayStop

LaneState = Literal["waiting", "prefill", "live", "ended"]
EXAMPLES = ("The dog was", "Tom and his mom went to the park. They saw a")
"""Prompts after the session's own, until a person types others."""


class LaneSoFar(Struct):
    """One lane."""

    opened: LaneOpened
    state: LaneState = "waiting"
    padding: int = 0
    """Columns of padding before its prompt, when it was prefilled."""
    started: LaneStarted | None = None
    tokens: list[LaneToken] = field(default_factory=list)
    ended: LaneEnded | None = None
    compared: LaneCompared | None = None

    @property
    def number(self) -> int:
        """Of the lane, from 0."""
        return self.opened.lane

    @property
    def said(self) -> list[LaneToken]:
        """Its tokens, without the end of sequence."""
        ends = self.ended is not None and self.ended.reason == "eos"
        return self.tokens[:-1] if ends else self.tokens

    @property
    def text(self) -> str:
        """What it says."""
        return "".join(token.text for token in self.said)

    @property
    def next(self) -> Distribution | None:
        """What its next token is drawn from; None before it began and after it ended."""
        if self.state != "live":
            return None
        return self.tokens[-1].next if self.tokens else self.started.next if self.started else None

    def choice(self, index: int) -> Distribution | None:
        """What a token was drawn from."""
        if index == 0:
            return self.started.next if self.started else None
        return self.tokens[index - 1].next if index <= len(self.tokens) else None

    @property
    def kv(self) -> LaneKV | None:
        """What it holds, as reported last; None before it began and after its row ended."""
        if self.ended is not None or not self.started:
            return None
        return self.tokens[-1].kv if self.tokens else self.started.kv


class BatchSoFar(Struct):
    """One batch."""

    opened: BatchOpened
    lanes: list[LaneSoFar] = field(default_factory=list)
    """By number."""
    prefill: LanesPrefilled | None = None
    """The chunk that was read last."""
    steps: int = 0
    rows: int = 0
    """Of the last forward."""
    totals: BatchTotals = field(default_factory=BatchTotals)
    over: bool = False
    replaced: bool = False
    """True if the engine let go of it for the continuations of draws: it can be looked at, and no more."""
    compared: BatchCompared | None = None

    @property
    def live(self) -> list[LaneSoFar]:
        """The lanes that go on."""
        return [lane for lane in self.lanes if lane.state == "live"]

    def begin(self, lanes: Sequence[LaneOpened]) -> None:
        """Take in prompts."""
        self.lanes += [LaneSoFar(opened) for opened in lanes]
        self.over = False

    def known(self, numbers: Sequence[int]) -> Iterator[LaneSoFar]:
        """The lanes of some numbers; a file may name others."""
        return (self.lanes[number] for number in numbers if 0 <= number < len(self.lanes))

    def apply(self, record: Record) -> None:
        """Take in one record; those of other matters change nothing."""
        match record:
            case LanesAdded():
                self.begin(record.lanes)
            case LanesJoined():
                for lane, padding in zip(self.known(record.lanes), record.padding, strict=False):
                    lane.state, lane.padding = "prefill", padding
            case LanesPrefilled():
                self.prefill = record
            case LaneStarted():
                for lane in self.known([record.lane]):
                    lane.state, lane.started = "live", record
            case BatchStep():
                self.steps, self.rows, self.totals = record.step, record.rows, record.totals
                for token in record.tokens:
                    for lane in self.known([token.lane]):
                        lane.tokens.append(token)
            case LaneEnded():
                for lane in self.known([record.lane]):
                    lane.state, lane.ended = "ended", record
            case BatchEnded():
                self.over, self.totals = True, record.totals
            case LaneCompared():
                for lane in self.known([record.lane]):
                    lane.compared = record
            case BatchCompared():
                self.compared = record
            case _:
                pass

    @property
    def rate(self) -> float | None:
        """Decoded tokens a second, of all lanes together; None before the first."""
        return self.totals.tokens / self.totals.ms * 1000 if self.totals.ms and self.totals.tokens else None


class Batches(Struct, CapabilityState):
    """The last batch of prompts, and the last count of draws with their continuations, which are a batch, too."""

    TAKES = (
        BatchOpened, LanesAdded, LanesJoined, LanesPrefilled, LaneStarted, BatchStep, LaneEnded, BatchEnded,
        LaneCompared, BatchCompared, DrawsCounted, PromptOpened,
    )  # fmt: skip
    FAILS = StartBatch, DrawMany
    STOPS: ClassVar = {
        BatchOpened: ReplayStop.BEGINS,
        BatchStep: ReplayStop.FIRST,
        BatchEnded: ReplayStop.EACH,
        BatchCompared: ReplayStop.EACH,
        DrawsCounted: ReplayStop.EACH,
    }
    SHOWN_BY: ClassVar = {
        BatchStep: "A batch is here: {batch} shows it",
        BatchEnded: "A batch ended here: {batch} shows it",
        BatchCompared: "A batch was compared here: {batch} shows it",
        DrawsCounted: "Draws were counted here: {draws} shows them",
    }

    last: BatchSoFar | None = None
    drawn: DrawsCounted | None = None
    continued: BatchSoFar | None = None
    """Of those draws; None where they have only a first token."""
    current: BatchSoFar | None = None
    """Whose records come now: the engine has one batch at a time."""

    def apply(self, record: Record) -> None:
        """Take in one record; those of other matters change nothing."""
        match record:
            case BatchOpened():
                self.current = BatchSoFar(record)
                self.current.begin(record.lanes)
                if record.node is None:
                    self.last = self.current
                    return
                self.continued = self.current
                if self.last is not None:
                    self.last.replaced = True
            case DrawsCounted():
                self.drawn, self.continued = record, None
            case PromptOpened(new_tree=True):  # of another tree
                self.drawn = self.continued = None
            case _ if self.current is not None:
                self.current.apply(record)
            case _:
                pass


# ---- what many draws of one prompt came to ------------------------------------------------------


class DrawnNode(Struct):
    """A token that some draws took after the same tokens."""

    text: str
    count: int
    children: list[DrawnNode] = field(default_factory=list)
    """Most frequent first."""


def drawn_tree(lanes: Sequence[LaneSoFar]) -> list[DrawnNode]:
    """What the draws of a prompt said, tokens that several took once."""
    return _grown([lane.said for lane in lanes if lane.said], 0)


def _grown(lanes: Sequence[Sequence[LaneToken]], depth: int) -> list[DrawnNode]:
    nodes = []
    counts = Counter(tokens[depth].id for tokens in lanes if len(tokens) > depth)
    for id, count in counts.most_common():
        same = [tokens for tokens in lanes if len(tokens) > depth and tokens[depth].id == id]
        text, end = same[0][depth].text, depth + 1
        # tokens that nobody parts at are shown in one piece
        while all(len(tokens) > end and tokens[end].id == same[0][end].id for tokens in same):
            text, end = text + same[0][end].text, end + 1
        nodes.append(DrawnNode(text, count, _grown(same, end)))
    return nodes


# ---- in words -----------------------------------------------------------------------------------

Facts = list[tuple[str, str]]


def ending(lane: LaneSoFar) -> str:
    """The end of a lane, or its state while it has none."""
    if lane.ended is None:
        return {"waiting": "waits", "prefill": "prefill"}.get(lane.state, "running")
    if lane.ended.reason in ("eos", "stop"):
        return f"{lane.ended.reason} {visible(lane.ended.detail)}".rstrip()
    return lane.ended.reason


def totals_words(batch: BatchSoFar) -> Facts:
    """The totals of all lanes, as names and sentences."""
    totals = batch.totals
    facts = []
    if totals.prompt_tokens:
        padding = f"{totals.padding:,} of padding ({_share(totals.padding, totals.prompt_tokens)})"
        tokens = f"{totals.prompt_tokens:,} row-steps of tokens"
        facts.append(("prefill", f"{tokens}, {padding}, {milliseconds(totals.prefill_ms)}"))
    after = f"{totals.rows_after_end:,} after a lane's end ({_share(totals.rows_after_end, totals.rows)})"
    rows = f"{totals.rows:,} row-steps of tokens, {after}; {totals.forwards:,} forwards"
    facts.append(("decode", f"{rows}, {milliseconds(totals.decode_ms)}"))
    if batch.rate is not None:
        facts.append(("all lanes", f"{totals.tokens:,} tokens, {batch.rate:.1f} tok/s together"))
    return facts


def _share(wasted: int, useful: int) -> str:
    """The wasted part of both, in percent."""
    return percent(wasted / (wasted + useful)) if wasted else "0 %"


def held_words(batch: BatchSoFar) -> str:
    """The memory of the lanes in the KV cache."""
    held = [lane.kv for lane in batch.lanes if lane.kv is not None]
    used, padding = sum(each.used_bytes for each in held), sum(each.padding_bytes for each in held)
    return f"{size(used)} of tokens, {size(padding)} of padding"


def compared_words(batch: BatchSoFar) -> Facts:
    """The lanes beside their prompts alone, as names and sentences; none where that was not done."""
    compared = [lane.compared for lane in batch.lanes if lane.compared is not None]
    if not compared:
        return []
    facts = [("ids alone", _equal(compared))]
    facts += [(f"lane {each.lane}", difference_words(each)) for each in compared if each.difference]
    what = "prompts" if batch.opened.node is None else "continuations"
    if (both := batch.compared) is not None and both.together_ms:
        together, alone = milliseconds(both.together_ms), milliseconds(both.alone_ms)
        faster = f"{both.alone_ms / both.together_ms:.2f} times faster"
        facts.append(
            ("at once", f"{together} for {both.lanes:,} {what}, one after another {alone}: {faster}")
        )
    return facts


def _equal(compared: Sequence[LaneCompared]) -> str:
    same = sum(each.difference is None for each in compared)
    largest, rounding = max(each.largest for each in compared), max(each.rounding for each in compared)
    outside = [each.lane for each in compared if not each.within]
    differ = f"logprobs differ by {largest:.2g} at most, rounding explains {rounding:.2g}"
    more = f"; more in lane {', '.join(map(str, outside))}" if outside else ""
    return f"{same} of {len(compared)} lanes equal; {differ}{more}"


def difference_words(compared: LaneCompared) -> str:
    """The first token that differs, and how near both were."""
    difference = compared.difference
    if difference is None:
        return "the same ids alone"
    both = (difference.batched, difference.batched_text), (difference.alone, difference.alone_text)
    one, other = (quoted(token_label(text)) if id >= 0 else "its end" for id, text in both)
    gap = f"their logprobs are {difference.gap:.2g} apart"
    within = "within the rounding" if compared.within else "beyond the rounding"
    return f"token {difference.index + 1}: {one} in the batch, {other} alone; {gap}, {within}"
