"""Copying as a tool: a menu of what there is, and what was selected with the mouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspector.keys import key_for, with_keys
from inspector.main.tool import LOOK, Tool, ToolActions
from inspector.scales import size
from inspector.state.conditions import in_short, made_with
from inspector.widgets.actions import Action, Needs, dialog_table, leaves, picking, taking

if TYPE_CHECKING:
    from inspector.tools.copy.texts import Copyable

MOST_BYTES = 74_994
"""Terminals that limit a clipboard's escape sequence take 100,000 bytes of it (hterm, and scripts that follow it): 8
around the text, and 4 for every 3 of the text's own."""
NOTHING_SELECTED = (
    "Nothing is selected to copy: drag over the text, or press {copy} for a menu. "
    "{quit} quits, ctrl+q from everywhere; esc or {step} pauses a run."
)


class CopyActions(ToolActions):
    """Puts texts on the clipboard, and says how much that was."""

    def open(self) -> None:
        """Ask what to copy."""
        from inspector.tools.copy.dialog import CopyDialog
        from inspector.tools.copy.texts import copyables

        listed = copyables(self.timeline, self.host.candidate, self.controller.setup.settings)
        self.host.open(CopyDialog(listed), self._chosen)

    def _chosen(self, chosen: Copyable | None) -> None:
        if chosen is not None:
            made = () if chosen.complete else made_with(self.timeline.tree, self.timeline.items)
            self._copy(chosen.text(), chosen.name, in_short(made))

    def selection(self) -> None:
        """Copy what is selected with the mouse."""
        if text := self.host.clipboard.selected:
            self._copy(text, "the selection")
        else:
            self.host.announce(with_keys(NOTHING_SELECTED), "Still here")

    def _copy(self, text: str, name: str, made: str = "") -> None:
        sent = self.host.clipboard.copy(text)
        told = f"Copied {name}: {len(text):,} character{'s' * (len(text) != 1)}"
        if sent > MOST_BYTES:
            told += (
                f", {size(sent)}. Some terminals take {MOST_BYTES:,} at most: where it doesn't arrive, "
                f"press {key_for('export')}"
            )
        if made:
            told += f". The path was made with {made}: what was copied doesn't say so"
        self.host.answer(told)


COPY_KEYS = dialog_table(
    "While something is copied",
    *picking("Go through what can be copied.", "choose"),
    taking("Copy it to the terminal's clipboard.", "copy", written="`⏎`, or the letter before it"),
    leaves("Leave."),
)
COPY = Tool(
    "copy",
    "Copy",
    CopyActions,
    actions=(
        Action("copy", "Copy",
            "Copy the token, its id, the completion, the path with probabilities, the branch as JSON and more.",
            CopyActions.open, Needs.DISTRIBUTION, group=LOOK, synonyms="clipboard"),
        Action("copy_selection", "Copy selection", "Copy what was selected in the text by dragging with the mouse.",
            CopyActions.selection, group=LOOK),
    ),
    owners=(COPY_KEYS,),
)  # fmt: skip
