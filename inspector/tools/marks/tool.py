"""Marks as a tool: the keys that go from one to the next, and the list of all."""

from __future__ import annotations

from inspector.main.tool import LOOK, Tool, ToolActions
from inspector.widgets.actions import Action, Needs, dialog_table, leaves, picking, taking


class MarkActions(ToolActions):
    """Goes to branch points, bookmarks, notes and captions."""

    def walk(self, by: int) -> None:
        """Look at the mark before or after."""
        from inspector.tools.marks.places import go

        self.host.answer(go(self.timeline, by))

    def open(self) -> None:
        """List all marks, and go to the one that is chosen."""
        from inspector.tools.marks.dialog import MarksDialog
        from inspector.tools.marks.places import places

        selected = self.timeline.selected
        self.host.open(MarksDialog(places(self.timeline), selected.node if selected else 0), self._chosen)

    def _chosen(self, node: int | None) -> None:
        if node is not None and node in self.timeline.tree.branches:
            self.controller.navigation.go_to(node)
            self.host.answer()


MARKS_KEYS = dialog_table(
    "In the list of marks",
    *picking("Go through them: those of the path first, then those of other branches.", "mark"),
    taking("Go there, as a second click on it does; on another branch the KV cache moves.", "go there"),
    leaves("Leave."),
)
MARKS = Tool(
    "marks",
    "Marks",
    MarkActions,
    actions=(
        Action("previous_mark", "Mark before",
            "Look at the mark before: a branch point of the path, a bookmark, a note or a caption.",
            lambda own: own.walk(-1), Needs.DISTRIBUTION, group=LOOK),
        Action("next_mark", "Next mark", "Look at the next mark.", lambda own: own.walk(1), Needs.DISTRIBUTION,
            group=LOOK),
        Action("marks", "Marks",
            "List all marks: branch points of the path, and bookmarks, notes and captions of every branch; enter goes "
            "there.", MarkActions.open, Needs.DISTRIBUTION, group=LOOK, synonyms="bookmarks notes annotations"),
    ),
    owners=(MARKS_KEYS,),
)  # fmt: skip
