"""A beam search as a tree that grows to the right: a column a step, a row for each beam's end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.cells import cell_len

from engine.frozen import frozen
from inspector.display import SPACE, truncate, visible
from inspector.state.beams import BeamHistory, BeamNode
from inspector.tools.beams.entries import BeamEntry
from inspector.tools.beams.phrases import number

Ink = str
"""Name of an ink of the panels."""
WIDEST = 12
"""Cells of a token at most."""
JOIN = 2
"""Cells of the lines before a token."""
TAIL = 16
"""Cells kept free after the last column, for place and score."""
ENDED, FELL, UNFINISHED = "■", "✗", "‹…›"
"""An end-of-sequence token, a beam that fell out, a token that finishes no character."""


@frozen
class Bit:
    """A stretch of a row in one ink."""

    text: str
    ink: Ink


@frozen
class LatticeLine:
    """One row: a beam's end, or the head of the columns."""

    bits: tuple[Bit, ...]
    node: int | None = None
    """The beam that ends here."""


@frozen
class Leaf:
    """The end of a row, and its sort key among the rows."""

    entry: BeamEntry
    order: tuple[int, float]

    @property
    def path(self) -> tuple[BeamNode, ...]:
        return self.entry.path


def lattice(
    beams: BeamHistory, entries: Sequence[BeamEntry], at: int, rows: int, cells: int, node: int
) -> list[LatticeLine]:
    """The lines of the tree as far as there is room: the last steps, and of what fell out the latest.

    Args:
        beams: Of the search.
        entries: What is listed after the step, at least one.
        at: The step.
        rows: Lines that there is room for, the head included.
        cells: Cells of a line.
        node: Of the beam that is highlighted.
    """
    leaves = _leaves(beams, entries, at, max(1, rows - 1))
    if not leaves:
        return []
    first, widths = _window(leaves, at, cells)
    seen = [leaf for leaf in leaves if leaf.entry.length >= first]
    drawing = _Drawing(seen, first, widths, node, at)
    return [drawing.head(), *drawing.lines()]


def _leaves(beams: BeamHistory, entries: Sequence[BeamEntry], at: int, rows: int) -> list[Leaf]:
    """Beams that are listed, then those that fell out before them, as many as there are rows."""
    leaves = [_leaf(entry) for entry in entries]
    listed = {entry.node for entry in entries}
    for last in reversed(beams.fallen):
        if len(leaves) >= rows:
            break
        fell = beams.nodes[last].fell
        if fell is not None and fell <= at and last not in listed:
            leaves.append(_leaf(BeamEntry("fell", None, tuple(beams.path(last)))))
    on = {beam.node for leaf in leaves for beam in leaf.path[:-1]}
    return [leaf for leaf in leaves if leaf.entry.node not in on][
        :rows
    ]  # greedy decoding may go on from one that fell


def _leaf(entry: BeamEntry) -> Leaf:
    if entry.kind == "fell":
        return Leaf(entry, (1, -float(entry.fell or 0)))
    return Leaf(entry, (0, -entry.last.score))


def _window(leaves: Sequence[Leaf], at: int, cells: int) -> tuple[int, dict[int, int]]:
    """The first step that is drawn, and the cells of each step's tokens: as many steps as fit, the last at least."""
    widths: dict[int, int] = {}
    last = max(leaf.entry.length for leaf in leaves)
    room = cells - TAIL - JOIN
    for step in range(min(at, last), 0, -1):
        tokens = [leaf.path[step - 1] for leaf in leaves if leaf.entry.length >= step]
        width = max(cell_len(shown(token)) for token in tokens) + 1
        room -= width + JOIN
        if widths and room < 0:
            break
        widths[step] = width
    return min(widths), widths


def shown(token: BeamNode) -> str:
    """A token in the tree, printable: its own blank before it parts it from the line."""
    if token.ends or not token.text:
        return ENDED if token.ends else UNFINISHED
    text = visible(token.text).rstrip(" ")
    return truncate(text or SPACE * len(token.text), WIDEST)


class _Drawing:
    """One tree on its way to lines.

    Args:
        leaves: That reach into the window.
        first: Its first step.
        widths: Cells of the tokens of each of its steps.
        node: Of the beam that is highlighted.
        at: The step shown.
    """

    def __init__(
        self, leaves: Sequence[Leaf], first: int, widths: dict[int, int], node: int, at: int
    ) -> None:
        self._first, self._widths, self._node, self._at = first, widths, node, at
        self._leaves = {leaf.entry.node: leaf for leaf in leaves}
        self._through: dict[int, list[Leaf]] = defaultdict(list)
        self._children: dict[int, list[int]] = defaultdict(list)
        self._tokens: dict[int, BeamNode] = {}
        for leaf in leaves:
            self._take(leaf)
        self._alive = sum(1 for leaf in leaves if leaf.entry.kind != "fell")
        self._chosen = {beam.node for leaf in leaves if leaf.entry.node == node for beam in leaf.path}
        self._rows: dict[int, int] = {}
        self._order: list[int] = []
        roots = {leaf.path[first - 1].node for leaf in leaves}
        for root in sorted(roots, key=self._best):
            self._lay(root)
        self._columns = {step: list(self._column(step)) for step in widths}

    def _take(self, leaf: Leaf) -> None:
        for beam in leaf.path[self._first - 1 :]:
            self._tokens[beam.node] = beam
            self._through[beam.node].append(leaf)
        for one, other in pairwise(beam.node for beam in leaf.path[self._first - 1 :]):
            if other not in self._children[one]:
                self._children[one].append(other)

    def _best(self, node: int) -> tuple[int, float]:
        return min(leaf.order for leaf in self._through[node])

    def _lay(self, root: int) -> None:
        """Give a node and all that grew from it their rows: the best goes straight on."""
        waiting = [root]
        while waiting:
            node = waiting.pop()
            self._rows[node] = len(self._order)
            if node in self._leaves:
                self._order.append(node)
            waiting += sorted(self._children[node], key=self._best, reverse=True)

    # ---- columns ----------------------------------------------------------------------------

    def _column(self, step: int) -> Iterator[Bit]:
        """The cells of one step, row by row: the line to the token, then the token."""
        by_row = {self._rows[node]: node for node, token in self._tokens.items() if token.length == step}
        joins = self._joins(step)
        for row in range(len(self._order)):
            join, ink = joins.get(row, (" " * JOIN, "faint"))
            yield Bit(join, ink)
            node = by_row.get(row)
            yield Bit(" " * self._widths[step], "faint") if node is None else self._cell(node)

    def _joins(self, step: int) -> dict[int, tuple[str, Ink]]:
        """The lines between the step before and this one, by row."""
        joins: dict[int, tuple[str, Ink]] = {}
        families: dict[int, list[int]] = defaultdict(list)
        for token in self._tokens.values():
            # those that the window begins with are separate, unless the whole tree is in it
            if token.length == step:
                families[token.parent if step > self._first or step == 1 else token.node].append(token.node)
        for children in families.values():
            rows = sorted(self._rows[child] for child in children)
            chosen = {self._rows[child] for child in children if child in self._chosen}
            for row in range(rows[0], rows[-1] + 1):
                joins[row] = (_join(row, rows), "accent" if row in chosen else "faint")
        return joins

    def _cell(self, node: int) -> Bit:
        token = self._tokens[node]
        text = shown(token)
        rest = self._widths[token.length] - cell_len(text)
        on = self._children[node]
        return Bit(text + (" " + "─" * (rest - 1) if on else " " * rest), self._ink(node))

    def _ink(self, node: int) -> Ink:
        token, through = self._tokens[node], self._through[node]
        alive = sum(1 for leaf in through if leaf.entry.kind != "fell")
        if node in self._chosen:
            return "accent"
        if not alive or (token.fell is not None and token.fell <= self._at):
            return "faint"
        return "muted" if alive == self._alive > 1 else ""

    # ---- lines ------------------------------------------------------------------------------

    def head(self) -> LatticeLine:
        """The numbers of the steps."""
        bits = [Bit("  ", "muted")]
        for step in sorted(self._widths):
            label = f" {step}" if JOIN + self._widths[step] > len(str(step)) + 1 else ""
            bits.append(Bit((" " * JOIN + label).ljust(JOIN + self._widths[step]), "muted"))
        return LatticeLine(tuple(bits))

    def lines(self) -> Iterator[LatticeLine]:
        """A line for each beam's end, the best of each fork first."""
        begin = {self._rows[node] for node, token in self._tokens.items() if token.length == self._first}
        for row, node in enumerate(self._order):
            leaf = self._leaves[node]
            bits = [
                Bit(
                    ("● " if row == 0 else "  ") if self._first == 1 else "… " if row in begin else "  ",
                    "faint",
                )
            ]
            for step in range(self._first, leaf.entry.length + 1):
                column = self._columns[step]
                bits += column[2 * row : 2 * row + 2]
            yield LatticeLine((*bits, *_end(leaf.entry)), node)


def _join(row: int, rows: Sequence[int]) -> str:
    if len(rows) == 1:
        return "──"
    if row == rows[0]:
        return "┬─"
    if row == rows[-1]:
        return "╰─"
    return "├─" if row in rows else "│ "


def _end(entry: BeamEntry) -> Iterator[Bit]:
    """The label behind a beam's last token."""
    if entry.kind == "fell":
        yield Bit(f"{FELL} {entry.fell}", "faint")
        return
    if entry.place is not None:
        yield Bit(f"{entry.place}", "strong")
        yield Bit(f" {number(entry.last.score)}", "")
    if entry.kind == "left":
        yield Bit("not finished", "muted")
    if entry.greedy or entry.kind == "greedy":
        yield Bit(" greedy", "primary")
