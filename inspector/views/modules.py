"""The map of the model: its modules from the top down, and the experts and states of one token."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment

from engine.protocol import Command, ExpertsRead, Failure, ModelModules, ReadExperts, ReadModules
from inspector.blocks.paint import ENDLESS, Painter
from inspector.display import first_fitting
from inspector.documents import experts
from inspector.documents.modules import Line, about, lines, listing, sums
from inspector.main.inside_view import InsideView, look_table, page, walking
from inspector.session.requests import Replies
from inspector.widgets.actions import Action, ActionTable, both
from inspector.widgets.canvas import Canvas, Row

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

DETAIL = 5
"""Lines about the selected module on a screen that is not tall, the rule above them included."""
ROOM, TALL = 14, 26
"""Lines of the view from which there is room for these, and for all lines about the module."""
LOW = 8
"""Lines of the experts view below which the numbers come before the words."""
OPENS = {
    "attention": ("attention", "attention", "where this attention looks"),
    "layer": ("lens", "lens", "what each layer would predict"),
    "head": ("lens", "lens", "what each layer would predict"),
    "mlp": ("attribution", "contributions", "what each part adds to a logit"),
    "experts": ("experts", "experts", "which experts the token went through"),
    "recurrence": ("experts", "states", "its state, before and after"),
    "rope": ("positions", "position", "what another position would change"),
}
"""The action that opens a view of each sort of module, a word for the view, and what it shows."""
NOTHING = ("", "", "")

_MODULE = "Go from module to module."
MODULES_KEYS = look_table(
    "In the map",
    *both(("modules.up", "modules.down"), ("Up", "Down"), _MODULE, lambda own, by: own.go(by), worth=8,
          hint=lambda own: "module" if own.line is not None else ""),
    Action("first", "First module", _MODULE, lambda own: own.go(-own.at)),
    Action("tip", "Last module", _MODULE, lambda own: own.go(len(own.lines))),
    *both(("modules.page_up", "modules.page_down"), ("Page up", "Page down"), _MODULE, lambda own, by: own.go(by),
          by=(-10, 10)),
    Action("modules.open", "Open",
           "Look inside it: for an attention, where it looks; for a layer, what it would predict. The view opens at "
           "its layer, if it has one.",
           lambda own: own.open(), hint=lambda own: own.opens[1], worth=7),
    *both(("modules.fold", "modules.unfold"), ("Fold", "Unfold"),
          "Unfold layers that are alike, then one of them; fold them again.", lambda own, by: own.unfold(by),
          hint=lambda own: "fold, unfold" if own.folds is not None else "", worth=6,
          written="`{modules.unfold}` `{modules.fold}`"),
    page("positions", "position"),
    page("facts", "all facts", 4),
    page("open", "another model", 4),
    page("experts", lambda own: "experts" if own.facts is not None and own.facts.chooses_or_keeps else ""),
    leave="Go back.",
    text="`│` is the residual stream, `╮` a branch off it, `⊕` where its result is added. Figures for repeated "
    "layers are totals. In the page of experts `←` and `→` go to other tokens.",
)  # fmt: skip


class ModulesView(InsideView[ModelModules]):
    """The modules of the model on a token's way."""

    TOOL: ClassVar[str] = "modules"
    ACTIONS: ClassVar[ActionTable] = MODULES_KEYS
    ASKS: ClassVar[bool] = False

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host, Replies(host.controller.client, ModelModules))
        self.at = 0
        """The index of the selected line."""
        self.unfolded: set[int] = set()
        """Blocks of like layers that are shown layer by layer, by index."""
        self.opened: set[int] = set()
        """Layers of these blocks whose parts are shown."""
        self.lines: list[Line] = []
        """The lines that are not folded."""

    def begin(self) -> None:
        """Begin at the top, with like layers folded."""
        self.at, self.unfolded, self.opened, self.answer = 0, set(), set(), None

    def question(self) -> tuple[Hashable, Command]:
        facts, question = self.facts, ReadModules(second=self.looked is not None)
        return (facts.path, facts.weight_bytes) if facts is not None else None, question

    def found(self, answer: ModelModules | None, failure: Failure | None) -> None:
        """See `InsideView`; make the lines again if the answer is a different one."""
        if answer is not self.answer:
            self.lines = lines(answer, self.unfolded, self.opened) if answer is not None else []
            self.at = max(0, min(self.at, len(self.lines) - 1))
        super().found(answer, failure)

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: ModelModules | None) -> str:
        facts = self.facts
        return f"How a token passes through {facts.name}" if facts is not None else "Map of the model"

    def situation(self) -> str:
        """The totals of the whole model."""
        if self.answer is None:
            return super().situation()
        short = sums(self.answer)
        long = f"{short} · read from the weights and one token's forward pass"
        return first_fitting(self.app.size.width - 2, long, short)

    def draw(self, answer: ModelModules, on: Canvas, width: int, height: int) -> list[Row]:
        painter, below = Painter(on), list[Row]()
        if height >= ROOM:
            _, word, what = self.opens
            detail = painter.draw(about(self.lines[self.at], (what, word) if word else ()), width, ENDLESS)
            below = [[Segment("─" * width, on.ink("faint"))], *detail][: DETAIL if height < TALL else None]
        rows = painter.draw([listing(answer, self.lines, self.at)], width, height - len(below))
        return [*rows, *[list[Segment]()] * (height - len(below) - len(rows)), *below]

    # ---- keys -----------------------------------------------------------------------------------

    @property
    def line(self) -> Line | None:
        """The selected line."""
        return self.lines[self.at] if self.lines else None

    def go(self, by: int) -> None:
        self.at = max(0, min(self.at + by, len(self.lines) - 1))

    @property
    def folds(self) -> int | None:
        """The index of the block of like layers that the selected line belongs to; None if it belongs to none."""
        line, blocks = self.line, self.answer.blocks if self.answer is not None else ()
        if line is None or not line.layers:
            return None
        own = (
            n
            for n, each in enumerate(blocks)
            if set(line.layers) <= set(each.layers) and len(each.layers) > 1
        )
        return next(own, None)

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

    @property
    def opens(self) -> tuple[str, str, str]:
        """The entry in `OPENS` for the selected module."""
        line = self.line
        if line is None:
            return NOTHING
        by_sort = line.sort in ("layer", "head", "experts", "rope")
        found = OPENS.get(line.sort if by_sort else line.inside, NOTHING)
        return found if self.host.has(found[0]) else NOTHING

    def open(self) -> None:
        """Open the view of the selected module."""
        if self.opens[0]:
            self.host.press(self.opens[0])

    def goes_to(self, action: str) -> None:
        """Open a view on the layer of the selected module, if that is in a single layer."""
        if (line := self.line) is not None and len(line.layers) == 1:
            self.host.point(action, line.layers[0] + 1)


class ExpertsView(InsideView[ExpertsRead]):
    """The experts that a token went through, and the states of recurrent layers."""

    TOOL: ClassVar[str] = "modules"
    ACTIONS: ClassVar[ActionTable] = look_table(
        "In the page of experts", *walking(), page("modules", "map"), told=False
    )

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host, Replies(host.controller.client, ExpertsRead))
        self._layer: int | None = None
        """The layer that is shown first, counted from 0; None for no choice."""

    def point(self, *place: int) -> None:
        """Choose the layer that is shown first."""
        self._layer = place[0] - 1

    def question(self) -> tuple[Hashable, Command]:
        return self.node, ReadExperts(self.node)

    def heading(self, answer: ExpertsRead | None) -> str:
        if answer is None or answer.layers:
            return "Experts that this token went through"
        return "What recurrent layers keep after this token" if answer.states else "Experts and states"

    def draw(self, answer: ExpertsRead, on: Canvas, width: int, height: int) -> list[Row]:
        blocks = experts.view(answer, self._layer, experts.fits(answer.layers, width), height < LOW)
        return Painter(on).draw(blocks, width, ENDLESS)
