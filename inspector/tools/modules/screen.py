"""The screens of what is inside the model: its modules from the top down, and the experts and states of one token."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment

from engine.protocol import (
    Command,
    ExpertLayer,
    ExpertsRead,
    Failure,
    ModelModules,
    ReadExperts,
    ReadModules,
    StateArray,
)
from inspector.display import pad, truncate_words, visible
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.scales import amount, count, size
from inspector.session.requests import Replies
from inspector.tools.modules.control import EXPERTS_SCREEN, MODULES_SCREEN
from inspector.tools.modules.lines import (
    EXPLAINED,
    STATES,
    Line,
    experts_summary,
    lines,
    states_summary,
    times,
)
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.charts import bar

DETAIL = 5
"""Lines about the selected module, under a rule, on a screen that is not tall."""
ROOM, TALL = 14, 26
"""Lines of the view from which on there is room for these, and for all that there is to say."""
OPENS = {
    "attention": ("attention", "attention", "where this attention looks"),
    "layer": ("lens", "lens", "what each layer would predict"),
    "head": ("lens", "lens", "what each layer would predict"),
    "mlp": ("attribution", "contributions", "what each part adds to a token"),
    "experts": ("experts", "experts", "which experts the token took"),
    "recurrence": ("experts", "states", "its state, before and after"),
}
"""For each sort of module: the key that shows what can be seen of it, a word for that, and what it is."""


class ModulesScreen(InsideScreen[ModelModules]):
    """The model from the top down.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
    """

    TOOL: ClassVar[str] = "modules"
    ACTIONS: ClassVar[ActionTable] = MODULES_SCREEN
    ASKS: ClassVar[bool] = False

    def __init__(self, host: Host, answers: Replies[ModelModules]) -> None:
        super().__init__(host, answers)
        self.at = 0
        self.unfolded: set[int] = set()
        self.opened: set[int] = set()
        self.lines: list[Line] = []
        """All that are not folded."""

    def found(self, answer: ModelModules | None, failure: Failure | None) -> None:
        """See `InsideScreen`; the lines are made anew of another answer alone, and where layers fold."""
        other = answer is not self.answer
        super().found(answer, failure)
        if other:
            self.lines = lines(answer, self.unfolded, self.opened) if answer is not None else []

    def question(self) -> tuple[Hashable, Command]:
        facts = self.facts
        question = ReadModules(second=self.looked is not None)
        return (facts.path, facts.weight_bytes) if facts is not None else None, question

    def heading(self, answer: ModelModules | None) -> str:
        facts = self.facts
        return f"The way of a token through {facts.name}" if facts is not None else "Inside the model"

    def situation(self) -> str:
        """The sums, which are the model's own."""
        answer = self.answer
        if answer is None:
            return super().situation()
        sums = (
            f"{count(answer.parameters)} parameters, {size(answer.bytes)} of weights, {answer.depth} layers"
        )
        source = " · read off the arrays and one token's forward"
        return sums + source if len(sums + source) <= self.app.size.width - 2 else sums

    # ---- drawing ----------------------------------------------------------------------------------

    def draw(self, answer: ModelModules, on: Canvas, width: int, height: int) -> list[Row]:
        found = self.lines
        self.at = max(0, min(self.at, len(found) - 1))
        below = self._detail(found[self.at], on, width) if height >= ROOM else []
        detail = min(len(below), DETAIL if height < TALL else len(below))
        room = max(1, height - detail - 1)
        first = max(0, min(self.at - room // 2, len(found) - room))
        named = [line for line in found if line.part or not line.layers]
        widths = _widths(width, 2 + max(cell_len(line.gutter + line.label) for line in named))
        rows = [_head(widths, on)]
        rows += [
            self._row(line, first + index == self.at, answer, widths, on)
            for index, line in enumerate(found[first : first + room])
        ]
        if detail:
            rows += [[] for _ in range(height - detail - len(rows))]
            rows += below[:detail]
        return rows[:height]

    def _row(self, line: Line, here: bool, answer: ModelModules, widths: dict[str, int], on: Canvas) -> Row:
        base = on.ink("row") if here else on.rich_style
        muted = base if here else on.ink("muted")
        share = line.parameters / answer.parameters if answer.parameters else 0.0
        texts = {
            "says": line.says,
            "shape": line.shape,
            "parameters": amount(line.parameters) if line.parameters else "",
            "bytes": size(line.bytes) if line.bytes else "",
            "share": _percent(share) if line.parameters else "",
        }
        name = widths["label"] - len(line.gutter) - 2
        own = on.ink("strong") if line.strong and not here else base
        row: Row = [
            Segment("▶ " if here else "  ", on.ink("accent") if here else base),
            Segment(line.gutter, base + on.ink("primary") if not here else base),
        ]
        if not line.part and line.layers:  # what is added: there are no numbers to the right of it
            return [*row, Segment(line.label, muted)]
        row.append(Segment(pad(line.label, name), own))
        if not (line.parameters or (line.shape and widths["shape"])):
            return [*row, Segment(f"  {line.says}" if widths["says"] else "", muted)]
        for column, text in texts.items():
            if widths[column]:
                right = column not in ("says", "shape")
                style = muted if column in ("says", "bytes") else base
                shown = truncate_words(text, widths[column])
                row.append(Segment("  " + pad(shown, widths[column], right=right), style))
        if widths["bar"]:
            filled = bar(share, widths["bar"]) if line.parameters else " " * widths["bar"]
            row.append(Segment("  " + filled, base + on.data(0.3 if line.strong else 0.6)))
        return row

    def _detail(self, line: Line, on: Canvas, width: int) -> list[Row]:
        """The details of the selected module."""
        part = line.part
        rows: list[Row] = [[Segment("─" * width, on.ink("faint"))]]
        title = line.path or line.label
        rows.append(
            [
                Segment(title, on.ink("strong")),
                Segment(f"  {visible(part.kind)}" if part else "", on.ink("muted")),
            ]
        )
        facts, sort = _facts(line), self._opens(line)
        if sort:
            _, word, what = OPENS[sort]
            left = width - Segment.get_line_length(rows[-1]) - len("  ⏎ ")
            told = what if cell_len(what) <= left else word
            rows[-1] += [Segment("  ⏎ ", on.ink("accent")), Segment(told, on.ink("muted"))]
        rows += [
            [Segment(text, on.rich_style)] for text in wrapped(EXPLAINED.get(line.sort, ""), width) if text
        ]
        hooks = f"hooks: {line.hooks}" if line.hooks else ""
        said = (*wrapped(hooks, width), *wrapped(facts, width))
        rows += [[Segment(text, on.ink("muted"))] for text in said if text]
        return rows

    # ---- the cursor -------------------------------------------------------------------------------

    @property
    def line(self) -> Line | None:
        """The selected one."""
        found = self.lines
        return found[min(self.at, len(found) - 1)] if found else None

    def go(self, by: int) -> None:
        """Go up or down."""
        self.at = max(0, min(self.at + by, len(self.lines) - 1))

    def _foldable(self, line: Line) -> bool:
        return (
            self.answer is not None
            and bool(line.layers)
            and any(
                len(block.layers) > 1 and set(line.layers) <= set(block.layers)
                for block in self.answer.blocks
            )
        )

    @property
    def folds(self) -> bool:
        """True if the selected line is of layers that fold."""
        return self.line is not None and self._foldable(self.line)

    def unfold(self, by: int) -> None:
        """Unfold layers that are alike, then one of them; or fold them."""
        line = self.line
        if line is None or not self._foldable(line):
            return
        assert self.answer is not None
        block = next(n for n, each in enumerate(self.answer.blocks) if set(line.layers) <= set(each.layers))
        if by > 0 and block not in self.unfolded:
            self.unfolded.add(block)
        elif by > 0:
            self.opened |= set(line.layers)
        elif block in self.unfolded and self.opened & set(line.layers):
            self.opened -= set(line.layers)
        else:
            self.unfolded.discard(block)
        self.lines = found = lines(self.answer, self.unfolded, self.opened)
        heads = [n for n, each in enumerate(found) if each.block == block]
        self.at = next((n for n in heads if found[n].layers[0] == line.layers[0]), heads[0])

    # ---- what can be seen of it -------------------------------------------------------------------

    def _opens(self, line: Line) -> str:
        """The sort of a line's module, where a view shows something of it; empty where none does."""
        part = line.part
        if line.block is not None:
            sort = "layer"
        elif line.label == "head":
            sort = "head"
        elif part is None:
            return ""
        elif part.experts is not None or line.label.strip() in ("router", "mixture of experts"):
            sort = "experts"
        else:
            sort = line.inside
        return sort if sort in OPENS and self.host.has(OPENS[sort][0]) else ""

    @property
    def opens_word(self) -> str:
        """The view that shows the selected module, in a word; empty where none does."""
        sort = self._opens(self.line) if self.line is not None else ""
        return OPENS[sort][1] if sort else ""

    def goes_to(self, action: str) -> None:
        """The view opens on the layer of the selected module, where it is of one layer."""
        if self.lines and len(layers := self.lines[min(self.at, len(self.lines) - 1)].layers) == 1:
            self.host.point(self.TOOL if action == "experts" else action, layers[0] + 1)

    def open(self) -> None:
        """Show what can be seen of the selected module."""
        line = self.line
        if line is None or not (sort := self._opens(line)):
            return
        self.host.press(OPENS[sort][0])


def _widths(width: int, label: int) -> dict[str, int]:
    """Of the columns; 0 for one that there is no room for.

    Args:
        width: Of all.
        label: Of the longest label: where it is short, there is more room for what a module is.
    """
    if width >= 100:
        fixed = {"label": 27, "shape": 14, "parameters": 7, "bytes": 8, "share": 6}
        rest = width - sum(fixed.values()) - 12
        return {**fixed, "says": min(rest - 8, 40), "bar": max(8, rest - 40)}
    if width >= 66:
        fixed = {"label": min(25, label), "shape": 0, "parameters": 6, "bytes": 0, "share": 6, "bar": 6}
        return {**fixed, "says": width - sum(fixed.values()) - 8}
    if width >= 52:
        fixed = {"label": min(23, label), "shape": 0, "parameters": 6, "bytes": 0, "share": 0, "bar": 0}
        return {**fixed, "says": width - sum(fixed.values()) - 4}
    narrow = {"says": 0, "shape": 0, "parameters": 6, "bytes": 0, "share": 6, "bar": 0}
    return {**narrow, "label": max(12, width - 16)}


def _head(widths: dict[str, int], on: Canvas) -> Row:
    names = {
        "says": "what it is",
        "shape": "shape",
        "parameters": "params",
        "bytes": "bytes",
        "share": "share",
    }
    row: Row = [Segment(pad("  module", widths["label"]), on.ink("muted"))]
    for column, name in names.items():
        if widths[column]:
            right = column not in ("says", "shape")
            row.append(Segment("  " + pad(name, widths[column], right=right), on.ink("muted")))
    return row


def _percent(share: float) -> str:
    """A share in percent, short."""
    return "<0.1 %" if 0 < share < 0.001 else f"{share * 100:.1f} %"


def _facts(line: Line) -> str:
    """Arrays, shapes for one token, and the parameters of each layer."""
    part = line.part
    if part is None:
        return line.says
    arrays = ", ".join(
        f"{visible(array.name)} {times(array.shape)} {visible(array.dtype)}"
        + (f" ({array.bits} bits, groups of {array.group_size}, {visible(array.mode)})" if array.bits else "")
        for array in part.arrays
    )
    each = f"{count(part.parameters)} parameters in each layer" if len(line.layers) > 1 else ""
    way = f"{times(part.given)} → {times(part.returned)} for a token" if part.given and part.returned else ""
    return " · ".join(text for text in (arrays, each or f"{count(part.parameters)} parameters", way) if text)


# ---- what one token chose: experts of each layer, and states of recurrent layers ----------------

SHADES = "░▒▓█"
"""For a weight up to a quarter, a half, three quarters, and above."""
LOW = 8
"""Lines of a view below which the numbers come before the words."""
NAME = 8
CELL = 8


class ExpertsScreen(InsideScreen[ExpertsRead]):
    """Layers by experts, and layers by states.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
        layer: The one that was chosen among the modules, which is told first; None for none.
    """

    TOOL: ClassVar[str] = "modules"
    opener = "experts"
    ACTIONS: ClassVar[ActionTable] = EXPERTS_SCREEN

    def __init__(self, host: Host, answers: Replies[ExpertsRead], layer: int | None = None) -> None:
        super().__init__(host, answers)
        self.chosen_layer = layer

    def question(self) -> tuple[Hashable, Command]:
        return self.node, ReadExperts(self.node)

    def heading(self, answer: ExpertsRead | None) -> str:
        if answer is None or answer.layers:
            return "Experts that this token went through"
        return "What recurrent layers keep after this token" if answer.states else "Experts and states"

    def draw(self, answer: ExpertsRead, on: Canvas, width: int, height: int) -> list[Row]:
        rows: list[Row] = [*self._chosen(answer, on, width)]
        rows += [
            [Segment(line, on.ink("accent"))]
            for text in (experts_summary(answer.layers), states_summary(answer.states))
            for line in wrapped(text, width)
            if text and height >= LOW
        ]
        for numbers, legend in (
            (list(_experts(answer.layers, on, width)), _legend(answer.layers, width)),
            (list(_states(answer.states, on, width)), STATES),
        ):
            said: list[Row] = [[Segment(line, on.ink("muted"))] for line in wrapped(legend, width)]
            gap: list[Row] = [[]] if rows and numbers else []
            if numbers:
                rows += [*gap, *numbers, *said] if height < LOW else [*gap, *said, *numbers]
        for sentence in answer.missing:
            rows += [[], *([Segment(line, on.ink("muted"))] for line in wrapped(visible(sentence), width))]
        return rows

    def _chosen(self, answer: ExpertsRead, on: Canvas, width: int) -> Iterator[Row]:
        """The rows of the chosen layer, before all others: in a large model they would be out of sight."""
        experts = [each for each in answer.layers if each.layer == self.chosen_layer]
        states = [each for each in answer.states if each.layer == self.chosen_layer]
        yield from _experts(experts, on, width)
        yield from _states(states, on, width)
        if self.chosen_layer is not None and not experts and not states:
            yield [Segment(f"Layer {self.chosen_layer + 1} has no experts and no state.", on.ink("muted"))]


def _legend(layers: Sequence[ExpertLayer], width: int) -> str:
    what = "A column is an expert, a number" if _fits(layers, width) else "Each expert that was chosen, and"
    return f"{what} its weight: what its output is multiplied by before it is added."


def _fits(layers: Sequence[ExpertLayer], width: int) -> bool:
    """True if there is a column for each expert."""
    return NAME + max((layer.experts for layer in layers), default=0) * CELL <= width


def _experts(layers: Sequence[ExpertLayer], on: Canvas, width: int) -> Iterator[Row]:
    wide = _fits(layers, width)
    if wide and layers:
        most = max(layer.experts for layer in layers)
        numbers = "".join(f"{number:>{CELL}}" for number in range(1, most + 1))
        yield [Segment(pad("expert", NAME) + numbers, on.ink("muted"))]
    for layer in layers:
        name = Segment(pad(f"layer {layer.layer + 1}", NAME + (0 if wide else 1)), on.ink("strong"))
        yield [name, *(_grid(layer, on) if wide else _list(layer, on, width - NAME - 1))]


def _grid(layer: ExpertLayer, on: Canvas) -> Iterator[Segment]:
    """A cell for each expert."""
    weights = dict(zip(layer.chosen, layer.weights or [None] * len(layer.chosen), strict=True))
    for expert in range(layer.experts):
        if expert not in weights:
            yield Segment(f"{'·':>{CELL}}", on.ink("faint"))
        elif (weight := weights[expert]) is None:
            yield Segment(f"{'■':>{CELL}}", on.data(0.5))
        else:
            shade = SHADES[min(3, max(0, int(weight * 4)))]
            yield Segment(f"{shade} {weight:.2f}".rjust(CELL), on.data(min(1.0, max(0.0, weight))))


def _list(layer: ExpertLayer, on: Canvas, width: int) -> Iterator[Segment]:
    """The chosen experts, as many as fit."""
    used = 0
    for place, expert in enumerate(layer.chosen):
        weight = layer.weights[place] if layer.weights else None
        text = f"{expert + 1}" + (f" {bar(weight, 3).strip()} {weight:.2f}" if weight is not None else "")
        more = place + 1 < len(layer.chosen)
        if used + len(text) + 3 > width and more:
            yield Segment(f"{len(layer.chosen) - place} more", on.ink("muted"))
            return
        used += len(text) + 3
        yield Segment(f"{text}   ", on.data(min(1.0, max(0.0, weight or 0.5))))


def _states(states: Sequence[StateArray], on: Canvas, width: int) -> Iterator[Row]:
    for state in states:
        kind = f"{pad(visible(state.dtype), 9)}" if width >= 90 else ""
        shape = f"{pad(times(state.shape), 17)}{kind}{size(state.bytes):>9}  " if width >= 66 else ""
        changed = f"changed by {state.changed * 100:.0f} %" if state.changed is not None else "was empty"
        yield [
            Segment(pad(f"layer {state.layer + 1}", NAME + 1), on.ink("strong")),
            Segment(shape, on.ink("muted")),
            Segment(f"{state.before:>8.3g} → {state.norm:<8.3g}", on.rich_style),
            Segment(f" {changed:<16}" if width >= 52 else "", on.ink("muted")),
            Segment(f" {bar(min(1.0, state.changed or 0.0), 10)}" if width >= 90 else "", on.data(0.5)),
        ]
