"""What there is to know of a KV cache beyond its size: names, and sentences in this model's own numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.protocol import KVGroup, KVReading, ModelFacts
from inspector.scales import amount, count, percent, size
from inspector.state.branch import Branch
from inspector.state.timeline import Timeline

Fact = tuple[str, str]
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
GROWING = ("plain", "rotating", "chunked", "list")
"""Kinds that hold keys and values of single tokens in the model's own type."""


def kv_facts(timeline: Timeline, kv: KVReading) -> list[Fact]:
    """All that is known, the most asked-for first.

    Args:
        timeline: What is shown, a model's facts with it.
        kv: The reading shown.
    """
    facts = timeline.facts
    if facts is None:
        return []
    known = [*_a_token(facts, kv), *_windows(kv), *_states(kv), *_ahead(facts, kv)]
    return [*known, *_shared(timeline)]


# ---- a token ----------------------------------------------------------------------------------


def _a_token(facts: ModelFacts, kv: KVReading) -> Iterator[Fact]:
    per_token = facts.kv_bytes_per_token
    if not per_token:
        return
    layers = counted(facts)
    if layers is None:
        kinds = (
            "quantized" if any(group.kind == "quantized" for group in kv.groups) else "not all layers alike"
        )
        yield (
            "a token",
            f"{size(per_token)}, read off the arrays ({kinds}: no single product of sizes gives it)",
        )
        return
    both = f"{_several(layers, 'layer')} × {_several(facts.kv_heads or 0, 'KV head')}"
    product = f"{both} × {facts.head_size} × {BYTES[facts.dtype]} B"
    yield "a token", f"2 (key and value) × {product} = {size(per_token)}{_rest(facts, layers)}"
    if facts.heads and facts.kv_heads and facts.heads > facts.kv_heads:
        full = per_token * facts.heads // facts.kv_heads
        share = f"{facts.heads} query heads share {facts.kv_heads} KV head" + "s" * (facts.kv_heads > 1)
        yield (
            "grouped",
            f"{share}: full heads would take {size(full)}, {_times(full, per_token)} as much",
        )


def counted(facts: ModelFacts) -> int | None:
    """How many layers the formula of bytes a token counts; None where it doesn't give what was measured."""
    width = BYTES.get(facts.dtype)
    if width is None or not facts.kv_heads or not facts.head_size:
        return None
    one = 2 * facts.kv_heads * facts.head_size * width
    for kinds in (("plain",), GROWING):
        layers = sum(kind in kinds for kind in facts.cache_kinds)
        if layers and layers * one == facts.kv_bytes_per_token:
            return layers
    return None


def _rest(facts: ModelFacts, layers: int) -> str:
    """What the layers do that the formula doesn't count."""
    others = facts.layers - layers
    if others <= 0:
        return ""
    if len(facts.cache_kinds) == layers:
        return f"; {others} of {facts.layers} layers share these, or keep nothing"
    return f"; {others} of {facts.layers} layers don't grow without end"


def _several(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def _times(larger: int, smaller: int) -> str:
    return f"{larger / smaller:.3g} times"


# ---- windows and states -----------------------------------------------------------------------


def _windows(kv: KVReading) -> Iterator[Fact]:
    for group in kv.groups:
        if group.limit is None or group.kind == "recurrent":
            continue
        gone = max(0, kv.offset - group.held)
        fate = f"{count(gone)} fell out" if gone else "nothing fell out yet"
        yield "window", f"{layers_of(group)}: the last {count(group.limit)} tokens at most; {fate}"


def _states(kv: KVReading) -> Iterator[Fact]:
    for group in kv.groups:
        if group.kind == "recurrent":
            together = size(len(group.layers) * group.used_bytes)
            yield (
                "state",
                f"{layers_of(group)}: {size(group.used_bytes)} each, whatever the length; {together} in all",
            )


def layers_of(group: KVGroup) -> str:
    """The layers of a group, counted from 1, in runs: `layers 1-5, 7`."""
    runs: list[list[int]] = []
    for layer in group.layers:
        if runs and runs[-1][-1] == layer - 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    names = [f"{run[0] + 1}" if len(run) == 1 else f"{run[0] + 1}-{run[-1] + 1}" for run in runs]
    shown = ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} runs more"
    return f"layer{'s' if len(group.layers) > 1 else ''} {shown}"


# ---- ahead ------------------------------------------------------------------------------------


def projected(kv: KVReading, tokens: int) -> int:
    """Bytes that the cache would use at `tokens` tokens, if each group grows as before."""
    return sum(len(group.layers) * _grown(group, tokens) for group in kv.groups)


def _grown(group: KVGroup, tokens: int) -> int:
    if not group.held:
        return group.used_bytes
    held = min(tokens, group.limit) if group.limit else tokens
    return group.used_bytes * held // group.held


def _ahead(facts: ModelFacts, kv: KVReading) -> Iterator[Fact]:
    if (window := facts.context_window) and kv.offset:
        full = projected(kv, window)
        share = f"{percent(full / facts.weight_bytes)} of what the weights take" if facts.weight_bytes else ""
        yield "full window", f"{size(full)} at {count(window)} tokens; {share}"
    per_token, spare = facts.kv_bytes_per_token, facts.free_bytes
    if per_token and spare is not None:
        room = f"room for about {amount(spare // per_token)} tokens"
        yield "memory", f"{size(spare)} free beside the weights when they were loaded: {room}"


# ---- branches ---------------------------------------------------------------------------------


def _shared(timeline: Timeline) -> Iterator[Fact]:
    """What branches have in common, and so went through the model once."""
    ends = _ends(timeline.tree.branches.root)
    if len(ends) < 2:
        return
    apart, together = sum(ends), len(timeline.tree.branches)
    first = _prefix(timeline.tree.branches.root)
    per_token = timeline.facts.kv_bytes_per_token if timeline.facts else None
    saved = f", {size((apart - together) * per_token)} less" if per_token else ""
    common = f"{count(len(ends))} ends, the first {count(first)} tokens common to all"
    yield "branches", f"{common}; as a tree {count(together)} tokens stand for {count(apart)}{saved}"


def _ends(root: Branch) -> Sequence[int]:
    """Tokens on the way to each end of the tree."""
    ends, waiting = [], [(child, 0) for child in root.children]
    while waiting:
        branch, before = waiting.pop()
        depth = before + len(branch.nodes)
        waiting += [(child, depth) for child in branch.children]
        if not branch.children:
            ends.append(depth)
    return ends


def _prefix(root: Branch) -> int:
    """Tokens that all ends have in common."""
    length, branch = 0, root
    while len(branch.children) == 1:
        branch = branch.children[0]
        length += len(branch.nodes)
    return length
