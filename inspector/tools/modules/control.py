"""The answers of the engine about the inside of the model, and the keys of its pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import ExpertsRead, ModelModules
from inspector.main.inside_view import look_table, walking
from inspector.main.tool import ToolActions
from inspector.session.requests import Replies
from inspector.widgets.actions import Action, both

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class ModulesActions(ToolActions):
    """The answers of the engine, and the layer that was chosen."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        client = host.controller.client
        self.modules = Replies(client, ModelModules)
        self.experts = Replies(client, ExpertsRead)
        self.layer: int | None = None
        """The layer that is marked among the experts and states, from 0; None for none."""

    def point(self, *place: int) -> None:
        """Mark a layer among the experts and states."""
        self.layer = place[0] - 1


_MODULE = "Go from module to module."
MODULES_SCREEN = look_table(
    "Inside the model",
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
    leave="Go back.",
    text="`│` is the residual stream, `╮` a branch off it, `⊕` where its result is added. Of folded layers the numbers "
    "are those of all of them together. In the page of experts `←` and `→` go to other tokens.",
)  # fmt: skip
EXPERTS_SCREEN = look_table("In the page of experts", *walking(), told=False)
