"""The panels of a beam search: the list of beams, the text of one, and the tree that they grow into."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

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

_BAR = 6
_SHORT = 56
"""Cells of the list below which a state has one or two words."""
_HEADS = ("", "#", "score", "", "logprob", "tokens")
_FORMS = (
    (100, (2, 4, 9, _BAR + 2, 10, 8), 32),
    (70, (2, 4, 9, 0, 10, 0), 24),
    (_SHORT, (2, 3, 9, 0, 0, 0), 24),
    (0, (2, 3, 8, 0, 0, 0), 10),
)
"""Least width of the list, cells of the mark and of each figure, 0 for none, and most cells of the state."""


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
        cells, most = next((cells, most) for least, cells, most in _FORMS if width >= least)
        states = [state_phrase(entry, width < _SHORT) for entry in self.entries]
        standing = min(most, max(map(cell_len, states)) + 2)
        names = "".join(pad(name, room, right=True) for name, room in zip(_HEADS, cells, strict=True) if room)
        head = [Segment(f"{names}  {pad('', standing)}text", self.ink("muted"))]
        rows = max(1, height - 1)
        self._top = max(0, min(self._top, self.place, len(self.entries) - rows), self.place - rows + 1)
        seen = range(self._top, min(self._top + rows, len(self.entries)))
        return [head, *(self._row(self.entries[n], cells, pad(states[n], standing - 2), width) for n in seen)]

    def _row(self, entry: BeamEntry, cells: Sequence[int], state: str, width: int) -> Row:
        chosen, fell, likely = (
            entry is self.entries[self.place],
            entry.kind == "fell",
            likelihood(entry, self._best),
        )
        out, good = self.ink("faint") if fell else Style(), self.ink("good")
        figures = (
            ("▶ " if chosen else "  ", self.ink("accent")),
            (self._numbered(entry), out or self.ink("strong")),
            (number(entry.last.score, 4), out),
            (bar(likely, _BAR), out or (good if entry.greedy else self.ink("primary"))),
            (number(entry.last.total), out),
            (str(entry.last.length), out),
        )
        row = [
            Segment(pad(text, room, right=True), ink)
            for (text, ink), room in zip(figures, cells, strict=True)
            if room
        ]
        row.append(Segment(f"  {state}  ", out or (good if entry.kind == "finished" else self.ink("muted"))))
        for text, own in excerpt(pieces(entry, self._passing), width - Segment.get_line_length(row)):
            row.append(Segment(text, out or self.ink("strong" if own else "muted")))
        if not chosen:
            return row
        row.append(Segment(" " * (width - Segment.get_line_length(row))))
        return list(Segment.apply_style(row, post_style=Style(bgcolor=self.ink("row").bgcolor)))

    def _numbered(self, entry: BeamEntry) -> str:
        """Its place; a hypothesis is marked while it is below live beams, which have their own places."""
        if entry.place is None:
            return "✗" if entry.kind == "fell" else "·"
        mixed = entry.kind == "finished" and self.entries[0].kind == "live"
        return f"■{entry.place}" if mixed else str(entry.place)

    # ---- the mouse --------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Point at the beam that was clicked."""
        y = event.get_content_offset_capture(self).y
        if y > 0 and (place := y - 1 + self._top) < len(self.entries):
            self.post_message(self.BeamClicked(self.entries[place].node))


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
    """The text of the highlighted beam; the tokens that differ from the others are bold."""

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
    """Lines of `width` cells at most, broken before a token that begins with a blank, and after a line's end."""
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
        if self.beams is not None and self.entries:
            node = self.entries[self.place].node
            self._lines = lattice(self.beams, self.entries, self.at, height, width, node)
        return [
            [Segment(text, self.ink(ink) if ink else Style()) for text, ink in bits]
            for bits, _ in self._lines
        ]

    def on_click(self, event: events.Click) -> None:
        """Point at the beam that ends in the row that was clicked."""
        row = event.get_content_offset_capture(self).y
        if 0 <= row < len(self._lines) and (node := self._lines[row][1]) is not None:
            self.post_message(BeamTable.BeamClicked(node))


Bit = tuple[str, str]
"""A stretch of a row, and the name of its ink; empty for none."""
LatticeLine = tuple[list[Bit], int | None]
"""A row, and the last node of the beam that ends in it; None for the head of the columns."""


def lattice(
    beams: BeamHistory, entries: Sequence[BeamEntry], at: int, rows: int, cells: int, node: int
) -> list[LatticeLine]:
    """The lines of the tree that fit: the last steps, and the latest of the beams that fell out.

    Args:
        beams: Every token that a beam reached.
        entries: The list after the step, at least one.
        at: The step.
        rows: Lines available, with the head.
        cells: Cells of a line.
        node: Last node of the highlighted beam.
    """
    leaves = _leaves(beams, entries, at, max(1, rows - 1))
    if not leaves:
        return []
    first, widths = _window(leaves, at, cells)
    leaves = [leaf for leaf in leaves if leaf.last.length >= first]
    chosen = {beam.node for leaf in leaves if leaf.node == node for beam in leaf.path}
    through: dict[int, list[BeamEntry]] = defaultdict(list)
    tokens: dict[int, BeamNode] = {}
    for leaf in leaves:
        for beam in leaf.path[first - 1 :]:
            tokens[beam.node] = beam
            through[beam.node].append(leaf)
    families: dict[int, list[int]] = defaultdict(list)  # by the node that they grew from
    for token in tokens.values():
        if token.length > first:
            families[token.parent].append(token.node)
    roots = {leaf.path[first - 1].node for leaf in leaves}
    placed, ends = _rows(roots, families, through)

    # those that the window begins with are separate, unless the whole tree is in it
    alone = [[*roots]] if first == 1 else [[root] for root in roots]
    joins: dict[tuple[int, int], Bit] = {}
    for family in (*families.values(), *alone):
        own = {placed[each]: "accent" if each in chosen else "faint" for each in family}
        for row in range(min(own), max(own) + 1):
            joins[tokens[family[0]].length, row] = _join(row, sorted(own)), own.get(row, "faint")

    alive = sum(leaf.kind != "fell" for leaf in leaves)

    def ink(token: BeamNode) -> str:
        going = sum(leaf.kind != "fell" for leaf in through[token.node])
        if token.node in chosen:
            return "accent"
        if not going or (token.fell is not None and token.fell <= at):
            return "faint"
        return "muted" if going == alive > 1 else ""

    by_place = {(token.length, placed[token.node]): token for token in tokens.values()}
    lines: list[LatticeLine] = [(_head(widths), None)]
    for row, leaf in enumerate(ends):
        begins = row == 0 if first == 1 else (first, row) in by_place
        bits = [(("● " if first == 1 else "… ") if begins else "  ", "faint")]
        for step in range(first, leaf.last.length + 1):
            bits.append(joins.get((step, row), (" " * JOIN, "faint")))
            beam_here = by_place.get((step, row))
            if beam_here is None:
                bits.append((" " * widths[step], "faint"))
                continue
            text = shown(beam_here)
            rest = widths[step] - cell_len(text)
            line = " " + "─" * (rest - 1) if beam_here.node in families else " " * rest
            bits.append((text + line, ink(beam_here)))
        lines.append(([*bits, *_end(leaf)], leaf.node))
    return lines


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
    ends = [leaf for leaf in leaves if leaf.node not in on]  # greedy decoding may continue one that fell
    return ends[:rows]


def _order(entry: BeamEntry) -> tuple[int, float]:
    """Sort key of a row: the best first, and last what fell out, the latest of that first."""
    return (1, -float(entry.fell or 0)) if entry.kind == "fell" else (0, -entry.last.score)


def _window(leaves: Sequence[BeamEntry], at: int, cells: int) -> tuple[int, dict[int, int]]:
    """The first step that is drawn, and the cells of each step's tokens: as many steps as fit, the last at least."""
    widths: dict[int, int] = {}
    last = max(leaf.last.length for leaf in leaves)
    room = cells - TAIL - JOIN
    for step in range(min(at, last), 0, -1):
        tokens = [leaf.path[step - 1] for leaf in leaves if leaf.last.length >= step]
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


def _rows(
    roots: set[int], families: dict[int, list[int]], through: dict[int, list[BeamEntry]]
) -> tuple[dict[int, int], list[BeamEntry]]:
    """The row of each node, and the beam that ends in each row: the best one is drawn in a straight line.

    Args:
        roots: Nodes of the first step.
        families: Nodes by the one that they grew from.
        through: Beams by the nodes that they go through.
    """

    def best_last(nodes: Iterable[int]) -> list[int]:
        return sorted(nodes, key=lambda node: min(map(_order, through[node])), reverse=True)

    placed: dict[int, int] = {}
    ends: list[BeamEntry] = []
    waiting = best_last(roots)
    while waiting:
        node = waiting.pop()
        placed[node] = len(ends)
        ends += [leaf for leaf in through[node] if leaf.node == node]
        waiting += best_last(families.get(node, ()))
    return placed, ends


def _head(widths: dict[int, int]) -> list[Bit]:
    """The numbers of the steps."""
    bits = [("  ", "muted")]
    for step in sorted(widths):
        cells = JOIN + widths[step]
        label = f" {step}" if cells > len(str(step)) + 1 else ""
        bits.append(((" " * JOIN + label).ljust(cells), "muted"))
    return bits


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
        yield (f"{FELL} {entry.fell}", "faint")
        return
    if entry.place is not None:
        yield (f"{entry.place}", "strong")
        yield (f" {number(entry.last.score)}", "")
    if entry.kind == "left":
        yield ("not finished", "muted")
    if entry.greedy or entry.kind == "greedy":
        yield (" greedy", "primary")
