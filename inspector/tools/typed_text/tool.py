"""Typed text as a tool: the key that puts a text of one's own into the path, and says what the model thought of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from engine.protocol import Insert, Step
from inspector import scales
from inspector.keys import key_for
from inspector.main.tool import Tool, ToolActions, live
from inspector.session.client import Request
from inspector.tools.typed_text import OWN_TEXT_KEYS, label_of
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class TypedTextActions(ToolActions):
    """Takes a text token by token."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._text = ""
        """The text that was typed and not inserted yet."""
        self._forbidden: tuple[int, str] | None = None
        """Node and text of the insertion that was refused last: the same again leaves a grammar that forbids it."""

    def open(self) -> None:
        """Ask for a text, and take it token by token."""
        from inspector.tools.typed_text.dialog import OwnTextDialog

        self.controller.client.pause()
        if not self.timeline.slot:
            self.host.answer(
                "Nothing can be typed before the first token. Press → for a later one, or "
                f"{key_for('prompt')} for another prompt"
            )
            return
        dialog = OwnTextDialog(self._text, self.timeline, self.controller.client)
        self.host.open(dialog, partial(self._left, self.timeline.before))
        self.host.answer()

    def _left(self, node: int, typed: tuple[str, bool] | None) -> None:
        if typed is None:
            return
        self._text, submitted = typed
        if submitted:
            again = self._forbidden == (node, self._text)
            self.controller.client.do(Insert(node, self._text, leave_grammar=again), self._inserted)
            self.host.answer()

    def _inserted(self, request: Request[Insert]) -> None:
        """Say what the model thought of it; what was not taken stays to be typed again."""
        if request.failure is not None:
            self._forbidden = request.command.node, request.command.text
        elif not request.cancelled:
            self._text = ""
        steps = [record for record in request.records if isinstance(record, Step)]
        self.host.answer(typed_summary(steps, request.cancelled))


# ---- what the model thought of it -------------------------------------------------------------


def typed_summary(steps: Sequence[Step], stopped: bool = False) -> str:
    """One sentence on the tokens that were typed; printable.

    Args:
        steps: One for each token.
        stopped: Whether the user stopped it before its end.
    """
    if not steps:
        kept = f"Stopped: none of it was taken. Your text is kept: press {key_for('own_text')}"
        return kept if stopped else ""
    lead = "Stopped: " if stopped else ""
    bits = scales.bits(sum(step.surprisal_bits for step in steps))
    least = max(steps, key=lambda step: step.surprisal_bits)
    expected = f"{label_of(least)} ({scales.tiny(least.prob)}, rank {least.rank:,})"
    if len(steps) == 1:
        return f"{lead}1 token typed: {expected}, {bits} bits"
    return f"{lead}{len(steps):,} tokens typed: {bits} bits in all; the least expected was {expected}"


# ---- keys -------------------------------------------------------------------------------------

TYPED_TEXT = Tool(
    "typed_text",
    "Type your own",
    TypedTextActions,
    actions=(
        Action("own_text", "Type your own",
            "Type a text, special tokens included, in the place of the selected token, on a new branch; the status "
            "line shows its surprisal.", TypedTextActions.open,
            Needs.DISTRIBUTION | Needs.ENGINE, hint=live("type"), worth=2, place=70,
            synonyms="insert text, write text, force text, edit text, prefill the answer, inject text"),
    ),
    owners=(OWN_TEXT_KEYS,),
)  # fmt: skip
