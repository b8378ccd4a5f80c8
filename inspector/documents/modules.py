"""The modules of a model: lines from the top down beside the residual stream, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from msgspec import Struct

from engine.protocol import (
    HOOKS,
    HeadFacts,
    HookPart,
    LayerBlock,
    LayerSum,
    ModelModules,
    ModulePart,
    Role,
    RopeFacts,
)
from inspector.blocks.blocks import (
    Bar,
    Block,
    Cell,
    Column,
    Table,
    TableRow,
    Text,
    number,
    sentence,
    sentences,
)
from inspector.blocks.page import elements
from inspector.display import visible
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.scales import amount, count, size
from inspector.state.inside import Answers
from inspector.state.second_model import SecondModelSoFar


class Line(Struct, frozen=True):
    """One line of the page."""

    gutter: str
    """The stream, and what branches off it."""
    label: str
    says: str = ""
    shape: str = ""
    parameters: int = 0
    """The sum over all layers of the line."""
    bytes: int = 0
    part: ModulePart | None = None
    path: str = ""
    """The full path; `*` for the number of a folded layer."""
    layers: tuple[int, ...] = ()
    """The layers of the line."""
    block: int | None = None
    """The number of its block, for the line of a layer or of several."""
    strong: bool = False
    inside: str = ""
    """Role of the layer's direct part that contains it."""
    hooked: tuple[HookPart, ...] = ()
    """The parts whose hooks are found here: see `hooks`."""

    @property
    def hooks(self) -> str:
        """Its hooks by their names in TransformerLens, separated by spaces; empty if it has none."""
        layer = str(self.layers[0]) if len(self.layers) == 1 else "N"
        return " ".join(hook.name.replace("N", layer) for hook in HOOKS if hook.part in self.hooked)

    @property
    def sort(self) -> str:
        """Key of its explanation in `EXPLAINED`."""
        part, label = self.part, self.label.strip()
        if self.block is not None:
            return "layer"
        if self.gutter.startswith("⊕"):
            return "added"
        if part is None:
            return label if label in EXPLAINED else ""
        if part.rope is not None and part.heads is None:
            return "rope"
        if part.experts is not None or label in ("router", "mixture of experts"):
            return "experts"
        if part.norm is not None and not part.heads:
            return "norm"
        return label if label in EXPLAINED else self.inside if self.inside in EXPLAINED else part.role


def lines(modules: ModelModules, unfolded: Collection[int] = (), opened: Collection[int] = ()) -> list[Line]:
    """The lines of the page.

    Args:
        modules: The modules of the model.
        unfolded: Indices of blocks whose layers are shown one by one.
        opened: Layers of these blocks whose parts are shown.
    """
    found = [Line("● ", "token", f"its id, one of {modules.vocabulary:,}", strong=True)]
    found += [_outside(part, modules) for part in modules.before]
    for place, block in enumerate(modules.blocks):
        found += _block(place, block, place in unfolded, opened)
    found += [_outside(part, modules) for part in modules.after]
    if modules.tied:
        found.append(Line(
            "│ ", "head", "the embedding's (tied)", f"{modules.hidden_size:,} → {modules.vocabulary:,}",
            path=visible(modules.head), strong=True,
        ))  # fmt: skip
    elif not modules.head:
        found.append(Line("│ ", "head", "not a module of its own", strong=True))
    found.append(Line("▼ ", "logits", "a score for each token", strong=True))
    found += [_outside(part, modules, gutter="  ", more="loaded, not run by text") for part in modules.unused]
    return found


def _outside(part: ModulePart, modules: ModelModules, gutter: str = "│ ", more: str = "") -> Line:
    """A module before or after the layers."""
    label = label_of(part)
    if part.path == modules.head and part.role != "embedding":
        label, more = "head", "a logit for each token"
    elif part.norm is not None and part in modules.after:
        label = "final norm"
    final: tuple[HookPart, ...] = ("final norm",) if label == "final norm" else ()
    return Line(
        gutter, label, " · ".join(filter(None, (description(part), more))), shape_of(part), part.parameters, part.bytes,
        part, visible(part.path), strong=True,
        hooked=final or NAMED.get(part.name, ("embedding",) if part.role == "embedding" else ()),
    )  # fmt: skip


# ---- layers -------------------------------------------------------------------------------------


def _block(number: int, block: LayerBlock, unfolded: bool, opened: Collection[int]) -> Iterator[Line]:
    """The lines of a block of like layers: one for all of them with their parts, or one for each."""
    whole = block.parts[0]
    groups = [(layer,) for layer in block.layers] if unfolded else [block.layers]
    for layers in groups:
        many, open = len(layers) > 1, len(groups) == 1 or layers[0] in opened
        name = f"layers {ranges(layers)}" if many else f"layer {layers[0] + 1}"
        yield Line(
            "│ ", f"{'▾' if open else '▸'} {name}", f"{len(layers)} alike" if many else visible(whole.kind),
            f"× {len(layers)}" if many else "", whole.parameters * len(layers), whole.bytes * len(layers), whole,
            _path(block, layers, ""), layers, number, True, hooked=("stream before", "stream after"),
        )  # fmt: skip
        if open:
            yield from _parts(block, layers)


def _path(block: LayerBlock, layers: tuple[int, ...], below: str) -> str:
    number = str(layers[0]) if len(layers) == 1 else "*"
    return visible(".".join(filter(None, (block.prefix, number, below))))


def _parts(block: LayerBlock, layers: tuple[int, ...]) -> Iterator[Line]:
    """A layer's parts: each one that reads the stream branches off it, until the result is added."""
    direct = [part for part in block.parts if part.depth == 1]
    names = {part.path: label_of(part) for part in direct}
    known, branched = bool(block.sums), False
    for part in direct:
        if known:
            starts = part.reads == "stream"
            gutter = ("├─┤ " if branched else "├─╮ ") if starts else "│ │ "
            branched = branched or starts
        else:
            gutter = "│ ┊ "
        yield from _tree(block, part, layers, gutter)
        for total in block.sums:
            if total.after == part.path:
                place: HookPart = "stream after" if total is block.sums[-1] else "stream between"
                yield Line("⊕─╯ ", addition(total, names), layers=layers, hooked=(place,))
                branched = False
    if not known:
        yield Line("│   ", "how these are joined isn't known", layers=layers)


def _tree(block: LayerBlock, part: ModulePart, layers: tuple[int, ...], gutter: str) -> Iterator[Line]:
    """A direct part of a layer, and the modules in it."""
    holders: list[ModulePart] = []
    within = [each for each in block.parts if each is part or each.path.startswith(f"{part.path}.")]
    mixed = next((each.experts for each in within if each.experts), None)
    for each in within:
        holders = [holder for holder in holders if holder.depth < each.depth]
        label, says, own = label_of(each, holders[-1] if holders else None), description(each), each is part
        if own and mixed:
            label, says = "mixture of experts", f"{mixed.active} of {mixed.experts} for each token"
        yield Line(
            gutter if own else gutter.replace("├─╮", "│ │").replace("├─┤", "│ │"),
            "  " * (each.depth - 1) + label, says, shape_of(each),
            each.parameters * len(layers), each.bytes * len(layers), each, _path(block, layers, each.path), layers,
            strong=own, inside=part.role, hooked=_hooked(block, part, each, mixed is not None),
        )  # fmt: skip
        holders.append(each)


# ---- hooks ----------------------------------------------------------------------------------------

OWN: dict[Role, tuple[HookPart, ...]] = {
    "attention": ("scores", "pattern", "head", "attention"),
    "mlp": ("mlp",),
}
"""The hooks at a direct part of a layer, by its role."""
NAMED: dict[str, tuple[HookPart, ...]] = {
    "q_proj": ("queries",), "k_proj": ("keys",), "v_proj": ("values",),
    "qkv_proj": ("queries", "keys", "values"), "c_attn": ("queries", "keys", "values"),
    "gate_proj": ("gate",), "up_proj": ("up",), "gate_up_proj": ("gate", "up"), "c_fc": ("gate",),
    "down_proj": ("neurons",), "wpe": ("positions",),
}  # fmt: skip
"""The hooks at a module, by its attribute: for what it returns, or, at the last matrix of an MLP, what it is given."""


def _hooked(block: LayerBlock, part: ModulePart, each: ModulePart, mixed: bool) -> tuple[HookPart, ...]:
    """The hooks that are found at a module of a layer.

    Args:
        block: The block of the layer.
        part: A direct part of the layer.
        each: A module in that part, or the part itself.
        mixed: Whether the part has experts.
    """
    if each.norm is not None and each is part:
        readers = {other.role for other in block.parts if other.depth == 1 and other.reads == part.path}
        return ("first norm",) if "attention" in readers else ("second norm",) if "mlp" in readers else ()
    if mixed:
        mixes = each.experts is not None or each.name in ("gate", "router")
        return OWN["mlp"] if each is part else ("experts",) if mixes else ()
    if each.rope is not None and each.heads is None:
        return ("rope",)
    if each.name == "up_proj" and part.mlp is not None and not part.mlp.gated:
        return NAMED["gate_proj"]
    return OWN.get(part.role, ()) if each is part else NAMED.get(each.name, ())


# ---- names and descriptions, in words that a student understands --------------------------------

ROLES: dict[Role, str] = {
    "embedding": "embedding", "norm": "norm", "attention": "attention", "mlp": "MLP", "recurrence": "recurrence",
}  # fmt: skip
NAMES: dict[str, tuple[str, str]] = {
    "q_proj": ("queries", "what a head looks for"),
    "k_proj": ("keys", "what other tokens match"),
    "v_proj": ("values", "what a token passes on"),
    "o_proj": ("output", "mixes the heads' outputs"),
    "out_proj": ("output", "back to the stream's size"),
    "in_proj": ("input", "into the recurrence"),
    "qkv_proj": ("queries, keys, values", "in one matrix"),
    "c_attn": ("queries, keys, values", "in one matrix"),
    "gate_proj": ("gate", "gates each number"),
    "up_proj": ("up", "widens the vector"),
    "down_proj": ("down", "back to the stream's size"),
    "gate_up_proj": ("gate and up", "in one matrix"),
    "c_fc": ("up", "widens the vector"),
    "c_proj": ("output", "back to the stream's size"),
    "q_norm": ("norm of queries", ""),
    "k_norm": ("norm of keys", ""),
    "router": ("router", "scores each expert"),
    "shared_expert": ("shared expert", "every token goes through it"),
    "shared_experts": ("shared experts", "every token goes through them"),
    "wpe": ("positions", "a vector for each position"),
}
"""Names and purposes of modules, by their attribute. Others are named by the attribute."""


def label_of(part: ModulePart, parent: ModulePart | None = None) -> str:
    """The name of a part; printable.

    Args:
        part: The part.
        parent: The part that contains it.
    """
    if part.rope is not None and part.heads is None:
        return "RoPE"
    if part.experts is not None:
        return "experts"
    routes = part.name in ("gate", "router") and part.role != "norm"
    if routes and parent is not None and parent.role == "mlp":
        return "router"
    if part.name in NAMES:
        return NAMES[part.name][0]
    plain = part.depth == 1 or part.role in ("embedding", "norm") or part.heads is not None
    return ROLES.get(part.role, visible(part.name)) if plain and part.name else visible(part.name)


def description(part: ModulePart) -> str:
    """A part in a few words; printable."""
    packed = next((array for array in part.arrays if array.bits is not None), None)
    bits = f"{packed.bits} bits in groups of {packed.group_size}" if packed is not None else ""
    return " · ".join(filter(None, (_does(part), bits)))


def _does(part: ModulePart) -> str:
    if part.heads is not None:
        turned = f", RoPE {rope_words(part.rope)}" if part.rope is not None else ""
        return heads_words(part.heads) + turned
    if part.rope is not None:
        return rope_words(part.rope)
    if part.norm is not None:
        return f"{part.norm.kind}, eps {part.norm.eps:.3g}"
    mlp = ""
    if (facts := part.mlp) is not None:
        sizes = [part.given[-1:], (facts.inner,), part.returned[-1:]]
        way = " → ".join(f"{size[0]:,}" for size in sizes if size)
        mlp = ", ".join(filter(None, (visible(facts.activation) or "gated" * facts.gated, way)))
    if part.experts is not None:
        return f"{part.experts.experts}{f', each {mlp}' if mlp else ''}"
    if facts is not None:
        return mlp
    if part.role == "embedding" and part.name not in NAMES:
        return f"{part.arrays[0].shape[-1]:,} numbers for each token" if part.arrays else ""
    if part.role == "recurrence" and part.depth == 1:
        return "a state, no keys, no values"
    return NAMES.get(part.name, ("", ""))[1]


def heads_words(facts: HeadFacts) -> str:
    """The heads of an attention in words."""
    words = [f"{facts.heads} heads of {facts.key_size}" if facts.key_size else f"{facts.heads} heads"]
    if 0 < facts.kv_heads < facts.heads:
        words.append(f"{facts.kv_heads} KV heads" if facts.kv_heads > 1 else "1 KV head")
    if facts.window is not None:
        words.append(f"window {facts.window:,}")
    if facts.sinks:
        words.append("sinks")
    return ", ".join(words)


def rope_words(facts: RopeFacts) -> str:
    """A rotary position embedding in words."""
    base = f"theta {facts.base:,.10g}" if facts.base is not None else "a table of its own"
    stretched = ", stretched by a table" if facts.table and facts.base is not None else ""
    scaled = f", scale {facts.scale:.3g}" if facts.scale != 1 else ""
    return f"{base}, {facts.dims} of a head{stretched}{scaled}"


def shape_of(part: ModulePart) -> str:
    """The shape of a part's weight; for a matrix, from how many numbers to how many."""
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
    """A shape as text: `3 × 64`."""
    return " × ".join(f"{number:,}" for number in numbers)


def addition(total: LayerSum, names: dict[str, str]) -> str:
    """A sum of a layer in words.

    Args:
        total: The sum.
        names: The names of the layer's parts, by path.
    """
    scaled = [f" × {factor:.3g}" if factor != 1 else "" for factor in total.factors]
    if len(scaled) == 1:
        return f"added to the stream{scaled[0].replace(' ', ', ', 1)}"
    parts = (
        names.get(path, visible(path)) + factor for path, factor in zip(total.parts, scaled, strict=True)
    )
    return f"{' and '.join(parts)} added"


def ranges(numbers: Sequence[int]) -> str:
    """Layers counted from 1: `1 to 3, 5`."""
    spans: list[tuple[int, int]] = []
    for each in numbers:
        if spans and each == spans[-1][1] + 1:
            spans[-1] = spans[-1][0], each
        else:
            spans.append((each, each))
    return ", ".join(f"{a + 1} to {b + 1}" if a < b else f"{a + 1}" for a, b in spans)


# ---- what a module is for -----------------------------------------------------------------------

EXPLAINED = {
    "token": "A token is a number, its id. Everything below turns it into a score for each token that could come next.",
    "embedding": "A table with a vector for each token. The token's vector is where its residual stream begins.",
    "layer": "A layer reads the residual stream and adds to it, but never replaces it: what an early layer wrote is "
    "there for all that come after.",
    "norm": "Brings the numbers of the stream to one scale before a part reads them. The stream itself is unchanged.",
    "attention": "Where tokens meet: a head compares this token's query with the keys of the tokens so far, and reads "
    "a mixture of their values.",
    "keys": "Compared with the queries of all later tokens. The KV cache holds them: computed once, read at each step.",
    "values": "What heads read of a token that they look at. The KV cache holds them, as it holds the keys.",
    "rope": "Rotates pairs of numbers in queries and keys by an angle that grows with the position, so that a head can "
    "tell how far back a token is. A larger theta makes the slow pairs slower.",
    "mlp": "Works on each token by itself: widens the vector, applies an activation, and narrows it again.",
    "experts": "Several MLPs, of which a router picks a few for each token: all are held in memory, few are computed.",
    "recurrence": "Keeps a state of fixed size that mixes all tokens so far, instead of keys and values for each.",
    "added": "The residual stream continues past this: what the part computed is added to it, number by number.",
    "head": "Compares the stream with a vector for each token: the products are the logits.",
    "logits": "Their softmax gives the probabilities that the main screen shows.",
}
"""The purpose of each sort of module."""


# ---- the document -------------------------------------------------------------------------------

MOST = 400
"""Maximum rows on a page: a model whose layers all differ has many."""
COLUMNS = (
    Column("module", least=18), Column("what it is", tone="muted", priority=4, least=26), Column("shape", priority=1),
    number("params"), number("bytes", 1, "muted"),
)  # fmt: skip
SHARES = (number("share", 3), Column(cells=(6, 40), priority=2, top=1.0))


def sums(read: ModelModules) -> str:
    """The parameters, bytes and layers of the model."""
    return f"{count(read.parameters)} parameters, {size(read.bytes)} of weights, {read.depth} layers"


def document(read: ModelModules, most: int | None = None) -> Iterator[Block]:
    """A row for each module on a token's way, then the modules with hooks, by their names in TransformerLens.

    Args:
        read: The modules.
        most: Maximum number of rows; None for all.
    """
    found = lines(read)
    yield sentence(f"{sums(read)}. Figures for repeated layers are totals.")
    yield Table(COLUMNS, [TableRow(_cells(line)) for line in found[:most]])
    hooked = [TableRow((line.path or line.label, line.hooks)) for line in found[:most] if line.hooks]
    yield Table((Column("path"), Column("hooks in TransformerLens")), hooked)
    if most is not None and len(found) > most:
        yield sentence(f"{count(len(found) - most)} more are left out.")


def listing(read: ModelModules, found: Sequence[Line], at: int) -> Table:
    """The modules for a panel, each with its share of the parameters instead of its hooks.

    Args:
        read: The modules.
        found: The lines that are not folded.
        at: The index of the selected line.
    """

    def row(line: Line) -> TableRow:
        name, says, *numbers = _cells(line)
        if line.part is None and line.layers:
            return TableRow((sentence((Text(line.gutter, "primary"), line.label), tone="muted"),))
        if not line.parameters and not line.shape:
            return TableRow((name, sentence(line.says, tone="muted")))
        share = line.parameters / read.parameters if read.parameters else 0.0
        percent = "<0.1 %" if 0 < share < 0.001 else f"{share * 100:.1f} %"
        return TableRow((name, says, *numbers, percent if line.parameters else "", Bar(share)))

    return Table((*COLUMNS, *SHARES), [*map(row, found)], at)


def _cells(line: Line) -> tuple[Cell, ...]:
    name = Text(line.label, "strong" if line.strong else "", gutter=line.gutter)
    numbers = amount(line.parameters) if line.parameters else "", size(line.bytes) if line.bytes else ""
    return name, line.says, line.shape, *numbers


def about(line: Line, opens: Sequence[str] = ()) -> Iterator[Block]:
    """A module: its path, its purpose, its hooks, and its arrays and shapes.

    Args:
        line: The module's line.
        opens: What Enter shows, the longest form first; empty for nothing.
    """
    kind = f"  {visible(line.part.kind)}" if line.part is not None else ""
    title = [Text(line.path or line.label, "strong"), Text(kind, "muted")]
    ways = ((Text("  ⏎ " if each else "", "accent"), Text(each, "muted")) for each in opens or ("",))
    yield sentence(*((*title, *way) for way in ways))
    yield from sentences([EXPLAINED.get(line.sort, "")], "")
    yield from sentences([f"hooks: {line.hooks}" if line.hooks else "", _facts(line)])


def _facts(line: Line) -> str:
    """The arrays, the parameters of each layer, and the shapes for one token."""
    part = line.part
    if part is None:
        return line.says
    arrays = ", ".join(
        f"{visible(array.name)} {times(array.shape)} {visible(array.dtype)}"
        + (f" ({array.bits} bits, groups of {array.group_size}, {visible(array.mode)})" if array.bits else "")
        for array in part.arrays
    )
    each = f"{count(part.parameters)} parameters{' in each layer' * (len(line.layers) > 1)}"
    way = f"{times(part.given)} → {times(part.returned)} for a token" if part.given and part.returned else ""
    return " · ".join(filter(None, (arrays, each, way)))


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    """The modules of the session's model, and of the second one."""
    answers, opened = of.timeline.of(Answers), of.timeline.of(SecondModelSoFar).described
    for facts, which in ((of.timeline.facts, ""), (opened.facts if opened else None, " (second model, B)")):
        key = (facts.path, facts.weight_bytes) if facts is not None else None
        if isinstance(read := answers.get(ModelModules, (False, key)), ModelModules):
            make = partial(elements, [*document(read, MOST)], tables="plain map")
            yield Exhibit("map", f"What the model is made of{which}", make)


MODULES_PART = ExportPart("map", _exhibits)
