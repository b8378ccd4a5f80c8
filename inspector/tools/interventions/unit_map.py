"""The map of a sweep: layers by heads and parts, each cell what happens where that unit alone is switched off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.frozen import frozen
from engine.protocol import HeadsSwept, Intervention, SweptUnit
from inspector import scales
from inspector.display import pad, truncate
from inspector.main.inside.screen import part_shown
from inspector.tools.interventions.tool import Column, UnitMeasure, column_of, place, strongest
from inspector.widgets.canvas import Canvas, Row, colourful, is_dark, rgb_style
from inspector.widgets.token_lines import heat_style

LABEL = 5
"""Cells of a layer's name."""
NUMBERED, WIDEST = 4, 8
"""Cells of a column from which on it has numbers, and at most."""
MARK = "×"
_HEADS = {"attention": "attn", "mlp": "MLP", "recurrence": "rec", "layer": "layer"}
_SHORT = {"attention": "att", "layer": "all"}
_KINDS = ("head", "attention", "mlp", "recurrence", "layer")


@frozen
class UnitMap:
    """The map, ready to be drawn.

    Args:
        swept: All units.
        measure: What number and colour are.
        cursor: The unit that is looked at.
        marked: Those that are switched off together.
    """

    swept: HeadsSwept
    measure: UnitMeasure
    cursor: Intervention
    marked: Mapping[Intervention, float]

    @property
    def depth(self) -> int:
        """Layers."""
        return self.swept.units[-1].intervention.layer + 1

    def rows(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The heads of the as many layers as fit, upwards, and what the colours mean.

        Args:
            on: Where it is drawn.
            width: Cells.
            height: Rows, 3 or more.
        """
        cell, shown = self._columns(width)
        room = max(1, height - 2)
        every = columns(self.swept)
        said = part_shown(
            width,
            ("layers", self._layers(room - 1), self.depth),
            (
                "heads",
                [head for _, head in shown if head is not None],
                sum(head is not None for _, head in every),
            ),
        )
        room -= bool(said) and room > 2
        layers = self._layers(room)
        units = {(each.intervention.layer, column_of(each.intervention)): each for each in self.swept.units}
        rows = [[Segment(said, on.ink("warn"))]] if said and len(layers) == room > 1 else []
        parts = self._part_cells(width, cell, shown)
        rows.append(self._head(on, cell, parts, shown))
        for layer in reversed(layers):
            here = layer == self.cursor.layer
            row: Row = [Segment(pad(f"L{layer + 1}", LABEL), on.ink("accent" if here else "muted"))]
            row += [
                self._cell(on, cell if column[1] is not None else parts, units.get((layer, column)))
                for column in shown
            ]
            rows.append(row)
        return [*rows, legend(on, self.measure, width, cell < NUMBERED)]

    def _layers(self, room: int) -> range:
        """As many layers as there is room for, around the cursor."""
        first = max(0, min(self.cursor.layer - room // 2, self.depth - room))
        return range(first, min(self.depth, first + max(1, room)))

    def _columns(self, width: int) -> tuple[int, list[Column]]:
        """Cells of a column, and the columns there is room for, around the cursor."""
        every = columns(self.swept)
        room = width - LABEL
        cell = max(1, min(WIDEST, room // len(every)))
        fit = room // cell
        first = max(0, min(every.index(column_of(self.cursor)) - fit // 2, len(every) - fit))
        return cell, every[first : first + fit]

    def _part_cells(self, width: int, cell: int, shown: Sequence[Column]) -> int:
        """Cells of the columns after the heads': they have numbers where many narrow heads leave room for those."""
        parts = sum(head is None for _, head in shown)
        room = (width - LABEL - cell * (len(shown) - parts)) // parts if parts else 0
        return min(WIDEST, room) if room > NUMBERED else cell

    def _head(self, on: Canvas, cell: int, parts: int, shown: Sequence[Column]) -> Row:
        narrow = [column for column in shown if (cell if column[1] is not None else parts) < NUMBERED]
        row: Row = [Segment(" " * LABEL)]
        if narrow:
            short = _short_head(cell, narrow)
            row = [Segment(" " * LABEL + short[: cell * len(narrow)], on.ink("muted"))]
        for kind, head in (column for column in shown if column not in narrow):
            cells = cell if head is not None else parts
            name = f"h{head + 1}" if head is not None else _HEADS[kind]
            name = name if len(name) < cells else _SHORT.get(kind, name)
            ink = on.ink("accent" if (kind, head) == column_of(self.cursor) else "muted")
            row.append(Segment(pad(truncate(name, cells - 1), cells, right=True), ink))
        return row

    def _cell(self, on: Canvas, cell: int, unit: SweptUnit | None) -> Segment:
        if unit is None:
            return Segment(" " * cell)
        value = self.measure.value(unit)
        step = self.measure.step(value)
        mark = unit.intervention in self.marked
        if cell >= NUMBERED:
            number = figure(value, min(cell - 1, 5), self.measure.signed)
            text = (MARK if mark else " ") + number.rjust(cell - 1)
        else:
            text = (MARK if mark else glyph(on, step)) * cell
        here = unit.intervention == self.cursor
        return Segment(
            text, on.ink("cursor") if here else on.rich_style + ground(on, step, self.measure.signed)
        )


def columns(swept: HeadsSwept) -> list[Column]:
    """The columns of the map."""
    return sorted({column_of(each.intervention) for each in swept.units}, key=place)


def _short_head(cell: int, shown: Sequence[Column]) -> str:
    """Over narrow columns: the number of every so many heads, and a letter for each part."""
    text = [" "] * (cell * len(shown) + 4)
    every = -(-4 // cell)
    for at, (kind, head) in enumerate(shown):
        if head is None or head % every == 0:
            name = f"{head + 1}" if head is not None else _HEADS[kind][0].upper()
            text[at * cell : at * cell + len(name)] = name
    return "".join(text)


def legend(on: Canvas, measure: UnitMeasure, width: int, glyphs: bool) -> Row:
    """Each step on its own colour; with its glyph where the cells have those."""
    sides = [1, -1] if measure.signed else [1]
    drawn: Row = []
    for side in sides:
        sign = {1: "+", -1: "-"}[side] if measure.signed else ""
        for step, edge in enumerate(measure.edges, 1):
            shown = glyph(on, side * step).strip() if glyphs else ""
            text = f" {shown}{sign}{edge:g} "
            drawn.append(Segment(text, on.rich_style + ground(on, side * step, measure.signed)))
    room = width - sum(part.cell_length for part in drawn)
    choices = (
        f"Number and colour: {measure.says} ",
        f"Colour: {measure.says} ",
        f"{measure.says} ",
        f"{measure.name} from ",
        "",
    )
    says = next((words for words in choices if cell_len(words) <= room), "")
    return [Segment(says, on.ink("muted")), *drawn]


def strongest_line(swept: HeadsSwept, measure: UnitMeasure, width: int) -> str:
    """The strongest unit of each kind, heads first, as many as there is room for."""
    found: dict[str, list[SweptUnit]] = {}
    for each in swept.units:
        found.setdefault(each.intervention.kind, []).append(each)
    line = f"Strongest ({measure.unit}): " if width >= 60 else "Most: "
    for at, kind in enumerate(kind for kind in _KINDS if kind in found):
        best = strongest(found[kind], measure)
        part = f"{best.intervention.label} {figure(measure.value(best), 5, measure.signed)}"
        more = f"{' · ' if at else ''}{part}"
        if cell_len(line) + cell_len(more) > width:
            break
        line += more
    return line


# ---- a cell of a map: its number, its colours, and a glyph where there are none -----------------

GLYPHS, BELOW = "·:░▒▓█", "·-~=≡#"
"""For each step of a value above 0, and of one below, from calm to strongest."""
NOTHING = "·"
"""A number too small for its cells."""
_ABOVE_DARK = ((62, 40, 16), (104, 62, 16), (155, 88, 14), (214, 120, 24), (255, 178, 90))
_BELOW_DARK = ((24, 40, 66), (30, 64, 110), (40, 95, 165), (70, 135, 215), (140, 190, 250))
_ABOVE_LIGHT = ((254, 232, 206), (253, 205, 150), (250, 160, 85), (220, 105, 20), (150, 60, 5))
_BELOW_LIGHT = ((222, 235, 247), (180, 210, 238), (120, 170, 220), (50, 115, 185), (8, 60, 130))
_INKS: tuple[scales.Rgb, scales.Rgb] = ((16, 16, 20), (248, 248, 250))


def figure(value: float, cells: int, signed: bool = False) -> str:
    """A number in so many cells, 3 or more: `1.20`, `.12`, `-1.2`, `+12`; a dot for next to nothing."""
    sign = ("-" if value < 0 else "+") if signed else ""
    size, room = abs(value), cells - len(sign)
    for digits in (2, 1, 0):
        text = f"{size:.{digits}f}"
        if not float(text):
            return NOTHING
        if len(text) <= room:
            return sign + text
        if text.startswith("0.") and len(text) - 1 <= room:
            return sign + text[1:]
    return sign + "9" * room


def ground(on: Canvas, step: int, signed: bool = True) -> Style:
    """The colours of a step: of signed ones blue below 0 and orange above; underlines where there are no colours."""
    if not step:
        return Style()
    dark = is_dark(on.app)
    if not signed or not colourful(on.app):
        return heat_style(abs(step), dark, colourful(on.app))
    above, below = (_ABOVE_DARK, _BELOW_DARK) if dark else (_ABOVE_LIGHT, _BELOW_LIGHT)
    colour = (above if step > 0 else below)[abs(step) - 1]
    return rgb_style(max(_INKS, key=lambda ink: scales.contrast(ink, colour)), colour)


def glyph(on: Canvas, step: int) -> str:
    """The sign for a number that there is no room for: a blank where there are colours."""
    return " " if colourful(on.app) else GLYPHS[step] if step >= 0 else BELOW[-step]
