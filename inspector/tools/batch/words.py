"""A batch in words: how lanes end, what all came to, and how it compares with one after another."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import LaneCompared
from inspector.display import quoted, token_label, visible
from inspector.scales import milliseconds, percent, size
from inspector.state.batch import BatchSoFar, LaneSoFar

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
