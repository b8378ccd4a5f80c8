"""The logit lens: layers by positions, in each cell the residual stream read by the last norm and the output matrix."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import clamp

from engine.protocol import Command, LensCell, LensColumn, LensRead, LensToken, ReadLens
from inspector.blocks.blocks import Bar, Column, Table, TableRow, number
from inspector.blocks.paint import Painter, part_shown
from inspector.display import first_fitting, pad, quoted, token_label, truncate_middle
from inspector.documents.lens import depth_of
from inspector.main.inside_view import InsideView, look_table, walking
from inspector.main.tool import OfferedHeat
from inspector.scales import bits, count, percent
from inspector.session.requests import Replies
from inspector.state.candidates import label_of
from inspector.state.session_tree import Item
from inspector.widgets.actions import Action, ActionTable, both
from inspector.widgets.canvas import Canvas, Row, paragraph
from inspector.widgets.charts import bar, in_sight
from inspector.widgets.token_lines import heat_style

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

TOP = 10
"""Number of tokens in a cell's list."""
CANDIDATES = 4
"""Candidates of the last layer that can be followed without asking again."""


_LAYER = "Look at another layer: its list of tokens is under the table."
LENS_KEYS = look_table(
    "In the logit lens",
    *both(("lens.layer_above", "lens.layer_below"), ("Layer above", "Layer below"), _LAYER,
          lambda own, by: own.turn_layer(by), by=(1, -1), hint="layer", worth=7),
    *walking(),
    Action("lens.follow", "Follow",
           "Follow another token through the layers; first the highlighted candidate.",
           lambda own: own.follow_next(), hint="follow another", worth=5),
    Action("lens.measure", "Measure", "Colour by probability, by the rank of the final token, or by entropy.",
           lambda own: own.change_measure(), hint=lambda own: f"colour: {own.measure.name}", worth=4),
    *both(("lens.ten_above", "lens.ten_below"), ("Ten above", "Ten below"), "Go ten layers up or down.",
          lambda own, by: own.turn_layer(by), by=(10, -10)),
)  # fmt: skip


class Lens(InsideView[LensRead]):
    """A table of layers by positions."""

    TOOL: ClassVar[str] = "lens"
    ACTIONS: ClassVar[ActionTable] = LENS_KEYS

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host, Replies(host.controller.client, LensRead))
        self.measure = MEASURES[0]
        """The measure that the cells are coloured by."""
        self._layer: int | None = None
        """The selected layer; None for the last one."""
        self._followed: int | None = None
        """The token that is followed; None for the one that was taken next."""
        self._opened_at: tuple[int, int | None] | None = None
        """The node before the slot in which that token was chosen, and the slot's token: elsewhere the choice is
        forgotten."""

    def begin(self) -> None:
        """Follow the highlighted candidate, unless it is followed anyway."""
        timeline, highlighted = self.timeline, self.host.candidate
        if self._opened_at != (at := (timeline.before, timeline.taken)):
            self._followed, self._opened_at = None, at
        shown = (timeline.taken, *(one.id for one in timeline.candidates[:1]))
        if highlighted is not None and highlighted.id not in shown:
            self._followed = highlighted.id

    def point(self, *place: int) -> None:
        (self._layer,) = place

    def offered(self, answer: LensRead, path: Sequence[Item]) -> OfferedHeat:
        """The share of layers before the final token leads, for each position of the table."""
        shares = {
            column.node: min(1.0, column.leads_from / (len(column.cells) - 1))
            for column in answer.columns
            if len(column.cells) > 1
        }
        return OfferedHeat("layers until the answer leads", shares)

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        before = self.answers.get(self.node)  # what was followed on another branch stays known
        followed = dict.fromkeys((*self._wanted(), *(before.followed if before is not None else ())))
        return self.node, ReadLens(self.node, top=TOP, followed=tuple(followed))

    def _wanted(self) -> tuple[int, ...]:
        """The tokens that can be followed: the chosen one, the one taken next, the best candidates."""
        best = (candidate.id for candidate in self.candidates[:CANDIDATES])
        ids = (self._followed, self.timeline.taken, *best)
        return tuple(dict.fromkeys(id for id in ids if id is not None))

    def ask(self) -> None:
        """See `InsideView`; ask again if a token to follow is not in the answer."""
        answer = self.answer
        if answer is not None and not set(self._wanted()) <= set(answer.followed):
            self.answers.again(*self.question())
            self.look()
        else:
            super().ask()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: LensRead | None) -> str:
        return "What each layer would predict"

    def draw(self, answer: LensRead, on: Canvas, width: int, height: int) -> list[Row]:
        if not answer.columns or not answer.columns[-1].cells:
            return []
        columns, layer, followed = answer.columns, self._layer_of(answer), self._followed_of(answer)
        labels = {item.node: token_label(item.text, item.raw) for item in self.path[-len(columns) :]}
        heads = [labels.get(column.node, "?") for column in columns]
        index = answer.followed.index(followed) if followed is not None else None
        below = min(height - 1, 1 if height < 10 else max(6, height - 1 - depth_of(columns)))
        known = [(token.id, token.text) for cell in columns[-1].cells for token in cell.top]
        known += ((each.id, each.text) for each in self.candidates)
        name = label_of(self.timeline, followed, known) if followed is not None else ""
        rows = table(on, columns, heads, self.measure, layer, index, name, width, height - below)
        return rows + detail(on, columns[-1], layer, self.measure, width, below)

    def _layer_of(self, answer: LensRead, by: int = 0) -> int:
        """The selected layer, or the one `by` layers above it, within the table."""
        last = len(answer.columns[-1].cells) - 1
        return clamp((last if self._layer is None else min(self._layer, last)) + by, 0, last)

    def _followed_of(self, answer: LensRead) -> int | None:
        """The followed token: the first wanted one that the answer has."""
        return next((id for id in (*self._wanted(), *answer.followed) if id in answer.followed), None)

    # ---- keys -----------------------------------------------------------------------------------

    def turn_layer(self, by: int) -> None:
        """Look at another layer of the last column."""
        if (answer := self.answer) is not None and answer.columns:
            self._layer = self._layer_of(answer, by)

    def follow_next(self) -> None:
        """Follow the next of the tokens that the answer has."""
        if (answer := self.answer) is not None and (now := self._followed_of(answer)) is not None:
            self._followed = answer.followed[(answer.followed.index(now) + 1) % len(answer.followed)]

    def change_measure(self) -> None:
        self.measure = MEASURES[(MEASURES.index(self.measure) + 1) % len(MEASURES)]


# ---- the table ----------------------------------------------------------------------------------

LABEL = 7
"""Cells of the layers' numbers."""
CELL, WIDEST = 13, 18
"""Minimum and maximum cells of a column: a mark, the token, a blank and four cells of a number."""
FIGURES = 8
"""Cells of blanks and probability beside the followed token's bar, the rank not included."""
LEADS, ROUGH = "▸", "~"


def table(
    on: Canvas, columns: Sequence[LensColumn], heads: Sequence[str], measure: CellMeasure, cursor: int,
    followed: int | None, name: str, width: int, height: int,
) -> list[Row]:  # fmt: skip
    """The heads, and as many layers around the cursor as fit, the last on top.

    Args:
        on: Where it is drawn.
        columns: All columns of the record.
        heads: The token of each column, printable.
        measure: Gives number and colour of a cell.
        cursor: The selected layer.
        followed: Index of the followed token beside the table; None for none.
        name: Label of the followed token.
        width: Cells.
        height: Rows.
    """
    ranks = [cell.followed_ranks[followed] for cell in columns[-1].cells] if followed is not None else []
    ranked = len(f"#{max(ranks, default=0):,}")
    count, cells, side = layout(width, len(columns), followed is not None)
    depth, room = depth_of(columns), max(1, height - 1)
    rows: list[Row] = []
    if depth > room > 2:
        room -= 1
        layers = [layer - 1 for layer in in_sight(depth, room, cursor) if layer]
        rows.append([Segment(part_shown(width, ("layers", layers, depth - 1)), on.ink("warn"))])
    row: Row = [Segment(pad("after", LABEL), on.ink("muted"))]
    for at, head in enumerate(heads[-count:], max(0, len(heads) - count) + 1):
        ink = on.ink("accent" if at == len(heads) else "muted")
        row.append(Segment(" " + pad(truncate_middle(head, cells - 1), cells - 1), ink))
    if side:
        name = first_fitting(side - 2, f"follows {quoted(name)}", quoted(name))
        row.append(Segment(pad(f"  {truncate_middle(name, side - 2)}", side), on.ink("accent")))
    rows.append(row)
    for layer in reversed(in_sight(depth, room, cursor)):
        rough = ROUGH if is_rough(layer, depth) else " "
        label = f"{rough} {layer or 'embed':>3}".ljust(LABEL)
        row = [Segment(label, on.ink("accent" if layer == cursor else "muted"))]
        for column in columns[-count:]:
            row += _cell(on, cells, column, layer, measure, layer == cursor and column is columns[-1])
        if side and followed is not None:
            cell = columns[-1].cells[layer]
            prob, rank = cell.followed[followed], cell.followed_ranks[followed]
            row += [Segment("  "), Segment(bar(prob, side - FIGURES - ranked), on.data(prob))]
            row.append(Segment(f" {share(prob):>4} {f'#{rank:,}':>{ranked}}", on.rich_style))
        rows.append(row)
    return rows


def _cell(
    on: Canvas, cells: int, column: LensColumn, layer: int, measure: CellMeasure, here: bool
) -> list[Segment]:
    cell = column.cells[layer]
    best = token_label(cell.top[0].text) if cell.top else ""
    text = pad(truncate_middle(best, cells - 6), cells - 6) + pad(measure.number(cell), 5, right=True)
    style = on.rich_style + ground(on, measure.step(cell)) + Style(bold=cell.final_rank == 1)
    mark = Segment(LEADS if column.leads_from == layer else " ", on.ink("accent"))
    return [mark, Segment(text, on.ink("cursor") if here else style)]


def layout(width: int, available: int, side: bool = True) -> tuple[int, int, int]:
    """Divide the width: the followed token's part, then as many columns as fit.

    Args:
        width: Cells.
        available: Number of columns in the record.
        side: Whether a token is followed.

    Returns:
        Columns, cells of each, and cells of the followed token's bars and figures.
    """
    beside = (17 if width < 48 else 19 if width < 60 else 21 if width < 100 else 31) if side else 0
    room = width - LABEL - beside
    columns = max(1, min(available, room // CELL))
    return columns, max(8, min(WIDEST, room // columns)), beside


def ground(on: Canvas, step: int) -> Style:
    """The colour of a step; the text is underlined only if there are no colours."""
    colours = on.colorful
    return heat_style(step, on.dark, colours) + Style(underline=False if colours else None)


def is_rough(layer: int, depth: int) -> bool:
    """True if a cell is in the first half of the layers, by convention: nothing measures how far it can be trusted."""
    return layer < (depth - 1) / 2


# ---- under the table: one cell's list of tokens, where the answer first leads, and the legend ---

ENTRY = 15
"""Cells of a token in the grid: rank, label, probability."""
WORDS = (
    "Each cell: the token that the model would predict if its layers ended there (by its last norm and head). "
    f"{LEADS} from here on the final answer stays on top. "
    f"{ROUGH} rough: the head was never trained to read early layers, so their tokens are hints at most."
)
SHORT = (
    f"{LEADS} the answer stays on top from here on  {ROUGH} rough: the head isn't trained for these",
    f"{LEADS} the answer stays on top  {ROUGH} a hint at most",
    f"{LEADS} the answer on top  {ROUGH} a hint",
)


def detail(
    on: Canvas, column: LensColumn, layer: int, measure: CellMeasure, width: int, height: int
) -> list[Row]:
    """The rows under the table, as many as fit.

    Args:
        on: Where they are drawn.
        column: The last column.
        layer: The selected layer, 0 for the embedding.
        measure: Gives the colour of a cell.
        width: Cells.
        height: Rows.
    """
    cell, muted = column.cells[layer], on.ink("muted")
    final = column.cells[-1].top[0] if column.cells[-1].top else None
    name = quoted(token_label(final.text)) if final is not None else ""
    where = f"After layer {layer}" if layer else "At the embedding"
    rank = f"{where}: {f'{name} has rank {count(cell.final_rank)}' if name else ''}"
    line = first_fitting(width, f"{rank}, entropy {bits(cell.entropy_bits)} bits. Its list:", rank, where)
    said: list[Row] = [[Segment(line, on.rich_style)]]
    if height < 4:
        return said[:height]
    said.insert(0, [Segment(_lead_line(column, name, width) if name else "", on.ink("accent"))])
    colours, words = _colours(on, measure, width), paragraph(muted, width, WORDS)
    if height >= len(said) + len(cell.top) + len(words) + 4:
        columns = Column(), Column(), number(""), Column(cells=(4, 40), top=1.0)
        bars = [
            TableRow(
                (f"  {rank:>2}", token_label(token.text), percent(token.prob), Bar(token.prob)),
                "strong" if final is not None and token.id == final.id else "",
            )
            for rank, token in enumerate(cell.top, 1)
        ]
        rows = Painter(on).draw([Table(columns, bars)], width, len(bars))
        return [[], *said, *rows, [], colours, *words]
    room = max(1, height - len(said) - 2)
    above = [*said, *_grid(on, cell.top, width, room)[:room], colours]
    if len(above) + len(words) > height:
        words = [[Segment(first_fitting(width, *SHORT), muted)]]
    return [*above, *words][:height]


def _lead_line(column: LensColumn, name: str, width: int) -> str:
    first, layers = column.leads_from, len(column.cells) - 1
    if first == 0:
        return f"{LEADS} {name} is on top from the embedding on: no layer changes that."
    until = f"stays on top from layer {first} of {layers} on"
    if first == layers:
        until = f"is on top after the last layer only, {layers} of {layers}"
    long = f"{LEADS} The model's answer, {name}, {until}."
    return first_fitting(width, long, f"{LEADS} {name} stays on top from layer {first} on")


def _grid(on: Canvas, top: Sequence[LensToken], width: int, room: int) -> list[Row]:
    """The list in columns, as wide as its longest token if the list then fits into `room` rows."""
    labels = [token_label(token.text) for token in top]
    most = max(ENTRY, 9 + max(map(cell_len, labels), default=0))
    size = next((cells for cells in range(most, ENTRY, -1) if room * (width // cells) >= len(top)), ENTRY)
    across = max(1, width // size)
    entries = [
        f"{rank:>2} {pad(truncate_middle(label, size - 9), size - 9)} {share(token.prob):>4}"
        for rank, (label, token) in enumerate(zip(labels, top, strict=True), 1)
    ]
    return [
        [Segment(pad(entry, size), on.rich_style) for entry in entries[first : first + across]]
        for first in range(0, len(entries), across)
    ]


def _colours(on: Canvas, measure: CellMeasure, width: int) -> Row:
    """The legend: the edge of each step on the step's colour."""
    says = f"Number and colour: {measure.says} "
    if cell_len(says) + sum(len(edge) + 3 for edge in measure.edges) > width:
        says = f"{measure.name} "
    row: Row = [Segment(says, on.ink("muted"))]
    for step, edge in enumerate(measure.edges, 1):
        row += [Segment(f" {edge} ", on.rich_style + ground(on, step)), Segment(" ")]
    return row


# ---- a cell: probability, rank of the final token, or entropy -----------------------------------

CERTAIN = 0.995
"""The probability from which whole percents round to 100."""


def share(value: float) -> str:
    """A probability in at most four cells: `97 %`, and never rounded to certainty or to nothing."""
    if value >= CERTAIN:
        return "100%" if value >= 1 else ">99%"
    return f"{value * 100:.0f} %" if value >= 1 - CERTAIN else "<1 %"


def place(rank: int) -> str:
    """A rank in at most four cells: `#12`, `#1k+`."""
    return f"#{rank}" if rank < 1_000 else "#1k+"


class CellMeasure(Struct, frozen=True):
    """One number of a cell; the deeper its colour, the nearer the layer is to an answer."""

    name: str
    says: str
    """The number in words, for the legend."""
    number: Callable[[LensCell], str]
    """The number as text, in at most four cells."""
    step: Callable[[LensCell], int]
    """The step of the colour, from 0 (none) to 5."""
    edges: tuple[str, ...]
    """The value at which each step begins."""


_SHARES, _RANKS, _BITS = (0.05, 0.15, 0.35, 0.65, 0.9), (1_000, 100, 10, 3, 1), (8, 6, 4, 2, 1)
MEASURES = (
    CellMeasure(
        "probability", "its probability, from (%)", lambda cell: share(cell.top[0].prob) if cell.top else "",
        lambda cell: sum(cell.top[0].prob >= edge for edge in _SHARES) if cell.top else 0,
        tuple(f"{edge * 100:.0f}" for edge in _SHARES),
    ),
    CellMeasure(
        "rank of the final token", "the rank of the column's final token, up to", lambda cell: place(cell.final_rank),
        lambda cell: sum(cell.final_rank <= edge for edge in _RANKS), tuple(map(str, _RANKS)),
    ),
    CellMeasure(
        "entropy", "the entropy in bits, below", lambda cell: f"{max(0.0, cell.entropy_bits):.1f}",
        lambda cell: sum(cell.entropy_bits < edge for edge in _BITS), tuple(map(str, _BITS)),
    ),
)  # fmt: skip
"""The measures, in the order in which a key goes through them."""
