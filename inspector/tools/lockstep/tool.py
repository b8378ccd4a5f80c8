"""Two models in lockstep as a tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.protocol import OpenLockstep, WaysParted
from inspector.main.tool import LOOK, Host, Tool, ToolActions
from inspector.tools.lockstep.control import LockstepControl
from inspector.widgets.actions import Action, Needs, back, both, screen_table


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
        self.host.answer("Both ways become branches of the tree")


_QUANTIZED = "Compare with this model quantized to 4 or 8 bits."


def _looking(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, once there is a second model, or a recording."""
    return lambda own: word if own.recorded or own.opened is not None else ""


def _compared(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, once there is a second model."""
    return lambda own: word if own.opened is not None else ""


LOCKSTEP_SCREEN = screen_table(
    "In the lockstep of two models",
    Action("lockstep.four_bits", "4 bits", _QUANTIZED, lambda own: own.open_second(4), Needs.ENGINE, worth=9,
           hint=lambda own: "" if own.opened else "4 bits"),
    Action("lockstep.eight_bits", "8 bits", _QUANTIZED, lambda own: own.open_second(8), Needs.ENGINE, worth=8,
           hint=lambda own: "" if own.opened else "8 bits"),
    Action("lockstep.follow_first", "Follow P",
           "Follow P: step by the first model's pick; at an older token walk one forward.",
           lambda own: own.follow_first(), Needs.ENGINE, hint=_compared("follow P"), worth=9, place=2),
    Action("lockstep.follow_second", "Follow Q", "Follow Q: step by the second model's pick.",
           lambda own: own.follow_second(), Needs.ENGINE, hint=_compared("follow Q"), worth=8, place=3),
    Action("lockstep.ways", "Own ways",
           "Let each go its own way from the cursor: where they part and meet; then the candidates.",
           lambda own: own.part(), worth=8, place=4,
           hint=lambda own: "" if own.recorded or not own.opened else "candidates" if own.way else "own ways"),
    Action("lockstep.branch", "Branches",
           "While the two ways are shown: take both as branches of the tree, and compare them.",
           lambda own: own.branch(), Needs.ENGINE, worth=9, place=1,
           hint=lambda own: "branches, compared" if own.way else ""),
    *both(("earlier", "later"), ("Token before", "Next token"), "Look at another token.", lambda own, by: own.walk(by),
          hint=_looking("token"), worth=7, place=5),
    Action("first", "First token", "Look at another token.", lambda own: own.look_at(0)),
    Action("tip", "Last token", "Look at another token.", lambda own: own.look_at(None)),
    Action("lockstep.measure", "Measure", "Colour by KL(P||Q), by the change of logprob or by the change of rank.",
           lambda own: own.change_measure(), hint=_looking("measure"), worth=5, place=6),
    *both(("lockstep.next_flip", "lockstep.flip_before"), ("Next flip", "Flip before"),
          "Go to the next token with another top token (`≠`), or to the one before.",
          lambda own, by: own.go_to_flip(by), by=(1, -1), hint=_looking("flip ≠"), worth=6, place=7, one=True),
    Action("lockstep.largest", "Largest", "Go to the largest.", lambda own: own.go_to_largest(),
           hint=_looking("largest"), worth=4, place=8),
    back("lockstep.leave", "Go back; the second model stays.", worth=10),
    text="P is the session's model, Q the second one: `--against MODEL`, `--against-bits 4`, `--against-adapter DIR`, "
    "`--against-system-prompt TEXT` or `--against-chat-template FILE` open it at the start. KL(P||Q) is in bits, over "
    "the whole vocabulary (llama.cpp prints nats). Where the two cut the text into different tokens, only "
    "logprobs between common borders are compared.",
)  # fmt: skip


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
            recorded=lambda own: own.control.state.opened is not None, group=LOOK,
            synonyms="two models second model other model compare models quantized adapter lora divergence kl"),
        ),
        owners=(LOCKSTEP_SCREEN,),
    )  # fmt: skip


LOCKSTEP = lockstep(None)
