"""The panels of a beam search: the list of beams, the text of one, and the tree that they grow into."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.message import Message

from inspector.display import SPACE, pad, truncate, visible
from inspector.state.beams import BeamHistory, BeamNode
from inspector.tools.beams.entries import BeamEntry, Piece, excerpt, number, passing, pieces, state_phrase
from inspector.widgets.canvas import PanelCanvas, Row, centred
from inspector.widgets.charts import bar

# ---- the list -----------------------------------------------------------------------------------

_MARK, _BAR = 2, 6


class _Columns(Struct, frozen=True):
    """Cells of each column; 0 for one that there is no room for."""

    place: int
    score: int
    bar: int
    logprob: int
    tokens: int
    standing: int
    short: bool = False
    """True if the state is given in one or two words."""


_WIDE = _Columns(4, 9, _BAR + 2, 10, 8, 32)
_NORMAL = _Columns(4, 9, 0, 10, 0, 24)
_MEDIUM = _Columns(3, 9, 0, 0, 0, 24)
_NARROW = _Columns(3, 8, 0, 0, 0, 10)


class BeamTable(PanelCanvas):
    """The list of beams and hypotheses after a step, with a cursor."""

    class BeamClicked(Message):
        """A beam was clicked."""

        def __init__(self, node: int) -> None:
            self.node = node
            super().__init__()

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.entries: Sequence[BeamEntry] = ()
        self.place = 0
        self._passing: Counter[int] = Counter()
        self._best = 0.0
        self._top = 0
        self._empty: Sequence[str] = ()

    def put(self, entries: Sequence[BeamEntry], place: int, title: str, note: str) -> None:
        """Show what is listed.

        Args:
            entries: Best first.
            place: Of the one under the cursor.
            title: Of the panel; printable, as is the note at its foot.
            note: How many there are of each kind.
        """
        self.entries, self.place = entries, place
        self._passing = passing(entries)
        self._best = max((entry.last.score for entry in entries), default=0.0)
        self.title(Content(title), Content(note) if note else None)
        self.redraw()

    def explain(self, words: Sequence[str]) -> None:
        """Show why there is nothing, what is to come and what to do; printable, the first in bold."""
        self.entries, self._empty = (), words
        self.title(Content("Beams"))
        self.redraw()

    # ---- drawing ----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> list[Row]:
        if not self.entries:
            inks = ["strong", *("muted" for _ in self._empty[1:])]
            texts = [(text, self.ink(ink)) for text, ink in zip(self._empty, inks, strict=False)]
            return centred(texts, width, height)
        columns = self._columns(width)
        rows = max(1, height - 1)
        self._top = max(0, min(self._top, self.place, len(self.entries) - rows), self.place - rows + 1)
        seen = self.entries[self._top : self._top + rows]
        return [self._head(columns), *(self._row(entry, columns, width) for entry in seen)]

    def _columns(self, width: int) -> _Columns:
        """Those that fit, the words no wider than they must be."""
        columns = _WIDE if width >= 100 else _NORMAL if width >= 70 else _MEDIUM if width >= 56 else _NARROW
        words = max(cell_len(state_phrase(entry, columns is _NARROW)) for entry in self.entries)
        return replace(columns, standing=min(max(columns.standing, 6), words + 2), short=columns is _NARROW)

    def _head(self, columns: _Columns) -> Row:
        names = ("", "#", "score", "", "logprob", "tokens")
        cells = (_MARK, columns.place, columns.score, columns.bar, columns.logprob, columns.tokens)
        words = "".join(pad(name, room, right=True) for name, room in zip(names, cells, strict=True) if room)
        return [Segment(words + "  " + pad("", columns.standing) + "text", self.ink("muted"))]

    def _row(self, entry: BeamEntry, columns: _Columns, width: int) -> Row:
        chosen, out = entry is self.entries[self.place], entry.kind == "fell"
        row = [Segment("▶ " if chosen else "  ", self.ink("accent"))]
        row += self._figures(entry, columns)
        words = state_phrase(entry, columns.short)
        style = self.ink("faint" if out else "good" if entry.kind == "finished" else "muted")
        row.append(Segment(f"  {pad(words, columns.standing - 2)}  ", style))
        row += self._text(entry, width - _cells(row))
        if not chosen:
            return row
        rest = Segment(" " * (width - _cells(row)))
        ground = Style(bgcolor=self.ink("row").bgcolor)
        return list(Segment.apply_style([*row, rest], post_style=ground))

    def _figures(self, entry: BeamEntry, columns: _Columns) -> Iterator[Segment]:
        out = self.ink("faint") if entry.kind == "fell" else Style()
        yield Segment(pad(self._numbered(entry), columns.place, right=True), out or self.ink("strong"))
        yield Segment(pad(number(entry.last.score, 4), columns.score, right=True), out)
        if columns.bar:
            ink = out or (self.ink("good") if entry.greedy else self.ink("primary"))
            yield Segment("  " + bar(likelihood(entry, self._best), _BAR), ink)
        if columns.logprob:
            yield Segment(pad(number(entry.last.total), columns.logprob, right=True), out)
        if columns.tokens:
            yield Segment(pad(str(entry.length), columns.tokens, right=True), out)

    def _numbered(self, entry: BeamEntry) -> str:
        """Its place; a hypothesis is marked while it is below live beams, which have their own places."""
        if entry.place is None:
            return "✗" if entry.kind == "fell" else "·"
        mixed = entry.kind == "finished" and self.entries[0].kind == "live"
        return f"■{entry.place}" if mixed else str(entry.place)

    def _text(self, entry: BeamEntry, room: int) -> Iterator[Segment]:
        out = entry.kind == "fell"
        for text, own in excerpt(pieces(entry, self._passing), room):
            yield Segment(text, self.ink("faint" if out else "strong" if own else "muted"))

    # ---- the mouse --------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Point at the beam that was clicked."""
        place = event.get_content_offset_capture(self).y - 1 + self._top
        if 0 <= place < len(self.entries) and event.get_content_offset_capture(self).y > 0:
            self.post_message(self.BeamClicked(self.entries[place].node))


def _cells(row: Row) -> int:
    return sum(segment.cell_length for segment in row)


def likelihood(entry: BeamEntry, best: float) -> float:
    """The probability of a beam, set against one as long with the best score there is: 0 to 1.

    Of beams of one length it is the ratio of their probabilities; of others those of a lower score have less.
    """
    total, score = entry.last.total, entry.last.score
    if score == 0:
        return 1.0
    return math.exp(min(0.0, total - best * total / score))


# ---- the text of one beam -----------------------------------------------------------------------


class BeamTextPanel(PanelCanvas):
    """The text of the highlighted beam; where it differs from the others it is bold."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.pieces: Sequence[Piece] = ()

    def put(self, pieces: Sequence[Piece], title: str) -> None:
        """Show a text, token by token; printable, as is the title."""
        self.pieces = pieces
        self.title(Content(title))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        lines = list(wrapped(self.pieces, width))
        if len(lines) > height > 0:
            lines = [[("… the end of it:", False)], *lines[1 - height :]] if height > 1 else lines[-1:]
        inks = {True: self.ink("strong"), False: self.ink("muted")}
        return [[Segment(text, inks[own]) for text, own in line] for line in lines]


def wrapped(pieces: Sequence[Piece], width: int) -> Iterator[list[Piece]]:
    """Lines of `width` cells at most, broken where a token begins with a blank, and after a line's end."""
    line: list[Piece] = []
    for word in words(pieces):
        room = width - sum(cell_len(text) for text, _ in line)
        if line and sum(cell_len(text) for text, _ in word) > room:
            yield line
            line, word = [], [(word[0][0].lstrip(" "), word[0][1]), *word[1:]]
        line += word
        if word[-1][0].endswith("↵"):
            yield line
            line = []
    if line:
        yield line


def words(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Runs of tokens that belong on one line."""
    word: list[Piece] = []
    for piece in pieces:
        if word and (piece[0].startswith(" ") or word[-1][0].endswith("↵")):
            yield word
            word = []
        word.append(piece)
    if word:
        yield word


# ---- the tree -----------------------------------------------------------------------------------

WIDEST = 12
"""Cells of a token at most."""
JOIN = 2
"""Cells of the lines before a token."""
TAIL = 16
"""Cells kept free after the last column, for place and score."""
ENDED, FELL, UNFINISHED = "■", "✗", "‹…›"
"""An end-of-sequence token, a beam that fell out, a token that finishes no character."""


class BeamTree(PanelCanvas):
    """The last steps of the search as a tree that grows to the right: a column a step, a row for each beam's end."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.beams: BeamHistory | None = None
        self.entries: Sequence[BeamEntry] = ()
        self.at, self.place = 0, 0
        self._lines: list[LatticeLine] = []

    def put(self, beams: BeamHistory, entries: Sequence[BeamEntry], at: int, place: int) -> None:
        """Show the search after a step, with one beam highlighted."""
        self.beams, self.entries, self.at, self.place = beams, entries, at, place
        self.title(Content("Tree of the search"), Content("■ end token · ✗ pruned") if entries else None)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        self._lines = []
        if self.beams is None or not self.entries:
            return []
        node = self.entries[self.place].node
        self._lines = lattice(self.beams, self.entries, self.at, height, width, node)
        return [self._row(line) for line in self._lines]

    def _row(self, line: LatticeLine) -> Row:
        return [Segment(bit.text, self.ink(bit.ink) if bit.ink else Style()) for bit in line.bits]

    def on_click(self, event: events.Click) -> None:
        """Point at the beam that ends in the row that was clicked."""
        row = event.get_content_offset_capture(self).y
        if 0 <= row < len(self._lines) and (node := self._lines[row].node) is not None:
            self.post_message(BeamTable.BeamClicked(node))


class Bit(Struct, frozen=True):
    """A stretch of a row in one ink."""

    text: str
    ink: str
    """Its name; empty for none."""


class LatticeLine(Struct, frozen=True):
    """One row: a beam's end, or the head of the columns."""

    bits: tuple[Bit, ...]
    node: int | None = None
    """The beam that ends here."""


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
    seen = [leaf for leaf in leaves if leaf.length >= first]
    drawing = _Drawing(seen, first, widths, node, at)
    return [drawing.head(), *drawing.lines()]


def _leaves(beams: BeamHistory, entries: Sequence[BeamEntry], at: int, rows: int) -> list[BeamEntry]:
    """Beams that are listed, then those that fell out before them, as many as there are rows."""
    leaves = list(entries)
    listed = {entry.node for entry in entries}
    for last in reversed(beams.fallen):
        if len(leaves) >= rows:
            break
        fell = beams.nodes[last].fell
        if fell is not None and fell <= at and last not in listed:
            leaves.append(BeamEntry("fell", None, tuple(beams.path(last))))
    on = {beam.node for leaf in leaves for beam in leaf.path[:-1]}
    ends = [leaf for leaf in leaves if leaf.node not in on]  # greedy decoding may go on from one that fell
    return ends[:rows]


def _order(entry: BeamEntry) -> tuple[int, float]:
    """Sort key of a row: the best first, and last what fell out, the latest of that first."""
    return (1, -float(entry.fell or 0)) if entry.kind == "fell" else (0, -entry.last.score)


def _window(leaves: Sequence[BeamEntry], at: int, cells: int) -> tuple[int, dict[int, int]]:
    """The first step that is drawn, and the cells of each step's tokens: as many steps as fit, the last at least."""
    widths: dict[int, int] = {}
    last = max(leaf.length for leaf in leaves)
    room = cells - TAIL - JOIN
    for step in range(min(at, last), 0, -1):
        tokens = [leaf.path[step - 1] for leaf in leaves if leaf.length >= step]
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
        self, leaves: Sequence[BeamEntry], first: int, widths: dict[int, int], node: int, at: int
    ) -> None:
        self._first, self._widths, self._node, self._at = first, widths, node, at
        self._leaves = {leaf.node: leaf for leaf in leaves}
        self._through: dict[int, list[BeamEntry]] = defaultdict(list)
        self._children: dict[int, list[int]] = defaultdict(list)
        self._tokens: dict[int, BeamNode] = {}
        for leaf in leaves:
            self._take(leaf)
        self._alive = sum(1 for leaf in leaves if leaf.kind != "fell")
        self._chosen = {beam.node for leaf in leaves if leaf.node == node for beam in leaf.path}
        self._rows: dict[int, int] = {}
        self._order: list[int] = []
        roots = {leaf.path[first - 1].node for leaf in leaves}
        for root in sorted(roots, key=self._best):
            self._lay(root)
        self._columns = {step: list(self._column(step)) for step in widths}

    def _take(self, leaf: BeamEntry) -> None:
        for beam in leaf.path[self._first - 1 :]:
            self._tokens[beam.node] = beam
            self._through[beam.node].append(leaf)
        for one, other in pairwise(beam.node for beam in leaf.path[self._first - 1 :]):
            if other not in self._children[one]:
                self._children[one].append(other)

    def _best(self, node: int) -> tuple[int, float]:
        return min(_order(leaf) for leaf in self._through[node])

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

    def _joins(self, step: int) -> dict[int, tuple[str, str]]:
        """The lines between the step before and this one, by row."""
        joins: dict[int, tuple[str, str]] = {}
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

    def _ink(self, node: int) -> str:
        token, through = self._tokens[node], self._through[node]
        alive = sum(1 for leaf in through if leaf.kind != "fell")
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
            mark = row == 0 if self._first == 1 else row in begin
            bits = [Bit(("● " if self._first == 1 else "… ") if mark else "  ", "faint")]
            for step in range(self._first, leaf.length + 1):
                column = self._columns[step]
                bits += column[2 * row : 2 * row + 2]
            yield LatticeLine((*bits, *_end(leaf)), node)


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
