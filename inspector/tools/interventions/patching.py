"""The page of activation patching: what is put in, from where, and the map of what that restores."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from engine.frozen import frozen
from engine.protocol import ActivationsPatched, Candidate, PatchKind, Step
from engine.tree import common_prefix
from inspector.display import pad, quoted, token_label, token_text, truncate
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.interventions.measures import NOTHING, figure, glyph, ground, step_of
from inspector.widgets.canvas import Canvas, Row, wrapped

LABEL = 5
"""Cells of a layer's name."""
WIDE = 100
CELL, WIDEST = 5, 9
"""Cells of a position from which on it has numbers, and at most."""
LIKELY = 5
"""Ranks of the tokens whose logits may be followed."""
EDGES = (0.05, 0.2, 0.4, 0.6, 0.8)
NAMES: dict[PatchKind, str] = {
    "layer": "whole layers",
    "attention": "attentions",
    "mlp": "MLPs",
}
"""What is put in."""


@frozen
class PatchSource:
    """A path whose activations may be put into another."""

    node: int
    """Its last token."""
    tokens: int


def sources(timeline: Timeline, node: int) -> list[PatchSource]:
    """The paths that activations may come from: first those as long as that to a node, then other prompts and ends.

    Args:
        timeline: With the tree.
        node: The end of the path that is changed.
    """
    tree, position = timeline.tree, timeline.tree.nodes[node].position
    own = {item.node for item in (*tree.path(node), *timeline.items)}
    ends = {read.opened.tokens[-1].node for read in timeline.prompts.by_end.values() if read.opened.tokens}
    found = [
        PatchSource(each, item.position + 1)
        for each, item in tree.nodes.items()
        if (item.position == position or each in ends or not tree.children.get(each))
        and each not in own
        and not (isinstance(item, Step) and item.origin == "intervened")
    ]
    return sorted(found, key=lambda source: (source.tokens != position + 1, source.node))


def difference(path: Sequence[Item], other: Sequence[Item]) -> str:
    """The tokens of another path from a little before it parts; printable."""
    parted = common_prefix((item.node for item in path), (item.node for item in other))
    begin = max(0, parted - 2)
    text = "".join(token_text(item.text, item.raw) for item in other[begin:])
    return f"{'…' if begin else ''}{text}"


def after(timeline: Timeline, node: int) -> Sequence[Candidate]:
    """What is known of the candidates after a token; empty where nothing is."""
    item = timeline.tree.nodes[node]
    if isinstance(item, Step):
        return item.next.candidates
    read = timeline.prompts.by_end.get(node)
    if read is not None and read.prefilled is not None:
        return read.prefilled.next.candidates
    for child in timeline.tree.children.get(node, ()):
        later = timeline.tree.nodes[child]
        found = later.choice.candidates if isinstance(later, Step) else later.candidates
        if found:
            return found
    return ()


def pair(own: Sequence[Candidate], source: Sequence[Candidate]) -> tuple[int, int] | None:
    """Two tokens that tell both paths apart: the one that the source favours most, and the one that this path does.

    Args:
        own: Candidates after the path that is changed.
        source: Those after the other.

    Returns:
        Their ids; None where nothing is known.
    """
    here = {each.id: each.logprob for each in own}
    gains = {each.id: each.logprob - here[each.id] for each in source if each.id in here}
    likely = {each.id for each in (*own, *source) if each.rank <= LIKELY} & gains.keys()
    if len(likely) < 2:
        first, last = ([each.id for each in side if each.rank == 1][:1] for side in (source, own))
        return (first[0], last[0]) if first and last and first != last else None
    return max(likely, key=gains.__getitem__), min(likely, key=gains.__getitem__)


def page(
    on: Canvas, answer: ActivationsPatched, layer: int, column: int, chosen: str, width: int, height: int
) -> list[Row]:
    """All of it.

    Args:
        on: Where it is drawn.
        answer: Its checks passed.
        layer: Place of the cursor among the layers.
        column: Place of the cursor among the positions.
        chosen: The source in words.
        width: Cells.
        height: Rows.
    """
    token, other = (quoted(token_label(text)) for text in (answer.text, answer.other_text))
    followed = f"{answer.difference:+.2f} here, {answer.source_difference:+.2f} in the source"
    less = f"the logit of {token} less that of {other}" if width >= WIDE else f"{token} - {other}"
    said = [truncate(f"Source: {chosen}", width), f"Followed: {less}: {followed}."]
    top: list[Row] = [[Segment(line)] for text in said for line in wrapped(text, width)]
    cell = [
        [Segment(line, on.ink("strong"))]
        for line in wrapped(_cell_words(answer, layer, column, width), width)
    ]
    words: list[Row] = [[Segment(line, on.ink("muted"))] for line in wrapped(_WORDS, width)]
    if height < 9:
        return [*_map(on, answer, layer, column, width, max(3, height - 2)), *cell, *top, *words]
    room = height - len(top) - len(cell) - 1
    mapped = _map(on, answer, layer, column, width, max(3, min(room, len(answer.layers) + 2)))
    return [*top, *mapped, _legend(on, width, _cell(answer, width) < CELL), *cell, *words]


_WORDS = (
    "Each cell: one layer at one position computes what it did in the source, all else runs as here. "
    "Where the share is near 1, what makes the difference is carried there; near 0 it isn't, or is elsewhere, too. "
    "Below 0 it goes the other way."
)


def _cell(answer: ActivationsPatched, width: int) -> int:
    """Cells of a position: with numbers, unless that leaves most of many positions out of sight."""
    each = (width - LABEL) // len(answer.columns)
    return max(CELL, min(WIDEST, each)) if each >= 2 else 2


def _map(
    on: Canvas, answer: ActivationsPatched, layer: int, column: int, width: int, height: int
) -> list[Row]:
    """The tokens over the columns, and as many layers as fit, upwards."""
    count = len(answer.columns)
    cell = _cell(answer, width)
    fit = max(1, (width - LABEL) // cell)
    begin = max(0, min(column - fit // 2, count - fit))
    shown = range(begin, min(count, begin + fit))
    depth, lines = len(answer.layers), max(1, height - 2)
    first = max(0, min(layer - lines // 2, depth - lines))
    rows = _heads(on, answer, column, cell, shown)
    for place in range(min(depth, first + lines) - 1, first - 1, -1):
        ink = on.ink("strong" if place == layer else "muted")
        row: Row = [Segment(pad(f"L{answer.layers[place] + 1}", LABEL), ink)]
        shares = answer.shares.row(place)
        for at in shown:
            step = step_of(shares[at], EDGES)
            text = figure(shares[at], cell - 1, False) if cell >= CELL else glyph(on, step) * 2
            sign = "-" if cell >= CELL and shares[at] < 0 and text != NOTHING else ""
            here = (place, at) == (layer, column)
            marked = (
                Style(reverse=True, bold=True) if here else Style()
            )  # the cursor's own orange is a share's here
            style = on.rich_style + ground(on, step) + marked
            row.append(Segment((sign + text).rjust(cell)[-cell:], style))
        rows.append(row)
    return rows


def _heads(on: Canvas, answer: ActivationsPatched, column: int, cell: int, shown: Sequence[int]) -> list[Row]:
    """This path's tokens, and the source's where they differ."""
    here: Row = [Segment(pad("here", LABEL), on.ink("muted"))]
    there: Row = [Segment(pad("src", LABEL), on.ink("muted"))]
    for at in shown:
        each = answer.columns[at]
        ink = on.ink("strong" if at == column else "muted")
        own, other = token_label(each.text), token_label(each.source_text)
        here.append(Segment(pad(truncate(own, cell - 1), cell, right=True), ink))
        there.append(
            Segment(
                pad("" if each.id == each.source_id else truncate(other, cell - 1), cell, right=True), ink
            )
        )
    return [here, there]


def _legend(on: Canvas, width: int, glyphs: bool) -> Row:
    says = "Share of the difference restored: " if width >= 76 else "Share: "
    row: Row = [Segment(says, on.ink("muted"))]
    for step, edge in enumerate(EDGES, 1):
        row.append(
            Segment(
                f" {glyph(on, step).strip() if glyphs else ''}{edge:g} ", on.rich_style + ground(on, step)
            )
        )
    row.append(Segment(f" {glyph(on, -3).strip() if glyphs else ''}below 0 ", on.rich_style + ground(on, -3)))
    return row


def _cell_words(answer: ActivationsPatched, layer: int, column: int, width: int) -> str:
    """The cell under the cursor in a sentence."""
    each = answer.columns[column]
    share = answer.shares.row(layer)[column]
    token, there = token_label(each.text), token_label(each.source_text)
    source = quoted(there) if there != token else "the same token"
    if width < WIDE:
        return (
            f"L{answer.layers[layer] + 1}, token {each.position + 1} {quoted(token)}: {share:+.2f} restored."
        )
    return (
        f"L{answer.layers[layer] + 1} at token {each.position + 1}, {quoted(token)} (source: {source}): "
        f"{share:+.2f} of the difference is restored."
    )
