"""The modules of a model as lines of a page: the way of a token from the top down, beside the residual stream."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from engine.frozen import frozen
from engine.protocol import LayerBlock, ModelModules, ModulePart
from inspector.display import visible
from inspector.tools.modules import words


@frozen
class Line:
    """One line of the page."""

    gutter: str
    """The stream, and what branches off it."""
    label: str
    says: str = ""
    shape: str = ""
    parameters: int = 0
    """Of all the layers that the line stands for together."""
    bytes: int = 0
    part: ModulePart | None = None
    path: str = ""
    """Whole; `*` for the number of a folded layer."""
    layers: tuple[int, ...] = ()
    """That the line stands for."""
    block: int | None = None
    """For the line of a layer, or of several: the number of its block."""
    strong: bool = False
    inside: str = ""
    """What direct part of a layer it belongs to: its role."""

    @property
    def sort(self) -> str:
        """Which of the explanations fits it."""
        if self.block is not None:
            return "layer"
        joined = self.gutter.startswith("⊕")
        return "added" if joined else words.sort_of(self.part, self.inside, self.label.strip())


def lines(modules: ModelModules, unfolded: Collection[int] = (), opened: Collection[int] = ()) -> list[Line]:
    """The page.

    Args:
        modules: Of the loaded model.
        unfolded: Blocks whose layers are shown one by one.
        opened: Layers of those whose parts are shown.
    """
    found = [Line("● ", "token", f"its id, one of {modules.vocabulary:,}", strong=True)]
    found += [_outside(part, modules) for part in modules.before]
    for number, block in enumerate(modules.blocks):
        found += _block(number, block, number in unfolded, opened)
    found += [_outside(part, modules) for part in modules.after]
    found += _end(modules)
    found += [_outside(part, modules, gutter="  ", more="loaded, not run by text") for part in modules.unused]
    return found


def _outside(part: ModulePart, modules: ModelModules, gutter: str = "│ ", more: str = "") -> Line:
    """A module before or after the layers."""
    label = words.label(part)
    if part.path == modules.head and part.role != "embedding":
        label, more = "head", "a logit for each token"
    elif part.norm is not None and part in modules.after:
        label = "final norm"
    said = " · ".join(text for text in (words.says(part), more) if text)
    return Line(
        gutter,
        label,
        said,
        words.shape(part),
        part.parameters,
        part.bytes,
        part,
        visible(part.path),
        strong=True,
    )


def _end(modules: ModelModules) -> Iterator[Line]:
    if modules.tied:
        yield Line(
            "│ ", "head", "the embedding's (tied)", f"{modules.hidden_size:,} → {modules.vocabulary:,}",
            path=visible(modules.head), strong=True,
        )  # fmt: skip
    elif not modules.head:
        yield Line("│ ", "head", "not a module of its own", strong=True)
    yield Line("▼ ", "logits", "a score for each token", strong=True)


# ---- layers -------------------------------------------------------------------------------------


def _block(number: int, block: LayerBlock, unfolded: bool, opened: Collection[int]) -> Iterator[Line]:
    many = len(block.layers) > 1
    if not (many and unfolded):
        yield _header(number, block, block.layers, "▾")
        yield from _parts(block, block.layers)
        return
    for layer in block.layers:
        yield _header(number, block, (layer,), "▾" if layer in opened else "▸")
        if layer in opened:
            yield from _parts(block, (layer,))


def _header(number: int, block: LayerBlock, layers: tuple[int, ...], mark: str) -> Line:
    many = len(layers) > 1
    name = f"layers {words.ranges(layers)}" if many else f"layer {layers[0] + 1}"
    whole = block.parts[0]
    return Line(
        "│ ", f"{mark} {name}", f"{len(layers)} alike" if many else visible(whole.kind),
        f"× {len(layers)}" if many else "", whole.parameters * len(layers), whole.bytes * len(layers), whole,
        _path(block, layers, ""), layers, number, True,
    )  # fmt: skip


def _path(block: LayerBlock, layers: tuple[int, ...], below: str) -> str:
    number = str(layers[0]) if len(layers) == 1 else "*"
    return visible(".".join(part for part in (block.prefix, number, below) if part))


def _parts(block: LayerBlock, layers: tuple[int, ...]) -> Iterator[Line]:
    """A layer's parts: each that reads the stream branches off it, until what it led to is added."""
    direct = [part for part in block.parts if part.depth == 1]
    names = {part.path: words.label(part) for part in direct}
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
                yield Line("⊕─╯ ", words.added(total, names), layers=layers)
                branched = False
    if not known:
        yield Line("│   ", "how these are joined isn't known", layers=layers)


def _tree(block: LayerBlock, part: ModulePart, layers: tuple[int, ...], gutter: str) -> Iterator[Line]:
    """A direct part with what is in it."""
    holders: list[ModulePart] = []
    for each in _within(block.parts, part):
        holders = [holder for holder in holders if holder.depth < each.depth]
        parent = holders[-1] if holders else None
        own = each is part
        mixed = (
            next((inner.experts for inner in _within(block.parts, part) if inner.experts), None)
            if own
            else None
        )
        label = "mixture of experts" if mixed else words.label(each, parent)
        yield Line(
            gutter if own else gutter.replace("├─╮", "│ │").replace("├─┤", "│ │"),
            "  " * (each.depth - 1) + label,
            f"{mixed.active} of {mixed.experts} for each token" if mixed else words.says(each), words.shape(each),
            each.parameters * len(layers), each.bytes * len(layers), each,
            _path(block, layers, each.path), layers, strong=own, inside=part.role,
        )  # fmt: skip
        holders.append(each)


def _within(parts: Sequence[ModulePart], part: ModulePart) -> Iterator[ModulePart]:
    """A part, and those in it."""
    return (each for each in parts if each is part or each.path.startswith(f"{part.path}."))
