"""Two models in lockstep as a tool: its keys, and the second model."""

from __future__ import annotations

from collections.abc import Callable

from engine.protocol import (
    OpenLockstep,
    WaysParted,
)
from inspector.main.evidence import ExportPart
from inspector.main.tool import Host, Tool, ToolActions
from inspector.tools.lockstep.control import LOCKSTEP_SCREEN, LockstepControl
from inspector.widgets.actions import Action, Needs


class LockstepActions(ToolActions):
    """Opens the screen, and keeps the second model.

    Args:
        host: The main screen.
        against: The second model to open with the first; None for none.
    """

    def __init__(self, host: Host, against: OpenLockstep | None = None) -> None:
        super().__init__(host)
        self.control = LockstepControl(host.controller, against)

    def open(self) -> None:
        """Show both models at the selected token."""
        from inspector.tools.lockstep.screen import LockstepScreen

        self.open_screen(LockstepScreen(self.host, self.control), self._left)

    def _left(self, ways: WaysParted | None) -> None:
        """Have both ways compared as branches, where that was asked for."""
        if ways is None:
            return

        def compare() -> None:
            path = [item.node for item in self.timeline.items]
            if ways.node in path and ways.parted is not None:
                self.timeline.select(
                    path.index(ways.node) + 1 + ways.parted
                )  # of the branches, the one that parts there
            self.host.press("compare")

        self.control.branch(ways, compare)
        self.host.answer("Both continuations become branches of the tree")


# ---- keys ---------------------------------------------------------------------------------------


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.lockstep.evidence import LOCKSTEP_PART

    return (LOCKSTEP_PART,)


def lockstep(against: OpenLockstep | None) -> Tool:
    """The tool of a program that begins with a second model.

    Args:
        against: The second model; None for none.
    """
    make: Callable[[Host], ToolActions] = lambda host: LockstepActions(host, against)  # noqa: E731
    return Tool(
        "lockstep",
        "Lockstep",
        make,
        screen=True,
        actions=(
            Action("lockstep", "Lockstep", "Compare with a second model: one text, both distributions at each token.",
            LockstepActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.state.opened is not None, looks=True,
            synonyms="two models, second model, other model, compare models, quantized model, "
            "compare with the 4-bit model, lora, adapter, fine-tuned model, kl divergence, "
            "base against chat model", view="models"),
        ),
        owners=(LOCKSTEP_SCREEN,),
        exports=_exports,
    )  # fmt: skip


LOCKSTEP = lockstep(None)
