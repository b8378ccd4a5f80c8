"""Two models in lockstep as a tool."""

from __future__ import annotations

from collections.abc import Callable

from engine.commands import OpenLockstep
from engine.records import WaysParted
from inspector.keys import KEYS
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.tools.lockstep.control import LockstepControl


class LockstepActions(ToolActions):
    """Opens the screen, and keeps the second model.

    Args:
        host: The main screen.
        against: The second model to open with the first; None for none.
    """

    def __init__(self, host: Host, against: OpenLockstep | None = None) -> None:
        super().__init__(host)
        self.control = LockstepControl(host.controller, against)
        host.controller.client.listeners.append(self.control.receive)

    def open(self) -> None:
        """Show both models at the selected token."""
        from inspector.tools.lockstep.screen import LockstepScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(LockstepScreen(self.host, self.control), self._left)

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
        self.host.answer("Both ways become branches of the tree")


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
        keys=(
            Key("lockstep", *KEYS["lockstep"], "Lockstep", LOOK,
                "Compare with a second model: one text, both distributions at each token.",
                LockstepActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
                recorded=lambda own: own.control.state.opened is not None),
        ),
        help=(
            HelpSection(
                "In the lockstep of two models",
                (
                    ("`4` `8`", "Compare with this model quantized to 4 or 8 bits."),
                    ("`space`", "Follow P: step by the first model's pick; at an older token walk one forward."),
                    ("`b`", "Follow Q: step by the second model's pick."),
                    ("`w`", "Let each go its own way from the cursor: where they part and meet; then the candidates."),
                    ("`⏎`", "While the two ways are shown: take both as branches of the tree, and compare them."),
                    ("`←` `→` `home` `end`", "Look at another token."),
                    ("`m`", "Colour by KL(P||Q), by the change of logprob or by the change of rank."),
                    ("`n` `N`", "Go to the next token with another top token (`≠`), or to the one before."),
                    ("`g`", "Go to the largest."),
                    ("`T`", "Switch between the dark and the light theme."),
                    ("`esc` `h` `q`", "Go back; the second model stays."),
                ),
                "P is the session's model, Q the second one: `--against MODEL`, `--against-bits 4`, "
                "`--against-adapter DIR`, `--against-system-prompt TEXT` or `--against-chat-template FILE` open it at "
                "the start. KL(P||Q) is in bits, over the whole vocabulary (llama.cpp prints nats). "
                "Where the two cut the text into different tokens, only logprobs between common borders are compared.",
            ),
        ),
    )  # fmt: skip


LOCKSTEP = lockstep(None)
