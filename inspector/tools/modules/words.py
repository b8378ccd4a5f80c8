"""What a module is called and does, in words that a student understands, from the facts that the engine read."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import HeadFacts, LayerSum, ModulePart, Role, RopeFacts
from inspector.display import visible

ROLES: dict[Role, str] = {
    "embedding": "embedding", "norm": "norm", "attention": "attention", "mlp": "MLP", "recurrence": "recurrence",
}  # fmt: skip
NAMES: dict[str, tuple[str, str]] = {
    "q_proj": ("queries", "what a head looks for"),
    "k_proj": ("keys", "what a token is found by"),
    "v_proj": ("values", "what a token hands on"),
    "o_proj": ("output", "joins what the heads read"),
    "out_proj": ("output", "back to the stream's size"),
    "in_proj": ("input", "into the recurrence"),
    "qkv_proj": ("queries, keys, values", "in one matrix"),
    "c_attn": ("queries, keys, values", "in one matrix"),
    "gate_proj": ("gate", "what passes of each number"),
    "up_proj": ("up", "to more numbers"),
    "down_proj": ("down", "back to the stream's size"),
    "gate_up_proj": ("gate and up", "in one matrix"),
    "c_fc": ("up", "to more numbers"),
    "c_proj": ("output", "back to the stream's size"),
    "q_norm": ("norm of queries", ""),
    "k_norm": ("norm of keys", ""),
    "router": ("router", "scores each expert"),
    "shared_expert": ("shared expert", "every token goes through it"),
    "shared_experts": ("shared experts", "every token goes through them"),
    "wpe": ("positions", "numbers for each position"),
}
"""By the attribute that holds a module: a name, and what it is for. What isn't here keeps the attribute's name."""


EXPLAINED = {
    "token": "A token is one number, its id. All below turns it into a score for each token that could come next.",
    "embedding": "A table with a row of numbers for each token. The token's row is where its residual stream begins.",
    "layer": "A layer reads the residual stream and adds to it, but never replaces it: what an early layer wrote is "
    "there for all that come after.",
    "norm": "Brings the numbers of the stream to one scale before a part reads them. The stream itself stays as it is.",
    "attention": "Where tokens meet: a head compares this token's query with the keys of the tokens so far, and reads "
    "a mixture of their values.",
    "keys": "Compared with the queries of all later tokens. The KV cache holds them: computed once, read at each step.",
    "values": "What heads read of a token that they look at. The KV cache holds them, as it holds the keys.",
    "rope": "Turns pairs of numbers of queries and keys by an angle that grows with the position: so a head sees how "
    "far back a token is. A larger theta turns the slow pairs slower.",
    "mlp": "Works on each token by itself: to more numbers, through an activation, and back to the stream's size.",
    "experts": "Several MLPs, of which a router picks a few for each token: all are held in memory, few are computed.",
    "recurrence": "Keeps a state of fixed size, in which all tokens so far are mixed, and no keys and values of each.",
    "added": "The residual stream goes on past this: what the part computed is added to it, number by number.",
    "head": "Compares the stream with a row of numbers for each token: the products are the logits.",
    "logits": "Their softmax gives the probabilities that the main screen shows.",
}
"""What each sort of module is for."""


def sort_of(part: ModulePart | None, inside: str, label: str) -> str:
    """Which of the explanations fits a line.

    Args:
        part: Its module, None for a line without one.
        inside: Role of the direct part of a layer that it belongs to.
        label: Its label.
    """
    if part is None:
        return label if label in EXPLAINED else ""
    if part.rope is not None and part.heads is None:
        return "rope"
    if part.experts is not None or label in ("router", "mixture of experts"):
        return "experts"
    if part.norm is not None and not part.heads:
        return "norm"
    return label if label in EXPLAINED else inside if inside in EXPLAINED else part.role


def label(part: ModulePart, parent: ModulePart | None = None) -> str:
    """What to call a part; printable.

    Args:
        part: The part.
        parent: That holds it.
    """
    if part.rope is not None and part.heads is None:
        return "RoPE"
    if part.experts is not None:
        return "experts"
    if (
        part.name in ("gate", "router")
        and part.role != "norm"
        and parent is not None
        and parent.role == "mlp"
    ):
        return "router"
    if part.name in NAMES:
        return NAMES[part.name][0]
    plain = part.depth == 1 or part.role in ("embedding", "norm") or part.heads is not None
    return ROLES.get(part.role, visible(part.name)) if plain and part.name else visible(part.name)


def says(part: ModulePart) -> str:
    """What a part is, in a few words; printable."""
    words = [_does(part)]
    packed = next((array for array in part.arrays if array.bits is not None), None)
    if packed is not None:
        words.append(f"{packed.bits} bits in groups of {packed.group_size}")
    return " · ".join(word for word in words if word)


def _does(part: ModulePart) -> str:
    if part.heads is not None:
        turned = f", RoPE {rope(part.rope)}" if part.rope is not None else ""
        return heads(part.heads) + turned
    if part.rope is not None:
        return rope(part.rope)
    if part.norm is not None:
        return f"{part.norm.kind}, eps {part.norm.eps:.3g}"
    if part.experts is not None:
        kind = f", each {mlp(part)}" if part.mlp is not None else ""
        return f"{part.experts.experts}{kind}"
    if part.mlp is not None:
        return mlp(part)
    if part.role == "embedding" and part.name not in NAMES:
        return f"{part.arrays[0].shape[-1]:,} numbers for each token" if part.arrays else ""
    if part.role == "recurrence" and part.depth == 1:
        return "a state, no keys, no values"
    return NAMES.get(part.name, ("", ""))[1]


def heads(facts: HeadFacts) -> str:
    """The heads of an attention."""
    words = [f"{facts.heads} heads of {facts.key_size}" if facts.key_size else f"{facts.heads} heads"]
    if 0 < facts.kv_heads < facts.heads:
        words.append(f"{facts.kv_heads} KV heads" if facts.kv_heads > 1 else "1 KV head")
    if facts.window is not None:
        words.append(f"window {facts.window:,}")
    if facts.sinks:
        words.append("sinks")
    return ", ".join(words)


def rope(facts: RopeFacts) -> str:
    """Rotary positions."""
    base = f"theta {facts.base:,.10g}" if facts.base is not None else "a table of its own"
    stretched = ", stretched by a table" if facts.table and facts.base is not None else ""
    scaled = f", scale {facts.scale:.3g}" if facts.scale != 1 else ""
    return f"{base}, {facts.dims} of a head{stretched}{scaled}"


def mlp(part: ModulePart) -> str:
    """What an MLP computes, and its sizes."""
    facts = part.mlp
    if facts is None:
        return ""
    kind = visible(facts.activation) or ("gated" if facts.gated else "")
    sizes = [part.given[-1:], (facts.inner,), part.returned[-1:]]
    way = " → ".join(f"{size[0]:,}" for size in sizes if size)
    return f"{kind}, {way}" if kind else way


def shape(part: ModulePart) -> str:
    """The shape of a part's weight: from how many numbers to how many, where it is a matrix."""
    weight = next((array for array in part.arrays if array.name == "weight"), None)
    if weight is None or not weight.shape:
        return ""
    if part.role in ("norm", "embedding") or len(weight.shape) == 1:
        return times(weight.shape)
    if len(weight.shape) == 2:
        return f"{weight.shape[1]:,} → {weight.shape[0]:,}"
    if len(weight.shape) == 3 and part.kind.endswith("SwitchLinear"):
        return f"{weight.shape[0]} × {weight.shape[2]:,} → {weight.shape[1]:,}"
    return times(weight.shape)


def times(numbers: Sequence[int]) -> str:
    """A shape."""
    return " × ".join(f"{number:,}" for number in numbers)


def added(total: LayerSum, names: dict[str, str]) -> str:
    """What a layer adds to the stream.

    Args:
        total: Where, and what.
        names: Of its parts, by path.
    """
    parts = [
        names.get(path, visible(path)) + (f" × {factor:.3g}" if factor != 1 else "")
        for path, factor in zip(total.parts, total.factors, strict=True)
    ]
    if len(parts) == 1:
        times_it = f", × {total.factors[0]:.3g}" if total.factors[0] != 1 else ""
        return f"added to the stream{times_it}"
    return f"{' and '.join(parts)} added"


def ranges(numbers: Sequence[int]) -> str:
    """Layers as a person counts them, from 1: `1 to 3, 5`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ", ".join(
        f"{span[0] + 1} to {span[-1] + 1}" if len(span) > 1 else f"{span[0] + 1}" for span in spans
    )
