"""Activation patching: the activations of another path put in place by place, and the map of what that restores."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.frozen import frozen
from engine.protocol import (
    ActivationsPatched,
    Candidate,
    Command,
    MoveTo,
    PatchActivations,
    Prefill,
    Prefilled,
    PromptOpened,
    Step,
)
from engine.tree import facing
from inspector.display import pad, quoted, token_label, token_text, truncate, visible
from inspector.keys import key_for
from inspector.main.inside.screen import TITLED, InsideScreen, part_shown
from inspector.main.tool import Host
from inspector.scales import count
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.interventions.cells import NOTHING, figure, glyph, ground
from inspector.tools.interventions.evidence import NAMES, difference
from inspector.tools.interventions.tool import PATCHING_SCREEN, SwitchControl, step_of
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, wrapped


class PatchingScreen(InsideScreen[ActivationsPatched]):
    """Activations of another path, put into this one.

    Args:
        host: The main screen.
        control: What is chosen, and what is known.
    """

    TOOL: ClassVar[str] = "interventions"
    OF_BOTH: ClassVar[bool] = False
    ACTIONS: ClassVar[ActionTable] = PATCHING_SCREEN

    @property
    def opener(self) -> str:
        """A page of its own."""
        return "patching"

    def __init__(self, host: Host, control: SwitchControl) -> None:
        super().__init__(host, control.patched)
        self.control = control
        self._layer: int | None = None
        self._column: int | None = None
        """Places of the cursor; None for the largest share."""
        self._reading = False
        """Whether a counterfactual prompt is being read: the session is at it, and not at the path on show."""
        self._said = ""
        """Why the last one could not be read; printable."""
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
        if self._reading:
            return
        source = self._source
        if source is not None and pair(after(self.timeline, self.node), after(self.timeline, source.node)):
            super().ask()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: ActivationsPatched | None) -> str:
        long = f"Activation patching: {NAMES[self.control.part]} put in from another path"
        short = f"Patching: {NAMES[self.control.part]} from another path"
        return long if cell_len(long) <= self.area.width - TITLED else short

    def _words(self, source: PatchSource) -> str:
        found = self.sources
        place = f" ({[each.node for each in found].index(source.node) + 1} of {len(found)})"
        words = difference(self.path, self.timeline.tree.path(source.node))
        return f"{count(source.tokens)} tokens{place if len(found) > 1 else ''}, “{words}”"

    def draw(self, answer: ActivationsPatched, on: Canvas, width: int, height: int) -> list[Row]:
        source = self._source
        words = self._words(source) if source is not None else f"node {answer.source}"
        aligned = ""
        if answer.shift and answer.source in self.timeline.tree.nodes:
            aligned = alignment(self.path, self.timeline.tree.path(answer.source), width)
        return page(on, answer, *self._cursor(answer), words, aligned, width, height)

    def _instead(self, on: Canvas, answer: ActivationsPatched | None) -> list[tuple[str, Style]]:
        source = None if self._reading else self._source
        if answer is None and self.path and not self._reading and not self.host.controller.transport.recorded:
            if source is None:
                return [
                    ("Activations come from another prompt or branch.", on.rich_style),
                    (
                        f"There is none yet: {key_for('patching.edit')} edits this text; change a word of it.",
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
        if self._reading:
            return [("The counterfactual prompt is being read.", on.rich_style)]
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

    def situation(self) -> str:
        """See `InsideScreen`; or why there is no counterfactual prompt."""
        return self._said or super().situation()

    def edit(self) -> None:
        """Edit the text on show as the prompt whose activations are put in."""
        from inspector.tools.interventions.counterfactual import CounterfactualDialog, text_of, typable

        if self.host.controller.transport.recorded or self._reading or not self.path:
            return
        text = text_of(self.timeline, self.path)
        if not typable(text):
            self._said = (
                "The text is too long to be edited. Give another prompt on the main screen: it is a source."
            )
            self.changed()
            return
        lookup = Latest(self.host.controller.client)
        self.host.open(CounterfactualDialog(text, [item.id for item in self.path], lookup), self._read)

    def _read(self, text: str | None) -> None:
        """Have another prompt read, and come back to the path on show."""
        if text is None:
            return
        client, timeline = self.host.controller.client, self.timeline
        tip, slot = timeline.tip, None if timeline.following else timeline.slot
        self._reading, self._said = True, ""
        self.drop()

        def read(request: Request[Prefill]) -> None:
            opened = request.reply(PromptOpened)
            if request.failure is not None:
                self._said = visible(f"{request.failure.message} {request.failure.hint}".rstrip())
            elif opened is not None and request.reply(Prefilled) is not None:
                self.control.source = opened.tokens[-1].node
                self._layer = self._column = None
            if opened is None:
                came_back()
                return
            if slot is not None:
                timeline.expect(slot)
            client.request(MoveTo(tip), came_back)

        def came_back(request: Request[MoveTo] | None = None) -> None:
            self._reading = False
            self.host.changed()
            self.changed()

        client.do(Prefill(text, False, echo=False), read)

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


def alignment(path: Sequence[Item], source: Sequence[Item], width: int) -> str:
    """How the tokens of two paths of other lengths face each other, and what lies between that faces none.

    Args:
        path: The one that is changed.
        source: The other one.
        width: Cells of a row.
    """
    first, end = facing([item.id for item in path], [item.id for item in source])
    shift = len(source) - len(path)
    later = f"{abs(shift):,} place{'s' * (abs(shift) != 1)} {'later' if shift > 0 else 'earlier'}"
    own, other = (_between(side[first : len(side) - end], max(8, width // 4)) for side in (path, source))
    return (
        f"Aligned: the first {first:,} tokens, and the last {end:,}, which the source has {later}. "
        f"Between them {own} here and {other} there face no token: nothing is put in."
    )


def _between(items: Sequence[Item], cells: int) -> str:
    """What faces no token, in words."""
    if not items:
        return "nothing"
    text = "".join(token_text(item.text, item.raw) for item in items)
    return f"{quoted(truncate(text, cells))} ({count(len(items))})"


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
GAP = "┆"
"""Before a column in whose front tokens that face none are left out."""
EDGES = (0.05, 0.2, 0.4, 0.6, 0.8)
_WORDS = (
    "Each cell: one layer at one position computes what it did in the source, all else runs as here. "
    "Where the share is near 1, what makes the difference is carried there; near 0 it isn't, or is elsewhere, too. "
    "Below 0 it goes the other way."
)


def page(
    on: Canvas,
    answer: ActivationsPatched,
    layer: int,
    column: int,
    chosen: str,
    aligned: str,
    width: int,
    height: int,
) -> list[Row]:
    """All of it.

    Args:
        on: Where it is drawn.
        answer: Its checks passed.
        layer: Place of the cursor among the layers.
        column: Place of the cursor among the positions.
        chosen: The source in words.
        aligned: How the tokens of two paths of other lengths face each other; empty where both are as long.
        width: Cells.
        height: Rows.
    """
    token, other = (quoted(token_label(text)) for text in (answer.text, answer.other_text))
    followed = f"{answer.difference:+.2f} here, {answer.source_difference:+.2f} in the source"
    less = f"the logit of {token} less that of {other}" if width >= WIDE else f"{token} - {other}"
    said = [
        truncate(f"Source: {chosen}", width),
        f"Followed: {less}: {followed}.",
        *([aligned] if aligned else []),
    ]
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
    hidden = len(shown) < count or lines < depth
    lines -= hidden and lines > 1
    first = max(0, min(layer - lines // 2, depth - lines))
    rows = _heads(on, answer, column, cell, shown)
    seen = range(first, min(depth, first + lines))
    if hidden and height > 3:
        said = part_shown(width, ("layers", seen, depth), ("columns", shown, count))
        rows.insert(0, [Segment(said, on.ink("warn"))])
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
        gap = (
            at > 0 and bool(answer.shift) and answer.columns[at - 1].position < answer.first <= each.position
        )
        text = pad(truncate(own, cell - 1), cell, right=True)
        here.append(Segment(f"{GAP}{text[1:]}" if gap else text, ink))
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
    if answer.shift and each.position >= answer.first:
        source += f", its token {each.position + answer.shift + 1}"
    if width < WIDE:
        return (
            f"L{answer.layers[layer] + 1}, token {each.position + 1} {quoted(token)}: {share:+.2f} restored."
        )
    return (
        f"L{answer.layers[layer] + 1} at token {each.position + 1}, {quoted(token)} (source: {source}): "
        f"{share:+.2f} of the difference is restored."
    )
