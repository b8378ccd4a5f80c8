"""The screen of the logit lens: layers by positions, in each cell what the model's end makes of the residual stream."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, NamedTuple

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.protocol import Command, LensCell, LensColumn, LensRead, LensToken, ReadLens
from inspector.blocks.paint import part_shown
from inspector.display import pad, quoted, token_label, truncate_middle
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.scales import bits, count, percent
from inspector.session.requests import Replies
from inspector.tools.lens.control import LENS_SCREEN, LensChoices
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, colourful, is_dark, wrapped
from inspector.widgets.charts import bar
from inspector.widgets.token_lines import heat_style

TOP = 10
"""Tokens of a cell's list."""
CANDIDATES = 4
"""Of the last layer, that can be followed without asking again."""


class LensScreen(InsideScreen[LensRead]):
    """Layers by positions.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
        choices: Those of the last time.
    """

    TOOL: ClassVar[str] = "lens"
    ACTIONS: ClassVar[ActionTable] = LENS_SCREEN

    def __init__(self, host: Host, answers: Replies[LensRead], choices: LensChoices) -> None:
        super().__init__(host, answers)
        self.choices = choices

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        before = self.answers.get(self.node)  # what was followed on another branch stays known
        followed = dict.fromkeys((*self._wanted(), *(before.followed if before is not None else ())))
        return self.node, ReadLens(self.node, top=TOP, followed=tuple(followed))

    def _wanted(self) -> tuple[int, ...]:
        """The tokens that can be followed: the chosen one, the one taken next, the best candidates."""
        best = (candidate.id for candidate in self.candidates[:CANDIDATES])
        ids = (self.choices.followed, self.timeline.taken, *best)
        return tuple(dict.fromkeys(id for id in ids if id is not None))

    def ask(self) -> None:
        """See `InsideScreen`; again where a token is to be followed that wasn't."""
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
        column, layer, measure = answer.columns[-1], self._layer(answer), self.measure
        followed = self._followed(answer)
        table = LensTable(
            answer.columns, self._heads(answer), measure, layer,
            answer.followed.index(followed) if followed is not None else None, self._label_of(answer, followed),
        )  # fmt: skip
        below = min(height - 1, 1 if height < 10 else max(6, height - 1 - table.depth))
        rows = table.draw(on, width, height - below)
        return rows + detail(on, column, layer, measure, width, below)

    def _heads(self, answer: LensRead) -> list[str]:
        """The token of each column."""
        known = {item.node: item for item in self.path[-len(answer.columns) :]}
        items = [known.get(column.node) for column in answer.columns]
        return [token_label(item.text, item.raw) if item is not None else "?" for item in items]

    def _layer(self, answer: LensRead) -> int:
        last = len(answer.columns[-1].cells) - 1
        return last if self.choices.layer is None else max(0, min(last, self.choices.layer))

    def _followed(self, answer: LensRead) -> int | None:
        """The token that is followed: of those that the answer has, the first that is wanted."""
        wanted = [id for id in self._wanted() if id in answer.followed]
        return wanted[0] if wanted else next(iter(answer.followed), None)

    def _label_of(self, answer: LensRead, id: int | None) -> str:
        """The label of a followed token, which the record has by id alone."""
        texts = {token.id: token.text for cell in answer.columns[-1].cells for token in cell.top}
        texts |= {each.id: each.text for each in (*self.timeline.candidates, *self.candidates)}
        if (selected := self.timeline.selected) is not None:
            texts[selected.id] = selected.text
        return token_label(texts[id]) if id in texts else f"token {id}"

    # ---- keys -----------------------------------------------------------------------------------

    @property
    def measure(self) -> CellMeasure:
        """The measure that the cells are coloured by."""
        return MEASURES[self.choices.measure]

    def turn_layer(self, by: int) -> None:
        """Look at another layer of the last column."""
        if (answer := self.answer) is not None and answer.columns:
            last = len(answer.columns[-1].cells) - 1
            self.choices.layer = max(0, min(last, self._layer(answer) + by))

    def follow_next(self) -> None:
        """Follow the next of the tokens that the answer has."""
        if (answer := self.answer) is not None and answer.followed:
            now = self._followed(answer)
            at = answer.followed.index(now) if now is not None else -1
            self.choices.followed = answer.followed[(at + 1) % len(answer.followed)]

    def change_measure(self) -> None:
        """Colour by the next measure."""
        self.choices.measure = (self.choices.measure + 1) % len(MEASURES)


# ---- the table ----------------------------------------------------------------------------------

LABEL = 6
"""Cells of the layers' numbers."""
CELL, WIDEST = 13, 18
"""Cells of a column at least and at most: a mark, the token, a blank and four cells of a number."""
FIGURES = 12
"""Cells beside the bar of the followed token: probability, rank, blanks."""
LEADS, ROUGH = "▸", "~"


class LensLayout(NamedTuple):
    """The division of the width."""

    columns: int
    cell: int
    side: int
    """Cells of the followed token's bars and figures."""


class LensTable(Struct, frozen=True):
    """The table, ready to be drawn.

    Args:
        columns: Of the record, all of them.
        heads: The token of each, printable.
        measure: What number and colour are.
        cursor: The cell of the last column that is looked at.
        followed: Which of the followed tokens stands beside the table, None for none.
        name: Its label.
    """

    columns: Sequence[LensColumn]
    heads: Sequence[str]
    measure: CellMeasure
    cursor: int
    followed: int | None
    name: str

    @property
    def depth(self) -> int:
        """Cells of a column: the embedding and the layers."""
        return min((len(column.cells) for column in self.columns), default=0)

    def draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The head, and as many layers as there is room for, those around the cursor; upwards."""
        form = layout(width, len(self.columns), self.followed is not None)
        room = max(1, height - 1)
        said: list[Row] = []
        if self.depth > room > 2:
            room -= 1
            shown = self._shown(room)
            text = part_shown(width, ("layers", [layer - 1 for layer in shown if layer], self.depth - 1))
            said = [[Segment(text, on.ink("warn"))]]
        return [
            *said,
            self._head(on, form),
            *(self._row(on, form, layer) for layer in reversed(self._shown(room))),
        ]

    def _shown(self, room: int) -> range:
        """As many layers as there is room for, around the cursor."""
        first = max(0, min(self.cursor - room // 2, self.depth - room))
        return range(first, min(self.depth, first + room))

    def _head(self, on: Canvas, form: LensLayout) -> Row:
        heads = self.heads[-form.columns :]
        row: Row = [Segment(pad("after", LABEL), on.ink("muted"))]
        row += [
            Segment(
                " " + pad(truncate_middle(head, form.cell - 1), form.cell - 1),
                on.ink("accent" if at == len(heads) else "muted"),
            )
            for at, head in enumerate(heads, 1)
        ]
        if form.side:
            name = quoted(self.name)
            if cell_len(f"follows {name}") <= form.side - 2:
                name = f"follows {name}"
            row.append(Segment(pad(f"  {truncate_middle(name, form.side - 2)}", form.side), on.ink("accent")))
        return row

    def _row(self, on: Canvas, form: LensLayout, layer: int) -> Row:
        here = layer == self.cursor
        row: Row = [Segment(self._label(layer), on.ink("accent" if here else "muted"))]
        for column in self.columns[-form.columns :]:
            row += self._cell(on, form, column, layer, here and column is self.columns[-1])
        if form.side and self.followed is not None:
            row += self._followed(on, form, self.columns[-1].cells[layer], self.followed)
        return row

    def _label(self, layer: int) -> str:
        rough = ROUGH if is_rough(layer, self.depth) else " "
        return f"{rough}{layer:>3}  " if layer else f"{rough}embed"

    def _cell(self, on: Canvas, form: LensLayout, column: LensColumn, layer: int, here: bool) -> Row:
        cell = column.cells[layer]
        mark = Segment(LEADS if column.leads_from == layer else " ", on.ink("accent"))
        best = token_label(cell.top[0].text) if cell.top else ""
        text = pad(truncate_middle(best, form.cell - 6), form.cell - 6) + pad(
            self.measure.number(cell), 5, right=True
        )
        style = on.rich_style + ground(on, self.measure.step(cell)) + Style(bold=cell.final_rank == 1)
        return [mark, Segment(text, on.ink("cursor") if here else style)]

    def _followed(self, on: Canvas, form: LensLayout, cell: LensCell, index: int) -> Row:
        prob, rank = cell.followed[index], cell.followed_ranks[index]
        drawn = Segment(bar(prob, form.side - FIGURES), on.data(prob))
        return [Segment("  "), drawn, Segment(f" {share(prob):>4} {place(rank):>4}", on.rich_style)]


def layout(width: int, available: int, side: bool = True) -> LensLayout:
    """Divide the width: the followed token's part, then as many columns as fit.

    Args:
        width: Cells.
        available: Columns that there are.
        side: Whether a token is followed.
    """
    beside = (17 if width < 60 else 18 if width < 100 else 32) if side else 0
    room = width - LABEL - beside
    columns = max(1, min(available, room // CELL))
    return LensLayout(columns, max(8, min(WIDEST, room // columns)), beside)


def ground(on: Canvas, step: int) -> Style:
    """The colour of a step; lines under the text only where there are no colours."""
    colours = colourful(on.app)
    return heat_style(step, is_dark(on.app), colours) + Style(underline=False if colours else None)


def is_rough(layer: int, depth: int) -> bool:
    """True if a cell is in the first half of the layers, by convention: nothing measures how far it can be trusted."""
    return layer < (depth - 1) / 2


# ---- under the table: one cell's list of tokens, where the answer first leads, and the legend ---

ENTRY = 15
"""Cells of a token in the grid: rank, label, probability."""
WORDS = (
    "Each cell: the token that the model's own end (last norm and head) would pick if the layers stopped there. "
    f"{LEADS} from here on the final token leads. "
    f"{ROUGH} rough: that end was never trained to read early layers, so their tokens are a hint at most."
)
SHORT = (
    f"{LEADS} the answer leads from here on  {ROUGH} rough: the end isn't trained for these",
    f"{LEADS} the answer leads from here on  {ROUGH} a hint at most",
    f"{LEADS} the answer leads  {ROUGH} a hint at most",
)


def detail(
    on: Canvas, column: LensColumn, layer: int, measure: CellMeasure, width: int, height: int
) -> list[Row]:
    """The rows under the table, as many as fit.

    Args:
        on: Where they are drawn.
        column: The last one.
        layer: The cell that is looked at, 0 for the embedding.
        measure: What the colours mean.
        width: Cells.
        height: Rows.
    """
    cell = column.cells[layer]
    final = column.cells[-1].top[0] if column.cells[-1].top else None
    said: list[Row] = [[Segment(_cell_line(cell, layer, final, width), on.rich_style)]]
    if height < 4:
        return said[:height]
    said = [[Segment(_lead_line(column, final, width), on.ink("accent"))], *said]
    told = next((form for form in SHORT if cell_len(form) <= width), SHORT[-1])
    colours, short = _colours(on, measure, width), [Segment(told, on.ink("muted"))]
    words: list[Row] = [[Segment(line, on.ink("muted"))] for line in wrapped(WORDS, width)]
    if height >= len(said) + len(cell.top) + len(words) + 4:
        return [[], *said, *_bars(on, cell.top, final, width), [], colours, *words]
    room = max(1, height - len(said) - 2)
    above = [*said, *_grid(on, cell.top, width, room)[:room], colours]
    return [*above, *(words if len(above) + len(words) <= height else [short])][:height]


def _lead_line(column: LensColumn, final: LensToken | None, width: int) -> str:
    if final is None:
        return ""
    name, first = quoted(token_label(final.text)), column.leads_from
    if first == 0:
        return f"{LEADS} {name} leads from the embedding on: no layer changes that."
    layers = len(column.cells) - 1
    long = f"{LEADS} The model's answer, {name}, leads from layer {first} of {layers} on."
    if first == layers:
        long = f"{LEADS} The model's answer, {name}, leads after the last layer alone: {layers} of {layers}."
    return long if cell_len(long) <= width else f"{LEADS} {name} leads from layer {first} on"


def _cell_line(cell: LensCell, layer: int, final: LensToken | None, width: int) -> str:
    where = f"After layer {layer}" if layer else "At the embedding"
    rank = f"{quoted(token_label(final.text))} is rank {count(cell.final_rank)}" if final else ""
    long = f"{where}: {rank}; entropy {bits(cell.entropy_bits)} bits. Its list:"
    short = (
        f"{'L' + str(layer) if layer else 'embed'}: answer #{cell.final_rank}, {bits(cell.entropy_bits)} bits"
    )
    return long if cell_len(long) <= width else short


def _bars(on: Canvas, top: Sequence[LensToken], final: LensToken | None, width: int) -> list[Row]:
    """The list with bars, a token a line."""
    label = max((cell_len(token_label(token.text)) for token in top), default=0)
    label, rows = min(label, width // 3), []
    for rank, token in enumerate(top, 1):
        ink = on.ink("strong") if final is not None and token.id == final.id else on.rich_style
        row: Row = [
            Segment(f"  {rank:>2}  {pad(token_label(token.text), label)} {percent(token.prob):>8}  ", ink)
        ]
        row.append(Segment(bar(token.prob, min(40, width - label - 16)), on.data(token.prob)))
        rows.append(row)
    return rows


def _grid(on: Canvas, top: Sequence[LensToken], width: int, room: int) -> list[Row]:
    """The list in columns that are as wide as its tokens, if the rows that there is room for hold it then."""
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
    """Each step's edge on its own colour."""
    says = f"Number and colour: {measure.says} "
    if cell_len(says) + sum(len(edge) + 3 for edge in measure.edges) > width:
        says = f"{measure.name} "
    row: Row = [Segment(says, on.ink("muted"))]
    for step, edge in enumerate(measure.edges, 1):
        row += [Segment(f" {edge} ", on.rich_style + ground(on, step)), Segment(" ")]
    return row


# ---- a cell: probability, rank of the final token, or entropy -----------------------------------

CERTAIN = 0.995
"""From here on a whole percent would be 100."""


def share(value: float) -> str:
    """A probability in at most four cells: `97 %`, and never rounded to certainty or to nothing."""
    if value >= CERTAIN:
        return "100%" if value >= 1 else ">99%"
    return f"{value * 100:.0f} %" if value >= 1 - CERTAIN else "<1 %"


def place(rank: int) -> str:
    """A rank in at most four cells: `#12`, `#48k`."""
    return f"#{rank}" if rank < 1_000 else f"#{rank // 1_000}k" if rank < 100_000 else f"{rank // 1_000}k"


def short_bits(value: float) -> str:
    """Bits in at most four cells: `3.1`."""
    return f"{max(0.0, value):.1f}"


class CellMeasure(Struct, frozen=True):
    """One number of a cell; the deeper its colour, the nearer the layer is to an answer."""

    name: str
    says: str
    """The number in words, for the legend."""
    number: Callable[[LensCell], str]
    """In at most four cells."""
    step: Callable[[LensCell], int]
    """Of the colour, 0 for none to 5."""
    edges: tuple[str, ...]
    """Where each step begins."""


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
        "entropy", "the entropy in bits, below", lambda cell: short_bits(cell.entropy_bits),
        lambda cell: sum(cell.entropy_bits < edge for edge in _BITS), tuple(map(str, _BITS)),
    ),
)  # fmt: skip
"""In the order in which a key goes through them."""
