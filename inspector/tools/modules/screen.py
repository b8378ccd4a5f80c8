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
from inspector.display import first_fitting, pad, truncate_words, visible
from inspector.main.inside_view import InsideView
from inspector.scales import amount, count, size
from inspector.tools.modules.control import EXPERTS_SCREEN, MODULES_SCREEN, ModulesActions
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
from inspector.widgets.canvas import Canvas, Row, paragraph
from inspector.widgets.charts import bar, in_sight

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
"""The action that opens a view of each sort of module, a word for the view, and what it shows."""
NOTHING = ("", "", "")
COLUMNS = {"says": "what it is", "shape": "shape", "parameters": "params", "bytes": "bytes", "share": "share"}
"""The headings of the columns after the label."""


class ModulesScreen(InsideView[ModelModules]):
    """The model from the top down.

    Args:
        tool: Has the answers.
    """

    TOOL: ClassVar[str] = "modules"
    ACTIONS: ClassVar[ActionTable] = MODULES_SCREEN
    ASKS: ClassVar[bool] = False

    def __init__(self, tool: ModulesActions) -> None:
        super().__init__(tool.host, tool.modules)
        self.at = 0
        self.unfolded: set[int] = set()
        self.opened: set[int] = set()
        self.lines: list[Line] = []
        """All that are not folded."""

    def found(self, answer: ModelModules | None, failure: Failure | None) -> None:
        """See `InsideView`; the lines are made again for another answer alone, and when layers fold."""
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
        return first_fitting(self.app.size.width - 2, sums + source, sums)

    # ---- drawing ----------------------------------------------------------------------------------

    def draw(self, answer: ModelModules, on: Canvas, width: int, height: int) -> list[Row]:
        found = self.lines
        self.at = max(0, min(self.at, len(found) - 1))
        below = self._detail(found[self.at], on, width) if height >= ROOM else []
        detail = min(len(below), DETAIL if height < TALL else len(below))
        named = [line for line in found if line.part or not line.layers]
        widths = _widths(width, 2 + max(cell_len(line.gutter + line.label) for line in named))
        head: Row = [Segment(pad("  module", widths["label"]), on.ink("muted"))]
        for column, name in COLUMNS.items():
            if widths[column]:
                right = column not in ("says", "shape")
                head.append(Segment("  " + pad(name, widths[column], right=right), on.ink("muted")))
        shown = in_sight(len(found), max(1, height - detail - 1), self.at)
        rows = [head, *(self._row(found[at], at == self.at, answer, widths, on) for at in shown)]
        if detail:
            rows += [[] for _ in range(height - detail - len(rows))]
            rows += below[:detail]
        return rows[:height]

    def _row(self, line: Line, here: bool, answer: ModelModules, widths: dict[str, int], on: Canvas) -> Row:
        base = on.ink("row") if here else on.rich_style
        muted = base if here else on.ink("muted")
        share = line.parameters / answer.parameters if answer.parameters else 0.0
        percent = "<0.1 %" if 0 < share < 0.001 else f"{share * 100:.1f} %"
        texts = (
            line.says, line.shape, amount(line.parameters) if line.parameters else "",
            size(line.bytes) if line.bytes else "", percent if line.parameters else "",
        )  # fmt: skip
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
        for column, text in zip(COLUMNS, texts, strict=True):
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
        kind = f"  {visible(part.kind)}" if part else ""
        title = [Segment(line.path or line.label, on.ink("strong")), Segment(kind, on.ink("muted"))]
        id, word, what = self.opens
        if id:
            left = width - Segment.get_line_length(title) - len("  ⏎ ")
            says = first_fitting(left, what, word)
            title += [Segment("  ⏎ ", on.ink("accent")), Segment(says, on.ink("muted"))]
        hooks = f"hooks: {line.hooks}" if line.hooks else ""
        return [
            [Segment("─" * width, on.ink("faint"))],
            title,
            *paragraph(on.rich_style, width, *filter(None, [EXPLAINED.get(line.sort, "")])),
            *paragraph(on.ink("muted"), width, *filter(None, (hooks, _facts(line)))),
        ]

    # ---- the cursor -------------------------------------------------------------------------------

    @property
    def line(self) -> Line | None:
        """The selected one."""
        found = self.lines
        return found[min(self.at, len(found) - 1)] if found else None

    def go(self, by: int) -> None:
        """Go up or down."""
        self.at = max(0, min(self.at + by, len(self.lines) - 1))

    @property
    def folds(self) -> int | None:
        """The block of layers that fold, of which the selected line is; None if it is of none."""
        line, answer = self.line, self.answer
        if line is None or answer is None or not line.layers:
            return None
        own = (n for n, each in enumerate(answer.blocks) if set(line.layers) <= set(each.layers))
        block = next(own, None)
        return block if block is not None and len(answer.blocks[block].layers) > 1 else None

    def unfold(self, by: int) -> None:
        """Unfold layers that are alike, then one of them; or fold them."""
        line, answer, block = self.line, self.answer, self.folds
        if line is None or answer is None or block is None:
            return
        if by > 0 and block not in self.unfolded:
            self.unfolded.add(block)
        elif by > 0:
            self.opened |= set(line.layers)
        elif block in self.unfolded and self.opened & set(line.layers):
            self.opened -= set(line.layers)
        else:
            self.unfolded.discard(block)
        self.lines = found = lines(answer, self.unfolded, self.opened)
        heads = [n for n, each in enumerate(found) if each.block == block]
        self.at = next((n for n in heads if found[n].layers[0] == line.layers[0]), heads[0])

    # ---- what can be seen of it -------------------------------------------------------------------

    @property
    def opens(self) -> tuple[str, str, str]:
        """The action whose view shows the selected module, a word for the view, and what it shows; empty for none."""
        line = self.line
        part = line.part if line is not None else None
        if line is None:
            sort = ""
        elif line.block is not None:
            sort = "layer"
        elif line.label == "head":
            sort = "head"
        elif part is not None and (part.experts or line.label.strip() in ("router", "mixture of experts")):
            sort = "experts"
        else:
            sort = line.inside if part is not None else ""
        found = OPENS.get(sort, NOTHING)
        return found if self.host.has(found[0]) else NOTHING

    def goes_to(self, action: str) -> None:
        """The view opens on the layer of the selected module, if it is of one layer."""
        if (line := self.line) is not None and len(line.layers) == 1:
            self.host.point(self.TOOL if action == "experts" else action, line.layers[0] + 1)

    def open(self) -> None:
        """Show what can be seen of the selected module."""
        if self.opens[0]:
            self.host.press(self.opens[0])


def _widths(width: int, label: int) -> dict[str, int]:
    """Of the columns; 0 for one that there is no room for.

    Args:
        width: Of all.
        label: Of the longest label: where it is short, there is more room for what a module is.
    """
    none = dict.fromkeys((*COLUMNS, "bar"), 0)
    if width >= 100:
        rest = width - 74  # less those of fixed width, and two blanks before each
        figures = {"shape": 14, "parameters": 7, "bytes": 8, "share": 6}
        return {"label": 27, "says": min(rest - 8, 40), **figures, "bar": max(8, rest - 40)}
    if width >= 66:
        label = min(25, label)
        return {**none, "label": label, "says": width - label - 26, "parameters": 6, "share": 6, "bar": 6}
    if width >= 52:
        label = min(23, label)
        return {**none, "label": label, "says": width - label - 10, "parameters": 6}
    return {**none, "label": max(12, width - 16), "parameters": 6, "share": 6}


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
    each = f"{count(part.parameters)} parameters{' in each layer' * (len(line.layers) > 1)}"
    way = f"{times(part.given)} → {times(part.returned)} for a token" if part.given and part.returned else ""
    return " · ".join(filter(None, (arrays, each, way)))


# ---- what one token chose: experts of each layer, and states of recurrent layers ----------------

SHADES = "░▒▓█"
"""The shades of a weight up to a quarter, a half, three quarters, and above."""
LOW = 8
"""Lines of a view below which the numbers come before the words."""
NAME = 8
CELL = 8


class ExpertsScreen(InsideView[ExpertsRead]):
    """Layers by experts, and layers by states.

    Args:
        tool: Has the answers, and the layer that was chosen among the modules, which is shown first.
    """

    TOOL: ClassVar[str] = "modules"
    opener = "experts"
    ACTIONS: ClassVar[ActionTable] = EXPERTS_SCREEN

    def __init__(self, tool: ModulesActions) -> None:
        super().__init__(tool.host, tool.experts)
        self.chosen_layer = tool.layer

    def question(self) -> tuple[Hashable, Command]:
        return self.node, ReadExperts(self.node)

    def heading(self, answer: ExpertsRead | None) -> str:
        if answer is None or answer.layers:
            return "Experts that this token went through"
        return "What recurrent layers keep after this token" if answer.states else "Experts and states"

    def draw(self, answer: ExpertsRead, on: Canvas, width: int, height: int) -> list[Row]:
        # the chosen layer before all others: in a large model it would be out of sight
        experts = [each for each in answer.layers if each.layer == self.chosen_layer]
        states = [each for each in answer.states if each.layer == self.chosen_layer]
        rows: list[Row] = [*_experts(experts, on, width), *_states(states, on, width)]
        if self.chosen_layer is not None and not rows:
            says = f"Layer {self.chosen_layer + 1} has no experts and no state."
            rows.append([Segment(says, on.ink("muted"))])
        if height >= LOW:
            summaries = experts_summary(answer.layers), states_summary(answer.states)
            rows += paragraph(on.ink("accent"), width, *filter(None, summaries))
        wide = _fits(answer.layers, width)
        what = "A column is an expert, a number" if wide else "Each expert that was chosen, and"
        for numbers, legend in (
            (list(_experts(answer.layers, on, width)),
             f"{what} its weight: what its output is multiplied by before it is added."),
            (list(_states(answer.states, on, width)), STATES),
        ):  # fmt: skip
            if numbers:
                said, gap = paragraph(on.ink("muted"), width, legend), [list[Segment]()] if rows else []
                rows += [*gap, *numbers, *said] if height < LOW else [*gap, *said, *numbers]
        for sentence in answer.missing:
            rows += [[], *paragraph(on.ink("muted"), width, visible(sentence))]
        return rows


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
