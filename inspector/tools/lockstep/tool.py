"""Two models in lockstep as a tool: its key, and the second model to begin with."""

from __future__ import annotations

from engine.protocol import OpenLockstep, WaysParted
from inspector.main.tool import Tool
from inspector.tools.lockstep.control import LOCKSTEP_SCREEN, LockstepActions
from inspector.widgets.actions import Action, Needs


def _open(own: LockstepActions) -> None:
    from inspector.tools.lockstep.screen import LockstepScreen

    def left(ways: WaysParted | None) -> None:
        if ways is None:
            return

        def compare() -> None:
            path = [item.node for item in own.timeline.items]
            if ways.node in path and ways.parted is not None:  # of the branches, the one that parts there
                own.timeline.select(path.index(ways.node) + 1 + ways.parted)
            own.host.press("compare")

        own.branch(ways, compare)
        own.host.answer("Both continuations become branches of the tree")

    own.open_screen(LockstepScreen(own.host, own), left)


def lockstep(against: OpenLockstep | None) -> Tool:
    """The tool of a program that begins with a second model.

    Args:
        against: The second model; None for none.
    """
    return Tool(
        "lockstep",
        "Lockstep",
        lambda host: LockstepActions(host, against),
        actions=(
            Action("lockstep", "Lockstep", "Compare with a second model: one text, both distributions at each token.",
            _open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.state.opened is not None, looks=True,
            synonyms="two models, second model, other model, compare models, quantized model, "
            "compare with the 4-bit model, lora, adapter, fine-tuned model, kl divergence, "
            "base against chat model", view="models"),
        ),
        owners=(LOCKSTEP_SCREEN,),
        exports=("inspector.tools.lockstep.evidence:LOCKSTEP_PART",),
    )  # fmt: skip


LOCKSTEP = lockstep(None)
