"""Activation patching: the activations of another path put in place by place, and the map of what that restores."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style

from engine.frozen import frozen
from engine.protocol import ActivationsPatched, Candidate, Command, PatchActivations, PatchKind, Step
from engine.tree import common_prefix
from inspector.display import pad, quoted, token_label, token_text, truncate
from inspector.keys import key_for
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.scales import count
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.interventions.tool import PATCHING_SCREEN, SwitchControl, step_of
from inspector.tools.interventions.unit_map import NOTHING, figure, glyph, ground
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, wrapped


class PatchingScreen(InsideScreen[ActivationsPatched]):
    """Activations of another path, put into this one.

    Args:
        host: The main screen.
        control: What is chosen, and what is known.
    """

    TOOL: ClassVar[str] = "interventions"
    ACTIONS: ClassVar[ActionTable] = PATCHING_SCREEN

    def __init__(self, host: Host, control: SwitchControl) -> None:
        super().__init__(host, control.patched)
        self.control = control
        self._layer: int | None = None
        self._column: int | None = None
        """Places of the cursor; None for the largest share."""
        self._known: tuple[int, int, list[PatchSource]] = (-1, -1, [])

    # ---- asking ---------------------------------------------------------------------------------

    @property
    def sources(self) -> list[PatchSource]:
        """The paths whose activations can be taken."""
        now = self.node, len(self.timeline.tree.nodes)
        if now != self._known[:2]:
            self._known = *now, sources(self.timeline, self.node) if self.path else []
        return self._known[2]

    @property
    def _source(self) -> PatchSource | None:
        found = self.sources
        chosen = next((each for each in found if each.node == self.control.source), None)
        return chosen or next(iter(found), None)

    def question(self) -> tuple[Hashable, Command]:
        source, part = self._source, self.control.part
        end = source.node if source is not None else self.node
        both = pair(after(self.timeline, self.node), after(self.timeline, end))
        token, other = both or (0, 0)
        return (self.node, end, part), PatchActivations(self.node, end, token, other, part)

    def ask(self) -> None:
        """See `InsideScreen`; only where there is a source, and tokens that tell it apart."""
        source = self._source
        if source is not None and pair(after(self.timeline, self.node), after(self.timeline, source.node)):
            super().ask()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: ActivationsPatched | None) -> str:
        return f"Activation patching: {NAMES[self.control.part]} put in from another path"

    def _words(self, source: PatchSource) -> str:
        found = self.sources
        place = f" ({[each.node for each in found].index(source.node) + 1} of {len(found)})"
        words = difference(self.path, self.timeline.tree.path(source.node))
        return f"{count(source.tokens)} tokens{place if len(found) > 1 else ''}, “{words}”"

    def draw(self, answer: ActivationsPatched, on: Canvas, width: int, height: int) -> list[Row]:
        source = self._source
        words = self._words(source) if source is not None else f"node {answer.source}"
        return page(on, answer, *self._cursor(answer), words, width, height)

    def _instead(self, on: Canvas, answer: ActivationsPatched | None) -> list[tuple[str, Style]]:
        source = self._source
        if answer is None and self.path and not self.host.controller.transport.recorded:
            if source is None:
                return [
                    ("Activations come from another prompt or branch with as many tokens.", on.rich_style),
                    (
                        (
                            f"There is none: press esc, then {key_for('prompt')}, and give this prompt with a word "
                            "changed."
                        ),
                        on.ink("muted"),
                    ),
                ]
            if pair(after(self.timeline, self.node), after(self.timeline, source.node)) is None:
                return [
                    ("What one of both paths predicts isn't known here.", on.rich_style),
                    (
                        f"Choose another token with ← →, or another source with {key_for('patching.source')}.",
                        on.ink("muted"),
                    ),
                ]
        said = super()._instead(on, answer)
        return [*said, (f"Source: {self._words(source)}", on.ink("muted"))] if source is not None else said

    def _cursor(self, answer: ActivationsPatched) -> tuple[int, int]:
        """Layer and column; at first the largest share of a position before the last, where all ends up."""
        layers, columns = len(answer.layers), len(answer.columns)
        if self._layer is None or self._column is None:
            places = [(row, at) for row in range(layers) for at in range(max(1, columns - 1))]
            return max(places, key=lambda place: answer.shares.row(place[0])[place[1]])
        return max(0, min(layers - 1, self._layer)), max(0, min(columns - 1, self._column))

    # ---- keys -----------------------------------------------------------------------------------

    def move_cursor(self, layers: int, columns: int) -> None:
        """Look at another layer, or at another position."""
        if (answer := self.answer) is not None and not self._failed(answer):
            layer, column = self._cursor(answer)
            self._layer = max(0, min(len(answer.layers) - 1, layer + layers))
            self._column = max(0, min(len(answer.columns) - 1, column + columns))

    def change_source(self) -> None:
        """Take the next source."""
        found = [each.node for each in self.sources]
        if (source := self._source) is not None:
            self.control.source = found[(found.index(source.node) + 1) % len(found)]
            self._layer = self._column = None

    def change_part(self) -> None:
        """Put in what another part returns."""
        parts = [*NAMES]
        self.control.part = parts[(parts.index(self.control.part) + 1) % len(parts)]


# ---- where activations come from, and which tokens are followed ---------------------------------

LIKELY = 5
"""Ranks of the tokens whose logits may be followed."""


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
    """The candidates after a token, as far as they are known; empty where none are."""
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


# ---- the page -----------------------------------------------------------------------------------

LABEL = 5
"""Cells of a layer's name."""
WIDE = 100
CELL, WIDEST = 5, 9
"""Cells of a position from which on it has numbers, and at most."""
EDGES = (0.05, 0.2, 0.4, 0.6, 0.8)
NAMES: dict[PatchKind, str] = {
    "layer": "whole layers",
    "attention": "attentions",
    "mlp": "MLPs",
}
"""The parts whose activations can be put in, in the order in which a key goes through them."""
_WORDS = (
    "Each cell: one layer at one position computes what it did in the source, all else runs as here. "
    "Where the share is near 1, what makes the difference is carried there; near 0 it isn't, or is elsewhere, too. "
    "Below 0 it goes the other way."
)


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
